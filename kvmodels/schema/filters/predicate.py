r"""The normal form of a filter, the key ranges of its conditions, and proofs that it implies a partial index.

Negation is pushed down to the conditions, each of which can be negated, so ``not (a and b)`` is ``not a or not b``.
``AllOf(())`` is always true, ``AnyOf(())`` never. A filter is a conjunction: a tuple of parts that must all hold.

Every key part begins with a byte below ff. If a packed part is a prefix of another one (``"a"`` is 02 61 00, ``"a\0"``
is 02 61 00 ff 00), the next byte is ff. So the keys in which a column has the value ``v`` are exactly those from
``pack(v)`` to below ``pack(v) + ff``, and every condition on a column is a sorted list of disjoint spans of bytes. The
planner derives index ranges from these spans, and the test of documents looks up a value's part in them, so both give
the same results. A condition on any of several values has the spans of one element that satisfies it.

Rules of this module: pure, and the only place where a lookup is converted to bytes; ``schema/filters/parse.py``
converts expressions and keyword lookups to predicates. Descending columns are the mirror image; None sorts below every
value, or above it in a descending column. The spans of one set are sorted and do not touch. A proof may fail although
the filter implies the index, but it is never wrong if it succeeds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.columns.base import PACKED_NONE, nullable
from kvmodels.codecs.columns.scalars import BOOL
from kvmodels.schema.declare.expressions import Lookup, Subquery
from kvmodels.schema.definition.definition import Column, ColumnSource, ModelSchema, PartialCondition, SpanTest
from kvmodels.schema.filters.field_operands import OF_FIELDS
from kvmodels.schema.filters.kind_lookups import OF_KIND
from kvmodels.schema.filters.operands import PRIMARY_KEY

V = TypeVar("V")

TEXT_TESTS: Final = frozenset({"contains", "icontains", "endswith", "iexact"})
"""Lookups that are tested on each text; no range of an index has exactly the texts that they match."""

_WITHOUT_SPANS: Final = TEXT_TESTS | {OF_KIND, OF_FIELDS}
_NARROWED: Final = TEXT_TESTS | {OF_KIND}


ConditionLookup = Literal[Lookup, "of_kind", "of_fields"]


class Condition(NamedTuple):
    """A comparison of one column with a converted and checked operand.

    ``operand`` is a value; a tuple of at least one distinct value for ``in`` and ``not_in``; ``(low, high, bounds)``
    for ``range``; a bool for ``isnull``. ``exact`` and ``ne`` never have None. The field ``pk`` with ``in`` or
    ``not_in`` is a composite primary key, and its operand contains tuples. ``contains_any`` and ``contains_all`` of a
    field with several values become ``exact`` and ``in`` with ``any``; ``contains`` remains only for parts of a str.
    ``of_kind`` is a lookup that a kind of index adds: its operand is a ``KindOperand``; ``field`` may name an index.
    ``of_fields`` compares with another field: its operand is a ``FieldOperand``.

    Attributes:
        any: at least one value of a multi-value column must satisfy it; otherwise such a field is compared as a whole.
        negated: the comparison must not hold; for a column of one value this is the complement, including None.
    """

    field: str
    lookup: ConditionLookup
    operand: Any
    any: bool = False
    negated: bool = False


@dataclass(frozen=True, slots=True)
class AllOf:
    """All parts hold; no part is itself an ``AllOf``."""

    parts: tuple[Condition | AnyOf, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds; no part is itself an ``AnyOf``."""

    parts: tuple[Condition | AllOf, ...]


Predicate: TypeAlias = Condition | AllOf | AnyOf
Conjunction: TypeAlias = tuple[Condition | AnyOf, ...]

ALWAYS: Final = AllOf(())
NEVER: Final = AnyOf(())


def all_of(parts: Iterable[Predicate]) -> Predicate:
    """Return a predicate that holds if and only if every part holds."""
    joined = conjunction(parts)
    return joined[0] if len(joined) == 1 else AllOf(joined)


def conjunction(parts: Iterable[Predicate]) -> Conjunction:
    """Return the distinct parts that must all hold, flattened; ``(NEVER,)`` if one of them never holds.

    Examples:
        >>> red = Condition("color", "exact", "red")
        >>> conjunction([red, AllOf((red,))])
        (Condition(field='color', lookup='exact', operand='red', any=False, negated=False),)
        >>> conjunction([red, NEVER])
        (AnyOf(parts=()),)
    """
    flat: list[Condition | AnyOf] = []
    for part in parts:
        flat += part.parts if isinstance(part, AllOf) else (part,)
    if len(flat) == 1:
        return (flat[0],)
    return (NEVER,) if any(isinstance(part, AnyOf) and not part.parts for part in flat) else _distinct(flat)


