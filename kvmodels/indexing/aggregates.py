"""What one record adds to the counters of an aggregate index, and the sums of that over a whole commit.

A sum is kept in two unsigned counters, because an engine adds modulo 2**64: a value is ``high * 2**32 + low``, divided
toward zero, and both halves are added for themselves. So a total is exact while every value is below 2**63 and a
group has fewer than 2**31 records, however far the total is outside of 64 bits.

Rules of this module: pure; what a record adds is a function of its stored document. A record with a deadline adds
nothing: nobody would take it out again when it expires.

Source: FoundationDB Record Layer, AtomicMutationIndexMaintainer; its sums overflow silently, which is why there are
two counters here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping

from kvmodels.catalog.collection import LiveIndex
from kvmodels.core.operations import Arithmetic
from kvmodels.errors import InvalidValueError
from kvmodels.schema.definition.definition import Document

COUNT = "count"
HALF = 2**32
LARGEST = 2**63
U64 = 2**64


def contribution(index: LiveIndex, document: Document | None, expire_at: int | None) -> dict[bytes, int]:
    """What a record adds to each counter, by counter key; nothing when it is none of the index.

    Raises:
        InvalidValueError: a column cannot be a key part, or a value is too large to be added; the field is named.
    """
    if document is None or expire_at is not None or not index.layout.covers(document):
        return {}
    groups = index.layout.groups(document)
    amounts = dict(_amounts(index, document)) if groups else {}
    counter_key = index.layout.counter_key
    return {counter_key(group, kind): amount for group in groups for kind, amount in amounts.items()}


def _amounts(index: LiveIndex, document: Document) -> Iterator[tuple[str, int]]:
    """The counters of a group that a record adds to, by kind; none is 0."""
    yield COUNT, 1
    aggregates = index.definition.aggregates
    assert aggregates is not None, "only aggregate indexes have counters"
    for column, value in zip(aggregates.sums, index.layout.sums_of(document), strict=True):
        if value is None:
            continue
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


def fold(totals: MutableMapping[bytes, int], amounts: Mapping[bytes, int], sign: int) -> None:
    """Add what one record adds to the totals of a commit, or take it away (``sign`` -1).

    All records of a commit are folded, so that a counter gets one mutation at most.
    """
    for key, amount in amounts.items():
        totals[key] = totals.get(key, 0) + sign * amount


def additions(totals: Mapping[bytes, int]) -> tuple[Arithmetic, ...]:
    """The mutations for the totals of a commit; a counter that does not change gets none."""
    return tuple(Arithmetic("sum", key, to_u64(total)) for key, total in totals.items() if total)


def to_u64(number: int) -> int:
    """A signed number as an engine adds it: modulo 2**64."""
    return number % U64


def from_u64(number: int) -> int:
    """The signed number that a counter stands for: two's complement.

    Examples:
        >>> from_u64(to_u64(-3))
        -3
    """
    return number - U64 if number >= LARGEST else number
