"""Query expressions, such as ``User.age >= 18`` and ``User.age.desc()``, and the annotations of their fields.

Rules of this module: pure data, no evaluation and no validation against a schema (``schema/filters/parse.py`` does
both). The field is held by name with its model beside it, never as a ``FieldRef``: that has no usable ``==``, and an
expression must be comparable and hashable. The fields of nested models are looked up in their annotations by name, and
nowhere else: libraries that probe an object for attributes must not find any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field as attribute
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeGuard, TypeVar, cast, get_args, get_origin, overload

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.columns import registry as columns
from kvmodels.errors import InvalidArgumentError, InvalidValueError, ModelDefinitionError


def has_several_values(model: type[Any], path: str) -> bool:
    """Whether a field, or a path with dots, leads to several values of a type that can be a column.

    That is a list, set, frozenset or ``tuple[T, ...]`` at its end, or on the way to it.
    """
    annotation: Any = None
    several = False
    if "." not in path and path in getattr(model, "__pydantic_fields__", {}):
        annotation = model.__pydantic_fields__[path].annotation
        if isinstance(annotation, type) and get_origin(annotation) is None:
            return False  # the usual case
    fields: Mapping[str, Any] = getattr(model, "__pydantic_fields__", {})
    for name in path.split("."):
        annotation = fields[name].annotation if name in fields else None
        several = several or _is_several(annotation)
        fields = _fields_inside(annotation)
    return several and not fields and _is_column(annotation)


def nested_fields(model: type[Any], path: str) -> Mapping[str, Any]:
    """Return the fields of the model that is nested at a path with dots, by name; none where there is no model."""
    fields: Mapping[str, Any] = getattr(model, "__pydantic_fields__", {})
    for name in path.split("."):
        fields = _fields_inside(fields[name].annotation) if name in fields else {}
    return fields


def is_root(model: type[Any]) -> bool:
    """Whether it is a ``RootModel``, without loading that class, which pydantic makes when it is first named."""
    return bool(getattr(model, "__pydantic_root_model__", False))


def container_kinds(model: type[Any], name: str) -> tuple[type, ...]:
    """Return the types whose objects can be equal to a field with several values, that of the field first."""
    annotation = _unwrapped(model.__pydantic_fields__[name].annotation)
    kind = get_origin(annotation)
    if kind not in (list, set, frozenset, tuple):  # optional
        members = [_unwrapped(member) for member in get_args(annotation) if member is not NoneType]
        kind = get_origin(members[0])
    kinds: Mapping[Any, tuple[type, ...]] = {set: (set, frozenset), frozenset: (frozenset, set)}
    return kinds.get(kind, (kind,))


def _fields_inside(annotation: Any) -> Mapping[str, Any]:
    """Return the fields of the one model class in an annotation, optional or in a list; not of ``dict`` values."""
    annotation = _unwrapped(annotation)
    found: Mapping[str, Any] = getattr(annotation, "__pydantic_fields__", {})
    if found or get_origin(annotation) is dict:
        return found
    inner = [fields for argument in get_args(annotation) if (fields := _fields_inside(argument))]
    return inner[0] if len(inner) == 1 else {}


def _is_several(annotation: Any) -> bool:
    annotation = _unwrapped(annotation)
    if get_origin(annotation) in (list, set, frozenset):
        return True
    if get_origin(annotation) is tuple:
        return get_args(annotation)[1:] == (Ellipsis,)
    members = [member for member in get_args(annotation) if member is not NoneType]
    return len(members) == 1 and len(get_args(annotation)) == 2 and _is_several(members[0])


def _is_column(annotation: Any) -> bool:
    """Whether a type, or the elements of a container, can be a column."""
    annotation = _unwrapped(annotation)
    members = [member for member in get_args(annotation) if member not in (NoneType, Ellipsis)]
    if get_origin(annotation) in (list, set, frozenset, tuple) or len(members) < len(get_args(annotation)):
        return len(members) == 1 and _is_column(members[0])
    try:
        return columns.column_codec(annotation) is not None
    except ModelDefinitionError:
        return False


def _unwrapped(annotation: Any) -> Any:
    """Return the annotation without ``Annotated``, aliases and ``NewType``."""
    while True:
        inner = getattr(annotation, "__value__", None) or getattr(annotation, "__supertype__", None)
        if inner is None and hasattr(annotation, "__metadata__"):
            inner = annotation.__origin__
        if inner is None:
            return annotation
        annotation = inner


T = TypeVar("T")
E = TypeVar("E")

Bounds = Literal["[]", "[)", "(]", "()"]
"""Which ends of a range belong to it, as PostgreSQL and mathematics write it."""

Lookup = Literal[
    "exact",
    "ne",
    "gt",
    "gte",
    "lt",
    "lte",
    "in",
    "not_in",
    "range",
    "startswith",
    "isnull",
    "contains",
    "contains_any",
    "contains_all",
]
"""The comparisons that exist; the names are those of Django's keyword lookups where Django has one.

