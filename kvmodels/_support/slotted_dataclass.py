"""Dataclasses with slots that cost little to define, because a program waits for all of them when it starts.

Rules of this module: what it makes is a dataclass to ``dataclasses.replace``, ``fields`` and ``is_dataclass``, to
``match``, ``pickle`` and ``inspect``, and to type checkers, which see the decorator of the standard library. That one
runs six functions per class through the compiler, half a millisecond; here methods are closures, and the constructor is
compiled when it is first called or looked at. Classes have ``slots=True``, postponed annotations, and no ``InitVar``.

A field with ``metadata=INTERNAL`` belongs to the object, its constructor, ``replace``, comparison and pickles, but not
to ``fields`` and ``asdict``, nor to pydantic and FastAPI: they show results to people and programs, and a codec or a
function of a plan means nothing there. Pydantic takes such a class as it is, but makes no object of a dict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from inspect import get_annotations
from operator import attrgetter
from reprlib import recursive_repr
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

__all__ = ["INTERNAL", "dataclass", "slotted"]

T = TypeVar("T")

_FIELDS: Final = "__dataclass_fields__"


# What tells a field from an InitVar, and the default of a parameter whose field has a factory: private, and the same in
# every release since there are dataclasses.
_FIELD: Final = cast("Any", dataclasses)._FIELD
_FACTORY: Final = cast("Any", dataclasses)._HAS_DEFAULT_FACTORY

INTERNAL: Final[Mapping[str, bool]] = {"kvmodels_internal": True}
"""Metadata of a field that is not shown: ``field(metadata=INTERNAL)``."""


def slotted(*, frozen: bool = False, slots: bool, init: bool = True) -> Callable[[type[T]], type[T]]:
    """Make a class a dataclass with slots, as ``dataclasses.dataclass`` does with the same arguments.

    Frozen objects have a hash. ``slots`` is always True; each class says it, so that a reader sees the decorator of the
    standard library.

    Examples:
        >>> from dataclasses import replace
        >>> @slotted(frozen=True, slots=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> replace(Point(1, y=2), x=3), Point(1) == Point(1, 0)
        (Point(x=3, y=2), True)
        >>> Point(1).x = 2
        Traceback (most recent call last):
        ...
        dataclasses.FrozenInstanceError: cannot assign to field 'x'
    """
    assert slots, "a class without slots gains nothing by this decorator"

    def decorate(cls: type[T]) -> type[T]:
        all_fields, own = _fields_of(cls)
        methods = _methods(cls, all_fields, frozen=frozen)
        made = _with_slots(cls, own, methods)
        if init:
            type.__setattr__(made, "__init__", _Constructor(made, frozen=frozen))
        if frozen:
            _freeze(made, frozenset(all_fields))
        return made

    return decorate


def _fields_of(cls: type[Any]) -> tuple[dict[str, Field[Any]], tuple[str, ...]]:
    """Return all fields, those of the bases first, and the names of the fields that the class itself declares."""
    found: dict[str, Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        found.update(base.__dict__.get(_FIELDS, {}))
    annotations = get_annotations(cls)
    own = tuple(name for name, annotation in annotations.items() if "ClassVar" not in str(annotation))
    for name in own:
        given: Any = cls.__dict__.get(name, MISSING)
        one = cast("Any", given if isinstance(given, Field) else field(default=given))
        one.name, one.type, one.kw_only = name, annotations[name], False
        # The standard library lists the fields of this type only; replace() passes on those of any other as well.
        one._field_type = INTERNAL if _internal(one) else _FIELD
        found[name] = one
    return found, own


def _internal(one: Field[Any]) -> bool:
    return one.metadata.keys() >= INTERNAL.keys()


def _methods(cls: type[Any], all_fields: dict[str, Field[Any]], *, frozen: bool) -> dict[str, Any]:
    """Return the methods that the class does not define itself."""
    values = _values(tuple(one.name for one in all_fields.values() if one.compare))

    def __eq__(self: object, other: object) -> bool:  # noqa: N807 - it becomes the method
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    made: dict[str, Any] = {
        _FIELDS: all_fields,
        "__dataclass_params__": SimpleNamespace(
            init=True, repr=True, eq=True, order=False, unsafe_hash=False, frozen=frozen
        ),
        "__match_args__": tuple(one.name for one in all_fields.values() if one.init),
        "__repr__": _repr,
        "__eq__": __eq__,
        "__hash__": __hash__ if frozen else None,
    }
    if frozen:
        made |= {"__getstate__": _getstate, "__setstate__": _setstate}
    if any(map(_internal, all_fields.values())):
        made["__get_pydantic_core_schema__"] = classmethod(_schema_of_instances)
    # A class with an __eq__ and no __hash__ has None for that.
    written = {name for name, value in cls.__dict__.items() if not (name == "__hash__" and value is None)}
    return {name: value for name, value in made.items() if name not in written}


def _values(names: tuple[str, ...]) -> Callable[[object], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda _: ()
    get = attrgetter(*names)
    return lambda self: (get(self),)


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{self.__class__.__qualname__}({shown})"


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, name) for name in getattr(self, _FIELDS)]


def _setstate(self: Any, state: list[Any]) -> None:
    for name, value in zip(getattr(self, _FIELDS), state, strict=True):
        object.__setattr__(self, name, value)


def _schema_of_instances(cls: type[Any], source: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the schema that pydantic makes of the fields that are shown, for objects that exist only."""

    def check(value: Any) -> Any:
        if isinstance(value, cls):
            return value
        raise ValueError(f"a {cls.__name__} cannot be made of its fields, because it has parts that they do not hold")

    return {"type": "function-before", "function": {"type": "no-info", "function": check}, "schema": handler(source)}


def _with_slots(cls: type[T], own: tuple[str, ...], methods: dict[str, Any]) -> type[T]:
    """Return a second class: an existing one cannot get slots."""
    inherited = {slot for base in cls.__mro__[1:-1] for slot in base.__dict__.get("__slots__", ())}
    left_out = {*own, "__dict__", "__weakref__"}
    namespace = {name: value for name, value in cls.__dict__.items() if name not in left_out}
    namespace |= methods
    shown: dict[str, Any] = get_annotations(cls)
    namespace["__annotations__"] = {
        name: kind for name, kind in shown.items() if name not in own or not _internal(methods[_FIELDS][name])
    }
    namespace["__slots__"] = tuple(name for name in own if name not in inherited)
    metaclass = cast("Callable[..., type[T]]", type(cls))
    made = metaclass(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    return made


def _freeze(cls: type[Any], names: frozenset[str]) -> None:
    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807 - it becomes the method
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__ = __setattr__  # type: ignore[assignment]
    cls.__delattr__ = __delattr__  # type: ignore[assignment]


class _Constructor:
    """Stands for ``__init__`` until that is first called or looked at, and puts it into the class then.

    Two threads may do so at once: they put functions that do the same.
    """

    __slots__ = ("_cls", "_frozen")

    def __init__(self, cls: type[Any], *, frozen: bool) -> None:
        self._cls = cls
        self._frozen = frozen

    def __get__(self, instance: object, owner: type[Any] | None = None) -> Callable[..., None]:
        function = _constructor(self._cls, frozen=self._frozen)
        type.__setattr__(self._cls, "__init__", function)
        return cast("Callable[..., None]", function.__get__(instance, owner))


def _constructor(cls: type[Any], *, frozen: bool) -> FunctionType:
    """Return the ``__init__`` that the standard library would make."""
    known: dict[str, Any] = {"__name__": cls.__module__, "_set": object.__setattr__, "_factory": _FACTORY}
    parameters: list[str] = ["self"]
    body: list[str] = []
    all_fields: list[Field[Any]] = list(getattr(cls, _FIELDS).values())
    for one in all_fields:
        value = name = one.name
        if one.default_factory is not MISSING:
            known[f"_new_{name}"] = one.default_factory
            value = f"_new_{name}() if {name} is _factory else {name}" if one.init else f"_new_{name}()"
            parameters += [f"{name}=_factory"] * one.init
        elif one.default is not MISSING:
            known[f"_default_{name}"] = one.default
            value = name if one.init else f"_default_{name}"
            parameters += [f"{name}=_default_{name}"] * one.init
        elif one.init:
            parameters.append(name)
        else:
            continue  # __post_init__ sets it
        body.append(f" _set(self, {name!r}, {value})" if frozen else f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    # The text is made of names of attributes, which are identifiers.
    exec(f"def __init__({', '.join(parameters)}):\n" + ("\n".join(body) or " pass"), known)  # noqa: S102
    function: FunctionType = known["__init__"]
    function.__qualname__ = f"{cls.__qualname__}.__init__"
    function.__annotations__ = {one.name: one.type for one in all_fields if one.init} | {"return": None}
    return function


if not TYPE_CHECKING:  # checkers know the decorator of the standard library
    dataclass = slotted
