"""Mistakes in queries: each line with a code must be reported with it, and no other line."""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel

from kvmodels import (
    AsyncDatabase,
    Count,
    Database,
    Expression,
    F,
    Field,
    FieldRef,
    Indexed,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    Q,
    Sum,
    Trunc,
    Unique,
    col,
)
from kvmodels.schema.declare.expressions import Comparison


class Kind(StrEnum):
    CITY = "city"


class Address(BaseModel):
    city: str


class Card(BaseModel):
    name: str


class Place(KvModel, collection="places"):
    id: PrimaryKey[int]
    name: Unique[str]
    kind: Indexed[Kind]
    number: Indexed[int]
    maybe: Indexed[int | None] = Field(default=None)
    area: Indexed[Decimal]
    founded: Indexed[datetime]
    data: Indexed[bytes]
    names: MultiIndexed[list[str]] = Field(default_factory=list)
    years: MultiIndexed[frozenset[int]] = Field(default_factory=frozenset)
    scores: MultiIndexed[tuple[float, ...]] = Field(default=())
    plain: Annotated[int, Indexed()] = 0
    address: Address
    plan: str = "free"
    rank: int = 0
    labels: list[str] = []


def filters(db: Database) -> None:
    places = db[Place]

    # --- fields without an index are plain values to a type checker
    places.filter(Place.plan == "x")  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.plan != "x")  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.rank >= 3)  # mypy: arg-type / pyright: reportArgumentType
    places.exclude(Place.rank < 3)  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.plan.startswith("x"))  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.labels.contains("x"))  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.filter(Place.address.city == "x")  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.plan)  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.number)  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.nickname == "x")  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.filter("number > 3")  # mypy: arg-type / pyright: reportArgumentType
    places.filter(True)  # mypy: arg-type / pyright: reportArgumentType

    # --- operands of another type
    places.filter(Place.number == "x")  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.number != "x")  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.number < "x")  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter(Place.number <= "x")  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter(Place.number > "x")  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter(Place.number >= None)  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter(Place.maybe > "x")  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter(Place.number == None)  # noqa: E711  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.kind == "city")  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.kind == 3)  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.area > 1.5)  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter(Place.founded >= "2024-01-01")  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter(Place.data == "x")  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.name == b"x")  # mypy: arg-type / pyright: reportArgumentType
    places.filter(3 < Place.name)  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter(Place.number.in_(["x"]))  # mypy: list-item / pyright: reportArgumentType
    places.filter(Place.number.in_([1, "x"]))  # mypy: list-item / pyright: reportArgumentType
    places.filter(Place.number == Place.area)  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter(Place.number.in_([Place.number]))  # mypy: list-item / pyright: reportArgumentType
    places.filter(Place.number.between(1, None))  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.maybe.between(1, "x"))  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.kind.startswith(3))  # mypy: arg-type, misc / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.filter(Place.number.in_(3))  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.number.not_in([None]))  # mypy: list-item / pyright: reportArgumentType
    places.filter(Place.kind.in_([3]))  # mypy: list-item / pyright: reportArgumentType
    places.filter(Place.number.between("a", 3))  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.number.between(3))  # mypy: call-arg / pyright: reportCallIssue, reportUnknownArgumentType
    places.filter(Place.number.between(1, 2, bounds="<>"))  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.number.is_null("x"))  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.name.startswith(3))  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.name.contains(3))  # mypy: arg-type / pyright: reportArgumentType

    # --- methods that the type does not have
    places.filter(Place.number.startswith("x"))  # mypy: misc / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.filter(Place.maybe.startswith("x"))  # mypy: misc / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.filter(Place.founded.startswith("2024"))  # mypy: misc / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.filter(Place.number.contains("x"))  # mypy: misc / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.filter(Place.number.contains(3))  # mypy: arg-type, misc / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.filter(Place.number.any() > 3)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.filter(Place.number.contains_any([3]))  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.filter(Place.number.contain("x"))  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType

    # --- fields with several values
    places.filter(Place.names.contains(3))  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.years.contains("x"))  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.names.contains_any([3]))  # mypy: list-item / pyright: reportArgumentType
    places.filter(Place.names.contains_any(3))  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.years.contains_all(["x"]))  # mypy: list-item / pyright: reportArgumentType
    places.filter(Place.names > "x")  # mypy: arg-type, operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter(Place.names == "x")  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.names != "x")  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.years == {"x"})  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.years == [Place.number])  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.names == 3)  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.names.startswith("x"))  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.filter(Place.names.in_([["x"]]))  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.filter(Place.names.any() > 3)  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter(Place.years.any() == "x")  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.years.any().startswith("x"))  # mypy: misc / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.filter(Place.scores.any().between("a", "b"))  # mypy: arg-type / pyright: reportArgumentType
    places.filter(Place.names.any().desc())  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.filter(Place.names.any())  # mypy: arg-type / pyright: reportArgumentType

    # --- plain declarations through col()
    places.filter(Place.plain > 3)  # mypy: arg-type / pyright: reportArgumentType
    places.filter(col(Place.plain) > "x")  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter(col(Place.address.city) == 3)  # mypy: arg-type / pyright: reportArgumentType
    places.filter(col(Place.address.town) == "x")  # mypy: arg-type, attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.filter(col(Place.address).city == "x")  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.filter(col(Place.address) == "x")  # mypy: arg-type / pyright: reportArgumentType
    places.filter(col(Place.plain).between(1))  # mypy: call-arg / pyright: reportCallIssue, reportUnknownArgumentType
    places.filter(col(Place.plain).startswith("x"))  # mypy: misc / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.order_by(col(Place.labels))  # mypy: arg-type / pyright: reportArgumentType
    places.filter(col(Place.labels).contains(3))  # mypy: arg-type / pyright: reportArgumentType
    places.filter(col(Place.address.city).startswith(3))  # mypy: arg-type / pyright: reportArgumentType

    # --- combinations
    places.filter(Place.number > 3 & Place.number < 5)  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter((Place.number > 3) & Place.plan)  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter((Place.number > 3) | True)  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter(Q(number=3) | "x")  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter(Q(number=3) & Place.number)  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter(~Place.number)  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.filter(Q("number"))  # mypy: arg-type / pyright: reportArgumentType
    places.filter([Place.number > 3])  # mypy: arg-type / pyright: reportArgumentType
    one: Comparison = (Place.number > 3) & (Place.number < 5)  # mypy: assignment / pyright: reportAssignmentType
    order: Expression = Place.number.desc()  # mypy: assignment / pyright: reportAssignmentType
    field: FieldRef[str] = Place.number  # mypy: assignment / pyright: reportAssignmentType
    print(one, order, field)


