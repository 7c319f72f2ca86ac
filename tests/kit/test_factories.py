"""Factories fill unique fields with distinct values, and store the targets of foreign keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import pytest

from kvmodels import (
    ULID,
    AsyncDatabase,
    Database,
    Field,
    ForeignKey,
    Indexed,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    Unique,
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
