"""The shape of a query: everything that the choice of a plan may depend on, and no operand.

The planner decides on shapes alone, so two queries of one shape are answered in the same way, and the decision can be
remembered (``kvmodels/query/planner.py``).

Rules of this module: immutable, hashable data made of a query. Whatever a rule of the planner asks must be an
attribute here; what is not here cannot be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kvmodels.query.branches import Branch, Part, Term
from kvmodels.query.query import Query
from kvmodels.schema.definition import IndexDefinition, ModelSchema, Partial
from kvmodels.schema.implication import implies
from kvmodels.schema.predicate import Condition, conditions_of
from kvmodels.schema.spans import Span, ascending_column, covers

__all__ = ["MAX_PRODUCT", "BranchShape", "Guarantee", "QueryShape", "TermShape", "shape_of"]

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
    """The shape of a query.

    Args:
        query: what is asked for.
        stem: its whole filter; if there is only one alternative, that.
        branches: the alternatives.
        partials: the indexes with a condition, which a filter may satisfy.
        within: the indexes to consider.
    """
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
    """The condition on the class that nobody has written, where it does not permit to read all objects of a class.

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


def _narrows(term: Term, implicit: tuple[Part, ...]) -> bool:
    return term.narrows and not all(any(part is one for one in implicit) for part in term.parts)


def _term(term: Term, implicit: tuple[Part, ...]) -> TermShape:
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
    """What needs no test on what the index holds, because only records that satisfy it have entries."""
    assert definition.where is not None  # it holds
    terms = [term for term in branch.terms if not term.many and _guaranteed(term, definition.where)]
    return Guarantee(
        definition.name, tuple(at for term in terms for at in term.at), any(_narrows(term, implicit) for term in terms)
    )


def _guaranteed(term: Term, partial: Partial) -> bool:
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
