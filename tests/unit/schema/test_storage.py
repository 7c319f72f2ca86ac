"""Every type of the table is stored in its documented form and comes back equal, in lax and in strict models."""

import enum
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, MutableSequence, MutableSet, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Interface
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Optional
from uuid import UUID

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, RootModel
from typing_extensions import TypeAliasType, TypedDict

from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.ulid import ULID
from kvmodels.errors import InvalidValueError, ModelDefinitionError
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.annotations import Stored
from kvmodels.schema.declare.markers import PrimaryKey

DAY = date(2020, 1, 2)
CODEC = MsgpackCodec()


class Color(enum.Enum):
    RED = "red"
    TWO = 2


class Plan(enum.StrEnum):
    FREE = "free"


class Day(enum.Enum):
    FIRST = DAY


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Address(BaseModel):
    street: str = pydantic.Field(alias="Street", exclude=True)
    since: date | None = None
    secret: pydantic.SecretStr = pydantic.SecretStr("s")


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    born: date


class Dog(BaseModel):
    kind: Literal["dog", "puppy"] = "dog"
    born: timedelta


@dataclass
class Point:
    x: int
    day: date
    days: list[date] = field(default_factory=list)


@pydantic.dataclasses.dataclass
class Checked:
    x: int


class Pair(NamedTuple):
    a: int
    day: date = DAY


class Row(TypedDict):
    day: date
    n: NotRequired[int]


class Node(BaseModel):
    day: date = DAY
    children: list["Node"] = []


class Days(RootModel[list[date]]):
    pass


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


UserId = NewType("UserId", int)
Alias = TypeAliasType("Alias", list[date])
Tree = TypeAliasType("Tree", "dict[str, Tree] | date")
Complex = Annotated[complex, Stored(lambda value: [value.real, value.imag], lambda stored: complex(*stored))]

AS_IT_IS: list[tuple[Any, Any]] = [
    (type(None), None),
    (bool, True),
    (int, 2**70),
    (float, -0.0),
    (str, "x"),
    (bytes, b"x"),
    (Any, {"a": [1, {2}]}),
    (object, [datetime(2020, 1, 1, tzinfo=UTC)]),
    (list, [1, "a"]),
    (list[int], [1]),
    (dict, {1: 2}),
    (dict[str, list[int]], {"a": [1]}),
    (set, {1, 2.5}),
    (set[int], {1}),
    (frozenset[str], frozenset({"a"})),
    (re.Pattern, re.compile("a+", re.IGNORECASE)),
    (Optional[int], None),  # noqa: UP045
    (int | str, "5"),
    (int | str, 5),
    (int | float, 1.0),
    (bool | int, 1),
    (list[int] | set[int], {1}),
    (Literal["a", 1], 1),
    (Literal[True, 1], True),
    (Literal["a", None], None),  # noqa: PYI061
    (UserId, 5),
    (Annotated[int, pydantic.Field(ge=1)], 3),
    (pydantic.PositiveInt, 3),
    (pydantic.StrictStr, "x"),
    (pydantic.JsonValue, None),
    (pydantic.JsonValue, {"a": [1, 1.5, None, {"b": [True, "x"]}]}),
    (list[pydantic.JsonValue] | None, [[1], "x"]),
    (MutableSequence[int], [1, 2]),
    (MutableSet[int], {1, 2}),
    (AbstractSet[int], frozenset({1, 2})),
    (Mapping[str, int], {"a": 1}),
]

