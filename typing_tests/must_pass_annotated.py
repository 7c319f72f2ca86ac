"""The plain form of declarations, with pydantic's own Field; every line must be accepted."""

from typing import Annotated, Generic, TypeVar, assert_type

import pydantic

from kvmodels import FieldRef, Indexed, KvModel, PrimaryKey, Stored, Unique, col
from kvmodels.schema.declare.expressions import Comparison

V = TypeVar("V")


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


def cents_of(money: Money) -> int:
    return money.cents


class Book(KvModel, arbitrary_types_allowed=True):
    isbn: Annotated[str, PrimaryKey()]
    title: Annotated[str, Unique(nulls="skip", store="record", name="by_title")] = "x"
    year: Annotated[int | None, Indexed(descending=True)] = None
    pages: Annotated[int, Indexed()] = pydantic.Field(default=1, ge=1)
    price: Annotated[Money, Stored(cents_of, Money)] = Money(0)


class Box(KvModel, Generic[V]):
    id: PrimaryKey[int]
    value: V


book = Book(isbn="1", year=3)
assert_type(book.year, int | None)
assert_type(book.price, Money)
assert_type(col(Book.year), FieldRef[int | None])
assert_type(col(Book.year) > 3, Comparison)
assert_type(Box[str](id=1, value="x").value, str)
