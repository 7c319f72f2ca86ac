"""Arrow types of model fields, for data frames, Parquet and other tools that read tables."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "columns")
