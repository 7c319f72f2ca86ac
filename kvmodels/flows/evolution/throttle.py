"""Pace, progress reports and samples of schema changes (``throttle=``, ``progress=``, ``sample=``).

Rules of this module: a pause is a request of the flow like any other, so tests inject their own time. An exception of
the user's function ends the change, which resumes from there when it is run again. It loads nothing of an open store,
because databases take ``SAMPLE`` as a default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, cast

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidArgumentError
from kvmodels.flows import arguments, effects

SAMPLE: Final = 100
"""Records of each collection on which a plan tries the models."""

_LONGEST_PAUSE_S: Final = 1.0

_UNREACHABLE: Final = 1e12
"""Records per second that no store reaches: the same as no limit."""


@dataclass(frozen=True, slots=True)
class SchemaProgress:
    """Progress of one step of a schema change, or of a check.

    Attributes:
        step: the kind of work: records are indexed or rewritten, entries removed, or rows checked.
        collection: of the model.
        index: whose entries are made, removed or checked; None while records are migrated or checked.
        scanned: records that the step has passed, by all processes together; of a drop, entries removed by this one;
            of a check, the records, entries or counters that were read.
        written: records that were rewritten, by all processes together; of a build, a drop and a check None.
    """

    step: Literal["build", "migrate", "drop", "check"]
    collection: str
    index: str | None
    scanned: int
    written: int | None = None


class Pace:
    """The speed of a schema change, and its listener.

    ``progress``: called after each batch; None: not called. ``throttle``: the most records per second of this process;
    None for no limit.

    Raises:
        InvalidArgumentError: ``throttle`` is no positive number, or ``progress`` no function.

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
                "a throttle is no positive number",
                argument="throttle",
                value=throttle,
                hint="Give records per second, or None for no limit.",
            )
        if progress is not None:
            arguments.require_callable("progress", progress, "Give a function that takes a SchemaProgress.")
        self._progress = progress
        self._throttle = None if throttle is None or throttle > _UNREACHABLE else throttle

    def size(self, wanted: int) -> int:
        """Return the size of the next batch, for a pause of a second at most: from 1 to ``wanted``."""
        if self._throttle is None:
            return wanted
        return max(1, min(wanted, int(self._throttle * _LONGEST_PAUSE_S)))

    def after(self, progress: SchemaProgress, rows: int) -> effects.Flow[None]:
        """Call the listener, and wait for as long as ``rows`` records may take."""
        if self._progress is not None:
            self._progress(progress)
        if self._throttle is not None and rows:
            yield from effects.sleep(rows / self._throttle)


UNPACED: Final = Pace()

show_public_path(SchemaProgress)
