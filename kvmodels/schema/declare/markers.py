"""The field markers PrimaryKey, Unique, Indexed, MultiIndexed and ForeignKey; Field; and AUTO, for its default.

Rules of this module: declarations are immutable metadata in ``Annotated`` and never change pydantic's ``FieldInfo``,
which is final. At run time, ``Unique[str]`` is ``Annotated[str, Unique()]``. To type checkers it is a descriptor, so
that ``User.email`` is a ``FieldRef[str]`` and ``user.email`` a ``str``; ``Book.author_id`` is a
``ForeignKeyRef[Book, ULID, Author]`` and ``book.author_id`` a ``ULID``. Only a declaration that is invalid by itself is
refused here; ``schema/compile/schema.py`` interprets the valid ones. A key that was not given yet is 0, so that it
survives validation, copies and JSON; the store never gives out 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from inspect import signature
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, Never, TypeVar, cast, get_args, overload

import pydantic
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticUndefined, core_schema

from kvmodels._support import suggest as spelling
from kvmodels._support.naming import short_repr, show_public_path
from kvmodels.core.values import KeyNumber
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.declare.annotations import Stored
from kvmodels.schema.declare.declarations import (
    Declaration,
    DeclaredIndex,
    EntryDeclaration,
    KeyFunction,
    Nulls,
    OnDeleteAction,
    Store,
)
from kvmodels.schema.declare.expressions import Expression, FieldRef, ForeignKeyRef, MultiFieldRef

T = TypeVar("T")
C = TypeVar("C")
E = TypeVar("E")
M = TypeVar("M")
P = TypeVar("P")
Target = TypeVar("Target")


class FieldMarker(Declaration, Generic[T]):
    """Base class of the markers of one field; a descriptor to type checkers, metadata at run time."""

    _is_base: ClassVar[bool] = True

    def __class_getitem__(cls, item: Any) -> Any:
        # The bases below are parametrised by a type variable, in the ordinary sense of Generic.
        is_base = "_is_base" in cls.__dict__
        return cast("Any", super()).__class_getitem__(item) if is_base else Annotated[item, cls()]

    def __set__(self, instance: Any, value: T) -> None:
        raise ModelDefinitionError(
            "a marker is the value of a class attribute",
            model=type(instance).__name__,
            option=type(self).__name__,
            hint=f"Write it in the annotation: name: {type(self).__name__}[type].",
        )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: pydantic.GetCoreSchemaHandler) -> CoreSchema:
        # Used in metadata, this is called too and has no effect; used as the type itself, it means a forgotten type
        # argument.
        if source is not cls:
            return handler(source)
        raise ModelDefinitionError(
            "a marker is used without the type of its field",
            option=cls.__name__,
            hint=f"Write the type in brackets: {cls.__name__}[int], or Annotated[int, {cls.__name__}()].",
        )


class _ValueMarker(FieldMarker[T]):
    """Base class of the markers of a field that is compared as one value."""

    _is_base = True

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> FieldRef[T]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> T: ...
    def __get__(self, instance: object | None, owner: type[Any]) -> Any:
        # A marker is never the value of a class attribute, so Python never calls this. If a program puts one there, it
        # gets the marker back, like any other object.
        return self


class PrimaryKey(_ValueMarker[T]):
    """Marks the field that identifies a record; several such fields form a composite key in declaration order.

    Examples:
        >>> from typing import Annotated
        >>> PrimaryKey[int] == Annotated[int, PrimaryKey()]
        True
    """

    def __init__(self, **unknown: Never) -> None:
        self._refuse_unknown(unknown)


class EntryMarker(EntryDeclaration, FieldMarker[T]):
    """Base class of the markers that declare an index on their field."""

    _is_base = True


class Indexed(EntryMarker[T], _ValueMarker[T]):
    """A non-unique index on one field.

    Args:
        name: name of the index; by default the name of the field.
        nulls: ``"distinct"`` keeps an entry for records whose field is None (``field=None`` finds them), ``"skip"``
            keeps none.
        store: ``"record"`` keeps a copy of the record in each entry. Queries then need no second read, but every write
            of the record also writes the entry.
        descending: sort the entries in descending order; None comes last.
        key: a function that folds the field, such as ``str.casefold``: every comparison and order of the field uses the
            folded value, with or without an index. The function takes and returns values of the field's type.
        version: a whole number from 1 on; increase it whenever ``key`` gives other results. Not for ``str.casefold``,
            ``str.lower`` and ``str.upper``.
        where: a condition such as ``Q(deleted=False)``; only records that satisfy it have entries.
        include: fields whose values are copied into each entry, so that they can be read without the record.

    Raises:
        ModelDefinitionError: an option is invalid.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        nulls: Literal["distinct", "skip"] = "distinct",
        store: Store | None = None,
        descending: bool = False,
        key: KeyFunction | None = None,
        version: int | None = None,
        where: Expression | None = None,
        include: Sequence[str] = (),
        **unknown: Never,
    ) -> None:
        self._refuse_unknown(unknown)
        self._keep(name, nulls, store, include)
        self._choose(key, version, where)
        if not isinstance(cast("object", descending), bool):
            raise self._invalid("descending", descending, "descending is True or False.")
        self.descending = descending


