"""Results without a truth value: ``if users.filter(...).update(...)`` would always be true.

A result is an object with counts and verdicts, where Django and other libraries return a number. Its truth, and its
comparison with a number, would be the same whatever has happened. So both raise an error that names the attribute to
use. Type checkers refuse the comparisons.

Rules of this module: pure; a class keeps its comparison with objects of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from kvmodels.errors import InvalidValueError

T = TypeVar("T")

_COMPARISONS: Final = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")


def without_truth(instead: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator for classes of results; ``instead``: what to write, such as ``result.written``."""

    def decorate(cls: type[T]) -> type[T]:
        def refused(message: str) -> InvalidValueError:
            return InvalidValueError(message, type=cls.__name__, hint=f"Write {instead}.")

        def no_truth(_: object) -> NoReturn:
            raise refused("this result has no truth value")

        def no_parts(_: object, __: object) -> NoReturn:
            raise refused("this result cannot be unpacked")

        def compared(name: str) -> Callable[[Any, object], Any]:
            compare: Callable[[Any, object], Any] = getattr(cls, name)

            def method(self: Any, other: object) -> Any:
                if isinstance(other, int | float):
                    raise refused("this result cannot be compared with a number")
                return compare(self, other)

            return method

        methods: dict[str, Callable[..., Any]] = {name: compared(name) for name in _COMPARISONS}
        methods["__bool__"] = no_truth
        if not hasattr(cls, "__getitem__"):
            methods["__getitem__"] = no_parts  # what Python calls to unpack an object that has no __iter__
        for name, method in methods.items():
            method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
            type.__setattr__(cls, name, method)
        return cls

    return decorate
