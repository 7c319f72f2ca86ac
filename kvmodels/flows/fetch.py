"""The verbs that look a record up by its key or a unique value, and what is told or done about one that was found.

Rules of this module: no query is planned here (``flows/scan.py`` does), no write is compiled here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar, cast

from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.flows.arguments import items_of, require_object
from kvmodels.flows.context import Context
from kvmodels.flows.crud import absent, remove_object
from kvmodels.flows.direct import Lookup, lookup_read
from kvmodels.flows.direct_writes import remove_key
from kvmodels.flows.points import point_read
from kvmodels.flows.requests import AnyFlow, Flow, steps_of
from kvmodels.flows.scan import get_by_key, get_many_by_key, get_one
from kvmodels.query.query import Query
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.expressions import Comparison, Expression
from kvmodels.schema.model import KvModel
from kvmodels.schema.predicates import key_values
from kvmodels.schema.state import drop_state, set_state, state_of

__all__ = ["detach", "expires_at", "get", "get_or_none", "in_bulk", "key_values", "refresh", "remove"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

M = TypeVar("M", bound=KvModel)


def get(context: Context, schema: ModelSchema, arguments: Sequence[Any], lookups: Mapping[str, Any]) -> AnyFlow[Any]:
    """One record by primary key, or by expressions and lookups."""
    values = lookups
    if arguments:
        if len(arguments) == 1 and not lookups and not isinstance(arguments[0], Expression):
            given = arguments[0]
            return point_read(context, schema, given) or get_by_key(context, schema, key_values(schema, given))
        values = _values(schema, arguments, lookups)
    lookup = context, schema, arguments, lookups
    return (lookup_read(lookup, values, _planned, required=True) if values else None) or _planned(lookup)


def _planned(lookup: Lookup) -> Flow[Any]:
    context, schema, arguments, lookups = lookup
    return get_one(context, _query(schema, arguments, lookups))


def _values(schema: ModelSchema, arguments: Sequence[Any], lookups: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is looked up, if it is values of fields alone: expressions such as ``User.email == "…"`` as keywords."""
    if not arguments:
        return lookups
    values: dict[str, Any] = {}
    for one in arguments:
        if not isinstance(one, Comparison) or one.lookup != "exact" or one.any or one.field in values:
            return {}
        if one.field in lookups or (one.model is not None and not issubclass(schema.model, one.model)):
            return {}
        values[one.field] = one.operand
    return {**values, **lookups}


def _query(schema: ModelSchema, arguments: Sequence[Any], lookups: Mapping[str, Any]) -> Query:
    query = Query(schema).filtered(arguments, lookups)
    if query.where == Query(schema).where:
        raise InvalidArgumentError(
            "a record is looked up without saying which",
            argument="lookups",
            hint="Give the primary key, an expression, or field=value.",
        )
    return query


def get_or_none(
    context: Context, schema: ModelSchema, arguments: Sequence[Any], lookups: Mapping[str, Any]
) -> AnyFlow[Any]:
    """The same, None when there is none."""
    lookup = context, schema, arguments, lookups
    if len(arguments) == 1 and not lookups and not isinstance(arguments[0], Expression):
        return point_read(context, schema, arguments[0], required=False) or _planned_or_none(lookup)
    values = _values(schema, arguments, lookups)
    found = lookup_read(lookup, values, _planned_or_none, required=False) if values else None
    return found or _planned_or_none(lookup)


def _planned_or_none(lookup: Lookup) -> Flow[Any]:
    context, schema, arguments, lookups = lookup
    try:
        return (yield from steps_of(get(context, schema, arguments, lookups)))
    except schema.model.DoesNotExist:
        return None


def in_bulk(context: Context, schema: ModelSchema, keys: Iterable[Any]) -> Flow[dict[Any, Any]]:
    """Records by primary key, those that exist, in the order of the keys."""
    wanted = items_of("keys", keys, "Give primary keys in a list.")
    found = yield from get_many_by_key(context, schema, [key_values(schema, key) for key in wanted])
    return {instance.pk: instance for instance in found if instance is not None}


def refresh(context: Context, schema: ModelSchema, instance: Any) -> Flow[None]:
    """Put the stored values of a record into an object of the caller."""
    require_object(schema, instance)
    state = state_of(instance)
    key = schema.primary_key_of(instance) if state is None else state.key
    stored = yield from get_by_key(context, schema, key)
    if stored.__class__ is not instance.__class__:  # another class of the collection has the key now
        raise absent(schema, key)
    instance.__dict__.clear()
    instance.__dict__.update(stored.__dict__)
    if stored.__pydantic_extra__ is not None:
        instance.__pydantic_extra__.clear()
        instance.__pydantic_extra__.update(stored.__pydantic_extra__)
    fresh = state_of(stored)
    assert fresh is not None
    set_state(instance, fresh)


def expires_at(context: Context, schema: ModelSchema, target: Any) -> Flow[datetime | None]:
    """When a record expires, by its key or that of an object; a deadline after the year 9999 is the end of it."""
    if isinstance(target, schema.model):
        state = state_of(target)
        key = schema.primary_key_of(target) if state is None else state.key
    else:
        key = key_values(schema, target)
    stored = state_of((yield from get_by_key(context, schema, key)))
    assert stored is not None  # what was read has a state
    if stored.expire_at is None:
        return None
    try:
        return EPOCH + timedelta(milliseconds=stored.expire_at)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def detach(instance: M) -> M:
    """Forget that the object was loaded."""
    if not isinstance(cast("object", instance), KvModel):
        raise InvalidValueError(
            "this is not an object of a model", type=type(instance).__name__, hint="Give an object of a KvModel."
        )
    drop_state(instance)
    return instance


def remove(context: Context, schema: ModelSchema, target: Any) -> Flow[bool]:
    """Remove a record by its key, or that of an object."""
    if isinstance(target, schema.model):
        return remove_object(context, schema, target)
    return remove_key(context, schema, target)
