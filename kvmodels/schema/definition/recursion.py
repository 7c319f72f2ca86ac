"""Storage forms of types that contain themselves without a class in between, such as ``type Tree = dict[str, Tree]``.

Rules of this module: a type that is found inside itself gets a reference to the form that is being built. It is first
assumed that values of the type are stored unchanged. If the form then turns out to need functions, it is built a second
time, with references that call these functions. So types such as ``JsonValue`` cost nothing in reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from kvmodels.schema.declare.annotations import are_same
from kvmodels.schema.definition.forms import ANYTHING, Form, Function

F = TypeVar("F", Form, Form | None)

_FUNCTIONS: Final = ("encode", "decode", "revalidate")
_CONTAINERS: Final[dict[Any, type[Any]]] = {kind: kind for kind in (list, set, frozenset, dict)} | {tuple: list}
"""For each container, the type of its stored values."""


class _Open:
    """A type whose form is being built, the form that was built last, and whether it was found inside itself."""

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation
        self.form: Form | None = None
        self.is_recursive = False

    def reference(self, kind: Any) -> Form:
        """Return a form that calls the functions of the form that is being built; ``kind`` is its container type."""
        self.is_recursive = True
        is_container = isinstance(kind, type) and kind in _CONTAINERS
        encode, decode, revalidate = (self._late(name) for name in _FUNCTIONS)
        accepts: type[Any] = kind if is_container else object
        stored: type[Any] = _CONTAINERS[kind] if is_container else object
        return Form(ANYTHING.type_name, (accepts,), frozenset({stored}), encode, decode, revalidate, mutable=True)

    def _late(self, name: str) -> Function | None:
        if getattr(self.form, name, None) is None:
            return None

        def late(value: Any) -> Any:
            # The form is replaced once more after this reference was made, so its function is looked up here.
            return getattr(self.form, name)(value)

        return late


class Recursion:
    """The types whose forms are being built, outermost first."""

    def __init__(self) -> None:
        self._open: list[_Open] = []

    def form(self, annotation: Any, kind: Any, build: Callable[[], F]) -> F | Form:
        """Return the form that ``build`` makes of a type, or a reference to it inside of itself."""
        for known in self._open:
            if are_same(known.annotation, annotation):
                return known.reference(kind)
        opened = _Open(annotation)
        self._open.append(opened)
        try:
            built = build()
            if opened.is_recursive and any(getattr(built, name, None) for name in _FUNCTIONS):
                opened.form = built
                built = opened.form = build()
            return built
        finally:
            self._open.pop()
