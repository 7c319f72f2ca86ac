"""Storage forms of sequences, deques, the dicts of ``collections``, and secrets.

A ``Sequence`` accepts lists, tuples and deques, but a document does not say which of them it was. So a write converts
it to the list that a read would give, and the object has that list after the write too. In the same way, the factory
of a ``defaultdict`` comes from its annotation, whichever factory the value had.

Rules of this module: the forms are those of list and dict, with a conversion before and after. An object is equal
after a write to what a read gives; what cannot be kept is refused.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

from pydantic import Secret, TypeAdapter

from kvmodels.errors import InvalidValueError
from kvmodels.schema.definition.forms import Form, Function, array_form, dict_form

DICTS: Final[frozenset[Any]] = frozenset({OrderedDict, Counter, defaultdict})
"""Subclasses of dict that are stored as a dict and read as their own type."""

_value_of: Function = Secret[Any].get_secret_value


def sequence_form(item: Form) -> Form:
    """Return the form of a ``Sequence``, whose values are stored and read as lists."""
    form = array_form(list, item)

    def encoded(values: Any) -> Any:
        stored = _as_list(values)
        if stored.__class__ is not list:
            raise TypeError("expected a sequence")
        return stored

    return replace(
        form,
        accepts=(list, tuple, deque, Sequence),
        encode=_then(encoded, form.encode),
        revalidate=_then(_as_list, form.revalidate),
    )


def _as_list(values: Any) -> Any:
    if isinstance(values, Sequence) and not isinstance(values, (str, bytes)):
        items: list[Any] = [*values]
        return items
    return values


def deque_form(item: Form) -> Form:
    """Return the form of a deque, which is stored as a list."""
    form = array_form(list, item)
    revalidate = form.revalidate

    def revalidated(values: deque[Any]) -> Any:
        if revalidate is None or values.__class__ is not deque:
            return values
        return deque(revalidate([*values]), values.maxlen)

    return replace(
        form,
        accepts=(deque,),
        encode=_then(_items, form.encode),
        decode=_then(form.decode, deque),
        revalidate=revalidate and revalidated,
    )


def _items(values: deque[Any]) -> list[Any]:
    if values.__class__ is not deque:
        raise TypeError("expected a deque")
    if values.maxlen is not None:
        raise InvalidValueError(
            "the maxlen of a deque is not stored, so a read would give a deque without it",
            type="deque",
            hint="Give a deque without maxlen; Annotated[deque[int], Field(max_length=100)] limits its length.",
        )
    return [*values]


def dict_like_form(kind: type[Any], key: Form, value: Form, annotation: Any) -> Form:
    """Return the form of an OrderedDict, Counter or defaultdict, which is stored as a dict.

    ``annotation`` is its whole type, from which pydantic derives the factory of a defaultdict.
    """
    form = dict_form(key, value)
    make: Function = _default_dicts(annotation) if kind is defaultdict else kind
    revalidate = _then(_then(dict, form.revalidate), make)

    def encoded(values: Any) -> dict[Any, Any]:
        if values.__class__ is not kind:
            raise TypeError(f"expected {kind.__name__}")
        return dict(values)

    def revalidated(values: Any) -> Any:
        return revalidate(values) if isinstance(values, kind) else values

    return replace(
        form,
        accepts=(kind,),
        encode=_then(encoded, form.encode),
        decode=_then(form.decode, make),
        # A defaultdict also because its factory is replaced by the one that a read would give.
        revalidate=revalidated if form.revalidate is not None or kind is defaultdict else None,
    )


def _default_dicts(annotation: Any) -> Function:
    @cache  # at the first use, because the classes in the annotation may not be complete before
    def factory() -> Callable[[], Any] | None:
        empty: defaultdict[Any, Any] = TypeAdapter(annotation).validate_python({})
        return empty.default_factory

    def made(values: Any) -> defaultdict[Any, Any]:
        return defaultdict(factory(), values)

    return made


def secret_form(cls: type[Any], inner: Form) -> Form:
    """Return the form of a ``Secret[T]``, or of a subclass of one, which is stored as its value is."""
    revalidate = _then(_value_of, inner.revalidate)

    def revalidated(secret: Any) -> Any:
        return revalidate(secret) if isinstance(secret, cls) else secret

    return replace(
        inner,
        type_name=f"Secret[{inner.type_name}]",
        accepts=(cls,),
        encode=_then(_value_of, inner.encode),
        revalidate=inner.revalidate and revalidated,
        mutable=True,
        tags={},
    )


def _then(first: Function | None, second: Function | None) -> Function:
    """Return the function that applies both in turn, or the only one; at least one is given."""
    if first is None or second is None:
        only = first or second
        assert only is not None, "callers give one of their own"
        return only

    def both(value: Any) -> Any:
        return second(first(value))

    return both
