"""Branches and shape of a filter: the input of the planner's decision.

A *term* is everything that is said about one column of one value, or one condition on any of several values. A
*branch* is a set of parts that all hold. A filter without "any of" is one branch; others are multiplied out, as far
as ``MAX_BRANCHES``; an "any of" about one column alone is a term and needs no branches. A *shape* is everything that
the choice of a plan may depend on, and no operand: two queries of one shape are answered in the same way, and the
decision can be remembered (``kvmodels/query/planning/planner.py``).

Rules of this module: pure; here operands become spans of key parts, and a part that contradicts itself or is contained
in another one is dropped. A shape is immutable and hashable; a rule of the planner can ask for its attributes only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

from kvmodels.catalog.collection import LiveCollection
from kvmodels.query.query import Query
from kvmodels.schema.definition.definition import Column, ColumnSource, IndexDefinition, ModelSchema, Partial
from kvmodels.schema.filters.operands import PRIMARY_KEY
from kvmodels.schema.filters.predicate import (
    EVERYTHING,
    NEVER,
    AllOf,
    AnyOf,
    Condition,
    Conjunction,
    Span,
    Spans,
    ascending_column,
    conditions_of,
    contains,
    covers,
    has_spans,
    implies,
    intersection,
    parts_of,
)

MAX_BRANCHES: Final = 64
"""The most alternatives that a filter is multiplied out to; one with more is tested instead."""

_WIDE: Final = frozenset({"ne", "not_in"})

Part = Condition | AnyOf


class ColumnTerm:
    """All conditions of a filter on one column; the spans of its key parts are cut on demand and kept.

    Attributes:
        plain: it says that the column has one value, which is not None.
    """

    __slots__ = ("_spans", "at", "field", "many", "parts", "plain", "source")

    def __init__(self, source: ColumnSource, parts: tuple[Part, ...], at: tuple[int, ...]) -> None:
        self.source = source
        self.field = source.name
        self.many = source.many
        self.parts = parts
        self.at = at
        self.plain = len(parts) == 1 and isinstance(first := parts[0], Condition) and _is_plain(first)
        self._spans: dict[tuple[bool, bool], Spans] = {}

    def spans(self, column: Column) -> Spans:
        """The parts of this column, which is one of the source, that satisfy all of it."""
        key = (column.descending, column.nullable)
        found = self._spans.get(key)
        if found is None:
            found = reduce(intersection, (_spans_of(part, column) for part in self.parts), EVERYTHING)
            self._spans[key] = found
        return found

    @property
    def compared(self) -> Spans:
        """The spans of the ascending column, with None only if the column may hold it."""
        return self.spans(ascending_column(self.source, is_nullable=self.source.nullable))

    @property
    def value(self) -> Any:
        """The value of a plain term."""
        (condition,) = self.parts
        assert isinstance(condition, Condition)  # it is plain
        return condition.operand

    def listed(self) -> dict[int, Any]:
        """The values of a list, by the place of each among ``compared``; for people, who wrote values and no spans."""
        column = ascending_column(self.source, is_nullable=self.source.nullable)
        places = {span.start: at for at, span in enumerate(self.compared)}
        lists = [part for part in self.parts if isinstance(part, Condition) and part.lookup == "in"]
        # None may be listed for a column that never holds it, and then has no place.
        values = [value for part in lists for value in part.operand if column.nullable or value is not None]
        packed = [(column.codec.pack(value), value) for value in values]
        return {places[part]: value for part, value in packed if part in places}

    @property
    def excludes_none(self) -> bool:
        """Whether no record whose column is None satisfies it."""
        if not self.source.nullable:
            return True
        column = ascending_column(self.source, is_nullable=True)
        return not contains(self.spans(column), column.codec.pack(None))

    @property
    def narrows(self) -> bool:
        """Whether it leaves out more than single values."""
        return any(narrows(part) for part in self.parts)


class Branch:
    """Parts that all hold.

    Attributes:
        parts: all of them, in the order of the filter.
        terms: what columns could bind.
        keys: the place of a list of composite primary keys, if there is one.
    """

    __slots__ = ("keys", "parts", "terms")

    def __init__(self, parts: Conjunction, terms: tuple[ColumnTerm, ...], keys: int | None) -> None:
        self.parts = parts
        self.terms = terms
        self.keys = keys


class FilterParts(NamedTuple):
    """A filter taken apart: the whole of it, and its alternatives (None: too many)."""

    stem: Branch
    branches: Sequence[Branch] | None


def partials_of(live: LiveCollection) -> Sequence[IndexDefinition]:
    """Return the readable indexes with a condition, which a filter may satisfy."""
    return [index.definition for index in live.readable.values() if index.definition.where is not None]


def _is_plain(condition: Condition) -> bool:
    return condition.lookup == "exact" and not condition.negated


def narrows(part: Part) -> bool:
    """Whether a part of a filter leaves out more than single values."""
    if isinstance(part, AnyOf):
        return all(
            narrows(option) if isinstance(option, Condition) else any(map(narrows, option.parts))
            for option in part.parts
        )
    return (part.lookup in _WIDE) is part.negated


def branch_of(schema: ModelSchema, parts: Conjunction) -> Branch:
    """Return the branch of parts that all hold."""
    scalar: dict[str, tuple[ColumnSource, list[int]]] = {}
    several: list[tuple[ColumnSource, int]] = []
    keys: int | None = None
    for at, part in enumerate(parts):
        if isinstance(part, Condition) and part.field == PRIMARY_KEY:
            keys = at if keys is None and part.lookup == "in" and not part.negated else keys
            continue
        source = _source_of(schema, part)
        if source is None:
            continue
        if source.many:
            several.append((source, at))
        else:
            scalar.setdefault(source.name, (source, []))[1].append(at)
    terms = [ColumnTerm(source, tuple(parts[i] for i in at), tuple(at)) for source, at in scalar.values()]
    terms += [ColumnTerm(source, (parts[at],), (at,)) for source, at in several]
    return Branch(parts, tuple(terms), keys)


def can_match(branch: Branch) -> bool:
    """Whether no term contradicts itself, and nothing never holds."""
    for term in branch.terms:
        if not (term.plain or term.compared):
            return False
    return NEVER not in branch.parts


def branches_of(schema: ModelSchema, where: Conjunction) -> list[Branch] | None:
    """Return the alternatives of a filter, none when nothing can match; None if there are more than ``MAX_BRANCHES``.

    The parts that hold in all alternatives come first in each, in the same order.
    """
    expanded = _expanded(schema, where)
    if expanded is None:
        return None
    branches = [branch_of(schema, parts) for parts in expanded]
    return _without_contained([branch for branch in branches if can_match(branch)])


# --- spans ------------------------------------------------------------------------------------------------------


def _source_of(schema: ModelSchema, part: Part) -> ColumnSource | None:
    """The column that a part alone is about, None when there is none or its meaning is no set of key parts."""
    if isinstance(part, Condition):
        source = None if part.field == PRIMARY_KEY else schema.source(part.field)
        return source if source is not None and has_spans(part, source) else None
    conditions = tuple(conditions_of(part))
    if not conditions:
        return None
    field = conditions[0].field
    source = None if field == PRIMARY_KEY else schema.source(field)
    if source is None or any(one.field != field or not has_spans(one, source) for one in conditions):
        return None
    # Two conditions on any of several values may be met by two values, so they have no common spans.
    joined = any(isinstance(option, AllOf) for option in part.parts)
    return None if source.many and joined else source


def _spans_of(part: Part, column: Column) -> Spans:
    if isinstance(part, Condition):
        return parts_of(part, column)
    found: list[Span] = []
    for option in part.parts:
        conditions = (option,) if isinstance(option, Condition) else option.parts
        spans = reduce(intersection, (_spans_of(condition, column) for condition in conditions), EVERYTHING)
        found += spans
    return _united(found)


def _united(spans: Iterable[Span]) -> Spans:
    """Sorted spans without those that lie in others; points stay points."""
    united: list[Span] = []
    for span in sorted(spans):
        last = united[-1] if united else None
        if last is None or span.start > last.end or (span.start == last.end and (span.point or last.point)):
            united.append(span)
        elif span.end > last.end:
            united[-1] = Span(last.start, span.end)
        elif span.start == last.start and span.end == last.end:
            united[-1] = Span(span.start, span.end, point=span.point or last.point)
    return tuple(united)


# --- alternatives -----------------------------------------------------------------------------------------------


def _expanded(schema: ModelSchema, parts: Conjunction) -> list[Conjunction] | None:
    """Every way to choose one alternative of each "any of" that is about several columns."""
    stem: list[Part] = []
    choices: list[list[Conjunction]] = []
    for part in parts:
        if isinstance(part, Condition) or _source_of(schema, part) is not None:
            stem.append(part)
            continue
        options: list[Conjunction] = []
        for option in _by_column(schema, part):
            inner = _expanded(schema, option)
            if inner is None:
                return None
            options += inner
        choices.append(options)
    found: list[Conjunction] = [tuple(stem)]
    for options in choices:
        if len(found) * len(options) > MAX_BRANCHES:
            return None
        found = [_joined(before, option) for before in found for option in options]
    return found


def _by_column(schema: ModelSchema, part: AnyOf) -> list[Conjunction]:
    """The alternatives of an "any of", those about the same column made one: they are ranges of one walk."""
    grouped: dict[object, list[Condition | AllOf]] = {}
    for number, option in enumerate(part.parts):
        source = _source_of(schema, AnyOf((option,)))
        grouped.setdefault(number if source is None else source.name, []).append(option)
    found: list[Conjunction] = []
    for options in grouped.values():
        first = options[0]
        if len(options) > 1:
            found.append((AnyOf(tuple(options)),))
        else:
            found.append(first.parts if isinstance(first, AllOf) else (first,))
    return found


def _joined(before: Conjunction, option: Conjunction) -> Conjunction:
    return (*before, *(part for part in option if part not in before))


def _without_contained(branches: Sequence[Branch]) -> list[Branch]:
    """Without branches whose records another one finds as well; of two that are equal, the first stays."""
    kept: list[Branch] = []
    for branch in branches:
        if any(_contained(branch, other) for other in kept):
            continue
        kept = [other for other in kept if not _contained(other, branch)]
        kept.append(branch)
    return kept


def _contained(inner: Branch, outer: Branch) -> bool:
    """Whether every record of ``inner`` is one of ``outer``; "no" may be wrong."""
    answered = {at for term in outer.terms if any(_implied(term, mine) for mine in inner.terms) for at in term.at}
    return all(at in answered or part in inner.parts for at, part in enumerate(outer.parts))


def _implied(outer: ColumnTerm, inner: ColumnTerm) -> bool:
    return outer.field == inner.field and covers(((span.start, span.end) for span in outer.compared), inner.compared)


MAX_PRODUCT: Final = 1_000
"""The most ranges, or scans, that several lists of values may multiply to; one list alone may have more ranges."""


class TermShape(NamedTuple):
    """A term without its operands.

    Attributes:
        field: of the column.
        many: on any of several values.
        points: it leaves single values, and not ranges of them.
        size: how many values or ranges; beyond ``MAX_PRODUCT`` + 1 numbers are all alike.
        narrows: it leaves out more than single values, and more than objects of other classes than the query is about.
        excludes_none: no record whose column is None satisfies it.
        at: the places of its parts in the branch.
    """

    field: str
    many: bool
    points: bool
    size: int
    narrows: bool
    excludes_none: bool
    at: tuple[int, ...]


class Guarantee(NamedTuple):
    """A partial index that has every record of a branch, and the parts that each of its records satisfies."""

    name: str
    parts: tuple[int, ...]
    narrows: bool


class BranchShape(NamedTuple):
    """A branch without its operands.

    Attributes:
        parts: for each part, the fields that testing it needs.
        terms: what columns could bind.
        keys: the place of a list of composite primary keys.
        partials: the indexes with a condition that have all its records.
    """

    parts: tuple[tuple[str, ...], ...]
    terms: tuple[TermShape, ...]
    keys: int | None
    partials: tuple[Guarantee, ...]


class QueryShape(NamedTuple):
    """A query without its operands.

    Attributes:
        stem: the whole filter, its alternatives untouched.
        branches: its alternatives; the stem alone when there are none, None when they are too many.
        common: how many parts at the beginning of every alternative are the same.
        order: field and "descending", with ``reverse`` applied.
        reverse: the other way round; it decides where no order is asked for.
        using: the only index to consider, by its name or ``pk``.
        sorts: a sort in memory is permitted.
        scans: reading everything is permitted.
        fields: what each result must show; None: the whole object.
        within: the only indexes to consider, ``""`` for the primary key; None: all.
    """

    stem: BranchShape
    branches: tuple[BranchShape, ...] | None
    common: int
    order: tuple[tuple[str, bool], ...]
    reverse: bool
    using: str | None
    sorts: bool
    scans: bool
    fields: tuple[str, ...] | None
    within: frozenset[str] | None


def shape_of(
    query: Query,
    stem: Branch,
    branches: Sequence[Branch] | None,
    partials: Sequence[IndexDefinition],
    within: frozenset[str] | None,
) -> QueryShape:
    """The shape of a query."""
    schema = query.schema
    single = branches is not None and len(branches) == 1
    implicit = _implicit(query)
    described = _described(schema, stem, partials, implicit, exact=not single)
    alternatives: tuple[BranchShape, ...] | None = (described,)
    if branches is None:
        alternatives = None
    elif not single:
        alternatives = tuple(_described(schema, branch, partials, implicit, exact=True) for branch in branches)
    return QueryShape(
        described,
        alternatives,
        0 if single or branches is None else _common(branches),
        query.directions,
        query.reverse,
        query.using,
        query.sort_limit is not None,
        query.scan_allowed,
        query.fields,
        within,
    )


def _common(branches: Sequence[Branch]) -> int:
    first, *others = (branch.parts for branch in branches)
    same = 0
    while all(same < len(parts) and parts[same] is first[same] for parts in (first, *others)):
        same += 1
    return same


def _implicit(query: Query) -> tuple[Part, ...]:
    """Return the implicit condition on the class, where it does not permit to read all objects of a class.

    An index on the classes is always there, so without this a filter that no index answers would read them all.
    """
    variants = query.schema.variants
    return () if variants is None or query.scan_allowed or query.using is not None else variants.where


def _described(
    schema: ModelSchema,
    branch: Branch,
    partials: Sequence[IndexDefinition],
    implicit: tuple[Part, ...],
    *,
    exact: bool,
) -> BranchShape:
    terms = [_term(term, implicit) for term in branch.terms]
    if not exact and sum(term.size > 1 for term in terms) == 1:
        # One list of values alone: only whether it is over the bound matters, so queries with lists of other lengths
        # share their plan.
        terms = [term._replace(size=2) if 1 < term.size <= MAX_PRODUCT else term for term in terms]
    return BranchShape(
        tuple(_part(part) for part in branch.parts),
        tuple(terms),
        branch.keys,
        tuple(_guarantee(branch, definition, implicit) for definition in partials if _holds(schema, branch, definition))
        if partials
        else (),
    )


def _narrows(term: ColumnTerm, implicit: tuple[Part, ...]) -> bool:
    return term.narrows and not all(any(part is one for one in implicit) for part in term.parts)


def _term(term: ColumnTerm, implicit: tuple[Part, ...]) -> TermShape:
    if term.plain:
        return TermShape(term.field, term.many, True, 1, _narrows(term, implicit), True, term.at)
    spans = term.compared
    return TermShape(
        term.field,
        term.many,
        all(span.point for span in spans),
        min(len(spans), MAX_PRODUCT + 1),
        _narrows(term, implicit),
        term.excludes_none,
        term.at,
    )


def _part(part: Part) -> tuple[str, ...]:
    if isinstance(part, Condition):
        return (part.field,)
    return tuple(dict.fromkeys(condition.field for condition in conditions_of(part)))


# --- partial indexes --------------------------------------------------------------------------------------------


def _holds(schema: ModelSchema, branch: Branch, definition: IndexDefinition) -> bool:
    return definition.where is not None and implies(schema, branch.parts, definition.where)


def _guarantee(branch: Branch, definition: IndexDefinition, implicit: tuple[Part, ...]) -> Guarantee:
    """Return the parts that need no test on rows of the index: only records that satisfy them have entries."""
    assert definition.where is not None  # it holds
    terms = [term for term in branch.terms if not term.many and _guaranteed(term, definition.where)]
    return Guarantee(
        definition.name, tuple(at for term in terms for at in term.at), any(_narrows(term, implicit) for term in terms)
    )


def _guaranteed(term: ColumnTerm, partial: Partial) -> bool:
    """Whether every alternative of the condition lies in the spans of a term."""
    column = ascending_column(term.source, is_nullable=True)
    wanted = [(span.start, span.end) for span in term.spans(column)]
    return all(
        any(
            test.column.field == term.field
            and test.column.path == term.source.path
            and test.column.codec.name == term.source.codec.name
            and covers(wanted, (Span(start, end) for start, end in test.spans))
            for test in tests
        )
        for tests in partial.alternatives
    )
