"""A write whose first attempt guesses is refused as one that reads first, for the same reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvmodels import (
    Database,
    Indexed,
    KeyTooLargeError,
    KvModel,
    PrimaryKey,
    SchemaMismatchError,
    Unique,
    UniqueViolationError,
    UnknownFieldError,
    upgrade,
)
from tests.query.test_direct_writes import in_full


class City(KvModel, collection="cities"):
    id: PrimaryKey[int]
    code: Unique[str]
    name: Indexed[str]


class LaterCity(KvModel, collection="cities"):
    """The declaration of the next release."""

    id: PrimaryKey[int]
    code: Unique[str]
    name: Indexed[str]

    class Meta:
        schema_version = 2

    @upgrade(to=2, touches=("name",))
    @staticmethod
    def shouted(document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "name": document["name"].upper()}


def rename(city: City) -> None:
    city.name = "x"


WRITES: dict[str, Callable[[Any], object]] = {
    "patch": lambda cities: cities.patch(1, name="x"),
    "mutate": lambda cities: cities.mutate(1, rename),
    "remove": lambda cities: cities.remove(1),
    "patch of no record": lambda cities: cities.patch(9, name="x"),
    "removal of no record": lambda cities: cities.remove(9),
}


@pytest.mark.parametrize("full", [False, True], ids=["short", "full"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("removed", [False, True])
def test_an_old_release_is_stopped_by_the_version_of_the_schema(
    write: str, full: bool, removed: bool, monkeypatch: pytest.MonkeyPatch
):
    name = f"memory://{write}-{full}-{removed}"
    with Database(name, models=[City]) as old:
        cities = old[City]
        cities.create(id=1, code="a", name="n")
        cities.patch(1, name="m")
        with Database(name, models=[LaterCity]) as new:
            new.migrate(LaterCity)
            if removed:
                new[LaterCity].remove(1)
            if full:
                in_full(monkeypatch)
            with pytest.raises(SchemaMismatchError):
                WRITES[write](cities)
            assert new.check().ok


@pytest.mark.parametrize("full", [False, True], ids=["short", "full"])
def test_that_a_value_is_taken_is_said_before_that_another_is_too_long(full: bool, monkeypatch: pytest.MonkeyPatch):
    with Database("memory://", models=[City]) as db:
        cities = db[City]
        cities.create(id=1, code="a", name="n")
        cities.create(id=2, code="b", name="n")
        if full:
            in_full(monkeypatch)
        with pytest.raises(UniqueViolationError):
            cities.patch(2, code="a", name="x" * 5_000)
        with pytest.raises(KeyTooLargeError):
            cities.patch(2, code="c", name="x" * 5_000)
        assert cities.get(2).code == "b"


def test_names_of_fields_that_do_not_exist_are_not_remembered():
    with Database("memory://", models=[City]) as db:
        cities = db[City]
        cities.create(id=1, code="a", name="n")
        assert cities.get(code="a").id == 1
        context: Any = cities._runner.context
        plans = context.view.live["cities"].compiled.lookups
        before = len(plans)
        for number in range(20):
            with pytest.raises(UnknownFieldError):
                cities.get(**{f"field{number}": 1})
        assert len(plans) == before
