"""Tables and files whose rows become objects: anything with an Arrow stream, Parquet files and CSV files.

Rules of this module: columns are checked before the first row is read. A file is open only during the import.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Protocol, TypeAlias, runtime_checkable

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from kvmodels._support.secret_values import HIDDEN, MASK
from kvmodels.engines.shared.file_checks import require_file_name
from kvmodels.errors import DecodeError, EngineError, InvalidArgumentError
from kvmodels.flows.bulk.create_from import RowSource
from kvmodels.frames import csv_rows, table_rows
from kvmodels.frames.placeholders import placeholder_in
from kvmodels.schema.arrow.packages import arrow
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.definition.variants import constructor_of

_INDEX_LEVEL: Final = re.compile(r"__index_level_\d+__")
"""The columns of a Parquet file into which pandas writes an index without a name."""

_HINT: Final = "Give a path that ends with .csv or .parquet, or a table of Arrow, pandas, polars or DuckDB."


@runtime_checkable
class ArrowStreamable(Protocol):
    """A table, data frame or query that has the C interface of Arrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


TableOrFile: TypeAlias = "str | os.PathLike[str] | ArrowStreamable"
"""A path of a CSV or Parquet file, or a table."""


@contextmanager
def opened(source: TableOrFile, model: type[KvModel]) -> Generator[RowSource[Any]]:
    """Yield the rows of a source.

    Raises:
        InvalidArgumentError: this is no table and no path of such a file, or two columns have one name.
        UnknownFieldError: a column is not a field of the model.
        EngineError: the file cannot be read.
        DecodeError: the file is damaged, or not of its format.
    """
    if not isinstance(source, str | os.PathLike):
        yield _of_stream(source, model)
        return
    path = _path(source)
    with _file(path) as file:
        if path.suffix.lower() == ".parquet":
            names = table_rows.names_in(file)
            yield _of_table(model, names, table_rows.rows_in(file))
        else:
            with io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
                yield _of_csv(model, text)


def _path(source: str | os.PathLike[Any]) -> Path:
    name = os.fspath(source)
    if isinstance(name, str):
        require_file_name("source", name)
        path = Path(name)
        if path.suffix.lower() in (".csv", ".parquet"):
            return path
    raise InvalidArgumentError("the format of a file is not known", argument="source", value=source, hint=_HINT)


def _file(path: Path) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as error:
        raise EngineError(
            "the file cannot be read", reason=f"{path}: {error.strerror}", hint="Check the path and its rights."
        ) from error


def _of_stream(source: object, model: type[KvModel]) -> RowSource[Any]:
    if isinstance(source, type) or not isinstance(source, ArrowStreamable):
        # Not the value: it may be a list of dicts with the values of encrypted fields.
        kind = type(source).__name__
        raise InvalidArgumentError("this is not a table", argument="source", value=kind, hint=_HINT)
    try:
        reader = arrow.RecordBatchReader.from_stream(source)
    except arrow.ArrowException as error:
        raise table_rows.unreadable(error) from error
    return _of_table(model, reader.schema.names, table_rows.rows_of(reader))


def _of_table(model: type[KvModel], names: Sequence[str], rows: Iterable[dict[str, Any]]) -> RowSource[Any]:
    ignored = _ignored(model, names)
    places = ((f"row {number}", row) for number, row in enumerate(rows, 1))
    return RowSource(places, partial(_validated, model, table_rows.object_of, ignored))


def _of_csv(model: type[KvModel], text: IO[str]) -> RowSource[Any]:
    rows = csv_rows.CsvRows(text)
    try:
        ignored = _ignored(model, rows.names())
    except UnicodeDecodeError as error:
        raise _not_text(error) from error
    return RowSource(_decoded(rows), partial(_validated, model, csv_rows.object_of, ignored))


def _decoded(rows: csv_rows.CsvRows) -> Iterator[tuple[str, csv_rows.Cells]]:
    try:
        yield from rows
    except UnicodeDecodeError as error:
        raise _not_text(error) from error


def _not_text(error: UnicodeDecodeError) -> DecodeError:
    return DecodeError(
        "a CSV file cannot be read",
        reason=f"byte {error.start} is not UTF-8",
        hint="Save it as UTF-8, or read it with pandas and give the data frame.",
    )


def _ignored(model: type[KvModel], names: Sequence[str]) -> frozenset[str]:
    """Return the columns that are no input: computed fields, and the index of pandas. Raises for unknown columns."""
    constructor = constructor_of(model)
    ignored = {name for name in names if name in model.model_computed_fields or _INDEX_LEVEL.fullmatch(name)}
    for at, name in enumerate(names):
        if name in names[:at]:
            raise InvalidArgumentError(
                "two columns have one name", argument="source", value=name, hint="One of their values would be lost."
            )
        if name not in ignored and not constructor.knows(name):
            raise constructor.unknown(name)
    return frozenset(ignored)


def _validated(
    model: type[KvModel], object_of: Callable[[type[KvModel], Any], KvModel], ignored: frozenset[str], row: Any
) -> KvModel:
    """Return the object of a row. Raises pydantic.ValidationError, also for a text that stands for a hidden value."""
    given = {name: value for name, value in row.items() if name not in ignored} if ignored else row
    record = object_of(model, given)
    shown = str(given)
    if MASK not in shown and HIDDEN not in shown:
        return record
    found = placeholder_in(record)
    if found is None:
        return record
    refused = PydanticCustomError("placeholder", "{problem}", {"problem": found.problem})
    raise ValidationError.from_exception_data(model.__name__, [{"type": refused, "loc": (found.field,), "input": None}])
