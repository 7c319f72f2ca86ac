"""The two sides of a database: the models of the store itself, and the models of its tenants.

Rules of this module: pure checks of declarations. A model belongs to one side, and its foreign keys stay on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvmodels._support.naming import short_repr
from kvmodels.errors import ModelDefinitionError, TenantModelError
from kvmodels.schema.definition.definition import ModelSchema


def refuse_shared_models(models: Iterable[type[Any]], tenant_models: Iterable[type[Any]]) -> None:
    """Refuse a model on both sides. Raises ModelDefinitionError."""
    tenants = list(tenant_models)
    for model in models:
        if model in tenants:
            raise ModelDefinitionError(
                "a model belongs to the store itself and to tenants",
                model=model.__name__,
                hint="Name it in models= or in tenant_models=. Two classes may have the same collection, one on each "
                "side.",
            )


def refuse_references_across(schemas: Mapping[str, ModelSchema], others: Sequence[type[Any]]) -> None:
    """Refuse a foreign key to a model of the other side. Raises ModelDefinitionError."""
    own = {schema.name for schema in schemas.values()}
    names = {model.__name__ for model in others} - own
    for schema in schemas.values():
        for field, key in schema.references.items():
            if key.target in others or key.target in names:
                raise ModelDefinitionError(
                    "a foreign key leads from a tenant to the store itself, or from the store to a tenant",
                    model=schema.name,
                    field=field,
                    option=key.target_name,
                    hint="Declare both models on one side. Store the plain key instead, and check it in your program.",
                )


def wrong_side(model: type[Any], message: str, call: str) -> TenantModelError:
    """Return the error for a model that is used on the other side."""
    name = getattr(model, "__name__", None) or short_repr(model)
    return TenantModelError(message, model=name, hint=f"Use {call.format(name)}.")
