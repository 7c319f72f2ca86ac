"""Storage forms of None and of containers, and the paths and extra fields that their errors name.

Pydantic accepts an extra field with the name of a declared one where the field has an alias: of ``{"memberId": 7, "id":
8}`` the field ``id`` becomes 7 and an extra named ``id`` becomes 8. A document stores fields by name, so it can hold
only one of the two.

Rules of this module: a form without functions is an identity, and a container of identities is one too. Functions here
take values that pydantic has validated; for others they raise TypeError, ValueError or AttributeError, which the record
codec turns into errors that name the field. An extra with the name of a field is refused and never stored. Paths are
searched only for an error, so that ordinary writes do not pay for a search.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import field, is_dataclass, replace
from datetime import datetime, time
from types import NoneType
from typing import Any, TypeAlias, cast

from pydantic import BaseModel

from kvmodels._support.naming import step_text
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.columns.scalars import stored_datetime, stored_time
from kvmodels.errors import InvalidValueError


def parts_with_paths(value: object) -> Iterator[tuple[str, Any]]:
    """Yield a value and all objects and containers inside it, breadth first, each with its path and each once."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", value)]
    for path, part in waiting:  # which grows while it is walked
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield path, part
        waiting += [(path + step_text(step), inner) for step, inner in _parts(part)]


def refused_time_path(value: object) -> str | None:
    """Return the path of the first date and time inside a value that no document can hold, or None."""
    for path, part in parts_with_paths(value):
        try:
            if isinstance(part, datetime):
                stored_datetime(part)
            elif isinstance(part, time):
                stored_time(part)
        except InvalidValueError:
            return path
    return None


def _parts(value: Any) -> Iterator[tuple[object, Any]]:
    """Yield the parts of an object or container, with the field, key or index of each."""
    if isinstance(value, BaseModel) or is_dataclass(value):
        yield from getattr(value, "__dict__", {}).items()
    elif isinstance(value, Mapping):
        yield from cast("Mapping[object, Any]", value).items()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from enumerate(cast("Iterable[Any]", value))


def require_no_fields(model: str, extra: Iterable[str], fields: Container[str], *, path: str | None = None) -> None:
    """Raise InvalidValueError for an extra field of the class ``model`` that has the name of one of its ``fields``.

    ``path`` is that of the object; None if it is not known, see ``extra_path``.
    """
    for name in extra:
        if name in fields:
            raise InvalidValueError(
                "an extra field has the name of a declared field, which it would overwrite",
                model=model,
                field=name,
                path=None if path is None else path + step_text(name),
                type=model,
                hint="Send the value under the alias of the field only, remove the extra key, or do without "
                'extra="allow".',
            )


def extra_path(value: object) -> str | None:
    """Return the path of the first extra field with the name of a field inside of a value, or None."""
    for path, part in parts_with_paths(value):
        if isinstance(part, BaseModel):
            names: Iterable[str] = part.__pydantic_extra__ or ()
            found = next((name for name in names if name in type(part).model_fields), None)
            if found is not None:
                return path + step_text(found)
    return None


Function: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Form:
    """How the values of one annotation are stored.

    Attributes:
        type_name: their description in the catalogue.
        accepts: Python types of the values.
        stored: Python types of the stored values; ``object`` stands for any.
        encode: value to stored value; None: as it is.
        decode: stored value to pydantic's input; None: as it is.
        revalidate: value to input that pydantic validates in depth (instances of models pass as they are otherwise);
            None: pydantic does so by itself.
        mutable: whether a value can be changed in place, so that its identity matters to the caller.
        tags: for models, the values of their Literal fields as stored, by field name.
    """

    type_name: str
    accepts: tuple[type[Any], ...]
    stored: frozenset[type[Any]]
    encode: Function | None = None
    decode: Function | None = None
    revalidate: Function | None = None
    mutable: bool = False
    tags: dict[str, frozenset[Any]] = field(default_factory=dict[str, frozenset[Any]])

    @property
    def is_identity(self) -> bool:
        """Whether values are stored as they are and validated by pydantic alone."""
        return self.encode is None and self.decode is None and self.revalidate is None


ANYTHING = Form("any", (object,), frozenset({object}), mutable=True)
"""Values of ``Any`` and ``object``: what the value codec can store."""