``contains`` of a text is a part of it; of a field with several values it is one of them, as ``contains_any`` is one of
several and ``contains_all`` each of several.
"""


class Expression:
    """Base of everything that ``filter()`` takes.

    It has no truth value: Python turns ``a and b``, ``not a`` and ``18 <= User.age < 65`` into ``bool()`` of the
    first part and would silently drop the rest.

    Examples:
        >>> from kvmodels import Q
        >>> bool(Q(age__gt=18))
        Traceback (most recent call last):
        ...
        TypeError: an Expression has no truth value; use & | ~ instead of and, or, not, and between() ...
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        raise TypeError(
            "an Expression has no truth value; use & | ~ instead of and, or, not, "
            "and between() instead of low <= field <= high"
        )

    # Chains are kept flat: a thousand alternatives joined by | would be a thousand levels deep otherwise.

    def __and__(self, other: Expression) -> Expression:
        return _joined(And, self, other)

    def __or__(self, other: Expression) -> Expression:
        return _joined(Or, self, other)

    def __invert__(self) -> Expression:
        return self.part if isinstance(self, Not) else Not(self)


@dataclass(frozen=True, slots=True)
class Comparison(Expression):
    """One field compared with an operand.

    Attributes:
        field: name of the field.
        lookup: what is compared; see ``Lookup``.
        operand: a value; a tuple of values for ``in``, ``not_in``, ``contains_any`` and ``contains_all``;
            ``(low, high, bounds)`` for ``range``; a bool for ``isnull``.
        model: the model class whose attribute made the expression, None for a bare name.
        any: at least one element of the field satisfies the comparison, instead of the field itself.
    """

    field: str
    lookup: Lookup
    operand: Any
    model: type[Any] | None = None
    any: bool = attribute(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class And(Expression):
    """Every part holds; what ``a & b`` makes."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or(Expression):
    """At least one part holds; what ``a | b`` makes."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """The part does not hold; what ``~a`` makes."""

    part: Expression


def _joined(kind: type[And | Or], left: object, right: object) -> And | Or:
    parts: list[Expression] = []
    for expression in (left, right):
        if not isinstance(expression, Expression):
            raise InvalidValueError(
                "this is not an expression",
                type=type(expression).__name__,
                hint="Put parentheses around comparisons, (User.age > 3) & (User.name != ''), because & and | bind "
                "tighter than they do.",
            )
        parts += expression.parts if isinstance(expression, kind) else (expression,)
    return kind(tuple(parts))


class Q(Expression):
    """Conditions that all hold, in the form of keyword lookups; to be combined with ``&``, ``|`` and ``~``.

    A ``Q`` without conditions says nothing, as Django's: it is left out wherever it stands, so that alternatives can
    be collected in a loop that begins with ``Q()``.

    Args:
        expressions: such as ``User.age >= 18`` or another ``Q``.
        lookups: such as ``age__gte=18``, as ``filter`` takes them.

    Examples:
        >>> Q(plan="pro") | ~Q(age__lt=18)
        Or(parts=(Q(plan='pro'), Not(part=Q(age__lt=18))))
    """

    __slots__ = ("expressions", "lookups")

    expressions: tuple[Expression, ...]
    lookups: tuple[tuple[str, Any], ...]

    def __init__(self, /, *expressions: Expression, **lookups: Any) -> None:
        self.expressions = expressions
        self.lookups = tuple(lookups.items())

    def __repr__(self) -> str:
        parts = [*map(repr, self.expressions), *(f"{name}={value!r}" for name, value in self.lookups)]
        return f"Q({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Q) and (self.expressions, self.lookups) == (other.expressions, other.lookups)

    def __hash__(self) -> int:
        return hash((self.expressions, repr(self.lookups)))


def is_bounds(value: object) -> bool:
    """Whether this is one of ``Bounds``."""
    return isinstance(value, str) and value in get_args(Bounds)


def is_list_of_values(value: object) -> TypeGuard[Iterable[Any]]:
    """Whether ``in`` and similar lookups take this; not the letters of a text or the keys of a mapping."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, Mapping))


def _several(values: object) -> Any:
    """Return values as a tuple, because an expression never changes.

    A mistake as it is, for ``filter`` to name the field.
    """
    return tuple(values) if is_list_of_values(values) else values


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


class Comparable(Generic[T]):
    """The comparisons that a field has, and an element of a field with several values."""

    __slots__ = ("_model", "_name")

    _any = False

    # Private, because the fields of nested models are attributes too, and many are called "name".
    _name: str
    _model: type[Any] | None

    def __init__(self, name: str, model: type[Any] | None = None) -> None:
        self._name = name
        self._model = model

    def __hash__(self) -> int:
        return hash((type(self), self._model, self._name))

    def _compared(self, lookup: Lookup, operand: Any) -> Comparison:
        return Comparison(self._name, lookup, operand, self._model, self._any)

    def __eq__(self, other: T) -> Comparison:  # type: ignore[override]
        return self._compared("exact", other)

    def __ne__(self, other: T) -> Comparison:  # type: ignore[override]
        return self._compared("ne", other)

    def __lt__(self, other: T) -> Comparison:
        return self._compared("lt", other)

    def __le__(self, other: T) -> Comparison:
        return self._compared("lte", other)

    def __gt__(self, other: T) -> Comparison:
        return self._compared("gt", other)

    def __ge__(self, other: T) -> Comparison:
        return self._compared("gte", other)

    def in_(self, values: Iterable[T]) -> Comparison:
        """The field is one of these values; never, when there are none.

        Args:
            values: a list, set or other iterable, but no text; None among them finds None.
        """
        return self._compared("in", _several(values))

    def not_in(self, values: Iterable[T]) -> Comparison:
        """The field is none of these values; None is none of them, unless it is one.

        Args:
            values: as for ``in_``.
        """
        return self._compared("not_in", _several(values))

    def between(self, low: T, high: T, *, bounds: Bounds = "[]") -> Comparison:
        """The field lies between two values.

        Args:
            low: the lower end.
            high: the upper end.
            bounds: which ends belong to the range; both by default.

        Raises:
            InvalidArgumentError: bounds are none of ``[] [) (] ()``.
        """
        if not is_bounds(bounds):  # callers without a type checker may pass anything
            raise InvalidArgumentError(
                "these are no bounds of a range",
                argument="bounds",
                value=bounds,
                expected=get_args(Bounds),
                hint="A square bracket takes the end in, a round one leaves it out.",
            )
        return self._compared("range", (low, high, bounds))

    def startswith(
        self: Comparable[str] | Comparable[str | None] | Comparable[bytes] | Comparable[bytes | None],
        prefix: str | bytes,
    ) -> Comparison:
        """The text or bytes begin with this.

        Args:
            prefix: of the type of the field; folded if the field is.
        """
        return self._compared("startswith", prefix)


class FieldRef(Comparable[T]):
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

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{self._model.__name__}.{self._name}" if self._model else f"{type(self).__name__}({self._name!r})"

    if not TYPE_CHECKING:  # else checkers would take every misspelt method for a field; see col()

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # pickle and copy ask before there is anything to look at
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}", name=name, obj=self)
            if self._model is None or name not in nested_fields(self._model, self._name):
                raise AttributeError(f"{self!r} has no field {name!r}", name=name, obj=self)
            return reference(self._model, f"{self._name}.{name}")

    def contains(
        self: FieldRef[str] | FieldRef[str | None] | FieldRef[bytes] | FieldRef[bytes | None], part: str | bytes
    ) -> Comparison:
        """The str or bytes contain this; no index answers it, so it is tested on the records that were read.

        Args:
            part: of the type of the field; folded if the field is.
        """
        return self._compared("contains", part)

    def is_null(self, value: bool = True) -> Comparison:
        """The field is None.

        Args:
            value: False for the opposite.
        """
        return self._compared("isnull", value)

    def asc(self) -> Order:
        """Order by this field, smallest first."""
        return Order(self._name, descending=False, model=self._model)

    def desc(self) -> Order:
        """Order by this field, largest first."""
        return Order(self._name, descending=True, model=self._model)


