"""Bulk writes: batches, progress and resumption."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(
    __name__,
    "create",
    "create_batch",
    "progress",
    "results",
    "run",
    "selection",
    "update",
)
