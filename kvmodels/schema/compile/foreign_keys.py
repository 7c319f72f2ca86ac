"""The foreign keys of a model class and their indexes; ``targets.py`` resolves the targets.

Rules of this module: every fault of a foreign key by itself is found here, when the class is created, and raises a
ModelDefinitionError that names the model and the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.compile.indexes import Declarations
from kvmodels.schema.declare.declarations import OnDeleteAction
from kvmodels.schema.declare.foreign_keys import ForeignKey, OnDelete
from kvmodels.schema.declare.markers import EntryMarker, FieldMarker, Indexed, Unique
from kvmodels.schema.definition.definition import UNRESOLVED, IndexDefinition, ModelSchema, Reference


class ForeignKeys(NamedTuple):
    """The foreign keys of a model by field, and their indexes."""

    references: Mapping[str, Reference]
    indexes: Sequence[IndexDefinition]


def foreign_keys(
    schema: ModelSchema, declarations: Declarations, markers: Mapping[str, Iterable[FieldMarker[Any]]]
) -> ForeignKeys:
    """Return the foreign keys of a model, given its schema without indexes and the markers of its fields."""
    references: dict[str, Reference] = {}
    indexes: list[IndexDefinition] = []
    for field, marks in markers.items():
        keys: list[ForeignKey[Any, Any]] = [mark for mark in marks if isinstance(mark, ForeignKey)]
        actions = [mark for mark in marks if isinstance(mark, OnDelete)]
        if not keys:
            _check_none(schema, field, actions)
            continue
        if len(keys) > 1:
            raise _error(schema, field, "a field has two foreign keys", "Keep one of them: a field has one target.")
        entries = [mark for mark in marks if isinstance(mark, EntryMarker)]
        _check_index(schema, field, entries)
        target: type[Any] | str = keys[0].target
        if target == schema.name:
            target = schema.model  # a tree: the class cannot be found by its name while it is being created
        index = declarations.of_field(field, entries[0] if entries else Indexed())
        optional = field in schema.nullable_fields
        action = _action(schema, field, actions, optional=optional)
        references[field] = Reference(field, index.name, target, optional, action)
        indexes.append(replace(index, reference=UNRESOLVED, on_delete=action))
        if field in schema.touched:
            raise _error(schema, field, "an upgrade touches a foreign key", "Store the new key in another field.")
    return ForeignKeys(references, indexes)


def _action(schema: ModelSchema, field: str, marks: Sequence[OnDelete], *, optional: bool) -> OnDeleteAction:
    if len(marks) > 1:
        raise _error(schema, field, "a foreign key has two effects of a removal", "Keep one of them.")
    action: OnDeleteAction = marks[0].action if marks else "protect"
    if action == "set_null" and not optional:
        raise _error(
            schema,
            field,
            "a foreign key that cannot be None would become None",
            "Let it be None, as in Annotated[ForeignKey[int | None, Author], SET_NULL], or choose CASCADE or PROTECT.",
        )
    return action


def _check_none(schema: ModelSchema, field: str, marks: Sequence[OnDelete]) -> None:
    if marks:
        raise _error(
            schema,
            field,
            "the effect of a removal is declared for a field that is not a foreign key",
            f"Write Annotated[ForeignKey[int, Author], {marks[0]!r}].",
        )


def _check_index(schema: ModelSchema, field: str, entries: Sequence[EntryMarker[Any]]) -> None:
    if not entries:
        return
    mark = entries[0]
    if len(entries) > 1 or not isinstance(mark, Unique):
        raise _error(schema, field, "a foreign key has an index beside its own", "Leave out the other marker.")
    if mark.where is not None or mark.key is not None or mark.store is not None or mark.include:
        raise _error(
            schema,
            field,
            "the unique index of a foreign key has an option that it does not take",
            "Every record has an entry by its key alone: leave out where=, key=, store= and include=.",
        )
    if mark.nulls == "equal":
        raise _error(
            schema, field, "the unique index of a foreign key treats None as a value", 'Leave out nulls="equal".'
        )


def _error(schema: ModelSchema, field: str, message: str, hint: str) -> ModelDefinitionError:
    return ModelDefinitionError(message, model=schema.name, field=field, option="ForeignKey", hint=hint)
