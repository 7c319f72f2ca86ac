"""A many-to-many relation of a model in a query, such as ``Post.tags``.

Rules of this module: pure data, as in ``expressions.py``; a relation is checked against a schema where it is used.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast, overload

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels.errors import InvalidArgumentError
from kvmodels.schema.declare.expressions import FieldRef, MultiFieldRef, origin

Owner_co = TypeVar("Owner_co", covariant=True)
Target_co = TypeVar("Target_co", covariant=True)
W = TypeVar("W")


class ManyToManyRef(Generic[Owner_co, Target_co]):
    """A many-to-many relation of a model; ``Post.tags`` is one.

    To type checkers it has the model and the model of the target. ``posts.links(Post.tags)`` reads and changes links.
    """

    __slots__ = ("_model", "_name", "_reverse_name", "_target")

    def __init__(self, name: str, model: type[Any] | str, target: type[Any] | str, reverse_name: str) -> None:
        self._name = name
        self._model = model
        self._target = target
        self._reverse_name = reverse_name

    @property
    def reverse(self) -> ManyToManyRef[Target_co, Owner_co]:
        """The relation as the target sees it: ``tags.filter(Post.tags.reverse.to(col(Post.title)) == "x")``."""
        return ManyToManyRef(self._reverse_name, self._target, self._model, self._name)

    @overload
    def to(self, field: FieldRef[W]) -> FieldRef[W]: ...
    @overload
    def to(self, field: MultiFieldRef[W]) -> MultiFieldRef[W]: ...
    def to(self, field: Any) -> Any:
        """Return a field of the target, in a query for records with a link to such a target.

        ``Post.tags.to(col(Tag.name)) == "x"`` is ``tags__name="x"``.

        Args:
            field: a field of the target, such as ``Tag.name``.

        Raises:
            InvalidArgumentError: it is not a field of the target.
        """
        if isinstance(field, (FieldRef, MultiFieldRef)):
            name, model = origin(cast("FieldRef[Any]", field))
            target = self._target
            is_own = model is None or target in (model, model.__name__)
            if is_own or (isinstance(target, type) and issubclass(target, cast("type[Any]", model))):
                own = self._model if isinstance(self._model, type) else None
                path = f"{self._name}__{name}"
                return MultiFieldRef[Any](path, own) if isinstance(field, MultiFieldRef) else FieldRef[Any](path, own)
        raise InvalidArgumentError(
            "this is not a field of the target of the many-to-many relation",
            argument="field",
            value=short_repr(cast("object", field)),
            hint=f"Give an attribute of the target class: {self!r}.to(col(Tag.name)).",
        )

    def __repr__(self) -> str:
        return f"{self._model if isinstance(self._model, str) else self._model.__name__}.{self._name}"


def relation_named(ref: object) -> tuple[str, type[Any] | str] | None:
    """Return the name and the class of a relation; None for another object."""
    return (ref._name, ref._model) if isinstance(ref, ManyToManyRef) else None  # pyright: ignore[reportPrivateUsage]


show_public_path(ManyToManyRef)
