"""Plans of ``aggregate()`` and ``group_by()``: counters, one end of an index, or one pass.

Sources of an aggregate, in this order: counters of an aggregate index; for a minimum or maximum, one end of an index
that has the field directly after columns with one value; otherwise one pass over the records of the query, or over
index entries that contain all needed fields. Sources of groups: counters; otherwise an index that is sorted by the
groups; otherwise, if ``sort_in_memory(limit)`` allows it, one pass with all groups in memory.

An aggregate index serves a query if its columns determine the result: each part of the filter is a condition on one of
its columns, or follows from its own condition (``where=``). Then the totals of the query are the totals of the matching
counters, and a group of the query is one counter group, or the sum of several.

Rules of this module: pure. The planner of queries plans the passes, so they need the same permissions. A column with
several values counts a record once for each value, so it must be bound to one value, or grouped by without a condition
on it. An index without None serves a query that excludes None. A suggested line of code can be pasted, and then the
groups are served.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final, Literal, NamedTuple

from kvmodels._support.notebooks import html
from kvmodels._support.slotted_dataclass import INTERNAL, dataclass
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.core.keys import split_key
from kvmodels.core.operations import after_prefix
from kvmodels.errors import InvalidArgumentError, NoUsableIndexError
from kvmodels.query.aggregates import Grouping, Measure, fields_of
from kvmodels.query.kinds.registry import ACCESS
from kvmodels.query.orders import order_names
from kvmodels.query.planning.branches import Branch, Term, branches_of, shape_of
from kvmodels.query.planning.distinct import plan_distinct, told_apart
from kvmodels.query.planning.planner import plan_query
from kvmodels.query.planning.refusals import index_to_add, is_one, not_readable
from kvmodels.query.plans import Analysis, KeyRange, QueryPlan
from kvmodels.query.query import Query
from kvmodels.schema.compile.columns import is_summed
from kvmodels.schema.declare.expressions import Order
from kvmodels.schema.definition.definition import Column, IndexDefinition, ModelSchema
from kvmodels.schema.filters.predicate import EVERYTHING, Condition, Spans, contains

COUNT: Final = "count"

EVERY_RECORD: Final = Measure(COUNT, COUNT, None, None, nullable=False)
"""The number of records."""

Directions = Sequence[tuple[str, bool]]
"""Fields, each with "descending"."""

_FOUR_DAYS: Final = "the periods of four days"
"""The periods that are held where clocks may go back: within two days of a moment."""

_MOST_GROUPS: Final = 1_000
"""The maximum number of groups that are listed individually; beyond, a range is read and filtered."""


@dataclass(frozen=True, slots=True)
class CounterPlan:
    """The counters that answer a query.

    Attributes:
        index: the aggregate index.
        groups: packed prefixes of complete groups, whose counters are read by key; empty when ranges are read.
        ranges: packed key ranges of counters, ascending.
        tests: for ranges: positions of columns, with the spans of the matching parts.
        places: the position in the index of each group column, in the order of the groups.
        ordered: whether the counters are sorted by the groups; otherwise groups are combined in memory.
        reverse: whether the ranges are read in descending order.
    """

    index: LiveIndex = field(metadata=INTERNAL)
    groups: tuple[bytes, ...] = field(metadata=INTERNAL)
    ranges: tuple[KeyRange, ...] = field(metadata=INTERNAL)
    tests: tuple[tuple[int, Spans], ...] = field(metadata=INTERNAL)
    places: tuple[int, ...] = field(metadata=INTERNAL)
    ordered: bool
    reverse: bool

    @property
    def name(self) -> str:
        """The name of the index."""
        return self.index.definition.name

    def parts_in(self, key: bytes) -> Sequence[bytes] | None:
        """Return the packed columns and the kind in the key of a counter; None if its group does not match."""
        prefix = self.index.layout.prefix
        parts = split_key(key[len(prefix) :])
        passes = all(contains(spans, parts[at]) for at, spans in self.tests)
        return parts if passes else None


class _AggregateMatch(NamedTuple):
    """How an aggregate index serves a query: spans of its columns, places and direction as in ``CounterPlan``.

    ``reverse`` is None if the counters are not sorted by the groups.
    """

    name: str
    spans: list[Spans]
    places: tuple[int, ...]
    reverse: bool | None


def kinds_of(definition: IndexDefinition, measure: Measure) -> tuple[str, ...] | None:
    """Return the counters for a result, besides the number of records; None if the index does not keep them."""
    return ACCESS[definition.kind].counters(definition, measure)


def counter_plan(
    query: Query, live: LiveCollection, measures: Sequence[Measure], order: Directions = ()
) -> CounterPlan | None:
    """Return the counters of the first aggregate index with all results of a query; None if there is none."""
    definitions = [index.definition for index in live.readable.values()]
    # An index that is sorted by the groups needs no memory; among the rest, fewer columns mean fewer counters.
    fits = sorted(_fits(query, definitions, measures, order), key=lambda fit: (fit.reverse is None, len(fit.spans)))
    return _plan(live.readable[fits[0].name], fits[0]) if fits else None


def _fits(
    query: Query, definitions: Iterable[IndexDefinition], measures: Sequence[Measure], order: Directions
) -> list[_AggregateMatch]:
    """Return the matching aggregate indexes."""
    candidates = [
        definition
        for definition in definitions
        if definition.has_counters
        and not query.target_tests
        and query.using in (None, definition.name)
        and all(kinds_of(definition, measure) is not None for measure in measures)
    ]
    branches = branches_of(query.schema, query.where) if candidates else None
    if branches is None or len(branches) != 1:
        return []
    found = (_fit(query, branches[0], definition, order) for definition in candidates)
    return [fit for fit in found if fit is not None]


def _fit(query: Query, branch: Branch, definition: IndexDefinition, order: Directions) -> _AggregateMatch | None:
    names = [column.field for column in definition.columns]
    grouped = [field for field, _ in order]
    terms = _terms(query, branch, definition)
    if terms is None or not set(grouped) <= set(names):
        return None
    if not all(_sees_all(query.schema, definition, column, terms, grouped) for column in definition.columns):
        return None
    spans = [
        terms[column.field][0].spans(column) if column.field in terms else EVERYTHING for column in definition.columns
    ]
    places = tuple(names.index(name) for name in grouped)
    return _AggregateMatch(definition.name, spans, places, _direction(definition, spans, places, order))


def _terms(query: Query, branch: Branch, definition: IndexDefinition) -> Mapping[str, list[Term]] | None:
    """Return the terms on the columns of the index; None if the records must be tested for other conditions."""
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
    """Return whether the column omits no record of the query, and counts none twice in one group."""
    group = terms.get(column.field, [])
    source = schema.source(column.field)
    if source is None or source.codec.name != column.codec.name or source.nullable != column.nullable:
        return False
    if column.many:
        if column.field in grouped:
            return not group
        return len(group) == 1 and len(group[0].spans(column)) == 1 and group[0].spans(column)[0].point
    skips = definition.omits_none(column)
    return not skips or any(term.excludes_none for term in group)


def _direction(
    definition: IndexDefinition, spans: Sequence[Spans], places: Sequence[int], order: Directions
) -> bool | None:
    """Return whether to read counters backwards to get the order of the groups; None if neither direction fits."""
    free = [at for at in range(len(spans)) if not (len(spans[at]) == 1 and spans[at][0].point)]
    asked = {at: descending for at, (_, descending) in zip(places, order, strict=True) if at in free}
    if free[: len(asked)] != list(asked):
        return None
    turned = {descending is not definition.columns[at].descending for at, descending in asked.items()}
    return None if len(turned) > 1 else turned == {True}


def _plan(index: LiveIndex, fit: _AggregateMatch) -> CounterPlan:
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


def no_groups(grouping: Grouping, refusal: NoUsableIndexError | None) -> NoUsableIndexError:
    """Return the error with a suggested index.

    ``refusal`` is the planner's error for the records in the order of the groups; None if it was not called, because a
    record may be in several groups.
    """
    query = grouping.query
    return NoUsableIndexError(
        "no index keeps the records of each group next to each other",
        model=query.schema.name,
        filters=query.filter_fields,
        order=order_names(grouping.order),
        candidates=tuple(query.schema.indexes),
        hint=_hint(grouping, refusal),
    )


def _no_order(grouping: Grouping) -> NoUsableIndexError:
    """Return the error for an order by results without a bound of the rows to hold."""
    return NoUsableIndexError(
        "no index has groups in the order of their results",
        model=grouping.query.schema.name,
        filters=grouping.query.filter_fields,
        order=order_names(grouping.arrangement.order),
        candidates=tuple(grouping.query.schema.indexes),
        hint="Take a slice, which holds only so many rows: order_by(...)[:10]. Or call .sort_in_memory(limit=…) before "
        "group_by() to hold all of them.",
    )


def _hint(grouping: Grouping, refusal: NoUsableIndexError | None) -> str:
    ways: list[str] = []
    reordered = grouping.with_period_last()
    if reordered is not None:
        ways.append(f"Write {reordered.call()}, with the period last.")
        if refusal is not None and refusal.hint is not None:
            ways[0] += f" {refusal.hint}"
        refusal = None
    totals = _totals(grouping)
    if totals is not None:
        ways.append(f"Add {totals} to the indexes of {grouping.query.schema.name}.Meta to count while writing.")
    if refusal is not None and refusal.hint is not None:
        ways.append(refusal.hint)
    if not any("sort_in_memory" in way for way in ways):
        ways.append("Call .sort_in_memory(limit=…) to hold so many groups in memory.")
    return " Or: ".join(ways)


def _totals(grouping: Grouping) -> str | None:
    """Return the aggregate index that would supply these groups in this order; None if no such index exists."""
    query = grouping.query
    branches = branches_of(query.schema, query.where)
    periods = any(column.period is not None for column in grouping.columns)
    if periods or query.using is not None or branches is None or len(branches) != 1:
        return None
    sums = _sums(grouping.measures)
    columns = _columns(grouping, branches[0])
    if sums is None or columns is None:
        return None
    default = "_".join([*(column.replace(".", "_") for column in columns), "totals"])
    return index_to_add(query.schema, "AggregateIndex", columns, default, {"sums": tuple(sums)} if sums else None)


def _columns(grouping: Grouping, branch: Branch) -> list[str] | None:
    """Return the columns that the filter fixes, then the group columns in order, then the other compared columns."""
    if sum(len(term.at) for term in branch.terms) < len(branch.parts):
        return None  # a condition must be tested on records
    if len({descending for _, descending in grouping.order}) > 1:
        return None  # counter groups have no separate directions
    groups = [name for name, _ in grouping.order]
    several = sum(column.source.many for column in grouping.columns) + sum(term.many for term in branch.terms)
    if several > 1 or any(term.many and not is_one(term) for term in branch.terms):
        return None
    bound = [term.field for term in branch.terms if is_one(term)]
    return list(dict.fromkeys([*bound, *groups, *(term.field for term in branch.terms)]))


def _sums(measures: Iterable[Measure]) -> list[str] | None:
    """Return the fields whose sums are needed; None for a result that counters cannot supply."""
    sums: dict[str, None] = {}
    for measure in measures:
        if measure.function in ("min", "max"):
            return None
        if measure.field is None or (measure.function == "count" and not measure.nullable):
            continue
        if measure.source is None or measure.source.many or not is_summed(measure.source):
            return None
        sums[measure.field] = None
    return list(sums)


@dataclass(frozen=True, slots=True)
class End:
    """A minimum or maximum that is the first value in an order; ``query`` selects the first record with a value."""

    measure: Measure
    query: Query = field(metadata=INTERNAL)
    plan: QueryPlan


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass over records: the query and its plan."""

    query: Query = field(metadata=INTERNAL)
    plan: QueryPlan


