"""The calls of a PostgreSQL engine as flows of requests, which a thread or an event loop carries out.

Rules of this module: a flow knows no connection. It notes what each answer shows of version and time before it returns.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
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
from kvmodels.engines.postgres.commits import WritingStore, compute_and_commit
from kvmodels.engines.postgres.connection import Calls
from kvmodels.engines.postgres.packing import packed
from kvmodels.engines.postgres.reads import (
    Reading,
    Statements,
    StateSeen,
    changes_of,
    changes_once,
    count_once,
    read_and_follow,
    state_once,
    version_of,
)
from kvmodels.engines.postgres.snapshot import BegunSnapshot
from kvmodels.engines.shared.steps import unchanged
from kvmodels.errors import KvModelsError

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
    found = yield Reading(lambda: changes_once(store.texts, one, given, store.times()))
    store.note(found.state)
    return changes_of(found, after, store.url)


def stamp_flow(store: FlowStore) -> Flow[bytes]:
    """Read the versionstamp of the last commit."""
    state = yield Reading(lambda: state_once(store.texts, store.times()))
    store.note(state)
    return to_versionstamp(state.version)


def commit_flow(store: FlowStore, write: AtomicWrite) -> Flow[Committed | Conflict]:
    """Apply an operation whole, or return the conflict. Raises as ``Engine.commit``."""
    one = packed(write)
    outcome = (yield one) if one is not None else (yield from compute_and_commit(store, store.texts, write))
    if isinstance(outcome, KvModelsError):
        raise outcome
    result: Committed | Conflict = outcome
    return result
