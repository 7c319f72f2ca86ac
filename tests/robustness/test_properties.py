"""A property looks like a field and is not stored: errors say how to query by it, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import pytest
from pydantic import computed_field

from kvmodels import (
    AggregateIndex,
    Database,
    F,
    Index,
    Indexed,
    InvalidValueError,
    KvModel,
    ModelDefinitionError,
    PrimaryKey,
    Repository,
    UnknownFieldError,
)


def full_name(first: str, last: str) -> str:
    return f"{first} {last}"


class Person(KvModel, collection="people"):
    id: PrimaryKey[int]
    first: Indexed[str]
    last: str

    @computed_field  # type: ignore[prop-decorator] # mypy has no decorators above property
    @property
    def full(self) -> str:
        return full_name(self.first, self.last)

    @property
    def initials(self) -> str:
        return self.first[:1] + self.last[:1]

    @cached_property
    def size(self) -> int:
        return len(self.first)


@pytest.fixture
def people() -> Iterator[Repository[Person]]:
    with Database("memory://", models=[Person]) as db:
        db[Person].create(id=1, first="Ada", last="Lovelace")
        yield db[Person]


@pytest.mark.parametrize("name", ["full", "initials", "size"])
@pytest.mark.parametrize(
    "call",
    [
        lambda people, name: people.filter(**{name: "x"}),
        lambda people, name: people.filter(**{f"{name}__gte": "x"}),
        lambda people, name: people.get(**{name: "x"}),
        lambda people, name: people.order_by(name),
        lambda people, name: people.all().values(name),
    ],
    ids=["filter", "lookup", "get", "order", "values"],
)
def test_a_query_by_a_property_is_sent_to_the_index_with_a_function(
    people: Repository[Person], call: Callable[[Any, str], object], name: str
):
    with pytest.raises(UnknownFieldError) as refused:
        call(people, name)
    assert refused.value.hint is not None
    assert f'Index("field", key=function, version=1, name="{name}")' in refused.value.hint


@pytest.mark.parametrize("name", ["full", "initials", "size"])
@pytest.mark.parametrize(
    "call",
    [
        lambda people, name: people.create(id=2, first="Bob", last="Smith", **{name: "x"}),
        lambda people, name: people.patch(1, **{name: "x"}),
        lambda people, name: people.filter(first="Ada").update(**{name: "x"}),
        lambda people, name: people.filter(first="Ada").update(last=F(name)),
    ],
    ids=["create", "patch", "update", "term"],
)
def test_a_write_of_a_property_is_told_to_name_the_fields(
    people: Repository[Person], call: Callable[[Any, str], object], name: str
):
    with pytest.raises(UnknownFieldError) as refused:
        call(people, name)
    assert refused.value.hint == f"{name} is a property, which is not stored. Name the fields that it is computed from."


@pytest.mark.parametrize(
    ("declared", "advice"),
    [
        (Index("full"), "key=function"),
        (Index("first", "-full"), "key=function"),
        (AggregateIndex("full"), "key=function"),
        (Index("first", include=("full",)), "Name the fields"),
    ],
    ids=["alone", "second", "aggregate", "include"],
)
def test_an_index_on_a_property_is_refused_with_the_declaration_to_write(declared: Any, advice: str):
    with pytest.raises(ModelDefinitionError, match="full is a property") as refused:

        class Derived(Person, collection="derived"):
            class Meta:
                indexes = (declared,)

    assert refused.value.hint is not None
    assert advice in refused.value.hint


def test_the_advised_index_may_have_the_name_of_the_property():
    class Found(Person, collection="found"):
        class Meta:
            indexes = (Index("first", "last", key=full_name, version=1, name="full"),)

    with Database("memory://", models=[Found]) as db:
        db[Found].create(id=1, first="Ada", last="Lovelace")
        assert [found.full for found in db[Found].filter(full="Ada Lovelace")] == ["Ada Lovelace"]


def test_a_comparison_of_a_property_is_no_expression(people: Repository[Person]):
    condition: Any = Person.initials
    with pytest.raises(InvalidValueError, match="Properties and methods of the class are not fields"):
        people.filter(condition == "AL")
