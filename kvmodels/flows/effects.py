"""Requests of flows: to read, to commit, to wait, and to get the time; and reads that need several requests.

A flow is a generator that yields requests and is sent their answers; it does no I/O. The drivers in
``kvmodels.runtime`` run a flow against an engine, with threads or with an event loop, so both share every decision.

A read is split according to the engine's limits of ranges and rows. Its guard counts as one more range with one row,
because an engine on a network reads it as one. Embedded engines allow 100,000 ranges in one read.

Rules of this module: requests are plain frozen values; nothing here knows an engine, a thread, an event loop or a
model. An error of the engine is thrown into the flow at the ``yield`` of its request, so a flow handles it with
``try``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, overload

from kvmodels._support.turns import Ticket
from kvmodels.core.keys import key_successor
from kvmodels.core.operations import (
    AtomicWrite,
    Changes,
    Committed,
    Conflict,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    PredictedFollow,
    ReadRange,
    ReadResult,
    Removal,
    Row,
    point,
)
from kvmodels.errors import CommitUnknownError
from kvmodels.limits import Limits
from kvmodels.schema.blobs.sources import ContentReader

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ROUNDS: Final = 4
"""Rounds of reads of keys that keep changing, before the attempt counts as a conflict."""

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor


class Read(NamedTuple):
    """Read all ranges in one snapshot; answered like ``Engine.read``."""

    ranges: Sequence[ReadRange]
    guard: Guard | None = None
    include_expired: bool = False
    follow: Follow | None = None


class ReadRow(Read):
    """Read one key for its row alone; the answer may have an empty versionstamp."""

    __slots__ = ()


class ReadToChange(Read):
    """Read one key for its row alone, for a commit that checks the row.

    So the row may be a little older than the present state, and the versionstamp of the answer is not used.
    """

    __slots__ = ()


class ReadPresent(Read):
    """Read the present state, in a transaction too: not its snapshot, and its commit checks nothing of it."""

    __slots__ = ()


class ReadUnchecked(Read):
    """Read the snapshot of a transaction with its own writes; its commit checks nothing of it."""

    __slots__ = ()


class CommitApart(NamedTuple):
    """Apply one atomic operation at once in a transaction, whatever becomes of it; answered like ``Commit``."""

    write: AtomicWrite


class CountRows(NamedTuple):
    """Count the rows of all ranges in one snapshot; answered like ``Engine.count``."""

    ranges: Sequence[ReadRange]
    guard: Guard | None = None


class Commit(NamedTuple):
    """Apply one atomic operation; answered like ``Engine.commit``. It is sent once."""

    write: AtomicWrite


class Remove(NamedTuple):
    """Apply a removal, if ``Context.removes``; answered like ``Commit``."""

    removal: Removal


class Sleep(NamedTuple):
    """Wait for a number of seconds, such as between two attempts; the answer is None."""

    seconds: float


class TakeTurn(NamedTuple):
    """Wait until a ticket has its turn; the answer is whether it has. See ``_support/turns.py``."""

    ticket: Ticket
    seconds: float


class ReserveWrites(NamedTuple):
    """Keep other processes from writing, if ``Context.release_writes`` is set; the answer is whether that succeeded."""

    seconds: float


class Now(NamedTuple):
    """Get the time in milliseconds since the epoch by the engine's clock, which decides on expiry."""


class WaitForCommit(NamedTuple):
    """Wait until the store has a later commit than ``after``, at most ``seconds``; the answer is its versionstamp."""

    after: bytes
    seconds: float


class WaitForKeys(NamedTuple):
    """Wait until a key may have changed, if the engine has ``wait_for_keys``; answered like that call."""

    keys: tuple[bytes, ...]
    after: int
    seconds: float


class Settle(NamedTuple):
    """Wait until a state that was read is durable; the answer is false if it was lost in a crash.

    Without a versionstamp: the newest state that the flow has read.
    """

    versionstamp: bytes = b""


class Pull(NamedTuple):
    """Get the next bytes of the content of a blob from its source; the answer is empty at the end."""

    reader: ContentReader
    size: int


