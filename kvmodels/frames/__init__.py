"""Results of queries as tables of Arrow, data frames and Parquet files, and the way back."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(
    __name__, "csv_rows", "frames", "layouts", "parquet_files", "sources", "streams", "table_rows"
)
