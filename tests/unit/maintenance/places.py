"""A small model with every kind of index that the compiler treats in its own way, and an engine that shows writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kvmodels import Database, Field, KvModel, PrimaryKey
from kvmodels.api.core import DatabaseCore
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Arithmetic, AtomicWrite, Delete
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.context import Context
from kvmodels.flows.hydration.rows import document_of, object_of
from kvmodels.flows.writing.attempt import execute
from kvmodels.flows.writing.changes import KEEP, pending, record_change
from kvmodels.flows.writing.operation import AttemptState, Proposal, always
from kvmodels.indexing.entries import RecordChange
from kvmodels.runtime.sync import run
from kvmodels.schema.declare.declarations import AggregateIndex, Index, UniqueConstraint
from kvmodels.schema.declare.expressions import Q
from kvmodels.schema.declare.markers import MultiIndexed
from tests.logical_writes import FunctionWrite
from tests.passing_engine import RecordingEngine


class Place(KvModel, collection="places"):
    id: PrimaryKey[int]
    country: str = "fr"
    population: int | None = None
    code: str | None = None
    note: str = ""
    names: MultiIndexed[list[str]] = Field(default_factory=list)
    codes: list[str] = Field(default_factory=list)

    class Meta:
        indexes: ClassVar = (
            Index("country", include=("population", "note"), name="shown"),
            UniqueConstraint("code", nulls="skip", include=("note", "names"), name="code"),
            UniqueConstraint("codes", name="each_code", max_fan_out=3),
            Index("country", where=Q(population__gt=100), name="big"),
            AggregateIndex("country", sums=("population",), name="per_country"),
        )


def watched(*models: Any) -> tuple[RecordingEngine, Database]:
    """A database of places in memory."""
    engine = RecordingEngine(MemoryEngine())
    db = Database.from_engine(engine, DatabaseCore(models or (Place,)))
    engine.writes.clear()
    return engine, db


def keys(write: AtomicWrite, kind: type[Any] | None = None) -> set[str]:
    """Return the subjects of the mutations of a write: the first part of each key, of a counter the counted values."""
    found = set()
    for mutation in write.mutations:
        if kind is None or isinstance(mutation, kind):
            key = decode_key(mutation.key)
            found.add("+" + ":".join(map(str, key[5:])) if isinstance(mutation, Arithmetic) else str(key[0]))
    return found


def deleted(write: AtomicWrite) -> set[str]:
    return keys(write, Delete)


def commit_changes(db: Database, changes: Mapping[int, Mapping[str, Any] | None]) -> bool:
    """Change several places in one commit, by primary key; None removes one, a key that is not there is inserted."""
    context = db._core.context
    schema, layout = context.schemas["places"], context.layouts["places"]

    def propose(seen: AttemptState) -> Proposal[bool]:
        found = []
        for pk in changes:
            key = layout.key(layout.pack((pk,)))
            found.append(_change(context, seen, key, pk))
        return Proposal(tuple(found), always(True))

    def _change(context: Context, seen: AttemptState, key: bytes, pk: int) -> RecordChange:
        row, fields = seen.live_row(key), changes[pk]
        live = seen.view.live["places"]
        if fields is None:
            assert row is not None
            return RecordChange(live, layout.pack((pk,)), row, document_of(context, row), None)
        place = Place(id=pk) if row is None else object_of(context, live, row)
        for name, value in fields.items():
            setattr(place, name, value)
        return record_change(context, pending(context, schema, place), seen, row, KEEP)

    wanted = [layout.key(layout.pack((pk,))) for pk in changes]
    return run(db._engine, execute(context, FunctionWrite(schema, wanted, propose)))


def counters(db: Database, collection: str = "places") -> dict[tuple[Any, ...], int]:
    """The counters that are not zero, as signed numbers, by index, group and kind."""
    found = {}
    for entry in db.kv.list(prefix=("__kvmodels__", "counter", collection)):
        number = int(entry.value)
        if number:
            found[(entry.key[3], *entry.key[5:])] = number - 2**64 if number >= 2**63 else number
    return found
