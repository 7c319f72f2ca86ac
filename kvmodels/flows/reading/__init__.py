"""Reads: lookups, queries, pages and aggregates."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "aggregate", "boards", "lookup", "queries", "ranked", "related", "scan")
