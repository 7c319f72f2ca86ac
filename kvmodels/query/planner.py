"""Choose how to answer a query: rules in a fixed order, no statistics.

Every readable index, and the primary key, is a list of columns. Walking them from the left, conditions that leave
single values bind a column and go on; the first column with anything else gives the last bounds. An access is
*permitted* when its ranges answer every condition, or when at least one condition that narrows (not ``ne`` or
``not_in``) is answered and the rest is tested on what was read. Among the permitted ones that supply the order, the
best is: at most one row, then more columns bound to one value, then more columns bound to several values or a range,
then the primary key, then the order of declaration.

Rules of this module: pure and deterministic. An index that leaves out records with None is used only where the
conditions exclude None. There is no sort in memory: an order comes from the index or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kvmodels.errors import IndexNotReadyError
from kvmodels.operations import after_prefix
from kvmodels.query.matching import comparison_column, matcher, packed_key
from kvmodels.query.plans import KeyRange, QueryPlan, Scan
from kvmodels.query.query import Query
from kvmodels.query.refusals import no_usable_index
from kvmodels.schema.catalogue import IndexState
from kvmodels.schema.definition import Column, IndexDefinition
from kvmodels.schema.live import LiveCollection
from kvmodels.schema.names import PRIMARY_KEY
from kvmodels.schema.predicate import AnyOf, Condition
from kvmodels.schema.spans import Span, contains, has_spans, matching_parts

__all__ = ["MAX_PRODUCT", "plan_query"]

MAX_PRODUCT: Final = 1_000
"""The most ranges that several lists of values may multiply to; one list alone may be longer."""

_NOT_NARROWING: Final = frozenset({"ne", "not_in"})

Conditions = Mapping[str, tuple[Condition, ...]]


class _Path(NamedTuple):
    """Something with ordered keys that can be read: the records, or the entries of an index."""

    definition: IndexDefinition | None
    columns: tuple[Column, ...]
    prefix: bytes
    generation: int


class _Prefix(NamedTuple):
    """The packed beginning of keys in which the columns so far have certain values."""

    packed: bytes
    null: bool


class _Access(NamedTuple):
    """What a path can do for a query."""

    path: _Path
    ranges: tuple[KeyRange, ...]
    served: tuple[Condition, ...]
    equal: frozenset[str]
    bounded: int
    """Columns bound to several values or to a range."""
    reverse: bool = False

    @property
    def single(self) -> bool:
        return len(self.ranges) == 1 and self.ranges[0].end is None

    @property
    def narrows(self) -> bool:
        return any(condition.lookup not in _NOT_NARROWING for condition in self.served)


def plan_query(query: Query, live: LiveCollection, *, through: str | None = None) -> QueryPlan:
    """Plan a query over a collection.

    Args:
        query: what is asked for.
        live: the collection with the indexes that are readable now.
        through: the name of the only index to consider, ``""`` for the primary key; None for all of them. A page
            that follows another one is read through the same index.

    Raises:
        NoUsableIndexError: nothing serves the filter or the order, and ``allow_scan()`` was not called or does not
            help; the hint has the line to add to the model.
        IndexNotReadyError: an index is declared that would serve, and it is not built.
    """
    conditions = _by_field(query)
    if _contradicts(query, conditions):
        return _empty(query)
    paths = [path for path in _paths(live) if through is None or _name(path) == through]
    accesses = _usable(paths, query, conditions)
    permitted = [access for access in accesses if _is_permitted(access, query)]
    if permitted:
        return _plan(min(permitted, key=_cost), query)  # min() keeps the first of equals: the declaration order
    if query.scan_allowed and accesses:
        return _plan(accesses[0], query, full_scan=True)
    if through is None:
        _refuse_unready(query, live, conditions)
    raise no_usable_index(query, live)


def _by_field(query: Query) -> Conditions:
    """The conditions that ranges of columns of one value can answer; the others are tested."""
    grouped: dict[str, tuple[Condition, ...]] = {}
    for condition in query.where:
        if isinstance(condition, Condition):
            column = comparison_column(query.schema, condition.field)
            if column is None or (has_spans(condition, column) and not column.many):
                grouped[condition.field] = (*grouped.get(condition.field, ()), condition)
    return grouped


def _contradicts(query: Query, conditions: Conditions) -> bool:
    """Whether no value of some field can satisfy its conditions."""
    if query.stop is not None and query.start >= query.stop:
        return True
    if any(isinstance(part, AnyOf) and not part.parts for part in query.where):
        return True
    columns = [(_declared(query, field), group) for field, group in conditions.items()]
    return any(column is not None and not matching_parts(group, column) for column, group in columns)


def _declared(query: Query, field: str) -> Column | None:
    """The ascending column of a field, with None only if the field may hold it."""
    schema = query.schema
    if field in schema.nullable_fields:
        return comparison_column(schema, field)
    codec = schema.column_codecs.get(field)
    return None if codec is None else Column(field, codec)


def _empty(query: Query) -> QueryPlan:
    order = tuple(("-" if descending else "") + field for field, descending in query.directions)
    return QueryPlan(query.schema, "nothing", (), order, query.start, query.stop)


# --- paths ------------------------------------------------------------------------------------------------------


def _paths(live: LiveCollection) -> Iterable[_Path]:
    yield _Path(None, live.schema.primary_key, live.layout.prefix, 0)
    for name in live.schema.indexes:
        index = live.readable.get(name)
        if index is not None:
            yield _index_path(live, index.definition, index.layout.prefix, index.stored.generation)


def _index_path(live: LiveCollection, definition: IndexDefinition, prefix: bytes, generation: int) -> _Path:
    # The keys of a unique index end in their columns; those of others go on with the primary key.
    tail = () if definition.unique else live.schema.primary_key
    return _Path(definition, definition.columns + tail, prefix, generation)


def _name(path: _Path) -> str:
    return path.definition.name if path.definition else ""


def _usable(paths: Iterable[_Path], query: Query, conditions: Conditions) -> list[_Access]:
    """The accesses that see every record the query may return, and in its order."""
    accesses: list[_Access] = []
    for path in paths:
        # Nothing of an index is bound, and no order asked for: the records themselves are as good, and come first.
        if path.definition is not None and not query.order and path.columns[0].field not in conditions:
            continue
        if _leaves_out(path.definition, query, conditions):
            continue
        access = _bind(path, query, conditions)
        reverse = _direction(access, query)
        if reverse is not None:
            accesses.append(access._replace(reverse=reverse))
    return accesses


def _leaves_out(definition: IndexDefinition | None, query: Query, conditions: Conditions) -> bool:
    """Whether the index has no entry for a record that the query may return."""
    if definition is None or definition.nulls != "skip":
        return False
    for column in definition.columns:
        comparison = comparison_column(query.schema, column.field)
        if column.nullable and comparison is not None:
            spans = matching_parts(conditions.get(column.field, ()), comparison)
            if contains(spans, comparison.codec.pack(None)):
                return True
    return False


def _is_permitted(access: _Access, query: Query) -> bool:
    complete = len(access.served) == len(query.where)
    return complete or access.narrows


def _cost(access: _Access) -> tuple[bool, int, int]:
    return (not access.single, -len(access.equal), -access.bounded)


# --- ranges -----------------------------------------------------------------------------------------------------


def _bind(path: _Path, query: Query, conditions: Conditions) -> _Access:
    """Bind the columns of a path from the left, as far as conditions go."""
    if path.definition is None and PRIMARY_KEY in conditions:
        return _bind_keys(path, query, conditions[PRIMARY_KEY])
    prefixes = [_Prefix(path.prefix, null=False)]
    last: tuple[Span, ...] = ()
    served: dict[str, tuple[Condition, ...]] = {}
    equal: set[str] = set()
    bounded = complete = 0
    for column in path.columns:
        group = conditions.get(column.field)
        spans = matching_parts(group, column) if group else ()
        if not group or (len(prefixes) > 1 and len(prefixes) * len(spans) > MAX_PRODUCT):
            break
        served[column.field] = group
        if not all(span.point for span in spans):
            last, bounded = spans, bounded + 1
            break
        prefixes = _extended(prefixes, column, spans)
        complete += 1
        if len(spans) == 1:
            equal.add(column.field)
        else:
            bounded += 1
    ranges = _ranges(path, prefixes, last, complete == len(path.columns))
    flat = tuple(condition for group in served.values() for condition in group)
    return _Access(path, ranges, flat, frozenset(equal), bounded)


def _bind_keys(path: _Path, query: Query, group: Sequence[Condition]) -> _Access:
    """The primary-key path for a list of composite keys; further lists are tested on the objects."""
    listed = next((condition for condition in group if condition.lookup == "in"), None)
    if listed is None:
        return _Access(path, (KeyRange(path.prefix, after_prefix(path.prefix)),), (), frozenset(), 0)
    keys = sorted({packed_key(query.schema, values) for values in listed.operand})
    return _Access(path, tuple(KeyRange(path.prefix + key, None) for key in keys), (listed,), frozenset(), 1)


def _extended(prefixes: Iterable[_Prefix], column: Column, spans: Iterable[Span]) -> list[_Prefix]:
    null = column.codec.pack(None) if column.nullable else None
    return [
        _Prefix(prefix.packed + span.start, prefix.null or span.start == null) for prefix in prefixes for span in spans
    ]


def _ranges(path: _Path, prefixes: Sequence[_Prefix], last: Sequence[Span], complete: bool) -> tuple[KeyRange, ...]:
    if last:
        return tuple(KeyRange(prefix.packed + s.start, prefix.packed + s.end) for prefix in prefixes for s in last)
    # With None in a column, a unique index with distinct nulls has a row per record, as an index that is not unique.
    several = path.definition is not None and path.definition.unique and path.definition.nulls == "distinct"
    return tuple(
        KeyRange(prefix.packed, None)
        if complete and not (prefix.null and several)
        else KeyRange(prefix.packed, after_prefix(prefix.packed))
        for prefix in prefixes
    )


# --- order ------------------------------------------------------------------------------------------------------


def _provided(access: _Access, query: Query) -> list[tuple[str, bool]]:
    """Field and "descending" in which the keys of an access ascend, without columns that have one value."""
    provided: dict[str, bool] = {}
    for column in (*access.path.columns, *query.schema.primary_key):
        if column.field not in access.equal:
            provided.setdefault(column.field, column.descending)
    return list(provided.items())


def _direction(access: _Access, query: Query) -> bool | None:
    """Whether to read backwards, or None when the order cannot be had this way."""
    if access.single:
        return query.reverse
    provided = _provided(access, query)
    asked: dict[str, bool] = {}
    unordered = {column.field for column in query.schema.primary_key} - access.equal
    for field, descending in query.directions:
        if not unordered:
            break  # the primary key is complete: nothing is left to order
        if field not in access.equal:
            asked.setdefault(field, descending)
            unordered.discard(field)
    if not asked:
        return query.reverse
    if len(asked) > len(provided):
        return None
    wanted = list(asked.items())
    if wanted == provided[: len(wanted)]:
        return False
    return True if wanted == [(field, not down) for field, down in provided[: len(wanted)]] else None


# --- results ----------------------------------------------------------------------------------------------------


def _plan(access: _Access, query: Query, *, full_scan: bool = False) -> QueryPlan:
    definition = access.path.definition
    tested = tuple(part for part in query.where if part not in access.served)
    order = tuple(
        ("-" if descending is not access.reverse else "") + field for field, descending in _provided(access, query)
    )
    scan = Scan(
        index=definition.name if definition else None,
        generation=access.path.generation,
        prefix=access.path.prefix,
        columns=access.path.columns,
        unique=definition is not None and definition.unique,
        ranges=access.ranges,
        reverse=access.reverse,
        copies=definition is None or definition.store == "record",
        covers=False,
        fans_out=False,
        order=order,
        served=access.served,
    )
    return QueryPlan(
        schema=query.schema,
        combine="scan",
        scans=(scan,),
        order=order,
        start=query.start,
        stop=query.stop,
        full_scan=full_scan,
        tested=tested,
        matches=matcher(query.schema, tested),
    )


def _refuse_unready(query: Query, live: LiveCollection, conditions: Conditions) -> None:
    """Name the index that would serve if it were built."""
    waiting = [live.schema.indexes[name] for name in live.states]
    paths = [_index_path(live, definition, b"", 0) for definition in waiting]
    for access in _usable(paths, query, conditions):
        if _is_permitted(access, query):
            name = _name(access.path)
            state = live.states[name]
            raise IndexNotReadyError(
                "the index that would serve this query is not readable",
                model=query.schema.name,
                index=name,
                state=state.value,
                hint=_advice(state),
            )


def _advice(state: IndexState) -> str:
    if state is IndexState.PENDING:
        return "Resolve the violations of the index and run db.build_indexes() again, or call .allow_scan()."
    return "Run db.build_indexes(), or call .allow_scan() to read all records until then."
