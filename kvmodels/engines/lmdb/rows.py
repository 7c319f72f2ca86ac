"""Rows in an LMDB transaction: how one is laid out, reads and counts of one snapshot, and the writes of one commit.

    rows        key                 versionstamp without its zeros (8), encoding (1), whether a deadline follows (1),
                                    the deadline (8), the value
    deadlines   deadline (8)        the keys that have it
    log         key                 its last commit (8) and when that was (8)
    commits     commit, time (16)   the keys whose last change it was

Items are fetched in pieces, and each piece is tested by functions of C, which is half the work of a step of Python for
each item. A row count compares only the last key of a piece, and subtracts expired rows, which it finds by deadline.

Rules of this module: every function takes a transaction and neither begins nor ends one. Numbers are big endian and
signed ones have their sign bit turned over, so that they are in order as bytes.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, Final, TypeAlias, cast

import lmdb

from kvmodels.core.operations import (
    Change,
    Check,
    Follow,
    Guard,
    GuardFailed,
    PlainRow,
    ReadRange,
    Row,
    SuffixFollow,
    as_plain_rows,
    to_versionstamp,
)
from kvmodels.engines.contract import NotSmallError
from kvmodels.engines.lmdb.file import LARGEST_KEY, Databases, State
from kvmodels.errors import KeyTooLargeError

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


SIGN: Final = 1 << 63

_row: Final[Callable[[type[Row], tuple[Any, ...]], Row]] = cast("Any", tuple).__new__
"""A named tuple without the call of its own constructor in Python, for each row that is read."""

MANY: Final = 64
"""From so many rows on, putting them into the order of the tree costs less than it saves."""

_NUMBER = struct.Struct(">Q")
_TWO_NUMBERS = struct.Struct(">QQ")


def ordered(number: int) -> bytes:
    """A signed 64-bit integer as eight bytes that are in its order."""
    return _NUMBER.pack(number + SIGN)


def from_ordered(data: bytes, at: int = 0) -> int:
    """The reverse of ``ordered``."""
    number: int = _NUMBER.unpack_from(data, at)[0]
    return number - SIGN


def packed(row: Row) -> bytes:
    """Return the stored bytes of a row."""
    _, value, encoding, versionstamp, expire_at = row
    if expire_at is None:
        return b"".join((versionstamp[:8], bytes((encoding, 0)), value))
    return b"".join((versionstamp[:8], bytes((encoding, 1)), ordered(expire_at), value))


def unpacked(key: bytes, data: bytes) -> Row:
    """The reverse of ``packed``."""
    if data[9]:
        return Row(key, data[HEAD + 8 :], data[8], data[:8] + ZEROS, from_ordered(data, HEAD))
    return _row(Row, (key, data[HEAD:], data[8], data[:8] + ZEROS, None))


def stored_row(transaction: Transaction, databases: Databases, key: bytes) -> Row | None:
    """The row that is stored under a key, expired or not."""
    data = transaction.get(key, None, databases.rows) if key else None
    return None if data is None else unpacked(key, data)


def read_point(transaction: Transaction, databases: Databases, one: ReadRange, now: int) -> list[Row]:
    """The row of one key, if there is one at ``now``."""
    if one.limit == 0:
        return []
    row = stored_row(transaction, databases, one.start)
    return [] if row is None or (row.expire_at is not None and row.expire_at <= now) else [row]


def read_ranges(
    transaction: Transaction,
    databases: Databases,
    ranges: Sequence[ReadRange],
    now: int,
    *,
    guard: Guard | None = None,
    follow: Follow | None = None,
) -> GuardFailed | tuple[list[list[Row]], list[list[Row]]]:
    """Rows per range and per followed range."""
    if guard is not None:
        rows = read_point(transaction, databases, ReadRange(guard.key), now)
        actual = rows[0].versionstamp if rows else None
        if actual != guard.versionstamp:
            return GuardFailed(actual)
    if follow is as_plain_rows:
        return [_scan_plain(transaction, databases, one, now) for one in ranges], []
    if isinstance(follow, SuffixFollow) and len(ranges) == 1:
        plain = plain_followed_rows(transaction, databases, ranges[0], follow)
        if plain is not None and len(plain[1]) > 1:
            entries: list[Any] = plain[0]
            behind: list[Any] = plain[1]
            return [entries], [behind]
    found = [scan(transaction, databases, one, now) for one in ranges]
    followed = [] if follow is None else [scan(transaction, databases, one, now) for one in follow(found)]
    return found, followed


def _scan_plain(transaction: Transaction, databases: Databases, one: ReadRange, now: int) -> list[Any]:
    """The rows of a range, as tuples where that is less work."""
    items = None if one.keys_only else _items_within(transaction, databases, one)
    return scan(transaction, databases, one, now) if items is None else _plain(items)


def scan(transaction: Transaction, databases: Databases, one: ReadRange, now: int) -> list[Row]:
    """The live rows of a range; ``now`` in milliseconds."""
    start, end, limit, reverse, keys_only = one
    if end is None:
        return read_point(transaction, databases, one, now)
    rows: list[Row] = []
    if limit == 0 or start >= end:
        return rows
    for key, data in items_of(transaction, databases, one):
        if key < start if reverse else key >= end:
            break
        if data[9]:
            expire_at = from_ordered(data, HEAD)
            if expire_at <= now:
                continue
            rows.append(Row(key, b"" if keys_only else data[HEAD + 8 :], data[8], data[:8] + ZEROS, expire_at))
        else:
            rows.append(_row(Row, (key, b"" if keys_only else data[HEAD:], data[8], data[:8] + ZEROS, None)))
        if len(rows) == limit:
            break
    return rows


def failed_checks(transaction: Transaction, databases: Databases, checks: Iterable[Check], now: int) -> tuple[int, ...]:
    """The positions of the checks that do not hold."""
    failed: list[int] = []
    get, rows = transaction.get, databases.rows
    for position, (key, versionstamp, physical) in enumerate(checks):
        data = get(key, None, rows) if key else None
        if data is None or (data[9] and not physical and from_ordered(data, HEAD) <= now):
            if versionstamp is not None:
                failed.append(position)
        elif data[:8] + ZEROS != versionstamp:
            failed.append(position)
    return tuple(failed)


def require_storable_keys(changes: Mapping[bytes, Row | None]) -> None:
    """Refuse keys that LMDB does not take; the layers above do so earlier, by the limits of the engine."""
    for key in changes:
        if len(key) > LARGEST_KEY:
            raise KeyTooLargeError(
                "a key is too large",
                limit="max_key_bytes",
                size=len(key),
                maximum=LARGEST_KEY,
                limits="LMDB",
                key=key,
                hint="Shorten the key; a versionstamp at its end takes 22 bytes of it.",
            )


def write(transaction: Transaction, databases: Databases, state: State, changes: Mapping[bytes, Row | None]) -> int:
    """Store rows and remove keys, with what leads to them."""
    rows, deadlines = databases.rows, databases.deadlines
    removed = 0
    # What is overwritten is looked at only where it may have a deadline.
    any_deadline = transaction.cursor(deadlines).first()
    if len(changes) >= MANY and not any_deadline and not state.retention_ms:
        plain = _plain_pairs(changes)
        if plain is not None:
            transaction.cursor(rows).putmulti(plain)
            return removed
    for key, row in changes.items():
        if any_deadline:
            present = transaction.get(key, None, rows)
            if present is not None and present[9]:
                transaction.delete(present[HEAD : HEAD + 8], key, deadlines)
        if row is not None:
            transaction.put(key, packed(row), db=rows)
            if row.expire_at is not None:
                transaction.put(ordered(row.expire_at), key, db=deadlines)
                any_deadline = True
        elif transaction.delete(key, db=rows):
            removed += 1
        else:
            continue
        if state.retention_ms:
            _note(transaction, databases, state, key)
    return removed


def _plain_pairs(changes: Mapping[bytes, Row | None]) -> list[tuple[bytes, bytes]] | None:
    """The rows of one commit as they are stored, in order; None if a key is removed or a row has a deadline."""
    heads: dict[int, bytes] = {}
    pairs: list[tuple[bytes, bytes]] = []
    for row in changes.values():
        if row is None or row.expire_at is not None:
            return None
        key, value, encoding, versionstamp, _ = row
        head = heads.get(encoding)
        if head is None:
            head = heads[encoding] = b"".join((versionstamp[:8], bytes((encoding, 0))))
        pairs.append((key, head + value))
    pairs.sort()
    return pairs


def _note(transaction: Transaction, databases: Databases, state: State, key: bytes) -> None:
    """Note in the log that this commit changed the key."""
    commit = _TWO_NUMBERS.pack(state.version, state.clock + SIGN)
    before = transaction.replace(key, commit, databases.log)
    if before is not None:
        transaction.delete(before, key, databases.commits)
    transaction.put(commit, key, db=databases.commits)


def earliest_deadline(transaction: Transaction, databases: Databases) -> int | None:
    """The deadline that is reached first, or was; None when no row has one."""
    cursor = transaction.cursor(databases.deadlines)
    return from_ordered(cursor.key()) if cursor.first() else None


def expired_keys(transaction: Transaction, databases: Databases, limit: int, now: int) -> list[bytes]:
    """Up to ``limit`` keys whose deadline is reached at ``now``, the oldest deadlines first."""
    found: list[bytes] = []
    for deadline, key in transaction.cursor(databases.deadlines).iternext():
        if len(found) == limit or from_ordered(deadline) > now:
            break
        found.append(key)
    return found


def oldest_change_ms(transaction: Transaction, databases: Databases) -> int | None:
    """Return the time of the oldest change in the log."""
    cursor = transaction.cursor(databases.commits)
    return from_ordered(cursor.key(), 8) if cursor.first() else None


def changes_in(
    transaction: Transaction, databases: Databases, one: ReadRange, after: int, now: int
) -> tuple[list[Change], int | None]:
    """Changes after a commit, and the commit behind which there may be more; None when these are all."""
    start, end, limit = one.start, one.end, one.limit
    found: list[Change] = []
    last: int | None = None
    cursor = transaction.cursor(databases.commits)
    if not cursor.set_range(_NUMBER.pack(after + 1)):
        return found, None
    for at, key in cursor.iternext():
        commit: int = _NUMBER.unpack_from(at)[0]
        if last is not None and commit != last:
            return found, last
        if key < start or (end is not None and key >= end):
            continue
        rows = read_point(transaction, databases, ReadRange(key), now)
        found.append(Change(key, to_versionstamp(commit), rows[0] if rows else None))
        if limit is not None and len(found) >= limit:
            last = commit  # commits are not cut in two
    return found, last


def forget_changes(transaction: Transaction, databases: Databases) -> None:
    """Empty the log."""
    transaction.drop(databases.log, delete=False)
    transaction.drop(databases.commits, delete=False)


def trim(transaction: Transaction, databases: Databases, floor: int, before_ms: int) -> int:
    """Forget the changes that were made up to a time; the commit up to which they are gone then."""
    forgotten: list[tuple[bytes, bytes]] = []
    for at, key in transaction.cursor(databases.commits).iternext():
        if from_ordered(at, 8) > before_ms:
            break
        forgotten.append((at, key))
    for at, key in forgotten:
        transaction.delete(at, key, databases.commits)
        transaction.delete(key, db=databases.log)
    if not forgotten:
        return floor
    last: int = _NUMBER.unpack_from(forgotten[-1][0])[0]
    return max(floor, last)


_PIECE: Final = 256


def count_ranges(
    transaction: Transaction,
    databases: Databases,
    ranges: Sequence[ReadRange],
    now: int,
    *,
    most: int | None = None,
) -> list[int]:
    """The live rows of each range."""
    numbers: list[int] = []
    left = most
    for one in ranges:
        if one.end is None or one.limit is not None:
            if left is not None and one.end is not None and one.limit is not None and one.limit > left:
                raise NotSmallError
            found = read_ranges(transaction, databases, (one._replace(keys_only=True),), now)
            assert not isinstance(found, GuardFailed), "no guard was given"
            number = walked = len(found[0][0])
        else:
            walked = _number_of_keys(transaction, databases, one.start, one.end, left)
            number = walked - (_number_of_expired(transaction, databases, one.start, one.end, now) if walked else 0)
        numbers.append(number)
        if left is not None:
            left -= walked
            if left < 0:
                raise NotSmallError
    return numbers


def _number_of_keys(transaction: Transaction, databases: Databases, start: bytes, end: bytes, most: int | None) -> int:
    """Return the number of keys in a range; if it exceeds ``most``, a number slightly above ``most``."""
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


def _number_of_expired(transaction: Transaction, databases: Databases, start: bytes, end: bytes, now: int) -> int:
    number = 0
    for deadline, key in transaction.cursor(databases.deadlines).iternext():
        if from_ordered(deadline) > now:
            break
        number += start <= key < end
    return number
