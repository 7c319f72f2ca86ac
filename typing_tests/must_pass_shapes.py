"""Classes of one collection, generic and abstract ones, and partial models; every line must be accepted."""

from typing import Any, Generic, Literal, TypeVar, assert_type

from pydantic import BaseModel

from kvmodels import AsyncDatabase, Database, Field, Indexed, KvModel, PrimaryKey, Unique
from kvmodels.schema.declare.expressions import FieldRef

T = TypeVar("T")


class Shape(KvModel, collection="shapes", discriminator="kind"):
    id: PrimaryKey[int]
    name: Unique[str]


class Circle(Shape):
    kind: Literal["circle"] = "circle"
    radius: Indexed[float] = Field(default=1.0)


class Cornered(Shape, abstract=True):
    corners: Indexed[int]


class Square(Cornered):
    kind: Literal["square"] = "square"


class Box(KvModel, Generic[T]):
    id: PrimaryKey[int]
    value: Unique[T]


class IntBox(Box[int], collection="int_boxes"):
    more: int = 0


class Name(BaseModel):
    name: str = ""


assert_type(Circle.radius, FieldRef[float])
assert_type(Circle(id=1, name="x").kind, Literal["circle"])
assert_type(IntBox(id=1, value=2).value, int)


def synchronous(db: Database) -> None:
    assert_type(db[Shape].insert(Circle(id=1, name="x")), Shape)
    assert_type(db[Circle].filter(Circle.radius > 1).first(), Circle | None)
    assert_type(db[Cornered].get(1).corners, int)
    for shape in db[Shape].all():
        if isinstance(shape, Circle):
            assert_type(shape.radius, float)
    assert_type(db[Circle].rename(1, 2), Circle)
    assert_type(db[IntBox].get(1).value, int)
    assert_type(Circle.partial(), type[Any])
    CirclePatch = Circle.partial()
    assert_type(db[Circle].patch(1, CirclePatch(name="y")), Circle)
    assert_type(db[Circle].patch(1, Name(name="y"), radius=2), Circle)
    assert_type(db[Circle].patch(1, radius=2, expire_in=None), Circle)


async def asynchronous(db: AsyncDatabase) -> None:
    assert_type(await db[Shape].insert(Square(id=1, name="x", corners=4)), Shape)
    assert_type([circle.radius async for circle in db[Circle].all()], list[float])
    assert_type(await db[Circle].patch(1, Name(name="y")), Circle)
