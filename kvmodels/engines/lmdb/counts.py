"""Count rows in an LMDB transaction by their keys, without looking at one of them.

Rules of this module: as ``lmdb_rows``. Keys are taken in pieces, and of a piece the last one is compared; what has
expired is found by its deadline, and few rows wait to be swept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from typing import Final

from kvmodels.core.operations import GuardFailed, ReadRange
from kvmodels.engines.contract import NotSmallError
from kvmodels.engines.lmdb import rows as lmdb_rows
from kvmodels.engines.lmdb.bulk_reads import Transaction
from kvmodels.engines.lmdb.file import Databases

_PIECE: Final = 256


def count_ranges(
    transaction: Transaction,
    databases: Databases,
    ranges: Sequence[ReadRange],
    now: int,
    *,
    most: int | None = None,
) -> list[int]:
    """The live rows of each range.

    Args:
        transaction: is the snapshot.
        databases: of its environment.
        ranges: what to count.
        now: rows with a deadline up to this time are absent.
        most: how many rows may be walked in all; None: any number.

    Raises:
        NotSmallError: there are more.
    """
    numbers: list[int] = []
    left = most
    for one in ranges:
        if one.end is None or one.limit is not None:
            if left is not None and one.end is not None and one.limit is not None and one.limit > left:
                raise NotSmallError
            found = lmdb_rows.read_ranges(transaction, databases, (one._replace(keys_only=True),), now)
            assert not isinstance(found, GuardFailed), "no guard was given"
            number = walked = len(found[0][0])
        else:
            walked = _stored(transaction, databases, one.start, one.end, left)
            number = walked - (_expired(transaction, databases, one.start, one.end, now) if walked else 0)
        numbers.append(number)
        if left is not None:
            left -= walked
            if left < 0:
                raise NotSmallError
    return numbers


def _stored(transaction: Transaction, databases: Databases, start: bytes, end: bytes, most: int | None) -> int:
    """How many keys lie in a range; a few more than ``most`` if there are more."""
    if start >= end:
        return 0
    cursor = transaction.cursor(databases.rows)
    if not cursor.set_range(start):
        return 0
    keys = cursor.iternext(True, False)
    number = 0
    while True:
        piece: list[bytes] = list(islice(keys, _PIECE))
        if len(piece) < _PIECE or piece[-1] >= end:
            return number + bisect_left(piece, end)
        number += _PIECE
        if most is not None and number > most:
            return number


def _expired(transaction: Transaction, databases: Databases, start: bytes, end: bytes, now: int) -> int:
    number = 0
    for deadline, key in transaction.cursor(databases.deadlines).iternext():
        if lmdb_rows.from_ordered(deadline) > now:
            break
        number += start <= key < end
    return number