@dataclass(frozen=True, slots=True)
class DifferentValues:
    """A number of different values; ``query`` selects them, as ``distinct()`` does."""

    measure: Measure
    query: Query = field(metadata=INTERNAL)
    plan: QueryPlan


@dataclass(frozen=True, slots=True)
class AggregatePlan:
    """The sources of the results of ``aggregate()``; the result of ``explain_aggregate()``.

    Attributes:
        counted: results that are read from counters.
        counters: the plan of the counters; None if there are none.
        ends: results that are the first value of an index.
        passed: results that are computed in one pass over the records.
        rows: the pass; None if there is none.
        different: numbers of different values.
        analysis: the costs of running the plan, after ``explain_aggregate(…, analyze=True)``.
    """

    schema: ModelSchema = field(metadata=INTERNAL)
    counted: tuple[Measure, ...] = ()
    counters: CounterPlan | None = None
    ends: tuple[End, ...] = ()
    passed: tuple[Measure, ...] = ()
    rows: Pass | None = None
    different: tuple[DifferentValues, ...] = ()
    analysis: Analysis | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.schema.name}: " + "\n  ".join(self._lines())

    def _repr_html_(self) -> str:
        return html.lines(str(self))

    @property
    def through_index(self) -> bool:
        """Whether every record is read through an index entry, and none in the order of the primary key."""
        plans = [*(end.plan for end in self.ends), *(one.plan for one in self.different)] + (
            [self.rows.plan] if self.rows is not None else []
        )
        return all(scan.index is not None for plan in plans for scan in plan.scans)

    def _lines(self) -> Iterator[str]:
        if self.counters is not None:
            yield f"counters of index {self.counters.name} for {_labels(self.counted)}"
        for end in self.ends:
            of = "the primary key" if end.plan.index is None else f"index {end.plan.index}"
            yield f"the end of {of} for {end.measure.label}"
        for one in self.different:
            yield f"different values for {one.measure.label}"
            yield from str(one.plan).splitlines()
        if self.rows is not None:
            yield f"one pass for {_labels(self.passed)}"
            yield from str(self.rows.plan).splitlines()
        if self.analysis is not None:
            yield f"took        {self.analysis}"


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The source of the rows of ``group_by()``; the result of ``Groups.explain()``.

    Attributes:
        source: ``counters``; ``index``: an index is sorted by the groups; ``memory``: all groups are held in memory.
        counters: the plan of the counters; None if there are none.
        rows: the pass over the records; None if counters are read.
        limit: the maximum number of groups in memory; None if they are read in order.
        analysis: the costs of running the plan, after ``explain(analyze=True)``.
    """

    grouping: Grouping
    source: Literal["counters", "index", "memory"]
    counters: CounterPlan | None = None
    rows: Pass | None = None
    limit: int | None = None
    analysis: Analysis | None = field(default=None, compare=False)

    @property
    def through_index(self) -> bool:
        """As in ``AggregatePlan``."""
        return self.rows is None or all(scan.index is not None for scan in self.rows.plan.scans)

    @property
    def index(self) -> str | None:
        """The name of the only index; None if the records or several indexes are read."""
        if self.counters is not None:
            return self.counters.name
        return self.rows.plan.index if self.rows else None

    def __str__(self) -> str:
        return f"{self.grouping.query.schema.name}: " + "\n  ".join(self._lines())

    def _repr_html_(self) -> str:
        return html.lines(str(self))

    def _lines(self) -> Iterator[str]:
        fields = ", ".join(column.label for column in self.grouping.columns)
        if self.counters is not None:
            yield f"counters of index {self.counters.name}, grouped by {fields}"
        elif self.limit is None:
            last = self.grouping.period
            several = last is not None and last.period is not None and last.period.may_alternate
            yield f"records in the order of {fields}, {_FOUR_DAYS if several else 'one group'} at a time"
        else:
            yield f"one pass, grouped by {fields}"
        if self.limit is not None:
            yield f"holds up to {self.limit} groups in memory"
        if self.rows is not None:
            yield from str(self.rows.plan).splitlines()
        yield from self.grouping.arrangement.lines()
        if self.analysis is not None:
            yield f"took        {self.analysis}"


def _labels(measures: Iterable[Measure]) -> str:
    return ", ".join(measure.label for measure in measures)


# --- totals -----------------------------------------------------------------------------------------------------


def plan_aggregate(query: Query, live: LiveCollection, measures: tuple[Measure, ...]) -> AggregatePlan:
    """Return the plan of an aggregate. Raises InvalidArgumentError, NoUsableIndexError or IndexNotReadyError."""
    if query.distinct and query.fields is not None:
        raise InvalidArgumentError(
            "distinct values are not aggregated",
            argument="distinct",
            hint="Leave out distinct(), or take the values and compute with them.",
        )
    schema = query.schema
    different = [measure for measure in measures if measure.function == "distinct"]
    if different:
        others = tuple(measure for measure in measures if measure.function != "distinct")
        plan = plan_aggregate(query, live, others) if others else AggregatePlan(schema)
        return replace(plan, different=tuple(_different(query, live, measure) for measure in different))
    if not query.sliced:
        counted = tuple(measure for measure in measures if measure.function not in ("min", "max"))
        counters = counter_plan(query, live, counted) if counted else None
        ends = [_end(query, live, measure) for measure in measures if measure.function in ("min", "max")]
        found = tuple(end for end in ends if end is not None)
        if len(found) == len(ends) and (counters is not None or not counted):
            return AggregatePlan(schema, counted, counters, found)
    fields = fields_of(measures)
    rows = replace(query, fields=fields) if query.sliced else _unordered(query, fields)
    try:
        return AggregatePlan(schema, passed=measures, rows=Pass(rows, plan_query(rows, live)))
    except NoUsableIndexError:
        refuse_unready(query, live, measures)
        raise


def _different(query: Query, live: LiveCollection, measure: Measure) -> DifferentValues:
    assert measure.field is not None  # they are values of a field
    if query.sliced:
        raise InvalidArgumentError(
            "the different values of a slice are not counted",
            argument="distinct",
            value=measure.label,
            hint="Leave out the slice, or count the values in Python.",
        )
    values = replace(_unordered(query, (measure.field,)), distinct=True, sort_limit=query.sort_limit)
    found = plan_distinct(values, live)
    return DifferentValues(measure, values, replace(found.plan, distinct=told_apart(found)))


def refuse_unready(query: Query, live: LiveCollection, measures: Sequence[Measure], order: Directions = ()) -> None:
    """Raise IndexNotReadyError if only an aggregate index that is not built would serve the query."""
    fits = _fits(query, [query.schema.indexes[name] for name in live.states], measures, order)
    if fits:
        message = "the aggregate index that would answer this is not readable"
        raise not_readable(message, query, live, fits[0].name, by_scan=False)


def _unordered(query: Query, fields: tuple[str, ...]) -> Query:
    """Return the query in the cheapest order, because the order does not affect the result."""
    return replace(query, fields=fields, order=(), reverse=False, sort_limit=None, distinct=False)


def _end(query: Query, live: LiveCollection, measure: Measure) -> End | None:
    """Return the first record in the order of a field; None if more than the first row might have to be read."""
    assert measure.field is not None  # only a count has no field
    present = (Condition(measure.field, "isnull", False),) if measure.nullable else ()
    first = replace(
        _unordered(query, (measure.field,)),
        where=(*query.where, *present),
        order=(Order(measure.field, descending=measure.function == "max"),),
        scan_allowed=False,
        stop=1,
    )
    try:
        plan = plan_query(first, live)
    except NoUsableIndexError:
        return None
    if plan.matches is not None or any(scan.matches is not None or scan.fans_out for scan in plan.scans):
        return None
    return End(measure, first, plan) if plan.combine in ("scan", "merge", "nothing") else None


# --- groups -----------------------------------------------------------------------------------------------------


def plan_groups(grouping: Grouping, live: LiveCollection) -> GroupPlan:
    """Return the plan of a grouped query. Raises NoUsableIndexError or IndexNotReadyError."""
    query, limit, order = grouping.query, grouping.query.sort_limit, grouping.order
    if grouping.arrangement.order and not grouping.arrangement.most_held(limit):
        raise _no_order(grouping)
    counters = counter_plan(query, live, grouping.measures, order)
    if counters is not None:
        ordered = counters.ordered and grouping.follows_order
        if ordered or limit is not None:
            return GroupPlan(grouping, "counters", counters, limit=None if ordered else limit)
    fields = fields_of(grouping.measures, grouping.columns)
    refusal: NoUsableIndexError | None = None
    together = grouping if grouping.follows_order else grouping.with_period_last()
    if together is not None and not any(column.source.many for column in grouping.columns):
        columns = tuple(Order(name, descending) for name, descending in together.order)
        rows = replace(_unordered(query, fields), order=columns)
        try:
            plan = plan_query(rows, live)
        except NoUsableIndexError as error:
            refusal = error
        else:
            if together is grouping:
                return GroupPlan(grouping, "index", rows=Pass(rows, plan))
    if limit is not None:
        rows = _unordered(query, fields)
        return GroupPlan(grouping, "memory", rows=Pass(rows, plan_query(rows, live)), limit=limit)
    refuse_unready(query, live, grouping.measures, order)
    raise no_groups(grouping, refusal) from refusal
