"""The compilation of a model class into a schema."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "options", "request_bodies", "schema")