class Unique(EntryMarker[T], _ValueMarker[T]):
    """A unique index on one field: no two records have the same value.

    Args:
        name: name of the index; by default the name of the field.
        nulls: ``"distinct"`` allows None in any number of records and keeps an entry for each, ``"skip"`` keeps no
            entry, ``"equal"`` allows None in one record.
        store: as for ``Indexed``.
        key: as for ``Indexed``: with ``str.casefold``, addresses that differ only in case are equal.
        version: as for ``Indexed``.
        where: a condition; only records that satisfy it are compared with each other.
        include: as for ``Indexed``.

    Raises:
        ModelDefinitionError: an option is invalid.
    """

    _nulls = get_args(Nulls)

    def __init__(
        self,
        *,
        name: str | None = None,
        nulls: Nulls = "distinct",
        store: Store | None = None,
        key: KeyFunction | None = None,
        version: int | None = None,
        where: Expression | None = None,
        include: Sequence[str] = (),
        **unknown: Never,
    ) -> None:
        self._refuse_unknown(unknown)
        self._keep(name, nulls, store, include)
        self._choose(key, version, where)


class MultiIndexed(EntryMarker[C]):
    """An index on a field with several values (list, set, frozenset, ``tuple[T, ...]``), with an entry for each value.

    Args:
        name: name of the index; by default the name of the field.
        nulls: as for ``Indexed``, if the field itself is None. An empty list has no entry.
        store: as for ``Indexed``.
        key: as for ``Indexed``; it takes and returns single elements.
        version: as for ``Indexed``.
        where: as for ``Indexed``.
        include: as for ``Indexed``.
        max_fan_out: the maximum number of distinct elements of one record; 1,000 by default.

    Raises:
        ModelDefinitionError: an option is invalid.

    Examples:
        >>> from typing import Annotated
        >>> MultiIndexed[list[str]] == Annotated[list[str], MultiIndexed()]
        True
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        nulls: Literal["distinct", "skip"] = "distinct",
        store: Store | None = None,
        key: KeyFunction | None = None,
        version: int | None = None,
        where: Expression | None = None,
        include: Sequence[str] = (),
        max_fan_out: int | None = None,
        **unknown: Never,
    ) -> None:
        self._refuse_unknown(unknown)
        self._keep(name, nulls, store, include)
        self._choose(key, version, where)
        self.max_fan_out = self._fan_out(max_fan_out)

    @overload
    def __get__(self: MultiIndexed[list[E]], instance: None, owner: type[Any]) -> MultiFieldRef[E]: ...
    @overload
    def __get__(self: MultiIndexed[set[E]], instance: None, owner: type[Any]) -> MultiFieldRef[E]: ...
    @overload
    def __get__(self: MultiIndexed[frozenset[E]], instance: None, owner: type[Any]) -> MultiFieldRef[E]: ...
    @overload
    def __get__(self: MultiIndexed[tuple[E, ...]], instance: None, owner: type[Any]) -> MultiFieldRef[E]: ...
    @overload
    def __get__(self: MultiIndexed[list[E] | None], instance: None, owner: type[Any]) -> MultiFieldRef[E]: ...
    @overload
    def __get__(self: MultiIndexed[set[E] | None], instance: None, owner: type[Any]) -> MultiFieldRef[E]: ...
    @overload
    def __get__(self: MultiIndexed[frozenset[E] | None], instance: None, owner: type[Any]) -> MultiFieldRef[E]: ...
    @overload
    def __get__(self: MultiIndexed[tuple[E, ...] | None], instance: None, owner: type[Any]) -> MultiFieldRef[E]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> C: ...
    def __get__(self, instance: object | None, owner: type[Any]) -> Any:
        return self  # as for the other markers


class ForeignKey(FieldMarker[T], Generic[T, Target]):
    """Marks a field with the primary key of a record of another model, which exists as long as it is referred to.

    The field has an index. ``ForeignKey[ULID | None, Author]`` may be None, and then refers to no record. A target that
    is declared later, or the class itself, is given by its name: ``ForeignKey[int, "Author"]``. A removal of the target
    is refused, unless ``CASCADE`` or ``SET_NULL`` follows: ``Annotated[ForeignKey[int, Author], CASCADE]``.

    Args:
        target: the model class, or its name.

    Raises:
        ModelDefinitionError: the target is neither a class nor a name, or the type of the key is not given.

    Examples:
        >>> from typing import Annotated
        >>> ForeignKey[int, "Author"] == Annotated[int, ForeignKey("Author")]
        True
    """

    target: type[Any] | str

    def __init__(self, target: type[Any] | str) -> None:
        given: object = getattr(target, "__forward_arg__", target)
        if not isinstance(given, (type, str)):
            raise ModelDefinitionError(
                "the target of a foreign key is neither a model class nor the name of one",
                option=f"ForeignKey({short_repr(given)})",
                hint='Write ForeignKey[int, Author], or ForeignKey[int, "Author"] for a class that is declared later.',
            )
        self.target = given

    def __class_getitem__(cls, item: Any) -> Any:
        if item.__class__ is not tuple or len(item) != 2:
            raise ModelDefinitionError(
                "a foreign key has no target",
                option=f"ForeignKey[{short_repr(item)}]",
                hint="Write the type of the key and the model: ForeignKey[int, Author].",
            )
        key, target = item
        return Annotated[key, cls(target)]

    @overload
    def __get__(
        self: ForeignKey[P | None, Target], instance: None, owner: type[M]
    ) -> ForeignKeyRef[M, P | None, Target | None]: ...
    @overload
    def __get__(self, instance: None, owner: type[M]) -> ForeignKeyRef[M, T, Target]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> T: ...
    def __get__(self, instance: object | None, owner: type[Any]) -> Any:
        return self  # as for the other markers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ForeignKey) and self.target == other.target

    def __hash__(self) -> int:
        # Not by the name of the target: Python keeps Annotated types, and may return the one of a class of that name.
        return hash((ForeignKey, self.target))

    def __repr__(self) -> str:
        return f"ForeignKey({self.target if isinstance(self.target, str) else self.target.__name__!r})"


class OnDelete(FieldMarker[Any]):
    """The effect on a record of the removal of the record that its foreign key refers to."""

    def __init__(self, action: OnDeleteAction) -> None:
        self.action: OnDeleteAction = action

    def __repr__(self) -> str:
        return self.action.upper()


PROTECT: Final = OnDelete("protect")
"""A record that is referred to cannot be removed; the default of a foreign key."""

CASCADE: Final = OnDelete("cascade")
"""A record is removed together with the record that its foreign key refers to."""

SET_NULL: Final = OnDelete("set_null")
"""The foreign key becomes None when the record that it refers to is removed."""


def refuse_marker_default(model: str, field: str, info: FieldInfo) -> None:
    """Refuse a field, or a path with dots, whose default is a marker or an index, as in ``age: int = Indexed()``."""
    for value in (info.default, info.default_factory):
        kind = _declaring_class(value)
        if kind is not None:
            raise ModelDefinitionError(
                "the default of a field is a marker or the declaration of an index",
                model=model,
                field=field,
                option=kind.__name__,
                hint=_remedy(kind, field),
            )


_DECLARING: tuple[type[Any], ...] = (FieldMarker, Stored, KeyNumber, DeclaredIndex)


def _declaring_class(value: Any) -> type[Any] | None:
    """Return the class of a marker or index declaration; None for any other value."""
    metadata: tuple[Any, ...] = getattr(value, "__metadata__", ())  # as in ``age: int = Indexed[int]``
    kinds: list[type[Any]] = [part if isinstance(part, type) else part.__class__ for part in metadata or (value,)]
    return next((kind for kind in kinds if issubclass(kind, _DECLARING)), None)


def _remedy(kind: type[Any], field: str) -> str:
    if kind is Stored:
        return "Write it in the annotation: Annotated[type, Stored(encode, decode)]."
    if kind is KeyNumber:
        return "Write it in the annotation: Annotated[int, KeyNumber()]."
    if "." in field:
        return f'Give a plain default, and declare Index("{field}") in class Meta of the model.'
    if issubclass(kind, DeclaredIndex):
        return f"Write indexes = ({kind.__name__}(...),) in class Meta."
    return f"Write it in the annotation: {field}: {kind.__name__}[type]."


class AutomaticKey(int):
    """The value of a key that was not given yet; it equals 0."""

    def __repr__(self) -> str:
        return "AUTO"

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> CoreSchema:
        """Give a JSON schema the default 0, which ``Field`` removes; pydantic warns of one that it cannot encode."""
        return core_schema.int_schema()


AUTO: Final = AutomaticKey()
"""``id: PrimaryKey[int] = Field(default=AUTO)``: the store gives each new record the next unused number, from 1 on.

