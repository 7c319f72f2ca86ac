"""Alternatives and shape of a filter: the input of the planner's decision.

A *term* combines all conditions on one single-value column, or is one condition on any value of a column with several.
A *branch* is a set of parts that must all hold. A filter without "any of" is one branch; other filters are multiplied
out, up to ``MAX_BRANCHES``. An "any of" on a single column is a term and needs no branches. A *shape* contains
everything that can affect the choice of a plan, but no operands: two queries of one shape get the same decision, which
can be cached (``kvmodels/query/planning/planner.py``).

Rules of this module: pure. Operands are converted to spans of key parts, and a part that contradicts itself or is
contained in another one is dropped. A shape is immutable and hashable; the planner's rules only read its attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

from kvmodels.catalog.collection import LiveCollection
from kvmodels.query.planning.kind_terms import KindTerm, kind_terms
from kvmodels.query.query import Query
from kvmodels.schema.definition.definition import (
    Column,
    ColumnSource,
    IndexDefinition,
    ModelSchema,
    PartialCondition,
    SpanTest,
)
from kvmodels.schema.filters.field_operands import OF_FIELDS
from kvmodels.schema.filters.kind_lookups import OF_KIND, fields_of_test
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
    possible,
)

MAX_BRANCHES: Final = 64
"""The maximum number of alternatives that a filter is multiplied out to; a larger "any of" is tested instead."""

_WIDE: Final = frozenset({"ne", "not_in"})

Part = Condition | AnyOf


class ColumnTerm:
    """All conditions of a filter on one column; their spans of key parts are computed at first use and cached."""

    of_kind = splits = False

    def __init__(self, source: ColumnSource, parts: tuple[Part, ...], at: tuple[int, ...]) -> None:
        self.source = source
        self.field = source.name
        self.many = source.many
        self.parts = parts
        self.at = self.served = at
        self._spans: dict[tuple[bool, bool, tuple[str, ...]], Spans] = {}

    def spans(self, column: Column) -> Spans:
        """Return the parts of this column that satisfy the whole term; the column must belong to the source."""
        key = (column.descending, column.nullable, column.path)
        found = self._spans.get(key)
        if found is None:
            found = reduce(intersection, (_spans_of(part, column) for part in self.parts), EVERYTHING)
            self._spans[key] = found
        return found

    @property
    def compared(self) -> Spans:
        """Return the spans of the ascending column, with None only if the column can hold it."""
        return self.spans(ascending_column(self.source, is_nullable=self.source.nullable))

    def listed(self) -> dict[int, Any]:
        """Return the values of a list by their positions among ``compared``; readable output shows these values."""
        column = ascending_column(self.source, is_nullable=self.source.nullable)
        places = {span.start: at for at, span in enumerate(self.compared)}
        lists = [part for part in self.parts if isinstance(part, Condition) and part.lookup == "in"]
        # A listed None has no position if the column never holds None.
        values = [value for part in lists for value in part.operand if column.nullable or value is not None]
        packed = [(column.codec.pack(value), value) for value in values]
        return {places[part]: value for part, value in packed if part in places}

    @property
    def excludes_none(self) -> bool:
        """Return whether the term excludes every record whose column is None."""
        if not self.source.nullable:
            return True
        column = ascending_column(self.source, is_nullable=True)
        return not contains(self.spans(column), column.codec.pack(None))

    @property
    def narrows(self) -> bool:
        """Return whether it excludes more than single values."""
        return any(narrows(part) for part in self.parts)


Term = ColumnTerm | KindTerm


class Branch(NamedTuple):
    """Parts that must all hold.

    Attributes:
        parts: all parts, in the order of the filter.
        terms: the terms that columns could bind.
        keys: the position of a list of composite primary keys, if there is one.
    """

    parts: Conjunction
    terms: tuple[Term, ...]
    keys: int | None


class FilterParts(NamedTuple):
    """The parts of a filter: the complete filter, and its alternatives (None: too many)."""

    stem: Branch
    branches: Sequence[Branch] | None


def partials_of(live: LiveCollection) -> Sequence[IndexDefinition]:
    """Return the readable partial indexes, whose conditions the filter may imply."""
    return [index.definition for index in live.readable.values() if index.definition.where is not None]


def tested_by_partials(live: LiveCollection) -> set[str]:
    """Return the fields in the conditions of readable partial indexes."""
    conditions = [definition.where.alternatives for definition in partials_of(live) if definition.where is not None]
    return {test.column.field for alternatives in conditions for tests in alternatives for test in tests}


def narrows(part: Part) -> bool:
    """Return whether a part of a filter excludes more than single values."""
    if isinstance(part, AnyOf):
        return all(
            narrows(option) if isinstance(option, Condition) else any(map(narrows, option.parts))
            for option in part.parts
        )
    return (part.lookup in _WIDE) is part.negated


def branch_of(schema: ModelSchema, parts: Conjunction) -> Branch:
    """Return the branch of parts that must all hold."""
    scalar: dict[str, tuple[ColumnSource, list[int]]] = {}
    several: list[tuple[ColumnSource, int]] = []
    keys: int | None = None
    of_kind = False
    for at, part in enumerate(parts):
        if isinstance(part, Condition) and part.field == PRIMARY_KEY:
            keys = at if keys is None and part.lookup == "in" and not part.negated else keys
            continue
        source = _source_of(schema, part)
        if source is None:
            of_kind = of_kind or (isinstance(part, Condition) and part.lookup == OF_KIND)
            continue
        if source.many:
            several.append((source, at))
        else:
            scalar.setdefault(source.name, (source, []))[1].append(at)
    terms: list[Term] = [ColumnTerm(source, tuple(parts[i] for i in at), tuple(at)) for source, at in scalar.values()]
    terms += [ColumnTerm(source, (parts[at],), (at,)) for source, at in several]
    if of_kind:
        terms += kind_terms(schema, parts)
    return Branch(parts, tuple(terms), keys)


def can_match(branch: Branch) -> bool:
    """Return whether no term contradicts itself, and no part is always false."""
    return all(term.compared for term in branch.terms) and NEVER not in branch.parts


def branches_of(schema: ModelSchema, where: Conjunction) -> list[Branch] | None:
    """Return the alternatives of a filter, empty if nothing can match; None if there are more than ``MAX_BRANCHES``.

    Every alternative begins with the parts common to all, in the same order.
    """
    expanded = _expanded(schema, where)
    if expanded is None:
        return None
    branches = [branch_of(schema, parts) for parts in expanded]
    return _without_contained([branch for branch in branches if can_match(branch)])


# --- spans ------------------------------------------------------------------------------------------------------


def _source_of(schema: ModelSchema, part: Part) -> ColumnSource | None:
    """Return the column of a part on one column; None if there is none, or the part is not a set of key parts."""
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
    # Two conditions on any of several values may be satisfied by two different values, so they have no common spans.
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
    """Return sorted spans without those that are contained in others; points stay points."""
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
    """Return every choice of one alternative from each "any of" on several columns."""
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
    """Return the alternatives of an "any of", with those on one column combined, since one scan reads their ranges."""
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
    """Return the branches without those that are contained in another one; of equal branches the first stays."""
    kept: list[Branch] = []
    for branch in branches:
        if any(_contained(branch, other) for other in kept):
            continue
        kept = [other for other in kept if not _contained(other, branch)]
        kept.append(branch)
    return kept


def _contained(inner: Branch, outer: Branch) -> bool:
    """Return whether every record of ``inner`` is one of ``outer``; False may be wrong."""
    answered = {at for term in outer.terms if any(_implied(term, mine) for mine in inner.terms) for at in term.at}
    return all(at in answered or part in inner.parts for at, part in enumerate(outer.parts))


def _implied(outer: Term, inner: Term) -> bool:
    # The spans of a lookup that is tested again say nothing about what it matches.
    if outer.field != inner.field or len(outer.served) < len(outer.at):
        return False
    return covers(((span.start, span.end) for span in outer.compared), inner.compared)


MAX_PRODUCT: Final = 1_000
"""The maximum number of ranges or scans from the product of several lists of values; a single list may have more."""


class TermShape(NamedTuple):
    """A term without its operands.

    Attributes:
        field: the name of the column.
        many: whether it is a condition on any of several values.
        points: whether it leaves single values instead of ranges.
        size: the number of values or ranges, at most ``MAX_PRODUCT`` + 1.
        narrows: whether it excludes more than single values, and more than objects of classes outside the query.
        excludes_none: whether it excludes every record whose column is None.
        at: the positions of its parts in the branch.
        served: the positions of those that need no test where the term is bound.
        of_kind: whether it has lookups of a kind of index.
        splits: whether each range lies within one value of a key part, so that it can be read as one scan of an order.
    """

    field: str
    many: bool
    points: bool
    size: int
    narrows: bool
    excludes_none: bool
    at: tuple[int, ...]
    served: tuple[int, ...]
    of_kind: bool
    splits: bool


class Guarantee(NamedTuple):
    """A partial index with entries for every record of a branch, and the parts that all its records satisfy."""

    name: str
    parts: tuple[int, ...]
    narrows: bool


class BranchShape(NamedTuple):
    """A branch without its operands.

    Attributes:
        parts: for each part, the fields that its test needs.
        terms: the terms that columns could bind.
        keys: the position of a list of composite primary keys.
        partials: the partial indexes with entries for all records of the branch.
    """

    parts: tuple[tuple[str, ...], ...]
    terms: tuple[TermShape, ...]
    keys: int | None
    partials: tuple[Guarantee, ...]


class QueryShape(NamedTuple):
    """A query without its operands.

    Attributes:
        stem: the complete filter, not multiplied out.
        branches: its alternatives; only the stem if there are none, None if there are too many.
        common: the number of parts at the beginning that all alternatives share.
        order: field and "descending", with ``reverse`` applied.
        reverse: the direction, if no order is requested.
        using: the name of the only index to consider, or ``pk``.
        sorts: whether a sort in memory is allowed.
        scans: whether a full scan is allowed.
        fields: the fields of each result, and those for tests of targets; None for whole objects.
        within: the only indexes to consider, ``""`` for the primary key; None for all.
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
    """Return the shape of a query."""
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
        query.fields if query.fields is None else (*query.fields, *query.target_test_fields),
        within,
    )


