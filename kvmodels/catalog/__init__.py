"""The catalogue of a store: key layout, header, declared indexes and their states."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "evolution")