def any_of(parts: Iterable[Predicate]) -> Predicate:
    """Return a predicate that holds if at least one part does; several values of one column become one ``in``.

    Examples:
        >>> any_of([Condition("age", "exact", 3), Condition("age", "in", (3, 4))])
        Condition(field='age', lookup='in', operand=(3, 4), any=False, negated=False)
    """
    flat: list[Condition | AllOf] = []
    for part in parts:
        flat += part.parts if isinstance(part, AnyOf) else (part,)
    if any(isinstance(part, AllOf) and not part.parts for part in flat):
        return ALWAYS
    joined = _distinct(_with_joined_values(flat))
    return joined[0] if len(joined) == 1 else AnyOf(joined)


def conditions_of(predicate: Predicate) -> Iterator[Condition]:
    """Yield all conditions in a predicate, in order."""
    if isinstance(predicate, Condition):
        yield predicate
    else:
        for part in predicate.parts:
            yield from conditions_of(part)


def has_subquery(parts: Iterable[Predicate]) -> bool:
    """Return whether an operand is a query whose keys must be read first."""
    for part in parts:
        if isinstance(part, Condition):
            if part.operand.__class__ is Subquery:
                return True
        elif has_subquery(part.parts):
            return True
    return False


def needs_reading(parts: Iterable[Predicate]) -> bool:
    """Return whether something must be read before a filter is planned: keys of a query, or numbers of entries."""
    for part in parts:
        if isinstance(part, Condition):
            if part.operand.__class__ is Subquery:
                return True
            if part.lookup in _NARROWED and (part.lookup != OF_KIND or part.operand.narrowed):
                return True
        elif needs_reading(part.parts):
            return True
    return False


def with_values(predicate: Predicate, values: Mapping[Subquery, tuple[Any, ...]]) -> Predicate:
    """Return the predicate with the values of each query among its operands."""
    if isinstance(predicate, AllOf):
        return all_of(with_values(part, values) for part in predicate.parts)
    if isinstance(predicate, AnyOf):
        return any_of(with_values(part, values) for part in predicate.parts)
    if not isinstance(predicate.operand, Subquery):
        return predicate
    found = values[predicate.operand]
    if found:
        return predicate._replace(operand=found)
    return NEVER if predicate.lookup == "in" else ALWAYS


def _with_joined_values(parts: Iterable[Condition | AllOf]) -> Iterable[Condition | AllOf]:
    """Turn ``a = 1 or a = 2`` into ``a in (1, 2)``, which is one index scan instead of two."""
    joined: dict[Any, Condition | AllOf] = {}
    for number, part in enumerate(parts):
        values = _values_of(part)
        if values is None or not isinstance(part, Condition):
            joined[number] = part
            continue
        column = (part.field, part.any)
        known = _values_of(joined.get(column))
        joined[column] = part if known is None else _with_values(part, _distinct([*known, *values]))
    return joined.values()


def _with_values(part: Condition, values: tuple[Any, ...]) -> Condition:
    # Not "in (None,)": elements of nested lists have no "in", and only "isnull" can read an index of several values.
    if values == (None,):
        return part._replace(lookup="isnull", operand=True)
    return part._replace(lookup="in", operand=values)


def _values_of(part: Condition | AllOf | None) -> tuple[Any, ...] | None:
    """Return the possible values of the column; None for any other part."""
    if not isinstance(part, Condition) or part.negated:
        return None
    if part.lookup == "isnull":
        return (None,) if part.operand else None
    if part.lookup == "in":
        return None if isinstance(part.operand, Subquery) else tuple(part.operand)
    return (part.operand,) if part.lookup == "exact" else None


def _distinct(values: Iterable[V]) -> tuple[V, ...]:
    """Return the distinct values in order; unhashable operands, such as lists, are returned as they are."""
    seen: set[Any] = set()
    kept: list[V] = []
    for value in values:
        try:
            if value in seen:
                continue
            seen.add(value)
        except TypeError:
            pass
        kept.append(value)
    return tuple(kept)


_END: Final = b"\xff"


class Span(NamedTuple):
    """Packed parts with ``start <= part < end``; with ``point``, all keys of one value.

    With ``last``, only the last row of the range can match; a part of the range has this row, or no match.
    """

    start: bytes
    end: bytes
    point: bool = False
    last: bool = False


Spans = tuple[Span, ...]
_nullable = lru_cache(maxsize=1_000)(nullable)
EVERYTHING: Final[Spans] = (Span(b"", _END),)


