"""Which record of a bulk write an exception is about.

An error of this library that has attributes for it gets the key, and the position in the list of the caller; every
other exception, also one of a hook or of pydantic, gets a note with both.

Rules of this module: an exception is never replaced, and told once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kvmodels._support.naming import short_repr
from kvmodels.core.keys import encode_key
from kvmodels.errors import InvalidValueError, KvModelsError, LimitExceededError
from kvmodels.flows.hydration.rows import shown_key
from kvmodels.indexing.changes import RecordChange
from kvmodels.indexing.entries import entry_keys
from kvmodels.schema.definition.definition import ModelSchema


def name_record(error: Exception, schema: ModelSchema, key: Any, position: int | None = None) -> None:
    """Tell with an exception which record it is about.

    Args:
        error: gets attributes or a note.
        schema: the model.
        key: the primary key as it is shown; None: not known.
        position: the place of the object in the list of the caller, from 0; None: a query has found the record.
    """
    if isinstance(error, KvModelsError) and {"key", "position"} <= {*error.attributes}:
        told = {"model": schema.name, "key": key, "position": position}
        known = error.data
        # What a hook has raised may be about another record.
        if all(known.get(name, value) == value for name, value in told.items()):
            for name, value in told.items():
                setattr(error, name, value)
            return
    record = schema.name if key is None else f"{schema.name} {short_repr(key)}"
    place = "" if position is None else f", the object at position {position}"
    note = f"kvmodels: this is about {record}{place}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def naming(
    calls: Iterable[Callable[[], object]], schema: ModelSchema, key: Any, position: int | None = None
) -> list[Callable[[], object]]:
    """Hooks that run after the commit, whose exceptions tell of which record they are."""

    def named(call: Callable[[], object]) -> Callable[[], object]:
        def called() -> None:
            try:
                call()
            except Exception as error:  # hooks of the user raise anything
                name_record(error, schema, key, position)
                raise

        return called

    return [named(call) for call in calls]


def key_of(schema: ModelSchema, instance: Any) -> Any:
    """The primary key of an object that may be invalid; None if it has none, or is of another class."""
    try:
        return shown_key(schema.primary_key_of(instance))
    except (AttributeError, LookupError, KvModelsError):
        return None


def changed_record(error: KvModelsError, changes: Sequence[RecordChange]) -> RecordChange | None:
    """The change that an operation could not be made of, which the error names by a key; None if it is not one record.

    An error of a value names the primary key, that of a limit the key of an entry.
    """
    if isinstance(error, InvalidValueError):
        return next((one for one in changes if shown_key(one.live.layout.unpack(one.pk)) == error.key), None)
    if not isinstance(error, LimitExceededError) or error.key is None:
        return None
    key = encode_key(error.key)
    return next((one for one in changes if key == one.key or key in _entries_of(one)), None)


def _entries_of(change: RecordChange) -> set[bytes]:
    return {key for index in change.live.maintained for key, _ in entry_keys(index, change.new_document, change.pk)}
