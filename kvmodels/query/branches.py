"""The filter of a query as the planner sees it: alternatives, and in each the terms that a column of an index can bind.

A *term* is everything that is said about one column of one value, or one condition on any of several values. A
*branch* is a set of parts that all hold. A filter without "any of" is one branch; others are multiplied out, as far
as ``MAX_BRANCHES``; an "any of" about one column alone is a term and needs no branches.

Rules of this module: pure; here operands become spans of key parts, and what contradicts itself or is contained in
something else is dropped. What remains is decided by the shape of the terms alone; see ``query/shapes.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, Final

from kvmodels.schema.definition import Column, ColumnSource, ModelSchema
from kvmodels.schema.names import PRIMARY_KEY
from kvmodels.schema.predicate import NEVER, AllOf, AnyOf, Condition, Conjunction, conditions_of
from kvmodels.schema.spans import (
    EVERYTHING,
    Span,
    Spans,
    ascending_column,
    contains,
    covers,
    has_spans,
    intersection,
    parts_of,
)

__all__ = ["MAX_BRANCHES", "Branch", "Term", "branch_of", "branches_of", "can_match", "narrows"]

MAX_BRANCHES: Final = 64
"""The most alternatives that a filter is multiplied out to; one with more is tested instead."""

_WIDE: Final = frozenset({"ne", "not_in"})

Part = Condition | AnyOf


class Term:
    """What a filter says about one column; the spans of its key parts are cut on demand and remembered.

    Args:
        source: of the column.
        parts: conditions on it, and "any of" about it alone.
        at: their places in the branch.

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

    def __init__(self, parts: Conjunction, terms: tuple[Term, ...], keys: int | None) -> None:
        self.parts = parts
        self.terms = terms
        self.keys = keys


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
    """The terms of parts that all hold."""
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
    terms = [Term(source, tuple(parts[i] for i in at), tuple(at)) for source, at in scalar.values()]
    terms += [Term(source, (parts[at],), (at,)) for source, at in several]
    return Branch(parts, tuple(terms), keys)


def can_match(branch: Branch) -> bool:
    """Whether no term contradicts itself, and nothing never holds."""
    for term in branch.terms:
        if not (term.plain or term.compared):
            return False
    return NEVER not in branch.parts


def branches_of(schema: ModelSchema, where: Conjunction) -> list[Branch] | None:
    """The alternatives of a filter, none when nothing can match; None if there are more than ``MAX_BRANCHES``.

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


def _implied(outer: Term, inner: Term) -> bool:
    return outer.field == inner.field and covers(((span.start, span.end) for span in outer.compared), inner.compared)
