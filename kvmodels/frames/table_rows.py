"""The rows of Arrow tables and Parquet files, as the input of a model.

Rules of this module: one batch is in memory, and a file may be read twice. A time keeps its microseconds; one with
nanoseconds is refused, because pydantic would cut them off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from kvmodels.errors import DecodeError, InvalidValueError
from kvmodels.schema.arrow.packages import arrow, parquet

M = TypeVar("M", bound=BaseModel)

_AT_ONCE: Final = 500


def names_in(file: IO[bytes]) -> list[str]:
    """Return the names of the columns. Raises DecodeError: this is not a Parquet file."""
    return list(_opened(file).schema_arrow.names)


def rows_in(file: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the rows, each a dict of plain values. Raises DecodeError: the file is not Parquet, or damaged."""
    return rows_of(_opened(file).iter_batches(batch_size=_AT_ONCE))


def rows_of(batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of batches, each a dict of plain values. Raises DecodeError, InvalidValueError."""
    try:
        for batch in batches:
            for start in range(0, batch.num_rows, _AT_ONCE):
                part = _in_microseconds(batch.slice(start, _AT_ONCE))
                yield from part.to_pylist(maps_as_pydicts="strict")
    except InvalidValueError:
        raise
    # Of dates after the year 9999, and of maps with a repeated key.
    except (arrow.ArrowException, OSError, ValueError, OverflowError, KeyError) as error:
        raise unreadable(error) from error


def object_of(model: type[M], row: dict[str, Any]) -> M:
    """Return the object of a row. Raises pydantic.ValidationError."""
    try:
        return model.model_validate(row, by_alias=True, by_name=True)
    except ValidationError:
        # A tuple of different types is a struct with the positions as names.
        return model.model_validate(_with_tuples(row), by_alias=True, by_name=True)


def unreadable(error: Exception) -> DecodeError:
    """Return the error for a table that cannot be read."""
    return DecodeError(
        "a table cannot be read",
        reason=type(error).__name__,
        hint="It is damaged, or holds values that Python has no type for.",
    )


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
        raise DecodeError(
            "a Parquet file cannot be read",
            reason=type(error).__name__,
            hint="The file is damaged, or of another format. Nothing was written.",
        ) from error


def _in_microseconds(batch: Any) -> Any:
    """Return a batch whose times have microseconds, as those of Python."""
    for at, field in enumerate(batch.schema):
        kind = _kept(field.type)
        if kind is field.type:
            continue
        try:
            batch = batch.set_column(at, field.with_type(kind), batch.column(at).cast(kind))
        except arrow.ArrowInvalid as error:
            raise InvalidValueError(
                "a column has times with nanoseconds",
                field=field.name,
                type=str(field.type),
                hint="Times are stored in microseconds: round the column before.",
            ) from error
    return batch


def _kept(kind: Any) -> Any:
    """Return a type of a column with microseconds in place of nanoseconds; the same object if it has none."""
    types = arrow.types
    if types.is_timestamp(kind) and kind.unit == "ns":
        return arrow.timestamp("us", kind.tz)
    if types.is_duration(kind) and kind.unit == "ns":
        return arrow.duration("us")
    if types.is_time64(kind) and kind.unit == "ns":
        return arrow.time64("us")
    if types.is_list(kind) or types.is_large_list(kind):
        inner = _kept(kind.value_type)
        return kind if inner is kind.value_type else arrow.list_(inner)
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        kept = [one.with_type(_kept(one.type)) for one in fields]
        return kind if kept == fields else arrow.struct(kept)
    return kind
