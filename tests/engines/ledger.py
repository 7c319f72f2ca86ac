"""A store that is as small as a store can be, for directed schedules of group commit.

A schedule is a list of operations that are put into the queue, and steps of the ledger (``begin``, ``end``) at which
it fails, is interrupted, or other operations come. No thread is needed: ``submit`` queues, ``lead`` leads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kvmodels.core.operations import Arithmetic, AtomicWrite, Check, Committed, Conflict, Set
from kvmodels.engines.contract import QueuedCommit
from kvmodels.engines.shared.group_commit import Group, GroupCommitter, Member
from kvmodels.engines.shared.waiting import Backoff
from kvmodels.errors import EngineError, EngineTimeoutError, InvalidValueError, KvModelsError


class FatalError(Exception):
    """The error that the library of this store raises."""


class State(NamedTuple):
    """Return the stored state: the value of each key with the version that wrote it, and the last version."""

    rows: dict[bytes, tuple[bytes | int, int]]
    version: int


class Draft:
    """The write transaction of the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.rows = dict(ledger.state.rows)
        self.version = ledger.state.version

    def evaluate(self, write: AtomicWrite) -> dict[bytes, bytes | int] | Conflict:
        self.ledger.step("evaluate")
        failed = tuple(
            position
            for position, (key, versionstamp, _) in enumerate(write.checks)
            if (stamp(self.rows[key][1]) if key in self.rows else None) != versionstamp
        )
        if failed:
            return Conflict(failed)
        changes: dict[bytes, bytes | int] = {}
        for mutation in write.mutations:
            if isinstance(mutation, Set):
                changes[mutation.key] = mutation.value
            else:
                assert isinstance(mutation, Arithmetic)
                present = changes.get(mutation.key, self.rows.get(mutation.key, (0, 0))[0])
                if not isinstance(present, int):
                    raise InvalidValueError("no number", hint="")
                changes[mutation.key] = present + mutation.operand
        return changes

    def apply(self, evaluated: dict[bytes, bytes | int]) -> Committed:
        self.ledger.step("apply")
        self.version += 1
        self.rows |= {key: (value, self.version) for key, value in evaluated.items()}
        return Committed(stamp(self.version))


class Ledger:
    """A store in a dictionary.

    Attributes:
        at: by the name of a step, what is done when it is reached (each time).
        transactions: the number of operations in each transaction that was committed.
        drafts: every transaction that was begun.
    """

    def __init__(self) -> None:
        self.state = State({}, 0)
        self.at: dict[str, Callable[[], None]] = {}
        self.transactions: list[int] = []
        self.drafts: list[Draft] = []
        self.commits = GroupCommitter(self._carry_out, FatalError)

    def step(self, name: str) -> None:
        action = self.at.get(name)
        if action is not None:
            action()

    def submit(self, write: AtomicWrite, waiter: Bell | None = None) -> Member:
        return self.commits.submit(write, patient(), waiter or Bell())

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        return self.commits.commit(write, patient())

    def numbers(self) -> dict[str, int]:
        """The counters that are stored."""
        return {key.decode(): value for key, (value, _) in sorted(self.state.rows.items()) if isinstance(value, int)}

    def _carry_out(self, group: Group) -> None:
        next_state = None
        try:
            self.step("begin")
            transaction = Draft(self)
            self.drafts.append(transaction)
            if group.run(transaction):
                self.step("end")
                next_state = State(transaction.rows, transaction.version)
                self.state = next_state
                group.committed = True
        except BaseException as error:
            group.committed = next_state is not None and self.state is next_state
            if isinstance(error, FatalError):
                raise EngineError("the store has failed", hint="") from error
            raise
        if group.committed:
            self.transactions.append(sum(isinstance(one.verdict, Committed) for one in group.members))
            self.step("committed")


class Bell:
    """A waiter that counts."""

    def __init__(self) -> None:
        self.members: list[QueuedCommit] = []
        self.calls = 0

    def answered(self, member: QueuedCommit) -> None:
        self.members.append(member)

    def call(self) -> None:
        self.calls += 1


def stamp(version: int) -> bytes:
    return version.to_bytes(8, "big") + b"\0\0"


def patient(seconds: float = 60) -> Backoff:
    def translated(error: Exception) -> KvModelsError:
        return EngineTimeoutError("busy", hint="") if isinstance(error, BlockingIOError) else EngineError(str(error))

    return Backoff(seconds, translated)


def add(name: str, operand: int = 1, *checks: Check) -> AtomicWrite:
    """Adds to a counter, so that whatever is carried out twice shows."""
    return AtomicWrite(checks, (Arithmetic("sum", name.encode(), operand),))


def text(name: str, value: bytes = b"text", *checks: Check) -> AtomicWrite:
    return AtomicWrite(checks, (Set(name.encode(), value, 3),))


def absent(name: str) -> Check:
    return Check(name.encode(), None)


def once(action: Callable[[], None]) -> Callable[[], None]:
    """Do it the first time only."""
    actions = [action]

    def act() -> None:
        if actions:
            actions.pop()()

    return act


def failing(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail
