"""Vectors as values of models: their distances, their smaller stored forms, and bounds of distances by numpy."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "arrays")
