"""Look a record up by a unique key that only some records have, or create it."""

from __future__ import annotations

import threading
from typing import Any, Literal

import pytest

from kvmodels import (
    ULID,
    Database,
    Field,
    Index,
    InvalidArgumentError,
    KvModel,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    UniqueConstraint,
    UniqueViolationError,
)


class Member(KvModel, collection="members"):
    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    email: str
    active: bool = True
    name: str = ""

    class Meta:
        indexes = (UniqueConstraint("email", where=Q(active=True), name="live"),)


class Listed(KvModel, collection="listed"):
    """The same, with an index of all addresses."""

    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    email: str
    active: bool = True

    class Meta:
        indexes = (UniqueConstraint("email", where=Q(active=True), name="live"), Index("email", name="every"))


class Thing(KvModel, collection="things", discriminator="kind"):
    id: PrimaryKey[ULID] = Field(default_factory=ULID)


class Coupon(Thing):
    kind: Literal["coupon"] = "coupon"
    code: str
    used: bool = False

    class Meta:
        indexes = (UniqueConstraint("code", where=Q(used=False), name="unused"),)


class Ticket(Thing):
    kind: Literal["ticket"] = "ticket"
    used: bool = False


def opened() -> Database:
    return Database("memory://", models=[Member, Listed, Thing])


def test_a_condition_may_be_said_by_the_lookups():
    with opened() as db:
        gone = db[Member].create(email="a", active=False)
        made, created = db[Member].get_or_create(email="a", active=True, defaults={"name": "A"})
        assert created
        assert db[Member].get_or_create(email="a", active=True) == (made, False)
        changed, created = db[Member].update_or_create(email="a", active=True, defaults={"name": "B"})
        assert (changed.id, changed.name, created) == (made.id, "B", False)
        assert db[Member].get(gone.id).name == ""


def test_a_condition_may_be_said_by_the_new_record_where_the_lookups_have_an_index_of_their_own():
    with opened() as db:
        one, created = db[Listed].get_or_create(email="a", defaults={"active": True})
        assert created
        assert db[Listed].get_or_create(email="a", defaults={"active": True}) == (one, False)
        db[Listed].patch(one.id, active=False)
        # What is looked for is what the lookups say, and no more: this one is found.
        assert db[Listed].update_or_create(email="a", defaults={"active": True}) == (db[Listed].get(one.id), False)
        assert db[Listed].get(one.id).active
        with pytest.raises(InvalidArgumentError):
            db[Listed].update_or_create(email="a", defaults={"active": True}, create_defaults={"active": False})


def test_callers_who_race_for_a_record_that_its_defaults_put_into_the_index_make_one():
    with opened() as db:
        barrier = threading.Barrier(4)
        made: list[Any] = []

        def call() -> None:
            barrier.wait()
            made.append(db[Listed].get_or_create(email="a", defaults={"active": True}))

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({one.id for one, _ in made}) == 1
        assert sorted(created for _, created in made) == [False, False, False, True]
        assert db[Listed].count() == 1


@pytest.mark.parametrize("defaults", [{}, {"active": False}, {"name": "x"}])
def test_a_condition_that_nothing_says_is_named(defaults: dict[str, Any]):
    with opened() as db:
        for write in (db[Member].get_or_create, db[Member].update_or_create):
            with pytest.raises(InvalidArgumentError, match="a unique key of some records only") as caught:
                write(email="a", defaults=defaults)
            assert caught.value.expected == ("active",)
            assert "'live' has only records with Q(active=True): say that in the lookups too" in str(caught.value)
        assert db[Member].count() == 0


def test_a_query_that_lacks_a_condition_is_told_which():
    with opened() as db:
        for query in (
            lambda: db[Member].get(email="a"),
            lambda: db[Member].get_or_create(email="a", defaults={"active": True}),
            lambda: db[Member].filter(email__in=["a", "b"]).to_list(),
            lambda: db[Member].filter(Q(email="a") | Q(email="b", name="x")).to_list(),
        ):
            with pytest.raises(NoUsableIndexError) as caught:
                query()
            assert "The index 'live' has only records with Q(active=True): filter by that as well." in str(caught.value)
            assert "Otherwise add Index(" in str(caught.value)
        with pytest.raises(NoUsableIndexError) as caught:
            db[Member].filter(name="x").to_list()
        assert "The index 'live'" not in str(caught.value)
        assert 'Add Index("name")' in str(caught.value)


def test_of_classes_that_share_a_collection_the_repository_says_the_class():
    with opened() as db:
        first, created = db[Coupon].get_or_create(code="x", used=False)
        assert created
        assert db[Coupon].get_or_create(code="x", used=False) == (first, False)
        db[Coupon].patch(first.id, used=True)
        again, created = db[Coupon].update_or_create(code="x", used=False, defaults={})
        assert (again.id != first.id, created) == (True, True)
        with pytest.raises(UniqueViolationError):
            db[Coupon].create(code="x")
        with pytest.raises(InvalidArgumentError, match="a unique key of some records only"):
            db[Coupon].get_or_create(code="x")
        db[Ticket].create(used=False)
        assert db.check().ok
