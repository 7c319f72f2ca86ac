"""The conditions, orders and searches that a list offers, from the description of its model.

Rules of this module: an offer without a scan is one that a readable index serves alone. The planner decides in the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from kvmodels.errors import InvalidLookupError
from kvmodels.query.planning.ranked import names_of_ranking_indexes
from kvmodels.query.text_lookups import lookup_values
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.polymorphic import collection_schema
from kvmodels.schema.describe.describe import ColumnDescription, IndexDescription, ModelDescription
from kvmodels.schema.filters.kind_lookups import served_text_lookups, text_lookups_of, text_lookups_of_kinds

_MOST_SEARCHED = 8


class Offers(NamedTuple):
    """The conditions and orders that the user of a list can choose.

    Attributes:
        served: lookups that an index serves.
        scanned: lookups that are tested on the records of a window.
        orders: orders that an index serves, with their labels.
        scanned_orders: orders within a window, with their labels.
        headers: fields whose order an index serves.
    """

    served: tuple[str, ...]
    scanned: tuple[str, ...]
    orders: tuple[tuple[str, str], ...]
    scanned_orders: tuple[tuple[str, str], ...]
    headers: frozenset[str]


def offers_of(model: type[KvModel], description: ModelDescription, readable: Collection[str]) -> Offers:
    """Return the offers for a model, of whose indexes those with the names in ``readable`` can be used."""
    indexes = [index for index in description.indexes if index.name in readable and _serves_alone(index)]
    first = {index.columns[0].name: index.columns[0] for index in reversed(indexes)}
    if len(description.primary_key) == 1 or description.primary_key[0].name not in first:
        first[description.primary_key[0].name] = description.primary_key[0]
    served = [name for column in first.values() for name in _lookups(model, column)]
    served += served_text_lookups(collection_schema(model), readable)
    alone, others = text_lookups_of_kinds(collection_schema(model), readable)
    served += alone
    names = list(dict.fromkeys([*first, *(field.name for field in description.fields)]))
    every = [name for field in names for name in _every_lookup(model, field)] + others
    orders = [tuple(_signed(column) for column in index.columns) for index in indexes if _orders(model, index)]
    orders.insert(0, tuple(_signed(column) for column in description.primary_key))
    both = [one for order in dict.fromkeys(orders) for one in (order, _reversed(order))]
    headers = frozenset(order[0] for order in both if len(order) == 1 and not order[0].startswith("-"))
    sortable = {field.name for field in description.fields if _sortable(model, field.name)} - headers
    return Offers(
        tuple(dict.fromkeys(served)),
        tuple(name for name in dict.fromkeys(every) if name not in served),
        tuple((",".join(order), _label(order)) for order in both),
        tuple((sign + name, _label((sign + name,))) for name in sorted(sortable) for sign in ("", "-")),
        headers,
    )


def conditions_on_groups(model: type[KvModel], given: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the conditions on fields in the groups of indexes of texts, which the search box of a list keeps."""
    indexes = [index for index in collection_schema(model).indexes.values() if text_lookups_of(index)]
    fields = {column.field for index in indexes for column in index.columns}
    return [(name, text) for name, text in given if name in fields]


def search_names(model: type[KvModel], description: ModelDescription, fixed: Collection[str] = ()) -> list[str]:
    """Return the lookups that the search box tries: unique values, words, then beginnings and parts of texts.

    ``fixed``: the fields with a condition, for indexes with a group.
    """
    unique = [index.columns[0] for index in description.indexes if index.unique and len(index.columns) == 1]
    keys = description.primary_key if len(description.primary_key) == 1 else ()
    first = [description.primary_key[0], *(index.columns[0] for index in description.indexes if _serves_alone(index))]
    exact = [column.name for column in (*keys, *unique) if not column.many]
    prefixes = [f"{column.name}__startswith" for column in first if column.type == "str" and not column.many]
    served = served_text_lookups(collection_schema(model), fixed=fixed)
    words, parts = ([name for name in served if name.endswith(end)] for end in ("__search", "__icontains"))
    return list(dict.fromkeys([*exact, *words, *prefixes, *parts]))[:_MOST_SEARCHED]


def ranked_searches(model: type[KvModel], description: ModelDescription) -> dict[str, str]:
    """Return, by the lookup, the indexes whose records a search ranks."""
    ranking = names_of_ranking_indexes(collection_schema(model), "search")
    indexes = [one for one in description.indexes if one.name in ranking and one.options.get("rank", True)]
    return {f"{index.name}__search": index.name for index in indexes}


def _serves_alone(index: IndexDescription) -> bool:
    return index.condition is None and index.sorts


def _orders(model: type[KvModel], index: IndexDescription) -> bool:
    """Return whether a query can be ordered by the columns of an index."""
    encrypted = collection_schema(model).encrypted
    return not any(column.many or column.name in encrypted for column in index.columns)


def _lookups(model: type[KvModel], column: ColumnDescription) -> Iterator[str]:
    kinds = ["contains"] if column.many else ["", "in", "gt", "gte", "lt", "lte", "isnull"]
    if column.fold is not None:
        kinds = ["", "in"]
    if column.type == "str" and not column.many:
        kinds.append("startswith")
    if not column.nullable and "isnull" in kinds:
        kinds.remove("isnull")
    yield from _known(model, column.name, kinds)


def _every_lookup(model: type[KvModel], name: str) -> Iterator[str]:
    kinds = ["", "ne", "in", "gt", "gte", "lt", "lte", "isnull", "startswith", "endswith", "icontains", "contains"]
    yield from _known(model, name, kinds)


def _known(model: type[KvModel], name: str, kinds: list[str]) -> Iterator[str]:
    for kind in kinds:
        lookup = f"{name}__{kind}" if kind else name
        try:
            lookup_values(model, lookup)
        except InvalidLookupError:
            continue
        yield lookup


def _sortable(model: type[KvModel], name: str) -> bool:
    try:
        return not lookup_values(model, f"{name}__gte").several
    except InvalidLookupError:
        return False


def _signed(column: ColumnDescription) -> str:
    return f"-{column.name}" if column.descending else column.name


def _reversed(order: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name[1:] if name.startswith("-") else f"-{name}" for name in order)


def _label(order: tuple[str, ...]) -> str:
    return ", ".join(f"{name[1:]} ↓" if name.startswith("-") else f"{name} ↑" for name in order)
