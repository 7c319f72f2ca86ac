"""Models of every kind, for the comparison of fast ways with the clear ones; each has the fields id (or a, b), u, x, n.

The first values of a field are usual ones, which meet often; the others are what only its type, or nothing, takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, Final, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, PrivateAttr, StringConstraints, model_validator

from kvmodels import (
    AggregateIndex,
    AutoNow,
    Field,
    Index,
    Indexed,
    KeyNumber,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    Q,
    Unique,
    UniqueConstraint,
    Version,
    upgrade,
)

__all__ = ["KINDS", "Kind"]

T = TypeVar("T")


class Text(str):
    """A str that is not plain."""

    __slots__ = ()


class Shade(StrEnum):
    DARK = "dark"
    PALE = "pale\0"


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


class Mark(Enum):
    BLANK = b""
    HIGH = b"\xff\x00"


class Plain(KvModel, collection="plain"):
    id: PrimaryKey[int]
    u: Unique[str | None] = Field(default=None)
    x: Indexed[str] = Field(default="d")
    n: int = 0
    tags: list[Any] = []

    class Meta:
        indexes = (Index("x", "-n"), Index("-n", "u", name="falling"))


class Bare(KvModel, collection="bare"):
    """Plain values alone, which validation may convert, shorten or refuse."""

    id: PrimaryKey[str]
    u: Unique[int | None] = Field(default=None)
    x: Indexed[Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True, max_length=3)]] = Field(
        default="d"
    )
    n: float | None = None


class Named(KvModel, collection="named"):
    id: PrimaryKey[Shade]
    u: Unique[Size | None] = Field(default=None)
    x: Indexed[Mark] = Field(default=Mark.BLANK)
    n: Indexed[Literal["p", "q"] | None] = Field(default=None)


class Pair(KvModel, collection="pair"):
    a: PrimaryKey[int]
    b: PrimaryKey[datetime]
    u: Unique[date | None] = Field(default=None)
    x: Indexed[Decimal] = Field(default=Decimal(0))
    n: Indexed[timedelta | None] = Field(default=None)

    class Meta:
        indexes = (UniqueConstraint("x", "n", name="both"), Index("-a", "u"))


class Loose(KvModel, collection="loose"):
    model_config = ConfigDict(extra="allow", validate_assignment=True, validate_by_name=True)

    id: PrimaryKey[int] = Field(alias="theId")
    u: Unique[str | None] = Field(default=None, alias="theValue")
    x: Indexed[str] = Field(default="d")
    n: int = Field(default_factory=lambda: 7)
    _hidden: int = PrivateAttr(default=3)

    @cached_property
    def twice(self) -> str:
        return self.x * 2


class Checked(KvModel, collection="checked"):
    """Its validators change what they are given."""

    model_config = ConfigDict(frozen=True)

    id: PrimaryKey[int]
    u: Unique[bool | None] = Field(default=None)
    x: Indexed[str] = Field(default="d")
    n: int = 0

    @model_validator(mode="before")
    @classmethod
    def noted(cls, given: Any) -> Any:
        if isinstance(given, dict):
            given["n"] = 5
        return given

    @model_validator(mode="after")
    def lowered(self) -> Checked:
        vars(self)["x"] = self.x.lower()
        return self


class Limited(KvModel, collection="limited"):
    """Its fields are changed when it is made, without a validator."""

    id: PrimaryKey[Annotated[str, AfterValidator(Text)]]
    u: Unique[Annotated[str, AfterValidator(Text)] | None] = Field(default=None)
    x: Indexed[str] = Field(default="d")
    n: Any = None

    def model_post_init(self, context: Any) -> None:
        vars(self)["x"] = self.x[:9]


class Inner(BaseModel):
    k: int = 0
    more: list[int] = []


def initial(x: str) -> str:
    return x[:1]


class Kinds(KvModel, collection="kinds"):
    """An index of every kind."""

    id: PrimaryKey[int]
    u: Annotated[str | None, Unique(key=str.casefold)] = None
    x: Annotated[str, Indexed(include=("n",))] = "d"
    n: Annotated[int | None, Unique(nulls="skip", where=Q(x="d"))] = None
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    inner: Inner = Inner()

    class Meta:
        indexes = (
            AggregateIndex("x", name="per_x"),
            Index("x", key=initial, version=1, name="initial"),
            Index("inner.k", name="k"),
        )


class Timed(KvModel, collection="timed"):
    id: PrimaryKey[int]
    u: Unique[str | None] = Field(default=None)
    x: Indexed[str] = Field(default="d")
    n: int = 0
    version: int = Version()
    at: datetime = AutoNow()


class Passing(KvModel, collection="passing"):
    id: PrimaryKey[int]
    u: Unique[str | None] = Field(default=None)
    x: Indexed[str] = Field(default="d")
    n: int = 0

    class Meta:
        ttl = timedelta(seconds=50)


class Grown(KvModel, collection="grown"):
    id: PrimaryKey[int]
    u: Unique[str | None] = Field(default=None)
    x: Indexed[str] = Field(default="d")
    n: int = 0

    class Meta:
        schema_version = 2

    @upgrade(to=2, touches=("n",))
    @staticmethod
    def nine(document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "n": 9}


class Box(KvModel, Generic[T]):
    id: PrimaryKey[Annotated[int, KeyNumber()]]
    u: Unique[T | None] = Field(default=None)
    x: Indexed[str] = Field(default="d")
    n: list[T] = []


class Shape(KvModel, collection="shapes", discriminator="kind"):
    id: PrimaryKey[int]
    u: Unique[str | None] = Field(default=None)
    x: Indexed[str] = Field(default="d")


class Circle(Shape):
    kind: Literal["circle"] = "circle"
    n: Indexed[int] = Field(default=0)


class Square(Shape):
    kind: Literal["square"] = "square"
    n: int = 0


class Float(KvModel, collection="float"):
    id: PrimaryKey[float]
    u: Unique[UUID | None] = Field(default=None)
    x: Indexed[bytes] = Field(default=b"")
    n: Indexed[float | None] = Field(default=None)


class Watched(KvModel, collection="watched"):
    """A hook takes part."""

    id: PrimaryKey[int]
    u: Unique[str | None] = Field(default=None)
    x: Indexed[str] = Field(default="d")
    n: Any = None

    def before_update(self, old: Watched) -> None:
        vars(self)["x"] = old.x[:3] + "h"


NOON: Final = datetime(2020, 1, 1, tzinfo=UTC)
EAST: Final = timezone(timedelta(hours=2))
ONE: Final = UUID(int=1)

INTS: Final = (0, 1, 2, 3, -1, True, 2**31, 2**64, -(2**70), 1.0, "1", Size.SMALL, None, (1,), math.nan)
TEXTS: Final = ("a", "b", "", "a\0", "é", "\ud800", "A", Text("a"), Shade.DARK, None, 5, b"a", ("a",), "x" * 3_000)
FLOATS: Final = (0.0, -0.0, 1.5, 1, math.nan, math.inf, 2**53 + 1, True, "1.5", None, 10**400)
SHADES: Final = (Shade.DARK, Shade.PALE, "dark", "none", None, Text("dark"))
SIZES: Final = (Size.SMALL, Size.LARGE, None, 1, 3, True, "1", 1.0)
MARKS: Final = (Mark.BLANK, Mark.HIGH, b"", "x", None)
LETTERS: Final = ("p", "q", None, "r", 1)
DATES: Final = (date(2020, 1, 1), None, NOON, "2020-01-01", 3)
MOMENTS: Final = (NOON, NOON.astimezone(EAST), NOON.replace(tzinfo=None), "2020-01-01T02:00:00+02:00", None, 5)
NUMBERS: Final = (Decimal(0), Decimal("1.0"), Decimal("1.00"), Decimal("-0"), 1, 1.5, "1.50", Decimal("NaN"), None)
SPANS: Final = (None, timedelta(1), timedelta(-1), "P1D", 5)
FLAGS: Final = (True, False, None, 1, "true", "x")
BYTES: Final = (b"", b"a", b"\xff\0", bytearray(b"a"), "a", None)
UUIDS: Final = (ONE, None, str(ONE), UUID(int=2), "x", str(ONE).upper())
LISTS: Final[tuple[Any, ...]] = ([], ["a"], ["a", "b", "a"], [1], [None], "a", None, [Text("q")])
INNERS: Final = (Inner(), Inner(k=2), {"k": 3}, {"k": "x"}, None)
ANYTHING: Final = (None, 1, "s", [1, [2]], {"a": 1}, {1: 2}, b"x", 2**80, math.nan, NOON, (1, 2), {1}, object, ONE)


class Kind:
    """A model, its first class where several share the collection, and values of its fields.

    Args:
        model: the model.
        root: the class that the database is opened with.
        values: by field; of a field without, any int or text will do.
    """

    def __init__(self, model: type[KvModel], root: type[KvModel] | None = None, **values: Sequence[Any]) -> None:
        self.model = model
        self.root = model if root is None else root
        defaults = {"id": INTS, "u": TEXTS, "x": TEXTS, "n": INTS, "tags": LISTS, "inner": INNERS}
        self._values: Mapping[str, Sequence[Any]] = MappingProxyType({**defaults, **values})
        names = [*model.model_fields] if root is None or root is not model else ["id", "u", "x"]
        left_out = {"id", "a", "b", "version", "at", "kind"}
        self.fields = [name for name in names if name not in left_out]

    def __repr__(self) -> str:
        return self.model.__name__

    def value(self, name: str, number: int) -> Any:
        """A value of a field: a usual one for a small number."""
        values = self._values.get(name, ANYTHING)
        return values[number % len(values)]

    def key(self, number: int) -> Any:
        """A primary key, or what is none."""
        if self.model is Pair:
            return (self.value("a", number), self.value("b", number // 2)) if number < 30 else number
        return self.value("id", number)

    def fields_of_key(self, key: Any) -> dict[str, Any]:
        """The same as values of fields."""
        if self.model is not Pair:
            return {"id": key}
        a, b = key if isinstance(key, tuple) else (key, None)
        return {"a": a, "b": b}


KINDS: Final = (
    Kind(Plain),
    Kind(Bare, id=TEXTS, u=INTS, n=ANYTHING),
    Kind(Named, id=SHADES, u=SIZES, x=MARKS, n=LETTERS),
    Kind(Pair, a=INTS, b=MOMENTS, u=DATES, x=NUMBERS, n=SPANS),
    Kind(Loose),
    Kind(Checked, u=FLAGS),
    Kind(Limited, id=TEXTS, n=ANYTHING),
    Kind(Kinds),
    Kind(Timed),
    Kind(Passing),
    Kind(Grown),
    Kind(Box[int], u=INTS, n=LISTS),
    Kind(Circle, Shape),
    Kind(Shape, Shape),
    Kind(Float, id=FLOATS, u=UUIDS, x=BYTES, n=FLOATS),
    Kind(Watched, n=ANYTHING),
)
