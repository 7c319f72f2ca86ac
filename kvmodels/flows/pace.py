"""How fast a change of the schema goes, and who is told how far it is: ``throttle=`` and ``progress=``.

Rules of this module: a pause is a request of the flow like any other, so tests inject their own time. What the
function of the user raises ends the change, which goes on from there when it is run again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, cast

from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.arguments import require_callable
from kvmodels.flows.requests import Flow, sleep
from kvmodels.public_path import show_public_path
from kvmodels.slotted import dataclass

__all__ = ["UNPACED", "Pace", "SchemaProgress"]


_LONGEST_PAUSE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class SchemaProgress:
    """How far one step of a schema change is.

    Attributes:
        step: what is being done: records are indexed, or rewritten, or entries are removed.
        collection: of the model.
        index: of which entries are made or removed; None while records are migrated.
        scanned: records that the step has passed, by all processes together; of a drop, entries removed by this one.
        written: records that were rewritten, by all processes together; of a build and a drop None.
    """

    step: Literal["build", "migrate", "drop"]
    collection: str
    index: str | None
    scanned: int
    written: int | None = None


class Pace:
    """The speed of a schema change, and its listener.

    Args:
        progress: called after each batch; None for nobody.
        throttle: the most records per second of this process; None for no limit.

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
            require_callable("progress", progress, "Give a function that takes a SchemaProgress.")
        self._progress = progress
        self._throttle = throttle

    def size(self, wanted: int) -> int:
        """Records of the next batch, so that no pause is longer than a second: at least 1, at most ``wanted``."""
        if self._throttle is None:
            return wanted
        return max(1, min(wanted, int(self._throttle * _LONGEST_PAUSE_S)))

    def after(self, progress: SchemaProgress, rows: int) -> Flow[None]:
        """Tell the listener, and wait for as long as ``rows`` records may take."""
        if self._progress is not None:
            self._progress(progress)
        if self._throttle is not None and rows:
            yield from sleep(rows / self._throttle)


UNPACED: Final = Pace()


show_public_path(SchemaProgress)
