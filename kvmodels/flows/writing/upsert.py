"""Look a record up by a complete unique key and create it if there is none: ``get_or_create``, ``update_or_create``.

The race of two callers is closed by the unique index (or the primary key) that decides: both insert, one is refused
and looks again. A change is checked against the version that was looked up, so that a caller who was overtaken looks
again too, and nothing of another one is lost.

Rules of this module: every round is a look and one write; rounds are bounded as attempts of a write are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvmodels.core.operations import point
from kvmodels.errors import (
    AlreadyExistsError,
    IntegrityError,
    InvalidArgumentError,
    StaleObjectError,
    UniqueViolationError,
)
from kvmodels.flows.arguments import fields_of
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, read, steps_of
from kvmodels.flows.hydration.rows import document_of
from kvmodels.flows.reading.lookup import get_or_none
from kvmodels.flows.writing.contention import repeated
from kvmodels.flows.writing.records import insert, save
from kvmodels.query.query import Query
from kvmodels.schema.compile.record_codec import apply_changes
from kvmodels.schema.definition.definition import IndexDefinition, ModelSchema, PartialCondition
from kvmodels.schema.definition.variants import made_of, require_known_names
from kvmodels.schema.filters.changes import Term, require_fields, require_terms
from kvmodels.schema.filters.predicate import implies
from kvmodels.schema.instances import state_of


def get_or_create(
    context: Context, schema: ModelSchema, defaults: Mapping[str, Any] | None, lookups: Mapping[str, Any]
) -> Flow[tuple[Any, bool]]:
    """Look up by a complete unique key, insert when there is none, look up again when another was faster.

    Source: Django's QuerySet.get_or_create.
    """
    others = fields_of("defaults", {} if defaults is None else defaults)
    require_known_names(schema, others)
    _require_values_of_fields(schema, lookups)
    unique = _unique_key(schema, lookups, others)
    attempts = 0
    while True:
        attempts += 1
        found = yield from steps_of(get_or_none(context, schema, (), lookups))
        if found is not None:
            return found, False
        instance = made_of(schema, {**others, **lookups}, by_fields=True)
        try:
            return (yield from insert(context, schema, instance)), True
        except IntegrityError as error:
            if state_of(instance) is not None:  # a hook that ran after the commit raised it
                raise
            again = _decides(error, unique) and not (yield from _is_of_another_class(context, schema, error))
            if not again or attempts >= context.retry.attempts:
                found = yield from steps_of(get_or_none(context, schema, (), lookups))
                if found is None:
                    raise
                return found, False


def update_or_create(
    context: Context,
    schema: ModelSchema,
    defaults: Mapping[str, Any] | None,
    create_defaults: Mapping[str, Any] | None,
    lookups: Mapping[str, Any],
) -> Flow[tuple[Any, bool]]:
    """Change the record that a complete unique key names, or create it.

    Source: Django's QuerySet.update_or_create, whose lock is a version check here. Cost: a round is one read and one
    commit. Raises InvalidArgumentError, AlreadyExistsError, UniqueViolationError or RetriesExhaustedError.
    """
    changes = fields_of("defaults", {} if defaults is None else defaults)
    others = changes if create_defaults is None else fields_of("create_defaults", create_defaults)
    require_fields(schema, changes)
    require_terms(schema, changes)
    if create_defaults is None:
        _require_values(changes)
    require_known_names(schema, others)
    _require_values_of_fields(schema, lookups)
    unique = _unique_key(schema, lookups, others)
    lost: list[bytes] = []

    def one_round() -> Flow[tuple[Any, bool] | None]:
        """Return the result; None if another caller was faster, to the record whose key is ``lost`` then, if any."""
        found = yield from steps_of(get_or_none(context, schema, (), lookups))
        made = made_of(schema, {**others, **lookups}, by_fields=True) if found is None else found
        before = state_of(made)
        lost.clear()
        try:
            if found is None:
                return (yield from insert(context, schema, made)), True
            apply_changes(schema.variant_of(found), found, changes)
            return (yield from save(context, schema, found)), False
        except StaleObjectError:
            if before is None or state_of(made) is not before:  # a hook that ran after the commit raised it
                raise
            layout = context.layouts[schema.collection]
            lost.append(layout.key(layout.pack(before.key)))
        except IntegrityError as error:
            if found is not None or state_of(made) is not before:
                raise
            # Another caller's record may be in the way of the primary key before it is in the way of the lookup.
            again = _decides(error, unique) and not (yield from _is_of_another_class(context, schema, error))
            if not again and (yield from steps_of(get_or_none(context, schema, (), lookups))) is None:
                raise
        return None

    return (yield from repeated(context, lost, one_round, "others were faster in every round"))


def _require_values(defaults: Mapping[str, Any]) -> None:
    for name, value in defaults.items():
        if isinstance(value, Term):
            raise InvalidArgumentError(
                "a new record cannot be made of stored values",
                argument=name,
                value=repr(value),
                hint="Give create_defaults with the values of a new record.",
            )


def _require_values_of_fields(schema: ModelSchema, lookups: Mapping[str, Any]) -> None:
    """Refuse lookups that give no value for a new record: it would not be what was looked for."""
    schemas = (schema,) if schema.variants is None else (schema, *schema.variants.by_class.values())
    for name, value in lookups.items():
        if any(name in one.fields for one in schemas):
            continue
        Query(schema).filtered((), {name: value})  # which refuses a name that stands for nothing, with a suggestion
        raise InvalidArgumentError(
            "a lookup gives no value for a new record",
            argument="lookups",
            value=name,
            hint="Write field=value for every lookup, and test other conditions on the object that is returned.",
        )


def _unique_key(schema: ModelSchema, lookups: Mapping[str, Any], others: Mapping[str, Any]) -> str | None:
    """Return the unique index that holds the record which the lookups make, None for the primary key.

    Its columns are fields of the model, each among the lookups; and of a partial index the values of the new record say
    that it holds the record. Otherwise two callers could each make a record that no slot tells apart.
    """
    if all(column.field in lookups for column in schema.primary_key):
        return None
    partial: IndexDefinition | None = None
    for name, index in schema.indexes.items():
        if not index.unique or not all(
            field in schema.fields and lookups.get(field) is not None for field in index.fields
        ):
            continue
        if index.where is None or _is_within(schema, {**others, **lookups}, index.where):
            return name
        partial = partial or index
    if partial is not None and partial.where is not None:
        raise InvalidArgumentError(
            "the lookups name a unique key of some records only, so two callers could both create a record",
            argument="lookups",
            value=tuple(lookups),
            expected=tuple(sorted(_tested(partial.where))),
            hint=f"The index {partial.name!r} has only records with {partial.where.text}: say that in the lookups too.",
        )
    raise InvalidArgumentError(
        "the lookups name no complete unique key, so two callers could both create a record",
        argument="lookups",
        value=tuple(lookups),
        expected=(
            tuple(column.field for column in schema.primary_key),
            *(index.fields for index in schema.indexes.values() if index.unique),
        ),
        hint="Give every field of the primary key or of a unique index as field=value, the rest in defaults.",
    )


def _is_within(schema: ModelSchema, values: Mapping[str, Any], where: PartialCondition) -> bool:
    """Return whether a partial index holds the record; for classes that share a collection, the class counts too."""
    tested = _tested(where)
    known = {name: value for name, value in values.items() if name in tested}
    return implies(schema, Query(schema).filtered((), known).where, where)


def _tested(where: PartialCondition) -> frozenset[str]:
    return frozenset(test.column.field for tests in where.alternatives for test in tests)


def _is_of_another_class(context: Context, schema: ModelSchema, error: IntegrityError) -> Flow[bool]:
    """Return whether the conflicting record is of another class, so that no lookup finds it; the error then says so."""
    variants = schema.variants
    if variants is None or not variants.where or not isinstance(error, (AlreadyExistsError, UniqueViolationError)):
        return False
    shown = error.existing_key if isinstance(error, UniqueViolationError) else error.key
    layout = context.layouts[schema.collection]
    key = layout.key(layout.pack((shown,) if len(schema.primary_key) == 1 else shown))
    result = yield from read((point(key),))
    if not result.ranges[0] or variants.of_document(document_of(context, result.ranges[0][0])) is not None:
        return False
    error.hint = (
        "Another class of the collection has it: choose another value, or use the repository of the first class, in a "
        "program that has that class."
    )
    return True


def _decides(error: IntegrityError, unique: str | None) -> bool:
    """Return whether the insert lost against a record with the very key that was looked up."""
    if isinstance(error, UniqueViolationError):
        return error.index == unique
    return unique is None and isinstance(error, AlreadyExistsError)
