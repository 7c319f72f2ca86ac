"""Pace, progress reports and samples of schema changes (``throttle=``, ``progress=``, ``sample=``).

Rules of this module: a pause is a request of the flow like any other, so tests inject their own time. An exception of
the user's function ends the change; the next run resumes it. The module loads nothing of an open store, because
databases use ``SAMPLE`` as a default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, cast

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidArgumentError
from kvmodels.flows import arguments, effects

SAMPLE: Final = 100
"""The default number of records of each collection on which a plan tries the models."""

_LONGEST_PAUSE_S: Final = 1.0

_UNREACHABLE: Final = 1e12
"""A rate in records per second that no store reaches: the same as no limit."""


@dataclass(frozen=True, slots=True)
class SchemaProgress:
    """The progress of one step of a schema change, of a check, or of ``db.stats()``.

    Attributes:
        step: the kind of work: records are indexed or rewritten, entries removed, rows checked, or rows counted.
        collection: the collection of the model; of ``stats``, also the name of another part of the store.
        index: the index whose entries are created, removed or checked; None while records are migrated or checked.
        scanned: the number of records that the step has processed, by all processes together; for a drop, of entries
            that this process removed; for a check, of records, entries or counters that were read.
        written: the number of records that were rewritten, by all processes together; None for a build, a drop and a
            check.
    """

    step: Literal["build", "migrate", "drop", "check", "stats"]
    collection: str
    index: str | None
    scanned: int
    written: int | None = None


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

    __slots__ = ("_progress", "_throttle")

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
            arguments.require_callable("progress", progress, "Give a function that takes a SchemaProgress.")
        self._progress = progress
        self._throttle = None if throttle is None or throttle > _UNREACHABLE else throttle

    def size(self, wanted: int) -> int:
        """Return the size of the next batch, from 1 to ``wanted``, so that a pause takes at most a second."""
        if self._throttle is None:
            return wanted
        return max(1, min(wanted, int(self._throttle * _LONGEST_PAUSE_S)))

    def after(self, progress: SchemaProgress, rows: int) -> effects.Flow[None]:
        """Call the listener, and pause for the time that ``rows`` records may take."""
        if self._progress is not None:
            self._progress(progress)
        if self._throttle is not None and rows:
            yield from effects.sleep(rows / self._throttle)


UNPACED: Final = Pace()

show_public_path(SchemaProgress)
