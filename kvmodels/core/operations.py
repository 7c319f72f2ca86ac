"""The frozen values that pass between the layers and an engine, and the results of combining writes.

Rules of this module: an engine knows bytes, encoding numbers, ten-byte versionstamps and absolute deadlines in
milliseconds, and nothing of models, key parts or values. Named tuples, because they are the cheapest immutable values
to create (0.25 us against 0.6 us for a frozen dataclass) and one is made for every row. The result of a sum, a min, a
max or another function is the same for an engine and for a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.keys import shown_key
from kvmodels.core.values import StoredAsJson
from kvmodels.errors import InvalidValueError

_new: Final = tuple[Any, ...].__new__

VACANT: Final = b""
"""The versionstamp of a ``Check`` that no row has a key which begins with the packed parts in ``Check.key``.

A row past its deadline is no row, and the key that equals the prefix does not count. No stored row has this
versionstamp and it is not None, so an engine that compares single keys finds such a check failed first, and judges it
by ``evaluation.confirmed_failures`` then.
"""

ABOVE_EVERY_TAG = b"\xff"
"""A byte greater than the tag of every key part: ``prefix + ABOVE_EVERY_TAG`` ends the range of a prefix."""


class Row(NamedTuple):
    """A stored row: packed key, stored bytes, the number of their encoding, versionstamp, deadline in ms or None."""

    key: bytes
    value: bytes
    encoding: int
    versionstamp: bytes
    expire_at: int | None


PlainRow: TypeAlias = tuple[bytes, bytes, int, bytes | int, int | None]
"""A ``Row`` as a plain tuple, perhaps with the number of its version as versionstamp; ``row_of`` makes a row of it."""


class Entry(NamedTuple):
    """The value of a key in the key-value API: ``value`` and ``versionstamp`` are None when the key is absent.

    ``versionstamp`` is 20 lowercase hexadecimal digits; ``expires_at`` is milliseconds since the epoch, or None.
    """

    key: Annotated[tuple[Any, ...], StoredAsJson]
    value: Annotated[Any, StoredAsJson]
    versionstamp: str | None
    expires_at: int | None = None


class ReadRange(NamedTuple):
    """Rows with ``start <= key < end``, at most ``limit``, descending with ``reverse``; no ``end``: one key.

    With ``keys_only``, an engine may leave the values of the rows empty.
    """

    start: bytes
    end: bytes | None = None
    limit: int | None = None
    reverse: bool = False
    keys_only: bool = False


class Guard(NamedTuple):
    """A key that must have this versionstamp (None: be absent) in the snapshot of a read."""

    key: bytes
    versionstamp: bytes | None


class Check(NamedTuple):
    """A key that must have this versionstamp (None: be absent) for a commit to be applied; or ``VACANT``.

    ``physical`` compares the row that is stored, expired or not, as the write compiler reads it. Without it an
    expired row counts as absent.
    """

    key: bytes
    versionstamp: bytes | None
    physical: bool = False


class Set(NamedTuple):
    """Store ``value`` under ``key``; with ``expire_at`` None without a deadline, whatever was there before.

    With ``versionstamped`` the row is stored under ``key`` and one more part: the versionstamp of its commit as text.
    """

    key: bytes
    value: bytes
    encoding: int
    expire_at: int | None = None
    versionstamped: bool = False


class Delete(NamedTuple):
    """Remove ``key``; nothing happens when it is absent."""

    key: bytes


class Arithmetic(NamedTuple):
    """Combine a stored unsigned 64-bit integer (little endian, encoding 2) with ``operand``; absent: store it.

    ``sum`` wraps at 2**64. The deadline of the row is cleared, as in Deno. For a row that is not such an integer the
    engine raises InvalidValueError and applies nothing of the operation.
    """

    kind: Literal["sum", "min", "max"]
    key: bytes
    operand: int


class Apply(NamedTuple):
    """Store the result of a pure function of the stored row, without its deadline.

    ``function`` takes (stored bytes, encoding), or None when the key is absent, and returns the same pair. A retried
    commit may call it again. The commit raises its exceptions, and then nothing of the operation is applied. ``size``
    is the size of the operand for the limits, in bytes.
    """

    key: bytes
    function: Callable[[tuple[bytes, int] | None], tuple[bytes, int]]
    size: int


Mutation = Set | Delete | Arithmetic | Apply


class AtomicWrite(NamedTuple):
    """Checks on the state before the operation, then mutations applied in order, all or nothing."""

    checks: tuple[Check, ...] = ()
    mutations: tuple[Mutation, ...] = ()


class Removal(NamedTuple):
    """Remove ``key`` and the keys that follow from its row, which is read inside the transaction that removes it.

    For engines with a method ``remove``. The outcome is that of an ``AtomicWrite`` with this check alone, or a Conflict
    without a position, and nothing applied: there is no row, it has a deadline, or ``entries`` returns None.

    ``entries`` takes the key, the stored bytes and their encoding, and returns the other keys. It is called while every
    other writer waits, perhaps in a thread of one of them, and perhaps again after a failure: it is pure, short, raises
    nothing, and runs no code of the program.
    """

    check: Check
    key: bytes
    entries: Callable[[bytes, bytes, int], Sequence[bytes] | None]


class Committed(NamedTuple):
    """The operation was applied; every row it wrote carries this versionstamp."""

    versionstamp: bytes


class Conflict(NamedTuple):
    """NoFollow was applied: the positions in ``AtomicWrite.checks`` that failed; none for a ``Removal`` of no row."""

    failed_checks: tuple[int, ...]


class GuardFailed(NamedTuple):
    """The guard of a read did not hold and nothing was read; holds the versionstamp of the guarded key."""

    versionstamp: bytes | None


class ReadResult(NamedTuple):
    """Rows per range in request order, the rows per followed range, and the versionstamp of the one snapshot."""

    ranges: list[list[Row]]
    followed: list[list[Row]]
    versionstamp: bytes


class Counted(NamedTuple):
    """Number of live rows in each range, at most its limit, and the versionstamp of the one snapshot."""

    numbers: list[int]
    versionstamp: bytes


class Change(NamedTuple):
    """The last change of a key: the commit that made it, and the row of the key now (None: absent)."""

    key: bytes
    versionstamp: bytes
    row: Row | None


class Changes(NamedTuple):
    """Changes in commit order, one snapshot, and the versionstamp up to which none is missing."""

    changes: list[Change]
    through: bytes


Follow = Callable[[list[list[Row]]], Sequence[ReadRange]]
"""A pure function from the rows of the first ranges to further ranges, which are read in the same snapshot.

