"""Mistakes with classes of one collection and with partial models; no other line is reported."""

from typing import Literal

from kvmodels import Database, Field, Indexed, KvModel, PrimaryKey


class Shape(KvModel, discriminator="kind"):
    id: PrimaryKey[int]


class Circle(Shape):
    kind: Literal["circle"] = "circle"
    radius: Indexed[float] = Field(default=1.0)


class Square(Shape):
    kind: Literal["square"] = "square"
    side: float


Circle(id=1, kind="square")  # mypy: arg-type / pyright: reportArgumentType
Square(id=1)  # mypy: call-arg / pyright: reportCallIssue


def mistaken(db: Database) -> None:
    db[Circle].insert(Square(id=1, side=2))  # mypy: arg-type / pyright: reportArgumentType
    db[Circle].save(Shape(id=1))  # mypy: arg-type / pyright: reportArgumentType
    print(db[Shape].get(1).radius)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    db[Shape].filter(Shape.radius > 1)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    db[Circle].patch(1, {"radius": 2})  # mypy: arg-type / pyright: reportArgumentType
    db[Circle].rename(1, new_key=2)  # mypy: call-arg / pyright: reportCallIssue
    squares: list[Square] = list(db[Circle].all())  # mypy: arg-type / pyright: reportAssignmentType
    print(squares, db[Circle].get(1).side)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
