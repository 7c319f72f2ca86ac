"""Files with records: a JSON array, JSON lines, or CSV with a line of names.

Rules of this module: a file is read twice, first to validate all of it, so that nothing is written from a file with a
fault; stdin is copied to a temporary file for that. Only one record is in memory, except for a JSON array.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from shutil import copyfileobj
from typing import IO, Final, TypeVar

from pydantic import ValidationError

from kvmodels.cli.failures import CommandError
from kvmodels.schema.compile.model import KvModel

M = TypeVar("M", bound=KvModel)

STDIN: Final = "-"


@contextmanager
def checked_records(file: str, model: type[M], *, is_csv: bool) -> Generator[Iterator[M]]:
    """Yield an iterator of the objects in a file, after all of them were validated.

    Args:
        file: a path, or ``-`` for stdin.
        model: the class of the objects.
        is_csv: whether the file is CSV; otherwise a JSON array or JSON lines.

    Raises:
        CommandError: the file cannot be read, or a record is malformed or invalid; the message has its position.
    """
    read = _of_csv if is_csv else _of_json
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
        with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as copy:
            copyfileobj(sys.stdin, copy)
            copy.seek(0)
            yield copy
        return
    try:
        opened = open(file, encoding="utf-8-sig", newline="")  # noqa: SIM115 - closed by the next statement
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}") from error
    with opened:
        yield opened


def _of_json(text: IO[str], model: type[M]) -> Iterator[M]:
    first = text.read(1)
    while first.isspace():
        first = text.read(1)
    text.seek(0)
    if first == "[":
        try:
            items = json.load(text)
        except ValueError as error:
            raise CommandError(f"malformed JSON: {error}") from error
        for number, item in enumerate(items, 1):
            yield _validated(model, f"record {number}", json.dumps(item))
        return
    for number, line in enumerate(text, 1):
        if line.strip():
            yield _validated(model, f"line {number}", line)


def _validated(model: type[M], place: str, text: str) -> M:
    try:
        return model.model_validate_json(text, by_alias=True, by_name=True)
    except ValidationError as error:
        raise _invalid(place, error) from error


def _of_csv(text: IO[str], model: type[M]) -> Iterator[M]:
    reader = csv.DictReader(text, strict=True)
    unknown = [name for name in reader.fieldnames or () if name not in model.model_fields]
    if unknown:
        raise CommandError(f"line 1: {model.__name__} has no field {unknown[0]!r}", hint=_fields_of(model))
    try:
        for row in reader:
            if None in row:
                raise CommandError(f"line {reader.line_num}: more cells than names", hint="Nothing was written.")
            # An empty cell is an absent value: CSV has no other way to leave one out.
            given = {name: value for name, value in row.items() if value}
            yield _of_cells(model, f"line {reader.line_num}", given)
    except csv.Error as error:
        raise CommandError(f"line {reader.line_num}: malformed CSV: {error}") from error


def _of_cells(model: type[M], place: str, cells: dict[str, str]) -> M:
    """Return the object for the cells of a line. A list or another container is written as JSON."""
    try:
        return model.model_validate(cells, by_alias=True, by_name=True)
    except ValidationError as error:
        fields = {one["loc"][0] for one in error.errors() if one["loc"]}
    parts = {name: _parsed(cell) if name in fields else cell for name, cell in cells.items()}
    try:
        return model.model_validate(parts, by_alias=True, by_name=True)
    except ValidationError as error:
        raise _invalid(place, error) from error


def _parsed(cell: str) -> object:
    """Return the JSON value in a cell that is no text for its field; another cell unchanged."""
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def _invalid(place: str, error: ValidationError) -> CommandError:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"]))
    return CommandError(f"{place}: {f'{where}: ' if where else ''}{first['msg']}", hint="Nothing was written.")


def _fields_of(model: type[KvModel]) -> str:
    return f"Its fields are: {', '.join(model.model_fields)}."
