"""The operations of one write transaction of an LMDB store, one after the other.

Rules of this module: an operation is evaluated by reads before anything of it is written; a refused one uses no number.
The transaction is begun and ended by the store, which calls ``finish`` before it commits.
"""

from __future__ import annotations

from typing import NamedTuple

from kvmodels.core.operations import AtomicWrite, Committed, Conflict, Row, to_versionstamp
from kvmodels.engines.lmdb import rows as lmdb_rows
from kvmodels.engines.lmdb.bulk_reads import Transaction
from kvmodels.engines.lmdb.file import Databases, State, write_state
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.shared.evaluation import confirmed_failures, evaluate


class EvaluatedWrite(NamedTuple):
    """One operation, ready to be stored: the state after it, the rows it leaves by key, its first deadline."""

    state: State
    changes: dict[bytes, Row | None]
    earliest_ms: int | None


class LmdbTransaction:
    """What a group uses while the store holds a write transaction.

    Args:
        transaction: for writing.
        databases: of its environment.
        state: as the store holds it.
        clock: decides on deadlines; each operation sees the time of its own evaluation.

    Attributes:
        version: of the last operation that was written; None while there is none.
        earliest_ms: the first deadline that was written, or None.
    """

    __slots__ = ("_clock", "_databases", "_state", "_transaction", "earliest_ms", "version")

    def __init__(self, transaction: Transaction, databases: Databases, state: State, clock: EngineClock) -> None:
        self._transaction = transaction
        self._databases = databases
        self._state = state
        self._clock = clock
        self.version: int | None = None
        self.earliest_ms: int | None = None

    def next_state(self) -> State:
        """The state that the next operation leaves: the next version, and a clock that does not go back."""
        version, high_water, retention_ms, floor = self._state
        now = max(self._clock.now_ms(), high_water)
        self._clock.raise_to(now)
        return State(version + 1, now, retention_ms, floor)

    def evaluate(self, write: AtomicWrite) -> EvaluatedWrite | Conflict:
        """Judge an operation against the transaction, earlier operations included; nothing is written.

        Raises:
            InvalidValueError: a sum, min or max met a value that is no 64-bit integer.
            KeyTooLargeError: a key is longer than LMDB takes.
            lmdb.Error: the transaction cannot go on.
        """
        transaction, databases = self._transaction, self._databases
        state = self.next_state()
        checks, mutations = write
        failed = lmdb_rows.failed_checks(transaction, databases, checks, state.clock) if checks else ()
        if failed:
            failed = confirmed_failures(
                checks, failed, lambda one: lmdb_rows.scan(transaction, databases, one, state.clock)
            )
        if failed:
            return Conflict(failed)
        changes, earliest_ms = evaluate(
            mutations,
            to_versionstamp(state.version),
            state.clock,
            lambda key: lmdb_rows.stored_row(transaction, databases, key),
        )
        lmdb_rows.require_storable_keys(changes)
        return EvaluatedWrite(state, changes, earliest_ms)

    def apply(self, evaluated: EvaluatedWrite) -> Committed:
        """Write what was evaluated. Raises lmdb.Error: the transaction cannot go on."""
        state, changes, earliest_ms = evaluated
        lmdb_rows.write(self._transaction, self._databases, state, changes)
        self._applied(state)
        if earliest_ms is not None and (self.earliest_ms is None or earliest_ms < self.earliest_ms):
            self.earliest_ms = earliest_ms
        return Committed(to_versionstamp(state.version))

    def remove_expired(self, limit: int) -> int:
        """Remove up to ``limit`` rows that have expired; how many there were. Uses a version only if there are any."""
        state = self.next_state()
        keys = lmdb_rows.expired_keys(self._transaction, self._databases, limit, state.clock)
        if not keys:
            return 0
        self._applied(state)
        return lmdb_rows.write(self._transaction, self._databases, state, dict.fromkeys(keys))

    def trim_log(self, before_ms: int) -> None:
        """Forget the changes that were made up to a time; a commit that changes no row."""
        state = self.next_state()
        if state.retention_ms:
            floor = lmdb_rows.trim(self._transaction, self._databases, state.floor, before_ms)
            state = state._replace(floor=floor)
        self._applied(state)

    def keep_changes(self, retention_ms: int) -> None:
        """Begin to keep changes for so long, or change how long, or end it (0)."""
        present, state = self._state, self.next_state()
        if present.retention_ms == retention_ms:
            return
        if not present.retention_ms:
            state = state._replace(floor=present.version)
        elif not retention_ms:
            lmdb_rows.forget_changes(self._transaction, self._databases)
        self._applied(state._replace(retention_ms=retention_ms))

    def finish(self) -> None:
        """Store the state; called before the transaction is committed."""
        write_state(self._transaction, self._state)

    def _applied(self, state: State) -> None:
        self._state = state
        self.version = state.version
