"""Read the records that some records have links to, by a many-to-many relation.

The keys are read first, in one request for all records, from the index of the foreign key, whose entries hold the whole
link. A second request reads the records that the links lead to, each once.

Rules of this module: a record that was removed between the two reads has no links any more, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kvmodels._support.naming import short_repr
from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.references import IncomingReference
from kvmodels.core.keys import key_successor
from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.arguments import items_of, key_of_record
from kvmodels.flows.context import Context, planned, reload_header
from kvmodels.flows.effects import Flow, ranges_at_once, read_all, rows_at_once
from kvmodels.flows.reading.lookup import get_many_by_key
from kvmodels.flows.reading.referrers import index_of_key
from kvmodels.schema.declare.many_to_many_ref import relation_named
from kvmodels.schema.definition.definition import ModelSchema, Relation

ROWS_AT_ONCE: Final = 500
"""Links of one record that are read at once."""


def relation_of(schema: ModelSchema, given: object) -> Relation:
    """Return the relation of a model for an attribute of its class, ``Post.tags``. Raises InvalidArgumentError."""
    named = relation_named(given)
    relation = None if named is None else schema.relations.get(named[0])
    if named is not None and relation is not None and relation.declared and _is_of(schema, named[1]):
        return relation
    declared = [one for one in schema.relations.values() if one.declared]
    raise InvalidArgumentError(
        "this is not a many-to-many relation that the model declares",
        argument="relation",
        value=short_repr(given),
        expected=tuple(f"{schema.name}.{one.name}" for one in declared),
        hint="Give the attribute of the class: posts.links(Post.tags).",
    )


def _is_of(schema: ModelSchema, model: type[Any] | str) -> bool:
    return isinstance(model, type) and issubclass(schema.model, model)


def fetch(context: Context, relation: Relation, records: Iterable[object]) -> Flow[dict[Any, list[Any]]]:
    """Return, for each record, the records that it has links to, in the order of their primary keys."""
    own, other = relation.links.targets[relation.own], relation.links.targets[relation.other]
    given = items_of("records", records, "Give objects or primary keys in a list.")
    keys = list(dict.fromkeys(key_of_record(own, record)[0] for record in given))
    pack = context.layouts[own.collection].pack
    linked = yield from _linked(context, relation, [pack((key,)) for key in keys])
    wanted = list(dict.fromkeys(key for found in linked for key in found))
    targets = dict(zip(wanted, (yield from get_many_by_key(context, other, [(key,) for key in wanted])), strict=True))
    present = [[one for key in found if (one := targets[key]) is not None] for found in linked]
    return dict(zip(keys, present, strict=True))


def links_of(context: Context, live: LiveCollection, relation: Relation) -> IncomingReference:
    """Return the foreign key of the links to their records. Raises IndexNotReadyError."""
    layout = index_of_key(live, live.schema.references[relation.own]).layout
    return IncomingReference(live.schema.collection, layout, context.layouts[live.schema.collection], layout)


def _linked(context: Context, relation: Relation, pks: Sequence[bytes]) -> Flow[list[list[Any]]]:
    """Return the keys on the other side of the links of each record, in order; by its packed primary key."""
    limits = context.limits
    at_once = min(max(1, len(pks)), ranges_at_once(limits, guarded=True))
    size = max(1, min(ROWS_AT_ONCE, rows_at_once(limits, limits.max_read_entries) // at_once))
    position = [column.field for column in relation.links.primary_key].index(relation.other)
    while True:
        view, keys = yield from planned(context, relation.links, lambda live: links_of(context, live, relation))
        found: list[list[Any]] = [[] for _ in pks]
        waiting = {at: keys.span(pk, size) for at, pk in enumerate(pks)}
        while waiting:
            read = yield from read_all(limits, [*waiting.values()], view.guard)
            if read is None:
                break
            for (at, span), rows in zip([*waiting.items()], read, strict=True):
                found[at] += [keys.records.unpack(keys.pk_of(context.codec, row))[position] for row in rows]
                if len(rows) < size:
                    del waiting[at]
                else:
                    waiting[at] = span._replace(start=key_successor(rows[-1].key))
        else:
            return found
        yield from reload_header(context)
