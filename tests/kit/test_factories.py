"""Factories fill unique fields with distinct values, and store the targets of foreign keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import pytest
from polyfactory.factories.pydantic_factory import ModelFactory
from polyfactory.field_meta import FieldMeta
from pydantic import BaseModel, EmailStr

from kvmodels import (
    AUTO,
    ULID,
    AlreadyExistsError,
    AsyncDatabase,
    Database,
    Field,
    ForeignKey,
    Indexed,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    Unique,
    UniqueViolationError,
    UnknownFieldError,
)
from kvmodels.testing.factories import KvFactory


class Grower(KvModel, collection="growers"):
    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    email: Annotated[str, Unique(key=str.casefold)]


class Orchard(KvModel, collection="orchards"):
    id: PrimaryKey[int]
    slot: Unique[int] = Field(ge=1, le=50)
    grower_id: ForeignKey[ULID, Grower]
    neighbour_id: ForeignKey[int | None, Orchard] = Field(default=None)


class Harvest(KvModel, collection="harvests"):
    id: PrimaryKey[int]
    at: Indexed[datetime]


class Medal(KvModel, collection="medals"):
    kind: PrimaryKey[Literal["gold", "silver"]]


MODELS: list[type[KvModel]] = [Grower, Orchard, Harvest, Medal]


class OrchardFactory(KvFactory[Orchard]):
    pass


def test_fifty_orchards_use_all_fifty_slots_and_no_value_twice():
    OrchardFactory.seed_random(1)
    with Database("memory://", models=MODELS) as db:
        made = OrchardFactory.create_batch(db, 50)
        assert {one.slot for one in made} == set(range(1, 51))
        assert len({one.id for one in made}) == db[Orchard].count() == db[Grower].count() == 50
        assert db.check().ok


def test_given_keys_are_used_and_optional_ones_left_out():
    with Database("memory://", models=MODELS) as db:
        grower = KvFactory.of(Grower).create(db, email="Ada@x.org")
        orchard = KvFactory.of(Orchard).create(db, grower_id=grower, slot=3)
        assert (orchard.grower_id, orchard.slot, orchard.neighbour_id) == (grower.id, 3, None)
        assert db[Grower].count() == 1


async def test_targets_of_a_factory_of_their_own_in_an_asynchronous_database():
    class Swiss(KvFactory[Grower]):
        @classmethod
        def email(cls) -> str:
            return f"{cls.__faker__.unique.user_name()}@example.ch"

    class WithSwiss(KvFactory[Orchard]):
        __targets__ = {"grower_id": Swiss}

    async with AsyncDatabase("memory://", models=MODELS) as db:
        first, *_ = await WithSwiss.acreate_batch(db, 3)
        assert (await db[Grower].get(first.grower_id)).email.endswith("@example.ch")
        assert await db[Orchard].count() == 3


def test_a_field_that_has_too_few_values_is_named():
    factory = KvFactory.of(Medal)
    assert {factory.build().kind, factory.build().kind} == {"gold", "silver"}
    with pytest.raises(InvalidArgumentError, match="every value of a unique field") as caught:
        factory.build()
    assert caught.value.argument == "kind"


def test_datetimes_have_a_time_zone_so_that_they_can_be_indexed():
    with Database("memory://", models=MODELS) as db:
        assert KvFactory.of(Harvest).create(db).at.tzinfo is not None


def test_a_name_that_is_no_field_is_refused():
    with Database("memory://", models=MODELS) as db, pytest.raises(UnknownFieldError, match="email"):
        KvFactory.of(Grower).create(db, emial="ada@x.org")


class Tree(BaseModel):
    planted: datetime
    label: ULID


class Plot(BaseModel):
    tree: Tree


class Garden(KvModel, collection="gardens"):
    id: PrimaryKey[int] = Field(default=AUTO)
    tree: Tree
    plots: list[Plot]


class Country(KvModel, collection="countries"):
    code: PrimaryKey[str] = Field(max_length=3)


class City(KvModel, collection="cities"):
    id: PrimaryKey[int] = Field(default=AUTO)
    code: Unique[str] = Field(max_length=2)
    country: ForeignKey[str, Country]


def test_factories_of_other_models_of_the_process_stay_as_they_are():
    class Base(KvFactory[Garden]):
        __is_base_factory__ = True

    class PlotFactory(ModelFactory[Plot]):
        pass

    class Outer(BaseModel):
        plots: list[PlotWithoutKeys]

    class OuterFactory(ModelFactory[Outer]):
        pass

    assert type(OuterFactory.build().plots[0].number) is int
    assert issubclass(PlotFactory._get_or_create_factory(PlotWithoutKeys), ModelFactory)
    assert not issubclass(PlotFactory._get_or_create_factory(PlotWithoutKeys), Base)


class PlotWithoutKeys(BaseModel):
    number: int


def test_nested_models_get_values_that_a_store_accepts():
    with Database("memory://", models=[Garden]) as db:
        garden = KvFactory.of(Garden).create(db)
        assert isinstance(garden.tree.label, ULID)
        assert garden.tree.planted.tzinfo is not None
        assert garden.plots[0].tree.planted.tzinfo is not None


async def test_keys_and_unique_values_that_the_store_has_already_are_drawn_again():
    with Database("memory://", models=[Country, City]) as db:
        assert len(KvFactory.of(City).create_batch(db, 40)) == 40
        for _ in range(40):  # with factories that know nothing of each other
            KvFactory.of(City).create(db)
        assert (db[City].count(), db[Country].count(), db.check().ok) == (80, 80, True)
    async with AsyncDatabase("memory://", models=[Country, City]) as other:
        for _ in range(40):
            await KvFactory.of(City).acreate(other)
        assert await other[Country].count() == 40


def test_a_given_key_that_the_store_has_already_is_an_error():
    with Database("memory://", models=[Country, City]) as db:
        KvFactory.of(Country).create(db, code="ch")
        with pytest.raises(AlreadyExistsError):
            KvFactory.of(Country).create(db, code="ch")
        KvFactory.of(City).create(db, code="zh")
        with pytest.raises(UniqueViolationError):
            KvFactory.of(City).create(db, code="zh")


@pytest.mark.parametrize(("least", "most"), [(None, 12), (30, None), (100, 110), (7, 7)])
def test_addresses_have_the_length_that_their_field_demands(least: int | None, most: int | None):
    limits = {"min_length": least, "max_length": most}
    constraints = {name: limit for name, limit in limits.items() if limit is not None}
    field = FieldMeta(name="email", annotation=EmailStr, constraints=constraints)  # type: ignore[arg-type]
    address = KvFactory.of(Country).get_field_value(field)
    name, domain = address.split("@")
    assert (least or 1) <= len(address) <= (most or 320)
    assert 1 <= len(name) <= 64
    assert domain.endswith(".org")


def test_an_address_that_is_too_short_to_exist_is_refused():
    field = FieldMeta(name="email", annotation=EmailStr, constraints={"max_length": 6})
    with pytest.raises(InvalidArgumentError, match="no address of this length") as caught:
        KvFactory.of(Country).get_field_value(field)
    assert caught.value.argument == "email"
