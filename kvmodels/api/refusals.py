"""Errors for common wrong calls, with the right call as the hint.

Rules of this module: type checkers still refuse these calls, because methods that only raise are added at run time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NoReturn

from kvmodels._support.django_names import missing_of_query
from kvmodels.errors import InvalidArgumentError

NO_OBJECT: Final[Any] = ...
"""The default of a required object, so that a call with fields in its place gets an error with a hint."""


def positional_refusal(method: str, given: tuple[Any, ...], hint: str) -> InvalidArgumentError:
    """Return the error for positional arguments of a method that takes keywords only."""
    return InvalidArgumentError(
        "this method takes its arguments by name", argument=f"{method}()", value=type(given[0]).__name__, hint=hint
    )


def fields_refusal(method: str, fields: Iterable[str]) -> InvalidArgumentError:
    """Return the error for fields given to a method that takes a model object."""
    given = ", ".join(fields) or "nothing"
    return InvalidArgumentError(
        "this method takes a model object",
        argument=f"{method}()",
        value=given,
        hint=f"Write {method}(User(id=1, ...)), or create(id=1, ...), which makes the object and inserts it.",
    )


def require_subclass(base: type[Any], kind: object) -> None:
    """Refuse what is not a class of repositories. Raises InvalidArgumentError."""
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise InvalidArgumentError(
            "this is not a class of repositories",
            argument="kind",
            value=getattr(kind, "__name__", type(kind).__name__),
            hint=f"Derive it: class Users({base.__name__}[User]).",
        )


def refuse_other_with(*facades: type[Any]) -> None:
    """Make the wrong kind of ``with`` statement raise an error that names the right one.

    Examples:
        >>> from kvmodels import AsyncDatabase
        >>> try:
        ...     AsyncDatabase("memory://").__enter__()
        ... except InvalidArgumentError as error:
        ...     print(error.hint)
        Write 'async with', inside of a coroutine.
    """
    for facade in facades:
        is_asynchronous = hasattr(facade, "__aenter__")
        refuse = _refuse_with if is_asynchronous else _refuse_async_with
        for name in ("__enter__", "__exit__") if is_asynchronous else ("__aenter__", "__aexit__"):
            setattr(facade, name, refuse)


def refuse_copies(*facades: type[Any]) -> None:
    """Make copies and pickles of objects that belong to an open store raise a typed error.

    Examples:
        >>> import copy
        >>> from kvmodels import Database
        >>> try:
        ...     copy.deepcopy(Database("memory://"))
        ... except InvalidArgumentError as error:
        ...     print(error.message)
        an object that belongs to an open store cannot be pickled or copied
    """
    for facade in facades:
        setattr(facade, "__reduce_ex__", _refuse_copy)  # noqa: B010 - type checkers know another signature


def name_the_way(*facades: type[Any]) -> None:
    """Make a missing attribute with a name of Django raise an ``AttributeError`` that says what to write here.

    At run time only, because type checkers would otherwise accept every attribute.
    """
    for facade in facades:
        facade.__getattr__ = _missing_attribute


def _missing_attribute(self: object, name: str) -> NoReturn:
    raise missing_of_query(self, name)


def _refuse_copy(self: object, _: object) -> NoReturn:
    raise InvalidArgumentError(
        "an object that belongs to an open store cannot be pickled or copied",
        argument="object",
        value=type(self).__name__,
        hint="Open the database again in the other process, and send keys, records or the values of a query. A thread "
        "can use the object itself.",
    )


def _refuse_with(self: object, *_: object) -> NoReturn:
    raise InvalidArgumentError(
        "an asynchronous object is in a 'with' statement",
        argument="with",
        value=type(self).__name__,
        hint="Write 'async with', inside of a coroutine.",
    )


def _refuse_async_with(self: object, *_: object) -> NoReturn:
    raise InvalidArgumentError(
        "a synchronous object is in an 'async with' statement",
        argument="async with",
        value=type(self).__name__,
        hint="Write 'with', or use the asynchronous class, such as AsyncDatabase.",
    )
