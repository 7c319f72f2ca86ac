"""Plan ranked queries: the index that supplies an order by distance, the groups to read, and the conditions to test.

An index serves a ranked query if the filter fixes every column of its group, by equality or a list of values, and
implies its condition. Of several, the one with the most columns in its group is used, then the first declared one. All
other conditions are tested on the records, nearest first.

Rules of this module: pure. A ranked query never scans a collection and never sorts it in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import isfinite, prod
from typing import Any, NamedTuple

from kvmodels._support import suggest as spelling
from kvmodels.catalog.collection import LiveCollection
from kvmodels.core.operations import after_prefix
from kvmodels.errors import (
    InvalidArgumentError,
    InvalidValueError,
    NoUsableIndexError,
    QueryError,
    UnknownFieldError,
    UnknownLookupError,
)
from kvmodels.query.kinds.contract import KindAccess
from kvmodels.query.kinds.ranking import KindRanking
from kvmodels.query.kinds.registry import ACCESS
from kvmodels.query.matching import matcher
from kvmodels.query.orders import order_names
from kvmodels.query.planning.branches import (
    MAX_PRODUCT,
    Branch,
    ColumnTerm,
    branch_of,
    can_match,
    partials_of,
    shape_of,
)
from kvmodels.query.planning.refusals import described_index, filter_lookups, not_readable
from kvmodels.query.plans import KeyRange, QueryPlan, Scan
from kvmodels.query.projection import FieldName, field_of
from kvmodels.query.query import Query
from kvmodels.query.ranked_order import RankedOrder
from kvmodels.schema.definition.definition import IndexDefinition, ModelSchema

# --- the query --------------------------------------------------------------------------------------------------


def ranked_query(query: Query, method: str, by: FieldName, origin: Any, within: Any) -> Query:
    """Return the query in the order of the distance from an origin.

    ``by``: the indexed field, or the name of an index. Raises QueryError for an order, UnknownFieldError,
    UnknownLookupError for a field that has no distances, NoUsableIndexError without an index, InvalidValueError for
    the origin, and InvalidArgumentError.
    """
    query = query.without_default_order()
    _require_plain(query, method)
    schema = query.schema
    definition, ranking = _ranking_for(schema, method, by)
    field = ranking.field(definition)
    checked = ranking.origin(schema, field, origin)
    order = RankedOrder(
        method,
        field,
        checked,
        _distance_limit(schema, within),
        ranking.digest(checked),
        ranking.verifies(checked),
        ranking.scores,
        ranking.most,
    )
    using = definition.name if isinstance(by, str) and by == definition.name != field else query.using
    return replace(query, ranked=order, using=using, sort_limit=None)


def _require_plain(query: Query, method: str) -> None:
    query.refuse_slice(method)
    if query.order or query.reverse:
        raise query.order_refusal(order_names(query.directions))
    others = {"values": query.fields is not None, "with_related": query.related}
    called = next((name for name, is_set in others.items() if is_set), None)
    if called is not None:
        raise InvalidArgumentError(
            "a query of this form cannot be ranked",
            argument=method,
            value=f"{called}()",
            hint=f"Call values() after {method}()."
            if called == "values"
            else f"Leave out {called}(); each result has the record and its distance or score.",
        )


def _distance_limit(schema: ModelSchema, within: Any) -> float | None:
    if within is None:
        return None
    hint = "Give the greatest distance as a number: within_m=5_000."
    if isinstance(within, bool) or not isinstance(within, int | float):
        raise InvalidValueError(
            "the greatest distance is a number",
            model=schema.name,
            field="within_m",
            type=type(within).__name__,
            hint=hint,
        )
    try:
        limit = float(within)
    except OverflowError:
        limit = float("inf")
    if not isfinite(limit) or limit < 0:
        raise InvalidArgumentError(
            "the greatest distance is 0 or more, and finite", argument="within_m", value=within, hint=hint
        )
    return limit


def _ranking_for(schema: ModelSchema, method: str, by: FieldName) -> tuple[IndexDefinition, KindRanking]:
    """Return the index of this name, or the first one of this field, with its ranking."""
    by_index = isinstance(by, str) and by in schema.indexes and by not in schema.fields
    name = by if isinstance(by, str) and by_index else _field_of(schema, method, by)
    for definition in schema.indexes.values():
        ranking = ACCESS[definition.kind].rankings.get(method)
        if ranking is not None and name == (definition.name if by_index else ranking.field(definition)):
            return definition, ranking
    raise _not_ranked(schema, method, name) if by_index else _without_index(schema, method, name)


def _field_of(schema: ModelSchema, method: str, by: FieldName) -> str:
    """Return the name of a field. Raises UnknownFieldError, about indexes if the method takes their names."""
    try:
        return field_of(schema, by)
    except UnknownFieldError as error:
        if not isinstance(by, str) or not all(one.rankings[method].named for one in _accesses(method)):
            raise
        ranked = names_of_ranking_indexes(schema, method)
        known = f"{method}() takes one of: {', '.join(ranked)}."
        raise UnknownFieldError(
            "the model has no index of this name",
            model=schema.name,
            field=by,
            suggestion=spelling.closest(by, ranked),
            hint=known if ranked else _hint_for_model(schema, method),
        ) from error


def _hint_for_model(schema: ModelSchema, method: str) -> str:
    """Return which index to add to a model that has none for a method."""
    for name in schema.fields:
        addition = _addition(schema, method, name)
        if addition is not None:
            return f"{schema.name} has no index for {method}(): {addition}."
    return f"{schema.name} has no index for {method}(), and no field that can have one."


def _accesses(method: str) -> list[KindAccess]:
    """Return the access of each kind of index that supplies an order."""
    return [ACCESS[kind] for kind in ACCESS if method in ACCESS[kind].rankings]


def names_of_ranking_indexes(schema: ModelSchema, method: str) -> list[str]:
    """Return the names of the indexes of kinds that supply an order, such as ``search``."""
    return [one.name for one in schema.indexes.values() if method in ACCESS[one.kind].rankings]


def _not_ranked(schema: ModelSchema, method: str, name: str) -> UnknownFieldError:
    ranked = names_of_ranking_indexes(schema, method)
    return UnknownFieldError(
        "the index does not supply this order",
        model=schema.name,
        field=name,
        suggestion=spelling.closest(name, ranked),
        hint=f"Give the field, or one of the indexes that do: {', '.join(ranked) or 'there is none'}.",
    )


def _without_index(schema: ModelSchema, method: str, name: str) -> QueryError:
    addition = _addition(schema, method, name)
    if addition is None:
        return UnknownLookupError(
            "values of this field have no distances",
            model=schema.name,
            field=name,
            lookup=method,
            hint="Rank by a field that a kind of index with this order takes.",
        )
    return NoUsableIndexError(
        "no index supplies this order",
        model=schema.name,
        filters=(),
        order=(method,),
        candidates=tuple(map(described_index, schema.indexes.values())),
        hint=_hint_for_field(schema, method, name, addition),
    )


def _hint_for_field(schema: ModelSchema, method: str, field: str, addition: str) -> str:
    """Return which names the method takes, if it takes those of indexes, and which index to add for a field."""
    ranked = [(one, ACCESS[one.kind].rankings.get(method)) for one in schema.indexes.values()]
    named = [one for one, ranking in ranked if ranking is not None and ranking.named]
    # Indexes of the field come first.
    named.sort(key=lambda one: one.options is None or all(column.field != field for column in one.options.columns))
    names = f"give the name of an index, such as {named[0].name!r}, or " if named else ""
    text = f"{names}{addition}"
    return f"{text[0].upper()}{text[1:]}."


def _addition(schema: ModelSchema, method: str, field: str) -> str | None:
    """Return which index to add for a field without a group; None if no kind takes it."""
    for access in _accesses(method):
        code = access.rankings[method].declaration(schema, field)
        if code is not None:
            return f"add {code} to the indexes of {schema.name}.Meta"
    return None


# --- the plan ---------------------------------------------------------------------------------------------------


class _Group(NamedTuple):
    """An index that serves a query, and the values that the filter gives the columns of its group.

    Attributes:
        terms: a term of the filter for each column.
        heads: the packed columns of each value of the group.
        served: the positions of the parts of the filter that need no test.
    """

    definition: IndexDefinition
    terms: tuple[ColumnTerm, ...]
    heads: tuple[bytes, ...]
    served: frozenset[int]


def plan_ranked(query: Query, live: LiveCollection, through: frozenset[str] | None = None) -> QueryPlan:
    """Return the plan of a ranked query; ``through``: as for ``plan_query``.

    Raises NoUsableIndexError or IndexNotReadyError.
    """
    stem = branch_of(query.schema, query.where)
    assert query.ranked is not None  # callers saw to it
    order = (query.ranked.label, *(column.field for column in query.schema.primary_key))
    if not can_match(stem) or (query.stop is not None and query.start >= query.stop):
        return QueryPlan(query.schema, "nothing", (), order, query.start, query.stop, ranked=query.ranked)
    found = _usable(query, live, stem, [one for one in _candidates(query, through) if one.name in live.readable])
    if found is None:
        raise _refusal(query, live, stem, through)
    tested = tuple(part for at, part in enumerate(stem.parts) if at not in found.served)
    return QueryPlan(
        schema=query.schema,
        combine="ranked",
        scans=(_scan(query, live, stem, found, order),),
        order=order,
        start=query.start,
        stop=query.stop,
        tested=tested,
        matches=matcher(query.schema, tested),
        ranked=query.ranked,
    )


def ranking_of(plan: QueryPlan, live: LiveCollection) -> tuple[IndexDefinition, KindRanking]:
    """Return the index of a plan, and its ranking."""
    assert plan.ranked is not None  # it is a ranked plan
    assert plan.index is not None
    definition = live.readable[plan.index].definition
    return definition, ACCESS[definition.kind].rankings[plan.ranked.method]


def tests_records(plan: QueryPlan) -> bool:
    """Return whether records decide if they are results, besides their entries."""
    return plan.matches is not None or (plan.ranked is not None and plan.ranked.verified)


def orders_by_records(plan: QueryPlan) -> bool:
    """Return whether records decide if they are results, or their place in the order."""
    return tests_records(plan) or (plan.ranked is not None and plan.ranked.most is not None)


def _candidates(query: Query, through: frozenset[str] | None) -> list[IndexDefinition]:
    """Return the declared indexes that supply the order, whatever their groups."""
    ranked = query.ranked
    assert ranked is not None  # callers saw to it
    found: list[IndexDefinition] = []
    for definition in query.schema.indexes.values():
        ranking = ACCESS[definition.kind].rankings.get(ranked.method)
        if ranking is None or ranking.field(definition) != ranked.field:
            continue
        if query.using in (None, definition.name) and (through is None or definition.name in through):
            found.append(definition)
    return found


def _usable(query: Query, live: LiveCollection, stem: Branch, among: Iterable[IndexDefinition]) -> _Group | None:
    """Return the best of some indexes; None if none serves the query."""
    indexes = list(among)
    guaranteed = _guaranteed(query, live, stem, indexes)
    groups = [
        group
        for one in indexes
        if (one.where is None or one.name in guaranteed)
        and (group := _group(stem, one, guaranteed.get(one.name, ()))) is not None
    ]
    # max() returns the first of equals: the declaration order.
    return max(groups, key=lambda group: (len(group.terms), len(group.served)), default=None)


def _guaranteed(
    query: Query, live: LiveCollection, stem: Branch, indexes: Iterable[IndexDefinition]
) -> Mapping[str, tuple[int, ...]]:
    """Return the parts that all records of each partial index satisfy; none for an index that lacks records."""
    partials = [one for one in indexes if one.where is not None]
    if not partials:
        return {}
    shape = shape_of(query, stem, (stem,), [*partials_of(live), *partials], None)
    return {partial.name: partial.parts for partial in shape.stem.partials}


def _group(stem: Branch, definition: IndexDefinition, guaranteed: Iterable[int]) -> _Group | None:
    heads, served, terms = [b""], set(guaranteed), list[ColumnTerm]()
    for column in definition.columns:
        term = next((one for one in _fixed(stem) if one.field == column.field), None)
        if term is None:
            return None
        spans = term.spans(column)
        if len(heads) * len(spans) > MAX_PRODUCT:
            return None
        heads = [head + span.start for head in heads for span in spans]
        served.update(term.at)
        terms.append(term)
    return _Group(definition, tuple(terms), tuple(heads), frozenset(served))


def _number_of_groups(stem: Branch, definition: IndexDefinition) -> int:
    """Return for how many values of the group an index would be read, at least 1."""
    sizes = {term.field: len(term.compared) for term in reversed(_fixed(stem))}  # the first of a field is used
    return prod(sizes.get(column.field, 1) for column in definition.columns)


def _fixed(stem: Branch) -> list[ColumnTerm]:
    """Return the terms that leave single values of a column."""
    columns = [term for term in stem.terms if isinstance(term, ColumnTerm)]
    return [term for term in columns if all(span.point for span in term.compared)]


def _scan(query: Query, live: LiveCollection, stem: Branch, found: _Group, order: tuple[str, ...]) -> Scan:
    index, definition = live.readable[found.definition.name], found.definition
    prefix = index.layout.prefix
    heads = sorted(prefix + head for head in found.heads)
    return Scan(
        index=definition.name,
        generation=index.stored.generation,
        prefix=prefix,
        columns=(*definition.columns, *query.schema.primary_key),
        unique=False,
        ranges=tuple(KeyRange(head, after_prefix(head)) for head in heads),
        reverse=False,
        copies=False,
        covers=False,
        fans_out=False,
        order=order,
        served=tuple(stem.parts[at] for at in sorted(found.served)),
    )


# --- refusals ---------------------------------------------------------------------------------------------------


def _refusal(query: Query, live: LiveCollection, stem: Branch, through: frozenset[str] | None) -> Exception:
    """Return the error for a query that no readable index serves."""
    candidates, ranked = _candidates(query, None), query.ranked
    assert ranked is not None  # callers saw to it
    if through is None:
        unready = _usable(query, live, stem, [one for one in candidates if one.name in live.states])
        if unready is not None:
            message = "the index that would serve this query is not readable"
            return not_readable(message, query, live, unready.definition.name, by_scan=False)
    return NoUsableIndexError(
        "no index supplies this order for this filter",
        model=query.schema.name,
        filters=filter_lookups(query),
        order=(ranked.method,),
        candidates=tuple(described_index(one) for one in query.schema.indexes.values() if one.name in live.readable),
        hint=_hint(query, stem, candidates),
    )


def _hint(query: Query, stem: Branch, candidates: Iterable[IndexDefinition]) -> str:
    ranked, schema = query.ranked, query.schema
    assert ranked is not None  # callers saw to it
    ways: list[str] = []
    field = ranked.field
    for definition in candidates:
        field = ACCESS[definition.kind].rankings[ranked.method].field(definition)
        fixed = {term.field for term in _fixed(stem)}
        missing = [column.field for column in definition.columns if column.field not in fixed]
        groups = _number_of_groups(stem, definition)
        if missing:
            names = " and ".join(f"{name}=..." for name in missing)
            ways.append(f"give the group of the index {definition.name!r}: filter({names})")
        elif groups > MAX_PRODUCT:
            ways.append(f"give at most {MAX_PRODUCT:,} groups of the index {definition.name!r}, and not {groups:,}")
        elif definition.where is not None:
            ways.append(f"filter by the condition of the index {definition.name!r} as well: {definition.where.text}")
    if query.using is not None:
        ways.append(f"leave out using_index(), and give the field {field!r}")
    else:
        addition = _addition(schema, ranked.method, field)
        ways += [] if addition is None else [addition]
    text = ", or ".join(ways)
    return f"{text[0].upper()}{text[1:]}."
