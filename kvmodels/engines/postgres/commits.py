"""Commits of a PostgreSQL store: calls that apply several operations, and the resolution of calls without an answer.

Rules of this module: every operation has an id, and an operation is sent again only under a new id and only after it
is certain that it was not applied: the server refused the call, or a resolution has made the old id void. A warning
during a commit counts as a lost answer, because a cancelled wait for a standby reports success with one. An interrupt
does not end a call whose outcome is open; it is raised when the outcome is known. Generators yield the calls and the
pauses, so that threads and event loops share them.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Generator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

import psycopg

from kvmodels.core.operations import (
    Apply,
    AtomicWrite,
    Committed,
    Conflict,
    not_a_number,
    to_versionstamp,
)
from kvmodels.engines.postgres import errors
from kvmodels.engines.postgres.connection import TRUE, Boolean, Call, int8, uuids
from kvmodels.engines.postgres.modes import WriterMode
from kvmodels.engines.postgres.packing import PackedWrite, Sum, computed, parameters_of, ranges_to_compute
from kvmodels.engines.postgres.reads import Reading, Statements, StateSeen, Times, read_and_follow
from kvmodels.engines.postgres.settings import ANSWER_S
from kvmodels.engines.shared.server_errors import CONTENDED
from kvmodels.engines.shared.steps import run_steps, unchanged
from kvmodels.errors import (
    CommitUnknownError,
    InvalidArgumentError,
    KvModelsError,
)

_COMMIT: Final = "SELECT part, outcome, s, d, failed FROM {schema}.commit_1(%b, %b, %b)"
_COMMIT_EARLY: Final = "CALL {schema}.commit_2(%b, %b, %b, NULL, NULL, NULL)"
_RESOLVE: Final = "SELECT part, outcome, s FROM {schema}.resolve_1(%b, %b, %b, %b, %b)"

_TOKEN: Final = re.compile("[0-9a-f]{48}")

_PAUSE_S: Final = 0.05

_APPLIED, _FAILED_CHECKS, _FAILED_SUMS = 0, 1, 2
_FOUND, _VOID = 0, 1

_EARLY: Final = 2
"""Asks for an early commit, in the place of whether a commit waits for the disk."""

_ENDED_EARLY: Final = 1


class Uncomputed(Enum):
    """The server has not applied an operation, because the result of a sum of ints is not within its means."""

    UNCOMPUTED = 0


Outcome = Committed | Conflict | KvModelsError
CallOutcome = Outcome | Uncomputed


class Pause(NamedTuple):
    """A wait of a commit before its next call."""

    seconds: float


class DropConnections(NamedTuple):
    """The server has restarted, or is another one: connections at rest are to be closed."""


Step = Call | Pause | DropConnections


class CallAnswer(NamedTuple):
    """The rows of a call, whether the server sent a warning with them, and the seconds from the rows to the commit.

    The seconds are None if they were not measured.
    """

    rows: list[tuple[Any, ...]]
    warned: bool
    flush_s: float | None = None


NO_ANSWER: Final = CallAnswer([], warned=False)

Steps = Generator[Step, CallAnswer, None]
"""Yields what is to be done, and is sent answers. It is thrown a KvModelsError if nothing was sent, else psycopg's."""


AS_THROWN: Final = unchanged(KvModelsError, psycopg.Error)
"""Gives the steps of a commit the errors of their calls, which say whether anything was sent."""


class CommitStatements(NamedTuple):
    """The statements that commit and resolve, with the name of the schema."""

    commit: bytes
    commit_early: bytes
    resolve: bytes


def commit_statements(schema: str) -> CommitStatements:
    """Return the statements for a schema, whose name is quoted."""
    commit, early, resolve = (text.format(schema=schema).encode() for text in (_COMMIT, _COMMIT_EARLY, _RESOLVE))
    return CommitStatements(commit, early, resolve)


