"""The frozen values that pass between the layers and an engine, and the results of combining writes.

Rules of this module: an engine knows bytes, encoding numbers, ten-byte versionstamps and absolute deadlines in
milliseconds, and nothing of models, key parts or values. Named tuples, because they are the cheapest immutable
values to create (0.25 us against 0.6 us for a frozen dataclass) and one is made for every row. The result of a sum, a
min, a max or another function is the same for an engine and for a transaction.
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
"""What a ``Row`` holds, or the number of the version in the place of its versionstamp; ``row_of`` makes a row of it."""


class Entry(NamedTuple):
    """What a key holds, for people: ``value`` and ``versionstamp`` are None when the key is absent.

    ``versionstamp`` is 20 lowercase hexadecimal digits; ``expires_at`` is milliseconds since the epoch, or None.
    """

    key: Annotated[tuple[Any, ...], StoredAsJson]
    value: Annotated[Any, StoredAsJson]
    versionstamp: str | None
    expires_at: int | None = None


class ReadRange(NamedTuple):
    """Rows with ``start <= key < end``, at most ``limit``, descending with ``reverse``; no ``end``: one key.

    With ``keys_only`` nobody looks at the values of the rows, so an engine may leave them empty.
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
    """Store ``value`` under ``key``; ``expire_at`` None means for ever, whatever was there before.

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

    ``sum`` wraps at 2**64. The deadline of the row is cleared, as in Deno. A row that is not such an integer makes
    the engine raise InvalidValueError, and then nothing of the operation is applied.
    """

    kind: Literal["sum", "min", "max"]
    key: bytes
    operand: int


class Apply(NamedTuple):
    """Store what a pure function makes of the stored row, without its deadline.

    ``function`` is given (stored bytes, encoding), or None when the key is absent, and returns the same pair. It may
    be called again when the commit is tried again. What it raises, the commit raises, and then nothing of the
    operation is applied. ``size`` is what the operand counts for in the limits, in bytes.
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
    """Remove ``key`` and what follows from its row, which is read inside the transaction that removes it.

    What an engine with a method ``remove`` applies. The outcome is that of an ``AtomicWrite`` with this check alone, or
    a Conflict without a position, and nothing applied: there is no row, it has a deadline, or ``entries`` returns None.

    ``entries`` is given the key, the stored bytes and their encoding, and returns the other keys. It is called while
    every other writer waits, perhaps in a thread of one of them, and perhaps again after a failure: it is pure, short,
    raises nothing, and runs no code of the program.
    """

    check: Check
    key: bytes
    entries: Callable[[bytes, bytes, int], Sequence[bytes] | None]


class Committed(NamedTuple):
    """The operation was applied; every row it wrote carries this versionstamp."""

    versionstamp: bytes


class Conflict(NamedTuple):
    """Nothing was applied: the positions in ``AtomicWrite.checks`` that failed; none for a ``Removal`` of no row."""

    failed_checks: tuple[int, ...]


class GuardFailed(NamedTuple):
    """The guard of a read did not hold: nothing was read; the versionstamp that the guarded key has."""

    versionstamp: bytes | None


class ReadResult(NamedTuple):
    """Rows per range in request order, the rows per followed range, and the versionstamp of the one snapshot."""

    ranges: list[list[Row]]
    followed: list[list[Row]]
    versionstamp: bytes


class Counted(NamedTuple):
    """How many live rows each range holds, at most its limit, and the versionstamp of the one snapshot."""

    numbers: list[int]
    versionstamp: bytes


class Change(NamedTuple):
    """The last change of a key: the commit that made it, and what the key holds now (None: absent)."""

    key: bytes
    versionstamp: bytes
    row: Row | None


class Changes(NamedTuple):
    """Changes in commit order, one snapshot, and the versionstamp up to which none is missing."""

    changes: list[Change]
    through: bytes


Follow = Callable[[list[list[Row]]], Sequence[ReadRange]]
"""A pure function from the rows of the first ranges to further ranges, which are read in the same snapshot.

