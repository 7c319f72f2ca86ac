"""Schema evolution: opening, plans, index builds and migrations."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(
    __name__,
    "apply",
    "build",
    "drop_collection",
    "drop_index",
    "header",
    "histories",
    "migrate",
    "rotation",
    "throttle",
    "violations",
)
