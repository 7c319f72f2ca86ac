"""How a query will be answered: the index, the ranges of its keys, and what must be tested on the objects.

Rules of this module: data and its text for people; decisions are the planner's. A plan is a pure function of the
query and of the indexes that are readable, and its hash is the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgpack

from kvmodels.encoding.values import MsgpackCodec
from kvmodels.query.matching import Matcher, comparison_column, packed_key
from kvmodels.schema.predicates import PRIMARY_KEY, Condition
from kvmodels.schema.spans import parts_of
from kvmodels.schema.definition import ModelSchema

__all__ = ["KeyRange", "QueryPlan", "describe"]

_SYMBOLS: Final = {"exact": "=", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "startswith": "startswith"}
_SHOWN_VALUES: Final = 5
_SHOWN_OPERAND: Final = 60


class KeyRange(NamedTuple):
    """Packed keys with ``start <= key < end``; ``end`` None: the one key ``start``."""

    start: bytes
    end: bytes | None


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """How a query is answered; what ``explain()`` returns.

    Attributes:
        index: name of the index that is read; None: the records themselves, by primary key.
        ranges: packed key ranges that are read, ascending; none when no record can match.
        full_scan: the whole collection is read and tested, which ``allow_scan()`` has permitted. False for a query
            that reads everything because it returns everything.
        reverse: the ranges are read from their end.
        order: the complete order of the results, ``-`` for descending; it ends in the primary key.
        generation: of the index; a rebuilt index has another one.
        copies: what is read holds the record itself, so that one read is enough.
    """

    schema: ModelSchema = field(repr=False)
    index: str | None
    ranges: tuple[KeyRange, ...] = field(repr=False)
    full_scan: bool
    reverse: bool
    order: tuple[str, ...]
    generation: int
    copies: bool
    prefix: bytes = field(repr=False)
    start: int
    stop: int | None
    served: tuple[Condition, ...] = field(repr=False)
    tested: tuple[Condition, ...] = field(repr=False)
    excluded: tuple[tuple[Condition, ...], ...] = field(repr=False)
    matches: Matcher | None = field(repr=False, compare=False)

    @property
    def bound(self) -> tuple[str, ...]:
        """The conditions that the ranges answer, for people."""
        return tuple(describe(condition) for condition in self.served)

    @property
    def residual(self) -> tuple[str, ...]:
        """The conditions that are tested on each object that was read, for people."""
        groups = (" and ".join(describe(condition) for condition in group) for group in self.excluded)
        return (*(describe(condition) for condition in self.tested), *(f"not ({group})" for group in groups))

    @property
    def points(self) -> bool:
        """Whether every range is one key."""
        return all(key_range.end is None for key_range in self.ranges)

    @property
    def estimated_reads(self) -> int | None:
        """The most rows that the whole query can read, entries and records counted; None when that depends on data.

        It is known for keys that are named one by one, and for a slice that is not filtered further.
        """
        cost = 1 if self.copies else 2
        known = [len(self.ranges) * cost] if self.points else []
        if self.stop is not None and self.matches is None:
            known.append(self.start + (self.stop - self.start) * cost)
        return min(known) if known else None

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that are equal for two plans that read the same, operands included.

        Cost: linear in the number of ranges. Raises InvalidValueError for an operand that cannot be stored.
        """
        described = [
            self.schema.collection,
            self.index,
            [[start.removeprefix(self.prefix), end and end.removeprefix(self.prefix)] for start, end in self.ranges],
            self.reverse,
            list(self.order),
            [_digest(self.schema, condition) for condition in self.tested],
            [[_digest(self.schema, condition) for condition in group] for group in self.excluded],
        ]
        return sha256(msgpack.packb(described)).hexdigest()[:16]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterable[str]:
        yield f"{self.schema.name}: {self._access()}"
        if not self.ranges:
            return
        if self.bound:
            yield f"  reads only  {' and '.join(self.bound)}"
        if self.residual:
            yield f"  then tests  {' and '.join(self.residual)}"
        yield f"  in order    {', '.join(self.order)}"
        reads = self.estimated_reads
        each = "one row for each record" if self.copies else "an entry and a record for each result"
        yield f"  reads       {each if reads is None else f'at most {reads} rows'}"

    def _access(self) -> str:
        if not self.ranges:
            return "nothing is read, because no record can match"
        if self.full_scan:
            return f"full scan of {self.schema.collection}" + (f" through index {self.index}" if self.index else "")
        count = len(self.ranges)
        kind = "key" if self.points else "range"
        extent = f"{count} {kind}{'s' if count > 1 else ''} of "
        return extent + ("the primary key" if self.index is None else f"index {self.index}")


def describe(condition: Condition) -> str:
    """A condition as a person writes it; long operands are cut."""
    name, lookup, operand = condition
    if lookup == "isnull":
        return f"{name} is None" if operand else f"{name} is not None"
    if lookup == "range":
        low, high, bounds = operand
        left, right = "<" if bounds[0] == "(" else "<=", "<" if bounds[1] == ")" else "<="
        return f"{_shown(low)} {left} {name} {right} {_shown(high)}"
    if lookup in ("in", "not_in"):
        more = ", …" if len(operand) > _SHOWN_VALUES else ""
        values = ", ".join(_shown(value) for value in operand[:_SHOWN_VALUES])
        return f"{name} {'in' if lookup == 'in' else 'not in'} ({values}{more})"
    return f"{name} {_SYMBOLS[lookup]} {_shown(operand)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_OPERAND else f"{text[:_SHOWN_OPERAND]}…"


def _digest(schema: ModelSchema, condition: Condition) -> list[Any]:
    """What a condition does, in bytes that do not depend on the process."""
    name, lookup, operand = condition
    column = comparison_column(schema, name)
    if name == PRIMARY_KEY:
        return [name, lookup, sorted(packed_key(schema, values) for values in operand)]
    if column is not None:
        return [name, lookup, [[span.start, span.end] for span in parts_of(condition, column)]]
    if lookup == "isnull":
        return [name, lookup, operand]
    encode, codec = schema.fields[name].encode, MsgpackCodec()
    values = operand if lookup in ("in", "not_in") else (operand,)
    stored = [value if value is None or encode is None else encode(value) for value in values]
    return [name, lookup, [list(codec.encode(value)) for value in stored]]