class ReadChanges(NamedTuple):
    """Read the changes in a range after a commit; answered like ``Engine.changes``."""

    one: ReadRange
    after: bytes


class CallOutside(NamedTuple):
    """Call a function that may wait, such as for a service that has keys; in an event loop in a thread."""

    function: Callable[[], object]


Request = (
    Read
    | CountRows
    | Commit
    | CommitApart
    | Remove
    | Sleep
    | ReserveWrites
    | TakeTurn
    | Now
    | WaitForCommit
    | WaitForKeys
    | Settle
    | Pull
    | ReadChanges
    | CallOutside
)

PASSED_ON: Final = (CallOutside, Pull, ReserveWrites, Settle, Sleep, TakeTurn)
"""Requests that a transaction does not answer itself."""

Flow: TypeAlias = Generator[Request, Any, T]
"""A generator that yields requests and returns a ``T``."""


@overload
def read(
    ranges: Sequence[ReadRange], guard: None = None, *, include_expired: bool = False, follow: Follow | None = None
) -> Flow[ReadResult]: ...
@overload
def read(
    ranges: Sequence[ReadRange], guard: Guard | None, *, include_expired: bool = False, follow: Follow | None = None
) -> Flow[ReadResult | GuardFailed]: ...
def read(
    ranges: Sequence[ReadRange],
    guard: Guard | None = None,
    *,
    include_expired: bool = False,
    follow: Follow | None = None,
) -> Flow[ReadResult | GuardFailed]:
    """Read all ranges, and those of ``follow``, in one snapshot; one request.

    ``guard``: a key that must have a versionstamp in the snapshot, or None. ``follow``: a pure function from the rows
    to further ranges of the same snapshot. Returns the rows, or GuardFailed if the guard fails; without a guard always
    the rows.
    """
    answer: ReadResult | GuardFailed = yield Read(ranges, guard, include_expired, follow)
    return answer


def read_row(key: bytes) -> Flow[Row | None]:
    """Return the row of a key; one request, whose answer may lack a versionstamp."""
    answer: ReadResult = yield ReadRow((ReadRange(key),))
    rows = answer.ranges[0]
    return rows[0] if rows else None


def count_rows(ranges: Sequence[ReadRange], guard: Guard | None = None) -> Flow[Counted | GuardFailed]:
    """Count the live rows of all ranges in one snapshot, without reading them; one request.

    Not for transactions: the engine does not know their writes, and their commit must check every row that was read.
    ``guard``: a key that must have a versionstamp in the snapshot, or None.
    """
    answer: Counted | GuardFailed = yield CountRows(ranges, guard)
    return answer


def commit(write: AtomicWrite) -> Flow[Committed | Conflict]:
    """Apply one atomic operation; one request, never sent again. Raises CommitUnknownError."""
    answer: Committed | Conflict = yield Commit(write)
    return answer


def try_commit(write: AtomicWrite) -> Flow[Committed | None]:
    """Apply one atomic operation; return None after a conflict, or if the answer was lost, so that the caller looks."""
    try:
        outcome = yield from commit(write)
    except CommitUnknownError:
        return None
    return outcome if isinstance(outcome, Committed) else None


def sleep(seconds: float) -> Flow[None]:
    """Wait for ``seconds`` (0 or more)."""
    yield Sleep(seconds)


def take_turn(ticket: Ticket, seconds: float) -> Flow[bool]:
    """Wait until a ticket has its turn, at most ``seconds`` (0 or more); return whether it has."""
    answer: bool = yield TakeTurn(ticket, seconds)
    return answer


def call_outside(function: Callable[[], object]) -> Flow[None]:
    """Call a function that may wait."""
    yield CallOutside(function)


def now() -> Flow[int]:
    """Return milliseconds since the epoch by the engine's clock, which never goes back."""
    answer: int = yield Now()
    return answer


def wait_for_commit(after: bytes, seconds: float) -> Flow[bytes]:
    """Wait until the versionstamp of the last commit is greater than ``after``, or ``seconds`` (0 or more) are over.

    Returns the versionstamp of the last commit. Raises ClosedError if the store was closed meanwhile.
    """
    answer: bytes = yield WaitForCommit(after, seconds)
    return answer


