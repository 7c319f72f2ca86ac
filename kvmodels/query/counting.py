"""Which counters of an aggregate index give the numbers and sums of a query, and where they lie.

An aggregate index serves a query if the values of its columns decide everything that is asked: each part of the filter
is about one of its columns, or follows from its condition (``where=``). Then the totals of the query are the totals of
the counters whose group passes, and a group of the query is one counter group, or several that are added up.

Rules of this module: pure. A column with several values counts a record once for each of them, so it must be bound to
one value, or be grouped by without a condition on it. An index that leaves out None serves what excludes None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kvmodels.keys import split_key
from kvmodels.operations import after_prefix
from kvmodels.query.aggregation import Measure
from kvmodels.query.branches import Branch, Term, branches_of
from kvmodels.query.plans import KeyRange
from kvmodels.query.query import Query
from kvmodels.query.shapes import shape_of
from kvmodels.schema.definition import Column, IndexDefinition, ModelSchema
from kvmodels.schema.live import LiveCollection, LiveIndex
from kvmodels.schema.spans import EVERYTHING, Spans, contains
from kvmodels.slotted import dataclass

__all__ = ["COUNT", "EVERY_RECORD", "CounterPlan", "counter_plan", "kinds_of", "unready_counters"]

COUNT: Final = "count"

EVERY_RECORD: Final = Measure(COUNT, COUNT, None, None, nullable=False)
"""The number of records."""

Directions = Sequence[tuple[str, bool]]
"""Fields, each with "descending"."""

_MOST_GROUPS: Final = 1_000
"""The most groups that are named one by one; beyond, they are read as a range and passed over where they do not fit."""


@dataclass(frozen=True, slots=True)
class CounterPlan:
    """The counters that answer a query.

    Attributes:
        index: the aggregate index.
        groups: packed prefixes of complete groups, whose counters are read by key; empty when ranges are read.
        ranges: packed key ranges of counters, ascending.
        tests: positions of columns with the spans of the parts that pass, for ranges.
        places: the position in the index of each column that the query groups by, in the order of the groups.
        ordered: the counters come in the order of the groups; otherwise groups must be put together in memory.
        reverse: the ranges are read from their end.
    """

    index: LiveIndex
    groups: tuple[bytes, ...]
    ranges: tuple[KeyRange, ...]
    tests: tuple[tuple[int, Spans], ...]
    places: tuple[int, ...]
    ordered: bool
    reverse: bool

    @property
    def name(self) -> str:
        """Name of the index."""
        return self.index.definition.name

    def parts_in(self, key: bytes) -> Sequence[bytes] | None:
        """The packed columns in the key of a counter, and its kind; None for a group that does not pass."""
        prefix = self.index.layout.prefix
        parts = split_key(key[len(prefix) :])
        passes = all(contains(spans, parts[at]) for at, spans in self.tests)
        return parts if passes else None


class _Fit(NamedTuple):
    """What an aggregate index does for a query: spans of its columns, places and direction as in ``CounterPlan``.

    ``reverse`` is None when the counters do not come in the order of the groups.
    """

    name: str
    spans: list[Spans]
    places: tuple[int, ...]
    reverse: bool | None


def kinds_of(definition: IndexDefinition, measure: Measure) -> tuple[str, ...] | None:
    """The counters that a result is made of, besides the number of records; None if the index does not keep it."""
    if measure.function == "count" and (measure.field is None or not measure.nullable):
        return ()
    assert definition.aggregates is not None  # it is an aggregate index
    column = next((column for column in definition.aggregates.sums if column.field == measure.field), None)
    if column is None or measure.function in ("min", "max"):
        return None
    present = (f"present:{column.field}",) if column.nullable else ()
    if measure.function == "count":
        return present
    return (f"sum:{column.field}", f"sum:{column.field}:high", *present)


def counter_plan(
    query: Query, live: LiveCollection, measures: Sequence[Measure], order: Directions = ()
) -> CounterPlan | None:
    """The counters of the first aggregate index that keeps all these results for this query; None if there is none.

    Args:
        query: the filter; its order and its slice are not looked at.
        live: the collection with the indexes that are readable now.
        measures: the results.
        order: the fields to group by and whether they descend, in the order of the groups; nothing for totals.
    """
    definitions = [index.definition for index in live.readable.values()]
    # One that has the groups in order needs no memory; then fewer columns are fewer counters.
    fits = sorted(_fits(query, definitions, measures, order), key=lambda fit: (fit.reverse is None, len(fit.spans)))
    return _plan(live.readable[fits[0].name], fits[0]) if fits else None


def unready_counters(
    query: Query, live: LiveCollection, measures: Sequence[Measure], order: Directions = ()
) -> str | None:
    """The name of the first aggregate index that would answer if it were readable; None if there is none."""
    waiting = [query.schema.indexes[name] for name in live.states]
    return next((fit.name for fit in _fits(query, waiting, measures, order)), None)


def _fits(
    query: Query, definitions: Iterable[IndexDefinition], measures: Sequence[Measure], order: Directions
) -> list[_Fit]:
    """The aggregate indexes that answer."""
    candidates = [
        definition
        for definition in definitions
        if definition.aggregates is not None
        and query.using in (None, definition.name)
        and all(kinds_of(definition, measure) is not None for measure in measures)
    ]
    branches = branches_of(query.schema, query.where) if candidates else None
    if branches is None or len(branches) != 1:
        return []
    found = (_fit(query, branches[0], definition, order) for definition in candidates)
    return [fit for fit in found if fit is not None]


def _fit(query: Query, branch: Branch, definition: IndexDefinition, order: Directions) -> _Fit | None:
    names = [column.field for column in definition.columns]
    grouped = [field for field, _ in order]
    terms = _terms(query, branch, definition)
    if terms is None or not set(grouped) <= set(names):
        return None
    if not all(_sees_all(query.schema, definition, column, terms, grouped) for column in definition.columns):
        return None
    spans = [_spans(terms, column) for column in definition.columns]
    places = tuple(names.index(name) for name in grouped)
    return _Fit(definition.name, spans, places, _direction(definition, spans, places, order))


def _terms(query: Query, branch: Branch, definition: IndexDefinition) -> Mapping[str, list[Term]] | None:
    """The terms on the columns of the index; None if something else must be tested on the records."""
    guaranteed: set[int] = set()
    if definition.where is not None:
        partials = shape_of(query, branch, [branch], [definition], None).stem.partials
        if not partials:
            return None
        guaranteed.update(partials[0].parts)
    terms: dict[str, list[Term]] = {}
    names = {column.field for column in definition.columns}
    for term in branch.terms:
        if term.field in names:
            terms.setdefault(term.field, []).append(term)
    answered = guaranteed.union(at for group in terms.values() for term in group for at in term.at)
    return terms if len(answered) == len(branch.parts) else None


def _sees_all(
    schema: ModelSchema,
    definition: IndexDefinition,
    column: Column,
    terms: Mapping[str, list[Term]],
    grouped: Sequence[str],
) -> bool:
    """Whether the column leaves out no record of the query, and counts none twice in one group."""
    group = terms.get(column.field, [])
    source = schema.source(column.field)
    if source is None or source.codec.name != column.codec.name or source.nullable != column.nullable:
        return False
    if column.many:
        if column.field in grouped:
            return not group
        return len(group) == 1 and len(group[0].spans(column)) == 1 and group[0].spans(column)[0].point
    skips = definition.nulls == "skip" and column.nullable
    return not skips or any(term.excludes_none for term in group)


def _spans(terms: Mapping[str, list[Term]], column: Column) -> Spans:
    group = terms.get(column.field)
    return group[0].spans(column) if group else EVERYTHING


def _direction(
    definition: IndexDefinition, spans: Sequence[Spans], places: Sequence[int], order: Directions
) -> bool | None:
    """Whether counters are read backwards to come in the order of the groups; None if they do not come in it."""
    free = [at for at in range(len(spans)) if not (len(spans[at]) == 1 and spans[at][0].point)]
    asked = {at: descending for at, (_, descending) in zip(places, order, strict=True) if at in free}
    if free[: len(asked)] != list(asked):
        return None
    turned = {descending is not definition.columns[at].descending for at, descending in asked.items()}
    return None if len(turned) > 1 else turned == {True}


def _plan(index: LiveIndex, fit: _Fit) -> CounterPlan:
    spans, places = fit.spans, fit.places
    heads = [index.layout.prefix]
    bound = 0
    for column_spans in spans:
        points = all(span.point for span in column_spans)
        if not points or len(heads) * len(column_spans) > _MOST_GROUPS:
            break
        heads = [head + span.start for head in heads for span in column_spans]
        bound += 1
    ordered, backwards = fit.reverse is not None, bool(fit.reverse)
    if bound == len(spans):
        return CounterPlan(index, tuple(heads), (), (), places, ordered, backwards)
    last = spans[bound]
    if last is EVERYTHING:
        ranges = tuple(KeyRange(head, after_prefix(head)) for head in heads)
    else:
        ranges = tuple(KeyRange(head + span.start, head + span.end) for head in heads for span in last)
    tests = tuple((at, spans[at]) for at in range(bound + 1, len(spans)) if spans[at] is not EVERYTHING)
    return CounterPlan(index, (), ranges, tests, places, ordered, backwards)
