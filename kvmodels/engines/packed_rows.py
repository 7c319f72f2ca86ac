"""Small plain rows in the order of their keys, each as one bytes object that holds all of it.

A row is plain if it has no deadline, and small if its value is. Entries of indexes and slots of unique values are,
and a store has more of these than of records. As key, row and place in a mapping each took 200 to 300 bytes; here it
takes what it says, about 50, and 8 for its place.

Layout. An item is the key from behind what all keys of its block begin with, a zero byte, five bytes of the
versionstamp, the value, and one byte with its length and the encoding. A block begins at its fence and ends
before the next one, so that every key that belongs in it, present or not, begins with what the two fences have in
common. That is kept once, and items are written anew only where blocks are split or joined.

Order. Keys are any bytes, and items have to stand as their keys would. They do, unless of two keys in one block one is
the other, a zero byte and something more: what is packed behind the shorter one is then compared with the end of the
longer one. Keys that are made of parts are never such a pair, for behind a whole part comes a tag and inside of one an
escaped zero. Such a key is refused, and its row has to be kept elsewhere. All items that begin with a key and a
zero byte stand side by side, so it takes a look at two neighbours to tell.

Rules of this module: who changes something holds a lock, who looks for one key needs none. The blocks are one object,
which is never changed but replaced, and an item goes in or out in one step of the interpreter: an interrupt, or a
reader in another thread, finds each other row where it was, at every moment.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from kvmodels.operations import ReadRange, Row, Tail

__all__ = ["GREATEST_ENCODING", "LAST", "LONGEST_VALUE", "MOST", "PackedRows", "Piece"]

MOST: Final = 512
"""Items in a block: more make an insertion dearer, which moves half of their places; fewer, more fences."""

LONGEST_VALUE: Final = 31
"""Bytes of a value that is small, because its length has five bits."""

GREATEST_ENCODING: Final = 7

LAST: Final = (*(bytes((number,)) for number in range(256)),)
"""The last byte of an item: by the length of the value, shifted by three, and the encoding."""

_AROUND: Final = 7  # the bytes of an item beside key and value
_BEHIND: Final = 6  # and those behind the key and its zero
_ONLY_KEY: Final = 8  # an item whose last byte is less has no value
_NO_GAP: Final = (b"", b"")
_END: Final = b"\0\0"  # of every versionstamp

_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor

Block: TypeAlias = tuple[int, bytes, list[bytes]]
"""The length of what all keys begin with, these bytes, and the items."""


Blocks: TypeAlias = tuple[list[bytes], list[Block]]
"""The fence of each block, the first one empty, and the blocks."""

Piece: TypeAlias = tuple[bytes, list[bytes]]
"""What the keys of some items of one block begin with, and these items."""


class PackedRows:
    r"""Rows by key, in order, of one run of versionstamps.

    Args:
        stamp: a versionstamp; those of all rows that are packed agree with it in the first three bytes and end in two
            zeros, which holds for a million million commits from the last multiple of that on.
        most: items in a block.

    Examples:
        >>> rows = PackedRows(b"0123456789")
        >>> payload = rows.payload(b"v", 3, b"0120000\0\0\0")
        >>> rows.put(b"k", payload), rows.put(b"k1", payload), rows.put(b"k\0end", payload)
        (True, True, False)
        >>> rows.get(b"k")
        Row(key=b'k', value=b'v', encoding=3, versionstamp=b'0120000\x00\x00\x00', expire_at=None)
        >>> rows.count(b"a", b"z"), rows.remove(b"k"), rows.get(b"k")
        (2, True, None)
    """

    __slots__ = ("_few", "_gap", "_head", "_most", "_state")

    def __init__(self, stamp: bytes, most: int = MOST) -> None:
        self._head = stamp[:3]
        self._most = most
        self._few = most // 4
        # Two keys between which there is none: there the large rows of one kind are written, which are looked for here
        # each time. Set where one was not found, and forgotten before a row is put there.
        self._gap = _NO_GAP
        self._state: Blocks = [b""], [(0, b"", [])]

    def payload(self, value: bytes, encoding: int, stamp: bytes) -> bytes | None:
        """What is packed behind a key; None of a row that is not small, or of another run of versionstamps."""
        mark = self.mark_of(stamp)
        if mark is None or len(value) > LONGEST_VALUE or not 0 <= encoding <= GREATEST_ENCODING:
            return None
        return mark + value + LAST[len(value) << 3 | encoding]

    def mark_of(self, stamp: bytes) -> bytes | None:
        """What every payload of one versionstamp begins with; None of another run."""
        return b"\0" + stamp[3:8] if stamp[:3] == self._head and stamp[8:] == _END else None

    def row_of(self, key: bytes, payload: bytes) -> Row:
        """The row of a key and what is packed behind it."""
        return _new(Row, (key, payload[6:-1], payload[-1] & 7, self._head + payload[1:6] + _END, None))

    def get(self, key: bytes) -> Row | None:
        """The row of a key; O(log n). Needs no lock: beside a change it gives the row before or after it, or None."""
        low, high = self._gap
        if low < key < high:
            return None
        fences, blocks = self._state
        length, _, items = blocks[bisect_right(fences, key) - 1]
        tail = key[length:]
        try:
            item = items[bisect_left(items, tail)]
        except IndexError:
            return None
        # The first item that is not before the key: that of the key if there is one, since of a shorter key whose
        # item were between the two, this one would have been refused.
        end = len(tail)
        last = item[-1]
        if not item.startswith(tail) or len(item) - end - _AROUND != last >> 3:
            return None
        return _new(Row, (key, item[end + 6 : -1], last & 7, self._head + item[end + 1 : end + 6] + _END, None))

    def put(self, key: bytes, payload: bytes) -> bool:
        """Store a row, or replace it; O(log n) and a split in every few hundred. False: the key is refused."""
        fences, blocks = self._state
        at = bisect_right(fences, key) - 1
        length, _, items = blocks[at]
        tail = key[length:]
        place = bisect_left(items, tail)
        item = items[place] if place < len(items) else b""
        if item and item.startswith(tail):
            start, marked = _start(item), tail + b"\0"
            if start == marked:
                items[place] = tail + payload
                return True
            if start.startswith(marked) or tail.startswith(start):
                return False
        # A shorter key and a zero byte may be the beginning of this one. If that zero is its end, the item of the
        # shorter one begins with all of it, and was seen above.
        if 0 <= tail.find(0) < len(tail) - 1:
            if item and tail.startswith(_start(item)):
                return False
            if place and tail.startswith(_start(items[place - 1])):
                return False
        low, high = self._gap
        if low < key < high:
            self._gap = _NO_GAP
        items.insert(place, tail + payload)
        if len(items) > self._most:
            self._split(at)
        return True

    def remove(self, key: bytes) -> bool:
        """Remove the row of a key; whether there was one. O(log n), and now and then a block joins another."""
        low, high = self._gap
        if low < key < high:
            return False
        fences, blocks = self._state
        at = bisect_right(fences, key) - 1
        length, prefix, items = blocks[at]
        tail = key[length:]
        place = bisect_left(items, tail)
        item = items[place] if place < len(items) else b""
        if not item or not item.startswith(tail) or len(item) - len(tail) - _AROUND != item[-1] >> 3:
            low = prefix + _start(items[place - 1])[:-1] if place else fences[at]
            if item:
                self._gap = low, prefix + _start(item)[:-1]
            elif at + 1 < len(fences):
                self._gap = low, fences[at + 1]
            return False
        del items[place]
        if len(items) < self._few:
            self._join(at)
        return True

    def __len__(self) -> int:
        return sum([len(items) for _, _, items in self._state[1]])

    def count(self, start: bytes, end: bytes) -> int:
        """How many rows have keys from ``start`` to before ``end``; O(log n) and a step for each block between."""
        if start >= end:
            return 0
        fences, blocks = self._state
        first, last = bisect_right(fences, start) - 1, bisect_left(fences, end) - 1
        number = _place(blocks[last], end) - _place(blocks[first], start)
        for at in range(first, last):
            number += len(blocks[at][2])
        return number

    def pieces(self, start: bytes, end: bytes, limit: int | None = None, reverse: bool = False) -> Iterator[Piece]:
        """The items of a range, at most ``limit``, in descending order with ``reverse``, as far as blocks hold them.

        The lock is held until the last piece is there. Cost: O(log n) and O(items).
        """
        if start >= end or limit == 0:
            return
        fences, blocks = self._state
        first, last = bisect_right(fences, start) - 1, bisect_left(fences, end) - 1
        for at in range(last, first - 1, -1) if reverse else range(first, last + 1):
            block = blocks[at]
            items = block[2]
            begin = _place(block, start) if at == first else 0
            until = _place(block, end) if at == last else len(items)
            if limit is not None and until - begin >= limit:
                begin, until = (until - limit, until) if reverse else (begin, begin + limit)
            if begin < until:
                piece = items[begin:until]
                if reverse:
                    piece.reverse()
                yield block[1], piece
                if limit is not None:
                    limit -= until - begin
                    if not limit:
                        return

    def rows(self, start: bytes, end: bytes, limit: int | None = None, reverse: bool = False) -> list[Row]:
        """The rows of a range, at most ``limit``, in descending order with ``reverse``; O(log n + rows)."""
        rows: list[Row] = []
        for prefix, items in self.pieces(start, end, limit, reverse):
            rows += self._rows(prefix, items)
        return rows

    def keys(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[bytes]:
        """The keys of a range, made as they are asked for; the lock is held meanwhile."""
        for prefix, items in self.pieces(start, end, None, reverse):
            for item in items:
                yield prefix + item[: -_AROUND - (item[-1] >> 3)]

    def with_tails(self, one: ReadRange, tail: Tail) -> tuple[list[Any], list[bytes]]:
        """For each row of a range a tuple of its key, and in another list the key that ``tail`` makes of it."""
        start, end, limit, reverse, _ = one
        assert end is not None
        head, cut = tail.prefix, tail.start
        found: list[Any] = []
        ends: list[bytes] = []
        for prefix, items in self.pieces(start, end, limit, reverse):
            keys = [
                prefix + item[:-_AROUND] if item[-1] < _ONLY_KEY else prefix + item[: -_AROUND - (item[-1] >> 3)]
                for item in items
            ]
            ends += [head + key[cut:] for key in keys]
            found += zip(keys, strict=False)
        return found, ends

    def _rows(self, prefix: bytes, items: list[bytes]) -> list[Row]:
        head = self._head
        return [
            _new(Row, (prefix + item[:-_AROUND], b"", item[-1], head + item[-_BEHIND:-1] + _END, None))
            if item[-1] < _ONLY_KEY
            else self.row_of(prefix + item[: (end := -_AROUND - (item[-1] >> 3))], item[end:])
            for item in items
        ]

    def _split(self, at: int) -> None:
        """Make two blocks of one. They are made aside, and stand in its place by one assignment."""
        fences, blocks = self._state
        _, prefix, items = blocks[at]
        middle = _middle(items)
        fence = prefix + _start(items[middle])[:-1]
        end = fences[at + 1] if at + 1 < len(fences) else None
        self._state = (
            [*fences[: at + 1], fence, *fences[at + 1 :]],
            [
                *blocks[:at],
                _block(_common(fences[at], fence), prefix, items[:middle]),
                _block(_common(fence, end), prefix, items[middle:]),
                *blocks[at + 1 :],
            ],
        )

    def _join(self, at: int) -> None:
        """Make one block of this one and one beside it, if that leaves room."""
        blocks = self._state[1]
        number = len(blocks[at][2])
        for left in (at - 1, at):
            if left < 0 or left + 1 == len(blocks):
                continue
            both = len(blocks[left][2]) + len(blocks[left + 1][2])
            if (number == 0 or both <= self._most - self._few) and self._joined(left):
                return

    def _joined(self, at: int) -> bool:
        """Make one block of two, unless the fence between them keeps two keys apart of which one would be refused."""
        fences, blocks = self._state
        (_, one, items), (_, other, others) = blocks[at], blocks[at + 1]
        prefix = _common(fences[at], fences[at + 2] if at + 2 < len(fences) else None)
        if items and others and (other + others[0]).startswith(one + _start(items[-1])):
            return False
        grown, more = one[len(prefix) :], other[len(prefix) :]
        joined = [*(grown + item for item in items), *(more + item for item in others)]
        self._state = (
            [*fences[: at + 1], *fences[at + 2 :]],
            [*blocks[:at], (len(prefix), prefix, joined), *blocks[at + 2 :]],
        )
        return True


def _place(block: Block, key: bytes) -> int:
    """How many items of a block have keys before one that lies between its fences, or is the second of them."""
    length, _, items = block
    tail = key[length:]
    place = bisect_left(items, tail)
    # The item of a shorter key may stand behind a key that begins with it and a zero byte: there is one at most.
    if place < len(items) and tail.startswith(_start(items[place])):
        place += 1
    return place


def _start(item: bytes) -> bytes:
    """The key of an item, and the zero byte behind it."""
    return item[: -_BEHIND - (item[-1] >> 3)]


def _middle(items: list[bytes]) -> int:
    """Where to make two blocks of these items, so that more is common to the items of each: near the middle."""
    eighth = len(items) // 8
    one, other = items[3 * eighth], items[5 * eighth]
    length = len(_common(one, other))
    return bisect_left(items, other[: length + 1]) if eighth else len(items) // 2


def _block(prefix: bytes, before: bytes, items: list[bytes]) -> Block:
    """A block of items of which more than before is common."""
    grown = len(prefix) - len(before)
    return len(prefix), prefix, [item[grown:] for item in items] if grown else items


def _common(one: bytes, other: bytes | None) -> bytes:
    """What two fences both begin with; nothing where there is no second one."""
    if other is None:
        return b""
    for length, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return one[:length]
    return min(one, other)
