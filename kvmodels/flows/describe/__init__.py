"""Descriptions of a store: its catalogue, its keys, its sizes."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "catalogue", "keys", "kv_views", "preview", "query_views", "stats", "tenants")
