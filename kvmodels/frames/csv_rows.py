"""The rows of a CSV file with a line of names, as the input of a model.

Rules of this module: one line is in memory. An empty cell is an absent value, because CSV has no other way to leave one
out; a list or another container is written as JSON.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from typing import IO, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from kvmodels.errors import DecodeError

M = TypeVar("M", bound=BaseModel)

_MORE_CELLS: Final = PydanticCustomError("more_cells", "more cells than names")

Cells = Mapping[str | None, str]
"""The cells of a line by the names of the columns; further cells have the name None."""


class CsvRows:
    """The lines of an opened file, with their places, such as ``line 7``."""

    def __init__(self, text: IO[str]) -> None:
        self._reader = csv.DictReader(text, strict=True)

    def names(self) -> list[str]:
        """Return the names in the first line. Raises DecodeError: it is malformed."""
        try:
            return list(self._reader.fieldnames or ())
        except csv.Error as error:
            raise self._malformed(error) from error

    def __iter__(self) -> Iterator[tuple[str, Cells]]:
        try:
            for cells in self._reader:
                yield f"line {self._reader.line_num}", cells
        except csv.Error as error:
            raise self._malformed(error) from error

    def _malformed(self, error: csv.Error) -> DecodeError:
        return DecodeError(
            "a CSV file cannot be read",
            reason=f"line {self._reader.line_num}: malformed CSV: {error}",
            hint="Cells with commas, quotes or line ends stand in double quotes, and a quote in them is doubled.",
        )


def object_of(model: type[M], cells: Cells) -> M:
    """Return the object of a line. Raises pydantic.ValidationError."""
    given = {name: cell for name, cell in cells.items() if name is not None and cell}
    if None in cells:
        raise ValidationError.from_exception_data(model.__name__, [{"type": _MORE_CELLS, "loc": (), "input": given}])
    try:
        return model.model_validate(given, by_alias=True, by_name=True)
    except ValidationError as error:
        fields = {one["loc"][0] for one in error.errors() if one["loc"]}
    parts = {name: _parsed(cell) if name in fields else cell for name, cell in given.items()}
    return model.model_validate(parts, by_alias=True, by_name=True)


def _parsed(cell: str) -> object:
    """Return the JSON value in a cell that is no text for its field; another cell unchanged."""
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell
