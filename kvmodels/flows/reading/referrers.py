"""Records that refer to some objects: the first ones of each object, filtered and ordered.

Without a filter and an order, the entries of the foreign key's own index are read. Otherwise the query for the
referring records of one object is planned for each object. If each plan is one scan of the same index, the scans of all
objects are read together; other plans are read one after the other.

Rules of this module: an order is served by an index, or refused. A filter may leave conditions to test on the records
of one object, as in a query for these records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from kvmodels._support.naming import short_repr
from kvmodels.catalog.catalogue import IndexState
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.references import IncomingReference
from kvmodels.catalog.unknown import unknown_declared
from kvmodels.core.operations import ReadRange, Row
from kvmodels.errors import IndexNotReadyError, InvalidArgumentError, NoUsableIndexError
from kvmodels.flows.arguments import items_of, require_limit, require_object
from kvmodels.flows.context import Context, HeaderView, live_collection, planned, reload_header
from kvmodels.flows.effects import Flow, read_all, steps_of
from kvmodels.flows.execution.executor import MAX_BATCH
from kvmodels.flows.execution.join import MatchedRecord, ResultBatch, ScanSession, result_of
from kvmodels.flows.execution.permission import permitted, planned_again
from kvmodels.flows.execution.ranges import START, Candidate, Choice, Piece, ScanPosition, Walk
from kvmodels.flows.execution.targets import declared, with_satisfied_targets
from kvmodels.flows.reading import scan
from kvmodels.flows.reading.lookup import get_many_by_key
from kvmodels.flows.reading.semi_join import described, resolved
from kvmodels.query.planning.branches import branch_of, tested_fields
from kvmodels.query.planning.planner import plan_query
from kvmodels.query.planning.refusals import suggested
from kvmodels.query.plans import LastRowRange, QueryPlan
from kvmodels.query.query import OrderColumn, Query, reference_of
from kvmodels.schema.declare.expressions import Expression
from kvmodels.schema.declare.many_to_many_ref import relation_named
from kvmodels.schema.definition.definition import ModelSchema, Reference
from kvmodels.schema.filters.operands import PRIMARY_KEY
from kvmodels.schema.filters.predicate import Predicate, conditions_of


class ReferrerOptions(NamedTuple):
    """The referring records to return for each object.

    Attributes:
        limit: the most records of one object.
        filter: a condition on the referring records; None for all.
        order_by: a column, or several; none for the order of the primary keys.
    """

    limit: int
    filter: Expression | None = None
    order_by: OrderColumn | Iterable[OrderColumn] = ()

    @property
    def columns(self) -> tuple[OrderColumn, ...]:
        """Return the columns to order by."""
        if isinstance(self.order_by, Iterable) and not isinstance(self.order_by, str):
            several: Iterable[OrderColumn] = self.order_by
            return tuple(several)
        return (self.order_by,)


def fetch_referrers(
    context: Context, schema: ModelSchema, instances: Iterable[Any], key: object, options: ReferrerOptions
) -> Flow[dict[Any, list[Any]]]:
    """Return, for each object, the first records that refer to it."""
    asked = _checked(context, schema, instances, key, options)
    if asked.of_own_index:
        return (yield from _of_own_index(context, asked, options.limit))
    queries = yield from queries_of(context, asked.query, asked.reference.field, asked.keys)
    found = yield from _of_queries(context, queries, asked.reference.field, options.limit)
    return dict(zip(asked.keys, found, strict=True))


class _Asked(NamedTuple):
    """Checked arguments: the query for all referring records, the foreign key, and the keys of the objects.

    ``of_own_index``: there is neither a filter nor an order.
    """

    query: Query
    reference: Reference
    keys: list[Any]
    of_own_index: bool


def _checked(
    context: Context, schema: ModelSchema, instances: Iterable[Any], key: object, options: ReferrerOptions
) -> _Asked:
    require_limit(options.limit, "Give 1 or more: limit=10.")
    objects = items_of("objs", instances, "Give objects of the model in a list.")
    for instance in objects:
        require_object(schema, instance)
    referring = referring_schema(context, schema, key)
    reference = reference_of(referring, key)
    keys = list(dict.fromkeys(schema.primary_key_of(instance)[0] for instance in objects))
    columns = options.columns
    query = Query(referring)
    if options.filter is not None:
        query = query.filtered((options.filter,), {})
    query = query.ordered(columns or (PRIMARY_KEY,))
    if query.target_order:
        raise InvalidArgumentError(
            "the first referring records have no order by fields of their targets",
            argument="order_by",
            value=query.target_order,
            hint=f"Query the records of one object: filter({reference.field}=obj) with order_by() and "
            "sort_in_memory().",
        )
    return _Asked(query, reference, keys, options.filter is None and not columns)


def plan_of(
    context: Context, schema: ModelSchema, instances: Iterable[Any], key: object, options: ReferrerOptions
) -> Flow[QueryPlan]:
    """Return the plan for the first of some objects, with how it is repeated; raises like ``fetch_referrers``."""
    asked = _checked(context, schema, instances, key, options)
    if not asked.keys:
        raise InvalidArgumentError(
            "there is no object to plan for", argument="objs", value=(), hint="Give an object of the model."
        )
    field = asked.reference.field
    queries = yield from queries_of(context, asked.query, field, asked.keys)
    if asked.of_own_index:
        queries = [query.through(asked.reference.index_name) for query in queries]
    _, plans = yield from referrer_plans(context, [query.limited(options.limit) for query in queries], field)
    number = len(plans)
    together = asked.of_own_index or are_one_scan(plans, field)
    how = "all ranges in one request for each batch" if together else "one query after the other"
    each = f"the same for {number:,} object{'s' * (number > 1)}, at most {options.limit:,} of each, {how}"
    semi_joins = (yield from described(context, asked.query)) if asked.query.pending else ()
    return replace(plans[0], each=each, semi_joins=semi_joins)


def referring_schema(context: Context, schema: ModelSchema, key: object) -> ModelSchema:
    """Return the schema of the model that declares the foreign key to a model. Raises InvalidArgumentError."""
    model = getattr(key, "_model", None)
    relation = relation_named(key)
    if relation is not None:
        raise _relation_for_key(schema, relation[0], key)
    for one in context.schemas.values():
        if one.model is model:  # a class that derives from another one has records of its own
            reference = reference_of(one, key)
            if declared(context, reference).collection == schema.collection:
                return one
    raise InvalidArgumentError(
        "this is not a foreign key that refers to the model",
        argument="key",
        value=short_repr(key),
        hint=f"Give the attribute of another class whose target is {schema.name}: Book.author_id.",
    )


def _relation_for_key(schema: ModelSchema, name: str, given: object) -> InvalidArgumentError:
    relation = schema.relations.get(name)
    key = "owner_id" if relation is None else relation.own
    return InvalidArgumentError(
        "this is a many-to-many relation, and not a foreign key that refers to the model",
        argument="key",
        value=short_repr(given),
        hint=f"Give the key of its link model: Count(db[{schema.name}].links({given!r}).model.{key}).",
    )


def queries_of(context: Context, query: Query, field: str, keys: Sequence[Any]) -> Flow[list[Query]]:
    """Return the query for the records of each key, with the keys of queries among the operands, read once."""
    asked = [_of_key(query, field, key) for key in keys]
    if not query.pending or not asked:
        return asked
    if field in query.filter_fields:  # the filter may fix the key itself, so each query has operands of its own
        found: list[Query] = []
        for one in asked:
            found += [(yield from resolved(context, one))]
        return found
    first = yield from resolved(context, asked[0])
    own = asked[0].where[0]
    return [replace(first, where=tuple(one.where[0] if part == own else part for part in first.where)) for one in asked]


def _of_key(query: Query, field: str, key: object) -> Query:
    """Return the query for the records of one key; the key is compared first, as in the index that an error names."""
    narrowed = query.filtered((), {field: key})
    return replace(narrowed, where=(narrowed.where[-1], *narrowed.where[:-1]))


# --- by the index of the foreign key ----------------------------------------------------------------------------


def _of_own_index(context: Context, asked: _Asked, limit: int) -> Flow[dict[Any, list[Any]]]:
    """Return the first records of each object in the order of their primary keys."""
    referring, reference, keys = asked.query.schema, asked.reference, asked.keys
    target = context.layouts[declared(context, reference).collection]
    while True:
        view, index = yield from planned(context, referring, lambda live: index_of_key(live, reference))
        incoming = IncomingReference(
            referring.collection, index.layout, context.layouts[referring.collection], index.layout
        )
        ranges: list[ReadRange] = [incoming.span(target.pack((key,)), limit) for key in keys]
        found = yield from read_all(context.limits, ranges, view.guard)
        if found is not None:
            break
        yield from reload_header(context)
    wanted = [
        (key, incoming.records.unpack(incoming.pk_of(context.codec, row)))
        for key, rows in zip(keys, found, strict=True)
        for row in rows
    ]
    records = yield from get_many_by_key(context, referring, [pk for _, pk in wanted])
    referrers: dict[Any, list[Any]] = {key: [] for key in keys}
    for (key, _), record in zip(wanted, records, strict=True):
        # Read after its entry: it may refer to another record now.
        if record is not None and getattr(record, reference.field) == key:
            referrers[key].append(record)
    return referrers


def index_of_key(live: LiveCollection, reference: Reference) -> LiveIndex:
    """Return the index of a foreign key. Raises IndexNotReadyError if it is not complete."""
    index = live.readable.get(reference.index_name)
    if index is not None:
        return index
    if live.states[reference.index_name] is IndexState.UNKNOWN:
        raise unknown_declared(live.schema, reference.index_name)
    raise IndexNotReadyError(
        "the index of a foreign key is not complete",
        model=live.schema.name,
        index=reference.index_name,
        state=live.states[reference.index_name].value,
    )


# --- by queries -------------------------------------------------------------------------------------------------


def _of_queries(context: Context, queries: Sequence[Query], field: str, limit: int) -> Flow[list[list[Any]]]:
    """Return the first results of each query."""
    while queries:
        view, plans = yield from referrer_plans(context, queries, field)
        if not are_one_scan(plans, field):
            found: list[list[Any]] = []
            for query in queries:
                found += [(yield from steps_of(scan.fetch(context, query.limited(limit))))]
            return found
        read = yield from _ReferrerScan(context, view, plans, limit).results()
        if read is not None:
            return read
        yield from reload_header(context)
    return []


def referrer_plans(context: Context, queries: Sequence[Query], field: str) -> Flow[tuple[HeaderView, list[QueryPlan]]]:
    """Return the plan of each query. Raises NoUsableIndexError for an order that no index has."""
    schema = queries[0].schema
    try:
        return (yield from planned(context, schema, partial(_plans, queries)))
    except NoUsableIndexError as error:
        refused = _refusal(error, queries[0], field)
        plan = partial(_plans, [permitted(query) for query in queries])
        return (yield from planned_again(context, refused, schema, plan))


def _plans(queries: Sequence[Query], live: LiveCollection) -> list[QueryPlan]:
    return [plan_query(query, live) for query in queries]


def _refusal(error: NoUsableIndexError, query: Query, field: str) -> NoUsableIndexError:
    """Return the error without the advice to sort, which is possible in a query for one object only."""
    suggestion = suggested(query.schema, branch_of(query.schema, query.where), query.directions)
    hint = error.hint
    if suggestion is not None and suggestion.conflict is None:
        hint = f"{suggestion.text[0].upper()}{suggestion.text[1:]}, or query the records of each object: "
        hint += f"filter({field}=obj) with order_by() and sort_in_memory()."
    return NoUsableIndexError(
        "no index has the first referring records of an object in this order",
        model=error.model,
        filters=error.filters,
        order=error.order,
        candidates=error.candidates,
        hint=hint,
    )


def are_one_scan(plans: Iterable[QueryPlan], field: str) -> bool:
    """Return whether plans for different values of a foreign key are scans of one index with the same tests.

    Tests differ where an alternative of the filter is about the foreign key itself: for one value nothing is left to
    test, for the others the other alternative is.
    """
    indexes: set[str | None] = set()
    tests: list[tuple[tuple[Predicate, ...], ...]] = []
    for plan in plans:
        if plan.combine == "nothing":
            continue
        if plan.combine != "scan" or plan.sort is not None or plan.choice:
            return False
        (only,) = plan.scans
        conditions = [one for part in (*plan.tested, *only.tested) for one in conditions_of(part)]
        tested = {name for one in conditions for name in tested_fields(plan.schema, one)}
        if only.fans_out or field in tested or any(isinstance(one, LastRowRange) for one in only.ranges):
            return False
        indexes.add(only.index)
        tests.append((plan.tested, only.tested, plan.target_tests))
    return len(indexes) <= 1 and None not in indexes and all(one == tests[0] for one in tests)


class _ReferrerScan:
    """Reads the first results of several plans together; a stateful object for one reader."""

    def __init__(self, context: Context, view: HeaderView, plans: Sequence[QueryPlan], limit: int) -> None:
        self._context = context
        self._view = view
        self._plans = plans
        self._limit = limit
        self._reading = [at for at, plan in enumerate(plans) if plan.scans]
        scans = tuple(plans[at].scans[0] for at in self._reading)
        self._walks = [Walk(number, one) for number, one in enumerate(scans)]
        self._places: list[ScanPosition | None] = [START for _ in scans]
        self._found: list[dict[bytes, MatchedRecord]] = [{} for _ in scans]
        self._plan = replace(plans[self._reading[0]], scans=scans) if scans else None

    def results(self) -> Flow[list[list[Any]] | None]:
        """Return the first objects of each plan; None when the header has changed."""
        results: list[list[Any]] = [[] for _ in self._plans]
        if self._plan is None:
            return results
        schema = self._plan.schema
        _, live = yield from live_collection(self._context, schema)
        session = ScanSession(self._context, self._view, live, self._plan)
        size = self._limit
        if session.readers[0].selective or self._plan.target_tests:
            size = max(size, scan.FEWEST_TESTED)
        while pieces := self._pieces(size):
            if not (yield from self._next(session, live, pieces, size)):
                return None
            size = min(size * 2, max(MAX_BATCH, self._limit))
        for at, found in zip(self._reading, self._found, strict=True):
            hits = list(found.values())[: self._limit]
            results[at] = [result_of(live, hit, None, schema) for hit in hits]
        return results

    def _pieces(self, size: int) -> list[Piece]:
        """Return the next range of each plan that has not enough results."""
        pieces: list[Piece] = []
        for walk, place, found in zip(self._walks, self._places, self._found, strict=True):
            if place is not None and len(found) < self._limit:
                pieces += walk.pieces(place, 1, size)
        return pieces

    def _next(self, session: ScanSession, live: LiveCollection, pieces: Sequence[Piece], size: int) -> Flow[bool]:
        """Read at most ``size`` rows of each piece and keep the results; return False when the header has changed."""
        read: list[Sequence[list[Row]]] = []

        def choose(found: Sequence[list[Row]]) -> Choice:
            read[:] = [found]
            rows = [(piece.number, row) for piece, some in zip(pieces, found, strict=True) for row in some]
            return Choice([Candidate(row[0], number, row) for number, row in rows], None, more=False)

        joined = yield from session.joined([piece.wanted for piece in pieces], choose)
        if joined is None:
            return False
        for piece, rows in zip(pieces, read[0], strict=True):
            walk = self._walks[piece.number]
            full = piece.wanted.end is not None and len(rows) >= size
            self._places[piece.number] = walk.behind(piece, rows[-1]) if full else walk.after(piece)
        candidates, hits = session.matching(joined)
        batch = ResultBatch(hits, candidates, len(hits), None, more=False)
        plan = self._plans[self._reading[0]]
        if plan.target_tests:
            batch = yield from with_satisfied_targets(self._context, live, plan, batch)
        for candidate, hit in zip(batch.found, batch.hits, strict=True):
            self._found[candidate.number].setdefault(hit.pk, hit)
        return True