def ascending_column(source: ColumnSource, *, is_nullable: bool) -> Column:
    """Return the ascending column of a source, used to compare its values."""
    codec = _nullable(source.codec) if is_nullable else source.codec
    return Column(source.name, codec, nullable=is_nullable, many=source.many, path=source.path)


def has_spans(condition: Condition, column: Column | ColumnSource) -> bool:
    """Return whether the matching parts of the column form spans.

    They do not for a test of a text. For a column with several values, they do only if the condition is on any of them,
    or on None instead of values.
    """
    if condition.lookup in _WITHOUT_SPANS:
        return False
    if not column.many:
        return not condition.any
    if condition.any:
        return not condition.negated and condition.operand != ()
    return condition.lookup == "isnull" and condition.operand is not condition.negated


def matching_parts(conditions: Iterable[Condition], column: Column) -> Spans:
    """Return the parts of a single-value column that satisfy all conditions on its field that have spans."""
    found = (parts_of(condition, column) for condition in conditions if has_spans(condition, column))
    return reduce(intersection, found, EVERYTHING)


def parts_of(condition: Condition, column: Column) -> Spans:
    """Return the sorted parts of a column that satisfy one checked condition on its field; it must have spans.

    For a column with several values, these are the parts of the elements that satisfy the condition.
    """
    if condition.negated:
        return complement(parts_of(condition._replace(negated=False), column))
    spans = _parts_of(condition, column)
    # An entry with None represents a field that is None, which has no elements.
    return intersection(spans, (_values(column),)) if condition.any and column.nullable else spans


def _parts_of(condition: Condition, column: Column) -> Spans:
    pack, lookup, operand = column.codec.pack, condition.lookup, condition.operand
    if lookup == "exact":
        return _points((pack(operand),))
    if lookup == "ne":
        return complement(_points((pack(operand),)))
    if lookup in ("in", "not_in"):
        held = operand if column.nullable else [value for value in operand if value is not None]
        points = _points({pack(value) for value in held})
        return points if lookup == "in" else complement(points)
    if lookup == "isnull":
        if not operand:
            return (_values(column),)
        return _points((pack(None),)) if column.nullable else ()
    if lookup == "startswith":
        return _beginning(column, operand)
    return _ordered(condition, column)


def intersection(left: Spans, right: Spans) -> Spans:
    """Return the intersection of spans; linear in their number."""
    if left is EVERYTHING or right is EVERYTHING:
        return right if left is EVERYTHING else left
    found: list[Span] = []
    i = j = 0
    while i < len(left) and j < len(right):
        one, other = left[i], right[j]
        start, end = max(one.start, other.start), min(one.end, other.end)
        if start < end:
            found.append(Span(start, end, one.point or other.point, one.last or other.last))
        if one.end <= other.end:
            i += 1
        else:
            j += 1
    return tuple(found)


def contains(spans: Sequence[Span], part: bytes) -> bool:
    """Return whether a packed part is in one of the sorted spans; logarithmic in their number."""
    at = bisect_right(spans, part, key=lambda span: span.start) - 1
    return at >= 0 and part < spans[at].end


def covers(outer: Iterable[Span | tuple[bytes, bytes]], inner: Iterable[Span]) -> bool:
    """Return whether ``outer`` contains every part in ``inner``, comparing the edges of sorted spans.

    The result may be False if a gap contains no possible part, but is never wrongly True. Cost: linear.
    """
    remaining = iter(joined(outer))
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


def possible(column: Column) -> Spans:
    """Return spans that contain all parts of an ascending column with one value.

    Both values of a bool are known, so "not False" is "True"; and no part sorts before that of None.
    """
    if column.codec.name == BOOL.name:
        values = (*((PACKED_NONE,) if column.nullable else ()), BOOL.pack(False), BOOL.pack(True))
        return _points(values)
    return (Span(PACKED_NONE, _END),) if column.nullable else EVERYTHING


