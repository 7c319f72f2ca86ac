"""Files with records: a JSON array, JSON lines, CSV with a line of names, or Parquet.

Rules of this module: a file is read twice, first to validate all of it, so that nothing is written from a file with a
fault; stdin is copied to a temporary file for that. Only one record is in memory, except for a JSON array.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from shutil import copyfileobj
from typing import IO, Final, Literal, TypeVar, cast

import typer
from pydantic import ValidationError

from kvmodels._support.naming import short_repr
from kvmodels.cli.failures import CommandError
from kvmodels.errors import DecodeError
from kvmodels.frames import csv_rows, table_rows
from kvmodels.frames.placeholders import placeholder_in
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.definition.variants import constructor_of

M = TypeVar("M", bound=KvModel)

STDIN: Final = "-"

FileForm = Literal["json", "csv", "parquet"]


@contextmanager
def checked_records(file: str, model: type[M], form: FileForm) -> Generator[Iterator[tuple[str, M]]]:
    """Yield an iterator of the objects in a file with their places, such as ``line 7``, after all were validated.

    Args:
        file: a path, or ``-`` for stdin.
        model: the class of the objects.
        form: ``json`` is a JSON array or JSON lines.

    Raises:
        CommandError: the file cannot be read, or a record is malformed, is invalid or names an unknown field; the
            message has its place.
    """
    if form == "parquet":
        with _binary(file) as opened:
            for _ in _of_parquet(opened, model):
                pass
            yield _of_parquet(opened, model)
        return
    read = _of_csv if form == "csv" else _of_json
    with _opened(file) as text:
        try:
            for _ in read(text, model):
                pass
            text.seek(0)
            yield read(text, model)
        except UnicodeDecodeError as error:
            raise CommandError(f"{file} is not text in UTF-8") from error


@contextmanager
def _opened(file: str) -> Generator[IO[str]]:
    if file == STDIN:
        with _copied(typer.get_binary_stream("stdin")) as copy:
            yield copy
        return
    opened = _file(file)
    with opened, io.TextIOWrapper(opened, "utf-8-sig", newline="") if opened.seekable() else _copied(opened) as text:
        yield text


def _file(name: str) -> IO[bytes]:
    try:
        return open(name, "rb")
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror}") from error


@contextmanager
def _binary(file: str) -> Generator[IO[bytes]]:
    """Yield a file that can be read in any order."""
    with typer.get_binary_stream("stdin") if file == STDIN else _file(file) as opened:
        if opened.seekable():
            yield opened
            return
        with tempfile.TemporaryFile() as copy:
            copyfileobj(opened, copy)
            yield copy


def _of_parquet(file: IO[bytes], model: type[M]) -> Iterator[tuple[str, M]]:
    names = table_rows.names_in(file)
    _require_names(model, "the columns", names)
    computed = model.model_computed_fields.keys() & set(names)
    for number, row in enumerate(table_rows.rows_in(file), 1):
        given = {name: value for name, value in row.items() if name not in computed} if computed else row
        try:
            yield f"row {number}", table_rows.object_of(model, given)
        except ValidationError as error:
            raise _invalid(f"row {number}", error) from error


@contextmanager
def _copied(stream: IO[bytes]) -> Generator[IO[str]]:
    """Yield a stream as a file that can be read twice."""
    with tempfile.TemporaryFile() as copy, io.TextIOWrapper(copy, "utf-8-sig", newline="") as text:
        copyfileobj(stream, copy)
        copy.seek(0)
        yield text


def _of_json(text: IO[str], model: type[M]) -> Iterator[tuple[str, M]]:
    first = text.read(1)
    while first.isspace():
        first = text.read(1)
    text.seek(0)
    if first == "[":
        try:
            items = json.load(text)
        except ValueError as error:
            raise CommandError(f"malformed JSON: {error}") from error
        except RecursionError as error:
            raise CommandError("the JSON is nested too deeply", hint="Nothing was written.") from error
        for number, item in enumerate(items, 1):
            yield f"record {number}", _validated(model, f"record {number}", json.dumps(item))
        return
    for number, line in enumerate(text, 1):
        if line.strip():
            yield f"line {number}", _validated(model, f"line {number}", line)


def _validated(model: type[M], place: str, text: str) -> M:
    try:
        record = model.model_validate_json(text, by_alias=True, by_name=True)
    except ValidationError as error:
        # A misspelt name of a required field is reported as such, not as an absent field.
        _require_names(model, place, _names_in(text))
        raise _invalid(place, error) from error
    _require_names(model, place, _names_in(text))
    return _without_masks(record, place)


def _without_masks(record: M, place: str) -> M:
    """Return a record; refuse the mask that pydantic prints in place of a secret. Raises CommandError."""
    found = placeholder_in(record)
    if found is None:
        return record
    options = "--nl, --json and --csv" if found.stands_for == "secret" else "--show-encrypted"
    raise CommandError(
        f"{place}: {found.field}: {found.problem}",
        hint=f"kvmodels export prints the value with {options}. Nothing was written.",
    )


def _names_in(text: str) -> Iterable[str]:
    """Return the names of a JSON object; none for other text."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    return cast("dict[str, object]", found) if isinstance(found, dict) else ()


def _require_names(model: type[KvModel], place: str, names: Iterable[str]) -> None:
    """Raise CommandError for a name that pydantic would ignore; computed fields are in the output of ``export``."""
    constructor = constructor_of(model)
    for name in names:
        if constructor.knows(name) or name in model.model_computed_fields:
            continue
        unknown = constructor.unknown(name)
        guess = f"Did you mean {unknown.suggestion}? " if unknown.suggestion else ""
        raise CommandError(
            f"{place}: {model.__name__} has no field {short_repr(name)}",
            hint=f"{guess}{unknown.hint} Nothing was written.",
        )


def _of_csv(text: IO[str], model: type[M]) -> Iterator[tuple[str, M]]:
    rows = csv_rows.CsvRows(text)
    try:
        _require_names(model, "line 1", rows.names())
        for place, cells in rows:
            try:
                record = csv_rows.object_of(model, cells)
            except ValidationError as error:
                raise _invalid(place, error) from error
            yield place, _without_masks(record, place)
    except DecodeError as error:
        raise CommandError(str(error.reason), hint="Nothing was written.") from error


def _invalid(place: str, error: ValidationError) -> CommandError:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"]))
    return CommandError(f"{place}: {f'{where}: ' if where else ''}{first['msg']}", hint="Nothing was written.")
