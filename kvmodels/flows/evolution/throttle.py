"""Pace, progress reports and samples of schema changes (``throttle=``, ``progress=``, ``sample=``).

Rules of this module: a pause is a request of the flow like any other, so tests inject their own time. An exception of
the user's function ends the change; the next run resumes it. The module loads nothing of an open store, because
databases use ``SAMPLE`` as a default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal, cast

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.operations import GuardFailed, ReadRange
from kvmodels.core.truth import without_truth
from kvmodels.errors import InvalidArgumentError
from kvmodels.flows import arguments, effects

SAMPLE: Final = 100
"""The default number of records of each collection on which a plan tries the models."""

_LONGEST_PAUSE_S: Final = 1.0

_UNREACHABLE: Final = 1e12
"""A rate in records per second that no store reaches: the same as no limit."""


@without_truth("progress.scanned")
@dataclass(frozen=True, slots=True)
class SchemaProgress:
    """The progress of one step of a schema change, of a check, or of ``db.stats()``.

    Attributes:
        step: the kind of work: records are indexed or rewritten, entries removed, rows checked, or rows counted.
        collection: the collection of the model; of ``stats``, also the name of another part of the store.
        index: the index whose entries are created, removed or checked; None while records are migrated, rotated or
            checked.
        scanned: the number of records that the step has processed, by all processes together; for a drop, of entries
            that this process removed; for a check, of records, entries or counters that were read.
        written: the number of records that were rewritten, by all processes together; None for a build, a drop and a
            check.
        total: about how many there are to process, from one count of the rows that are left at the first report.
    """

    step: Literal["build", "migrate", "rotate", "drop", "check", "stats"]
    collection: str
    index: str | None
    scanned: int
    written: int | None = None
    total: int | None = None


class Pace:
    """The speed of a schema change, and its listener.

    ``progress``: called after each batch; None: not called. ``throttle``: the maximum number of records per second of
    this process; None for no limit.

    Raises:
        InvalidArgumentError: ``throttle`` is not a positive number, or ``progress`` is not callable.

    Examples:
        >>> Pace(throttle=250).size(1_000)
        250
    """

    def __init__(
        self, progress: Callable[[SchemaProgress], object] | None = None, throttle: float | None = None
    ) -> None:
        given = cast("object", throttle)
        if given is not None and (isinstance(given, bool) or not isinstance(given, (int, float)) or not given > 0):
            raise InvalidArgumentError(
                "the throttle is not a positive number",
                argument="throttle",
                value=throttle,
                hint="Give records per second, or None for no limit.",
            )
        if progress is not None:
            arguments.require_callable("progress", progress, "Give True, or a function that takes a SchemaProgress.")
        self._progress = progress
        self._last: SchemaProgress | None = None
        self._total = 0
        self._throttle = None if throttle is None or throttle > _UNREACHABLE else throttle

    def size(self, wanted: int) -> int:
        """Return the size of the next batch, from 1 to ``wanted``, so that a pause takes at most a second."""
        if self._throttle is None:
            return wanted
        return max(1, min(wanted, int(self._throttle * _LONGEST_PAUSE_S)))

    def after(self, progress: SchemaProgress, rows: int, left: ReadRange) -> effects.Flow[None]:
        """Call the listener, and pause for the time that ``rows`` records may take.

        ``left``: the rows that the step has not processed yet; counted at its first report, if there is a listener.
        """
        if self._progress is not None:
            if not self._continues(progress):
                counted = yield from effects.count_rows((left,))
                assert not isinstance(counted, GuardFailed), "there is no guard"
                self._total = progress.scanned + counted.numbers[0]
            self._last = progress
            self._progress(replace(progress, total=max(self._total, progress.scanned)))
        if self._throttle is not None and rows:
            yield from effects.sleep(rows / self._throttle)

    def _continues(self, progress: SchemaProgress) -> bool:
        """Return whether a report is of the same step as the last one."""
        last = self._last
        return (
            last is not None
            and (last.step, last.collection, last.index) == (progress.step, progress.collection, progress.index)
            and last.scanned < progress.scanned
        )


UNPACED: Final = Pace()

show_public_path(SchemaProgress)
