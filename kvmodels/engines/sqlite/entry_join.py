"""The rows behind the entries of one range, in one statement of SQLite: what a ``SuffixFollow`` asks for.

Where there is a row behind every entry, which is the rule, SQLite makes nothing but the tuples that are handed on. The
keys of the entries are not fetched then: all begin as the range does, and end as the key of the row behind them.

Rules of this module: as in ``statements``; both statements give the same rows, in the same order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final, overload

from kvmodels.core.operations import PlainRow, ReadRange, Row, SuffixFollow, after_prefix, row_of

_SELECT: Final = "SELECT behind.k, behind.v, behind.e, behind.s, behind.x"
_FROM: Final = (
    " FROM kv LEFT JOIN kv AS behind"
    " ON behind.k = CAST(? || substr(kv.k, ?) AS BLOB) AND (behind.x IS NULL OR behind.x > ?)"
    " WHERE kv.k >= ? AND kv.k < ? AND (kv.x IS NULL OR kv.x > ?) ORDER BY kv.k"
)
_ORDERS: Final = {False: " LIMIT ?", True: " DESC LIMIT ?"}

BEHIND: Final = {reverse: _SELECT + _FROM + order for reverse, order in _ORDERS.items()}
"""The rows whose keys are a prefix and the end of each key of a range; half as much as two steps.

By ``reverse``; parameters prefix, place of the end (from 1), time, start, end, time, limit. An outer join is walked
from its left side, so this one is in order whatever ANALYZE has found. A column more costs a twelfth of the row.
"""
BESIDE: Final = {reverse: _SELECT + ", kv.k" + _FROM + order for reverse, order in _ORDERS.items()}
"""The same, each with the key that led to it."""

_first: Final = itemgetter(0)


class _EntryKeys(Sequence[tuple[bytes]]):
    """The keys of entries, each made when it is asked for: a common beginning, and the end of the key behind it."""

    __slots__ = ("_head", "_records", "_start")

    def __init__(self, head: bytes, records: Sequence[PlainRow], start: int) -> None:
        self._head = head
        self._records = records
        self._start = start

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, at: int) -> tuple[bytes]: ...
    @overload
    def __getitem__(self, at: slice) -> _EntryKeys: ...
    def __getitem__(self, at: int | slice) -> tuple[bytes] | _EntryKeys:
        if isinstance(at, slice):
            return _EntryKeys(self._head, self._records[at], self._start)
        return (self._head + self._records[at][0][self._start :],)


def with_followed(
    connection: sqlite3.Connection, one: ReadRange, now: int, suffix: SuffixFollow
) -> tuple[list[list[Row]], list[list[Row]]]:
    """The entries of a range that has an end, and the row behind each, as ``SuffixFollow`` allows to give them."""
    start, end, limit, reverse, _ = one
    prefix, at = suffix.prefix, suffix.start
    bounds = bytearray(start), None if end is None else bytearray(end)
    parameters = bytearray(prefix), at + 1, now, *bounds, now, -1 if limit is None else limit
    head = start[:at]
    if len(head) == at and end is not None and end <= after_prefix(head):
        rows: list[Any] = connection.execute(BEHIND[reverse], parameters).fetchall()
        if None not in map(_first, rows):
            entries: Any = _EntryKeys(head, rows, len(prefix))
            return [entries], [rows] if len(rows) > 1 else [[row_of(row)] for row in rows]
    found: list[Any] = connection.execute(BESIDE[reverse], parameters).fetchall()
    followed = [[] if row[0] is None else [row_of(row[:5])] for row in found]
    return [[row[5:] for row in found]], followed
