"""Storage forms of unions: which member wrote a stored value must be told from the value alone.

Rules of this module: members that are all stored as they are need no telling apart, pydantic takes the exact type.
Otherwise every two members must differ in the type of their stored values, or be classes with a Literal field in
common whose values differ; the rest is refused when the class is created, because reading would have to guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvmodels.schema.forms import Form, Function

__all__ = ["union_form"]


def union_form(members: Sequence[Form]) -> Form | None:
    """The form of a union (None is no member here), or None if stored values could not be told apart.

    Examples:
        >>> text, number = Form("str", (str,), frozenset({str})), Form("int", (int,), frozenset({int}))
        >>> union_form([text, number]).type_name
        'str | int'
        >>> date = Form("date", (object,), frozenset({str}), encode=str)
        >>> union_form([text, date]) is None
        True
    """
    name = " | ".join(form.type_name for form in members)
    accepts = tuple(kind for form in members for kind in form.accepts)
    stored = frozenset[type[Any]]().union(*(form.stored for form in members))
    mutable = any(form.mutable for form in members)
    if all(form.is_identity for form in members):
        return Form(name, accepts, stored, mutable=mutable)
    tag = _common_tag([form for form in members if form.tags])
    for position, first in enumerate(members):
        for second in members[position + 1 :]:
            if _overlap(first.stored, second.stored) and not (tag and first.tags and second.tags):
                return None
    return Form(
        name,
        accepts,
        stored,
        encode=_by_type_of_value(members, "encode", strict=True),
        decode=_by_stored(members, tag),
        revalidate=_by_type_of_value(members, "revalidate", strict=False),
        mutable=mutable,
    )


def _overlap(first: frozenset[type[Any]], second: frozenset[type[Any]]) -> bool:
    return object in first or object in second or not first.isdisjoint(second)


def _common_tag(objects: list[Form]) -> str | None:
    if not objects:
        return None
    for name in objects[0].tags:
        values = [form.tags.get(name, frozenset[Any]()) for form in objects]
        if all(values) and len(frozenset[Any]().union(*values)) == sum(map(len, values)):
            return name
    return None


def _by_type_of_value(members: Sequence[Form], function: str, *, strict: bool) -> Function | None:
    """Apply the function of the member that has this value's type: exactly, else as a subclass, in order."""
    if not any(getattr(form, function) for form in members):
        return None
    exact: dict[type[Any], Function | None] = {}
    for form in members:
        for kind in form.accepts:
            exact.setdefault(kind, getattr(form, function))

    def dispatched(value: Any) -> Any:
        kind: type[Any] = value.__class__
        if kind not in exact:
            base = next((base for base in exact if isinstance(value, base)), None)
            if base is None:
                if strict:
                    raise TypeError("the value has the type of no member of the union")
                return value
            kind = base
        apply = exact[kind]
        return value if apply is None else apply(value)

    return dispatched


def _by_stored(members: Sequence[Form], tag: str | None) -> Function | None:
    tagged = {value: form.decode for form in members if tag and form.tags for value in form.tags[tag]}
    exact = {kind: form.decode for form in members if not (tag and form.tags) for kind in form.stored}

    def dispatched(stored: Any) -> Any:
        if tagged and stored.__class__ is dict:
            apply = tagged[stored[tag]]
        else:
            apply = exact[_stored_kind(stored.__class__, exact)]
        return stored if apply is None else apply(stored)

    return dispatched


def _stored_kind(kind: type[Any], known: Mapping[type[Any], Function | None]) -> type[Any]:
    """The type that stands for the type of a stored value; only what JavaScript wrote has another than its own."""
    if kind in known:
        return kind
    if kind is int and float in known:
        return float
    return dict if issubclass(kind, dict) else list if issubclass(kind, list) else kind
