"""Libraries that lack one rule of evolution, for ``test_side_by_side.py``: each is put in place for a whole process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kvmodels.catalog import collection as live
from kvmodels.catalog.catalogue import IndexState, stored_index
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.flows.context import reload_header
from kvmodels.flows.evolution import apply as plan_apply
from kvmodels.flows.evolution import build
from kvmodels.flows.evolution import drop_index as dropping
from kvmodels.schema.compile.record_codec import RecordCodec


def put(place: Any, name: str, value: Any) -> None:
    """For good: the process lives no longer than its mutant."""
    getattr(place, name)
    setattr(place, name, value)


def entries_before_the_header() -> None:
    """The entries of a dropped index go while the header still offers them to readers."""
    right = dropping.drop_index

    def drop_index(context: Any, collection: str, name: str, pace: Any) -> Any:
        view = yield from reload_header(context)
        stored = view.header.collections[collection]
        for index in stored.indexes:
            if index.name == name:
                yield from dropping._remove_entries(context, view, stored, index, pace)
        return (yield from right(context, collection, name, pace))

    put(plan_apply, "drop_index", drop_index)


def unknown_fields_are_not_carried() -> None:
    """A release leaves fields that it does not know out of the records that it writes."""
    right = RecordCodec._reconciled

    def reconciled(self: Any, document: Any, key: Any) -> Any:
        return right(self, document, key)[0], {}

    put(RecordCodec, "_reconciled", reconciled)


def readable_before_it_is_built() -> None:
    """An index is offered to readers from the commit on that begins its build."""
    put(build, "stored_index", lambda index, generation, _: stored_index(index, generation, IndexState.READABLE))


def the_old_generation_ends_with_the_new_build() -> None:
    """A rebuild takes the index away that serves until the switch."""
    right = build._commit_beginning

    def beginning(context: Any, view: Any, collection: Any, schema: Any, names: Any) -> Any:
        for index in collection.indexes:
            if index.name in names and index.state.maintained:
                collection = collection.with_index(replace(index, state=IndexState.DROPPING))
        return (yield from right(context, view, collection, schema, names))

    put(build, "_commit_beginning", beginning)


def old_code_writes_beside_what_it_does_not_keep() -> None:
    """Nobody is stopped from writing by an index that it does not declare."""
    right = live._maintained
    put(live, "_maintained", lambda *arguments: (right(*arguments)[0], None))


def old_code_writes_old_records() -> None:
    """Nobody is stopped from writing by a higher schema version."""
    put(live, "is_older", lambda schema, stored: False)


def reads_without_guard() -> None:
    """Readers go by the header that they once read."""
    right = SqliteEngine.read

    def read(engine: Any, ranges: Any, guard: Any = None, **options: Any) -> Any:
        return right(engine, ranges, None, **options)

    put(SqliteEngine, "read", read)


def entries_of_old_values() -> None:
    """An index answers although an upgrade has other values for the records that are not rewritten yet."""
    assert callable(plan_apply.apply_schema)  # loaded now, it keeps the right one, so that records are migrated
    put(live, "needed_version", lambda schema, definition: 1)


MUTANTS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        entries_before_the_header,
        unknown_fields_are_not_carried,
        readable_before_it_is_built,
        the_old_generation_ends_with_the_new_build,
        old_code_writes_beside_what_it_does_not_keep,
        old_code_writes_old_records,
        reads_without_guard,
        entries_of_old_values,
    )
}