def results(db: Database) -> None:
    places = db[Place]
    places.order_by(3)  # mypy: arg-type / pyright: reportArgumentType
    places.order_by(Place.rank)  # mypy: arg-type / pyright: reportArgumentType
    places.order_by(Place.number > 3)  # mypy: arg-type / pyright: reportArgumentType
    places.order_by(Place.names)  # mypy: arg-type / pyright: reportArgumentType
    places.order_by(Place.names.desc())  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.order_by(Place.maybe.asc(nulls="last"))  # mypy: call-arg / pyright: reportCallIssue, reportUnknownArgumentType
    places.order_by(F("maybe").desc(nulls_first=1))  # mypy: arg-type / pyright: reportArgumentType
    places.order_by(Place.plan.desc())  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    places.order_by(["number"])  # mypy: arg-type / pyright: reportArgumentType
    places.values(3)  # mypy: arg-type / pyright: reportArgumentType
    places.values(Place.rank)  # mypy: arg-type / pyright: reportArgumentType
    places.values_list(Place.rank, flat=True)  # mypy: call-overload / pyright: reportArgumentType, reportCallIssue
    places.values_list("name", "number", flat="yes")  # mypy: call-overload / pyright: reportArgumentType
    places.only("name")  # mypy: arg-type / pyright: reportArgumentType
    places.only(Card(name="x"))  # mypy: arg-type / pyright: reportArgumentType
    places.aggregate("count")  # mypy: arg-type / pyright: reportArgumentType
    places.aggregate(total="sum")  # mypy: arg-type / pyright: reportArgumentType
    places.aggregate(Sum())  # mypy: call-arg / pyright: reportCallIssue
    places.aggregate(Sum(3))  # mypy: arg-type / pyright: reportArgumentType
    places.aggregate(Count(distinct=True))  # mypy: arg-type / pyright: reportArgumentType
    places.aggregate(Count(1, 2))  # mypy: arg-type / pyright: reportArgumentType
    places.group_by(Trunc("name", "minute"))  # mypy: arg-type / pyright: reportArgumentType
    places.group_by(Trunc(3, "month"))  # mypy: arg-type / pyright: reportArgumentType
    places.group_by(3)  # mypy: arg-type / pyright: reportArgumentType
    places.using_index(3)  # mypy: arg-type / pyright: reportArgumentType
    places.sort_in_memory(limit="x")  # mypy: arg-type / pyright: reportArgumentType
    places.iterator(batch_size="x")  # mypy: arg-type / pyright: reportArgumentType
    places.page(size="x")  # mypy: arg-type / pyright: reportArgumentType
    places.page(size=3, after=3)  # mypy: arg-type / pyright: reportArgumentType
    places.filter(number=3)["x"]  # mypy: call-overload / pyright: reportArgumentType, reportCallIssue
    places.frst()  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownMemberType
    print(places.first().name)  # mypy: union-attr / pyright: reportOptionalMemberAccess
    print(places.get_or_none(1).name)  # mypy: union-attr / pyright: reportOptionalMemberAccess
    for card in places.only(Card):
        print(card.number)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    for name in places.values_list(Place.name, flat=True):
        print(name + 1)  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    for one, two in places.values_list(Place.name, Place.number):
        print(one + two)  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    for row in places.values("name"):
        print(row.name)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    numbers: list[int] = places.values_list(Place.name, flat=True).to_list()  # mypy: assignment / pyright: reportAssignmentType
    cards: list[Place] = places.only(Card).to_list()  # mypy: assignment / pyright: reportAssignmentType
    print(numbers, cards, places.count() + "x")  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    places.patch(1, 2)  # mypy: arg-type / pyright: reportArgumentType
    places.bulk_create(3)  # mypy: call-overload / pyright: reportArgumentType
    places.save("x")  # mypy: arg-type / pyright: reportArgumentType
    places.insert(Card(name="x"))  # mypy: arg-type / pyright: reportArgumentType


async def asynchronous(db: AsyncDatabase) -> None:
    places = db[Place]
    places.filter(Place.plan == "x")  # mypy: arg-type / pyright: reportArgumentType
    print(places.filter(number=3).to_list()[0])  # mypy: index / pyright: reportIndexIssue, reportUnknownArgumentType
    print(places.get(1).name)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    print((await places.filter(number=3).first()).name)  # mypy: union-attr / pyright: reportOptionalMemberAccess
    async for card in places.only(Card):
        print(card.number)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    names: list[int] = await places.values_list(Place.name, flat=True).to_list()  # mypy: assignment / pyright: reportAssignmentType
    print(names, await places.filter(number=3).count() + "x")  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
