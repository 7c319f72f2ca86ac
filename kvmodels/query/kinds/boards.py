"""Places in the order of the entries of a group, as one kind of index counts them: ranges of counters and of entries.

The entries of a group are divided into buckets, which are ranges of keys, numbered in the order of keys. A *level* has
a counter for every 16 counters of the next level; the counters of the last one are those of the buckets. So the entries
before a key are those of all buckets before its own, which one range of counters of each level adds up, and some of the
entries of its bucket.

Rules of this module: pure. A key is given by its *bound*: the packed parts after those of the group, perhaps without
the primary key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from kvmodels.catalog.keyspace import IndexLayout, bucket_key
from kvmodels.core.keys import decode_key, skip_parts
from kvmodels.core.operations import ReadRange, point
from kvmodels.errors import InvalidKeyError
from kvmodels.schema.definition.definition import Column, IndexDefinition

BITS: Final = 4
SIBLINGS: Final = 1 << BITS
"""The number of counters of a level that one counter of the level above adds up."""


class KindBoard(ABC):
    """The buckets of one index; an object of the access of its kind."""

    levels: int
    """The number of levels of counters."""

    column: Column
    """The column that entries of a group are sorted by."""

    def __init__(self, definition: IndexDefinition) -> None:
        self.definition = definition

    @abstractmethod
    def bucket(self, value: Any) -> int:
        """Return the bucket of a value of the column."""

    @abstractmethod
    def start(self, bucket: int) -> bytes:
        """Return the bound that no entry of a bucket lies before, and all those of earlier buckets do."""


class CountedRange(NamedTuple):
    """The counters of one level from ``first`` to below ``after``, which have one parent."""

    level: int
    first: int
    after: int


class BoardKeys:
    """The keys of one group of an index: of its entries, and of its counters.

    Args:
        layout: the layout of the index.
        board: its buckets.
        group: the packed columns of the group.
    """

    def __init__(self, layout: IndexLayout, board: KindBoard, group: bytes) -> None:
        self.board = board
        self.count: int = SIBLINGS**board.levels
        self.head = layout.prefix + group
        self._counters = layout.counters + group

    def siblings(self, level: int, digits: int) -> ReadRange:
        """Return the range of a counter and of those with the same parent."""
        first = digits & -SIBLINGS
        return self.counters(CountedRange(level, first, first + SIBLINGS))

    def counters(self, wanted: CountedRange) -> ReadRange:
        """Return a range of counters."""
        level, first, after = wanted
        return ReadRange(
            bucket_key(self._counters, level, first), bucket_key(self._counters, level, after), after - first
        )

    def each(self, wanted: CountedRange) -> Iterator[ReadRange]:
        """Yield the key of each counter of a range."""
        level, first, after = wanted
        return (point(bucket_key(self._counters, level, digits)) for digits in range(first, after))

    def digits(self, row_key: bytes) -> int:
        """Return the digits in the key of a counter; raises InvalidKeyError for a foreign row."""
        _, digits = decode_key(row_key[len(self._counters) :])
        if type(digits) is not int:
            raise InvalidKeyError("a counter of a bucket has no digits", key=(digits,))
        return digits

    def before(self, bucket: int) -> Iterator[CountedRange]:
        """Yield the counters that add up all buckets before a bucket; at most one range for each level."""
        if bucket == self.count:
            yield CountedRange(1, 0, SIBLINGS)
            return
        for level in range(1, self.board.levels + 1):
            digits = bucket >> BITS * (self.board.levels - level)
            first = digits & -SIBLINGS
            if first < digits:
                yield CountedRange(level, first, digits)

    def one(self, bucket: int) -> CountedRange:
        """Return the counter of a bucket."""
        return CountedRange(self.board.levels, bucket, bucket + 1)

    def entries(self, start: bytes, end: bytes) -> ReadRange:
        """Return the range of entries between two bounds."""
        return ReadRange(self.head + start, self.head + end)

    def bucket_at(self, bound: bytes) -> int:
        """Return the bucket that a bound lies in; ``bound`` is ``b""``, ff, or a packed value, perhaps with more."""
        if bound == b"":
            return 0
        if bound == _END:
            return self.count
        value = self.board.column.codec.unpack(_first_part(bound))
        if value is None:  # no entry has it; it sorts first, and last in a descending column
            return self.count - 1 if self.board.column.descending else 0
        return self.board.bucket(value)


_END: Final = b"\xff"


def _first_part(bound: bytes) -> Any:
    try:
        (part,) = decode_key(bound[: skip_parts(bound, 1)])
    except InvalidKeyError:  # ff after a part of bytes would continue it
        (part,) = decode_key(bound[:-1])
    return part


def child_at(numbers: Iterable[tuple[int, int]], position: int) -> tuple[int, int] | None:
    """Return the digits of the counter that a position lies in, and the position in it; None if it lies behind all.

    ``numbers``: digits and number of each counter, in their order.

    Examples:
        >>> child_at([(3, 2), (5, 4)], 3)
        (5, 1)
    """
    for digits, number in numbers:
        if position < number:
            return digits, position
        position -= max(number, 0)
    return None
