"""Definitions: the resolved fields, storage forms, paths and upgrades of a model class."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "definition", "variants")