def ranges_at_once(limits: Limits, *, guarded: bool) -> int:
    """Return the maximum number of ranges in one read, in addition to its guard."""
    return max(1, limits.max_ranges - guarded)


def rows_at_once(limits: Limits, wanted: int, *, others: int = 1) -> int:
    """Return the number of rows to read at once, in one read with so many other rows."""
    return max(1, min(wanted, limits.max_read_entries - others))


def fits_one_read(limits: Limits, ranges: Sequence[ReadRange], *, guarded: bool) -> bool:
    """Return whether all ranges fit into one read of the engine."""
    most = rows_at_once(limits, limits.max_read_entries, others=guarded)
    return (
        len(ranges) <= ranges_at_once(limits, guarded=guarded) and sum(_rows(one, most + 1) for one in ranges) <= most
    )


def split_ranges(limits: Limits, ranges: Iterable[ReadRange], *, guarded: bool) -> Iterator[list[ReadRange]]:
    """Yield the ranges in groups of one read each; a range that is too long for one read is a separate group."""
    most_ranges = ranges_at_once(limits, guarded=guarded)
    most_rows = rows_at_once(limits, limits.max_read_entries, others=guarded)
    chunk: list[ReadRange] = []
    total = 0
    for one in ranges:
        rows = _rows(one, most_rows)
        if chunk and (len(chunk) >= most_ranges or total + rows > most_rows):
            yield chunk
            chunk, total = [], 0
        chunk.append(one)
        total += rows
    if chunk:
        yield chunk


def read_all(
    limits: Limits, ranges: Sequence[ReadRange], guard: Guard | None = None, *, include_expired: bool = False
) -> Flow[list[list[Row]] | None]:
    """Return the rows of all ranges, or None if the guard fails.

    Each read has the guard and is a separate snapshot.

    Cost: one read, if the engine allows so many ranges and rows.
    """
    if not ranges:
        return []
    if fits_one_read(limits, ranges, guarded=guard is not None):
        whole = yield from read(ranges, guard, include_expired=include_expired)
        return None if isinstance(whole, GuardFailed) else whole.ranges
    found: list[list[Row]] = []
    for chunk in split_ranges(limits, ranges, guarded=guard is not None):
        most = rows_at_once(limits, limits.max_read_entries, others=guard is not None)
        if len(chunk) == 1 and _rows(chunk[0], most + 1) > most:
            rows = yield from _read_long(chunk[0], most, guard, include_expired=include_expired)
            if rows is None:
                return None
            found.append(rows)
            continue
        result = yield from read(chunk, guard, include_expired=include_expired)
        if isinstance(result, GuardFailed):
            return None
        found += result.ranges
    return found


def _read_long(one: ReadRange, most: int, guard: Guard | None, *, include_expired: bool) -> Flow[list[Row] | None]:
    """Return the rows of a range that needs several reads."""
    rows: list[Row] = []
    while True:
        size = most if one.limit is None else min(most, one.limit - len(rows))
        result = yield from read((one._replace(limit=size),), guard, include_expired=include_expired)
        if isinstance(result, GuardFailed):
            return None
        part = result.ranges[0]
        rows += part
        if len(part) < size or len(rows) == one.limit:
            return rows
        last = part[-1].key
        one = one._replace(end=last) if one.reverse else one._replace(start=key_successor(last))


def read_together(limits: Limits, keys: Sequence[bytes], guard: Guard) -> Flow[dict[bytes, Row | None] | None]:
    """Return the stored rows of some keys, including expired ones, as they all were at one moment.

    If the engine allows only some of them in one read, that moment is between two rounds of reads with equal rows. A
    key that is absent in both rounds may have existed in between: a commit that relies on its absence checks it.
    Returns the rows by key; None if the guard fails, or if the rows changed in every round.
    """
    ranges = [point(key) for key in keys]
    before: list[list[Row]] | None = None
    for _ in range(ROUNDS):
        found: list[list[Row]] = []
        moments: list[bytes] = []
        for chunk in split_ranges(limits, ranges, guarded=True):
            result = yield from read(chunk, guard, include_expired=True)
            if isinstance(result, GuardFailed):
                return None
            found += result.ranges
            moments.append(result.versionstamp)
        # Without versioned reads, an engine does not show whether two reads saw one state.
        if len(moments) <= 1 or (moments[0] and len(set(moments)) == 1) or found == before:
            return {key: rows[0] if rows else None for key, rows in zip(keys, found, strict=True)}
        before = found
    return None


