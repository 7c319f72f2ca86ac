"""Hooks of a model, which run before and after a write, and the field names that a model cannot use.

``create(expire_in=60)`` sets a deadline; a field named ``expire_in`` would silently keep its default. So a name that is
an option of a verb is refused for every field when the class is created.

Rules of this module: the hooks of a class are found once, when it is compiled; a method that cannot work as a hook is
refused then. Hooks of ``KvModel`` itself do nothing and count as absent. A test compares the table of reserved names
with the signatures of the repositories and query sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isasyncgenfunction, iscoroutinefunction, signature, unwrap
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

from kvmodels.errors import ModelDefinitionError

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
    """Mark a method of the base class, which does nothing and is never called."""
    setattr(method, _DOES_NOTHING, True)
    return method


def is_asynchronous(function: Any) -> bool:
    """Whether a call only makes a coroutine, or an asynchronous generator, that would never be awaited.

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

    Raises ModelDefinitionError for a hook that is asynchronous, takes other arguments, or is hidden by the base class.
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
    """Return the hooks that a class has or inherits; None when there are none."""
    methods = {name: getattr(model, name) for name in HOOK_NAMES}
    found = {name: (method,) for name, method in methods.items() if not getattr(method, _DOES_NOTHING, False)}
    return Hooks(**found) if found else None


VERB_KEYWORDS: Final[Mapping[str, str]] = {
    "expire_in": "create",
    "if_version": "writes in a later release",
    "defaults": "get_or_create",
    "create_defaults": "update_or_create",
    "batch_size": "update",
    "on_error": "update",
    "progress": "update",
    "resume_id": "update",
}
"""By reserved name, a verb that has it as an option. ``if_version`` is kept free for a later release."""


def refuse_verb_keyword(model: str, field: str) -> None:
    """Refuse a field whose name is an option of a write method, so that a call could not name the field."""
    verb = VERB_KEYWORDS.get(field)
    if verb is not None:
        raise ModelDefinitionError(
            "the name of a field is reserved for an option of a verb",
            model=model,
            field=field,
            option=verb,
            hint=f"It is an option of {verb}. Rename the field, such as {field}_. If records are stored under this "
            "name, raise Meta.schema_version and move the value in an upgrade function.",
        )