``SuffixFollow``, ``MultiRangeFollow`` and ``PredictedFollow`` are such functions that declare what they return. An
engine of a server answers them in one round trip; any other function costs it a second one.
"""


@dataclass(frozen=True, slots=True)
class SuffixFollow:
    """A ``Follow`` that an engine may carry out itself: the rows of one range end in the keys of others.

    Called, it is that function, and an engine that calls it gives the right answer. An engine that knows it may read a
    row and its following row in one step. The rows of the range may then be plain tuples that begin with the key; the
    reader ignores the rest. If every row has a following row, these may come as one list of plain tuples, in their
    order, instead of one list for each: fewer objects are less work for the garbage collector. ``row_of`` makes rows of
    them.

    Attributes:
        prefix: the beginning of the keys of the rows to follow.
        start: where their end begins in the keys of the range.
    """

    prefix: bytes
    start: int

    def __call__(self, ranges: Sequence[list[Row]]) -> list[ReadRange]:
        """Return the key of the row to follow for each row of the first range."""
        prefix, start = self.prefix, self.start
        return [ReadRange(prefix + row[0][start:]) for row in ranges[0]]


@dataclass(frozen=True, slots=True)
class MultiRangeFollow:
    """A ``Follow`` that an engine may carry out itself: the rows of several ranges end in the keys of others.

    Called, it is that function. An engine that knows it may read entries and records in one round trip; the rows of the
    ranges may then be plain tuples that begin with the key. The answer has a list for each record that is asked for, in
    order, as for the function.

    Attributes:
        prefix: the beginning of the keys of the rows to follow.
        starts: where their end begins in the keys of each range.
        most: how many rows are followed, in the order of the ranges.
    """

    prefix: bytes
    starts: tuple[int, ...]
    most: int

    def __call__(self, ranges: Sequence[list[Row]]) -> list[ReadRange]:
        """Return the key of the row to follow for each of the first rows."""
        prefix = self.prefix
        keys = (prefix + row[0][start:] for start, rows in zip(self.starts, ranges, strict=True) for row in rows)
        return [ReadRange(key) for key in islice(keys, self.most)]


class NoFollow:
    """A ``Follow`` without further ranges, of a reader who accepts plain tuples, of which ``row_of`` makes rows.

    An engine that knows it may give such tuples for rows that it makes; one that calls it gives rows.
    """

    def __call__(self, _: Sequence[list[Row]], /) -> list[ReadRange]:
        """Return no range."""
        return []


PLAIN_ROWS: Final = NoFollow()
"""The one object that is needed of it."""


Guess: TypeAlias = tuple[bytes, int, bytes]
"""A key is probably this prefix, the value of a row from this position on, and this suffix."""

_NO_OTHERS: Final[Mapping[int, Guess]] = MappingProxyType({})


@dataclass(slots=True)
class PredictedFollow:
    """A ``Follow`` whose key can be predicted, if the row that is read is like those before it.

    Called, it is the function. An engine may give the predicted row instead of the result of the function, if there is
    such a row and the range is one key: the reader notices a wrong one, and reads again with the function alone.

    Attributes:
        follow: the function; it may change the guess, which is no part of the answer.
        guess: how the key is made of the value of the row.
        others: guesses for values of other lengths. Writers replace this mapping before ``guess``, which then is a new
            object, so that a comparison with ``guess`` alone shows a change.
        misses: number of calls of the function since an engine last found a predicted row, if the engine sets it to 0.
        asked: the statement of the engine for such a row, with its guess and guard; written by the engine.
    """

    follow: Follow
    guess: Guess
    misses: int = 0
    asked: tuple[Guess, Guard, str] | None = None
    others: Mapping[int, Guess] = _NO_OTHERS

    def __call__(self, ranges: list[list[Row]]) -> Sequence[ReadRange]:
        """Return the ranges of the function."""
        return self.follow(ranges)

    def predicted_key(self, value: bytes) -> bytes:
        """Return the predicted key for a row with this value."""
        prefix, start, suffix = self.others.get(len(value), self.guess)
        return prefix + value[start:] + suffix


class CommitResult(NamedTuple):
    """Result of ``commit``: true when applied; ``failed_checks`` holds the keys whose check failed."""

    ok: bool
    versionstamp: str | None
    failed_checks: Annotated[tuple[tuple[Any, ...], ...], StoredAsJson] = ()

    def __bool__(self) -> bool:
        return self.ok


def point(key: bytes) -> ReadRange:
    """Return the range that holds one key."""
    return ReadRange(key)


def to_versionstamp(version: int) -> bytes:
    """Return eight bytes big endian and two zero bytes, the layout of versionstamps in Deno's own store."""
    return version.to_bytes(8, "big") + b"\0\0"


