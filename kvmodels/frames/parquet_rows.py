"""The rows of a Parquet file, as the input of a model.

Rules of this module: one batch is in memory, and the file may be read twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from kvmodels.errors import DecodeError
from kvmodels.schema.arrow.packages import arrow, parquet

M = TypeVar("M", bound=BaseModel)

_AT_ONCE: Final = 500


def names_in(file: IO[bytes]) -> list[str]:
    """Return the names of the columns. Raises DecodeError: this is not a Parquet file."""
    return list(_opened(file).schema_arrow.names)


def rows_in(file: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the rows, each a dict of plain values. Raises DecodeError: the file is not Parquet, or damaged."""
    try:
        for batch in _opened(file).iter_batches(batch_size=_AT_ONCE):
            yield from batch.to_pylist(maps_as_pydicts="strict")
    except (arrow.ArrowException, OSError) as error:
        raise _unreadable(error) from error


def object_of(model: type[M], row: dict[str, Any]) -> M:
    """Return the object of a row. Raises pydantic.ValidationError."""
    try:
        return model.model_validate(row, by_alias=True, by_name=True)
    except ValidationError:
        # A tuple of different types is a struct with the positions as names.
        return model.model_validate(_with_tuples(row), by_alias=True, by_name=True)


def _with_tuples(value: Any) -> Any:
    kind: type[Any] = value.__class__
    if kind is list:
        return [_with_tuples(one) for one in value]
    if kind is not dict:
        return value
    given: dict[str, Any] = value
    items = {name: _with_tuples(one) for name, one in given.items()}
    return [*items.values()] if items and [*items] == [str(at) for at in range(len(items))] else items


def _opened(file: IO[bytes]) -> Any:
    file.seek(0)
    try:
        return parquet.ParquetFile(file)
    except (arrow.ArrowException, OSError) as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> DecodeError:
    return DecodeError(
        "a Parquet file cannot be read",
        reason=type(error).__name__,
        hint="The file is damaged, or of another format. Nothing was written.",
    )
