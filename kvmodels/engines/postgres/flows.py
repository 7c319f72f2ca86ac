"""The calls of a PostgreSQL engine as flows of requests, which a thread or an event loop carries out.

Rules of this module: a flow knows no connection. It notes what each answer shows of version and time before it returns.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from math import inf
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from kvmodels.core.operations import (
    AtomicWrite,
    Changes,
    Committed,
    Conflict,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
    to_versionstamp,
)
from kvmodels.engines.postgres.commits import CallOutcome, Outcome, Pause, Uncomputed, WritingStore, compute_and_commit
from kvmodels.engines.postgres.connection import Calls
from kvmodels.engines.postgres.errors import NO_PERMISSION
from kvmodels.engines.postgres.packing import packed
from kvmodels.engines.postgres.reads import (
    Reading,
    Statements,
    StateSeen,
    changes_of,
    changes_once,
    count_once,
    read_and_follow,
    seal_once,
    settled_once,
    state_once,
    version_of,
)
from kvmodels.engines.postgres.snapshot import BegunSnapshot
from kvmodels.engines.shared.server_errors import ServerError
from kvmodels.engines.shared.steps import unchanged
from kvmodels.errors import ClosedError, EngineError, EngineTimeoutError, KvModelsError

T = TypeVar("T")

Flow: TypeAlias = Generator[Any, Any, T]
"""Yields ``RangesRead``, ``Reading``, ``PackedWrite``, ``Pause`` or ``PINNING``, and is sent the answer of each."""


AS_RAISED: Final = unchanged(KvModelsError)
"""Gives a flow the errors of its requests, which are those of this library."""


class Pinning(NamedTuple):
    """The beginning of a snapshot; its answer is a ``BegunSnapshot``."""


PINNING: Final = Pinning()


class FlowStore(WritingStore, Protocol):
    """The store of a flow."""

    @property
    def texts(self) -> Statements:
        """Its statements."""
        ...

    def require_writable(self) -> None:
        """Raise ReadOnlyError if the store was opened for reading."""
        ...

    @property
    def settling(self) -> Settling:
        """Which states are durable."""
        ...

    @property
    def adds_integers(self) -> bool:
        """Whether its functions know an ``IntegerSum``."""
        ...


class Settling:
    """Knowledge about the durability of states in one store, of all its threads: a lost update only costs a question.

    Attributes:
        needed: whether commits of the store may end early.
        may_seal: whether this process may write seals.
        sealing: whether it writes one for a follower. One at a time, because each waits for the disk on a connection.
        durable: a version that is durable and there: of a commit of this process, or one that was settled.
    """

    def __init__(self) -> None:
        self.needed = False
        self.may_seal = True
        self.sealing = False
        self.durable = 0


class RangesRead(NamedTuple):
    """A read of ranges, which may share a statement with others of the same turn of an event loop.

    Its answer is the state, and the result; None in its place if a commit came between two calls.

    Attributes:
        store: is read.
        ranges: as in ``Engine.read``.
        guard: as in ``Engine.read``.
        follow: as in ``Engine.read``.
        hiding: whether expired rows are left out.
    """

    store: FlowStore
    ranges: Sequence[ReadRange]
    guard: Guard | None
    follow: Follow | None
    hiding: bool

    def calls(self) -> Calls[tuple[StateSeen, ReadResult | GuardFailed | None]]:
        """Return the calls that carry it out alone."""
        store, ranges, guard, follow, hiding = self
        return read_and_follow(store.texts, ranges, store.times(), guard=guard, follow=follow, hiding=hiding)


FIRST_PAUSE_S: Final = 0.000_5
LONGEST_PAUSE_S: Final = 0.005
ORPHANED_S: Final = 0.2
"""After so many seconds, the session that should seal a commit may have died."""


def settle_flow(store: FlowStore, version: int, *, bounded: bool = False) -> Flow[bool]:
    """Wait until a state that was read is durable; false if it was lost in a crash, and has to be read again.

    ``bounded``: for no longer than a commit waits for other writers. Then it raises EngineTimeoutError.
    """
    settling = store.settling
    if not settling.needed or version == settling.durable:
        return True
    pause, began = FIRST_PAUSE_S, time.monotonic()
    end = began + store.busy_timeout if bounded else inf
    while True:
        yield Pause(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_S)
        found = yield Reading(lambda: settled_once(store.texts, version))
        if not found.there:
            # Also while nothing later is durable: an idle store would never tell. Only rows of an hour ago are removed.
            return False
        if found.durable or found.standby:
            settling.durable = version
            return True
        if time.monotonic() > end:
            raise _NOT_DURABLE.of(store.url)
        if settling.may_seal and not settling.sealing and time.monotonic() - began > ORPHANED_S:
            began = time.monotonic()
            yield from _seal(store, version)


_NOT_DURABLE: Final = ServerError(
    EngineTimeoutError,
    "what this call has read is not on the disk yet",
    "Nothing was written. The disk of the server, or its synchronous standby, does not answer; try again.",
)


def _seal(store: FlowStore, version: int) -> Flow[None]:
    """Seal a state whose session may have died; a role that may not write leaves it to the next commit.

    Raises ClosedError. After any other error, such as that of a full disk, the caller waits on and tries again.
    """
    settling = store.settling
    settling.sealing = True
    try:
        yield Reading(lambda: seal_once(store.texts, version))
    except ClosedError:
        raise
    except EngineError as error:
        if error.data.get("reason") == NO_PERMISSION:
            settling.may_seal = False
    finally:
        settling.sealing = False


def read_flow(read: RangesRead) -> Flow[ReadResult | GuardFailed]:
    """Read ranges in one state: by one call, by two with nothing in between, or in a snapshot."""
    state, found = yield read
    if found is None:
        state, found = yield Reading(read.calls, pinned=True)
        assert found is not None, "nothing comes between two reads of a snapshot"
    read.store.note(state)
    result: ReadResult | GuardFailed = found
    return result


def pin_flow() -> Flow[BegunSnapshot]:
    """Begin a snapshot."""
    begun: BegunSnapshot = yield PINNING
    return begun


def count_flow(store: FlowStore, ranges: Sequence[ReadRange], guard: Guard | None) -> Flow[Counted | GuardFailed]:
    """Count the live rows of ranges."""
    state, found = yield Reading(lambda: count_once(store.texts, ranges, guard, store.times()))
    store.note(state)
    result: Counted | GuardFailed = found
    return result


def changes_flow(store: FlowStore, one: ReadRange, after: bytes) -> Flow[Changes]:
    """Read the changes of a range after a versionstamp. Raises UnsupportedError, ResumeExpiredError."""
    given = max(0, version_of(after))
    while True:
        found = yield Reading(lambda: changes_once(store.texts, one, given, store.times()))
        store.note(found.state)
        # The state, not the end of the batch: a key whose last change is later is left out of this batch.
        if found.durable or (yield from settle_flow(store, found.state.version)):
            return changes_of(found, after, store.url)


def stamp_flow(store: FlowStore) -> Flow[bytes]:
    """Read the versionstamp of the last commit."""
    state = yield Reading(lambda: state_once(store.texts, store.times()))
    store.note(state)
    return to_versionstamp(state.version)


def computing_flow(store: FlowStore, write: AtomicWrite) -> Flow[Outcome]:
    """Commit an operation that depends on what is stored; a conflict that a read has found is told when it is durable.

    Raises as ``compute_and_commit``.
    """
    while True:
        outcome, version = yield from compute_and_commit(store, store.texts, write)
        if version is None or (yield from settle_flow(store, version, bounded=True)):
            return outcome


def commit_flow(store: FlowStore, write: AtomicWrite) -> Flow[Committed | Conflict]:
    """Apply an operation whole, or return the conflict. Raises as ``Engine.commit``."""
    one = packed(write, adds_integers=store.adds_integers)
    outcome: CallOutcome = Uncomputed.UNCOMPUTED if one is None else (yield one)
    if isinstance(outcome, Uncomputed):
        outcome = yield from computing_flow(store, write)
    if isinstance(outcome, KvModelsError):
        raise outcome
    return outcome
