"""List the accesses for one alternative of a filter: how each index, and the primary key, can serve it.

A *path* is a set of ordered keys: the records, or the entries of an index. Its columns are bound from the left: a term
that leaves single values binds its column and continues with the next one; the first other term sets the last bounds.
An *access* is a path with the columns that it binds. It serves an alternative only if it has a row for every record of
it:

- an index without entries for None serves conditions that exclude None;
- a partial index serves conditions that imply its own condition, which then needs no test;
- an index on a field with several values has no row for a record without any, so it serves conditions on one of the
  values.

The order is that of the keys, in either direction. A column with one value has no effect on the order. A column with
several values gives no order of records, unless it is bound to one value.

Rules of this module: pure; it looks at shapes only, never at operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from math import prod
from typing import Final, NamedTuple

from kvmodels.catalog.collection import LiveCollection
from kvmodels.query.kinds.registry import ACCESS
from kvmodels.query.paths import split_path
from kvmodels.query.planning.branches import MAX_PRODUCT, BranchShape, Guarantee, QueryShape, TermShape
from kvmodels.schema.definition.definition import Column, IndexDefinition, ModelSchema
from kvmodels.schema.filters.operands import PRIMARY_KEY

Directions = tuple[tuple[str, bool], ...]
"""Fields, each with "descending"."""

_NOTHING: Final[frozenset[str]] = frozenset()


class Path(NamedTuple):
    """A set of ordered keys that can be read: the records, or the entries of an index."""

    definition: IndexDefinition | None
    columns: tuple[Column, ...]
    prefix: bytes
    generation: int

    @property
    def name(self) -> str:
        """The name of the index, ``""`` for the records."""
        return self.definition.name if self.definition else ""

    @property
    def first_part(self) -> str | None:
        """The name of the column that lookups of its kind bind; None for a kind without lookups."""
        parts = () if self.definition is None else ACCESS[self.definition.kind].parts(self.definition)
        return parts[0].field if parts else None


class Access(NamedTuple):
    """The use of a path for one alternative of a filter.

    Attributes:
        path: the keys to read.
        bound: the number of the term that binds each column, from the left.
        served: the positions of the parts of the alternative that need no test on the rows.
        equal: fields that have one value in all rows of a scan.
        lists: fields that are bound to several values, with the number of values.
        several: the number of columns that are bound to several values or to a range.
        looks_up: whether such a range is a lookup of a kind, which binds as much as a column with one value.
        guaranteed: the number of parts that the condition of the index answers.
        single: whether there is at most one row.
        narrows: whether the served parts exclude more than single values.
        by_keys: whether a list of composite primary keys selects the rows.
        split: fields of ``equal`` with several values in the alternative; there is one scan for each value.
        covers: whether no record needs to be read.
        complete: whether every part is served.
        order: the complete order of the rows in reading direction; empty if there is none.
        reverse: whether the rows are read in descending order.
    """

    path: Path
    bound: tuple[int, ...]
    served: frozenset[int]
    equal: frozenset[str]
    lists: tuple[tuple[str, int], ...]
    several: int
    looks_up: bool = False
    guaranteed: int = 0
    single: bool = False
    narrows: bool = False
    by_keys: bool = False
    split: frozenset[str] = _NOTHING
    covers: bool = False
    complete: bool = False
    order: Directions = ()
    reverse: bool = False

    @property
    def fans_out(self) -> bool:
        """Whether one record may have several rows."""
        return any(column.many and column.field not in self.equal for column in self.path.columns)

    @property
    def cost(self) -> tuple[int, ...]:
        """The sort key of accesses, smaller is better; ties go to the primary key, then to the first declared index."""
        exact = len(self.equal) - len(self.split) + self.looks_up
        several = self.several + len(self.split)
        return (not self.single, -exact, -several, -self.guaranteed, self.fans_out, not self.covers)

    @property
    def permitted(self) -> bool:
        """Whether it may be used without ``allow_scan()``: it serves everything, or a part that narrows."""
        return self.complete or self.narrows


class AccessDemands(NamedTuple):
    """The requirements of the whole query on an access.

    Attributes:
        schema: the model.
        order: the requested fields and directions.
        reverse: the requested direction if the order does not determine it.
        forced: whether the query names the index.
        fields: the fields to return and to sort by; None for whole objects.
        sorts: whether the results are sorted in memory.
    """

    schema: ModelSchema
    order: Directions
    reverse: bool
    forced: bool
    fields: tuple[str, ...] | None
    sorts: bool = False

    @classmethod
    def of(cls, schema: ModelSchema, shape: QueryShape, *, ordered: bool = True) -> AccessDemands:
        """Return the requirements with the order of the query, or without one if the results are sorted afterwards."""
        fields = shape.fields
        if not ordered and fields is not None:
            fields = (*fields, *(split_path(schema, field)[0] for field, _ in shape.order))
        order = shape.order if ordered else ()
        return cls(schema, order, shape.reverse and ordered, shape.using is not None, fields, not ordered)


# --- paths ------------------------------------------------------------------------------------------------------


def paths_of(live: LiveCollection, shape: QueryShape) -> list[Path]:
    """Return the paths that a query may use: the primary key, then the readable indexes in declaration order."""
    paths = [Path(None, live.schema.primary_key, live.layout.prefix, 0)] if shape.using in (None, PRIMARY_KEY) else []
    for name in live.schema.indexes:
        index = live.readable.get(name)
        if index is None or shape.using not in (None, name, index.definition.declared_name):
            continue
        path = index_path(live, index.definition, index.layout.prefix, index.stored.generation)
        if path is not None:
            paths.append(path)
    return [path for path in paths if shape.within is None or path.name in shape.within]


def index_path(live: LiveCollection, definition: IndexDefinition, prefix: bytes, generation: int) -> Path | None:
    """Return the path of an index; None if its kind has no entries that conditions and orders use."""
    columns = ACCESS[definition.kind].columns(definition, live.schema.primary_key)
    return None if columns is None else Path(definition, columns, prefix, generation)


def available(schema: ModelSchema, path: Path) -> frozenset[str] | None:
    """Return the fields whose exact values the rows of a path contain; None for all of them."""
    definition = path.definition
    if definition is None or definition.copies_record:
        return None
    names = [column.field for column in schema.primary_key if column.codec.lossless]
    names += [column.field for column in ACCESS[definition.kind].held(definition) if column.codec.lossless]
    for column in definition.columns:
        source = schema.source(column.field)
        plain = source is not None and source.computed is None and not column.many
        if plain and column.codec.lossless and column.path in ((), tuple(column.field.split("."))):
            names.append(column.field)
    return frozenset((*names, *definition.include))


def covers(asked: AccessDemands, path: Path, fields: Iterable[str]) -> bool:
    """Return whether the rows of a path contain the fields that the query returns, and these tested fields."""
    schema, held = asked.schema, available(asked.schema, path)
    if held is None:
        return True
    if asked.fields is None or not all(_holds(schema, held, field) for field in asked.fields):
        return False
    # A test compares the moments of a row with no regard to their time zones, which the row does not have.
    assert path.definition is not None, "records have every field"
    tested = held.union(column.field for column in ACCESS[path.definition.kind].held(path.definition))
    return all(_holds(schema, tested, field) for field in fields)


def _holds(schema: ModelSchema, held: frozenset[str], field: str) -> bool:
    if field in held:
        return True
    if field == PRIMARY_KEY:
        return all(column.field in held for column in schema.primary_key)
    source = schema.source(field)
    return source is not None and source.computed is None and source.path[0] in held


# --- accesses ---------------------------------------------------------------------------------------------------


def accesses(asked: AccessDemands, paths: Iterable[Path], branch: BranchShape) -> list[Access]:
    """Return every access to all records of an alternative in the requested order, allowed or not."""
    found: list[Access] = []
    for path in paths:
        if path.definition is not None and missing_entries(path.definition, branch) is not None:
            continue
        guarantee = next((partial for partial in branch.partials if partial.name == path.name), None)
        for access in _bound(path, branch, guarantee):
            if path.first_part and path.first_part not in _bound_fields(branch, access):
                continue  # without a lookup of its kind it lacks entries, and there are too many scans for one
            # An unbound index without a requested order is no better than the records themselves, which come first.
            useful = access.bound or access.guaranteed or asked.order or asked.forced or path.definition is None
            directed = _directed(asked, branch, access) if useful else None
            if directed is not None:
                found.append(directed)
    return found


def missing_entries(definition: IndexDefinition, branch: BranchShape) -> str | None:
    """Return why an index lacks entries for records of an alternative; None if it has all of them."""
    access = ACCESS[definition.kind]
    parts = access.parts(definition)
    reason = access.why_not(definition)
    if reason is not None and not any(term.field == parts[0].field for term in branch.terms if parts):
        return reason
    unbound = unbound_group(definition, branch) if parts else ()
    if unbound:
        return f"its lookups need single values of its group, {', '.join(unbound)}"
    if definition.where is not None and all(partial.name != definition.name for partial in branch.partials):
        return f"the filter does not imply its condition, {definition.where.text or 'a condition'}"
    for column in definition.columns:
        terms = [term for term in branch.terms if term.field == column.field]
        if column.many and not terms:
            return f"it has no entry for a record without any {column.field!r}, and the filter does not require a value"
        if definition.omits_none(column) and not any(term.excludes_none for term in terms):
            return f"it leaves out records whose {column.field!r} is None"
    return None


def unbound_group(definition: IndexDefinition, branch: BranchShape) -> tuple[str, ...]:
    """Return the columns of the group of an index that an alternative does not bind to single values."""
    fixed = {term.field for term in branch.terms if term.points}
    return tuple(column.field for column in definition.columns if column.field not in fixed)


def _bound_fields(branch: BranchShape, access: Access) -> set[str]:
    return {branch.terms[number].field for number in access.bound}


def _bound(path: Path, branch: BranchShape, guarantee: Guarantee | None) -> Iterable[Access]:
    """Yield accesses with the columns bound from the left as far as possible; one for each term on several values."""
    if path.definition is None and branch.keys is not None:
        yield Access(path, (), frozenset({branch.keys}), _NOTHING, (), 1, narrows=True, by_keys=True)
        return
    scalar = {term.field: number for number, term in enumerate(branch.terms) if not term.many}
    several = [
        [(term.field, number) for number, term in enumerate(branch.terms) if term.field == column.field]
        for column in path.columns
        if column.many
    ]
    for chosen in product(*several):
        access = _walked(path, branch, scalar | dict(chosen))
        if guarantee is not None:
            access = access._replace(
                served=access.served.union(guarantee.parts),
                guaranteed=len(guarantee.parts),
                narrows=access.narrows or guarantee.narrows,
            )
        yield access


def _walked(path: Path, branch: BranchShape, terms: Mapping[str, int]) -> Access:
    bound: list[int] = []
    equal: set[str] = set()
    lists: dict[str, int] = {}
    several = complete = 0
    ranges, looks_up = 1, False
    first_part = path.first_part
    looked_up = -1 if first_part is None or path.definition is None else len(path.definition.columns)
    for at, column in enumerate(path.columns):
        number = terms.get(column.field if at != looked_up or first_part is None else first_part)
        term = None if number is None else branch.terms[number]
        if number is None or term is None or _is_too_wide(ranges, term):
            break
        bound.append(number)
        if not term.points:
            several += 1
            if term.splits and term.size == 1:
                equal.add(column.field)
            else:
                looks_up = term.of_kind
                lists.update({column.field: term.size} if term.splits else {})
            break
        ranges *= term.size
        complete += 1
        if term.size == 1:
            equal.add(column.field)
        else:
            several += 1
            lists[column.field] = term.size
    used = [branch.terms[number] for number in bound]
    return Access(
        path,
        tuple(bound),
        frozenset(place for term in used for place in term.served),
        frozenset(equal),
        tuple(lists.items()),
        several,
        looks_up,
        single=complete == len(path.columns) and ranges == 1 and _one_row(path, used),
        narrows=any(term.narrows for term in used),
    )


def _is_too_wide(ranges: int, term: TermShape) -> bool:
    """Return whether a further term makes too many ranges; those of a lookup are few, so only its groups count."""
    return ranges > 1 and ranges * (1 if term.of_kind else term.size) > MAX_PRODUCT


def _one_row(path: Path, terms: Iterable[TermShape]) -> bool:
    """Return whether a complete key is one row; with None, a unique index with distinct nulls has several rows."""
    definition = path.definition
    if definition is None or not definition.unique or not definition.repeats_none:
        return True
    return all(term.excludes_none for term in terms)


# --- order ------------------------------------------------------------------------------------------------------


def _directed(asked: AccessDemands, branch: BranchShape, access: Access) -> Access | None:
    """Return the access in the requested order, split into scans if necessary; None if it cannot have that order."""
    reverse = direction(asked, access)
    if reverse is None:
        access = _split(asked, access)
        reverse = direction(asked, access) if access.split else None
        if reverse is None:
            return None
    rest = [at for at in range(len(branch.parts)) if at not in access.served]
    fields = [field for at in rest for field in branch.parts[at]]
    return access._replace(
        reverse=reverse,
        order=() if access.fans_out else turned(provided(asked.schema, access), reverse=reverse),
        covers=not access.fans_out and covers(asked, access.path, fields),
        complete=not rest,
    )


def _split(asked: AccessDemands, access: Access) -> Access:
    """Return the access with one scan per value of multi-value columns outside the order, up to a maximum number."""
    ordered = {field for field, _ in asked.order}
    lists = {field: count for field, count in access.lists if field not in ordered}
    if prod(lists.values()) > MAX_PRODUCT:
        return access
    return access._replace(
        equal=access.equal | lists.keys(), split=frozenset(lists), several=access.several - len(lists)
    )


def direction(asked: AccessDemands, access: Access) -> bool | None:
    """Return whether to read backwards; None if the access cannot have the order."""
    if access.single or not asked.order:
        return asked.reverse
    if access.fans_out:
        return None
    steps = provided(asked.schema, access)
    wanted: dict[str, bool] = {}
    unordered = {column.field for column in asked.schema.primary_key} - (access.equal - access.split)
    for field, descending in asked.order:
        if not unordered:
            break  # the primary key is complete, so the order is too
        if field not in access.equal:
            wanted.setdefault(field, descending)
            unordered.discard(field)
    if not wanted:
        return asked.reverse
    first, asked_for = steps[: len(wanted)], tuple(wanted.items())
    if asked_for == first:
        return False
    return True if asked_for == tuple((field, not down) for field, down in first) else None


def provided(schema: ModelSchema, access: Access) -> Directions:
    """Return the fields, each with "descending", in which the keys ascend, without columns that have one value."""
    provided: dict[str, bool] = {}
    for column in (*access.path.columns, *schema.primary_key):
        if column.field not in access.equal:
            provided.setdefault(column.field, column.descending)
    return tuple(provided.items())


def complete_order(asked: AccessDemands, access: Access, constant: frozenset[str] = _NOTHING) -> Directions | None:
    """Return the common order for merging rows of several scans; None if the keys of this one do not contain it."""
    if access.fans_out:
        return None
    held: dict[str, bool] = {}
    for column in (*access.path.columns, *asked.schema.primary_key):
        held.setdefault(column.field, column.descending)
    keys = {column.field: access.reverse for column in asked.schema.primary_key if column.field not in constant}
    order: dict[str, bool] = {}
    for field, down in (*asked.order, *access.order, *keys.items()):
        if order.keys() >= keys.keys():
            break
        if field in constant or field in order:
            continue
        if held.get(field) is not (down is not access.reverse):
            return None
        order[field] = down
    return tuple(order.items())


def either_way(asked: AccessDemands, access: Access) -> tuple[Access, ...]:
    """Return the access in every direction that fits the order, the requested one first."""
    if not access.single:
        return (access,)
    steps = provided(asked.schema, access)
    return tuple(
        access._replace(reverse=way, order=turned(steps, reverse=way)) for way in (asked.reverse, not asked.reverse)
    )


def turned(order: Directions, *, reverse: bool) -> Directions:
    """Return an order with all directions reversed."""
    return tuple((field, down is not reverse) for field, down in order)
