"""The values of type aliases: those of the ``type`` statement, and of ``TypeAliasType`` before Python 3.12.

Rules of this module: it only reads aliases. Names that an alias has as text are found where the alias was defined; an
alias may name itself.
"""

from __future__ import annotations

import sys
import typing
from types import SimpleNamespace
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import typing_extensions

from kvmodels.errors import ModelDefinitionError

_ALIASES: Final[tuple[type[Any], ...]] = (
    typing_extensions.TypeAliasType,
    # From Python 3.12 on; typing_extensions may have a class of its own there.
    getattr(typing, "TypeAliasType", typing_extensions.TypeAliasType),
)


def is_alias(annotation: Any) -> bool:
    """Return whether it is an alias, with or without type arguments.

    Examples:
        >>> is_alias(typing_extensions.TypeAliasType("Email", str)), is_alias(str)
        (True, False)
    """
    return isinstance(annotation, _ALIASES) or isinstance(get_origin(annotation), _ALIASES)


def value_of_alias(annotation: Any) -> Any:
    """Return the type for which an alias stands, with its type arguments in place.

    Raises:
        ModelDefinitionError: the alias names a type that does not exist where it was defined.

    Examples:
        >>> T = TypeVar("T")
        >>> value_of_alias(typing_extensions.TypeAliasType("Pair", tuple[T, T], type_params=(T,))[int])
        tuple[int, int]
    """
    if isinstance(annotation, _ALIASES):
        return _resolved(annotation)
    alias: Any = get_origin(annotation)
    value, arguments = _resolved(alias), get_args(annotation)
    parameters = alias.__type_params__
    if not all(isinstance(parameter, TypeVar) for parameter in parameters):
        return value[arguments]
    given = dict(zip(parameters, arguments, strict=False))
    if isinstance(value, TypeVar):
        return given.get(value, value)
    # The value may use its parameters in another order than the alias declares them.
    used = getattr(value, "__parameters__", ())
    return value[tuple(given.get(parameter, parameter) for parameter in used)] if used else value


def _resolved(alias: Any) -> Any:
    module = sys.modules.get(alias.__module__)
    names = {**vars(module or typing), alias.__name__: alias}
    names |= {parameter.__name__: parameter for parameter in alias.__type_params__}
    try:
        value = SimpleNamespace(__annotations__={"value": alias.__value__})
        return get_type_hints(value, names, include_extras=True)["value"]
    except NameError as error:
        raise ModelDefinitionError(
            "a type alias names a type that does not exist in the module of the alias",
            option=alias.__name__,
            suggestion=error.name,
            hint="Define the alias and the types that it names at the top of a module.",
        ) from error
