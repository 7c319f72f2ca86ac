"""Typed query expressions: what ``User.age >= 18`` and ``User.age.desc()`` evaluate to.

Rules of this module: pure data, no evaluation and no validation against a schema (the query layer does both). The
field is held by name with its model beside it, never as a ``FieldRef``: that has no usable ``==``, and an expression
must be comparable and hashable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, cast

from kvmodels.errors import InvalidArgumentError

__all__ = ["Bounds", "Comparison", "Expression", "FieldRef", "Lookup", "Order", "col"]

T = TypeVar("T")

Bounds = Literal["[]", "[)", "(]", "()"]
"""Which ends of a range belong to it, as PostgreSQL and mathematics write it."""

Lookup = Literal["exact", "ne", "gt", "gte", "lt", "lte", "in", "not_in", "range", "startswith", "isnull"]
"""The comparisons that exist; the names are those of Django's keyword lookups where Django has one."""


class Expression:
    """Base of everything that ``filter()`` takes.

    It has no truth value: Python turns ``a and b``, ``not a`` and ``18 <= User.age < 65`` into ``bool()`` of the
    first part and would silently drop the rest.

    Examples:
        >>> bool(Comparison("age", "gt", 18))
        Traceback (most recent call last):
        ...
        TypeError: an Expression has no truth value; pass several expressions to filter(), and use between() ...
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        raise TypeError(
            "an Expression has no truth value; pass several expressions to filter(), "
            "and use between() instead of low <= field <= high"
        )


@dataclass(frozen=True, slots=True)
class Comparison(Expression):
    """One field compared with an operand.

    Attributes:
        field: name of the field.
        lookup: what is compared; see ``Lookup``.
        operand: a value; a tuple of values for ``in`` and ``not_in``; ``(low, high, bounds)`` for ``range``; a bool
            for ``isnull``.
        model: the model class whose attribute made the expression, None for a bare name.
    """

    field: str
    lookup: Lookup
    operand: Any
    model: type[Any] | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """One column to order by.

    Attributes:
        field: name of the field.
        descending: largest first.
        model: as in ``Comparison``.
    """

    field: str
    descending: bool = False
    model: type[Any] | None = None


class FieldRef(Generic[T]):
    """A field of a model in a query; ``User.age`` is one.

    Args:
        name: name of the field.
        model: the class that it was taken from.

    Examples:
        >>> age = FieldRef("age")
        >>> age >= 18
        Comparison(field='age', lookup='gte', operand=18, model=None)
        >>> age.between(18, 65, bounds="[)").operand
        (18, 65, '[)')
        >>> age.desc()
        Order(field='age', descending=True, model=None)
    """

    __slots__ = ("model", "name")

    name: str
    model: type[Any] | None

    def __init__(self, name: str, model: type[Any] | None = None) -> None:
        self.name = name
        self.model = model

    def __repr__(self) -> str:
        return f"{self.model.__name__}.{self.name}" if self.model else f"FieldRef({self.name!r})"

    def __hash__(self) -> int:
        return hash((self.model, self.name))

    def __eq__(self, other: T) -> Comparison:  # type: ignore[override]
        return Comparison(self.name, "exact", other, self.model)

    def __ne__(self, other: T) -> Comparison:  # type: ignore[override]
        return Comparison(self.name, "ne", other, self.model)

    def __lt__(self, other: T) -> Comparison:
        return Comparison(self.name, "lt", other, self.model)

    def __le__(self, other: T) -> Comparison:
        return Comparison(self.name, "lte", other, self.model)

    def __gt__(self, other: T) -> Comparison:
        return Comparison(self.name, "gt", other, self.model)

    def __ge__(self, other: T) -> Comparison:
        return Comparison(self.name, "gte", other, self.model)

    def in_(self, values: Iterable[T]) -> Comparison:
        """The field is one of these values; of none, when there are none."""
        return Comparison(self.name, "in", tuple(values), self.model)

    def not_in(self, values: Iterable[T]) -> Comparison:
        """The field is none of these values."""
        return Comparison(self.name, "not_in", tuple(values), self.model)

    def between(self, low: T, high: T, *, bounds: Bounds = "[]") -> Comparison:
        """The field lies between two values.

        Args:
            low: the lower end.
            high: the upper end.
            bounds: which ends belong to the range; both, unless told.

        Raises:
            InvalidArgumentError: bounds are none of ``[] [) (] ()``.
        """
        if bounds not in {"[]", "[)", "(]", "()"}:
            raise InvalidArgumentError(
                "these are no bounds of a range",
                argument="bounds",
                value=bounds,
                expected=("[]", "[)", "(]", "()"),
                hint="A square bracket takes the end in, a round one leaves it out.",
            )
        return Comparison(self.name, "range", (low, high, bounds), self.model)

    def startswith(
        self: FieldRef[str] | FieldRef[str | None] | FieldRef[bytes] | FieldRef[bytes | None], prefix: str | bytes
    ) -> Comparison:
        """The text or bytes begin with ``prefix``."""
        return Comparison(self.name, "startswith", prefix, self.model)

    def is_null(self, value: bool = True) -> Comparison:
        """The field is None; with ``value=False``: is not."""
        return Comparison(self.name, "isnull", value, self.model)

    def asc(self) -> Order:
        """Order by this field, smallest first."""
        return Order(self.name, descending=False, model=self.model)

    def desc(self) -> Order:
        """Order by this field, largest first."""
        return Order(self.name, descending=True, model=self.model)


def col(attribute: T) -> FieldRef[T]:
    """Tell a type checker that a class attribute is a field, as SQLModel's function of that name does.

    Only needed for fields declared in the plain form, ``age: Annotated[int, Indexed()]``, whose class attribute type
    checkers take for an int.

    Args:
        attribute: a field of a model class, such as ``User.age``.

    Returns:
        The same, with the type that it has. Cost: none.

    Raises:
        InvalidArgumentError: it is not a field of a model class.

    Examples:
        >>> from typing import Annotated
        >>> from kvmodels import Indexed, KvModel, PrimaryKey
        >>> class User(KvModel):
        ...     id: Annotated[int, PrimaryKey()]
        ...     age: Annotated[int, Indexed()]
        >>> col(User.age) > 3
        Comparison(field='age', lookup='gt', operand=3, model=<class '...User'>)
    """
    if not isinstance(attribute, FieldRef):
        raise InvalidArgumentError(
            "this is not a field of a model class",
            argument="attribute",
            value=type(attribute).__name__,
            hint="Write col(User.age), with the class and not with an object.",
        )
    return cast("FieldRef[T]", attribute)