``Tail``, ``TailsOfRanges`` and ``Likely`` are such functions that say what they do. An engine behind a network answers
them in one round trip; any other function costs it a second one, in a snapshot.
"""


@dataclass(frozen=True, slots=True)
class Tail:
    """A ``Follow`` that an engine may carry out itself: the rows of one range end in the keys of others.

    Called, it is that function, and an engine that calls it gives the right answer. One that knows it may read a row
    and the one behind it in one step. Of the rows of the range it may give plain tuples that begin with the key: nobody
    looks at the rest. If there is a row behind each of several, it may give these as one list, in their order, instead
    of a list for each, and as plain tuples, of which ``row_of`` makes rows: fewer objects are less work for the garbage
    collector.

    Attributes:
        prefix: what the keys of the rows to follow begin with.
        start: where their end begins in the keys of the range.
    """

    prefix: bytes
    start: int

    def __call__(self, ranges: Sequence[list[Row]]) -> list[ReadRange]:
        """The one key behind each row of the first range."""
        prefix, start = self.prefix, self.start
        return [ReadRange(prefix + row[0][start:]) for row in ranges[0]]


@dataclass(frozen=True, slots=True)
class TailsOfRanges:
    """A ``Follow`` that an engine may carry out itself: the rows of several ranges end in the keys of others.

    Called, it is that function. An engine behind a network so reads entries and records in one round trip. It gives a
    list for each record that is asked for, in order, as it does for the function.

    Attributes:
        prefix: what the keys of the rows to follow begin with.
        starts: for each range where their end begins in its keys.
        most: how many rows are followed, in the order of the ranges.
    """

    prefix: bytes
    starts: tuple[int, ...]
    most: int

    def __call__(self, ranges: Sequence[list[Row]]) -> list[ReadRange]:
        """The one key behind each of the first rows."""
        prefix = self.prefix
        behind = (
            ReadRange(prefix + row[0][start:]) for start, rows in zip(self.starts, ranges, strict=True) for row in rows
        )
        return list(islice(behind, self.most))


class Nothing:
    """A ``Follow`` that asks for nothing, of a reader who takes plain tuples, of which ``row_of`` makes rows.

    An engine that knows it may give such tuples for rows that it makes; one that calls it gives rows, as ever.
    """

    def __call__(self, _: Sequence[list[Row]], /) -> list[ReadRange]:
        """No range."""
        return []


PLAIN_ROWS: Final = Nothing()
"""The one object that is needed of it."""


Guess: TypeAlias = tuple[bytes, int, bytes]
"""A key is probably this prefix, the value of a row from this position on, and this suffix."""

_NO_OTHERS: Final[Mapping[int, Guess]] = MappingProxyType({})


@dataclass(slots=True)
class Likely:
    """A ``Follow`` that says beforehand for which key it will ask, if the row that is read is like those before it.

    Called, it is the function. An engine may give the likely row instead of what the function asks for, if there is
    such a row and the range is one key: whoever asks can tell a wrong one, and asks again with the function alone.

    Attributes:
        follow: the function; it may change the guess, which is no part of the answer.
        guess: how that key is made of the value of the row.
        others: the same for values of these lengths. It is replaced and not changed, and before ``guess``, which then
            is another object: who remembers what was made of a guess need not ask for more.
        misses: how often the function was called since an engine has last found a row where it was guessed, if the
            engine says so by setting it to 0.
        asked: what an engine asks for such a row, with the guess and the guard that it was made of; it is the engine's.
    """

    follow: Follow
    guess: Guess
    misses: int = 0
    asked: tuple[Guess, Guard, str] | None = None
    others: Mapping[int, Guess] = _NO_OTHERS

    def __call__(self, ranges: list[list[Row]]) -> Sequence[ReadRange]:
        """What the function asks for."""
        return self.follow(ranges)

    def key_behind(self, value: bytes) -> bytes:
        """The key that is guessed behind a row with this value."""
        prefix, start, suffix = self.others.get(len(value), self.guess)
        return prefix + value[start:] + suffix


class CommitResult(NamedTuple):
    """What ``commit`` says: true when applied; ``failed_checks`` holds the keys whose check failed."""

    ok: bool
    versionstamp: str | None
    failed_checks: Annotated[tuple[tuple[Any, ...], ...], StoredAsJson] = ()

    def __bool__(self) -> bool:
        return self.ok


def point(key: bytes) -> ReadRange:
    """The range that holds one key."""
    return ReadRange(key)


def to_versionstamp(version: int) -> bytes:
    """Eight bytes big endian and two zero bytes, as Deno's own store lays a versionstamp out."""
    return version.to_bytes(8, "big") + b"\0\0"


def row_of(plain: PlainRow) -> Row:
    """The row that a plain tuple stands for."""
    key, value, encoding, version, expire_at = plain
    # Made as its own constructor does, without the call of it.
    stamp = to_versionstamp(version) if isinstance(version, int) else version
    return _new(Row, (key, value, encoding, stamp, expire_at))


def after_prefix(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with the packed parts ``prefix``."""
    return prefix + ABOVE_EVERY_TAG


def vacant_range(prefix: bytes) -> ReadRange:
    """What a check with ``VACANT`` reads: the first key that begins with the packed parts ``prefix`` and has more."""
    return ReadRange(prefix + b"\0", after_prefix(prefix), 1, keys_only=True)


def format_versionstamp(versionstamp: bytes) -> str:
    """Ten bytes as 20 lowercase hexadecimal digits."""
    return versionstamp.hex()


def parse_versionstamp(text: str) -> bytes:
    """The reverse of ``format_versionstamp``.

    Raises:
        ValueError: the text is not 20 hexadecimal digits.
    """
    data = bytes.fromhex(text)
    if len(data) != 10 or len(text) != 20:
        raise ValueError("a versionstamp is 20 hexadecimal digits")
    return data


U64_ENCODING: Final = 2
U64_MODULUS: Final = 1 << 64


def combine(mutation: Arithmetic | Apply, stored: Row | None) -> tuple[bytes, int]:
    """The bytes, and their encoding, that a sum, min, max or another function leaves behind.

    Raises:
        InvalidValueError: the operand or the stored value is no unsigned 64-bit integer.
        KvModelsError: what the function raises.
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
            hint="Nothing was applied. Store a KvU64 under this key first, or use another key for the counter.",
        )
    return combined_operands(kind, int.from_bytes(stored.value, "little"), operand).to_bytes(8, "little")


def combined_operands(kind: str, one: int, other: int) -> int:
    """A sum, min or max of two unsigned 64-bit integers: of a stored one and an operand, or of two operands."""
    if kind == "sum":
        return (one + other) % U64_MODULUS
    return min(one, other) if kind == "min" else max(one, other)