def joined(spans: Iterable[Span | tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return sorted spans, joined if they touch."""
    found: list[tuple[bytes, bytes]] = []
    for start, end in ((span[0], span[1]) for span in spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _points(parts: Iterable[bytes]) -> Spans:
    return tuple(Span(part, part + _END, point=True) for part in sorted(parts))


def complement(spans: Sequence[Span | tuple[bytes, bytes]]) -> Spans:
    """Return the gaps; a gap may contain no possible part, which costs a range but is otherwise harmless."""
    starts = [b"", *(span[1] for span in spans)]
    ends = [*(span[0] for span in spans), _END]
    return tuple(Span(start, end) for start, end in zip(starts, ends, strict=True) if start < end)


def _values(column: Column) -> Span:
    """Return all parts except that of None."""
    if not column.nullable:
        return EVERYTHING[0]
    null = column.codec.pack(None)
    return Span(b"", null) if column.descending else Span(null + _END, _END)


def _ordered(condition: Condition, column: Column) -> Spans:
    """Return the parts between two ends; a comparison has one end, a range two."""
    pack, lookup, operand = column.codec.pack, condition.lookup, condition.operand
    low: tuple[object, bool] | None = None
    high: tuple[object, bool] | None = None
    if lookup == "range":
        least, greatest, bounds = operand
        low, high = (least, bounds[0] == "["), (greatest, bounds[1] == "]")
    elif lookup in ("gt", "gte"):
        low = (operand, lookup == "gte")
    else:
        high = (operand, lookup == "lte")
    first, last = (high, low) if column.descending else (low, high)
    start, end, _, _ = _values(column)
    if first is not None:
        start = pack(first[0]) + (b"" if first[1] else _END)
    if last is not None:
        end = pack(last[0]) + (_END if last[1] else b"")
    return (Span(start, end),) if start < end else ()


def _beginning(column: Column, prefix: str | bytes) -> Spans:
    pack_prefix = column.codec.pack_prefix
    assert pack_prefix is not None  # parse refuses the lookup for other columns
    start = pack_prefix(prefix)
    # The end is the lowest byte string above all that begin with the prefix, whose first byte, the tag, is never ff.
    # ``start + ff`` would be wrong: the prefix ends inside a part, where the next byte may be ff.
    shortened = start.rstrip(_END)
    return (Span(start, shortened[:-1] + bytes((shortened[-1] + 1,))),)


MOST_BRANCHES: Final = 1_000
"""The maximum number of combinations of "any of" parts of one filter that a proof tries before it fails."""


def implies(schema: ModelSchema, where: Iterable[Predicate], partial: PartialCondition) -> bool:
    """Return whether every record that a filter matches is in a partial index.

    The filter is expanded to alternatives. The conditions of each must contradict each other, or must leave nothing
    outside the spans of any column of one alternative of the index.

    Cost: for each combination of the "any of" parts on a column of the index, at most 1,000, linear in the conditions
    times the alternatives.
    """
    return _Proof(schema, partial).holds((), tuple(where))


class _Proof:
    """One proof, with its remaining budget."""

    def __init__(self, schema: ModelSchema, partial: PartialCondition) -> None:
        self._schema = schema
        self._alternatives = partial.alternatives
        self._fields = {test.column.field for tests in partial.alternatives for test in tests}
        self._remaining = MOST_BRANCHES

    def holds(self, known: Sequence[Condition], parts: Iterable[Predicate]) -> bool:
        """Return whether the index contains every record that satisfies all these parts."""
        together = conjunction(parts)
        conditions = [*known, *(part for part in together if isinstance(part, Condition))]
        choices = [part for part in together if isinstance(part, AnyOf)]
        if self._remaining == 0:
            return False
        self._remaining -= 1
        for tests in self._alternatives:
            if all(self._passes(conditions, test) for test in tests):
                return True
        if self._contradict(conditions):
            return True
        for number, choice in enumerate(choices):
            others = choices[number + 1 :]
            if not choice.parts or any(condition.field in self._fields for condition in conditions_of(choice)):
                return all(self.holds(conditions, (branch, *others)) for branch in choice.parts)
        return False

    def _passes(self, conditions: Iterable[Condition], test: SpanTest) -> bool:
        theirs = test.column
        source = self._schema.source(theirs.field)
        if source is None or source.many or source.codec.name != theirs.codec.name or source.path != theirs.path:
            return False
        # The column of the model, not that of the index, because a catalogue knows no Enum; their parts are the same.
        column = ascending_column(source, is_nullable=theirs.nullable)
        spans = matching_parts([condition for condition in conditions if condition.field == theirs.field], column)
        return covers(test.spans, intersection(spans, possible(column)))

    def _contradict(self, conditions: Iterable[Condition]) -> bool:
        """Return whether the conditions on some column contradict each other."""
        by_field: dict[str, list[Condition]] = {}
        for condition in conditions:
            by_field.setdefault(condition.field, []).append(condition)
        for field, group in by_field.items():
            source = None if field == PRIMARY_KEY else self._schema.source(field)
            column = None if source is None or source.many else ascending_column(source, is_nullable=source.nullable)
            if column is not None and not intersection(matching_parts(group, column), possible(column)):
                return True
        return False