def _common(branches: Sequence[Branch]) -> int:
    first, *others = (branch.parts for branch in branches)
    same = 0
    while all(same < len(parts) and parts[same] is first[same] for parts in (first, *others)):
        same += 1
    return same


def _implicit(query: Query) -> tuple[Part, ...]:
    """Return the implicit condition on the class, unless all objects of a class may be read.

    The index on the classes always exists; without this, a filter that no index serves would read all objects of the
    class.
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
        # For a single list of values, only whether it exceeds the maximum matters, so that queries with lists of other
        # lengths share their plan.
        terms = [term._replace(size=2) if 1 < term.size <= MAX_PRODUCT else term for term in terms]
    return BranchShape(
        tuple(
            (part.field,)
            if isinstance(part, Condition) and part.lookup not in (OF_KIND, OF_FIELDS)
            else tuple(dict.fromkeys(field for c in conditions_of(part) for field in tested_fields(schema, c)))
            for part in branch.parts
        ),
        tuple(terms),
        branch.keys,
        tuple(_guarantees(schema, branch, partials, implicit)),
    )


def tested_fields(schema: ModelSchema, condition: Condition) -> tuple[str, ...]:
    """Return the fields that the test of a condition reads."""
    if condition.lookup == OF_KIND:
        return fields_of_test(schema, condition.operand)
    if condition.lookup == OF_FIELDS:
        return (condition.field, condition.operand.field)
    return (condition.field,)


def _narrows(term: Term, implicit: tuple[Part, ...]) -> bool:
    return term.narrows and not all(any(part is one for one in implicit) for part in term.parts)


def _term(term: Term, implicit: tuple[Part, ...]) -> TermShape:
    spans = term.compared
    return TermShape(
        term.field,
        term.many,
        all(span.point for span in spans),
        min(len(spans), MAX_PRODUCT + 1),
        _narrows(term, implicit),
        term.excludes_none,
        term.at,
        term.served,
        term.of_kind,
        term.splits,
    )


# --- partial indexes --------------------------------------------------------------------------------------------


def _guarantees(
    schema: ModelSchema, branch: Branch, partials: Iterable[IndexDefinition], implicit: tuple[Part, ...]
) -> Iterable[Guarantee]:
    """Yield the parts that need no test on rows of an index, because all its records satisfy them."""
    for definition in partials:
        where = definition.where
        if where is None or not implies(schema, branch.parts, where):
            continue
        places = tuple(at for at, part in enumerate(branch.parts) if _guaranteed(schema, part, where))
        terms = [term for term in branch.terms if not term.many and all(at in places for at in term.at)]
        of_terms = {at for term in terms for at in term.at}
        narrowing = any(_narrows(term, implicit) for term in terms)
        others = any(narrows(branch.parts[at]) for at in places if at not in of_terms)
        yield Guarantee(definition.name, places, narrowing or others)


def _guaranteed(schema: ModelSchema, part: Part, partial: PartialCondition) -> bool:
    """Return whether every record that satisfies the condition satisfies a part of a filter."""
    return all(_satisfied(schema, part, tests) for tests in partial.alternatives)


def _satisfied(schema: ModelSchema, part: Part | AllOf, tests: Iterable[SpanTest]) -> bool:
    """Return whether every record that passes the tests of one alternative satisfies a part."""
    if isinstance(part, AllOf):
        return all(_satisfied(schema, one, tests) for one in part.parts)
    source = _source_of(schema, part)
    if source is None or source.many:
        # Of an "any of" on several columns, one alternative is enough.
        return isinstance(part, AnyOf) and any(_satisfied(schema, option, tests) for option in part.parts)
    own = ascending_column(source, is_nullable=source.nullable)
    return any(_covered(part, source, test) for test in tests) or covers(_spans_of(part, own), possible(own))


def _covered(part: Part, source: ColumnSource, test: SpanTest) -> bool:
    theirs = test.column
    if (theirs.field, theirs.path, theirs.codec.name) != (source.name, source.path, source.codec.name):
        return False
    wanted = _spans_of(part, ascending_column(source, is_nullable=theirs.nullable))
    return covers(wanted, intersection(tuple(Span(*span) for span in test.spans), possible(theirs)))
