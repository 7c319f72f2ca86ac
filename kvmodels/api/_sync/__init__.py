"""The synchronous facades."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(
    __name__,
    "_compat",
    "board",
    "copies",
    "history",
    "kv",
    "lock",
    "namespace",
    "queue",
    "ranked",
    "repository",
    "transaction",
)
