"""The hooks of a model: methods that run before and after a record of it is written.

Rules of this module: which methods a class has is found once, when it is compiled; what cannot work as a hook is
refused then. Hooks of ``KvModel`` itself do nothing and count as absent.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isasyncgenfunction, iscoroutinefunction, signature, unwrap
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

from kvmodels.errors import ModelDefinitionError

__all__ = ["HOOK_NAMES", "HookName", "Hooks", "check_hooks", "is_asynchronous", "model_hooks", "no_hook"]

HookName = Literal["before_insert", "before_update", "before_remove", "after_insert", "after_update", "after_remove"]
HOOK_NAMES: Final[tuple[HookName, ...]] = get_args(HookName)

F = TypeVar("F", bound=Callable[..., Any])

_DOES_NOTHING: Final = "__kv_no_hook__"


class Hooks(NamedTuple):
    """Functions to call for the records of one class, in order; each takes the object, and of an update the old one."""

    before_insert: tuple[Callable[[Any], object], ...] = ()
    before_update: tuple[Callable[[Any, Any], object], ...] = ()
    before_remove: tuple[Callable[[Any], object], ...] = ()
    after_insert: tuple[Callable[[Any], object], ...] = ()
    after_update: tuple[Callable[[Any, Any], object], ...] = ()
    after_remove: tuple[Callable[[Any], object], ...] = ()


def no_hook(method: F) -> F:
    """Mark a method as the one of the base class, which does nothing and is never called."""
    setattr(method, _DOES_NOTHING, True)
    return method


def is_asynchronous(function: Any) -> bool:
    """Whether a call only makes a coroutine, or an asynchronous generator, that nobody would wait for.

    Examples:
        >>> async def wait() -> None: ...
        >>> is_asynchronous(wait), is_asynchronous(print)
        (True, False)
    """
    inner = unwrap(getattr(function, "func", function))  # of functools.partial
    kind: type[Any] = inner.__class__
    called = getattr(kind, "__call__", None)  # noqa: B004 - what is asked is whether that is a coroutine
    return any(iscoroutinefunction(one) or isasyncgenfunction(one) for one in (inner, called))


def check_hooks(model: type[Any]) -> None:
    """Refuse hooks that could not run, or would never be called.

    Raises:
        ModelDefinitionError: a hook is asynchronous, takes other arguments, or is hidden by the base class.
    """
    for name in HOOK_NAMES:
        method = getattr(model, name)
        if getattr(method, _DOES_NOTHING, False):
            _check_hidden(model, name)
            continue
        if is_asynchronous(method):
            raise ModelDefinitionError(
                "a hook is asynchronous",
                model=model.__name__,
                option=name,
                hint="Hooks run inside of a write and cannot wait: write def. Start a task in after_* for the rest.",
            )
        takes = ("self", "old") if name.endswith("_update") else ("self",)
        try:
            signature(method).bind(*takes)
        except TypeError:
            raise ModelDefinitionError(
                "a hook takes other arguments",
                model=model.__name__,
                option=name,
                hint=f"Write def {name}({', '.join(takes)}) -> None.",
            ) from None


def _check_hidden(model: type[Any], name: str) -> None:
    for base in model.__mro__:
        method = base.__dict__.get(name)
        if method is not None and not getattr(method, _DOES_NOTHING, False):
            raise ModelDefinitionError(
                "the hook of a mixin is hidden by that of KvModel",
                model=model.__name__,
                option=f"{base.__name__}.{name}",
                hint=f"Put the mixin first: class {model.__name__}({base.__name__}, KvModel).",
            )


def model_hooks(model: type[Any]) -> Hooks | None:
    """The hooks that a class has as methods, its own and those that it inherits; None when there are none."""
    methods = {name: getattr(model, name) for name in HOOK_NAMES}
    found = {name: (method,) for name, method in methods.items() if not getattr(method, _DOES_NOTHING, False)}
    return Hooks(**found) if found else None
