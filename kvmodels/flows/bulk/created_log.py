"""What became of each object of a ``bulk_create`` with ``resume_id``, kept with its progress and told again.

Rules of this module: an object that was created leaves nothing; there is a row for each that was left out, and one for
each batch in which records were overwritten. The rows are those of a run, and go with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kvmodels.catalog.collection import LiveCollection
from kvmodels.core.keys import decode_key, encode_key, key_successor
from kvmodels.core.operations import Mutation, ReadRange, Set, after_prefix
from kvmodels.errors import AlreadyExistsError, IntegrityError, UniqueViolationError
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import Flow, read
from kvmodels.flows.hydration.rows import shown_key
from kvmodels.flows.writing.encode import Pending
from kvmodels.indexing.changes import Violation
from kvmodels.schema.definition.definition import ModelSchema

_READ_AT_ONCE = 500


class Became(NamedTuple):
    """What became of one object: created, or left out because of an error, or else its record was overwritten."""

    created: bool
    error: IntegrityError | None = None
    violation: Violation | None = None


def notes_of(context: Context, prefix: bytes, start: int, batch: Sequence[Became]) -> list[Mutation]:
    """The rows of a batch that begins at a position of the list."""
    notes: list[Mutation] = []
    overwritten = 0
    for offset, became in enumerate(batch):
        if became.error is not None:
            found = became.violation
            value = None if found is None else [found.index.stored.name, found.slot, found.owner]
            notes.append(Set(prefix + encode_key((start + offset,)), *context.codec.encode(value)))
        elif not became.created:
            overwritten |= 1 << offset
    if overwritten:
        bits = overwritten.to_bytes(len(batch) // 8 + 1, "little")
        notes.append(Set(prefix + encode_key((start, "overwritten")), *context.codec.encode(bits)))
    return notes


def remembered(context: Context, schema: ModelSchema, prefix: bytes, items: Sequence[Pending]) -> Flow[list[Became]]:
    """What became of the first objects of a list, which earlier runs have dealt with.

    Cost: a read, and one more for each 500 rows.
    """
    _, live = yield from live_collection(context, schema)
    became = [Became(created=True)] * len(items)
    place = prefix
    while True:
        rows = (yield from read((ReadRange(place, after_prefix(prefix), _READ_AT_ONCE),))).ranges[0]
        for row in rows:
            position, *overwritten = decode_key(row.key[len(prefix) :])
            assert isinstance(position, int), "notes_of writes places"
            value = context.codec.decode(row.value, row.encoding, row.key)
            if not overwritten:
                became[position] = Became(created=False, error=_error(live, items[position], position, value))
                continue
            bits = int.from_bytes(value, "little")
            for offset in range(bits.bit_length()):
                if bits >> offset & 1:
                    became[position + offset] = Became(created=False)
        if len(rows) < _READ_AT_ONCE:
            return became
        place = key_successor(rows[-1].key)


def _error(live: LiveCollection, item: Pending, position: int, found: list[Any] | None) -> IntegrityError:
    """The error that an earlier run has met; of an index that was dropped meanwhile its name only."""
    key = shown_key(item.key_values)
    if found is None:
        return AlreadyExistsError(
            "a record with this primary key exists", model=live.schema.name, key=key, position=position
        )
    name, slot, owner = found
    index = next(
        (one for one in live.maintained if one.stored.name == name and slot.startswith(one.layout.prefix)), None
    )
    return UniqueViolationError(
        "a unique index already holds these values",
        model=live.schema.name,
        index=name,
        fields=() if index is None else index.definition.fields,
        values=() if index is None else index.layout.columns_in(slot),
        existing_key=shown_key(live.layout.unpack(owner)),
        key=key,
        position=position,
    )
