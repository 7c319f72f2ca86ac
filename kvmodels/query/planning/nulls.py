"""Orders with None at the end where an index does not have it: ``nulls_last`` ascending, ``nulls_first`` descending.

The query is planned in the order of the index, with None below every value. If one scan serves it, its ranges are split
at None into two scans, which are read one after the other. That is the order asked for if all columns of the index
before the field have one value. Otherwise the results are sorted, if that is allowed.

Rules of this module: pure. No record is in both scans, so nothing is dropped. Reversed, the two scans change places, as
the scans of every concatenation do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kvmodels.catalog.collection import LiveCollection
from kvmodels.core.keys import skip_parts
from kvmodels.core.operations import after_prefix
from kvmodels.errors import InvalidKeyError, NoUsableIndexError
from kvmodels.query.orders import order_names, placed_names
from kvmodels.query.plans import KeyRange, LastRowRange, QueryPlan, Scan
from kvmodels.query.query import Query
from kvmodels.schema.declare.expressions import Order
from kvmodels.schema.filters.predicate import Condition


def hidden(query: Query) -> Query:
    """Return the query with names in its order that no index has, so that it is planned as a sort."""
    names = [f"{one.field} nulls" if one.none_at else one.field for one in query.order]
    return replace(
        query, order=tuple(Order(name, one.descending) for name, one in zip(names, query.order, strict=True))
    )


def placed(query: Query, plan: QueryPlan) -> QueryPlan | None:
    """Return the plan with None at the other end, from the plan of the plain order; None if it must be sorted."""
    if plan.sort is not None or plan.combine not in ("scan", "nothing"):
        return None
    scans = plan.scans
    for order in query.order:
        if order.none_at is None or not scans:
            continue
        parts = _split(scans[0], order.field)
        if parts is None or (len(parts) > 1 and len(scans) > 1):
            return None
        if len(parts) > 1:
            # Values first if None comes last; the list of scans is in the direction of the index.
            descending = order.descending is not query.reverse
            scans = tuple(parts[::-1] if descending is not plan.reverse else parts)
    combine = "concatenate" if len(scans) > 1 else plan.combine
    return replace(plan, combine=combine, scans=tuple(scans), order=placed_names(plan.order, query.placed))


def _split(scan: Scan, field: str) -> Sequence[Scan] | None:
    """Return the scans of values and of None, or the scan itself if the field can have one of both only.

    None if the columns before the field have several values.
    """
    names = [column.field for column in scan.columns]
    if field not in names:
        return (scan,)  # the filter fixes its value, or an earlier column of the order is unique
    at = names.index(field)
    prefix = _common_prefix(scan, at)
    if prefix is None:
        return None
    null = prefix + scan.columns[at].codec.pack(None)
    end = after_prefix(null)
    above = (prefix, null) if scan.columns[at].descending else (end, after_prefix(prefix))
    values = list(_within(scan.ranges, *above))
    nothing = list(_within(scan.ranges, null, end))
    if not values or not nothing:
        return (scan,)
    return [
        replace(scan, ranges=tuple(ranges), served=(*scan.served, Condition(field, "isnull", is_null)))
        for ranges, is_null in ((values, False), (nothing, True))
    ]


def _common_prefix(scan: Scan, columns: int) -> bytes | None:
    """Return the packed values of the first columns; None if they have several values, or values of no known end."""
    if any(isinstance(one, LastRowRange) for one in scan.ranges):
        return None
    start = len(scan.prefix)
    try:
        found = {one.start[: start + skip_parts(one.start[start:], columns)] for one in scan.ranges}
    except InvalidKeyError:
        return None
    if len(found) != 1:
        return None
    (prefix,) = found
    ends = [one.end for one in scan.ranges if one.end is not None]
    return prefix if all(end <= after_prefix(prefix) for end in ends) else None


def _within(ranges: Iterable[KeyRange], start: bytes, end: bytes) -> Iterable[KeyRange]:
    for one in ranges:
        if one.end is None:
            if start <= one.start < end:
                yield one
        elif max(start, one.start) < min(end, one.end):
            yield KeyRange(max(start, one.start), min(end, one.end))


def is_leading(query: Query) -> bool:
    """Return whether an index with the plain order has None at the end asked for, too."""
    fixed = {part.field for part in query.where if isinstance(part, Condition) and part.lookup == "exact"}
    leading = next(order for order in query.order if order.field not in fixed or order.none_at)
    return leading.none_at is not None and len(query.placed) == 1


def refusal(query: Query, live: LiveCollection) -> NoUsableIndexError:
    """Return the error for an order that no index has."""
    return NoUsableIndexError(
        "no index has None at this end of the order",
        model=query.schema.name,
        filters=query.filter_fields,
        order=order_names(query.directions, query.placed),
        candidates=tuple(live.readable),
        hint="Call .sort_in_memory(limit=…) to sort the results, or leave out nulls_first and nulls_last.",
    )
