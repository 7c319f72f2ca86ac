"""Results of queries as tables of Arrow, data frames and Parquet files, and the way back."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "frames", "layouts", "parquet_files", "parquet_rows", "streams")
