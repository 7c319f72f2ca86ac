"""Our dataclasses behave as those of the standard library, which are the oracle."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from kvmodels._support.slotted_dataclass import INTERNAL, slotted
from tests.source_tree import PACKAGE, python_files

T = TypeVar("T")
Decorator = Callable[..., Any]

DECORATORS = {"standard": dataclasses.dataclass, "ours": slotted}


def define(decorator: Any) -> dict[str, Any]:
    """One of each kind of class that the library has, and of others that it may have."""

    @decorator(frozen=True, slots=True)
    class Point:
        """A point."""

        count: ClassVar[int] = 3

        x: int
        y: int = 0
        names: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)
        note: str = dataclasses.field(default="", repr=False)

        def sum(self) -> int:
            return self.x + self.y

    @decorator(frozen=True, slots=True)
    class Marked(Point):
        mark: str = "m"
        y: int = 5

    @decorator(slots=True)
    class Open:
        value: float
        other: list[int] = dataclasses.field(default_factory=list)

    @decorator(frozen=True, slots=True)
    class Computed:
        text: str
        size: int = dataclasses.field(init=False, repr=False, compare=False)
        factor: int = dataclasses.field(default=2, init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "size", len(self.text))

    @decorator(frozen=True, slots=True, init=False)
    class Own:
        text: str

        def __init__(self, *parts: str) -> None:
            object.__setattr__(self, "text", "".join(parts))

        def __repr__(self) -> str:
            return f"own {self.text}"

    @decorator(frozen=True, slots=True)
    class Equal:
        text: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

    @decorator(frozen=True, slots=True)
    class Hashed:
        text: str

        def __hash__(self) -> int:
            return 7

    @decorator(frozen=True, slots=True)
    class Empty:
        pass

    @decorator(frozen=True, slots=True)
    class Page(Generic[T]):
        items: tuple[T, ...]

    return {name: kind for name, kind in locals().items() if isinstance(kind, type)}


KINDS = {name: define(decorator) for name, decorator in DECORATORS.items()}

# Pickles name a class by its place in a module.
for _name, _kinds in KINDS.items():
    for _kind in _kinds.values():
        _kind.__qualname__ = f"{_name}_{_kind.__name__}"
        globals()[_kind.__qualname__] = _kind

OBJECTS: tuple[Callable[[Any], Any], ...] = (
    lambda of: of["Point"](1),
    lambda of: of["Point"](1, 2, {"a": 1}, note="secret"),
    lambda of: of["Point"](y=2, x=float("nan")),
    lambda of: of["Marked"](1),
    lambda of: of["Marked"](1, mark="k"),
    lambda of: of["Open"](1.5),
    lambda of: of["Open"](1.5, [1]),
    lambda of: of["Computed"]("abc"),
    lambda of: of["Own"]("a", "b"),
    lambda of: of["Equal"]("a"),
    lambda of: of["Equal"]("b"),
    lambda of: of["Hashed"]("a"),
    lambda of: of["Empty"](),
    lambda of: of["Page"]((1, 2)),
)


def outcome(act: Callable[..., Any], *arguments: Any) -> object:
    """Return the answer of a call, or its error, without the names of the two sets of classes."""
    try:
        answer = act(*arguments)
    except (TypeError, ValueError, AttributeError) as error:
        answer = f"{type(error).__name__}: {error}"
    return re.sub(r"(define\.<locals>\.|standard_|ours_)", "", answer) if isinstance(answer, str) else answer


def first_field(one: Any) -> str:
    return next((field.name for field in dataclasses.fields(one)), "nothing")


def change_first_field(one: Any) -> None:
    if dataclasses.fields(one):  # else the standard library of 3.11 raises an error about its own code
        setattr(one, first_field(one), 9)


OF_OBJECTS: tuple[Callable[[Any], Any], ...] = (
    repr,
    dataclasses.is_dataclass,
    lambda one: one == "something else",
    lambda one: hash(one) == hash(copy.copy(one)),
    lambda one: repr(pickle.loads(pickle.dumps(one))),
    lambda one: repr(copy.deepcopy(one)),
    lambda one: repr(dataclasses.asdict(one)),
    lambda one: repr(dataclasses.replace(one, **{first_field(one): 9})),
    lambda one: repr(dataclasses.replace(one, unknown=9)),
    change_first_field,
    lambda one: hasattr(one, "__dict__"),
)
OF_CLASSES: tuple[Callable[[Any], Any], ...] = (
    lambda kind: str(inspect.signature(kind)),
    lambda kind: kind.__match_args__,
    lambda kind: kind.__slots__,
    lambda kind: kind.__annotations__,
    lambda kind: kind.__init__.__annotations__,
    lambda kind: [(f.name, f.type, f.init, f.repr, f.compare, f.kw_only) for f in dataclasses.fields(kind)],
    lambda kind: repr(kind(1, 2, 3, 4, 5, 6, 7)),
    lambda kind: repr(kind(unknown=1)),
)


def observed(name: str) -> Iterator[tuple[str, object]]:
    of = KINDS[name]
    for number, make in enumerate(OBJECTS):
        others = [other(of) for other in OBJECTS]
        yield f"object {number} beside others", ([make(of) == other for other in others])
        for position, look in enumerate(OF_OBJECTS):
            yield f"object {number}, {position}", outcome(look, make(of))
    for kind in of.values():
        for position, look in enumerate(OF_CLASSES):
            yield f"{kind.__name__}, {position}", outcome(look, kind)


def test_they_behave_as_those_of_the_standard_library():
    standard, ours = dict(observed("standard")), dict(observed("ours"))
    assert len(standard) > 200
    assert ours == standard


@pytest.mark.parametrize("name", DECORATORS)
def test_a_frozen_object_takes_and_loses_no_attribute(name: str):
    point = KINDS[name]["Point"](1)
    for act in (lambda: setattr(point, "x", 2), lambda: delattr(point, "x")):
        with pytest.raises(dataclasses.FrozenInstanceError, match="field 'x'"):
            act()
    with pytest.raises((AttributeError, TypeError)):
        point.unknown = 1
    assert point.x == 1


@pytest.mark.parametrize("name", DECORATORS)
def test_patterns_match_by_position_and_name(name: str):
    of = KINDS[name]
    point = of["Point"]
    match point(1, 2):
        case point(x, y=y):
            assert (x, y, point.count, point(x, y).sum()) == (1, 2, 3, 3)


@pytest.mark.parametrize("name", DECORATORS)
def test_a_plain_subclass_adds_attributes_and_stays_frozen(name: str):
    class Loose(KINDS[name]["Point"]):  # type: ignore[misc]
        pass

    loose = Loose(1, y=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        loose.x = 3
    assert loose != KINDS[name]["Point"](1, y=2)


def test_a_dataclass_of_the_standard_library_may_derive_from_ours():
    @dataclasses.dataclass(frozen=True)
    class Derived(KINDS["ours"]["Point"]):  # type: ignore[misc]
        z: int = 0

    assert dataclasses.asdict(Derived(1, z=2)) == {"x": 1, "y": 0, "names": {}, "note": "", "z": 2}
    with pytest.raises(TypeError, match="cannot inherit non-frozen"):
        dataclasses.dataclass(type("Thawed", (KINDS["ours"]["Point"],), {}))


def test_threads_that_are_the_first_to_make_objects_all_make_them():
    for _ in range(50):
        kind, gate = define(slotted)["Marked"], threading.Barrier(4)
        made: list[Any] = []

        def make(kind: Any = kind, gate: Any = gate, made: list[Any] = made) -> None:
            gate.wait()
            made.append(kind(1, mark="t"))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [kind(1, mark="t")] * 4


def test_the_constructor_is_a_plain_function_from_its_first_use_on():
    kind = define(slotted)["Point"]
    assert not inspect.isfunction(vars(kind)["__init__"])
    kind(1)
    assert inspect.isfunction(vars(kind)["__init__"])


def test_an_object_of_a_generic_class_may_be_made_with_its_parameter():
    page = KINDS["ours"]["Page"]
    assert page[int]((1,)) == page((1,))


decorate: Any = slotted


@decorate(frozen=True, slots=True)
class Partly:
    shown: int
    hidden: list[int] = dataclasses.field(metadata=INTERNAL)
    late: int = dataclasses.field(default=7, metadata=INTERNAL)


def test_an_internal_field_belongs_to_the_object_and_is_not_shown():
    kind: Any = Partly
    one = kind(1, [2])
    assert dataclasses.asdict(one) == {"shown": 1}
    assert repr(one) == "Partly(shown=1)"
    assert list(Partly.__annotations__) == ["shown"]
    assert one != kind(1, [3])
    for again in (dataclasses.replace(one), pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
        assert (again.hidden, again.late, again) == ([2], 7, one)
    assert dataclasses.replace(one, shown=4, late=8) == kind(4, [2], 8)


def test_every_dataclass_of_the_library_is_made_this_way():
    found = [
        str(path.relative_to(PACKAGE))
        for path in python_files()
        if re.search(r"^from dataclasses import .*\bdataclass\b|@dataclasses\.dataclass", path.read_text("utf-8"), re.M)
    ]
    assert found == ["_support/slotted_dataclass.py"]
