"""Verification and repair of a store."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "blobs", "counters", "findings", "scrub", "store", "tenants")
