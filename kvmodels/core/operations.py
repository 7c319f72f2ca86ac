"""The frozen values that pass between the layers and an engine, and the results of combining writes.

Rules of this module: an engine handles bytes, encoding numbers, ten-byte versionstamps and absolute deadlines in
milliseconds; it knows nothing about models, key parts or values. These are named tuples because one is made for every
row, and they are the cheapest immutable values to create (0.25 us against 0.6 us for a frozen dataclass). An engine and
a transaction compute the same result for a sum, a min, a max or another function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.keys import ABOVE_EVERY_TAG, key_parts, prefix_range
from kvmodels.core.truth import without_truth
from kvmodels.core.values import StoredAsJson
from kvmodels.errors import InvalidValueError

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor

VACANT: Final = b""
"""The versionstamp of a ``Check`` that no row has a key that extends the packed parts in ``Check.key``.

Expired rows do not count, and neither does the row whose key equals the prefix. No stored row has this versionstamp,
and it is not None. An engine that compares single keys therefore first sees such a check fail, and then decides it with
``evaluation.confirmed_failures``.
"""


class Row(NamedTuple):
    """A stored row: packed key, stored bytes, the number of their encoding, versionstamp, deadline in ms or None."""

    key: bytes
    value: bytes
    encoding: int
    versionstamp: bytes
    expire_at: int | None


PlainRow: TypeAlias = tuple[bytes, bytes, int, bytes | int, int | None]
"""A ``Row`` as a plain tuple; its versionstamp may be a version number. ``row_of`` converts it to a ``Row``."""


@without_truth("entry.value is not None, or entry.versionstamp is not None")
class Entry(NamedTuple):
    """The value of a key in the key-value API: ``value`` and ``versionstamp`` are None when the key is absent.

    ``versionstamp`` is 20 lowercase hexadecimal digits; ``expires_at`` is milliseconds since the epoch, or None.
    """

    key: Annotated[tuple[Any, ...], StoredAsJson]
    value: Annotated[Any, StoredAsJson]
    versionstamp: str | None
    expires_at: int | None = None


class ReadRange(NamedTuple):
    """Rows with ``start <= key < end``, at most ``limit``, descending with ``reverse``; without ``end``, a single key.

    With ``keys_only``, an engine may leave the values of the rows empty.
    """

    start: bytes
    end: bytes | None = None
    limit: int | None = None
    reverse: bool = False
    keys_only: bool = False


class ReadLastRow(ReadRange):
    """Read the last row of a range, with ``limit`` 1 and ``reverse``.

    In a transaction the answer also has all of its own rows in the range, in descending order; a last row of the store
    that the transaction has removed is not replaced by the row before it.
    """

    __slots__ = ()


class Guard(NamedTuple):
    """A key that must have this versionstamp (None: must be absent) in the snapshot of a read."""

    key: bytes
    versionstamp: bytes | None


class Check(NamedTuple):
    """A key that must have this versionstamp (None: must be absent) for a commit to be applied; or ``VACANT``.

    With ``physical``, the stored row is compared, expired or not, as the write compiler reads it. Otherwise an expired
    row counts as absent.
    """

    key: bytes
    versionstamp: bytes | None
    physical: bool = False


class Set(NamedTuple):
    """Store ``value`` under ``key``. ``expire_at`` None removes any deadline that the key had.

    With ``versionstamped``, the key of the row is ``key`` followed by the versionstamp of the commit as text.
    """

    key: bytes
    value: bytes
    encoding: int
    expire_at: int | None = None
    versionstamped: bool = False


class Delete(NamedTuple):
    """Remove ``key``; no effect if it is absent."""

    key: bytes


class Arithmetic(NamedTuple):
    """Combine a stored unsigned 64-bit integer (little endian, encoding 2) with ``operand``; if absent, store it.

    ``sum`` wraps at 2**64. If the stored row is not such an integer, the engine raises InvalidValueError and applies no
    part of the operation.

    ``expire_at`` becomes the deadline of the row; None removes it, as in Deno. With ``keeps_deadline``, a live row
    keeps its deadline, or has none as before, and ``expire_at`` is the deadline of a row that was absent.
    """

    kind: Literal["sum", "min", "max"]
    key: bytes
    operand: int
    expire_at: int | None = None
    keeps_deadline: bool = False


class IntegerSum(NamedTuple):
    """An addition to a stored int in the encoding 4 (msgpack), for engines that compute it where the row is.

    An engine may compute it only from such a row and to a result within the bounds; without a row it stores
    ``operand_bytes`` with the encoding 4. In all other cases the function of the ``Apply`` decides.

    Attributes:
        operand: is added; of at most 62 bits.
        minimum: the smallest result, of 64 bits.
        maximum: the largest result, of 64 bits.
        clamp: whether a result outside of the bounds becomes the nearer one.
        operand_bytes: the operand as it is stored.
    """

    operand: int
    minimum: int
    maximum: int
    clamp: bool
    operand_bytes: bytes


class Apply(NamedTuple):
    """Store the result of a pure function of the stored row.

    ``function`` takes (stored bytes, encoding), or None if the key is absent, and returns such a pair. A retried commit
    may call it again. Its exceptions are raised by the commit, and then no part of the operation is applied. ``size``
    is the size of the operand in bytes; it counts towards the limits. The deadline is that of ``Arithmetic``.
    ``addition`` is that of a function that adds an int; an engine may ignore it.
    """

    key: bytes
    function: Callable[[tuple[bytes, int] | None], tuple[bytes, int]]
    size: int
    expire_at: int | None = None
    keeps_deadline: bool = False
    addition: IntegerSum | None = None


Mutation = Set | Delete | Arithmetic | Apply


class AtomicWrite(NamedTuple):
    """Checks against the state before the operation, then mutations in order; applied completely or not at all."""

    checks: tuple[Check, ...] = ()
    mutations: tuple[Mutation, ...] = ()


class Removal(NamedTuple):
    """Remove ``key`` and the keys derived from its row, which is read inside the transaction that removes it.

    For engines with a method ``remove``. The outcome is that of an ``AtomicWrite`` with only this check. In three cases
    it is a Conflict without a position, and nothing is applied: there is no row, it has a deadline, or ``entries``
    returns None.

    ``entries`` takes the key, the stored bytes and their encoding, and returns the other keys. It is called while all
    other writers wait, possibly in the thread of another writer, and possibly again after a failure. So it must be pure
    and short, raise nothing, and run no code of the program.
    """

    check: Check
    key: bytes
    entries: Callable[[bytes, bytes, int], Sequence[bytes] | None]


class Committed(NamedTuple):
    """The operation was applied; every row it wrote carries this versionstamp."""

    versionstamp: bytes


class Conflict(NamedTuple):
    """Nothing was applied; the failed positions in ``AtomicWrite.checks``, none if a ``Removal`` found no row."""

    failed_checks: tuple[int, ...]


class GuardFailed(NamedTuple):
    """The guard of a read failed and nothing was read; holds the versionstamp of the guarded key."""

    versionstamp: bytes | None


class ReadResult(NamedTuple):
    """The rows of each range in request order, the rows of each followed range, and the snapshot's versionstamp."""

    ranges: list[list[Row]]
    followed: list[list[Row]]
    versionstamp: bytes


