"""Models that the tests share: one with every kind of index, one with every type of column, and a small one."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Literal
from uuid import UUID

from kvmodels.core.ulid import ULID
from kvmodels.core.values import KeyNumber
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.declarations import Index, UniqueConstraint
from kvmodels.schema.declare.markers import Field, Indexed, PrimaryKey, Unique


class Animal(KvModel, collection="animals"):
    """A composite primary key and every kind of index."""

    park: PrimaryKey[str]
    number: PrimaryKey[int]
    chip: Unique[str | None] = Field(default=None)
    passport: Annotated[str | None, Unique(nulls="skip")] = None
    berth: Annotated[str | None, Unique(nulls="equal")] = None
    tag: Annotated[str | None, Unique(store="record")] = None
    species: Indexed[str]
    keeper: Annotated[str | None, Indexed(nulls="skip")] = None
    vet: Indexed[str | None] = Field(default=None)
    diet: Annotated[str | None, Indexed(store="record")] = None
    weight: Annotated[float, Indexed(descending=True)]
    name: str
    note: str = ""

    class Meta:
        indexes = (
            Index("species", "-weight"),
            UniqueConstraint("species", "-name", name="species_name"),
            UniqueConstraint("vet", "keeper", name="rota"),
        )


class Colour(Enum):
    """An Enum column is encoded as its value."""

    RED = "r"
    GREEN = "g"


class Specimen(KvModel, collection="specimens"):
    """An index on every type of column."""

    id: PrimaryKey[ULID]
    boolean: Indexed[bool]
    whole: Indexed[int]
    count: Annotated[int, KeyNumber(), Indexed()]
    real: Indexed[float]
    text: Annotated[str, Indexed(descending=True)]
    data: Indexed[bytes]
    uuid: Indexed[UUID]
    day: Indexed[date]
    moment: Indexed[datetime]
    hour: Indexed[time]
    span: Annotated[timedelta, Indexed(descending=True)]
    price: Indexed[Decimal]
    v4: Indexed[IPv4Address]
    v6: Indexed[IPv6Address]
    colour: Indexed[Colour]
    size: Indexed[Literal["s", "m"]]
    maybe: Annotated[bytes | None, Indexed(descending=True)] = None


class Account(KvModel, collection="accounts"):
    """A model with the indexes of most tests: a key, a unique value, a plain index, a counter."""

    id: PrimaryKey[int]
    email: Unique[str | None] = Field(default=None)
    color: Indexed[str] = Field(default="red")
    n: int = 0
    note: str = ""
