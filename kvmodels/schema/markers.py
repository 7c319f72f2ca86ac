"""The words a model is declared with: PrimaryKey, Unique, Indexed, Index, UniqueConstraint, Stored and Field.

Rules of this module: declarations are immutable metadata in ``Annotated`` and never touch pydantic's ``FieldInfo``,
which is final. ``Unique[str]`` is ``Annotated[str, Unique()]`` at run time; to type checkers it is a descriptor, so
that ``User.email`` is a ``FieldRef[str]`` and ``user.email`` a ``str``. What a declaration means is decided by
``schema/compile.py``; only what is wrong in itself is refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from inspect import signature
from typing import Annotated, Any, Generic, Literal, TypeVar, cast, get_args, overload

import pydantic
from pydantic_core import CoreSchema, PydanticUndefined

from kvmodels.encoding.columns import KeyNumber
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.definition import Nulls, Store
from kvmodels.schema.expressions import FieldRef

__all__ = [
    "Field",
    "FieldMarker",
    "Index",
    "Indexed",
    "KeyNumber",
    "PrimaryKey",
    "Stored",
    "Unique",
    "UniqueConstraint",
]

T = TypeVar("T")


class FieldMarker(Generic[T]):
    """Base of the markers of one field; a descriptor to type checkers, metadata at run time."""

    __slots__ = ()

    def __class_getitem__(cls, item: Any) -> Any:
        # The base itself is parametrised once, below, in the ordinary sense of Generic.
        return cast("Any", super()).__class_getitem__(item) if cls is FieldMarker else Annotated[item, cls()]

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> FieldRef[T]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> T: ...
    def __get__(self, instance: object | None, owner: type[Any]) -> Any:
        # A marker is never the value of a class attribute, so Python itself never asks. Whoever puts one there by
        # hand gets the marker back, as for any other object.
        return self

    def __set__(self, instance: Any, value: T) -> None:
        raise ModelDefinitionError(
            "a marker is the value of a class attribute",
            model=type(instance).__name__,
            option=type(self).__name__,
            hint=f"Write it in the annotation: name: {type(self).__name__}[type].",
        )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: pydantic.GetCoreSchemaHandler) -> CoreSchema:
        # Asked for a marker in metadata too, which changes nothing; as the type itself it is a forgotten argument.
        if source is not cls:
            return handler(source)
        raise ModelDefinitionError(
            "a marker stands without the type of its field",
            option=cls.__name__,
            hint=f"Write the type in brackets: {cls.__name__}[int], or Annotated[int, {cls.__name__}()].",
        )

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={getattr(self, name)!r}" for name in tuple[str, ...](self.__slots__))
        return f"{type(self).__name__}({options})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class PrimaryKey(FieldMarker[T]):
    """The field, or with several such fields in declaration order the tuple of them, that identifies a record.

    Examples:
        >>> from typing import Annotated
        >>> PrimaryKey[int] == Annotated[int, PrimaryKey()]
        True
    """

    __slots__ = ()


class Indexed(FieldMarker[T]):
    """A non-unique index on one field.

    Args:
        name: name of the index; the name of the field, unless given.
        nulls: ``"distinct"`` keeps an entry for records whose field is None (they are found by ``field=None``),
            ``"skip"`` keeps none.
        store: ``"record"`` keeps a copy of the record in each entry: lists are read without a second step, and every
            write of the record writes the entry too.
        descending: order the entries from the largest value to the smallest; None comes last.

    Raises:
        ModelDefinitionError: an option has a value that it does not take.
    """

    __slots__ = ("descending", "name", "nulls", "store")

    def __init__(
        self,
        *,
        name: str | None = None,
        nulls: Literal["distinct", "skip"] = "distinct",
        store: Store | None = None,
        descending: bool = False,
    ) -> None:
        _check_options(type(self).__name__, nulls, store, ("distinct", "skip"))
        self.name = name
        self.nulls: Nulls = nulls
        self.store: Store | None = store
        self.descending = descending


class Unique(FieldMarker[T]):
    """A unique index on one field: no two records have the same value.

    Args:
        name: name of the index; the name of the field, unless given.
        nulls: ``"distinct"`` lets any number of records be None and keeps an entry for each, ``"skip"`` keeps none,
            ``"equal"`` lets one record be None.
        store: as for ``Indexed``.

    Raises:
        ModelDefinitionError: an option has a value that it does not take.
    """

    __slots__ = ("name", "nulls", "store")

    def __init__(self, *, name: str | None = None, nulls: Nulls = "distinct", store: Store | None = None) -> None:
        _check_options(type(self).__name__, nulls, store, get_args(Nulls))
        self.name = name
        self.nulls: Nulls = nulls
        self.store: Store | None = store


class Index:
    """A non-unique index over several fields, or one, for ``class Meta: indexes = (...)``.

    Args:
        fields: names of fields, in order of the index; ``"-created_at"`` is descending.
        name: name of the index; the field names joined by ``_``, unless given.
        nulls: as for ``Indexed``; ``"skip"`` keeps no entry when any of the fields is None.
        store: as for ``Indexed``.

    Raises:
        ModelDefinitionError: no field, a field twice, or an option with a value that it does not take.

    Examples:
        >>> Index("country", "-elevation")
        Index('country', '-elevation', name=None, nulls='distinct', store=None)
    """

    __slots__ = ("fields", "name", "nulls", "store")

    unique = False

    def __init__(
        self,
        *fields: str,
        name: str | None = None,
        nulls: Literal["distinct", "skip"] = "distinct",
        store: Store | None = None,
    ) -> None:
        self._declare(fields, name, nulls, store)

    def _declare(self, fields: tuple[str, ...], name: str | None, nulls: Nulls, store: Store | None) -> None:
        kind = type(self).__name__
        _check_options(kind, nulls, store, get_args(Nulls) if self.unique else ("distinct", "skip"))
        given: tuple[Any, ...] = fields  # checked, because untyped callers pass whatever they have
        if not given or not all(isinstance(field, str) for field in given):
            raise ModelDefinitionError(
                "an index needs the names of one or more fields",
                option=kind,
                hint=f'Write {kind}("country", "-elevation").',
            )
        names = [field.removeprefix("-") for field in fields]
        for field in names:
            if names.count(field) > 1:
                raise ModelDefinitionError(
                    "an index names a field twice", option=kind, field=field, hint="Name each field once."
                )
        self.fields = fields
        self.name = name
        self.nulls: Nulls = nulls
        self.store: Store | None = store

    def __repr__(self) -> str:
        fields = ", ".join(map(repr, self.fields))
        return f"{type(self).__name__}({fields}, name={self.name!r}, nulls={self.nulls!r}, store={self.store!r})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class UniqueConstraint(Index):
    """A unique index over several fields: no two records have the same combination; see ``Index`` and ``Unique``.

    Examples:
        >>> UniqueConstraint("org", "slug").unique
        True
    """

    __slots__ = ()

    unique = True

    def __init__(
        self, *fields: str, name: str | None = None, nulls: Nulls = "distinct", store: Store | None = None
    ) -> None:
        self._declare(fields, name, nulls, store)


class Stored:
    """How a type that the library does not know is stored, for ``Annotated[Money, Stored(encode, decode)]``.

    Args:
        encode: Python value to a value that a document can hold: None, bool, int, float, str, bytes, datetime,
            a compiled pattern, or lists, dicts and sets of them. It is not called for None if the field is optional.
        decode: the reverse; the result is validated by pydantic. ``decode(encode(value)) == value`` must hold.

    Raises:
        ModelDefinitionError: one of them cannot be called.
    """

    __slots__ = ("decode", "encode")

    def __init__(self, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
        for name, function in (("encode", encode), ("decode", decode)):
            if not callable(function):
                raise ModelDefinitionError(
                    "a storage function cannot be called", option=name, hint="Write Stored(encode, decode)."
                )
        self.encode = encode
        self.decode = decode


_FIELD_KEYWORDS = tuple(name for name in signature(pydantic.Field).parameters if name != "extra")


def Field(  # noqa: N802 - pydantic's name, which users know
    *, default: Any = PydanticUndefined, default_factory: Callable[..., Any] | None = None, **pydantic_options: Any
) -> Any:
    """``pydantic.Field`` with every keyword passed through, typed so that marked fields can have defaults.

    ``age: Indexed[int] = 18`` is refused by type checkers, because 18 is no descriptor; write
    ``age: Indexed[int] = Field(default=18)``.

    Args:
        default: value of a field that is not given.
        default_factory: makes that value; only list, dict, set, frozenset and tuple also fill in what a stored record
            lacks, because others may give another value in every read.
        pydantic_options: the other keywords of ``pydantic.Field``.

    Returns:
        What ``pydantic.Field`` returns.

    Raises:
        ModelDefinitionError: a keyword that ``pydantic.Field`` does not know.

    Examples:
        >>> Field(default=18, ge=0).default
        18
    """
    for name in pydantic_options:
        if name not in _FIELD_KEYWORDS:
            close = get_close_matches(name, _FIELD_KEYWORDS, 1)
            raise ModelDefinitionError(
                "an option of Field does not exist",
                option=name,
                suggestion=close[0] if close else None,
                hint="Options are those of pydantic.Field; indexes are declared in the annotation.",
            )
    if default_factory is not None:
        pydantic_options["default_factory"] = default_factory
    return pydantic.Field(default, **pydantic_options)


def _check_options(kind: str, nulls: Any, store: Any, allowed: tuple[str, ...]) -> None:
    if nulls not in allowed:
        raise ModelDefinitionError(
            "an index option has a value that it does not take",
            option=f"{kind}(nulls={nulls!r})",
            hint=f"nulls is one of {', '.join(allowed)}.",
        )
    if store not in (None, *get_args(Store)):
        raise ModelDefinitionError(
            "an index option has a value that it does not take",
            option=f"{kind}(store={store!r})",
            hint='store is "record" or None.',
        )
