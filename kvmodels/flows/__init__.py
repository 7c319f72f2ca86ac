"""Flows: what the verbs do, as generators that yield requests; nothing here does I/O or knows an engine.

Rules of this module: these parts are loaded when they are first used, because no program uses all of them; each costs
half a millisecond to three, with what it alone needs.
"""

from __future__ import annotations

from kvmodels.deferred import deferred_modules

__getattr__ = deferred_modules(
    __name__,
    "aggregation",
    "answers",
    "build",
    "bulk",
    "bulk_progress",
    "bulk_query",
    "bulk_results",
    "bulk_run",
    "bulk_update",
    "context",
    "counters",
    "crud",
    "direct_writes",
    "drop",
    "dumping",
    "fetch",
    "findings",
    "keyvalue",
    "listing",
    "loading",
    "lock",
    "migrate",
    "namespace",
    "opening",
    "pace",
    "plan",
    "plan_apply",
    "queue",
    "requests",
    "scan",
    "scrub",
    "token",
    "transaction",
    "transaction_commit",
    "upsert",
    "violations",
    "watch",
)