class WritingStore(Protocol):
    """The store of a commit."""

    @property
    def url(self) -> str:
        """Return the URL that was opened, for messages."""
        ...

    @property
    def schema(self) -> str:
        """The quoted name of its schema."""
        ...

    @property
    def synced(self) -> Boolean:
        """Whether a commit waits for the disk."""
        ...

    @property
    def mode(self) -> WriterMode:
        """The way in which its commits end."""
        ...

    @property
    def seen(self) -> int:
        """The greatest version that an answer has shown."""
        ...

    @property
    def busy_timeout(self) -> float:
        """Seconds to wait for the lock of writers."""
        ...

    def times(self) -> Times:
        """The time of a call."""
        ...

    def note(self, state: StateSeen) -> None:
        """Take over what an answer shows of version and time."""
        ...


class CommitRun:
    """Carries operations out, until each has an outcome.

    Args:
        store: whose operations they are.
        texts: its statements.
        writes: in the order in which they are applied.

    Attributes:
        outcomes: by position; None while there is none.
        early: whether the call that was sent last should end early.
        flush_s: the seconds for which the call that was answered last has waited for the disk, if they were measured.
    """

    def __init__(self, store: WritingStore, texts: CommitStatements, writes: Sequence[PackedWrite]) -> None:
        self.outcomes: list[CallOutcome | None] = [None] * len(writes)
        self._store = store
        self._texts = texts
        self._writes = writes
        self._alone = False
        self._strict = False
        self.early = False
        self.flush_s: float | None = None
        # Positions and ids of a call without an answer. Emptied only after every outcome of its answer is noted.
        self._sent: list[tuple[int, bytes]] = []
        self._since = 0
        self._deadline = time.monotonic() + store.busy_timeout + ANSWER_S
        self._refusals = 0

    @property
    def pending(self) -> list[int]:
        """The positions of operations without an outcome."""
        return [at for at, outcome in enumerate(self.outcomes) if outcome is None]

    def finish(self, perform: Callable[[Step], CallAnswer]) -> None:
        """Carry everything out. An interrupt is raised when all outcomes are known, a second one at once."""
        interruption: BaseException | None = None
        while self.pending:
            try:
                run_steps(self.step(), perform, AS_THROWN)
            except Exception:
                raise
            except BaseException as error:
                if interruption is not None:
                    raise
                interruption = error
        if interruption is not None:
            raise interruption

    def resolve(self, token: str, perform: Callable[[Step], CallAnswer]) -> bool:
        """Return whether the operation of this run was applied when it was sent with a token; else it never will be.

        Raises:
            InvalidArgumentError: the token is not one of this engine.
            CommitUnknownError: the server did not answer, or has forgotten it.
        """
        if _TOKEN.fullmatch(token) is None:
            raise InvalidArgumentError(
                "this is not the token of a commit",
                argument="token",
                value=token,
                hint="Give the token of a CommitUnknownError of this database.",
            )
        self._sent, self._since = [(0, bytes.fromhex(token[:32]))], int(token[32:], 16)
        while self._sent:
            run_steps(self.step(), perform, AS_THROWN)
        outcome = self.outcomes[0]
        if isinstance(outcome, KvModelsError):
            raise outcome
        return outcome is not None

    def step(self) -> Steps:
        """Send what is pending, or resolve what was sent; to be called until nothing is ``pending``.

        A step may be abandoned at any point: the next one finds out what became of its call.
        """
        if self._sent:
            return self._resolve()
        return self._send(self.pending[:1] if self._alone else self.pending)

    # Sending

    def _send(self, positions: list[int]) -> Steps:
        store = self._store
        ids = [os.urandom(16) for _ in positions]
        self._since = store.seen
        failure: psycopg.Error | None = None
        early = self.early = store.mode.early and not self._strict
        context = (*self._context(), _EARLY if early else store.synced == TRUE)
        parameters = (uuids(ids), *parameters_of([self._writes[at] for at in positions], context))
        self._sent = list(zip(positions, ids, strict=True))
        try:
            answer = yield Call(self._texts.commit_early if early else self._texts.commit, parameters)
            if not answer.warned:
                if early:
                    self._take_early(positions, answer.rows[0])
                else:
                    self._take(positions, answer.rows)
                    self.flush_s = answer.flush_s
                self._sent = []
        except KvModelsError as error:
            self._refuse(positions, error)
            self._sent = []
        except psycopg.Error as error:
            failure = error
            if errors.is_certain(error) if early else not errors.is_lost(error):
                self._sent = []
            # The error of an early commit may be that of its seal; a strict one tells what is wrong.
            self._strict = self._strict or early
        if failure is not None:
            yield from self._failed(positions, failure)

    def _context(self) -> tuple[int, int, int, int]:
        store = self._store
        given, mark = store.times()
        return given, mark, self._since, _milliseconds(store.busy_timeout)

    def _take_early(self, positions: list[int], row: tuple[Any, ...]) -> None:
        answer, failures, flush_us = row
        before, last = answer[2], answer[-1]
        self._take(positions, _rows_of_arrays(answer, failures))
        mode = self._store.mode
        if flush_us is not None:
            mode.sealed(flush_us)
            self.flush_s = flush_us / 1_000_000
        if last > before and not answer[1] & _ENDED_EARLY:
            mode.refused()

    def _take(self, positions: list[int], answer: list[tuple[Any, ...]]) -> None:
        for (_, outcome, version, _, failed), at in zip(answer[1:], positions, strict=True):
            if outcome == _APPLIED:
                self.outcomes[at] = Committed(to_versionstamp(version))
            elif outcome == _FAILED_CHECKS:
                self.outcomes[at] = Conflict(tuple(failed))
            else:
                self.outcomes[at] = _refused([self._writes[at].sums[int(position)] for position in failed])
        _, _, before, present, _ = answer[0]
        last = answer[-1][2]
        self._store.mode.answered(before, last)
        self._store.note(StateSeen(last, present))

    def _failed(self, positions: list[int], error: psycopg.Error) -> Steps:
        """Deal with an error: that of a lost answer is resolved, any other one is certain."""
        store = self._store
        if self._sent:
            yield DropConnections()
            return
        state = error.sqlstate
        if state in (errors.FORGOTTEN, errors.READ_ONLY) and self._refusals < 1:
            # Idle for longer than the store remembers, or the server is a standby now: once more, from the present.
            self._refusals += 1
            yield DropConnections()
            if state == errors.FORGOTTEN:
                yield from self._look_again(positions)
            return
        meaning = errors.translated(error, store.url, store.schema)
        if len(positions) > 1 and not errors.is_busy(error):
            self._alone = True  # so that one bad operation does not fail its group
            return
        self._refuse(positions, meaning)

    def _look_again(self, positions: list[int]) -> Steps:
        """Learn the present version, so that the operation is not older than the memory of the store."""
        store = self._store
        text = f"SELECT max(version) FROM {store.schema}.commits"  # noqa: S608 - a quoted name
        try:
            answer = yield Call(text.encode(), ())
        except KvModelsError as error:
            self._refuse(positions, error)
        except psycopg.Error as error:
            self._refuse(positions, errors.translated(error, store.url, store.schema))
        else:
            store.note(StateSeen(answer.rows[0][0], 0))

    def _refuse(self, positions: list[int], error: KvModelsError) -> None:
        for at in positions:
            self.outcomes[at] = another_error(error)

    # Resolving

    def _resolve(self) -> Steps:
        """Ask what became of the ids that were sent; operations that were not applied stay pending."""
        store = self._store
        positions = [at for at, _ in self._sent]
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            for at, one in self._sent:
                if self.outcomes[at] is None:
                    self.outcomes[at] = _unanswered(store.url, _token_of(one, self._since))
            self._sent = []
            return
        ids = uuids([one for _, one in self._sent])
        try:
            answer = yield Call(self._texts.resolve, (ids, *map(int8, self._context())))
        except (KvModelsError, psycopg.Error) as error:
            if isinstance(error, psycopg.Error):
                yield DropConnections()
            yield Pause(random.uniform(_PAUSE_S / 2, _PAUSE_S))
            return
        if answer.warned:
            return
        for (_, outcome, version), at in zip(answer.rows, positions, strict=True):
            if self.outcomes[at] is not None:
                continue
            if outcome == _FOUND:
                self.outcomes[at] = Committed(to_versionstamp(version))
                store.note(StateSeen(version, 0))
            elif outcome != _VOID:
                self.outcomes[at] = _forgotten(store.url)
        self._sent = []


