"""What a flow may ask of the world: to read, to commit, to wait, also for a commit of others, and what time it is.

A flow is a generator that yields requests and is sent their answers; it does no I/O. ``kvmodels.drivers`` runs
one flow against an engine, synchronously or asynchronously, so both worlds share every decision.

Rules of this module: requests are plain frozen values; nothing here knows an engine, a thread or an event loop.
An error of the engine is thrown into the flow at the ``yield`` of its request, so a flow handles it with ``try``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, overload

from kvmodels.operations import (
    AtomicWrite,
    Changes,
    Committed,
    Conflict,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    Likely,
    ReadRange,
    ReadResult,
    Removal,
    Row,
)

__all__ = [
    "AGAIN",
    "AnyFlow",
    "Commit",
    "Count",
    "Flow",
    "Now",
    "OneCount",
    "OneRead",
    "OneRow",
    "Read",
    "ReadChanges",
    "ReadRow",
    "ReadToChange",
    "Remove",
    "Request",
    "Short",
    "Sleep",
    "WaitForCommit",
    "Way",
    "commit",
    "count_rows",
    "now",
    "read",
    "read_changes",
    "read_row",
    "request_of",
    "sleep",
    "steps_of",
    "wait_for_commit",
]

T = TypeVar("T")
_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor
T_co = TypeVar("T_co", covariant=True)


class Read(NamedTuple):
    """Read all ranges in one snapshot; the answer is what ``Engine.read`` returns."""

    ranges: Sequence[ReadRange]
    guard: Guard | None = None
    include_expired: bool = False
    follow: Follow | None = None


class ReadRow(Read):
    """A read of one key, of which nothing but the row is asked: the answer may have an empty versionstamp."""

    __slots__ = ()


class ReadToChange(Read):
    """A read of one key, of which nothing but the row is asked, for a commit that checks what was found.

    So it may be a little older than the present state, and the versionstamp of the answer is not to be looked at.
    """

    __slots__ = ()


class Count(NamedTuple):
    """Count the rows of all ranges in one snapshot; the answer is what ``Engine.count`` returns."""

    ranges: Sequence[ReadRange]
    guard: Guard | None = None


class Commit(NamedTuple):
    """Apply one atomic operation; the answer is what ``Engine.commit`` returns. It is sent once."""

    write: AtomicWrite


class Remove(NamedTuple):
    """Apply a removal, where ``Context.removes`` says that the engine can; the answer is that of ``Commit``."""

    removal: Removal


class Sleep(NamedTuple):
    """Wait for a number of seconds, as between two attempts; the answer is None."""

    seconds: float


class Now(NamedTuple):
    """Ask for the time in milliseconds since the epoch by the clock of the engine, which decides on expiry."""


class WaitForCommit(NamedTuple):
    """Wait until the store holds a later commit than ``after``, at most ``seconds``; the answer is its versionstamp."""

    after: bytes
    seconds: float


class ReadChanges(NamedTuple):
    """Read what changed in a range after a commit; the answer is what ``Engine.changes`` returns."""

    one: ReadRange
    after: bytes


Request = Read | Count | Commit | Remove | Sleep | Now | WaitForCommit | ReadChanges

Flow: TypeAlias = Generator[Request, Any, T]
"""A generator that yields requests and returns a ``T``."""


@overload
def read(
    ranges: Sequence[ReadRange],
    guard: None = None,
    *,
    include_expired: bool = False,
    follow: Follow | None = None,
) -> Flow[ReadResult]: ...
@overload
def read(
    ranges: Sequence[ReadRange],
    guard: Guard | None,
    *,
    include_expired: bool = False,
    follow: Follow | None = None,
) -> Flow[ReadResult | GuardFailed]: ...
def read(
    ranges: Sequence[ReadRange],
    guard: Guard | None = None,
    *,
    include_expired: bool = False,
    follow: Follow | None = None,
) -> Flow[ReadResult | GuardFailed]:
    """Read all ranges, and what ``follow`` asks for, in one snapshot; one request.

    Args:
        ranges: what to read; the answer has their rows in this order.
        guard: a key that must have a versionstamp in the snapshot, or None.
        include_expired: whether rows past their deadline are seen.
        follow: a pure function from the rows to further ranges of the same snapshot.

    Returns:
        The rows, or GuardFailed when the guard does not hold; without a guard always the rows.
    """
    answer: ReadResult | GuardFailed = yield Read(ranges, guard, include_expired, follow)
    return answer


def read_row(key: bytes) -> Flow[Row | None]:
    """The row of a key; one request, for which an engine need not say of which state of the store it is."""
    answer: ReadResult = yield ReadRow((ReadRange(key),))
    rows = answer.ranges[0]
    return rows[0] if rows else None


def count_rows(ranges: Sequence[ReadRange], guard: Guard | None = None) -> Flow[Counted | GuardFailed]:
    """Count the live rows of all ranges in one snapshot, without reading them; one request.

    Not in a transaction, whose own writes the engine does not know, and whose commit checks every row that it has seen.

    Args:
        ranges: what to count; a limit bounds its number.
        guard: a key that must have a versionstamp in the snapshot, or None.
    """
    answer: Counted | GuardFailed = yield Count(ranges, guard)
    return answer


def commit(write: AtomicWrite) -> Flow[Committed | Conflict]:
    """Apply one atomic operation; one request, never sent again.

    Raises:
        CommitUnknownError: the answer was lost; the operation may have been applied.
    """
    answer: Committed | Conflict = yield Commit(write)
    return answer


def sleep(seconds: float) -> Flow[None]:
    """Wait for ``seconds`` (0 or more)."""
    yield Sleep(seconds)


def now() -> Flow[int]:
    """Return milliseconds since the epoch by the clock of the engine; it never goes back."""
    answer: int = yield Now()
    return answer


def wait_for_commit(after: bytes, seconds: float) -> Flow[bytes]:
    """Wait until the versionstamp of the last commit is greater than ``after``, or ``seconds`` (0 or more) are over.

    Returns:
        The versionstamp of the last commit.

    Raises:
        ClosedError: the store was closed meanwhile.
    """
    answer: bytes = yield WaitForCommit(after, seconds)
    return answer


AGAIN: Final[Any] = object()
"""What an answer returns where the read was not enough to know it."""


class OneRead(NamedTuple, Generic[T]):
    """A flow of one read, which is known before anything is asked: what to read, and what the answer means.

    It is a flow without a generator, which is half of what such a read costs besides the engine and the decoding.

    Attributes:
        ranges, guard, follow: as in ``Read``.
        answer: from what was read to what the flow returns; or AGAIN.
        otherwise: how to go on after AGAIN, and when the guard did not hold; never asked for without either.
    """

    ranges: Sequence[ReadRange]
    guard: Guard | None
    follow: Follow | None
    answer: Callable[[Any], T]
    otherwise: Callable[[], Flow[T]] | None = None


class OneCount(OneRead[T]):
    """The same of a count, whose answer is given ``Counted``; ``follow`` is None."""

    __slots__ = ()


class OneRow(NamedTuple, Generic[T]):
    """A flow that reads one key, of which one row is wanted: as ``OneRead``, without anything made beforehand.

    An engine may give the row alone (``row_at_key``), and then nothing but ``made`` is called.

    Attributes:
        key, guard, follow: what is read.
        made: from the one row that is wanted, and the key that was asked for, to what ``answer`` makes of it. None:
            it takes a read to know. It may be given the row as a plain tuple.
        way: says what a read means.
        otherwise: how to go on after AGAIN, and when the guard did not hold; never asked for without either.
        asked: what these two have to know of this very lookup.
    """

    key: bytes
    guard: Guard | None
    follow: Follow | None
    made: Callable[[Any, bytes], T | None] | None
    way: Way[T]
    otherwise: Callable[[Any], Flow[T]] | None
    asked: Any

    def read(self, *, guessed: bool = False) -> OneRead[T]:
        """The read of it; with ``guessed`` nothing is guessed again."""
        key, guard, follow, _, way, otherwise, asked = self
        if guessed and isinstance(follow, Likely):
            follow = follow.follow
        return OneRead(
            (_new(ReadRange, (key, None, None, False, False)),),
            guard,
            follow,
            partial(_answer, way, key, asked),
            None if otherwise is None else partial(otherwise, asked),
        )


def _answer(way: Way[T], key: bytes, asked: Any, found: ReadResult) -> T:
    return way.answer(found, key, asked)


class Short(NamedTuple):
    """How one operand becomes a ``OneRow``.

    Attributes:
        head, pack: the key is the head and what the operand is packed to; ``pack`` raises InvalidValueError.
        guard, follow, made, way: as there; ``way`` is asked of an absent row with the operand.
    """

    head: bytes
    pack: Callable[[Any], bytes]
    guard: Guard | None
    follow: Follow | None
    made: Callable[[Any, bytes], Any]
    way: Way[Any]


class Way(Protocol[T_co]):
    """What many lookups of one kind have in common."""

    def answer(self, found: ReadResult, key: bytes, asked: Any, /) -> T_co:
        """What the read of a key means; or AGAIN."""
        ...

    def absent(self, asked: Any, /) -> T_co:
        """What it means that there is no row."""
        ...

    def short(self) -> Short | None:
        """How one operand is looked up, to be kept while the header holds; None where it takes more."""
        ...


AnyFlow: TypeAlias = Flow[T] | OneRead[T] | OneRow[T]
"""A flow, or what takes no generator."""


def steps_of(flow: AnyFlow[T]) -> Flow[T]:
    """A flow as a generator, for those who go through its requests."""
    if isinstance(flow, OneRow):
        return _steps(flow.read())
    return _steps(flow) if isinstance(flow, OneRead) else flow


def request_of(one: OneRead[Any]) -> Read | Count:
    """What it asks for."""
    ranges, guard, follow, _, _ = one
    return Count(ranges, guard) if type(one) is OneCount else Read(ranges, guard, False, follow)


def _steps(one: OneRead[T]) -> Flow[T]:
    found: ReadResult | Counted | GuardFailed = yield request_of(one)
    if not isinstance(found, GuardFailed):
        result = one.answer(found)
        if result is not AGAIN:
            return result
    assert one.otherwise is not None  # there was a guard, or an answer that needs it
    return (yield from one.otherwise())


def read_changes(one: ReadRange, after: bytes) -> Flow[Changes]:
    """Return the keys of a range that changed in commits later than ``after``, in the order of their last change.

    Raises:
        UnsupportedError: the store keeps no change log.
        ResumeExpiredError: the log no longer reaches back to ``after``.
    """
    answer: Changes = yield ReadChanges(one, after)
    return answer
