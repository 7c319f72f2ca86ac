"""Answer ``aggregate()`` and ``group_by()``: from counters, from one end of an index, or in one pass over records.

Rules of this module: memory holds one batch and one group; all groups only if the plan says so, and then at most its
limit. If results come from several sources, each source is one snapshot. Every read of counters has the header as its
guard (rule R3); all counters of one group are read together, in one snapshot. A group without records keeps counters
with zero, and is skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from operator import itemgetter
from typing import Any, Final, NamedTuple

from kvmodels.catalog.keyspace import counter_key
from kvmodels.core.keys import decode_key, key_successor
from kvmodels.core.operations import GuardFailed, ReadRange, Row, point
from kvmodels.errors import IndexChangedError, NoUsableIndexError, OperationTooLargeError
from kvmodels.flows.context import Context, HeaderView, live_collection, planned, reload_header
from kvmodels.flows.effects import Flow, ranges_at_once, read, rows_at_once, steps_of
from kvmodels.flows.execution.executor import MAX_BATCH
from kvmodels.flows.execution.permission import REFUSED, permitted, planned_again
from kvmodels.flows.reading import scan
from kvmodels.flows.reading.scan import DistinctScan, ResultScan, collected, fetch
from kvmodels.flows.reading.semi_join import resolved
from kvmodels.indexing.entries import HALF, number_in
from kvmodels.query.aggregates import Accumulator, Grouping, Measure, average, in_places, sort_part, summed
from kvmodels.query.planning.aggregation import (
    COUNT,
    EVERY_RECORD,
    AggregatePlan,
    CounterPlan,
    GroupPlan,
    counter_plan,
    kinds_of,
    plan_aggregate,
    plan_groups,
    refuse_unready,
)
from kvmodels.query.planning.cursor import require_generation
from kvmodels.query.query import Query
from kvmodels.schema.definition.definition import IndexDefinition, ModelSchema

Results = dict[str, Any]


# --- totals -----------------------------------------------------------------------------------------------------


def aggregate(context: Context, query: Query, measures: tuple[Measure, ...]) -> Flow[Results]:
    """Return the results of an aggregate, by name. Raises InvalidValueError."""
    while True:  # repeats only if another process changed the index in between
        view, plan = yield from planned_aggregate(context, query, measures)
        try:
            results = (yield from _totals(context, view, plan)) if plan.counters is not None else {}
        except IndexChangedError:
            continue
        for end in plan.ends:
            found = yield from steps_of(fetch(context, end.query))
            results[end.measure.label] = end.measure.value_of(found[0]) if found else None
        for one in plan.different:
            values = yield from collected(DistinctScan(context, one.query))
            results[one.measure.label] = sum(value[one.measure.field] is not None for value in values)
        if plan.rows is not None:
            results |= yield from _passed(context, plan.rows.query, plan.passed)
        return {measure.label: results[measure.label] for measure in measures}


def count(context: Context, query: Query) -> Flow[int]:
    """Count the records of a query: from counters if an aggregate index keeps them, which is one read."""
    number = yield from _counted(context, query)
    if number is not None:
        return number
    try:
        return (yield from scan.planned_count(context, query))
    except NoUsableIndexError:
        _, live = yield from live_collection(context, query.schema)
        refuse_unready(query, live, (EVERY_RECORD,))
        raise


def _counted(context: Context, query: Query) -> Flow[int | None]:
    """Return the number of records with the slice applied; None if no counters supply it."""
    while True:  # as above
        view, live = yield from live_collection(context, query.schema)
        counters = counter_plan(query, live, (EVERY_RECORD,))
        if counters is None:
            return None
        plan = AggregatePlan(query.schema, (EVERY_RECORD,), counters)
        try:
            number: int = (yield from _totals(context, view, plan))[COUNT]
        except IndexChangedError:
            continue
        stop = number if query.stop is None else min(number, query.stop)
        return max(0, stop - query.start)


def planned_aggregate(
    context: Context, query: Query, measures: tuple[Measure, ...]
) -> Flow[tuple[HeaderView, AggregatePlan]]:
    """Return the plan of an aggregate, and the header; raises like ``plan_aggregate``."""
    wanted = yield from resolved(context, query)
    try:
        return (yield from planned(context, query.schema, lambda live: plan_aggregate(wanted, live, measures)))
    except REFUSED as error:
        plan = partial(plan_aggregate, permitted(wanted), measures=measures)
        return (yield from planned_again(context, error, query.schema, plan))


def _totals(context: Context, view: HeaderView, plan: AggregatePlan) -> Flow[Results]:
    counters = plan.counters
    assert counters is not None  # callers have checked
    reading = CounterScan(context, view, plan.schema, counters, counted_kinds(counters, plan.counted))
    totals = Counter[str]()
    while not reading.done:
        for found in (yield from reading.next_batch()):
            totals.update(found.numbers)
    return {measure.label: counted_result(counters.index.definition, measure, totals) for measure in plan.counted}


def counted_kinds(counters: CounterPlan, measures: Iterable[Measure]) -> list[str]:
    """Return the kinds of counters that the results need; always includes the number of records, 0 means no group."""
    kinds = [kind for measure in measures for kind in kinds_of(counters.index.definition, measure) or ()]
    return list(dict.fromkeys([COUNT, *kinds]))


def _passed(context: Context, query: Query, measures: Sequence[Measure]) -> Flow[Results]:
    """Compute the results in one pass over the records."""
    tally = _RecordGroup({}, measures)
    records = ResultScan(context, query, first=MAX_BATCH)
    while not records.done:
        for values in (yield from steps_of(records.next_batch())):
            tally.add(values)
    return tally.row()


# --- groups -----------------------------------------------------------------------------------------------------


class _RecordGroup:
    """A group of records; ``head`` contains the fields of the group with their values.

    ``add`` takes the values of a record, in a ``_CounterGroup`` counters; ``row`` returns None if there is no record.
    """

    __slots__ = ("_accumulators", "head")

    def __init__(self, head: Results, measures: Iterable[Measure]) -> None:
        self.head = head
        self._accumulators: list[tuple[Measure, Accumulator]] = [
            (measure, measure.accumulator()) for measure in measures
        ]

    def add(self, item: Any) -> None:
        for measure, accumulator in self._accumulators:
            accumulator.add(measure.value_of(item))

    def row(self) -> Results:
        return self.head | {measure.label: sums.result() for measure, sums in self._accumulators}


class _CounterGroup:
    """A group of counters; ``head`` as in ``_RecordGroup``."""

    __slots__ = ("_measures", "_plan", "_totals", "head")

    def __init__(self, head: Results, measures: Sequence[Measure], plan: CounterPlan) -> None:
        self.head = head
        self._measures = measures
        self._plan = plan
        self._totals = Counter[str]()

    def add(self, item: Any) -> None:
        self._totals.update(item.numbers)

    def row(self) -> Results | None:
        if self._totals[COUNT] <= 0:
            return None
        definition = self._plan.index.definition
        results = {measure.label: counted_result(definition, measure, self._totals) for measure in self._measures}
        return self.head | results


class GroupScan:
    """An iteration over the rows of a grouped query, batch by batch; a stateful object for one reader."""

    def __init__(self, context: Context, grouping: Grouping) -> None:
        self._context = context
        self._grouping = grouping
        self._plan: GroupPlan | None = None
        self._source: ResultScan | CounterScan | None = None
        self._groups: dict[tuple[bytes, ...], _RecordGroup | _CounterGroup] = {}
        self._last: tuple[tuple[bytes, ...], Any] = (), None
        """The group of the last item, and its value in the column with a period."""
        self._orders = grouping.column_orders()
        self.done = False

    @property
    def sort_limit(self) -> int | None:
        """The maximum number of rows to hold in memory, which the plan allows."""
        return self._grouping.query.sort_limit if self._plan is None else self._plan.grouping.query.sort_limit

    def next_batch(self) -> Flow[list[Results]]:
        """Read the next rows in order; the end is signalled by ``done``, not by an empty list."""
        first = self._plan is None
        try:
            items = yield from self._read()
        except IndexChangedError:
            if not first:
                raise
            self._plan = None  # nothing was returned yet: plan again under the new header
            return []
        plan = self._plan
        assert plan is not None  # the first read has planned it
        for values, item in items:
            self._add(plan, values, item)
        self._note_last(items)
        assert self._source is not None  # as above
        self.done = self._source.done
        if plan.limit is not None and not self.done:
            return []
        keys = list(self._groups)
        if plan.limit is not None:
            self._sort(keys)
        elif not self.done or self._grouping.period is not None:
            keys = self._complete(keys)
        rows = [self._groups.pop(key).row() for key in keys]
        return [row for row in rows if row is not None]

    def _read(self) -> Flow[list[tuple[Sequence[Any], Any]]]:
        """Read the next records or counters, each with the values of its group."""
        if self._plan is None:
            yield from self._begin()
        if isinstance(self._source, CounterScan):
            batch = yield from self._source.next_batch()
            return [(self._group_of(counters), counters) for counters in batch]
        assert self._source is not None  # the first read has created it
        records = yield from steps_of(self._source.next_batch())
        columns = self._grouping.columns
        return [(group, one) for one in records for group in product(*[column.values_of(one) for column in columns])]

    def _begin(self) -> Flow[None]:
        view, plan = yield from planned_groups(self._context, self._grouping)
        self._plan = plan
        if plan.counters is not None:
            kinds = counted_kinds(plan.counters, self._grouping.measures)
            self._source = CounterScan(self._context, view, self._grouping.query.schema, plan.counters, kinds)
        else:
            assert plan.rows is not None  # a plan has either counters or rows
            self._source = ResultScan(self._context, plan.rows.query, first=MAX_BATCH)

    def _group_of(self, counters: Counters) -> list[Any]:
        values = self._values_of(counters)
        return [column.grouped(values[column.source.name]) for column in self._grouping.columns]

    def _values_of(self, counters: Counters) -> dict[str, Any]:
        plan = self._plan.counters if self._plan else None
        assert plan is not None  # there are counters
        definition = plan.index.definition
        values: dict[str, Any] = {}
        for (name, _), place in zip(self._grouping.order, plan.places, strict=True):
            (part,) = decode_key(counters.parts[place])
            values[name] = definition.columns[place].codec.unpack(part)
        return values

    def _add(self, plan: GroupPlan, values: Sequence[Any], item: Any) -> None:
        key = tuple(map(sort_part, self._orders, values))
        group = self._groups.get(key)
        if group is None:
            if plan.limit is not None and len(self._groups) >= plan.limit:
                raise OperationTooLargeError(
                    "there are more groups than may be held in memory",
                    limit="sort_in_memory",
                    size=plan.limit + 1,
                    maximum=plan.limit,
                    hint="Raise sort_in_memory(limit=...), filter more, or index the fields of the groups.",
                )
            head = {column.label: value for column, value in zip(self._grouping.columns, values, strict=True)}
            if plan.counters is None:
                group = _RecordGroup(head, self._grouping.measures)
            else:
                group = _CounterGroup(head, self._grouping.measures, plan.counters)
            self._groups[key] = group
        group.add(item)

    def _complete(self, keys: list[tuple[bytes, ...]]) -> list[tuple[bytes, ...]]:
        """Return the groups that no further record belongs to, in order; the last one may continue."""
        column = self._grouping.period
        if column is None or column.period is None or not keys:
            return keys[:-1]
        at = self._grouping.columns.index(column)
        heads = {key: key[:at] + key[at + 1 :] for key in keys}
        places = {head: place for place, head in enumerate(dict.fromkeys(heads.values()))}
        descending = self._grouping.order[-1][1]
        keys = sorted(keys, key=itemgetter(at), reverse=descending)  # clocks that go back let periods alternate
        keys.sort(key=lambda key: places[heads[key]])
        if self.done:
            return keys
        last, moment = self._last
        is_complete = column.period.complete_before(moment, descending=descending)
        label = column.label
        return [key for key in keys if heads[key] != heads[last] or is_complete(self._groups[key].head[label])]

    def _note_last(self, items: Sequence[tuple[Sequence[Any], Any]]) -> None:
        column = self._grouping.period
        if column is None or not items:
            return
        values, item = items[-1]
        value = self._values_of(item)[column.source.name] if isinstance(item, Counters) else item[column.source.name]
        self._last = tuple(map(sort_part, self._orders, values)), value

    def _sort(self, keys: list[tuple[bytes, ...]]) -> None:
        positions = {column.source.name: at for at, column in enumerate(self._grouping.columns)}
        for name, descending in reversed(self._grouping.order):  # sorts are stable: the last one decides
            keys.sort(key=itemgetter(positions[name]), reverse=descending)


def planned_groups(context: Context, grouping: Grouping) -> Flow[tuple[HeaderView, GroupPlan]]:
    """Return the plan of a grouped query, and the header; raises like ``plan_groups``."""
    query = yield from resolved(context, grouping.query)
    wanted = replace(grouping, query=query)
    try:
        return (yield from planned(context, query.schema, lambda live: plan_groups(wanted, live)))
    except REFUSED as error:
        again = replace(grouping, query=permitted(query))
        return (yield from planned_again(context, error, query.schema, lambda live: plan_groups(again, live)))


# --- counters ---------------------------------------------------------------------------------------------------

ROWS_AT_ONCE: Final = 500


class Counters(NamedTuple):
    """The counters of one group of the index: its packed columns, and the signed numbers by kind."""

    parts: tuple[bytes, ...]
    numbers: dict[str, int]


class CounterScan:
    """Reads the counters of a plan, batch by batch; a stateful object for one reader."""

    def __init__(
        self, context: Context, view: HeaderView, schema: ModelSchema, plan: CounterPlan, kinds: Iterable[str]
    ) -> None:
        self._context = context
        self._schema = schema
        self._plan = plan
        self._guard = view.guard
        self._at = 0
        ranges = [
            one if one.end is None else one._replace(limit=ROWS_AT_ONCE, reverse=plan.reverse)
            for one in ranges_of(plan, kinds)
        ]
        self._ranges = ranges[::-1] if plan.reverse else ranges
        self.done = not ranges

    def next_batch(self) -> Flow[list[Counters]]:
        """Read the next counters, ordered by group; a group may continue in the next batch."""
        limits = self._context.limits
        many = min(rows_at_once(limits, ROWS_AT_ONCE), ranges_at_once(limits, guarded=True)) if self._plan.groups else 1
        wanted = self._ranges[self._at : self._at + many]
        result = yield from read(wanted, self._guard)
        while isinstance(result, GuardFailed):
            yield from self._renew()
            result = yield from read(wanted, self._guard)
        rows = [row for found in result.ranges for row in found]
        if not self._plan.groups and len(rows) == ROWS_AT_ONCE:
            self._ranges[self._at] = _behind(wanted[0], rows[-1])
        else:
            self._at += len(wanted)
        self.done = self._at >= len(self._ranges)
        return counters_in(self._plan, rows)

    def _renew(self) -> Flow[None]:
        """Continue under a new header, if the index is unchanged."""
        view = yield from reload_header(self._context)
        live = view.live[self._schema.collection]
        require_generation(live, self._plan.name, self._plan.index.stored.generation)
        self._guard = view.guard


def ranges_of(plan: CounterPlan, kinds: Iterable[str]) -> list[ReadRange]:
    """Return the keys or ranges of all counters of a plan, ascending."""
    ranges = [point(counter_key(group, kind)) for group in plan.groups for kind in kinds]
    return ranges + [ReadRange(start, end) for start, end in plan.ranges if end is not None]


def counters_in(plan: CounterPlan, rows: Iterable[Row]) -> list[Counters]:
    """Return the counters in some rows, those of one group together."""
    counters: list[Counters] = []
    for row in rows:
        found = plan.parts_in(row.key)
        if found is None:
            continue
        *parts, last = found
        (kind,) = decode_key(last)
        group = tuple(parts)
        if not counters or counters[-1].parts != group:
            counters.append(Counters(group, {}))
        counters[-1].numbers[str(kind)] = number_in(row)
    return counters


def _behind(wanted: ReadRange, row: Row) -> ReadRange:
    if wanted.reverse:
        return wanted._replace(end=row.key)
    return wanted._replace(start=key_successor(row.key))


def counted_result(definition: IndexDefinition, measure: Measure, totals: Mapping[str, int]) -> Any:
    """Return a result computed from the totals of its counters. Raises InvalidValueError."""
    kinds = kinds_of(definition, measure)
    assert kinds is not None  # the plan requires it
    values = totals.get(kinds[-1] if kinds and kinds[-1].startswith("present:") else COUNT, 0)
    if measure.function == "count":
        return values
    if values == 0:
        return None
    total: Any = totals.get(kinds[1], 0) * HALF + totals.get(kinds[0], 0)
    places = None if definition.options is None else definition.options.decimal_places.get(measure.field or "")
    if places is not None:
        total = in_places(total, places)
    return average(measure.kind, total, values) if measure.function == "avg" else summed(measure.kind, total)
