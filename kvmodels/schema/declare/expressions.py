"""Query expressions, such as ``User.age >= 18`` and ``User.age.desc()``, and queries as their operands.

Rules of this module: pure data, without evaluation and without validation against a schema (``schema/filters/parse.py``
does both). Expressions store the name and model of a field, never a ``FieldRef``: expressions must be comparable and
hashable, but ``==`` of a ``FieldRef`` builds an expression. Only declared fields of nested models are attributes:
libraries that probe an object for attributes must not find others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import field as attribute
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeGuard, TypeVar, cast, get_args, overload

from pydantic import BaseModel

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.schema.declare.annotations import has_several_values, nested_fields

T = TypeVar("T")
E = TypeVar("E")
R_co = TypeVar("R_co", covariant=True)
Owner_co = TypeVar("Owner_co", covariant=True)
Target_co = TypeVar("Target_co", covariant=True)
V = TypeVar("V")
W = TypeVar("W")
Owner = TypeVar("Owner")
Found = TypeVar("Found")
Model = TypeVar("Model", bound=BaseModel)

Bounds = Literal["[]", "[)", "(]", "()"]
"""The ends that belong to a range, in the notation of PostgreSQL and mathematics."""

_ValueLookup = Literal["exact", "ne", "gt", "gte", "lt", "lte", "in", "not_in", "range", "isnull"]
_TextLookup = Literal["startswith", "endswith", "contains", "icontains", "iexact"]
_SeveralLookup = Literal["contains_any", "contains_all"]
Lookup = Literal[_ValueLookup, _TextLookup, _SeveralLookup]
"""The supported comparisons; the names are Django's keyword lookups where Django has one.

``contains`` on a str matches a part of it. On a field with several values it matches one of the values,
``contains_any`` matches at least one of several, and ``contains_all`` all of several. ``icontains`` and ``iexact``
compare case-folded text.
"""


class Expression:
    """Base class of all conditions that ``filter()`` accepts.

    An expression has no truth value: Python turns ``a and b``, ``not a`` and ``18 <= User.age < 65`` into ``bool()`` of
    the first part, and would silently drop the rest.

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

    # Chains are flattened; otherwise a thousand alternatives joined by | would be nested a thousand levels deep.

    def __and__(self, other: Expression) -> Expression:
        return _joined(And, self, other)

    def __or__(self, other: Expression) -> Expression:
        return _joined(Or, self, other)

    def __invert__(self) -> Expression:
        return self.part if isinstance(self, Not) else Not(self)


