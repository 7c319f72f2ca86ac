"""Counters of an aggregate index: the number of records of each group, and the sums of its fields.

Counters are 64-bit integers in two's complement, little endian: the sum of an engine is exact for them.

Rules of this module: pure. A record adds to a counter once, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Final, cast

from kvmodels.catalog.keyspace import CounterLayout, IndexLayout, counter_key
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.errors import InvalidValueError
from kvmodels.indexing.entries import COUNT, HALF, LARGEST, StoredRecord
from kvmodels.indexing.kinds.contract import NOTHING, Contents, KindMaintenance
from kvmodels.schema.definition.definition import Document

_MOST_DIGITS: Final = 40
"""More digits than any number below 2 ** 63 has, leading zeros included."""


def contribution(layout: CounterLayout, document: Document) -> tuple[dict[bytes, int], int]:
    """Return the additions of a document to counters, by counter key, and the number of its groups."""
    groups = layout.groups(document)
    amounts = dict(_amounts(layout, document)) if groups else {}
    additions = {counter_key(group, kind): amount for group in groups for kind, amount in amounts.items()}
    return additions, len(groups)


def _amounts(layout: CounterLayout, document: Document) -> Iterator[tuple[str, int]]:
    """Return the counters of a group that a record adds to, by kind; none is 0."""
    yield COUNT, 1
    for column, value in zip(layout.sums, layout.sums_of(document), strict=True):
        if value is None:
            continue
        if column.field in layout.places:
            value = scaled(column.field, value, layout.places[column.field])
        if not isinstance(value, int):
            raise InvalidValueError(
                "a value that is summed is no whole number",
                field=column.field,
                type=type(value).__name__,
                hint="Another program wrote the record: store it again, or remove it with repository.remove(key).",
            )
        if not -LARGEST < value < LARGEST:
            raise InvalidValueError(
                "a value is too large to be summed",
                field=column.field,
                type="int",
                hint="A summed value is below 2 ** 63 and above -2 ** 63.",
            )
        high, low = divmod(abs(value), HALF)
        sign = 1 if value > 0 else -1
        if low:
            yield f"sum:{column.field}", sign * low
        if high:
            yield f"sum:{column.field}:high", sign * high
        if column.nullable:
            yield f"present:{column.field}", 1


def scaled(field: str, stored: object, places: int) -> int:
    """Return a stored Decimal as a whole number of its last decimal place. Raises InvalidValueError."""
    try:
        sign, digits, exponent = Decimal(cast("str", stored)).as_tuple()
    except (ArithmeticError, TypeError, ValueError):
        sign, digits, exponent = 0, (), "n"
    if not isinstance(exponent, int):
        raise InvalidValueError(
            "a value that is summed is no finite Decimal",
            field=field,
            type="Decimal",
            hint="Store a finite number, or None.",
        )
    shift = exponent + places
    while shift < 0 and digits and digits[-1] == 0:
        digits, shift = digits[:-1], shift + 1
    if not any(digits):
        return 0
    if shift < 0:
        raise InvalidValueError(
            "a value has more decimal places than its sum keeps",
            field=field,
            type="Decimal",
            hint=f"The index keeps {places} decimal places: round the value, or declare more of them.",
        )
    # A number of so many digits is refused as too large anyway, and would cost memory.
    number = LARGEST if len(digits) + shift > _MOST_DIGITS else int("".join(map(str, digits))) * 10**shift
    return -number if sign else number


class CounterMaintenance(KindMaintenance):
    """The maintenance of an aggregate index."""

    has_counters = True
    layout: CounterLayout

    def __init__(self, layout: IndexLayout) -> None:
        assert isinstance(layout, CounterLayout), "only aggregate indexes have counters"
        super().__init__(layout)

    def contents(self, record: StoredRecord, codec: ValueCodec) -> Contents:
        """Return the additions of a record to counters; a record with a deadline adds nothing."""
        del codec
        if record.expire_at is not None or not self.layout.covers(record.document):
            return NOTHING
        amounts, groups = contribution(self.layout, record.document)
        return Contents(amounts=amounts, fan_out=groups)


MAINTENANCE: Final = CounterMaintenance
