r"""Sets of packed key parts: which parts of a column satisfy a condition.

Every part begins with a byte below ff, and where a packed part is the beginning of another one (``"a"`` is 02 61 00,
``"a\0"`` is 02 61 00 ff 00), ff follows. So the keys in which a column has the value ``v`` are exactly those from
``pack(v)`` to below ``pack(v) + ff``, and every condition on a column is a sorted list of disjoint spans of bytes. The
planner cuts the ranges of an index from them, and the test of documents asks whether a value's part lies in them, so
both have one meaning. A condition on any of several values has the spans of one element that satisfies it.

Rules of this module: pure, and the one place where a lookup becomes bytes. Descending columns are the mirror image;
None is below every value, or above it in a descending column. Spans of one set are sorted and do not touch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce
from typing import Final, NamedTuple

from kvmodels.encoding.columns import nullable
from kvmodels.schema.definition import Column, ColumnSource
from kvmodels.schema.predicate import Condition

__all__ = [
    "EVERYTHING",
    "Span",
    "Spans",
    "ascending_column",
    "contains",
    "covers",
    "has_spans",
    "intersection",
    "matching_parts",
    "parts_of",
]

_END: Final = b"\xff"


class Span(NamedTuple):
    """Packed parts with ``start <= part < end``; ``point`` when it is all keys of one value."""

    start: bytes
    end: bytes
    point: bool = False


Spans = tuple[Span, ...]
_nullable = lru_cache(maxsize=1_000)(nullable)
EVERYTHING: Final[Spans] = (Span(b"", _END),)


def ascending_column(source: ColumnSource, *, is_nullable: bool) -> Column:
    """The ascending column of a source, by which its values are compared."""
    codec = _nullable(source.codec) if is_nullable else source.codec
    return Column(source.name, codec, nullable=is_nullable, many=source.many, path=source.path)


def has_spans(condition: Condition, column: Column | ColumnSource) -> bool:
    """Whether the parts of the column that satisfy the condition on its field are spans.

    They are not for a part of a text, and for a column with several values only if the condition is on any of them, or
    says that there is None instead of values.
    """
    if condition.lookup == "contains":
        return False
    if not column.many:
        return not condition.any
    if condition.any:
        return not condition.negated and condition.operand != ()
    return condition.lookup == "isnull" and condition.operand is not condition.negated


def matching_parts(conditions: Iterable[Condition], column: Column) -> Spans:
    """The parts of a column of one value that satisfy all conditions on its field that have spans.

    Empty when they contradict each other.
    """
    found = (parts_of(condition, column) for condition in conditions if has_spans(condition, column))
    return reduce(intersection, found, EVERYTHING)


def parts_of(condition: Condition, column: Column) -> Spans:
    """The parts of a column that satisfy one condition on its field, sorted; operands were checked before.

    Of a column with several values, these are the parts of the elements that satisfy the condition. The condition has
    spans; see ``has_spans``.
    """
    if condition.negated:
        return _complement(parts_of(condition._replace(negated=False), column))
    spans = _parts_of(condition, column)
    # An entry with None stands for a field that is None, which has no element.
    return intersection(spans, (_values(column),)) if condition.any and column.nullable else spans


def _parts_of(condition: Condition, column: Column) -> Spans:
    pack, lookup, operand = column.codec.pack, condition.lookup, condition.operand
    if lookup == "exact":
        return _points((pack(operand),))
    if lookup == "ne":
        return _complement(_points((pack(operand),)))
    if lookup in ("in", "not_in"):
        held = operand if column.nullable else [value for value in operand if value is not None]
        points = _points({pack(value) for value in held})
        return points if lookup == "in" else _complement(points)
    if lookup == "isnull":
        if not operand:
            return (_values(column),)
        return _points((pack(None),)) if column.nullable else ()
    if lookup == "startswith":
        return _beginning(column, operand)
    return _ordered(condition, column, pack)


def intersection(left: Spans, right: Spans) -> Spans:
    """The parts in both, linear in the number of spans."""
    if left is EVERYTHING or right is EVERYTHING:
        return right if left is EVERYTHING else left
    found: list[Span] = []
    i = j = 0
    while i < len(left) and j < len(right):
        one, other = left[i], right[j]
        start, end = max(one.start, other.start), min(one.end, other.end)
        if start < end:
            found.append(Span(start, end, one.point or other.point))
        if one.end <= other.end:
            i += 1
        else:
            j += 1
    return tuple(found)


def contains(spans: Sequence[Span], part: bytes) -> bool:
    """Whether a packed part lies in one of the sorted spans, logarithmic in their number."""
    at = bisect_right(spans, part, key=lambda span: span.start) - 1
    return at >= 0 and part < spans[at].end


def covers(outer: Iterable[Span | tuple[bytes, bytes]], inner: Iterable[Span]) -> bool:
    """Whether every part in ``inner`` is in ``outer``, by comparing the edges of sorted spans.

    It may say no where a gap holds no part at all, and never says yes wrongly. Cost: linear.
    """
    remaining = iter(_joined(outer))
    end = start = b""
    for span in inner:
        while end < span.end:
            following = next(remaining, None)
            if following is None:
                return False
            start, end = following
        if span.start < start:
            return False
    return True


def _joined(spans: Iterable[Span | tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
    """The spans, those that touch made one."""
    pending: tuple[bytes, bytes] | None = None
    for start, end in ((span[0], span[1]) for span in spans):
        if pending is not None and start <= pending[1]:
            pending = (pending[0], max(end, pending[1]))
            continue
        if pending is not None:
            yield pending
        pending = (start, end)
    if pending is not None:
        yield pending


def _points(parts: Iterable[bytes]) -> Spans:
    return tuple(Span(part, part + _END, point=True) for part in sorted(parts))


def _complement(spans: Spans) -> Spans:
    """The gaps; a gap may hold no part at all, which costs a range and is otherwise harmless."""
    starts = [b"", *(span.end for span in spans)]
    ends = [*(span.start for span in spans), _END]
    return tuple(Span(start, end) for start, end in zip(starts, ends, strict=True) if start < end)


def _values(column: Column) -> Span:
    """All parts but that of None."""
    if not column.nullable:
        return EVERYTHING[0]
    null = column.codec.pack(None)
    return Span(b"", null) if column.descending else Span(null + _END, _END)


def _ordered(condition: Condition, column: Column, pack: Callable[[object], bytes]) -> Spans:
    """The parts between two ends, of which a comparison has one and a range two."""
    low: tuple[object, bool] | None = None
    high: tuple[object, bool] | None = None
    if condition.lookup == "range":
        least, greatest, bounds = condition.operand
        low, high = (least, bounds[0] == "["), (greatest, bounds[1] == "]")
    elif condition.lookup in ("gt", "gte"):
        low = (condition.operand, condition.lookup == "gte")
    else:
        high = (condition.operand, condition.lookup == "lte")
    first, last = (high, low) if column.descending else (low, high)
    start, end, _ = _values(column)
    if first is not None:
        value, included = first
        start = pack(value) if included else pack(value) + _END
    if last is not None:
        value, included = last
        end = pack(value) + _END if included else pack(value)
    return (Span(start, end),) if start < end else ()


def _beginning(column: Column, prefix: str | bytes) -> Spans:
    pack_prefix = column.codec.pack_prefix
    assert pack_prefix is not None  # predicates refuse the lookup for other columns
    start = pack_prefix(prefix)
    return (Span(start, _above(start)),)


def _above(prefix: bytes) -> bytes:
    """The lowest byte string above all that begin with ``prefix``; the tag, its first byte, is never ff.

    ``prefix + ff`` would be wrong here: the prefix ends inside a part, where the next byte may be ff.
    """
    shortened = prefix.rstrip(b"\xff")
    return shortened[:-1] + bytes((shortened[-1] + 1,))