def _refused(sums: list[Sum]) -> KvModelsError | Uncomputed:
    """Return the outcome of an operation with sums that the server could not compute.

    If a function may have another answer, it decides: its error may be that of a mutation before the others.
    """
    if any(isinstance(one, Apply) for one in sums):
        return Uncomputed.UNCOMPUTED
    return not_a_number(sums[0].key)


def _rows_of_arrays(answer: list[int], failures: list[int] | None) -> list[tuple[Any, ...]]:
    """Return the arrays of an early commit as the rows of a strict one."""
    failed: dict[int, list[int]] = {}
    at = 0
    while failures and at < len(failures):
        part, number = failures[at : at + 2]
        failed[part] = failures[at + 2 : at + 2 + number]
        at += 2 + number
    present, *pairs = answer
    parts = zip(pairs[::2], pairs[1::2], strict=True)
    return [(part, outcome, version, present, failed.get(part)) for part, (outcome, version) in enumerate(parts, -1)]


def _milliseconds(seconds: float) -> int:
    """Return a lock timeout for the server, for which 0 would mean to wait without an end."""
    return min(2**31 - 1, max(1, round(seconds * 1_000)))


def another_error(error: KvModelsError) -> KvModelsError:
    """Return an equal error for another thread: two must not add their tracebacks to one object."""
    return type(error)(error.message, hint=error.hint, **error.data)