def row_of(plain: PlainRow) -> Row:
    """Return the row of a plain tuple."""
    key, value, encoding, version, expire_at = plain
    # Made as its own constructor does, without the call of it.
    stamp = to_versionstamp(version) if isinstance(version, int) else version
    return _new(Row, (key, value, encoding, stamp, expire_at))


def after_prefix(prefix: bytes) -> bytes:
    """Return the end of the range of all keys that begin with the packed parts ``prefix``."""
    return prefix + ABOVE_EVERY_TAG


def vacant_range(prefix: bytes) -> ReadRange:
    """Return the range of a check with ``VACANT``: the first key that begins with ``prefix`` and has more parts."""
    return ReadRange(prefix + b"\0", after_prefix(prefix), 1, keys_only=True)


def format_versionstamp(versionstamp: bytes) -> str:
    """Return ten bytes as 20 lowercase hexadecimal digits."""
    return versionstamp.hex()


def parse_versionstamp(text: str) -> bytes:
    """Return the bytes of 20 hexadecimal digits; ValueError for another text."""
    data = bytes.fromhex(text)
    if len(data) != 10 or len(text) != 20:
        raise ValueError("a versionstamp is 20 hexadecimal digits")
    return data


U64_ENCODING: Final = 2
U64_MODULUS: Final = 1 << 64


def combine(mutation: Arithmetic | Apply, stored: Row | None) -> tuple[bytes, int]:
    """Return the bytes that a sum, min, max or another function leaves, and their encoding.

    Raises InvalidValueError if the operand or the stored value is no unsigned 64-bit integer, and what the function
    raises.
    """
    if isinstance(mutation, Apply):
        return mutation.function(None if stored is None else (stored.value, stored.encoding))
    return _combine_integers(mutation, stored), U64_ENCODING


def _combine_integers(mutation: Arithmetic, stored: Row | None) -> bytes:
    kind, key, operand = mutation
    if not 0 <= operand < U64_MODULUS:
        raise InvalidValueError(
            "the operand of a sum, min or max is not an unsigned 64-bit integer",
            path=kind,
            hint="Pass an integer from 0 to 2**64 - 1.",
        )
    if stored is None:
        return operand.to_bytes(8, "little")
    if stored.encoding != U64_ENCODING or len(stored.value) != 8:
        raise InvalidValueError(
            "a sum, min or max met a value that is not an unsigned 64-bit integer",
            path=shown_key(key),
            hint="NoFollow was applied. Store a KvU64 under this key first, or use another key for the counter.",
        )
    return combined_operands(kind, int.from_bytes(stored.value, "little"), operand).to_bytes(8, "little")


def combined_operands(kind: str, one: int, other: int) -> int:
    """Return a sum, min or max of two unsigned 64-bit integers: of a stored one and an operand, or of two operands."""
    if kind == "sum":
        return (one + other) % U64_MODULUS
    return min(one, other) if kind == "min" else max(one, other)
