"""The foreign keys of a model class and their indexes; ``targets.py`` resolves the targets.

Rules of this module: every fault of a foreign key by itself is found here, when the class is created, and raises a
ModelDefinitionError that names the model and the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.compile.indexes import Declarations
from kvmodels.schema.declare.declarations import OnDeleteAction
from kvmodels.schema.declare.markers import EntryMarker, FieldMarker, ForeignKey, Indexed, OnDelete, Unique
from kvmodels.schema.definition.definition import UNRESOLVED, IndexDefinition, ModelSchema, Reference

Refusal = Callable[[str, str], ModelDefinitionError]
"""Makes the error of one foreign key from a message and a hint."""


def refusal(schema: ModelSchema, field: str) -> Refusal:
    """Return the function that makes the errors of the foreign key in a field."""

    def refused(message: str, hint: str) -> ModelDefinitionError:
        return ModelDefinitionError(message, model=schema.name, field=field, option="ForeignKey", hint=hint)

    return refused


def foreign_keys(
    schema: ModelSchema, declarations: Declarations, markers: Mapping[str, Iterable[FieldMarker[Any]]]
) -> tuple[dict[str, Reference], dict[str, IndexDefinition]]:
    """Return the foreign keys of a model by field, and their indexes by name.

    ``schema`` is the schema without indexes, ``markers`` holds the markers of each field.
    """
    references: dict[str, Reference] = {}
    indexes: dict[str, IndexDefinition] = {}
    for field, marks in markers.items():
        refused = refusal(schema, field)
        keys: list[ForeignKey[Any, Any]] = [mark for mark in marks if isinstance(mark, ForeignKey)]
        actions = [mark for mark in marks if isinstance(mark, OnDelete)]
        if not keys and actions:
            raise refused(
                "the effect of a removal is declared for a field that is not a foreign key",
                f"Write Annotated[ForeignKey[int, Author], {actions[0]!r}].",
            )
        if not keys:
            continue
        if len(keys) > 1:
            raise refused("a field has two foreign keys", "Keep one of them: a field has one target.")
        # A tree: the class cannot be found by its name while it is being created.
        target = schema.model if keys[0].target == schema.name else keys[0].target
        optional = field in schema.nullable_fields
        action = _action(refused, actions, optional=optional)
        entries = [mark for mark in marks if isinstance(mark, EntryMarker)]
        index = declarations.of_field(field, _unique(refused, entries) if entries else Indexed())
        references[field] = Reference(field, index.name, target, optional, action)
        indexes[index.name] = replace(index, reference=UNRESOLVED, on_delete=action)
        if field in schema.touched:
            raise refused("an upgrade touches a foreign key", "Store the new key in another field.")
    return references, indexes


def _action(refused: Refusal, marks: Sequence[OnDelete], *, optional: bool) -> OnDeleteAction:
    if len(marks) > 1:
        raise refused("a foreign key has two effects of a removal", "Keep one of them.")
    action: OnDeleteAction = marks[0].action if marks else "protect"
    if action == "set_null" and not optional:
        raise refused(
            "a foreign key that cannot be None would become None",
            "Let it be None, as in Annotated[ForeignKey[int | None, Author], SET_NULL], or choose CASCADE or PROTECT.",
        )
    return action


def _unique(refused: Refusal, entries: Sequence[EntryMarker[Any]]) -> Unique[Any]:
    """Return the marker of the index of a foreign key, the only one that it may have."""
    mark = entries[0]
    if len(entries) > 1 or not isinstance(mark, Unique):
        raise refused("a foreign key has a second index on its field", "Leave out the other marker.")
    if mark.where is not None or mark.key is not None or mark.store is not None or mark.include:
        raise refused(
            "the unique index of a foreign key has an option that it does not take",
            "Every record has an entry by its key alone: leave out where=, key=, store= and include=.",
        )
    if mark.nulls == "equal":
        raise refused("the unique index of a foreign key treats None as a value", 'Leave out nulls="equal".')
    return mark
