"""Classes that share a collection, with every kind of index on the first class and on those that derive from it."""

from __future__ import annotations

from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel

from kvmodels import (
    AggregateIndex,
    AutoNowAdd,
    Field,
    Index,
    Indexed,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    Q,
    Unique,
    UniqueConstraint,
    Version,
)


class Spot(BaseModel):
    x: int
    room: str | None = None


def initial(name: str) -> str:
    return name[:1].upper()


class Shape(KvModel, collection="shapes", discriminator="kind"):
    """The common fields; this class has no records of its own."""

    park: PrimaryKey[str]
    number: PrimaryKey[int]
    name: Annotated[str, Unique(key=str.casefold)]
    area: Indexed[float] = Field(default=0.0)
    spot: Spot | None = None
    note: str = ""

    heard: ClassVar[list[tuple[str, Any]]] = []

    class Meta:
        indexes = (
            Index("spot.x", nulls="skip", name="x"),
            Index("name", key=initial, version=1, name="initial"),
            AggregateIndex("area", name="per_area"),
        )

    def before_insert(self) -> None:
        self.heard.append(("insert", type(self).__name__))


class Circle(Shape):
    kind: Literal["circle"] = "circle"
    radius: Indexed[float]
    serial: Unique[str | None] = Field(default=None)

    def before_update(self, old: Any) -> None:
        self.heard.append(("update circle", old.radius))


class Cornered(Shape, abstract=True):
    """Two of the classes have these."""

    corners: Indexed[int]
    labels: MultiIndexed[list[str]] = Field(default_factory=list)


class Square(Cornered):
    kind: Literal["square"] = "square"
    side: float
    born: date | None = None
    revision: int = Version()

    class Meta:
        indexes = (
            Index("-side", where=Q(side__gt=1), include=("note",), name="big"),
            UniqueConstraint("born", "corners", nulls="skip", name="birthday"),
            AggregateIndex("corners", sums=("corners",), name="per_corners"),
        )


class Polygon(Cornered):
    kind: Literal["polygon", "star"] = "polygon"
    sides: MultiIndexed[frozenset[int]] = Field(default_factory=frozenset)
    copied: Annotated[str | None, Indexed(store="record")] = None
    drawn_at: datetime = AutoNowAdd()


class Level(Enum):
    LOW = 1
    HIGH = 2


class Event(KvModel, discriminator="level"):
    """The first class has records of its own, and is told by a number."""

    id: PrimaryKey[int]
    level: Literal[Level.LOW] = Level.LOW
    text: str = ""


class Alarm(Event):
    level: Literal[Level.HIGH] = Level.HIGH  # type: ignore[assignment]
    loud: Indexed[bool] = Field(default=True)