def _rows(one: ReadRange, unlimited: int) -> int:
    """Return the maximum number of rows of a range."""
    if one.end is None:
        return 1
    return unlimited if one.limit is None else one.limit


AGAIN: Final[Any] = object()
"""The result if an answer was not sufficient."""


class OneRequest(NamedTuple, Generic[T]):
    """A flow of one request that is known in advance, without the cost of a generator.

    Attributes:
        request: the request.
        answer: computes the result of the flow from the answer of the engine, or AGAIN.
        otherwise: the flow to run after AGAIN, or after a failed guard; only required if one of them is possible.
    """

    request: Read | CountRows
    answer: Callable[[Any], T]
    otherwise: Callable[[], Flow[T]] | None = None


class Lookup(ABC, Generic[T_co]):
    """Base of compiled lookups of one record; see ``kvmodels.flows.reading.lookup``.

    Attributes:
        guard: the guard of the read.
        follow: the function from the first rows to the range of the record.
        load: the function from the row of the record, which may be a plain tuple, and the key to its object. The result
            is None if it is a wrong record. Without ``load``, the complete read is needed.
        otherwise: the function from the operand to the flow to run after AGAIN, or after a failed guard.
    """

    __slots__ = ()

    guard: Guard | None = None
    follow: Follow | None = None
    load: Callable[[Any, bytes], T_co | None] | None
    otherwise: Callable[[Any], Flow[T_co]]

    @abstractmethod
    def answer(self, found: ReadResult, key: bytes, given: Any, /) -> T_co:
        """Return the object that a read of the key has found; or AGAIN; or like ``absent``."""

    @abstractmethod
    def absent(self, given: Any, /) -> T_co:
        """Return None, or raise DoesNotExist."""


class OneLookup(NamedTuple, Generic[T]):
    """A flow of one request that looks up one record; an engine may return its row alone (``row_at_key``)."""

    lookup: Lookup[T]
    key: bytes
    given: Any

    def one_request(self, *, guessed: bool = False) -> OneRequest[T]:
        """Return the same flow as a read; ``guessed``: a predicted record was wrong, so none is predicted again."""
        lookup, key, given = self
        follow = lookup.follow
        if guessed and isinstance(follow, PredictedFollow):
            follow = follow.follow
        request = Read((_new(ReadRange, (key, None, None, False, False)),), lookup.guard, False, follow)
        return OneRequest(request, partial(_answer, lookup, key, given), partial(lookup.otherwise, given))


def _answer(lookup: Lookup[T], key: bytes, given: Any, found: ReadResult) -> T:
    return lookup.answer(found, key, given)


AnyFlow: TypeAlias = Flow[T] | OneRequest[T] | OneLookup[T]
"""A flow: a generator, or one request."""


def steps_of(flow: AnyFlow[T]) -> Flow[T]:
    """Return a flow as a generator, for callers that handle its requests."""
    if isinstance(flow, OneLookup):
        return _steps(flow.one_request())
    return _steps(flow) if isinstance(flow, OneRequest) else flow


def _steps(one: OneRequest[T]) -> Flow[T]:
    found: ReadResult | Counted | GuardFailed = yield one.request
    if not isinstance(found, GuardFailed):
        result = one.answer(found)
        if result is not AGAIN:
            return result
    assert one.otherwise is not None  # the read had a guard, or an answer that may require it
    return (yield from one.otherwise())


def read_changes(one: ReadRange, after: bytes) -> Flow[Changes]:
    """Return the keys of a range that changed in commits later than ``after``, in the order of their last change.

    Raises UnsupportedError if the store keeps no change log; ResumeExpiredError if the log does not reach back to
    ``after``, or the store never reached it.
    """
    answer: Changes = yield ReadChanges(one, after)
    return answer