Numbers increase in each process, are never given out twice, and may have gaps: a process reserves a range of them, and
what it has not used when it ends is lost.
"""


@cache
def _field_keywords() -> tuple[str, ...]:
    return tuple(name for name in signature(pydantic.Field).parameters if name != "extra")


def Field(  # noqa: N802 - pydantic's name, which users know
    *, default: Any = PydanticUndefined, default_factory: Callable[..., Any] | None = None, **pydantic_options: Any
) -> Any:
    """``pydantic.Field`` with all its keywords, typed so that marked fields can have defaults.

    Type checkers refuse ``age: Indexed[int] = 18``, because 18 is not a descriptor; write ``age: Indexed[int] =
    Field(default=18)``.

    Args:
        default: the default value of the field.
        default_factory: creates the default value. Only list, dict, set, frozenset and tuple also fill in fields that
            are missing in a stored record, because other factories may return a different value at every read.
        pydantic_options: the other keywords of ``pydantic.Field``.

    Returns:
        The result of ``pydantic.Field``.

    Raises:
        ModelDefinitionError: ``pydantic.Field`` has no such keyword.

    Examples:
        >>> Field(default=18, ge=0).default
        18
    """
    for name in pydantic_options:
        if name not in _field_keywords():
            close = spelling.closest(name, _field_keywords())
            raise ModelDefinitionError(
                "an option of Field does not exist",
                option=name,
                suggestion=close,
                hint="Options are those of pydantic.Field; indexes are declared in the annotation.",
            )
    if default_factory is not None:
        pydantic_options["default_factory"] = default_factory
    if isinstance(default, AutomaticKey):
        pydantic_options.setdefault("json_schema_extra", _without_default)
    return pydantic.Field(default, **pydantic_options)


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)  # a stored record never has it


show_public_path(Field, ForeignKey, Indexed, MultiIndexed, PrimaryKey, Unique)
