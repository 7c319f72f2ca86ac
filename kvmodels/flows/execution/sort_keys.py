"""The common sort key of the rows of several scans, and where each scan goes on behind a sort key.

The sort key is the packed parts of the columns of the order, primary key included, in the direction in which the keys
of the first scan hold them. So it compares as keys do, and all scans of a merge compare it the same way round.

Rules of this module: pure. A merge is planned only of scans that are read in one direction and whose keys hold every
column of the order; every other column of theirs has one value.
"""

from __future__ import annotations

from collections.abc import Callable

from kvmodels.catalog.collection import LiveCollection
from kvmodels.core.keys import skip_parts, split_key
from kvmodels.core.operations import Row
from kvmodels.errors import InvalidKeyError
from kvmodels.query.plans import QueryPlan, Scan
from kvmodels.schema.definition.definition import Column

OwnerOf = Callable[[Row], bytes | None]
"""Gives the packed primary key that a row leads to, or None for a row that is no entry of its index."""


class SortKeys:
    """Sort keys of the rows of one scan of a merge.

    Args:
        plan: the merge.
        scan: one of its scans.
        equal_nulls: the index is unique, and its rows with None are slots too.
    """

    __slots__ = ("_columns", "_equal_nulls", "_head", "_offset", "_order", "_positions", "_scan")

    def __init__(self, plan: QueryPlan, scan: Scan, *, equal_nulls: bool) -> None:
        self._scan = scan
        self._equal_nulls = equal_nulls
        self._order = [field.removeprefix("-") for field in plan.order]
        self._columns = scan.columns + (plan.schema.primary_key if scan.unique else ())
        names = [column.field for column in self._columns]
        self._positions = [names.index(field) for field in self._order]
        # Columns that the order does not name have one value in all ranges, so the first one has all their parts.
        known = max((n + 1 for n, name in enumerate(names) if name not in self._order), default=0)
        start = scan.ranges[0].start
        self._head = split_key(start[: skip_parts(start, 1 + known)])
        plain = not scan.unique and self._positions == list(range(known, len(names)))
        self._offset = sum(len(part) for part in self._head) if plain else None

    def of(self, row: Row, owner_of: OwnerOf) -> bytes | None:
        """The sort key of a row, ending in its primary key; None for a row that is no entry of the index."""
        if self._offset is not None:
            return row.key[self._offset :]
        try:
            parts = split_key(row.key)[1:]
            if len(parts) < len(self._columns):
                owner = owner_of(row)
                parts = parts if owner is None else parts + split_key(owner)
            return b"".join([parts[position] for position in self._positions])
        except (InvalidKeyError, IndexError):
            return None

    def key_at(self, sort_key: bytes) -> bytes:
        """A key of this scan at or before which lie all rows with lower sort keys, and none with a higher one.

        Raises:
            InvalidKeyError: this is no sort key of the plan.
        """
        given = split_key(sort_key)
        if len(given) != len(self._order):
            raise InvalidKeyError("a sort key has the wrong number of parts", key=sort_key)
        parts = {column.field: part for column, part in zip(self._columns, self._head[1:], strict=False)}
        parts.update(zip(self._order, given, strict=True))
        return self._head[0] + b"".join([parts[column.field] for column in self._written(parts)])

    def _written(self, parts: dict[str, bytes]) -> tuple[Column, ...]:
        """The columns that the key has: a slot of a unique index ends before the primary key."""
        own = self._scan.columns
        if not self._scan.unique:
            return own
        null = any(column.nullable and parts[column.field] == column.codec.pack(None) for column in own)
        return self._columns if null and not self._equal_nulls else own


def sort_keys(plan: QueryPlan, live: LiveCollection) -> list[SortKeys]:
    """The sort keys of each scan of a merge."""
    found: list[SortKeys] = []
    for scan in plan.scans:
        definition = live.readable[scan.index].definition if scan.index is not None else None
        found.append(SortKeys(plan, scan, equal_nulls=definition is not None and definition.nulls == "equal"))
    return found
