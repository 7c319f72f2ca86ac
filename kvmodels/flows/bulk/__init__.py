"""Bulk writes: batches, progress and resumption."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(
    __name__,
    "create",
    "create_from",
    "import_results",
    "loaded_objects",
    "options_and_results",
    "progress",
    "query_writes",
    "remove_cascade",
)
