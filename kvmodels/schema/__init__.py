"""Schemas: models, markers, declared indexes, and the schemas compiled from them."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "binding")
