"""A model with a field of every type that has an Arrow type, values for it, and the values that a table gives back."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple, NotRequired
from uuid import UUID

from hypothesis import strategies as st
from pydantic import AnyUrl, AwareDatetime, BaseModel, ByteSize, NaiveDatetime, RootModel
from typing_extensions import TypedDict

from kvmodels import ULID, Field, ForeignKey, GeoPoint, KvModel, PrimaryKey, Vector

V2: Any = Vector.__class_getitem__(2)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Right(IntFlag):
    READ = 1
    WRITE = 2


class Street(BaseModel):
    name: str
    number: int | None = None


class Address(BaseModel):
    city: str
    street: Street | None = None
    colors: list[Color] = []


@dataclass
class Size:
    width: int
    height: float


class Pair(NamedTuple):
    left: int
    right: str


class Options(TypedDict):
    depth: int
    name: NotRequired[str]


class Words(RootModel[list[str]]):
    pass


class Owner(KvModel, collection="owners"):
    id: PrimaryKey[int]
    email: str | None = None


class Everything(KvModel, collection="everything"):
    id: PrimaryKey[int]
    yes: bool
    number: int | None
    half: float
    either: int | float
    text: str
    raw: bytes
    price: Decimal = Field(max_digits=8, decimal_places=2)
    free: Decimal | None
    day: date
    at: AwareDatetime | None
    local: NaiveDatetime
    clock: time
    span: timedelta
    uuid: UUID
    ulid: ULID | None
    four: IPv4Address
    both: IPv4Address | IPv6Address
    net: IPv4Network
    path: PurePosixPath
    url: AnyUrl
    size: ByteSize
    color: Color | None
    level: Level
    right: Right
    letter: Literal["a", "b"]
    digit: Literal[1, 2]
    address: Address | None
    box: Size
    pair: Pair
    options: Options
    words: Words
    place: GeoPoint
    look: V2
    sound: Vector | None
    looks: list[V2]
    tags: list[str | None]
    numbers: set[int]
    some: tuple[float, ...]
    fixed: tuple[int, str]
    queue: deque[int]
    days: Sequence[date]
    streets: list[Street]
    prices: dict[str, Decimal]
    counts: Counter[str]
    owner: ForeignKey[int | None, Owner] = Field(default=None)


def texts() -> st.SearchStrategy[str]:
    return st.text(st.characters(codec="utf-8"), max_size=4)


INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)
DATES = st.dates()
NAIVE = st.datetimes().map(lambda value: value.replace(fold=0))
AWARE = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(UTC))
PRICES = st.decimals(-999999, 999999, places=2)
FREE = st.decimals(allow_nan=False, allow_infinity=False)
LOOKS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=2).map(Vector)
STREETS = st.builds(Street, name=texts(), number=st.none() | INTS)
DIGITS = st.integers(0, 2**32 - 1)
NETS = DIGITS.map(lambda number: IPv4Network((number, 32)))

RECORDS = st.builds(
    Everything,
    id=st.just(1),
    yes=st.booleans(),
    number=st.none() | INTS,
    half=FLOATS,
    either=st.integers(-(2**53), 2**53) | FLOATS,
    text=texts(),
    raw=st.binary(max_size=4),
    price=PRICES,
    free=st.none() | FREE,
    day=DATES,
    at=st.none() | AWARE,
    local=NAIVE,
    clock=st.times().map(lambda value: value.replace(fold=0)),
    span=st.timedeltas(timedelta(days=-(10**8)), timedelta(days=10**8)),
    uuid=st.uuids(),
    ulid=st.none() | st.integers(0, 2**128 - 1).map(ULID),
    four=DIGITS.map(IPv4Address),
    both=DIGITS.map(IPv4Address) | st.integers(2**64, 2**128 - 1).map(IPv6Address),
    net=NETS,
    path=st.just(PurePosixPath("/a/b")),
    url=st.just(AnyUrl("https://example.org/a?b=c")),
    size=st.integers(0, 2**40),
    color=st.none() | st.sampled_from(Color),
    level=st.sampled_from(Level),
    right=st.sampled_from([Right.READ, Right.READ | Right.WRITE, Right(0)]),
    letter=st.sampled_from(["a", "b"]),
    digit=st.sampled_from([1, 2]),
    address=st.none()
    | st.builds(Address, city=texts(), street=st.none() | STREETS, colors=st.lists(st.sampled_from(Color), max_size=2)),
    box=st.builds(Size, width=INTS, height=FLOATS),
    pair=st.builds(Pair, INTS, texts()),
    options=st.fixed_dictionaries({"depth": INTS}, optional={"name": texts()}),
    words=st.lists(texts(), max_size=2).map(Words),
    place=st.builds(GeoPoint, lat=st.floats(-90, 90), lon=st.floats(-180, 179)),
    look=LOOKS,
    sound=st.none() | LOOKS,
    looks=st.lists(LOOKS, max_size=2),
    tags=st.lists(st.none() | texts(), max_size=3),
    numbers=st.sets(INTS, max_size=3),
    some=st.lists(FLOATS, max_size=3).map(tuple),
    fixed=st.tuples(INTS, texts()),
    queue=st.lists(INTS, max_size=3).map(deque),
    days=st.lists(DATES, max_size=3),
    streets=st.lists(STREETS, max_size=2),
    prices=st.dictionaries(texts(), FREE, max_size=2),
    counts=st.dictionaries(texts(), INTS, max_size=2).map(Counter),
    owner=st.none(),
)


def in_a_table(value: Any) -> Any:
    """The value that a table has in place of one of Python."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Words):
        return value.root
    if isinstance(value, BaseModel):
        return {name: in_a_table(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Size):
        return {"width": value.width, "height": value.height}
    if isinstance(value, Pair):
        return value._asdict()
    if isinstance(value, UUID | ULID | IPv4Address | IPv6Address | IPv4Network | PurePosixPath | AnyUrl):
        return str(value)
    if isinstance(value, list | deque | set | Vector):
        return [in_a_table(one) for one in value]
    return value


def row_of(values: dict[str, Any]) -> dict[str, Any]:
    """The row of a table for the values of a record."""
    row = {name: in_a_table(value) for name, value in values.items()}
    row["free"] = None if values["free"] is None else str(values["free"])
    row["either"] = float(values["either"])
    row["some"] = list(values["some"])
    row["fixed"] = {"0": values["fixed"][0], "1": values["fixed"][1]}
    row["options"] = {"depth": values["options"]["depth"], "name": values["options"].get("name")}
    row["prices"] = [(key, str(value)) for key, value in values["prices"].items()]
    row["counts"] = list(values["counts"].items())
    return row
