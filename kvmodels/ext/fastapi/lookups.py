"""Conditions and orders of a query as query parameters, described in the OpenAPI document.

Rules of this module: FastAPI only collects the texts. ``parse_lookups`` converts them, so that every parameter is
refused in the same way, by an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from typing import Annotated, Any, Final, Literal

from fastapi import Query, Request
from pydantic import TypeAdapter, WithJsonSchema

from kvmodels.errors import InvalidLookupError, NoUsableIndexError
from kvmodels.query.text_lookups import ORDER, ParsedLookups, lookup_values, parse_lookups
from kvmodels.schema.compile.model import KvModel

_REQUEST: Final = "kvmodels_request"
_CHOSEN: Final = "kvmodels.lookups"
"""The key of a scope for the names of the lookups that the client has given."""


def is_chosen_by_client(request: Request, error: NoUsableIndexError) -> bool:
    """Return whether a condition or the order of a refused query comes from ``Lookups`` and was given by the client."""
    chosen: set[str] = request.scope.get(_CHOSEN, set())
    fields = {name.partition("__")[0] for name in chosen}
    return (ORDER in chosen and bool(error.order)) or any(name.partition("__")[0] in fields for name in error.filters)


class LookupParameters:
    """The query parameters of some lookups, as a dependency that answers with ``ParsedLookups``.

    ``Lookups[User]("status", "age__gte", order=("-id",))`` creates it.
    """

    __slots__ = ("__signature__", "_model", "_orders")

    def __init__(self, model: type[KvModel], names: Sequence[str], orders: Sequence[str]) -> None:
        parse_lookups(model, {ORDER: list(orders)})
        self._model = model
        self._orders = tuple(orders)
        parameters = [_parameter(name, _schema_of(model, name)) for name in names]
        if orders:
            schema = {"type": "string", "enum": list(orders), "description": f"The order; {orders[0]} by default."}
            parameters.append(_parameter(ORDER, schema))
        parameters.append(Parameter(_REQUEST, Parameter.KEYWORD_ONLY, annotation=Request))
        self.__signature__ = Signature(parameters, return_annotation=ParsedLookups)

    async def __call__(self, **texts: Any) -> ParsedLookups:
        """Return the conditions and the order of a request. Raises InvalidLookupError, which is answered with 422."""
        request: Request = texts.pop(_REQUEST)
        given = {name: found for name, found in texts.items() if found is not None}
        request.scope.setdefault(_CHOSEN, set()).update(given)
        if self._orders and given.setdefault(ORDER, [self._orders[0]]) not in [[one] for one in self._orders]:
            raise InvalidLookupError(
                "a parameter is not an order that this query offers",
                model=self._model.__name__,
                parameter=ORDER,
                reason="this order is not offered",
                hint=f"Offered are: {', '.join(self._orders)}.",
            )
        return parse_lookups(self._model, given)


class _LookupsOfModel:
    """Makes ``Lookups[User]("status")`` a dependency."""

    __slots__ = ("_model",)

    def __init__(self, model: type[KvModel]) -> None:
        self._model = model

    def __call__(self, *names: str, order: Sequence[str] = ()) -> LookupParameters:
        return LookupParameters(self._model, names, order)


class _Lookups:
    """Makes ``Lookups[User]`` a function of names."""

    __slots__ = ()

    def __getitem__(self, model: type[KvModel]) -> _LookupsOfModel:
        return _LookupsOfModel(model)


Lookups: Final = _Lookups()
"""``Lookups[User]("status", "age__gte", order=("-id", "name"))``: query parameters for a query; a dependency.

The names are lookups as in ``filter()``, and each is a query parameter. ``order`` lists the orders that a client may
choose with ``order_by``; the first is the default. Declare ``lookups: Annotated[ParsedLookups, Depends(...)]`` and
write ``users.filter(lookups.where).order_by(*lookups.order_by)``. A text that a field cannot hold raises
``InvalidLookupError``, which ``add_error_handlers`` answers with 422 and the name of the parameter. An unknown field,
lookup or column raises ``InvalidLookupError`` where the dependency is declared.
"""


def _parameter(name: str, schema: Mapping[str, Any]) -> Parameter:
    annotation = Annotated[list[str] | None, WithJsonSchema(dict(schema)), Query()]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _schema_of(model: type[KvModel], name: str) -> dict[str, Any]:
    found = lookup_values(model, name)
    # A client can only look for values that the field can have; the type of the column is a plain str.
    kind: Any = Literal[found.choices] if found.choices else found.kind
    schema = TypeAdapter[Any](kind).json_schema()
    return {"type": "array", "items": schema} if found.several else schema
