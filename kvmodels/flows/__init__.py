"""Flows: the implementation of all methods as generators that yield requests; no I/O, independent of engines.

Rules of this module: parts are loaded at first use, because no program uses all of them; each costs half a millisecond
to three milliseconds, including its own dependencies.
"""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(
    __name__, "arguments", "context", "effects", "scans", "signals", "tenant_schemas", "tenants"
)
