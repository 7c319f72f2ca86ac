"""List the accesses of one branch of a filter: the ways in which each index, and the primary key, can serve it.

A *path* is something with ordered keys: the records, or the entries of an index. Walking its columns from the left,
terms that leave single values bind a column and go on; the first column with anything else gives the last bounds. An
*access* is a path with the columns that it binds. It serves a branch only if it has a row for every record of it:

- an index that leaves out None serves what excludes None;
- an index with a condition serves what implies the condition, which then needs no test;
- an index over several values has no row for a record without any, so it serves what asks for one of them.

An order is that of the keys, read from either end. A column with one value has no part in it; a column with several
values gives no order of records, unless it is bound to one value.

Rules of this module: pure; shapes alone are looked at, never operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Final, NamedTuple

from kvmodels.catalog.collection import LiveCollection
from kvmodels.query.planning.branches import MAX_PRODUCT, BranchShape, Guarantee, QueryShape, TermShape
from kvmodels.schema.definition.definition import Column, IndexDefinition, ModelSchema
from kvmodels.schema.filters.operands import PRIMARY_KEY

Directions = tuple[tuple[str, bool], ...]
"""Fields, each with "descending"."""

_NOTHING: Final[frozenset[str]] = frozenset()


class Path(NamedTuple):
    """Something with ordered keys that can be read: the records, or the entries of an index."""

    definition: IndexDefinition | None
    columns: tuple[Column, ...]
    prefix: bytes
    generation: int

    @property
    def name(self) -> str:
        """The name of the index, ``""`` for the records."""
        return self.definition.name if self.definition else ""


class Access(NamedTuple):
    """A use of a path for a branch.

    Attributes:
        path: what is read.
        bound: the number of the term that binds each column, from the left.
        served: the places of the parts of the branch that need no test on what was read.
        equal: fields with one value in all rows of one scan.
        lists: fields that are bound to several values, each with their number.
        several: how many columns are bound to several values or to a range.
        guaranteed: how many parts the condition of the index answers.
        single: there is at most one row.
        narrows: what is served leaves out more than single values.
        by_keys: a list of composite primary keys says what is read.
        split: fields of ``equal`` with several values in the branch: there is a scan for each of them.
        covers: no record needs to be read.
        complete: everything is served.
        order: complete order of the rows, in the direction in which they are read; empty when there is none.
        reverse: the rows are read from their end.
    """

    path: Path
    bound: tuple[int, ...]
    served: frozenset[int]
    equal: frozenset[str]
    lists: tuple[tuple[str, int], ...]
    several: int
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
        """Smaller is better; of equals, the one that is declared first is taken, the primary key before all."""
        exact = len(self.equal) - len(self.split)
        several = self.several + len(self.split)
        return (not self.single, -exact, -several, -self.guaranteed, self.fans_out, not self.covers)

    @property
    def permitted(self) -> bool:
        """Whether it may be used without permission to scan: it answers everything, or a part that narrows."""
        return self.complete or self.narrows


class AccessDemands(NamedTuple):
    """The demands of the whole query on an access.

    Attributes:
        schema: the model.
        order: fields and directions.
        reverse: which end to begin at, where the order does not say.
        forced: the index is named by the query.
        fields: what must be shown, and sorted by; None: whole objects.
        sorts: what comes out is sorted in memory.
    """

    schema: ModelSchema
    order: Directions
    reverse: bool
    forced: bool
    fields: tuple[str, ...] | None
    sorts: bool = False

    @classmethod
    def of(cls, schema: ModelSchema, shape: QueryShape, *, ordered: bool = True) -> AccessDemands:
        """With the order of the query, or in any order, to be sorted by it afterwards."""
        fields = shape.fields
        if not ordered and fields is not None:
            fields = (*fields, *(field for field, _ in shape.order))
        order = shape.order if ordered else ()
        return cls(schema, order, shape.reverse and ordered, shape.using is not None, fields, not ordered)


# --- paths ------------------------------------------------------------------------------------------------------


def paths_of(live: LiveCollection, shape: QueryShape) -> list[Path]:
    """Return the paths that a query may use: the primary key, then the readable indexes in declaration order."""
    paths = [Path(None, live.schema.primary_key, live.layout.prefix, 0)] if shape.using in (None, PRIMARY_KEY) else []
    for name in live.schema.indexes:
        index = live.readable.get(name)
        if index is None or index.definition.aggregates is not None or shape.using not in (None, name):
            continue
        paths.append(index_path(live, index.definition, index.layout.prefix, index.stored.generation))
    return [path for path in paths if shape.within is None or path.name in shape.within]


def index_path(live: LiveCollection, definition: IndexDefinition, prefix: bytes, generation: int) -> Path:
    """Return the path of an index: keys of a unique one end in their columns, of others in the primary key."""
    tail = () if definition.unique else live.schema.primary_key
    return Path(definition, definition.columns + tail, prefix, generation)


def available(schema: ModelSchema, path: Path) -> frozenset[str] | None:
    """Return the fields that the rows of a path hold, without reading a record; None: all of them."""
    definition = path.definition
    if definition is None or definition.store == "record":
        return None
    names = [column.field for column in schema.primary_key if column.codec.lossless]
    for column in definition.columns:
        source = schema.source(column.field)
        plain = source is not None and source.computed is None and not column.many
        if plain and column.codec.lossless and column.path in ((), tuple(column.field.split("."))):
            names.append(column.field)
    return frozenset((*names, *definition.include))


def covers(asked: AccessDemands, path: Path, fields: Iterable[str]) -> bool:
    """Whether the rows of a path hold what the query shows, and these fields that are tested."""
    held = available(asked.schema, path)
    if held is None:
        return True
    return asked.fields is not None and all(_holds(asked.schema, held, field) for field in (*asked.fields, *fields))


def _holds(schema: ModelSchema, held: frozenset[str], field: str) -> bool:
    if field in held:
        return True
    if field == PRIMARY_KEY:
        return all(column.field in held for column in schema.primary_key)
    source = schema.source(field)
    return source is not None and source.computed is None and source.path[0] in held


# --- accesses ---------------------------------------------------------------------------------------------------


def accesses(asked: AccessDemands, paths: Iterable[Path], branch: BranchShape) -> list[Access]:
    """Return every access to all records of a branch in the requested order, permitted or not."""
    found: list[Access] = []
    for path in paths:
        guarantee = _guarantee(path.definition, branch)
        if not _complete(path.definition, branch, guarantee):
            continue
        for access in _bound(path, branch, guarantee):
            # Nothing of the index is bound, and no order asked for: the records themselves are as good, and first.
            useful = access.bound or access.guaranteed or asked.order or asked.forced or path.definition is None
            directed = _directed(asked, branch, access) if useful else None
            if directed is not None:
                found.append(directed)
    return found


def _guarantee(definition: IndexDefinition | None, branch: BranchShape) -> Guarantee | None:
    if definition is None or definition.where is None:
        return None
    return next((partial for partial in branch.partials if partial.name == definition.name), None)


def _complete(definition: IndexDefinition | None, branch: BranchShape, guarantee: Guarantee | None) -> bool:
    """Whether the index has an entry for every record of the branch."""
    if definition is None:
        return True
    if definition.where is not None and guarantee is None:
        return False
    for column in definition.columns:
        terms = [term for term in branch.terms if term.field == column.field]
        if column.many and not terms:
            return False
        if definition.nulls == "skip" and column.nullable and not any(term.excludes_none for term in terms):
            return False
    return True


def _bound(path: Path, branch: BranchShape, guarantee: Guarantee | None) -> Iterable[Access]:
    """The columns of a path bound from the left as far as terms go; one access for each term on several values."""
    if path.definition is None and branch.keys is not None:
        yield Access(path, (), frozenset({branch.keys}), _NOTHING, (), 1, narrows=True, by_keys=True)
        return
    many = next((column.field for column in path.columns if column.many), None)
    scalar = {term.field: number for number, term in enumerate(branch.terms) if not term.many}
    for number, term in enumerate(branch.terms):
        if term.field == many:
            yield _with(guarantee, _walked(path, branch, {**scalar, term.field: number}))
    if many is None:
        yield _with(guarantee, _walked(path, branch, scalar))


def _with(guarantee: Guarantee | None, access: Access) -> Access:
    if guarantee is None:
        return access
    return access._replace(
        served=access.served.union(guarantee.parts),
        guaranteed=len(guarantee.parts),
        narrows=access.narrows or guarantee.narrows,
    )


def _walked(path: Path, branch: BranchShape, terms: Mapping[str, int]) -> Access:
    bound: list[int] = []
    equal: set[str] = set()
    lists: dict[str, int] = {}
    several = complete = 0
    ranges = 1
    for column in path.columns:
        number = terms.get(column.field)
        term = None if number is None else branch.terms[number]
        if number is None or term is None or (ranges > 1 and ranges * term.size > MAX_PRODUCT):
            break
        bound.append(number)
        if not term.points:
            several += 1
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
        frozenset(at for term in used for at in term.at),
        frozenset(equal),
        tuple(lists.items()),
        several,
        single=complete == len(path.columns) and ranges == 1 and _one_row(path, used),
        narrows=any(term.narrows for term in used),
    )


def _one_row(path: Path, terms: Iterable[TermShape]) -> bool:
    """Whether a complete key is one row: with None in a column, a unique index with distinct nulls has several."""
    definition = path.definition
    if definition is None or not definition.unique or definition.nulls != "distinct":
        return True
    return all(term.excludes_none for term in terms)


# --- order ------------------------------------------------------------------------------------------------------


def _directed(asked: AccessDemands, branch: BranchShape, access: Access) -> Access | None:
    """The access with its order and direction, split into scans where only that gives the order; None: it cannot."""
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
    """A scan for each value of the columns with several, of those that are not ordered by, within a bound."""
    ordered = {field for field, _ in asked.order}
    lists = {field: count for field, count in access.lists if field not in ordered}
    if prod(lists.values()) > MAX_PRODUCT:
        return access
    return access._replace(
        equal=access.equal | lists.keys(), split=frozenset(lists), several=access.several - len(lists)
    )


def direction(asked: AccessDemands, access: Access) -> bool | None:
    """Whether to read backwards, or None when the order cannot be had this way."""
    if access.single or not asked.order:
        return asked.reverse
    if access.fans_out:
        return None
    steps = provided(asked.schema, access)
    wanted: dict[str, bool] = {}
    unordered = {column.field for column in asked.schema.primary_key} - (access.equal - access.split)
    for field, descending in asked.order:
        if not unordered:
            break  # the primary key is complete: nothing is left to order
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
    """Field and "descending" in which the keys of an access ascend, without columns that have one value."""
    provided: dict[str, bool] = {}
    for column in (*access.path.columns, *schema.primary_key):
        if column.field not in access.equal:
            provided.setdefault(column.field, column.descending)
    return tuple(provided.items())


def complete_order(asked: AccessDemands, access: Access, constant: frozenset[str] = _NOTHING) -> Directions | None:
    """The order by which rows of several scans can be put together; None if the keys of this one do not tell it.

    What is ordered by comes first, even if it has one value here, and all of the primary key is in it. Every column
    has the direction in which it is met, so that the parts of the keys compare as the order asks.
    """
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
    """The access in every direction that it can be read in for the order, the one that is asked for first.

    One row is in any order.
    """
    if not access.single:
        return (access,)
    steps = provided(asked.schema, access)
    return tuple(
        access._replace(reverse=way, order=turned(steps, reverse=way)) for way in (asked.reverse, not asked.reverse)
    )


def turned(order: Directions, *, reverse: bool) -> Directions:
    """Return an order as it is read from the end."""
    return tuple((field, down is not reverse) for field, down in order)
