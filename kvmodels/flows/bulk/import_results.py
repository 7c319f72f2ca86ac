"""The result of ``bulk_create_from``, and the rows that the model has rejected.

Rules of this module: only values. Errors of rows are without the input, which may be a secret.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.truth import without_truth
from kvmodels.flows.bulk.options_and_results import BulkFailure


class RejectedRow(NamedTuple):
    """A row of a table or file that the model has rejected.

    Attributes:
        position: its index in the source, from 0.
        place: its place for people: ``"line 7"`` of a CSV file, ``"row 6"`` of another source.
        errors: the errors of pydantic, each with ``type``, ``loc`` and ``msg``.
    """

    position: int
    place: str
    errors: tuple[dict[str, Any], ...]


@without_truth("result.written, result.rejections or result.failures")
@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of ``bulk_create_from``.

    Attributes:
        rows: the number of rows of the source.
        written: the number of records that were created or overwritten.
        rejections: the number of rows that the model has rejected.
        rejected: the first 1,000 of them; empty with ``on_error="raise"``, which raises instead.
        failed: the records that were left out with ``on_conflict="ignore"``, the first 1,000.
        batches: the number of commits.
        resumed: whether an earlier run with the same ``resume_id`` did a part of it, or all.

    Examples:
        >>> ImportResult(rows=5, written=2, rejections=1).failures
        2
    """

    rows: int
    written: int
    rejections: int = 0
    rejected: tuple[RejectedRow, ...] = ()
    failed: tuple[BulkFailure, ...] = ()
    batches: int = 0
    resumed: bool = False

    @property
    def failures(self) -> int:
        """The number of records that were left out, including those that ``failed`` does not list."""
        return self.rows - self.rejections - self.written


show_public_path(ImportResult, RejectedRow)