TRANSLATED: list[tuple[Any, Any, Any]] = [
    (tuple, (1, "a"), [1, "a"]),
    (tuple[()], (), []),
    (tuple[int, date], (1, DAY), [1, "2020-01-02"]),
    (tuple[date, ...], (DAY, DAY), ["2020-01-02", "2020-01-02"]),
    (Pair, Pair(1), [1, "2020-01-02"]),
    (Row, {"day": DAY}, {"day": "2020-01-02"}),
    (Row, {"day": DAY, "n": 1}, {"day": "2020-01-02", "n": 1}),
    (datetime, datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=2))), "2020-01-01T00:00:00+02:00"),
    (datetime, datetime(2020, 1, 1, 2, 3, 4, 5), "2020-01-01T02:03:04.000005"),
    (pydantic.AwareDatetime, datetime(2020, 1, 1, tzinfo=UTC), "2020-01-01T00:00:00+00:00"),
    (pydantic.NaiveDatetime, datetime(2020, 1, 1), "2020-01-01T00:00:00"),
    (date, DAY, "2020-01-02"),
    (time, time(1, 2, 3), "01:02:03"),
    (timedelta, timedelta(days=-1, microseconds=1), -86399999999),
    (Decimal, Decimal("1.50"), "1.50"),
    (UUID, UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    (ULID, ULID("01ARZ3NDEKTSV4RRFFQ69G5FAV"), "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    (IPv4Address, IPv4Address("1.2.3.4"), "1.2.3.4"),
    (pydantic.IPvAnyAddress, IPv6Address("::1"), "::1"),
    (IPv4Address | IPv6Address, IPv4Address("1.2.3.4"), "1.2.3.4"),
    (IPv4Network, IPv4Network("1.2.3.0/24"), "1.2.3.0/24"),
    (IPv6Interface, IPv6Interface("::1/64"), "::1/64"),
    (Color, Color.RED, "red"),
    (Color, Color.TWO, 2),
    (Plan, Plan.FREE, "free"),
    (Day, Day.FIRST, "2020-01-02"),
    (Right, Right.READ | Right.WRITE, 3),
    (Literal[Plan.FREE], Plan.FREE, "free"),
    (Path, Path("/a/b"), "/a/b"),
    (PurePosixPath, PurePosixPath("a/b"), "a/b"),
    (pydantic.HttpUrl, pydantic.HttpUrl("http://x.org"), "http://x.org/"),
    (pydantic.PostgresDsn, pydantic.PostgresDsn("postgres://a:b@h/d"), "postgres://a:b@h/d"),
    (pydantic.SecretStr, pydantic.SecretStr("s"), "s"),
    (pydantic.SecretBytes, pydantic.SecretBytes(b"s"), b"s"),
    (pydantic.ByteSize, pydantic.ByteSize(5), 5),
    (dict[UUID, date], {UUID(int=1): DAY}, {"00000000-0000-0000-0000-000000000001": "2020-01-02"}),
    (set[Plan], {Plan.FREE}, {"free"}),
    (frozenset[date], frozenset({DAY}), frozenset({"2020-01-02"})),
    (Alias, [DAY], ["2020-01-02"]),
    (Tree, {"a": {"b": DAY}, "c": DAY}, {"a": {"b": "2020-01-02"}, "c": "2020-01-02"}),
    (Sequence[int], [1, 2], [1, 2]),
    (Sequence[date], [DAY], ["2020-01-02"]),
    (AbstractSet[date], frozenset({DAY}), frozenset({"2020-01-02"})),
    (Mapping[str, date], {"a": DAY}, {"a": "2020-01-02"}),
    (deque[int], deque([1]), [1]),
    (deque[date], deque([DAY]), ["2020-01-02"]),
    (OrderedDict[str, date], OrderedDict(b=DAY, a=DAY), {"b": "2020-01-02", "a": "2020-01-02"}),
    (Counter[str], Counter("aab"), {"a": 2, "b": 1}),
    (defaultdict[str, list[int]], defaultdict(list, a=[1]), {"a": [1]}),
    (defaultdict[date, int], defaultdict(int, {DAY: 1}), {"2020-01-02": 1}),
    (pydantic.Secret[date], pydantic.Secret[date](DAY), "2020-01-02"),
    (pydantic.Secret[int] | str, pydantic.Secret[int](5), 5),
    (date | None, None, None),
    (date | int, DAY, "2020-01-02"),
    (date | int, 5, 5),
    (Decimal | int | None, Decimal("1"), "1"),
    (list[date] | date, [DAY], ["2020-01-02"]),
    (Cat | Dog | str, Dog(kind="puppy", born=timedelta(1)), {"kind": "puppy", "born": 86400000000}),
    (Cat | Dog | str, "stray", "stray"),
    (
        list[Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]],
        [Cat(born=DAY)],
        [{"kind": "cat", "born": "2020-01-02"}],
    ),
    (Address, Address(Street="q", since=DAY), {"street": "q", "since": "2020-01-02", "secret": "s"}),
    (dict[str, Address], {"a": Address(Street="q")}, {"a": {"street": "q", "since": None, "secret": "s"}}),
    (Point, Point(1, DAY, [DAY]), {"x": 1, "day": "2020-01-02", "days": ["2020-01-02"]}),
    (Checked, Checked(1), {"x": 1}),
    (Node, Node(children=[Node()]), {"day": "2020-01-02", "children": [{"day": "2020-01-02", "children": []}]}),
    (Days, Days([DAY]), ["2020-01-02"]),
    (Open, Open.model_validate({"a": 1, "b": [1]}), {"a": 1, "b": [1]}),
    (Complex, 1 + 2j, [1.0, 2.0]),
    (Complex | None, None, None),
    (list[Complex], [1j], [[0.0, 1.0]]),
]


def model_of(annotation, **keywords):
    class Thing(KvModel, **keywords):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        id: PrimaryKey[int]
        v: annotation  # type: ignore[valid-type]

    return Thing


def shown(case):
    return getattr(case, "__name__", None) or str(case).replace("typing.", "")


def exactly(first, second):
    return repr(first) == repr(second) and type(first) is type(second) and (first == second or first != first)


@pytest.mark.parametrize("strict", [False, True], ids=["lax", "strict"])
@pytest.mark.parametrize(
    ("annotation", "value", "stored"),
    [(annotation, value, value) for annotation, value in AS_IT_IS] + TRANSLATED,
    ids=shown,
)
def test_a_value_is_stored_in_its_form_and_comes_back(annotation, value, stored, strict):
    model = model_of(annotation, strict=strict)
    schema = schema_of(model)
    thing = model(id=1, v=value)
    prepared = schema.prepare(thing)
    assert exactly(prepared.document["v"], stored)
    document = CODEC.decode_document(*CODEC.encode_document(prepared.document), b"")
    again, unknown = schema.decode(document, (1,))
    assert unknown == {}
    assert again.v == value
    assert type(again.v) is type(value)
    assert schema.prepare(again).document == prepared.document