class ElementRef(Comparable[E]):
    """At least one element of a field with several values; ``Place.names.any()`` is one.

    Examples:
        >>> MultiFieldRef("names").any().startswith("Par").any
        True
    """

    __slots__ = ()

    _any = True

    def __repr__(self) -> str:
        return f"{self._model.__name__ if self._model else 'MultiFieldRef'}.{self._name}.any()"


_Whole = list[E] | set[E] | frozenset[E] | tuple[E, ...]
"""All the values of a field with several; an ``Iterable[str]`` would accept a str as its letters."""


class MultiFieldRef(Generic[E]):
    """A field with several values (list, set, frozenset, ``tuple[T, ...]``) in a query; ``Place.names`` is one.

    Args:
        name: name of the field.
        model: the class that it was taken from.

    Examples:
        >>> tags = MultiFieldRef("tags")
        >>> tags.contains("red")
        Comparison(field='tags', lookup='contains', operand='red', model=None)
        >>> tags.contains_any(["red", "blue"]).operand
        ('red', 'blue')
    """

    __slots__ = ("_model", "_name")

    def __init__(self, name: str, model: type[Any] | None = None) -> None:
        self._name = name
        self._model = model

    def __repr__(self) -> str:
        return f"{self._model.__name__}.{self._name}" if self._model else f"MultiFieldRef({self._name!r})"

    def __hash__(self) -> int:
        return hash((type(self), self._model, self._name))

    def __eq__(self, other: _Whole[E] | None) -> Comparison:  # type: ignore[override]
        return Comparison(self._name, "exact", other, self._model)

    def __ne__(self, other: _Whole[E] | None) -> Comparison:  # type: ignore[override]
        return Comparison(self._name, "ne", other, self._model)

    def contains(self, value: E) -> Comparison:
        """One of the elements is this value.

        Args:
            value: of the type of the elements; folded if the field is.
        """
        return Comparison(self._name, "contains", value, self._model)

    def contains_any(self, values: Iterable[E]) -> Comparison:
        """At least one of these values is among the elements; never, when there are none.

        Args:
            values: a list, set or other iterable, but no text.
        """
        return Comparison(self._name, "contains_any", _several(values), self._model)

    def contains_all(self, values: Iterable[E]) -> Comparison:
        """Each of these values is among the elements; always, when there are none.

        Args:
            values: as for ``contains_any``.
        """
        return Comparison(self._name, "contains_all", _several(values), self._model)

    def any(self) -> ElementRef[E]:
        """One of the elements, for other comparisons: ``Place.names.any().startswith("Par")``."""
        return ElementRef(self._name, self._model)

    def is_null(self, value: bool = True) -> Comparison:
        """The field is None; one without elements is not.

        Args:
            value: False for the opposite.
        """
        return Comparison(self._name, "isnull", value, self._model)


