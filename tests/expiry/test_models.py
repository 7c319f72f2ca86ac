"""Deadlines of records: given, declared, carried through updates, changed; the entries follow, and db.check agrees."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kvmodels import AsyncDatabase, Database, Field, Index, Indexed, KvModel, PrimaryKey, Unique
from kvmodels.errors import (
    AlreadyExistsError,
    DoesNotExist,
    InvalidArgumentError,
    ModelDefinitionError,
    StaleObjectError,
    UniqueViolationError,
)
from tests.kv.stores import Clock
from tests.oracle import audit, read_engine, spec_of


class User(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str] = Field(default="red")
    note: str = ""

    class Meta:
        indexes = (Index("color", "-id", name="copied", store="record"),)


class Session(KvModel, collection="sessions"):
    id: PrimaryKey[int]
    token: Unique[str]
    note: str = ""

    class Meta:
        ttl = timedelta(minutes=1)


@dataclass
class Expiring:
    """An open database with a clock that a test moves."""

    db: Database
    clock: Clock

    @property
    def users(self) -> Any:
        return self.db[User]

    @property
    def sessions(self) -> Any:
        return self.db[Session]

    def pass_by(self, seconds: float) -> None:
        self.clock.ms += round(seconds * 1_000)

    def sweep(self, limit: int = 1_000) -> int:
        return self.db._engine.sweep(limit)

    def require_whole(self) -> None:
        """Visible records are whole, for the oracle and for db.check; every entry has the deadline of its record."""
        assert audit(read_engine(self.db._engine), [spec_of(User), spec_of(Session)]) == []
        assert self.db.check().ok

    def stored(self) -> int:
        """Rows of records and entries, the expired ones included."""
        entries = read_engine(self.db._engine, include_expired=True)
        return len([entry for entry in entries if entry.key[0] != "__kvmodels__"])


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def at(request: pytest.FixtureRequest, url_of: Callable[..., str]) -> Iterator[Expiring]:
    clock = Clock()
    db = Database(url_of(request.param), models=[User, Session], clock=clock, durability="relaxed")
    yield Expiring(db, clock)
    db.close()


def moment(clock: Clock, seconds: float = 0) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=clock.ms + round(seconds * 1_000))


def add(at: Expiring, number: int = 1, **options: Any) -> User:
    user: User = at.users.create(id=number, email=f"{number}@x.org", **options)
    return user


def test_K24_the_deadline_of_a_record_can_be_read(at):
    add(at, 1, expire_in=0.5)
    user = add(at, 2)
    assert at.users.expires_at(1) == moment(at.clock, 0.5)
    assert at.users.expires_at(user) is None
    with pytest.raises(DoesNotExist):
        at.users.expires_at(3)
    at.pass_by(0.5)
    with pytest.raises(User.DoesNotExist):
        at.users.expires_at(1)


def test_K24_an_object_is_asked_for_by_its_key(at):
    user = add(at, 1, expire_in=10)
    at.users.patch(1, expire_in=20)
    assert at.users.expires_at(user) == moment(at.clock, 20)
    assert at.users.expires_at(User(id=1, email="never stored")) == moment(at.clock, 20)


def test_a_deadline_that_no_datetime_can_hold_is_the_last_one(at):
    add(at, 1, expire_in=2**53 / 1_000 - 2e9)
    assert at.users.expires_at(1) == datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "change",
    [
        lambda users, user: users.patch(1, note="changed"),
        lambda users, user: users.patch(1, email="new@x.org", color="blue"),
        lambda users, user: users.save(user.model_copy(update={"color": "green"})),
        lambda users, user: users.save(user.model_copy(update={"note": "forced"}), force=True),
        lambda users, user: users.save(User(id=1, email="1@x.org", note="never loaded"), force=True),
        lambda users, user: users.mutate(1, lambda one: setattr(one, "note", "mutated")),
        lambda users, user: users.mutate(1, lambda one: User(id=1, email="other@x.org")),
    ],
)
def test_K24_updates_carry_the_deadline_over(at, change):
    user = add(at, 1, expire_in=10)
    deadline = at.users.expires_at(1)
    at.pass_by(3)
    change(at.users, user)
    assert at.users.expires_at(1) == deadline
    at.require_whole()
    at.pass_by(7)
    assert at.users.get_or_none(1) is None
    at.require_whole()


@pytest.mark.parametrize("verb", ["patch", "save", "mutate"])
@pytest.mark.parametrize(("expire_in", "lives_at"), [(100, 50), (2, 1), (None, 10_000_000)])
def test_review_02_a_changed_deadline_changes_every_entry(at, verb, expire_in, lives_at):
    user = add(at, 1, expire_in=10)
    if verb == "patch":
        at.users.patch(1, expire_in=expire_in)
    elif verb == "save":
        at.users.save(user, expire_in=expire_in)
    else:
        at.users.mutate(1, lambda one: None, expire_in=expire_in)
    at.require_whole()
    at.pass_by(lives_at)
    at.require_whole()
    assert at.users.get(email="1@x.org").id == 1
    assert [one.id for one in at.users.filter(color="red")] == [1]
    with pytest.raises(UniqueViolationError):
        at.users.create(id=2, email="1@x.org")
    if expire_in is not None:
        at.pass_by(expire_in - lives_at)
        assert at.users.get_or_none(email="1@x.org") is None
        assert at.users.filter(color="red").count() == 0
        at.require_whole()


def test_review_02_a_record_and_its_entries_are_swept_together_in_whatever_batches(at):
    for number in range(10):
        add(at, number, expire_in=number % 3 + 1)
    add(at, 99)
    lasting = at.stored() // 11
    for second in range(1, 4):
        at.pass_by(1)
        while at.sweep(3):
            at.require_whole()
        assert [user.id for user in at.users.all()] == [n for n in range(10) if n % 3 + 1 > second] + [99]
    assert at.stored() == lasting


def test_review_02_an_extended_record_is_not_swept(at):
    add(at, 1, expire_in=1)
    at.users.patch(1, expire_in=10)
    at.pass_by(5)
    assert at.sweep() == 0
    at.require_whole()
    assert at.users.get(email="1@x.org").id == 1


def test_review_11_an_expired_unique_slot_is_taken_over_with_everything_of_its_owner(at):
    add(at, 1, expire_in=1)
    at.pass_by(1)
    user = at.users.create(id=2, email="1@x.org")
    at.require_whole()
    assert at.users.get(email="1@x.org").id == user.id
    assert at.sweep() == 0, "nothing of the old owner is left to sweep"
    at.clock.ms -= 10_000
    assert at.users.get_or_none(1) is None, "the clock of the engine does not go back"
    at.require_whole()


def test_review_11_a_slot_that_was_half_swept_is_taken_over(at):
    for limit in range(1, 5):
        add(at, limit, expire_in=1)
        at.pass_by(1)
        assert at.sweep(limit) == limit
        at.users.create(id=100 + limit, email=f"{limit}@x.org")
        at.require_whole()
        while at.sweep(1):
            at.require_whole()


def test_an_expired_record_is_gone_for_every_verb(at):
    user = add(at, 1, expire_in=1)
    at.pass_by(1)
    for call in (
        lambda: at.users.get(1),
        lambda: at.users.patch(1, note="x"),
        lambda: at.users.refresh(user),
    ):
        with pytest.raises(DoesNotExist):
            call()
    with pytest.raises(StaleObjectError):
        at.users.save(user)
    assert at.users.remove(1) is False
    assert at.users.in_bulk([1]) == {}
    assert at.users.all().count() == 0


def test_an_expired_record_can_be_created_again_and_lives_for_ever(at):
    add(at, 1, expire_in=1)
    with pytest.raises(AlreadyExistsError):
        add(at, 1)
    at.pass_by(1)
    add(at, 1)
    assert at.users.expires_at(1) is None
    assert at.sweep() == 0
    at.require_whole()


# What the model declares


def test_a_declared_lifetime_is_that_of_every_new_record(at):
    made = [
        at.sessions.create(id=1, token="a"),
        at.sessions.insert(Session(id=2, token="b")),
        at.sessions.save(Session(id=3, token="c")),
        at.sessions.save(Session(id=4, token="d"), force=True),
        at.sessions.get_or_create(id=5, defaults={"token": "e"})[0],
        at.sessions.bulk_create([Session(id=6, token="f")])[0].obj,
        at.sessions.bulk_create([Session(id=7, token="g")], on_conflict="ignore")[0].obj,
    ]
    assert {at.sessions.expires_at(one) for one in made} == {moment(at.clock, 60)}
    at.require_whole()
    at.pass_by(60)
    assert at.sessions.all().count() == 0


def test_a_lifetime_that_is_given_wins_over_the_declared_one(at):
    at.sessions.create(id=1, token="a", expire_in=5)
    at.sessions.create(id=2, token="b", expire_in=None)
    at.sessions.bulk_create([Session(id=3, token="c")], expire_in=None)
    assert [at.sessions.expires_at(one) for one in (1, 2, 3)] == [moment(at.clock, 5), None, None]


def test_an_update_does_not_begin_a_declared_lifetime_anew(at):
    session = at.sessions.create(id=1, token="a")
    at.pass_by(20)
    at.sessions.patch(1, note="x")
    at.sessions.save(Session(id=1, token="a"), force=True)
    assert at.sessions.expires_at(session) == moment(at.clock, 40)
    at.sessions.patch(1, expire_in=None)
    at.sessions.patch(1, note="y")
    assert at.sessions.expires_at(session) is None


def test_a_forced_save_over_an_expired_record_makes_a_new_one(at):
    at.sessions.create(id=1, token="a", expire_in=1)
    at.pass_by(1)
    at.sessions.save(Session(id=1, token="a"), force=True)
    assert at.sessions.expires_at(1) == moment(at.clock, 60)
    at.require_whole()


def test_a_lifetime_is_inherited_from_an_abstract_parent_and_may_be_ended():
    class Base(KvModel, abstract=True):
        class Meta:
            ttl = 0.5

    class Short(Base):
        id: PrimaryKey[int]

    class Lasting(Base):
        id: PrimaryKey[int]

        class Meta:
            ttl = None

    with Database("memory://", models=[Short, Lasting], clock=Clock()) as db:
        assert db[Short].expires_at(db[Short].create(id=1)) == moment(Clock(), 0.5)
        assert db[Lasting].expires_at(db[Lasting].create(id=1)) is None


@pytest.mark.parametrize("ttl", [0, -1, True, "1h", float("nan"), float("inf"), timedelta(0), timedelta.max])
def test_a_declared_lifetime_is_a_positive_number_of_seconds(ttl):
    lifetime = ttl
    with pytest.raises(ModelDefinitionError) as caught:

        class Wrong(KvModel):
            id: PrimaryKey[int]

            class Meta:
                ttl = lifetime

    assert caught.value.option == "ttl"


def test_a_lifetime_that_makes_no_sense_writes_nothing(at):
    with pytest.raises(InvalidArgumentError):
        add(at, 1, expire_in=-1)
    assert at.stored() == 0


def test_random_lives_agree_with_a_mapping_beside_the_sweep(at):
    chance = random.Random(2_411)
    alive: dict[int, int | None] = {}

    def lifetime() -> Any:
        return chance.choice([None, 0.001, 0.01, 0.1])

    for _ in range(300):
        number = chance.randrange(6)
        present = number in alive
        kind = chance.randrange(6)
        expire_in = lifetime()
        deadline = None if expire_in is None else at.clock.ms + round(expire_in * 1_000)
        if kind == 0 and not present:
            add(at, number, expire_in=expire_in)
            alive[number] = deadline
        elif kind == 1 and present:
            at.users.patch(number, color=chance.choice(["red", "blue"]))
        elif kind == 2 and present:
            at.users.patch(number, expire_in=expire_in, note=str(chance.random()))
            alive[number] = deadline
        elif kind == 3:
            assert at.users.remove(number) is present
            alive.pop(number, None)
        elif kind == 4:
            at.clock.ms += chance.randrange(20)
        else:
            at.sweep(chance.randrange(1, 6))
        alive = {one: end for one, end in alive.items() if end is None or end > at.clock.ms}
        assert [user.id for user in at.users.all()] == sorted(alive)
    at.require_whole()
    at.pass_by(1)
    while at.sweep(7):
        at.require_whole()
    assert [user.id for user in at.users.all()] == sorted(one for one, end in alive.items() if end is None)


async def test_the_asynchronous_repository_says_and_changes_deadlines_too():
    clock = Clock()
    async with AsyncDatabase("memory://", models=[Session], clock=clock) as db:
        sessions = db[Session]
        session = await sessions.create(id=1, token="a")
        assert await sessions.expires_at(session) == moment(clock, 60)
        await sessions.patch(1, expire_in=None)
        assert await sessions.expires_at(1) is None


def test_get_or_create_gives_a_new_record_a_deadline_and_leaves_that_of_a_stored_one(at):
    _, created = at.users.get_or_create(id=1, defaults={"email": "1@x.org"}, expire_in=10)
    assert (created, at.users.expires_at(1)) == (True, moment(at.clock, 10))
    _, created = at.users.get_or_create(email="1@x.org", defaults={"id": 1}, expire_in=99)
    assert (created, at.users.expires_at(1)) == (False, moment(at.clock, 10))
    session, _ = at.db[Session].get_or_create(id=1, defaults={"token": "t"}, expire_in=None)
    assert at.db[Session].expires_at(session) is None
    at.pass_by(10)
    assert at.users.get_or_create(id=1, defaults={"email": "1@x.org"}, expire_in=timedelta(seconds=5))[1]
    assert at.users.expires_at(1) == moment(at.clock, 5)
    at.require_whole()


def test_update_or_create_sets_keeps_and_clears_the_deadline(at):
    steps: list[tuple[dict[str, Any], float | None]] = [({"expire_in": 10}, 10), ({}, 10), ({"expire_in": 30}, 30)]
    for number, (options, seconds) in enumerate([*steps, ({"expire_in": None}, None)]):
        user, created = at.users.update_or_create(id=1, defaults={"email": f"{number}@x.org"}, **options)
        assert (user.email, created) == (f"{number}@x.org", number == 0)
        assert at.users.expires_at(1) == (None if seconds is None else moment(at.clock, seconds))
        at.require_whole()
    for verb in (at.users.get_or_create, at.users.update_or_create):
        with pytest.raises(InvalidArgumentError):
            verb(id=2, defaults={"email": "2@x.org"}, expire_in=-1)
    assert at.users.count() == 1


async def test_the_asynchronous_api_creates_with_a_deadline():
    async with AsyncDatabase("memory://", models=[User], clock=lambda: 1_000) as db:
        await db[User].get_or_create(id=1, defaults={"email": "1@x.org"}, expire_in=1)
        await db[User].update_or_create(id=2, defaults={"email": "2@x.org"}, expire_in=2)
        found = [await db[User].expires_at(key) for key in (1, 2)]
        assert [at and at.timestamp() for at in found] == [2, 3]