@pytest.mark.parametrize(("annotation", "value"), AS_IT_IS, ids=shown)
def test_what_is_stored_as_it_is_has_no_functions(annotation, value):
    storage = schema_of(model_of(annotation)).fields["v"]
    assert (storage.encode, storage.decode) == (None, None)


def test_the_offset_of_a_datetime_and_the_digits_of_a_decimal_are_kept():
    schema = schema_of(model_of(tuple[datetime, Decimal]))
    value = (datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=2))), Decimal("1.500"))
    again = schema.decode(schema.prepare(schema.model(id=1, v=value)).document, (1,))[0]
    assert again.v[0].utcoffset() == timedelta(hours=2)
    assert str(again.v[1]) == "1.500"


def test_enum_values_of_the_configuration_use_enum_values_are_stored_too():
    model = model_of(Plan, use_enum_values=True)
    schema = schema_of(model)
    document = schema.prepare(model(id=1, v=Plan.FREE)).document
    assert document["v"] == "free"
    assert schema.decode(document, (1,))[0].v == "free"


class Plain:
    pass


class Lone:
    def __init__(self, x):
        self.x = x


@dataclass
class Half:
    x: int = field(init=False, default=1)


@dataclass
class Fed:
    x: int
    seed: InitVar[int]


@pytest.mark.parametrize(
    "annotation",
    [
        complex,
        Plain,
        Lone,
        Iterable[int],
        Callable[[], None],
        type[int],
        BaseModel,
        list[Plain],
        dict[str, Plain | None],
        Literal[Plan.FREE, "x"],
        enum.Enum("Odd", {"A": (1, 2)}),
    ],
    ids=shown,
)
def test_a_type_outside_of_the_table_is_refused(annotation):
    with pytest.raises(ModelDefinitionError, match="does not know how to store this type") as caught:
        model_of(annotation)
    assert (caught.value.model, caught.value.field) == ("Thing", "v")
    assert "Stored(encode, decode)" in str(caught.value)


@pytest.mark.parametrize(
    "annotation",
    [
        UUID | str,
        date | datetime,
        Decimal | str | None,
        list[date | str],
        Address | Point,
        Cat | Address,
        Address | dict[str, int],
        tuple[int, int] | list[int],
        Path | Any,
        Complex | int,
    ],
    ids=shown,
)
def test_a_union_whose_members_cannot_be_told_apart_is_refused(annotation):
    with pytest.raises(ModelDefinitionError, match="cannot be told apart") as caught:
        model_of(annotation)
    assert caught.value.field == "v"
    assert "Literal" in str(caught.value.hint)


@pytest.mark.parametrize("annotation", [set[tuple[int, int]], dict[tuple[int, str], int], frozenset[Pair]], ids=shown)
def test_a_form_that_cannot_be_hashed_is_no_set_member_and_no_dict_key(annotation):
    with pytest.raises(ModelDefinitionError, match="cannot be hashed"):
        model_of(annotation)


@pytest.mark.parametrize("annotation", [Half, Fed])
def test_a_dataclass_that_its_fields_cannot_rebuild_is_refused(annotation):
    with pytest.raises(ModelDefinitionError, match="a dataclass cannot be stored by its fields"):
        model_of(annotation)


class Tabby(Cat):
    stripes: int = 3


@dataclass
class Point3(Point):
    z: int = 0


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(Cat, Tabby(born=DAY)), (list[Cat], [Tabby(born=DAY)]), (Point, Point3(1, DAY)), (Cat | Dog, Tabby(born=DAY))],
    ids=shown,
)
def test_an_object_of_a_subclass_is_refused_because_its_own_fields_would_be_lost(annotation, value):
    model = model_of(annotation)
    with pytest.raises(InvalidValueError, match="would lose its own fields") as caught:
        schema_of(model).prepare(model(id=1, v=value))
    assert (caught.value.model, caught.value.field) == ("Thing", "v")
    assert caught.value.type in {"Tabby", "Point3"}


def test_a_function_of_the_user_that_fails_names_the_field():
    def fail(value):
        raise KeyError(value)

    model = model_of(Annotated[complex, Stored(fail, complex)])
    with pytest.raises(InvalidValueError, match="a value cannot be stored in the form of its field") as caught:
        schema_of(model).prepare(model(id=1, v=1j))
    assert (caught.value.field, caught.value.type) == ("v", "complex")
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_catalogue_names_types_readably():
    class Thing(KvModel):
        id: PrimaryKey[ULID]
        a: dict[str, list[date | None]]
        b: Cat | Dog
        c: tuple[int, ...]
        d: Plan

    names = {name: storage.type_name for name, storage in schema_of(Thing).fields.items()}
    assert names == {
        "id": "ulid",
        "a": "dict[str, list[date | None]]",
        "b": "Cat | Dog",
        "c": "tuple[int, ...]",
        "d": "str",
    }
