"""Encrypted fields of a model: their checks, and the documents that hold their sealed values."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "fields")
