"""Mistakes in declarations and objects: each line with a code must be reported with it, and no other line."""

from typing import Annotated

from pydantic import BaseModel

from kvmodels import AggregateIndex, Field, Index, Indexed, IntervalIndex, KvModel, MultiIndexed, PrimaryKey, Q, Unique, UniqueConstraint


class Address(BaseModel):
    city: str
    zip: str | None = None


class User(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    age: Indexed[int | None]
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    address: Address | None = None
    plan: str = "free"


# --- objects

User(id=1, age=1)  # mypy: call-arg / pyright: reportCallIssue
User(id=1)  # mypy: call-arg / pyright: reportCallIssue
User()  # mypy: call-arg / pyright: reportCallIssue
User(id=1, age=1, email=2)  # mypy: arg-type / pyright: reportArgumentType
User(id="1", age=1, email="x")  # mypy: arg-type / pyright: reportArgumentType
User(id=1, age=None, email="x", tags=[1])  # mypy: list-item / pyright: reportArgumentType
User(id=1, age=None, email="x", tags="ab")  # mypy: arg-type / pyright: reportArgumentType
User(id=1, age=None, email="x", nick="x")  # mypy: call-arg / pyright: reportCallIssue
User(1, "x", None)  # mypy: call-arg / pyright: reportCallIssue


def on_objects(user: User) -> None:
    user.email = 5  # mypy: assignment / pyright: reportAttributeAccessIssue
    user.tags.append(1)  # mypy: arg-type / pyright: reportArgumentType
    user.tags = ["x", 1]  # mypy: list-item / pyright: reportAttributeAccessIssue
    user.nick = "x"  # mypy: attr-defined / pyright: reportAttributeAccessIssue
    print(user.age.bit_length())  # mypy: union-attr / pyright: reportOptionalMemberAccess
    print(user.age + 1)  # mypy: operator / pyright: reportOptionalOperand, reportUnknownArgumentType
    print(user.address.city)  # mypy: union-attr / pyright: reportOptionalMemberAccess
    print(user.address.zip.upper() if user.address else None)  # mypy: union-attr / pyright: reportOptionalMemberAccess
    user.versionstamp = "x"  # mypy: misc / pyright: reportAttributeAccessIssue
    user.is_persisted = True  # mypy: misc / pyright: reportAttributeAccessIssue


# --- declarations

# Keywords of the class itself (colection="users") are checked when the class is created and by no type checker: both
# leave them to a metaclass, which pydantic's models have.

class Defaulted(KvModel):
    id: PrimaryKey[int] = 1  # mypy: assignment / pyright: reportAssignmentType
    name: Indexed[str] = "x"  # mypy: assignment / pyright: reportAssignmentType
    tags: MultiIndexed[list[str]] = []  # mypy: assignment / pyright: reportAssignmentType


Unique[str](nulls="none")  # mypy: arg-type / pyright: reportArgumentType
Unique[str](descending=True)  # mypy: arg-type / pyright: reportArgumentType
Indexed[str](nulls="equal")  # mypy: arg-type / pyright: reportArgumentType
Indexed[str](nam="x")  # mypy: arg-type / pyright: reportArgumentType
Indexed[str](key="casefold")  # mypy: arg-type / pyright: reportArgumentType
Indexed[str](version="1")  # mypy: arg-type / pyright: reportArgumentType
Indexed[str](where="x")  # mypy: arg-type / pyright: reportArgumentType
Indexed[str](store="copy")  # mypy: arg-type / pyright: reportArgumentType
MultiIndexed[list[str]](max_fan_out="many")  # mypy: arg-type / pyright: reportArgumentType
MultiIndexed[list[str]](descending=True)  # mypy: arg-type / pyright: reportArgumentType
PrimaryKey[int](name="x")  # mypy: arg-type / pyright: reportArgumentType
Index("a", nulls="equal")  # mypy: arg-type / pyright: reportArgumentType
Index("a", where=User.plan == "x")  # mypy: arg-type / pyright: reportArgumentType
Index("a", include=3)  # mypy: arg-type / pyright: reportArgumentType
Index("a", unique=True)  # mypy: arg-type / pyright: reportArgumentType
Index(User.email)  # mypy: arg-type / pyright: reportArgumentType
UniqueConstraint("a", nulls="none")  # mypy: arg-type / pyright: reportArgumentType
UniqueConstraint("a", sums=("x",))  # mypy: arg-type / pyright: reportArgumentType
AggregateIndex("a", sums=3)  # mypy: arg-type / pyright: reportArgumentType
AggregateIndex("a", include=("x",))  # mypy: arg-type / pyright: reportArgumentType
AggregateIndex("a", where=User.email)  # mypy: arg-type / pyright: reportArgumentType
IntervalIndex("a", "b", group=3)  # mypy: arg-type / pyright: reportArgumentType
IntervalIndex("a", "b", where=User.email)  # mypy: arg-type / pyright: reportArgumentType
IntervalIndex("a", "b", unique=True)  # mypy: arg-type / pyright: reportArgumentType
Q("x")  # mypy: arg-type / pyright: reportArgumentType
Q(User.plan == "x")  # mypy: arg-type / pyright: reportArgumentType


class Plain(KvModel):
    id: Annotated[int, PrimaryKey()]
    age: Annotated[int, Indexed()] = "x"  # mypy: assignment / pyright: reportAssignmentType


Plain(id=1, age="x")  # mypy: arg-type / pyright: reportArgumentType
Plain(age=1)  # mypy: call-arg / pyright: reportCallIssue
