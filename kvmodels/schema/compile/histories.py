"""Checks of a declared history against the fields of its model.

Rules of this module: pure; a ModelDefinitionError names the model and the field or option.
"""

from __future__ import annotations

from typing import Any

from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.compile.options import ModelOptions
from kvmodels.schema.definition.forms import must_be_stored


def check_history(model: type[Any], options: ModelOptions, primary_key: tuple[str, ...]) -> None:
    """Refuse a history with a lifetime of records, or without a field that can be left out of old versions."""
    history = options.history
    if history is None:
        return
    if options.ttl_ms is not None:
        raise ModelDefinitionError(
            "a model with a history has a lifetime of records",
            model=model.__name__,
            option="ttl",
            hint="Nothing runs when a record expires, so its last version would be lost: leave out ttl or history.",
        )
    for name in history.exclude:
        info = model.model_fields.get(name)
        if info is None:
            hint = f"Name fields of {model.__name__}: {', '.join(model.model_fields)}."
            raise _refusal(model, "a history excludes a field that the model does not have", name, hint)
        if name in primary_key or must_be_stored(info):
            hint = "Give the field a default, which the object of an old version gets, or leave it in the history."
            raise _refusal(model, "a history excludes a field without a default", name, hint)


def _refusal(model: type[Any], message: str, field: str, hint: str) -> ModelDefinitionError:
    return ModelDefinitionError(message, model=model.__name__, field=field, option="history", hint=hint)
