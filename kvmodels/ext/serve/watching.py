"""The watch of some keys for one client.

Rules of this module: pure, as ``kvmodels/flows/kv/watch.py``, whose waits it uses. Values are not decoded.
"""

from __future__ import annotations

from collections.abc import Callable

from kvmodels.core.operations import point
from kvmodels.engines.connect.wire.messages import ReadStatus, WatchKeyOutput, WatchOutput
from kvmodels.ext.serve.data_path import entry_of
from kvmodels.flows.effects import Flow, read
from kvmodels.flows.kv.watch import Watch
from kvmodels.limits import Limits


class ServedWatch(Watch[WatchKeyOutput]):
    """Delivers all watched keys whenever one of them has changed.

    Every key is marked as changed: Deno shows a key that is not marked as an absent one. It leaves a delivery out whose
    versionstamps are those of the last one.

    Args:
        keys: the packed keys, in the order of the answer.
        monotonic: a clock in seconds.
    """

    __slots__ = ("_keys", "_last")

    def __init__(self, keys: list[bytes], monotonic: Callable[[], float]) -> None:
        super().__init__(_unchanged, (float("inf"), monotonic))
        self._keys = keys
        self._watched = tuple(keys)
        self._last: list[bytes | None] | None = None

    @property
    def versionstamp(self) -> None:
        """Clients of the protocol do not resume."""

    def _look(self, limits: Limits) -> Flow[list[WatchKeyOutput] | None]:
        del limits  # the server has compared them
        found = yield from read([point(key) for key in self._keys])
        self._seen = found.versionstamp
        rows = [rows[0] if rows else None for rows in found.ranges]
        deadlines = [row.expire_at for row in rows if row is not None and row.expire_at is not None]
        self._deadline = min(deadlines, default=None)
        present = [None if row is None else row.versionstamp for row in rows]
        if present == self._last:
            return None
        self._last = present
        return [WatchKeyOutput(True, None if row is None else entry_of(row)) for row in rows]


def watch_output(keys: list[WatchKeyOutput]) -> WatchOutput:
    """Return the message of one delivery."""
    return WatchOutput(ReadStatus.SUCCESS, tuple(keys))


def _unchanged(limits: Limits) -> Limits:
    return limits