@dataclass(frozen=True, slots=True)
class Comparison(Expression):
    """A comparison of one field with an operand.

    Attributes:
        field: name of the field.
        lookup: the kind of comparison; see ``Lookup``.
        operand: a value; a tuple of values for ``in``, ``not_in``, ``contains_any`` and ``contains_all``;
            ``(low, high, bounds)`` for ``range``; a bool for ``isnull``.
        model: the model class whose attribute created the expression, None for a bare name.
        any: whether one element of the field must satisfy the comparison, instead of the field itself.
    """

    field: str
    lookup: Lookup
    operand: Any
    model: type[Any] | None = None
    any: bool = attribute(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class And(Expression):
    """Every part holds; the result of ``a & b``."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or(Expression):
    """At least one part holds; the result of ``a | b``."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """The part does not hold; the result of ``~a``."""

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
    """Conditions that must all hold, written as keyword lookups; combine them with ``&``, ``|`` and ``~``.

    As in Django, an empty ``Q`` has no effect in any combination, so alternatives can be collected in a loop that
    starts with ``Q()``.

    Args:
        expressions: such as ``User.age >= 18`` or another ``Q``.
        lookups: such as ``age__gte=18``, as in ``filter``.

    Examples:
        >>> Q(plan="pro") | ~Q(age__lt=18)
        Or(parts=(Q(plan='pro'), Not(part=Q(age__lt=18))))
    """

    __slots__ = ("expressions", "lookups")

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


class Subquery:
    """A query for the records of another model, with the models of its database, by collection, to identify that."""

    __slots__ = ("query", "schemas")

    def __init__(self, query: Any, schemas: Any) -> None:
        self.query = query
        self.schemas = schemas

    def __repr__(self) -> str:
        return str(self.query.summary("Query"))


class SubqueryOperand(ABC, Generic[R_co]):
    """Base class of query sets, which ``in_`` of a foreign key accepts as operands."""

    __slots__ = ()

    @abstractmethod
    def __subquery__(self) -> Subquery | None:
        """Return the query as an operand; None if its results are not records."""


def subquery_of(operand: object) -> Subquery | None:
    """Return the query of an operand; None for values."""
    if isinstance(operand, Subquery):
        return operand
    return operand.__subquery__() if isinstance(operand, SubqueryOperand) else None


def is_bounds(value: object) -> bool:
    """Return whether this is one of ``Bounds``."""
    return isinstance(value, str) and value in get_args(Bounds)


def is_list_of_values(value: object) -> TypeGuard[Iterable[Any]]:
    """Return whether ``in`` and similar lookups accept this; not a str or a mapping."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, Mapping))


def _several(values: object) -> Any:
    """Return values as a tuple; a query and an invalid value, which ``filter`` refuses, are returned as they are."""
    return subquery_of(values) or (tuple(values) if is_list_of_values(values) else values)


@dataclass(frozen=True, slots=True)
class Order:
    """A column to order by.

    Attributes:
        field: name of the field.
        descending: largest first.
        model: as for ``Comparison``.
        none_at: the end where None comes; None: first if ascending, last if descending, as in indexes.
    """

    field: str
    descending: bool = False
    model: type[Any] | None = None
    none_at: Literal["first", "last"] | None = None


def nulls_of(field: str, *, nulls_first: bool, nulls_last: bool) -> Literal["first", "last"] | None:
    """Return the end where None comes; None if neither was asked for. Raises InvalidArgumentError for both."""
    if nulls_first and nulls_last:
        raise InvalidArgumentError(
            "an order cannot have None first and last",
            argument="nulls_last",
            value=field,
            hint="Give only one of nulls_first and nulls_last.",
        )
    return "first" if nulls_first else "last" if nulls_last else None


class _NamedField:
    """A field of a model, by its name."""

    __slots__ = ("_model", "_name")

    _any = False

    # Private, because the fields of nested models are attributes too, and many are named "name".
    def __init__(self, name: str, model: type[Any] | None = None) -> None:
        self._name = name
        self._model = model

    def __repr__(self) -> str:
        return f"{self._model.__name__}.{self._name}" if self._model else f"{type(self).__name__}({self._name!r})"

    def __hash__(self) -> int:
        return hash((type(self), self._model, self._name))

    def _compared(self, lookup: Lookup, operand: Any) -> Comparison:
        return Comparison(self._name, lookup, operand, self._model, self._any)


class Comparable(_NamedField, Generic[T]):
    """The comparisons of a field, or of an element of a field with several values."""

    __slots__ = ()

    __hash__ = _NamedField.__hash__  # Python removes it from a class with an own __eq__

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

    def in_(self, values: Iterable[T] | SubqueryOperand[T | None]) -> Comparison:
        """Match records whose field equals one of these values; never true without values.

        Args:
            values: a list, set or other iterable, but not a str; None among them matches None. A primary key takes a
                query for the values of a foreign key too: ``Author.id.in_(books.values_list(Book.author_id,
                flat=True))``. Its keys, at most 1,000 different ones, are read before the records.
        """
        return self._compared("in", _several(values))

    def not_in(self, values: Iterable[T] | SubqueryOperand[T | None]) -> Comparison:
        """Match records whose field equals none of these values; None matches unless it is one of them.

        Args:
            values: as for ``in_``.
        """
        return self._compared("not_in", _several(values))

    def between(self, low: T, high: T, *, bounds: Bounds = "[]") -> Comparison:
        """Match records whose field is between two values.

        Args:
            low: the lower end.
            high: the upper end.
            bounds: the ends that belong to the range; both by default.

        Raises:
            InvalidArgumentError: bounds is not one of ``[] [) (] ()``.
        """
        if not is_bounds(bounds):  # callers without a type checker may pass anything
            raise InvalidArgumentError(
                "the bounds of a range are invalid",
                argument="bounds",
                value=bounds,
                expected=get_args(Bounds),
                hint="A square bracket takes the end in, a round one leaves it out.",
            )
        return self._compared("range", (low, high, bounds))

    def startswith(self: _TextOrBytes, prefix: str | bytes) -> Comparison:
        """Match records whose str or bytes begin with this prefix.

        Args:
            prefix: a value of the field's type; folded if the field is folded.
        """
        return self._compared("startswith", prefix)

    def endswith(self: _TextOrBytes, suffix: str | bytes) -> Comparison:
        """Match records whose str or bytes end with this suffix; no index serves it, so each record read is tested.

        Args:
            suffix: a value of the field's type; folded if the field is folded.
        """
        return self._compared("endswith", suffix)

    def icontains(self: Comparable[str] | Comparable[str | None], part: str) -> Comparison:
        """Match records whose str contains this part in any case; no index serves it, so each record read is tested.

        Args:
            part: the text, in any case.
        """
        return self._compared("icontains", part)

    def iexact(self: Comparable[str] | Comparable[str | None], text: str) -> Comparison:
        """Match records whose str equals this text in any case; no index serves it, so each record read is tested.

        An index with ``key=str.casefold`` finds them with ``==``.

        Args:
            text: the text, in any case.
        """
        return self._compared("iexact", text)


_TextOrBytes = Comparable[str] | Comparable[str | None] | Comparable[bytes] | Comparable[bytes | None]


class FieldRef(Comparable[T]):
    """A field of a model in a query, such as ``User.age``.

    Args:
        name: name of the field.
        model: the class whose attribute was used.

    Examples:
        >>> age = FieldRef("age")
        >>> age >= 18
        Comparison(field='age', lookup='gte', operand=18, model=None)
        >>> age.between(18, 65, bounds="[)").operand
        (18, 65, '[)')
        >>> age.desc()
        Order(field='age', descending=True, model=None, none_at=None)
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # otherwise type checkers accept misspelt methods as fields; see col()

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # pickle and copy look up attributes before __init__ has run
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}", name=name, obj=self)
            if self._model is None or name not in nested_fields(self._model, self._name):
                raise AttributeError(f"{self!r} has no field {name!r}", name=name, obj=self)
            return reference(self._model, f"{self._name}.{name}")

    def contains(self: _TextOrBytes, part: str | bytes) -> Comparison:
        """Match records whose str or bytes contain this part; no index serves it, so each record read is tested.

        Args:
            part: a value of the field's type; folded if the field is folded.
        """
        return self._compared("contains", part)

    def is_null(self, value: bool = True) -> Comparison:
        """Match records whose field is None.

        Args:
            value: False to match fields that are not None.
        """
        return self._compared("isnull", value)

    def asc(self, *, nulls_first: bool = False, nulls_last: bool = False) -> Order:
        """Sort by this field in ascending order; None comes first unless ``nulls_last`` is set."""
        nulls = nulls_of(self._name, nulls_first=nulls_first, nulls_last=nulls_last)
        return Order(self._name, descending=False, model=self._model, none_at=nulls)

    def desc(self, *, nulls_first: bool = False, nulls_last: bool = False) -> Order:
        """Sort by this field in descending order; None comes last unless ``nulls_first`` is set."""
        nulls = nulls_of(self._name, nulls_first=nulls_first, nulls_last=nulls_last)
        return Order(self._name, descending=True, model=self._model, none_at=nulls)

    if not TYPE_CHECKING:  # type checkers know no minus either

        def __neg__(self):
            model = "" if self._model is None else f"{self._model.__name__}."
            raise InvalidValueError(
                "a minus before a field is not an order",
                field=self._name,
                hint=f'Write {model}{self._name}.desc(), or "-{self._name}".',
            )


class ElementRef(Comparable[E]):
    """At least one element of a field with several values, such as ``Place.names.any()``.

    Examples:
        >>> MultiFieldRef("names").any().startswith("Par").any
        True
    """

    __slots__ = ()

    _any = True

    def __repr__(self) -> str:
        return f"{super().__repr__()}.any()"


_Whole = list[E] | set[E] | frozenset[E] | tuple[E, ...]
"""The whole value of a field with several values; ``Iterable[str]`` would accept a str as its characters."""


class ForeignKeyRef(FieldRef[T], Generic[Owner_co, T, Target_co]):
    """A foreign key of a model in a query; ``Book.author_id`` is one.

    To type checkers it has the model, the type of the key and the model of the target: ``Author``, or
    ``Author | None`` where the field may be None.
    """

    __slots__ = ("_key",)

    def __init__(
        self, name: str, model: type[Any] | None = None, key: tuple[type[Any] | None, str] | None = None
    ) -> None:
        super().__init__(name, model)
        self._key = key or (model, name)  # class and field of the last foreign key of a path

    @overload
    def to(
        self: ForeignKeyRef[Owner, V | None, Model | None], field: ForeignKeyRef[Model, W, Found]
    ) -> ForeignKeyRef[Owner, W | None, Found | None]: ...
    @overload
    def to(
        self: ForeignKeyRef[Owner, Any, Model], field: ForeignKeyRef[Model, W, Found]
    ) -> ForeignKeyRef[Owner, W, Found]: ...
    @overload
    def to(self: ForeignKeyRef[Owner, V | None, Any], field: FieldRef[W]) -> FieldRef[W | None]: ...
    @overload
    def to(self, field: FieldRef[W]) -> FieldRef[W]: ...
    @overload
    def to(self, field: MultiFieldRef[W]) -> MultiFieldRef[W]: ...
    def to(self, field: Any) -> Any:
        """Return a field of the target, in a query for records with this foreign key.

        ``Check.project.to(Project.name) == "x"`` is ``project__name="x"``, and
        ``Check.project.to(Project.owner).to(User.email)`` is a path of two foreign keys.

        Args:
            field: a field of the target, such as ``Project.name``.

        Raises:
            InvalidArgumentError: it is not a field of the target.
        """
        if not isinstance(field, (FieldRef, MultiFieldRef)):
            raise _no_field_of_target(self, repr(field))
        name, model = origin(cast("FieldRef[Any]", field))
        target = self._target()
        is_own = model is None or target in (model, model.__name__)
        if not is_own and not (isinstance(target, type) and issubclass(target, cast("type[Any]", model))):
            raise _no_field_of_target(self, repr(cast("object", field)))
        path = f"{self._name}__{name}"
        if isinstance(field, ForeignKeyRef):
            return ForeignKeyRef[Any, Any, Any](path, self._model, field._key)
        return type(cast("FieldRef[Any]", field))(path, self._model)

    def _target(self) -> type[Any] | str | None:
        model, name = self._key
        schema = vars(model).get("__kv_schema__") if model is not None else None
        return None if schema is None else schema.references[name].target

    def in_(self, values: Iterable[T] | SubqueryOperand[T | None] | SubqueryOperand[Target_co]) -> Comparison:
        """Match records whose field equals one of these keys; never true without keys.

        Args:
            values: keys, or a query for records of the target: ``Book.author_id.in_(authors.filter(country="CH"))``.
                Its keys, at most 1,000, are read before the records.
        """
        return self._compared("in", _several(values))

    def not_in(self, values: Iterable[T] | SubqueryOperand[T | None] | SubqueryOperand[Target_co]) -> Comparison:
        """Match records whose field equals none of these keys; None matches unless it is one of them.

        Args:
            values: as for ``in_``.
        """
        return self._compared("not_in", _several(values))


def _no_field_of_target(key: ForeignKeyRef[Any, Any, Any], field: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "this is not a field of the target of the foreign key",
        argument="field",
        value=field,
        hint=f"Give a field of the class that {key!r} refers to: Check.project.to(Project.name).",
    )


class MultiFieldRef(_NamedField, Generic[E]):
    """A field with several values (list, set, frozenset, ``tuple[T, ...]``) in a query, such as ``Place.names``.

    Args:
        name: name of the field.
        model: the class whose attribute was used.

    Examples:
        >>> tags = MultiFieldRef("tags")
        >>> tags.contains("red")
        Comparison(field='tags', lookup='contains', operand='red', model=None)
        >>> tags.contains_any(["red", "blue"]).operand
        ('red', 'blue')
    """

    __slots__ = ()

    __hash__ = _NamedField.__hash__

    def __eq__(self, other: _Whole[E] | None) -> Comparison:  # type: ignore[override]
        return self._compared("exact", other)

    def __ne__(self, other: _Whole[E] | None) -> Comparison:  # type: ignore[override]
        return self._compared("ne", other)

    def contains(self, value: E) -> Comparison:
        """Match records with an element that equals this value.

        Args:
            value: a value of the element type; folded if the field is folded.
        """
        return self._compared("contains", value)

    def contains_any(self, values: Iterable[E]) -> Comparison:
        """Match records with at least one of these values among the elements; never true without values.

        Args:
            values: a list, set or other iterable, but not a str.
        """
        return self._compared("contains_any", _several(values))

    def contains_all(self, values: Iterable[E]) -> Comparison:
        """Match records with all of these values among the elements; always true without values.

        Args:
            values: as for ``contains_any``.
        """
        return self._compared("contains_all", _several(values))

    def any(self) -> ElementRef[E]:
        """Return a reference to one of the elements, for other comparisons: ``Place.names.any().startswith("Par")``."""
        return ElementRef(self._name, self._model)

    def is_null(self, value: bool = True) -> Comparison:
        """Match records whose field is None; an empty field is not None.

        Args:
            value: False to match fields that are not None.
        """
        return self._compared("isnull", value)


@overload
def col(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
    attribute: list[E] | set[E] | frozenset[E] | tuple[E, ...] | None,
) -> MultiFieldRef[E]: ...
@overload
def col(attribute: T) -> FieldRef[T]: ...
def col(attribute: Any) -> Any:
    """Return a class attribute, typed as a field; like SQLModel's function of that name.

    Only needed for fields of nested models, ``col(Place.address.city)``, and for fields declared in the plain form,
    ``age: Annotated[int, Indexed()]``, whose class attribute is an int to type checkers.

    Args:
        attribute: a field of a model class, such as ``User.age``.

    Returns:
        The same object, typed as a field. Cost: none.

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
    """Return name and model of a field; a function, because a nested model may have fields with these names."""
    return attribute._name, attribute._model  # pyright: ignore[reportPrivateUsage]


def reference(model: type[Any], path: str) -> FieldRef[Any] | MultiFieldRef[Any]:
    """Return the query attribute of a field, or of a path with dots; an unknown name fails where it is used."""
    return (MultiFieldRef if has_several_values(model, path) else FieldRef)(path, model)


show_public_path(Expression, FieldRef, ForeignKeyRef, MultiFieldRef, Q, col)
