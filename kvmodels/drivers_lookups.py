"""The shortest way to one record: key, row and object without a flow in between, on an engine that gives one row.

It is taken for one key, or one value of one unique column, under the header for which it was compiled.

Rules of this module: what a lookup means is said by ``kvmodels.flows.fetch`` alone, once for each header; here it is
kept and carried out. Whatever is not plainly found goes the way of every flow, from its beginning, so there is no error
and no answer of its own; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from kvmodels.drivers import Look, run
from kvmodels.engines.base import Engine
from kvmodels.errors import DecodeError, InvalidValueError
from kvmodels.flows import fetch
from kvmodels.flows.context import Context
from kvmodels.flows.requests import AnyFlow, OneRow, Short
from kvmodels.operations import Likely
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.expressions import Expression

__all__ = ["Getter", "getter"]


class Getter(Protocol):
    """``fetch.get``, carried out."""

    def __call__(self, arguments: tuple[Any, ...], lookups: Mapping[str, Any], /) -> Any:
        """The record with this key, or that matches expressions and conditions."""
        ...


_Known: TypeAlias = tuple[object, dict[str | None, Short]]
"""A header, and what was compiled for it by the name of what is looked up; None is the primary key."""


def getter(engine: Engine, context: Context, schema: ModelSchema) -> Getter:
    """What gets one record of a model.

    Args:
        engine: that of the database.
        context: shared by its flows, in no transaction.
        schema: the model.
    """
    look: Look | None = getattr(engine, "row_at_key", None)
    if look is None:
        return lambda arguments, lookups: run(engine, fetch.get(context, schema, arguments, lookups))
    return _short_getter(engine, look, context, schema)


def _short_getter(engine: Engine, look: Look, context: Context, schema: ModelSchema) -> Getter:
    known: _Known = None, {}

    def found(arguments: tuple[Any, ...], lookups: Mapping[str, Any], /) -> Any:
        nonlocal known
        if known[0] is not context.view:
            known = context.view, {}
        name, operand = None, None
        if arguments:
            if len(arguments) == 1 and not lookups and not isinstance(arguments[0], Expression):
                operand = arguments[0]
        elif len(lookups) == 1:
            ((name, operand),) = lookups.items()
        kept = known
        short = None if operand is None else kept[1].get(name)
        if short is None:
            flow = fetch.get(context, schema, arguments, lookups)
            if operand is not None:
                _keep(context, kept, name, flow)
            return run(engine, flow)
        head, pack, guard, follow, made, way = short
        row = None
        try:
            key = head + pack(operand)
            row = look(key, guard, follow, False)
            instance = made(row, key) if row else None
        except (InvalidValueError, DecodeError):
            instance = None  # the flow says what is wrong, or reads it
        if instance is not None:
            return instance
        if row is not None and not row:
            return way.absent(operand)
        if row and isinstance(follow, Likely):
            follow.misses += 1
        flow = fetch.get(context, schema, arguments, lookups)
        return run(engine, flow.read(guessed=True) if isinstance(flow, OneRow) else flow)

    return found


def _keep(context: Context, known: _Known, name: str | None, flow: AnyFlow[Any]) -> None:
    """Keep how an operand is looked up, if that is what the flow does, under the header that it was made with."""
    short = flow.way.short() if isinstance(flow, OneRow) else None
    if short is not None and known[0] is context.view:
        known[1][name] = short
