"""Data frames of pandas and polars, made of tables of Arrow.

Rules of this module: a value of a frame equals that of the record, so ints and bools that may be missing keep their
types.
"""

from __future__ import annotations

from typing import Any

from kvmodels.schema.arrow.packages import arrow, pandas, polars


def pandas_frame(table: Any) -> Any:
    """Return a table as a ``pandas.DataFrame``.

    Whole numbers and truth values get the types of pandas that know missing values: otherwise None would turn ints into
    floats, which do not hold every int.
    """
    kinds = {
        arrow.int64(): pandas.Int64Dtype(),
        arrow.bool_(): pandas.BooleanDtype(),
    }
    return table.to_pandas(types_mapper=kinds.get)


def polars_frame(table: Any) -> Any:
    """Return a table as a ``polars.DataFrame``."""
    return polars.from_arrow(table)
