"""Create the objects of the rows of a table or file (``bulk_create_from``).

Rules of this module: rows are validated one by one, while ``bulk_create`` reads their objects. Every position in a
result or an error is that of the row, also after rejected rows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from kvmodels.errors import IntegrityError, InvalidValueError
from kvmodels.flows.bulk.batches import LARGEST_BATCH, failure_of
from kvmodels.flows.bulk.create import bulk_create
from kvmodels.flows.bulk.import_results import ImportResult, RejectedRow
from kvmodels.flows.bulk.options_and_results import (
    LISTED_AT_MOST,
    BulkFailure,
    BulkOptions,
    BulkResult,
    checked_options,
)
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow
from kvmodels.flows.writing.changes import KEEP, Deadline
from kvmodels.schema.definition.definition import ModelSchema

T = TypeVar("T")


class RowSource(NamedTuple, Generic[T]):
    """The rows of a source with their places, such as ``line 7``, and the function that makes the object of one."""

    rows: Iterator[tuple[str, T]]
    object_of: Callable[[T], Any]


class ImportedRows(Generic[T]):
    """The objects of the valid rows of a source; rejected rows are remembered.

    Attributes:
        options: the options of the import.
    """

    def __init__(self, source: RowSource[T], options: BulkOptions) -> None:
        self.options = options
        self._source = source
        self._read = 0
        self._rejected: list[RejectedRow] = []
        # For each rejected row, the number of valid rows before it: 8 bytes a row, however many there are.
        self._valid_before = array("q")

    def objects(self) -> Iterator[Any]:
        """Yield the objects. Raises pydantic.ValidationError: a row is invalid, with ``on_error="raise"``."""
        for place, row in self._source.rows:
            try:
                found = self._source.object_of(row)
            except Exception as error:  # user validators may raise anything
                if self.options.on_error == "raise" or not isinstance(error, ValidationError):
                    error.add_note(f"kvmodels: this is about {place}")
                    raise
                self._reject(place, error)
            else:
                self._read += 1
                yield found

    def _reject(self, place: str, error: ValidationError) -> None:
        if len(self._rejected) < LISTED_AT_MOST:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            self._rejected.append(RejectedRow(self._read, place, tuple(dict(one) for one in found)))
        self._valid_before.append(self._read - len(self._valid_before))
        self._read += 1

    def note_row(self, error: Exception) -> None:
        """Give an error of an object the position of its row."""
        if isinstance(error, IntegrityError | InvalidValueError) and error.position is not None:
            error.position += bisect_right(self._valid_before, error.position)

    def result(self, written: BulkResult) -> ImportResult:
        """Return the result, given that of the objects."""
        failed = tuple(map(self._failure, written.failed))
        return ImportResult(
            self._read,
            written.written,
            len(self._valid_before),
            tuple(self._rejected),
            failed,
            written.batches,
            written.resumed,
        )

    def _failure(self, failure: BulkFailure) -> BulkFailure:
        if failure.error is None:
            return failure
        self.note_row(failure.error)
        return failure_of(failure.key, failure.error)


def bulk_create_from(
    context: Context,
    schema: ModelSchema,
    rows: ImportedRows[Any],
    *,
    expire_in: Deadline = KEEP,
    unique: object = None,
) -> Flow[BulkResult]:
    """Insert the objects of the valid rows, in batches outside of a transaction."""
    options = checked_options(context, rows.options)
    in_one = options.batch_size is None and context.transaction is not None
    try:
        result = yield from bulk_create(
            context,
            schema,
            rows.objects(),
            batch_size=None if in_one else options.batch_size or LARGEST_BATCH,
            on_conflict=options.on_conflict,
            expire_in=expire_in,
            progress=options.progress,
            resume_id=options.resume_id,
            results=False,
            unique=unique,
        )
    except (IntegrityError, InvalidValueError) as error:
        rows.note_row(error)
        raise
    assert isinstance(result, BulkResult), "results=False"
    return result