def _token_of(one: bytes, since: int) -> str:
    """Return the token of an operation: its id, and the greatest version that its process had seen."""
    return f"{one.hex()}{since:016x}"


def _unanswered(url: str, token: str) -> CommitUnknownError:
    return CommitUnknownError(
        "the server did not answer, and could not be asked what became of the commit",
        token=token,
        url=url,
        reason="no answer",
        hint="Call db.outcome(token) once the server answers again.",
    )


def _forgotten(url: str) -> CommitUnknownError:
    return CommitUnknownError(
        "the store no longer remembers commits of that time",
        url=url,
        reason="forgotten",
        hint="Read the record to see whether it was applied.",
    )


def compute_and_commit(
    store: WritingStore, texts: Statements, write: AtomicWrite
) -> Generator[Reading | PackedWrite | Pause, Any, tuple[Outcome, int | None]]:
    """Compute an operation from what is stored, and commit it under checks that this has not changed.

    Yields reads, and is sent their result; operations to commit, and is sent their outcome; and pauses. Returns the
    outcome, and the version of the state of a read in which a conflict was found.

    Raises:
        EngineTimeoutError: other writers changed the values again and again; and what a Python function raises.
    """
    ranges = ranges_to_compute(write)
    deadline, pause = time.monotonic() + store.busy_timeout, 0.001
    reading = Reading(lambda: read_and_follow(texts, ranges, store.times(), guard=None, follow=None, hiding=False))
    while True:
        state, found = yield reading
        store.note(state)
        conflict, compute = computed(write, found.ranges, state.present)
        if conflict is not None:
            return conflict, state.version
        outcome: Outcome = yield compute()
        if not isinstance(outcome, Conflict):
            return outcome, None
        own = tuple(at for at in outcome.failed_checks if at < len(write.checks))
        if own:
            return Conflict(own), None
        if time.monotonic() > deadline:
            raise CONTENDED.of(store.url)
        yield Pause(random.uniform(0, pause))
        pause = min(pause * 2, _PAUSE_S)
