"""Flows of the key-value API: lists, watch, queues, locks, namespaces, dump and load."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(
    __name__,
    "dead_letters",
    "deno_dump",
    "dump",
    "formats",
    "lock",
    "namespace",
    "operations",
    "queue",
    "record_watch",
    "watch",
)
