"""``parse_lookups``: text of query strings and command lines as typed conditions; every error names the parameter."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel
from starlette.datastructures import QueryParams

from kvmodels import (
    ULID,
    Database,
    Field,
    Index,
    Indexed,
    InvalidArgumentError,
    InvalidLookupError,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    Q,
    UnknownFieldError,
    parse_lookups,
)


class Plan(Enum):
    FREE = "free"
    PRO = "pro"


class Rank(IntEnum):
    LOW = 1
    HIGH = 2


class Address(BaseModel):
    city: str = ""


class User(KvModel, collection="users"):
    id: PrimaryKey[int]
    name: Indexed[str]
    age: Indexed[int | None] = Field(default=None)
    plan: Indexed[Plan] = Field(default=Plan.FREE)
    rank: Rank = Rank.LOW
    kind: Literal[1, 2] = 1
    size: Literal["small", "large"] | None = None
    active: bool = True
    price: Decimal = Decimal(0)
    day: date | None = None
    seen: datetime | None = None
    lasts: timedelta = timedelta()
    token: UUID | None = None
    ulid: ULID | None = None
    raw: bytes = b""
    tags: MultiIndexed[list[str]] = Field(default=[])
    scores: set[int] = set()
    address: Address = Address()
    extra: dict[str, int] = {}

    class Meta:
        indexes = (Index("name", key=len, version=1, returns=int, name="length"),)


class Line(KvModel, collection="lines"):
    order: PrimaryKey[int]
    number: PrimaryKey[int]


CONVERTED: dict[tuple[str, str], Any] = {
    ("age", "18"): 18,
    ("age__gte", "-1"): -1,
    ("age__isnull", "true"): True,
    ("pk", "7"): 7,
    ("name__startswith", "A"): "A",
    ("name__contains", "a,b"): "a,b",
    ("plan", "pro"): "pro",
    ("rank", "2"): 2,
    ("kind", "2"): 2,
    ("active", "no"): False,
    ("price__lt", "9.90"): Decimal("9.90"),
    ("day", "2026-01-02"): date(2026, 1, 2),
    ("seen__gt", "2026-01-02T03:00:00+01:00"): datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=1))),
    ("lasts", "PT1H"): timedelta(hours=1),
    ("token", "12345678123456781234567812345678"): UUID("12345678123456781234567812345678"),
    ("ulid", "01ARZ3NDEKTSV4RRFFQ69G5FAV"): ULID("01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    ("raw", "ab"): b"ab",
    ("tags__contains", "x"): "x",
    ("tags__any__startswith", "x"): "x",
    ("scores__contains", "3"): 3,
    ("scores", "3,4"): {3, 4},
    ("address__city", "Bern"): "Bern",
    ("length__gte", "3"): 3,
    ("age__in", "1,2"): [1, 2],
    ("age__in", ""): [],
    ("age__range", "18,30"): [18, 30],
    ("tags__contains_any", '["a,b", "c"]'): ["a,b", "c"],
}


@pytest.mark.parametrize(("name", "text"), CONVERTED, ids=str)
def test_a_text_becomes_a_value_of_the_column(name: str, text: str):
    parsed = parse_lookups(User, {name: text})
    assert parsed.where == Q(**{name: CONVERTED[name, text]})
    assert parsed.order_by == ()
    with Database("memory://", models=[User]) as db:
        assert db[User].filter(parsed.where).allow_scan().count() == 0


def test_a_repeated_parameter_gives_several_values():
    query = QueryParams("plan__in=free&plan__in=pro&tags__contains_all=a,b&tags__contains_all=c&order_by=-age,name")
    parsed = parse_lookups(User, query.multi_items())
    assert parsed.where == Q(plan__in=["free", "pro"], tags__contains_all=["a,b", "c"])
    assert parsed.order_by == ("-age", "name")
    assert parse_lookups(User, {"age__in": ["1", "2"]}).where == Q(age__in=[1, 2])


def test_no_parameters_are_no_conditions():
    parsed = parse_lookups(User, {})
    with Database("memory://", models=[User]) as db:
        db[User].create(id=1, name="a")
        assert db[User].filter(parsed.where).order_by(*parsed.order_by).count() == 1


REFUSED: dict[tuple[str, str], str] = {
    ("agee", "1"): "the model has no field of this name",
    ("age__greater", "1"): "this lookup does not exist for this field",
    ("age", "x"): "Input should be a valid integer",
    ("age__startswith", "1"): "this lookup does not exist for this field",
    ("plan", "gold"): "this value is not a member of the Enum",
    ("kind", "3"): "the value is not one of 1, 2",
    ("kind__in", "1,3"): "the value is not one of 1, 2",
    ("size", "huge"): "the value is not one of 'small', 'large'",
    ("active", "maybe"): "Input should be a valid boolean",
    ("age__isnull", "maybe"): "Input should be a valid boolean",
    ("age__range", "1"): "range takes two values",
    ("age__in", "1,x"): "Input should be a valid integer",
    ("age__in", "[1"): "this is not a JSON list",
    ("seen__gt", "2026-01-02T03:00:00"): "a naive datetime is not a point in time",
    ("extra", "{}"): "values of this type cannot be given as text",
    ("order_by", "-agee"): "the model has no field of this name",
}


@pytest.mark.parametrize(("name", "text"), REFUSED, ids=str)
def test_an_error_names_the_parameter_and_not_its_text(name: str, text: str):
    with pytest.raises(InvalidLookupError) as refused:
        parse_lookups(User, {name: text})
    error = refused.value
    assert (error.code, error.model, error.parameter) == ("KV706", "User", name)
    assert REFUSED[name, text] in error.reason
    assert error.hint


def test_a_single_value_cannot_be_repeated():
    with pytest.raises(InvalidLookupError, match="given more than once"):
        parse_lookups(User, [("age", "1"), ("age", "2")])
    with pytest.raises(InvalidLookupError, match="it has no value"):
        parse_lookups(User, {"age": []})


@pytest.mark.parametrize("parameters", [{"name": "a"}, {"name__in": "a"}, {"order_by": "name"}, {"secret": "a"}])
def test_only_allowed_fields_can_be_used_and_others_are_not_revealed(parameters: dict[str, str]):
    with pytest.raises(InvalidLookupError) as refused:
        parse_lookups(User, parameters, allow=["age", "address.city", "pk"])
    assert refused.value.hint == "Allowed are: address.city, age, id."


def test_allowed_names_are_fields_paths_and_computed_columns():
    allowed = ["age", "address__city", "id", "length"]
    parameters = {"age": "1", "address__city": "x", "pk": "1", "length": "2", "order_by": "-length,pk"}
    assert parse_lookups(User, parameters, allow=allowed).order_by == ("-length", "pk")
    with pytest.raises(UnknownFieldError):
        parse_lookups(User, {}, allow=["agee"])


def test_a_key_of_several_fields_is_compared_by_its_fields():
    assert parse_lookups(Line, {"order": "1", "number__lt": "3"}).where == Q(order=1, number__lt=3)
    with pytest.raises(InvalidLookupError):
        parse_lookups(Line, {"pk": "1,2"})


@pytest.mark.parametrize("parameters", [{"age": 18}, {1: "a"}, ["age"], 7, "age=18", [("a", "b", "c")]])
def test_other_parameters_are_refused(parameters: Any):
    with pytest.raises(InvalidArgumentError):
        parse_lookups(User, parameters)