class Counted(NamedTuple):
    """The number of live rows in each range, at most its limit, and the versionstamp of the snapshot."""

    numbers: list[int]
    versionstamp: bytes


class Change(NamedTuple):
    """The last change of a key: the versionstamp of its commit, and the current row of the key (None: absent)."""

    key: bytes
    versionstamp: bytes
    row: Row | None


class Changes(NamedTuple):
    """Changes in commit order, from one snapshot, and the versionstamp up to which they are complete."""

    changes: list[Change]
    through: bytes


Follow = Callable[[list[list[Row]]], Sequence[ReadRange]]
"""A pure function from the rows of the first ranges to further ranges, which are read in the same snapshot.

``SuffixFollow``, ``MultiRangeFollow`` and ``PredictedFollow`` are such functions that declare their results. The engine
of a server answers them in one round trip; any other function costs a second one.
"""


@dataclass(frozen=True, slots=True)
class SuffixFollow:
    """A ``Follow`` that an engine may execute itself: the end of each key of one range is the end of another key.

    Calling it gives the further ranges, so an engine without special support answers correctly. An engine that
    recognises it may read a row and its following row in one step. It may then return the rows of the range as plain
    tuples that begin with the key; the reader ignores the rest. If every row has a following row, the engine may return
    all of them as one list of plain tuples, in order, instead of one list for each: fewer objects cost the garbage
    collector less. ``row_of`` converts them to rows.

    Attributes:
        prefix: the common prefix of the keys of the following rows.
        start: the position in the keys of the range where the rest of the other key begins.
    """

    prefix: bytes
    start: int

    def __call__(self, ranges: Sequence[list[Row]]) -> list[ReadRange]:
        """Return the key of the row to follow for each row of the first range."""
        prefix, start = self.prefix, self.start
        return [ReadRange(prefix + row[0][start:]) for row in ranges[0]]


