"""Look a record up by a complete unique key and create it if there is none: ``get_or_create``, ``update_or_create``.

The race of two callers is closed by the unique index (or the primary key) that decides: both insert, one is refused
and looks again. A change is checked against the version that was looked up, so that a caller who was overtaken looks
again too, and nothing of another one is lost.

A validator or a hook of the class may give the new record another key than the lookup named. Then the record
of that key is looked up too, so a round is repeated only if another writer was faster.

Rules of this module: every round is a look and one write; rounds are bounded as attempts of a write are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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
from kvmodels.flows.reading.lookup import find_one, get_or_none
from kvmodels.flows.writing.changes import Deadline
from kvmodels.flows.writing.contention import repeated
from kvmodels.flows.writing.records import insert, save
from kvmodels.query.query import Query
from kvmodels.schema.compile.record_codec import apply_changes
from kvmodels.schema.definition.definition import IndexDefinition, ModelSchema, PartialCondition
from kvmodels.schema.definition.variants import new_object, require_known_names
from kvmodels.schema.encryption.blind_values import generations_of
from kvmodels.schema.filters.changes import Term, require_fields, require_terms
from kvmodels.schema.filters.operands import PRIMARY_KEY, comparable
from kvmodels.schema.filters.predicate import AnyOf, Condition, implies
from kvmodels.schema.instances import state_of


def get_or_create(
    context: Context,
    schema: ModelSchema,
    defaults: Mapping[str, Any] | None,
    lookups: Mapping[str, Any],
    *,
    expire_in: Deadline,
) -> Flow[tuple[Any, bool]]:
    """Look up by a complete unique key, insert when there is none, look up again when another was faster.

    ``expire_in``: of a new record; a record that exists keeps its deadline.

    Source: Django's QuerySet.get_or_create.
    """
    others = fields_of("defaults", {} if defaults is None else defaults)
    require_known_names(schema, others)
    _require_values_of_fields(schema, lookups)
    unique = _unique_key(schema, lookups, others)
    attempts = 0
    while True:
        attempts += 1
        found, made = yield from _found_or_made(context, schema, lookups, others)
        if found is not None:
            return found, False
        try:
            return (yield from insert(context, schema, made, expire_in)), True
        except IntegrityError as error:
            if state_of(made) is not None:  # a hook that ran after the commit raised it
                raise
            found = yield from _in_the_way(context, schema, error, unique, _values_in(made, lookups))
            if found is not None:
                return found, False
            if attempts >= context.retry.attempts:
                raise


def update_or_create(
    context: Context,
    schema: ModelSchema,
    defaults: Mapping[str, Any] | None,
    create_defaults: Mapping[str, Any] | None,
    lookups: Mapping[str, Any],
    *,
    expire_in: Deadline,
) -> Flow[tuple[Any, bool]]:
    """Change the record that a complete unique key names, or create it; ``expire_in`` holds for both.

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
        lost.clear()
        found, made = yield from _found_or_made(context, schema, lookups, others)
        if found is None:
            try:
                return (yield from insert(context, schema, made, expire_in)), True
            except IntegrityError as error:
                if state_of(made) is not None:  # a hook that ran after the commit raised it
                    raise
                found = yield from _in_the_way(context, schema, error, unique, _values_in(made, lookups))
        return None if found is None else (yield from changed(found))

    def changed(found: Any) -> Flow[tuple[Any, bool] | None]:
        before = state_of(found)
        try:
            apply_changes(schema.variant_of(found), found, changes)
            return (yield from save(context, schema, found, expire_in=expire_in)), False
        except StaleObjectError:
            if before is None or state_of(found) is not before:  # a hook that ran after the commit raised it
                raise
            layout = context.layouts[schema.collection]
            lost.append(layout.key(layout.pack(before.key)))
        return None

    return (yield from repeated(context, lost, one_round, "other writers were faster in every attempt"))


def _found_or_made(
    context: Context, schema: ModelSchema, lookups: Mapping[str, Any], others: Mapping[str, Any]
) -> Flow[tuple[Any | None, Any]]:
    """Return the record; or None and the object to insert, if no record has its values either."""
    found = yield from steps_of(get_or_none(context, schema, (), lookups))
    if found is not None:
        return found, found
    made = new_object(schema, {**others, **lookups}, by_fields=True)
    values = _values_in(made, lookups)
    # A validator of the class may have changed them, which only the object shows.
    if values != lookups and Query(schema).filtered((), values).where != Query(schema).filtered((), lookups).where:
        found = yield from steps_of(get_or_none(context, schema, (), values))
    return found, made


def _values_in(made: Any, lookups: Mapping[str, Any]) -> dict[str, Any]:
    return {name: made.__dict__.get(name, value) for name, value in lookups.items()}


def _in_the_way(
    context: Context, schema: ModelSchema, error: IntegrityError, unique: str | None, values: Mapping[str, Any]
) -> Flow[Any | None]:
    """Return the record that prevented an insert, if the lookup names it; None if it has changed since.

    ``values``: those of the refused object for the lookups. Raises the error if the record stays in the way.
    """
    if not _decides(schema, error, unique) or (yield from _is_of_another_class(context, schema, error)):
        # Another caller's record may be in the way of the primary key before it is in the way of the lookup.
        found = yield from steps_of(get_or_none(context, schema, (), values))
        if found is None:
            raise error
        return found
    rest = {name: value for name, value in values.items() if name not in _key_fields(schema, unique)}
    owner = _owner(schema, error, values)
    found = yield from find_one(context, replace(owner, where=(*owner.where, *Query(schema).filtered((), rest).where)))
    if found is None and (yield from find_one(context, owner)) is not None:
        raise error  # it has the key, and differs in the other lookups
    return found


def _key_fields(schema: ModelSchema, unique: str | None) -> tuple[str, ...]:
    columns = schema.primary_key if unique is None else schema.indexes[unique].columns
    return tuple(column.field for column in columns)


def _owner(schema: ModelSchema, error: IntegrityError, values: Mapping[str, Any]) -> Query:
    """Return the query for the record that an error names, as long as it has the values that prevented the insert.

    ``values``: those of the refused object for the lookups, because an error does not show those of encrypted fields.
    """
    taken: list[Condition | AnyOf] = []
    if isinstance(error, UniqueViolationError):
        # Not by keywords: the values are those of the columns, which no function folds again.
        for field, value in zip(error.fields, error.values, strict=True):
            if field in schema.encrypted:
                taken += Query(schema).filtered((), {field: values[field]}).where
                continue
            source = schema.source(field)
            taken.append(Condition(field, "exact", comparable(value), any=source is not None and source.many))
    else:
        assert isinstance(error, AlreadyExistsError)  # no other error decides
    key = error.existing_key if isinstance(error, UniqueViolationError) else error.key
    found = Query(schema).filtered((), {PRIMARY_KEY: key})
    return replace(found, where=(*found.where, *taken))


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


def _decides(schema: ModelSchema, error: IntegrityError, unique: str | None) -> bool:
    """Return whether the insert lost against a record with the very key that was looked up."""
    if isinstance(error, UniqueViolationError):
        return unique is not None and error.index in generations_of(schema, unique)
    return unique is None and isinstance(error, AlreadyExistsError)
