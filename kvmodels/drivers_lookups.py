"""The shortest way to one record: key, row and object without a flow in between, on an engine that gives one row.

It is taken for one key, or one value of one unique column, under the header for which it was compiled.

Rules of this module: what a lookup means is said by ``kvmodels.flows.fetch`` alone, once for each header; here it is
kept and carried out. Whatever is not plainly found goes the way of every flow, from its beginning, so there is no error
and no answer of its own; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kvmodels.drivers import Look, run
from kvmodels.engines.base import Engine
from kvmodels.errors import DecodeError, InvalidValueError
from kvmodels.flows.context import Context
from kvmodels.flows.fetch import get
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


def getter(engine: Engine, context: Context, schema: ModelSchema) -> Getter:
    """What gets one record of a model.

    Args:
        engine: that of the database.
        context: shared by its flows, in no transaction.
        schema: the model.
    """
    look: Look | None = getattr(engine, "row_at_key", None)
    if look is None:
        return lambda arguments, lookups: run(engine, get(context, schema, arguments, lookups))
    # The header that they were compiled for, and ways by the name of what is looked up: None is the primary key.
    known: tuple[object, dict[str | None, Short]] = None, {}

    def learned(name: str | None, flow: AnyFlow[Any], view: object, shorts: dict[str | None, Short]) -> AnyFlow[Any]:
        short = flow.way.short() if isinstance(flow, OneRow) else None
        if short is not None and context.view is view:  # else it may be that of another header
            shorts[name] = short
        return flow

    def found(arguments: tuple[Any, ...], lookups: Mapping[str, Any]) -> Any:
        nonlocal known
        view, shorts = known
        if view is not context.view:
            view, shorts = known = context.view, {}
        name, operand = None, None
        if arguments:
            if len(arguments) == 1 and not lookups and not isinstance(arguments[0], Expression):
                operand = arguments[0]
        elif len(lookups) == 1:
            ((name, operand),) = lookups.items()
        if operand is None:
            return run(engine, get(context, schema, arguments, lookups))
        short = shorts.get(name)
        if short is None:
            return run(engine, learned(name, get(context, schema, arguments, lookups), view, shorts))
        head, pack, guard, follow, made, way = short
        row = None
        try:
            key = head + pack(operand)
            row = look(key, guard, follow, False)
            instance = made(row, key) if row else None
            if instance is not None:
                return instance
        except (InvalidValueError, DecodeError):
            pass  # what follows says what is wrong, or reads it
        if row is not None and not row:
            return way.absent(operand)
        if row and isinstance(follow, Likely):
            follow.misses += 1
        flow = get(context, schema, arguments, lookups)
        return run(engine, flow.read(guessed=True) if isinstance(flow, OneRow) else flow)

    return found