@dataclass(frozen=True, slots=True)
class MultiRangeFollow:
    """A ``Follow`` that an engine may execute itself: the ends of the keys of several ranges are ends of other keys.

    Calling it gives the further ranges. An engine that recognises it may read entries and records in one round trip;
    it may then return the rows of the ranges as plain tuples that begin with the key. The answer has one list for each
    requested record, in order, as for the function.

    Attributes:
        prefix: the common prefix of the keys of the following rows.
        starts: for each range, the position in its keys where the rest of the other key begins.
        most: the maximum number of rows to follow, in the order of the ranges.
    """

    prefix: bytes
    starts: tuple[int, ...]
    most: int

    def __call__(self, ranges: Sequence[list[Row]]) -> list[ReadRange]:
        """Return the key of the row to follow for each of the first rows."""
        prefix = self.prefix
        keys = (prefix + row[0][start:] for start, rows in zip(self.starts, ranges, strict=True) for row in rows)
        return [ReadRange(key) for key in islice(keys, self.most)]


def as_plain_rows(_: Sequence[list[Row]], /) -> list[ReadRange]:
    """Return no ranges: the ``Follow`` of a reader that accepts plain tuples, which ``row_of`` converts to rows.

    An engine that recognises it may return plain tuples for rows that it makes; any other engine returns rows.
    """
    return []


Guess: TypeAlias = tuple[bytes, int, bytes]
"""A predicted key: this prefix, the value of the row from this position on, and this suffix."""

_NO_OTHERS: Final[Mapping[int, Guess]] = MappingProxyType({})


@dataclass(slots=True)
class PredictedFollow:
    """A ``Follow`` whose key can be predicted if the row is like earlier rows.

    Calling it calls the function. If the range is one key and a row has the predicted key, an engine may return that
    row instead of the result of the function. The reader detects a wrong prediction, and reads again with only the
    function.

    Attributes:
        follow: the function; it may change the guess, which does not affect its result.
        guess: how to make the key from the value of the row.
        others: guesses for values of other lengths. Writers replace this mapping before ``guess``, which is then a new
            object; so comparing ``guess`` alone detects a change.
        misses: the number of calls of the function since an engine last found a predicted row, if the engine resets it.
        asked: the engine's statement for such a row, with its guess and guard; set by the engine.
    """

    follow: Follow
    guess: Guess
    misses: int = 0
    asked: tuple[Guess, Guard, str] | None = None
    others: Mapping[int, Guess] = _NO_OTHERS

    def __call__(self, ranges: list[list[Row]]) -> Sequence[ReadRange]:
        """Return the ranges that the function returns."""
        return self.follow(ranges)

    def predicted_key(self, value: bytes) -> bytes:
        """Return the predicted key for a row with this value."""
        prefix, start, suffix = self.others.get(len(value), self.guess)
        return prefix + value[start:] + suffix


class CommitResult(NamedTuple):
    """The result of ``commit``: true if applied; ``failed_checks`` holds the keys of the failed checks."""

    ok: bool
    versionstamp: str | None
    failed_checks: Annotated[tuple[tuple[Any, ...], ...], StoredAsJson] = ()

    def __bool__(self) -> bool:
        return self.ok


def point(key: bytes) -> ReadRange:
    """Return the range that contains only this key."""
    return ReadRange(key)