@overload
def col(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
    attribute: list[E] | set[E] | frozenset[E] | tuple[E, ...] | None,
) -> MultiFieldRef[E]: ...
@overload
def col(attribute: T) -> FieldRef[T]: ...
def col(attribute: Any) -> Any:
    """Tell a type checker that a class attribute is a field, as SQLModel's function of that name does.

    Only needed for fields of nested models, ``col(Place.address.city)``, and for fields declared in the plain form,
    ``age: Annotated[int, Indexed()]``, whose class attribute type checkers take for an int.

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
    if not isinstance(attribute, (FieldRef, MultiFieldRef)):
        raise InvalidArgumentError(
            "this is not a field of a model class",
            argument="attribute",
            value=type(attribute).__name__,
            hint="Write col(User.age), with the class and not with an object.",
        )
    return cast("Any", attribute)


def origin(attribute: FieldRef[Any] | MultiFieldRef[Any]) -> tuple[str, type[Any] | None]:
    """Return name and model of a field; functions, because nested models may have fields of these names."""
    return attribute._name, attribute._model  # pyright: ignore[reportPrivateUsage]


def reference(model: type[Any], path: str) -> FieldRef[Any] | MultiFieldRef[Any]:
    """Return the query attribute of a field of a model class, or of a path with dots through nested models.

    Several values (a list, set or ``tuple[T, ...]`` of a type that can be a column, on the way or at the end) make a
    ``MultiFieldRef``. Nothing is checked: a name that does not exist fails where the expression is used.
    """
    return (MultiFieldRef if has_several_values(model, path) else FieldRef)(path, model)


show_public_path(Expression, FieldRef, MultiFieldRef, Q, col)