def optional(form: Form) -> Form:
    """Return the form with None, which is stored as None."""
    return replace(
        form,
        type_name=f"{form.type_name} | None",
        accepts=(*form.accepts, NoneType),
        stored=form.stored | {NoneType},
        encode=_or_none(form.encode),
        decode=_or_none(form.decode),
        revalidate=_or_none(form.revalidate),
        tags={},
    )


def _or_none(function: Function | None) -> Function | None:
    if function is None:
        return None
    return lambda value: None if value is None else function(value)


def array_form(kind: type[Any], item: Form) -> Form:
    """Return the form of a list, set or frozenset, which are stored as themselves."""
    return Form(
        type_name=f"{kind.__name__}[{item.type_name}]",
        accepts=(kind,),
        stored=frozenset({kind}),
        encode=_without_loss(kind, _over_items(kind, item.encode)),
        decode=_over_items(kind, item.decode),
        revalidate=_revalidated(kind, item.revalidate),
        mutable=True,
    )


def _over_items(kind: type[Any], function: Function | None) -> Function | None:
    if function is None:
        return None

    def mapped(values: Any) -> Any:
        if values.__class__ is not kind:
            raise TypeError(f"expected {kind.__name__}")
        return kind([function(value) for value in values])

    return mapped


def _without_loss(kind: type[Any], encode: Function | None) -> Function | None:
    """Return the function with a check that no two members or keys of a set or dict have one stored form."""
    if encode is None or kind is list:
        return encode

    def encoded(values: Any) -> Any:
        stored = encode(values)
        if len(stored) != len(values):
            raise InvalidValueError(
                "two members or keys have one stored form, so that one of them would be lost",
                type=kind.__name__,
                hint="They are one value written in two ways, such as one instant in two time zones: leave one out.",
            )
        return stored

    return encoded


def _revalidated(kind: type[Any], function: Function | None) -> Function | None:
    if function is None:
        return None
    # What is no such container is handed on unchanged, for pydantic to convert or to refuse. A set of models becomes
    # a list on its way, because what makes them validated again, dicts, cannot be in a set.
    return lambda values: [function(value) for value in values] if values.__class__ is kind else values


def tuple_form(items: tuple[Form, ...], *, variadic: bool) -> Form:
    """Return the form of a tuple, stored as a list; ``variadic`` is ``tuple[T, ...]``, with one form."""

    def per_item(values: Any, name: str) -> list[Any]:
        if values.__class__ not in {tuple, list} or not (variadic or len(values) == len(items)):
            raise TypeError("expected a tuple of the declared length")
        forms = items * len(values) if variadic else items
        functions: list[Function | None] = [getattr(form, name) for form in forms]
        return [
            value if function is None else function(value) for function, value in zip(functions, values, strict=True)
        ]

    def revalidate(values: Any) -> Any:
        fits = values.__class__ is tuple and (variadic or len(values) == len(items))
        return tuple(per_item(values, "revalidate")) if fits else values

    names = ", ".join(item.type_name for item in items) + (", ..." if variadic else "")
    return Form(
        type_name=f"tuple[{names}]",
        accepts=(tuple,),
        stored=frozenset({list}),
        encode=lambda values: per_item(values, "encode"),
        decode=lambda stored: tuple(per_item(stored, "decode")),
        revalidate=revalidate if any(item.revalidate for item in items) else None,
        mutable=any(item.mutable for item in items),
    )


def dict_form(key: Form, value: Form) -> Form:
    """Return the form of a dict, stored as a dict with its keys and values in their forms."""
    return Form(
        type_name=f"dict[{key.type_name}, {value.type_name}]",
        accepts=(dict,),
        stored=frozenset({dict}),
        encode=_without_loss(dict, _over_pairs(key.encode, value.encode)),
        decode=_over_pairs(key.decode, value.decode),
        revalidate=_over_values(value.revalidate),
        mutable=True,
    )


def _over_pairs(key: Function | None, value: Function | None) -> Function | None:
    if key is None and value is None:
        return None

    def mapped(pairs: Any) -> dict[Any, Any]:
        if pairs.__class__ is not dict:
            raise TypeError("expected dict")
        return {(k if key is None else key(k)): (v if value is None else value(v)) for k, v in pairs.items()}

    return mapped


def _over_values(function: Function | None) -> Function | None:
    if function is None:
        return None
    return lambda pairs: {k: function(v) for k, v in pairs.items()} if pairs.__class__ is dict else pairs