def to_versionstamp(version: int) -> bytes:
    """Return eight big-endian bytes and two zero bytes, the layout of versionstamps in Deno's own store."""
    return version.to_bytes(8, "big") + b"\0\0"


def row_of(plain: PlainRow) -> Row:
    """Return a plain tuple as a ``Row``."""
    key, value, encoding, version, expire_at = plain
    # Does what the constructor of Row does, without the cost of calling it.
    stamp = to_versionstamp(version) if isinstance(version, int) else version
    return _new(Row, (key, value, encoding, stamp, expire_at))


def after_prefix(prefix: bytes) -> bytes:
    """Return the end of the range of all keys that begin with the packed parts ``prefix``."""
    return prefix + ABOVE_EVERY_TAG


def vacant_range(prefix: bytes) -> ReadRange:
    """Return the range that a ``VACANT`` check reads: the first key that extends ``prefix``."""
    return ReadRange(*prefix_range(prefix), 1, keys_only=True)


def format_versionstamp(versionstamp: bytes) -> str:
    """Return ten bytes as 20 lowercase hexadecimal digits."""
    return versionstamp.hex()


def parse_versionstamp(text: object) -> bytes:
    """Return the bytes of 20 hexadecimal digits. Raises ValueError for any other text, TypeError for other types."""
    if not isinstance(text, str):  # from Python 3.14 on, fromhex() takes bytes as well
        raise TypeError("a versionstamp must be a str")
    data = bytes.fromhex(text)
    if len(data) != 10 or len(text) != 20:
        raise ValueError("a versionstamp must be 20 hexadecimal digits")
    return data


U64_ENCODING: Final = 2
U64_MODULUS: Final = 1 << 64


def combine(mutation: Arithmetic | Apply, stored: Row | None) -> tuple[bytes, int]:
    """Return the result of a sum, min, max or other function as bytes, and their encoding."""
    if isinstance(mutation, Apply):
        return mutation.function(None if stored is None else (stored.value, stored.encoding))
    return _combine_integers(mutation, stored), U64_ENCODING


def deadline_after(mutation: Arithmetic | Apply, stored: Row | None) -> int | None:
    """Return the deadline of the row that a sum, min, max or other function leaves; ``stored`` None: no live row."""
    return stored.expire_at if mutation.keeps_deadline and stored is not None else mutation.expire_at


def merged(first: Arithmetic, second: Arithmetic) -> Arithmetic:
    """Return one mutation that does the same as two of one kind and key in turn, if the first leaves a live row.

    Examples:
        >>> merged(Arithmetic("sum", b"k", 2, 60), Arithmetic("sum", b"k", 3, 99, keeps_deadline=True))
        Arithmetic(kind='sum', key=b'k', operand=5, expire_at=60, keeps_deadline=False)
    """
    decides = first if second.keeps_deadline else second
    return decides._replace(operand=combined_operands(first.kind, first.operand, second.operand))


def _combine_integers(mutation: Arithmetic, stored: Row | None) -> bytes:
    kind, key, operand = mutation[:3]
    if not 0 <= operand < U64_MODULUS:
        raise InvalidValueError(
            "the operand of a sum, min or max is not an unsigned 64-bit integer",
            path=kind,
            hint="Pass an integer from 0 to 2**64 - 1.",
        )
    if stored is None:
        return operand.to_bytes(8, "little")
    if stored.encoding != U64_ENCODING or len(stored.value) != 8:
        raise not_a_number(key)
    return combined_operands(kind, int.from_bytes(stored.value, "little"), operand).to_bytes(8, "little")


def not_a_number(key: bytes | None) -> InvalidValueError:
    """Return the error for a sum, min or max on another value; ``key`` None: that of one of several mutations."""
    return InvalidValueError(
        "the stored value of a sum, min or max is not an unsigned 64-bit integer",
        key=None if key is None else key_parts(key),
        hint="Nothing was applied. Store a KvU64 under this key first, or use another key for the counter.",
    )


def combined_operands(kind: str, one: int, other: int) -> int:
    """Return the sum, min or max of two unsigned 64-bit integers: a stored value and an operand, or two operands."""
    if kind == "sum":
        return (one + other) % U64_MODULUS
    return min(one, other) if kind == "min" else max(one, other)
