# Generated from kvmodels/api/_async/feeds/follower.py by tools/unasync.py. Do not edit.
"""Follower: keeps a sink equal to the records of some models.

Rules of this module: ``kvmodels.flows.feeds.follow`` decides what a batch contains; this module asks the sink
and passes batches to it. The position of the sink alone says what was applied: nothing is kept between two calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from kvmodels._support.naming import show_public_path
from kvmodels.api._sync._compat import in_thread, run
from kvmodels.api.refusals import refuse_copies
from kvmodels.core.keys import Key
from kvmodels.core.operations import format_versionstamp
from kvmodels.engines.contract import Engine
from kvmodels.errors import SinkPositionError
from kvmodels.flows.arguments import versionstamp_of
from kvmodels.flows.context import Context
from kvmodels.flows.effects import sleep, wait_for_commit
from kvmodels.flows.feeds.follow import (
    FollowReport,
    FollowStep,
    FollowWatch,
    ScannedRange,
    VersionDifference,
    confirmed,
    differences,
)
from kvmodels.flows.feeds.position import Position
from kvmodels.flows.feeds.sink import Sink
from kvmodels.flows.kv.watch import timeout_of
from kvmodels.schema.definition.definition import ModelSchema

RECHECK_S: Final = 0.02
"""The pause between two looks at the position of a sink that another process may write."""


class Follower:
    """Applies the changes of some models to a sink; created by ``db.follow(models, sink)``."""

    __slots__ = ("_opened", "_schemas", "_sink", "_size", "_watches")

    def __init__(
        self,
        opened: Callable[[], tuple[Engine, Context]],
        schemas: Sequence[ModelSchema],
        sink: Sink,
        size: int,
    ) -> None:
        self._opened = opened
        self._schemas = schemas
        self._sink = sink
        self._size = size
        self._watches: list[FollowWatch] = []

    def run(self, *, rescan: bool = False, timeout: float | None = None) -> None:
        """Apply changes until ``stop()`` is called or the database is closed.

        It continues at the position of the sink; without one it begins with the present records. Several followers of
        one sink may run: each batch is applied by one of them.

        Args:
            rescan: begin a new scan of the present records, which repairs the sink: records in other versions are
                written, and keys that the store does not have are removed. The sink can be used meanwhile. A rescan
                that was interrupted is continued by the next ``run()``.
            timeout: end after this many seconds without a change; None for no timeout.

        Raises:
            ResumeExpiredError: the change log does not reach back to the position of the sink, or the position is that
                of another store, such as this one before a backup was restored. Run with ``rescan=True``.
            InvalidArgumentError: the sink has the position of other models; run with ``rescan=True``.
            UnsupportedError: the store keeps no change log.
            DecodeError: a record cannot be read as an object; nothing after it is applied.
            Exception: any error of the sink; its batch is applied again by the next call.
        """
        self._run(rescan=rescan, seconds=timeout, until=None)

    def catch_up(self, *, rescan: bool = False) -> int:
        """Apply all changes up to now, and return.

        Args:
            rescan: begin a new scan, as in ``run``.

        Returns:
            The number of changes that were applied.

        Raises:
            ResumeExpiredError, InvalidArgumentError, UnsupportedError, DecodeError: as for ``run``.
        """
        engine, _ = self._opened()
        present = format_versionstamp(run(engine, wait_for_commit(b"", 0)))
        return self._run(rescan=rescan, seconds=0, until=present)

    def stop(self) -> None:
        """End ``run()``, also in another thread or task, within a second."""
        for watch in tuple(self._watches):
            watch.end()

    def wait_for(self, versionstamp: str, *, timeout: float | None = None) -> bool:
        """Wait until the sink has a commit, such as ``user.versionstamp`` of a record that was just written.

        Args:
            versionstamp: a versionstamp of a record of one of the models, or of a commit that removed one.
            timeout: the maximum time to wait in seconds; None for no limit.

        Returns:
            Whether the sink has it; False after the timeout.

        Raises:
            InvalidArgumentError: an argument is invalid.
        """
        versionstamp_of("versionstamp", versionstamp, expected="20 hexadecimal digits", hint="Pass user.versionstamp.")
        engine, _ = self._opened()
        give_up = time.monotonic() + timeout_of(timeout)
        while True:
            position = in_thread(self._sink.load)
            if position is not None and position.cursor is None and position.versionstamp >= versionstamp:
                return True
            left = give_up - time.monotonic()
            if left <= 0:
                return False
            run(engine, sleep(min(RECHECK_S, left)))

    def verify(self) -> FollowReport:
        """Catch up, and compare all keys and versions of the sink with those of the store.

        Returns:
            The differences. A key that other writers change meanwhile is compared again after the sink has caught up.
            Cost: one pass over the records and over the keys of the sink.

        Raises:
            ResumeExpiredError, InvalidArgumentError, UnsupportedError, DecodeError: as for ``run``.
        """
        self.catch_up()
        compared, first = self._compared()
        if not first:
            return confirmed({}, {}, compared)
        self.catch_up()
        _, second = self._compared()
        return confirmed(first, second, compared)

    def _compared(self) -> tuple[int, dict[Key, VersionDifference]]:
        """Return the number of records, and the keys whose versions differ."""
        engine, context = self._opened()
        watch = self._watch(context, 0)
        compared, found = 0, dict[Key, VersionDifference]()
        while watch.position is None or watch.position.cursor is not None:
            for step in run(engine, watch.following(context.limits, context.traits)) or ():
                watch.position = step.position
                if step.scanned is not None:
                    compared += len(step.records)
                    found.update(differences(self._held(step.scanned), step, step.scanned))
        return compared, found

    def _run(self, *, rescan: bool, seconds: float | None, until: str | None) -> int:
        """Apply steps; end after the timeout, or at a commit. Return the number of changes."""
        engine, context = self._opened()
        stored = in_thread(self._sink.load)
        watch = self._watch(context, seconds)
        watch.position = None if rescan else stored
        applied = 0
        self._watches.append(watch)
        try:
            while (steps := run(engine, watch.following(context.limits, context.traits))) is not None:
                for step in steps:  # one
                    number = self._applied(step, stored)
                    if number is None:
                        stored = watch.position = in_thread(self._sink.load)
                        break
                    applied, stored, watch.position = applied + number, step.position, step.position
                if until is not None and (watch.versionstamp or "") >= until:
                    break
            if watch.position is not None and watch.position != stored:
                self._applied(FollowStep([], [], watch.position, None), stored)
        finally:
            self._watches.remove(watch)
        return applied

    def _applied(self, step: FollowStep, stored: Position | None) -> int | None:
        """Apply a step and return the number of its changes; None if another follower has applied a batch."""
        held = {} if step.scanned is None else self._held(step.scanned)
        batch = step.batch(stored, held)
        try:
            in_thread(self._sink.apply, batch)
        except SinkPositionError:
            return None
        return len(batch.changes)

    def _held(self, scanned: ScannedRange) -> dict[Key, str]:
        """Return the keys of the sink in a range, with their versions."""
        held: dict[Key, str] = {}
        after = scanned.after
        while some := in_thread(self._sink.keys, after, self._size):
            held.update((key, stamp) for key, stamp in some if scanned.covers(key))
            after = some[-1][0]
            if len(some) < self._size or not scanned.covers(after):
                break
        return held

    def _watch(self, context: Context, timeout: float | None) -> FollowWatch:
        return FollowWatch(context, self._schemas, time.monotonic, self._size, timeout)

    def __repr__(self) -> str:
        names = ", ".join(schema.name for schema in self._schemas)
        return f"<{type(self).__name__} models=[{names}] sink={self._sink!r}>"


show_public_path(Follower)
refuse_copies(Follower)
