"""The marker of a field that refers to a record of another model: ForeignKey.

Rules of this module: the same as of ``markers.py``. ``ForeignKey[ULID, Author]`` is ``Annotated[ULID,
ForeignKey(Author)]`` at run time; to type checkers it is a descriptor, so that ``Book.author_id`` is a
``ForeignKeyRef[Book, ULID, Author]`` and ``book.author_id`` a ``ULID``. ``schema/compile/foreign_keys.py`` checks the
target.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, ForwardRef, Generic, TypeGuard, TypeVar, cast, overload

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.declare.declarations import OnDeleteAction
from kvmodels.schema.declare.expressions import ForeignKeyRef
from kvmodels.schema.declare.markers import FieldMarker

K = TypeVar("K")
M = TypeVar("M")
P = TypeVar("P")
Target = TypeVar("Target")


class ForeignKey(FieldMarker[K], Generic[K, Target]):
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

    __slots__ = ("target",)

    target: type[Any] | str

    def __init__(self, target: type[Any] | str) -> None:
        given = cast("object", target)
        given = given.__forward_arg__ if isinstance(given, ForwardRef) else given
        if not isinstance(given, (type, str)):
            raise ModelDefinitionError(
                "the target of a foreign key is neither a model class nor the name of one",
                option=f"ForeignKey({short_repr(given)})",
                hint='Write ForeignKey[int, Author], or ForeignKey[int, "Author"] for a class that is declared later.',
            )
        self.target = given

    def __class_getitem__(cls, item: Any) -> Any:
        if not _is_tuple(item) or len(item) != 2:
            raise ModelDefinitionError(
                "a foreign key stands without its target",
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
    def __get__(self, instance: None, owner: type[M]) -> ForeignKeyRef[M, K, Target]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> K: ...
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

    __slots__ = ("action",)

    action: OnDeleteAction

    def __init__(self, action: OnDeleteAction) -> None:
        self.action = action

    def __repr__(self) -> str:
        return self.action.upper()


PROTECT: Final = OnDelete("protect")
"""A record that is referred to cannot be removed; the default of a foreign key."""

CASCADE: Final = OnDelete("cascade")
"""A record is removed together with the record that its foreign key refers to."""

SET_NULL: Final = OnDelete("set_null")
"""The foreign key becomes None when the record that it refers to is removed."""


def _is_tuple(item: object) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(item, tuple)


show_public_path(ForeignKey)
