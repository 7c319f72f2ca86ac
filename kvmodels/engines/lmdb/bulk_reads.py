"""Rows of LMDB as plain tuples, many at once, for readers who take such: a ``SuffixFollow``, and ``PLAIN_ROWS``.

Items are fetched in pieces, and what is asked of each is asked of all by functions of C, which is half the work of a
step of Python for each.

Rules of this module: as in ``lmdb_rows``, whose answers these are; None wherever a row has a deadline or is missing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter
from typing import Final, TypeAlias

import lmdb

from kvmodels.core.operations import PlainRow, ReadRange, SuffixFollow
from kvmodels.engines.lmdb.file import Databases

Transaction: TypeAlias = "lmdb.Transaction[bytes]"  # generic for type checkers only
Item: TypeAlias = tuple[bytes, bytes]
"""A key and what is stored under it."""

HEAD: Final = 10
"""Bytes before the value, or before the deadline."""
ZEROS: Final = b"\0\0"

_FIRST_PIECE: Final = 32
_LARGEST_PIECE: Final = 256
"""Items of a piece. Each has twice as many as the one before, since up to so many are fetched behind a range."""

_stored, _has_deadline = itemgetter(1), itemgetter(9)


def items_of(transaction: Transaction, databases: Databases, one: ReadRange) -> Iterator[Item]:
    """The items from one end of a range on, in its direction; they do not stop at its other end."""
    start, end, _, reverse, _ = one
    cursor = transaction.cursor(databases.rows)
    if not reverse:
        return cursor.iternext() if cursor.set_range(start) else iter(())
    # The first key that is too large, then one back; none is too large: the last one.
    positioned = cursor.prev() if end is not None and cursor.set_range(end) else cursor.last()
    return cursor.iterprev() if positioned else iter(())


def plain_rows(transaction: Transaction, databases: Databases, one: ReadRange) -> list[PlainRow] | None:
    """The rows of a range that has an end, with their values; None if one of them has a deadline."""
    items = _items_within(transaction, databases, one)
    return None if items is None else _plain(items)


def plain_followed_rows(
    transaction: Transaction, databases: Databases, one: ReadRange, suffix: SuffixFollow
) -> tuple[list[Item], list[PlainRow]] | None:
    """The entries of a range that has an end, and the row behind each; None if one is missing or has a deadline."""
    entries = _items_within(transaction, databases, one)
    if entries is None:
        return None
    prefix, start = suffix.prefix, suffix.start
    keys = [prefix + key[start:] for key, _ in entries]
    if b"" in keys:  # which LMDB refuses to look up
        return None
    items = transaction.cursor(databases.rows).getmulti(keys)
    return None if len(items) != len(keys) or _any_deadline(items) else (entries, _plain(items))


def _items_within(transaction: Transaction, databases: Databases, one: ReadRange) -> list[Item] | None:
    """The items of a range that has an end, up to its limit; None as soon as one is seen that has a deadline."""
    start, end, limit, reverse, _ = one
    found: list[Item] = []
    if end is None:
        return None
    if start >= end:
        return found
    items, size = items_of(transaction, databases, one), _FIRST_PIECE
    while limit is None or len(found) < limit:
        piece = list(islice(items, size if limit is None else min(size, limit - len(found))))
        if not piece:
            break
        if _any_deadline(piece):
            return None
        last = piece[-1][0]
        if last < start if reverse else last >= end:
            piece.sort()  # which they are, or backwards
            within = piece[bisect_left(piece, (start,)) : bisect_left(piece, (end,))]
            found += reversed(within) if reverse else within
            break
        found += piece
        size = min(2 * size, _LARGEST_PIECE)
    return found


def _any_deadline(items: Iterable[Item]) -> bool:
    return any(map(_has_deadline, map(_stored, items)))


def _plain(items: Iterable[Item]) -> list[PlainRow]:
    return [(key, data[HEAD:], data[8], data[:8] + ZEROS, None) for key, data in items]
