"""Plan queries: the ranges of indexes to read, how they combine, and the conditions to test.

A plan is made in two steps. The *decision* (``query/planning/combining.py``) depends only on the shape of the query,
and is cached in ``CompiledCollection.plans`` as long as the header is unchanged. The operands turn it into a *plan*.
Queries of equalities that read one range need no decision after the first: the cached ``RangePlan`` makes the plan from
their operands. A cached decision or plan gives the same plan as planning again.

Rules of this module: pure and deterministic. An order comes from an index, or from an allowed sort in memory, or there
is none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import unwrap
from itertools import pairwise, product
from typing import Any, Final, NamedTuple

from kvmodels.catalog.collection import LiveCollection
from kvmodels.core.keys import key_successor
from kvmodels.core.operations import after_prefix
from kvmodels.errors import NoUsableIndexError
from kvmodels.query.matching import matcher, packed_key
from kvmodels.query.orders import order_names
from kvmodels.query.paths import source_at
from kvmodels.query.planning import candidates, nulls, ranked
from kvmodels.query.planning.accesses import Path, paths_of
from kvmodels.query.planning.branches import (
    Branch,
    FilterParts,
    QueryShape,
    Term,
    branch_of,
    branches_of,
    can_match,
    partials_of,
    shape_of,
    tested_by_partials,
)
from kvmodels.query.planning.combining import Decision, ScanChoice, decide
from kvmodels.query.planning.kind_terms import KindTerm
from kvmodels.query.planning.narrowing import stated
from kvmodels.query.planning.refusals import refusal
from kvmodels.query.plans import KeyRange, LastRowRange, QueryPlan, Scan, Sort
from kvmodels.query.query import Query
from kvmodels.schema.definition.definition import Column, ModelSchema
from kvmodels.schema.filters.predicate import AnyOf, Condition, Conjunction, Span, ascending_column

NO_RANGE: Final = object()
"""Cached for shapes of queries that do not read one range."""


def plan_query(query: Query, live: LiveCollection, *, through: frozenset[str] | None = None) -> QueryPlan:
    """Return the plan of a query over a collection.

    ``through`` holds the names of the only indexes to consider, ``""`` for the primary key; None for all. The next page
    is read through the same indexes as the previous one. Raises NoUsableIndexError or IndexNotReadyError.
    """
    if query.ranked is not None:
        plan = ranked.plan_ranked(query, live, through)
        return plan if query.ranked.most is None else candidates.with_found_keys(plan, query, live, plan_query)
    if query.stop is not None and query.start >= query.stop:
        return _nothing(query)
    shape = range_shape(query) if through is None else None
    if shape is None:
        return _planned(query, live, through)
    key, operands = shape
    known = live.compiled.plans.get(key)
    if isinstance(known, RangePlan):
        return known.bind(query, operands)
    plan = _planned(query, live, None)
    if known is None:
        live.compiled.keep_plan(key, _range_plan(query, live, plan) or NO_RANGE)
    return plan


def _nothing(query: Query) -> QueryPlan:
    return QueryPlan(query.schema, "nothing", (), order_names(query.directions, query.placed), query.start, query.stop)


def _planned(
    query: Query, live: LiveCollection, through: frozenset[str] | None, *, hidden: Query | None = None
) -> QueryPlan:
    """Return the plan; ``hidden``: the query that decides it, which differs in the names of its order."""
    if query.order and query.placed and hidden is None:
        return _placed(query, live, through)
    alternatives = _alternatives(query)
    if alternatives is None:
        return _nothing(query)
    shape = shape_of(hidden or query, *alternatives, partials_of(live), through)
    # Classes that share a collection may have fields with one name and different types.
    known: Any = shape if query.schema.variants is None else (query.schema.model, shape)
    decision = live.compiled.plans.get(known)
    if not isinstance(decision, Decision):
        decision = _decided(query.schema, shape, paths_of(live, shape))
        if decision is None:
            raise refusal(query, live, shape, alternatives)
        live.compiled.keep_plan(known, decision)
    return _Planning(query, alternatives, decision).plan()


def _placed(query: Query, live: LiveCollection, through: frozenset[str] | None) -> QueryPlan:
    """Return the plan of an order with None at the other end than in indexes."""
    try:
        found = nulls.placed(query, _planned(query.with_plain_order(), live, through))
    except NoUsableIndexError as error:
        if nulls.is_leading(query):
            raise  # the index that it names has this order
        raise nulls.refusal(query, live) from error
    if found is None and query.sort_limit is None:
        raise nulls.refusal(query, live)
    return found or _planned(query, live, through, hidden=nulls.hidden(query))


# --- one range --------------------------------------------------------------------------------------------------


class RangePlan(NamedTuple):
    """A plan of one range, for all queries that compare the same fields with other values.

    Attributes:
        plan: the plan of the first such query, without a slice.
        prefix: the key prefix of the index, or of the records.
        columns: in order, each as the position of its condition in the filter and the function that packs its operand.
        single: whether the columns are a complete key.
        reverse: whether the rows are read in descending order.
    """

    plan: QueryPlan
    prefix: bytes
    columns: tuple[tuple[int, Callable[[Any], bytes]], ...]
    single: bool
    reverse: bool

    def key(self, operands: Sequence[Any]) -> bytes:
        """Return the beginning of the range of a query, or its single key."""
        key = self.prefix
        for at, pack in self.columns:
            key += pack(operands[at])
        return key

    def key_range(self, operands: Sequence[Any]) -> KeyRange:
        """Return the range of a query."""
        key = self.key(operands)
        return KeyRange(key, None if self.single else after_prefix(key))

    def bind(self, query: Query, operands: Sequence[Any]) -> QueryPlan:
        """Return the plan of a query with these operands."""
        plan, ranges = self.plan, (self.key_range(operands),)
        one = plan.scans[0]
        head = one.index, one.generation, one.prefix, one.columns, one.unique, ranges, one.reverse
        scan = Scan(*head, one.copies, one.covers, one.fans_out, one.order, query.where)
        return QueryPlan(query.schema, "scan", (scan,), plan.order, query.start, query.stop, plan.full_scan)


def range_shape(query: Query, kind: str = "plan") -> tuple[Hashable, list[Any]] | None:
    """Return shape and values of a query of equalities on different fields; None for any other query.

    The shape contains everything besides the values that its plan depends on; ``kind`` separates plans from other
    cached values. Classes that share a collection have no such shape, because conditions on the class are not always
    tested.
    """
    schema = query.schema
    if schema.variants is not None or query.targets is not None:
        return None
    fields: list[str] = []
    operands: list[Any] = []
    for part in query.where:
        if not isinstance(part, Condition):
            return None
        field, lookup, operand, element, negated = part
        if lookup != "exact" or element or negated or field in fields:
            return None
        fields.append(field)
        operands.append(operand)
    key = (
        kind,
        schema.model,
        tuple(fields),
        query.order,
        query.reverse,
        query.scan_allowed,
        query.using,
        query.sort_limit is None,
        query.fields,
    )
    return key, operands


def range_plan(query: Query, live: LiveCollection) -> RangePlan | None:
    """Return the cached or a new plan for queries of this shape; None if they do not read one range."""
    shape = range_shape(query)
    if shape is None:
        return None
    if shape[0] not in live.compiled.plans:
        plan_query(replace(query, start=0, stop=None), live)
    known = live.compiled.plans.get(shape[0])
    return known if isinstance(known, RangePlan) else None


def _range_plan(query: Query, live: LiveCollection, plan: QueryPlan) -> RangePlan | None:
    """Return the cacheable plan of a query, made from its plan."""
    if plan.combine != "scan" or len(plan.ranges) != 1 or plan.sort is not None or plan.matches is not None:
        return None
    (scan,) = plan.scans
    if scan.fans_out or scan.matches is not None:
        return None
    names = [part.field for part in query.where if isinstance(part, Condition)]
    # Whether a partial index serves the query depends on the operands of the fields in its condition, and on no others.
    if not tested_by_partials(live).isdisjoint(names):
        return None
    columns: list[tuple[int, Callable[[Any], bytes]]] = []
    for column in scan.columns[: len(names)]:
        if column.field not in names or column.many:
            return None
        columns.append((names.index(column.field), unwrap(column.codec.pack)))
    if len(columns) < len(names):
        return None
    whole = replace(plan, start=0, stop=None)
    made = RangePlan(whole, scan.prefix, tuple(columns), plan.ranges[0].end is None, scan.reverse)
    # The checks of ranges here passed for the query that the plan was made for.
    operands = [part.operand for part in query.where if isinstance(part, Condition)]
    return made if (made.key_range(operands),) == plan.ranges else None


# --- decisions --------------------------------------------------------------------------------------------------


def _decided(schema: ModelSchema, shape: QueryShape, paths: Sequence[Path]) -> Decision | None:
    """Return the decision; it uses the index on the classes only if no other index narrows the query.

    If only the class narrows the query, no index order was requested: the results are in the order of the primary key.
    """
    variants = schema.variants
    if variants is None or not variants.where or shape.using is not None:
        return decide(schema, shape, paths)
    decision = decide(schema, shape, [path for path in paths if path.name != variants.discriminator])
    if decision is not None and decision.full_scan:
        decision = None
    if not shape.order and (decision is None or _by_class_alone(decision, shape, variants.discriminator)):
        keys = tuple((column.field, shape.reverse) for column in schema.primary_key)
        decision = decide(schema, shape._replace(order=keys, sorts=False, scans=False), paths)
    return decision or decide(schema, shape, paths)


def _by_class_alone(decision: Decision, shape: QueryShape, discriminator: str) -> bool:
    """Return whether its accesses answer only conditions on the class of the records."""
    for step in decision.steps:
        branch = shape.stem if step.branch is None or shape.branches is None else shape.branches[step.branch]
        if any(branch.parts[at] != (discriminator,) for at in step.access.served):
            return False
    return True


def _alternatives(query: Query) -> FilterParts | None:
    """Return the parts of the filter; None if no record can match."""
    stem = branch_of(query.schema, query.where)
    if not can_match(stem):
        return None
    if not any(isinstance(part, AnyOf) for part in query.where):
        return FilterParts(stem, (stem,))
    branches = branches_of(query.schema, query.where)
    if branches is None:
        return FilterParts(stem, None)
    if not branches:
        return None
    return FilterParts(branches[0] if len(branches) == 1 else stem, branches)


# --- from decisions to plans ------------------------------------------------------------------------------------


class _Planning:
    """Combines a decision with the operands of a query."""

    def __init__(self, query: Query, alternatives: FilterParts, decision: Decision) -> None:
        self._query = query
        self._alternatives = alternatives
        self._decision = decision

    def plan(self) -> QueryPlan:
        """Return the plan."""
        query, decision = self._query, self._decision
        scans, tested = self._scans()
        sort = self._sort() if decision.sorted else None
        if query.choice:
            tested = stated(tested)
        order = decision.order if sort is None else [(column.field, column.descending) for column in sort.columns]
        return QueryPlan(
            schema=query.schema,
            combine=decision.combine,
            scans=scans,
            order=order_names(order, query.placed if query.order else ()),
            start=query.start,
            stop=query.stop,
            full_scan=decision.full_scan,
            tested=tested,
            matches=matcher(query.schema, tested) if tested else None,
            sort=sort,
            choice=query.choice,
            target_tests=() if query.targets is None else query.targets.tests,
        )

    def _scans(self) -> tuple[tuple[Scan, ...], Conjunction]:
        """Return the scans, and the conditions to test on the records of all of them."""
        steps = self._decision.steps
        combine = self._decision.combine
        if combine == "concatenate":
            last = len(steps) - 1
            return tuple(self._branch_scan(step, last=number == last) for number, step in enumerate(steps)), ()
        if combine == "scan" and len(steps) > 1:
            return self._united()
        if combine == "merge":
            scans = tuple(scan for step in steps for scan in self._split(step))
            if len(steps) == 1:
                return scans, self._rest(steps)
            return scans, self._query.where if any(self._rest((step,)) for step in steps) else ()
        return tuple(self._scan(step, self._ranges(step)) for step in steps), self._rest(steps)

    def _branch(self, step: ScanChoice) -> Branch:
        branches = self._alternatives.branches
        return self._alternatives.stem if step.branch is None or branches is None else branches[step.branch]

    def _rest(self, steps: Sequence[ScanChoice]) -> Conjunction:
        """Return the parts of a branch that none of its accesses answers."""
        served = frozenset[int]().union(*(step.access.served for step in steps))
        return _others(self._branch(steps[0]).parts, served)

    def _scan(self, step: ScanChoice, ranges: tuple[KeyRange, ...]) -> Scan:
        access, parts = step.access, self._branch(step).parts
        path = access.path
        definition = path.definition
        return Scan(
            index=definition.name if definition else None,
            generation=path.generation,
            prefix=path.prefix,
            columns=path.columns,
            unique=definition is not None and definition.unique,
            ranges=ranges,
            reverse=access.reverse,
            copies=definition is None or definition.copies_record,
            covers=access.covers,
            fans_out=access.fans_out,
            order=order_names(access.order),
            served=tuple(parts[at] for at in sorted(access.served)),
            sparse=any(isinstance(term, KindTerm) for term in self._terms(step)),
        )

    def _branch_scan(self, step: ScanChoice, *, last: bool) -> Scan:
        """Return one scan of a concatenation."""
        scan, rest, schema = self._scan(step, self._ranges(step)), self._rest((step,)), self._query.schema
        parts = self._branch(step).parts
        if self._query.choice:
            rest, parts = stated(rest), stated(parts)
        return replace(
            scan,
            tested=rest,
            matches=matcher(schema, rest),
            accepts=None if last else matcher(schema, parts),
        )

    def _united(self) -> tuple[tuple[Scan, ...], Conjunction]:
        """Return one scan over the ranges of several alternatives with the same tests."""
        steps, decision = self._decision.steps, self._decision
        served = steps[0].access.served.intersection(*(step.access.served for step in steps[1:]))
        common = self._branch(steps[0]).parts[: decision.common]
        scan = self._scan(steps[0], _united(key_range for step in steps for key_range in self._ranges(step)))
        tested = _others(common, served)
        answered = tuple(part for part in self._query.where if part not in tested)
        return (replace(scan, served=answered, order=order_names(decision.order)),), tested

    def _split(self, step: ScanChoice) -> Iterable[Scan]:
        """Return one scan for each combination of values of the split columns."""
        access = step.access
        if not access.split:
            yield self._scan(step, self._ranges(step))
            return
        fields = [field for field, _ in access.lists if field in access.split]
        terms = {term.field: term for term in self._terms(step)}
        counts = [range(len(terms[field].compared)) for field in fields]
        listed = {field: terms[field].listed() for field in fields}
        for places in product(*counts):
            chosen = dict(zip(fields, places, strict=True))
            values = tuple((field, listed[field][at]) for field, at in chosen.items() if at in listed[field])
            yield replace(self._scan(step, self._ranges(step, chosen)), values=values)

    def _sort(self) -> Sort:
        """Return the sort: by the requested order, then by the primary key."""
        query, schema = self._query, self._query.schema
        assert query.sort_limit is not None  # the decision requires it
        order = dict(query.directions)
        for key in schema.primary_key:
            order.setdefault(key.field, query.reverse)
        columns: list[Column] = []
        for field, down in order.items():
            source = source_at(schema, field)
            assert source is not None  # other queries were refused
            is_nullable = source.nullable or field in query.target_order
            column = ascending_column(source, is_nullable=is_nullable)
            columns.append(replace(column, field=field, descending=down))
        return Sort(tuple(columns), query.sort_limit, query.target_order, query.placed)

    # --- ranges -----------------------------------------------------------------------------------------------

    def _terms(self, step: ScanChoice) -> list[Term]:
        terms = self._branch(step).terms
        return [terms[number] for number in step.access.bound]

    def _ranges(self, step: ScanChoice, chosen: Mapping[str, int] | None = None) -> tuple[KeyRange, ...]:
        """Return the key ranges of an access; ``chosen`` has the number of the single value of each split field."""
        access = step.access
        path = access.path
        if access.by_keys:
            return self._keys(step)
        terms = self._terms(step)
        prefixes = [_Prefix(path.prefix, null=False)]
        last: Sequence[Span] = ()
        for column, term in zip(path.columns, terms, strict=False):
            spans = term.spans(column)
            if chosen is not None and column.field in chosen:
                at = chosen[column.field]
                spans = (spans[-1 - at if column.descending else at],)
            if not all(span.point for span in spans):
                last = spans
                break
            null = column.codec.pack(None) if column.nullable else None
            prefixes = [
                _Prefix(prefix.packed + span.start, prefix.null or span.start == null)
                for prefix in prefixes
                for span in spans
            ]
        return _key_ranges(path, prefixes, last, len(terms) == len(path.columns))

    def _keys(self, step: ScanChoice) -> tuple[KeyRange, ...]:
        """Return the keys for a list of composite primary keys; further lists are tested."""
        branch, prefix = self._branch(step), step.access.path.prefix
        assert branch.keys is not None  # the access uses it
        listed = branch.parts[branch.keys]
        assert isinstance(listed, Condition)  # it is an "in"
        keys = sorted({packed_key(self._query.schema, values) for values in listed.operand})
        return tuple(KeyRange(prefix + key, None) for key in keys)


class _Prefix(NamedTuple):
    """The packed beginning of keys whose columns so far have certain values."""

    packed: bytes
    null: bool


def _key_ranges(path: Path, prefixes: Sequence[_Prefix], last: Sequence[Span], complete: bool) -> tuple[KeyRange, ...]:
    if last:
        return tuple(
            (LastRowRange if span.last else KeyRange)(prefix.packed + span.start, prefix.packed + span.end)
            for prefix in prefixes
            for span in last
        )
    # With None in a column, a unique index with distinct nulls has one row per record, like a non-unique index.
    several = path.definition is not None and path.definition.unique and path.definition.repeats_none
    return tuple(
        KeyRange(prefix.packed, None)
        if complete and not (prefix.null and several)
        else KeyRange(prefix.packed, after_prefix(prefix.packed))
        for prefix in prefixes
    )


def _united(ranges: Iterable[KeyRange]) -> tuple[KeyRange, ...]:
    """Return ascending, disjoint ranges, without those that are contained in others."""
    given = [*ranges]
    if any(isinstance(one, LastRowRange) for one in given):
        return _united_parts(given)
    united: list[KeyRange] = []
    for start, end in sorted(given, key=lambda one: (one.start, one.end or one.start)):
        last = united[-1] if united else None
        if last is None or start >= (last.end or key_successor(last.start)):
            united.append(KeyRange(start, end))
        elif last.end is None or (end is not None and end > last.end):
            united[-1] = KeyRange(last.start, end if end is not None else last.end)
    return tuple(united)


def _united_parts(ranges: Sequence[KeyRange]) -> tuple[KeyRange, ...]:
    """Return the parts between the ends of all ranges, of which some are read for their last row alone.

    The last row of a range is the last one of some of its parts.
    """
    ends = [key_successor(one.start) if one.end is None else one.end for one in ranges]
    edges = sorted({*(one.start for one in ranges), *ends})
    united: list[KeyRange] = []
    for start, end in pairwise(edges):
        over = [one for one, until in zip(ranges, ends, strict=True) if one.start <= start and end <= until]
        if over:
            is_last = all(isinstance(one, LastRowRange) for one in over)
            united.append((LastRowRange if is_last else KeyRange)(start, end))
    return tuple(united)


def _others(parts: Conjunction, places: frozenset[int]) -> Conjunction:
    return tuple(part for at, part in enumerate(parts) if at not in places)
