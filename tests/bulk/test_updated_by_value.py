"""``bulk_create(on_conflict="update", unique=...)``: a unique index decides which record an object overwrites."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from kvmodels import (
    ULID,
    AlreadyExistsError,
    AutoNowAdd,
    Database,
    Field,
    Indexed,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    Q,
    Unique,
    UniqueConstraint,
    UniqueViolationError,
    UnknownFieldError,
    Version,
)
from kvmodels.errors import CommitUnknownError, DoesNotExist, RetriesExhaustedError
from kvmodels.flows.bulk.unique_owners import UniqueOwners
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import FaultRates

MAIL = "abcdef"


class Contact(KvModel, collection="contacts"):
    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    email: Unique[str]
    phone: Unique[str | None] = Field(default=None)
    name: Indexed[str] = Field(default="")
    created: datetime = AutoNowAdd()
    version: int = Version()


class Seat(KvModel, collection="seats"):
    """A key of two fields, a constraint of two others, and one of some records only."""

    room: PrimaryKey[str]
    number: PrimaryKey[int] = Field(default=0)
    row: int
    place: int
    guest: str | None = None
    aliases: list[str] = Field(default_factory=list)

    class Meta:
        indexes = (
            UniqueConstraint("row", "place", name="position"),
            UniqueConstraint("aliases", name="aliases"),
            UniqueConstraint("guest", where=Q(place__gt=0), name="seated"),
        )


@pytest.mark.parametrize("engine", ["memory", "sqlite", "lmdb"])
def test_an_object_overwrites_the_record_with_its_value_and_gets_its_key(engine: str, url_of: Any):
    with Database(url_of(engine), models=[Contact]) as db:
        contacts = db[Contact]
        ada = contacts.create(email="ada", name="Ada", phone="1")
        given = [Contact(email="ada", name="Countess"), Contact(email="bob", name="Bob")]
        own = given[1].id
        items = contacts.bulk_create(given, on_conflict="update", unique=Contact.email)
        assert [(item.created, item.error) for item in items] == [(False, None), (True, None)]
        assert (given[0].id, given[1].id) == (ada.id, own)
        assert (given[0].created, given[0].version, given[0].phone) == (ada.created, 2, None)
        assert contacts.get(ada.id) == given[0] == contacts.get(email="ada")
        given[0].name = "Lovelace"
        contacts.save(given[0])  # its state is that of the record
        assert [one.name for one in contacts.order_by("name")] == ["Bob", "Lovelace"]
        assert contacts.get_or_none(phone="1") is None
        assert db.check().ok


def test_names_and_fields_stand_for_the_same_index():
    with Database("memory://", models=[Seat]) as db:
        seats = db[Seat]
        seats.create(room="a", number=1, row=1, place=1)
        names: list[Any] = ["position", ("row", "place"), [Seat.place, Seat.row]]
        for unique in names:
            (item,) = seats.bulk_create([Seat(room="b", row=1, place=1)], on_conflict="update", unique=unique)
            assert (item.created, item.obj.room, item.obj.number) == (False, "a", 1)
        assert seats.count() == 1


def test_records_outside_of_a_partial_index_are_inserted():
    with Database("memory://", models=[Seat]) as db:
        seats = db[Seat]
        seats.create(room="a", number=1, row=1, place=1, guest="x")
        objects = [
            Seat(room="b", number=1, row=2, place=2, guest="x"),
            Seat(room="b", number=2, row=3, place=0, guest="x"),
            Seat(room="b", number=3, row=4, place=-1, guest="x"),
            Seat(room="b", number=4, row=5, place=5),
            Seat(room="b", number=5, row=6, place=6),
        ]
        items = seats.bulk_create(objects, on_conflict="update", unique="seated")
        assert [item.created for item in items] == [False, True, True, True, True]
        assert objects[0].room == "a"
        assert db.check().ok


@pytest.mark.parametrize(
    ("options", "said", "error"),
    [
        ({"unique": Seat.row}, "no unique index has these fields", InvalidArgumentError),
        ({"unique": "position", "on_conflict": "ignore"}, "no record is overwritten", InvalidArgumentError),
        ({"unique": "aliases"}, "several values", InvalidArgumentError),
        ({"unique": "nowhere"}, "no field of this name", UnknownFieldError),
        ({"unique": Contact.email}, "another model", UnknownFieldError),
    ],
)
def test_an_index_that_names_no_record_is_refused(options: dict[str, Any], said: str, error: type[Exception]):
    with Database("memory://", models=[Seat, Contact]) as db:
        with pytest.raises(error, match=said):
            db[Seat].bulk_create([Seat(room="a", row=1, place=1)], **{"on_conflict": "update", **options})
        assert db[Seat].count() == 0


def test_what_is_in_the_way_besides_is_an_error_and_nothing_is_written():
    with Database("memory://", models=[Contact]) as db:
        contacts = db[Contact]
        ada = contacts.create(email="ada", phone="1")
        bob = contacts.create(email="bob", phone="2")
        by_email: dict[str, Any] = {"on_conflict": "update", "unique": Contact.email}
        with pytest.raises(AlreadyExistsError) as exists:
            contacts.bulk_create([Contact(email="new"), Contact(id=ada.id, email="other")], **by_email)
        assert (exists.value.key, exists.value.position) == (ada.id, 1)
        with pytest.raises(UniqueViolationError) as taken:
            contacts.bulk_create([Contact(email="ada", phone="2")], **by_email)
        assert (taken.value.index, taken.value.existing_key, taken.value.position) == ("phone", bob.id, 0)
        with pytest.raises(InvalidArgumentError, match="equal values of the unique index") as twice:
            contacts.bulk_create([Contact(email="x"), Contact(email="x")], **by_email)
        assert twice.value.value == "x"
        assert sorted(one.email for one in contacts) == ["ada", "bob"]


def test_in_a_transaction_own_writes_decide_too():
    with Database("memory://", models=[Contact]) as db:
        kept = db[Contact].create(email="a")
        with db.transaction() as tx:
            made = tx[Contact].create(email="b")
            tx[Contact].patch(kept.id, email="c")
            objects = [Contact(email="b", name="1"), Contact(email="c", name="2"), Contact(email="a", name="3")]
            items = tx[Contact].bulk_create(objects, on_conflict="update", unique=Contact.email)
            assert [item.created for item in items] == [False, False, True]
        assert [one.id for one in objects[:2]] == [made.id, kept.id]
        assert {one.email: one.name for one in db[Contact]} == {"a": "3", "b": "1", "c": "2"}
        assert db.check().ok


def test_a_resumed_write_is_named_by_values_and_not_by_keys_that_each_run_makes_anew():
    class Killed(BaseException):
        pass

    def die(progress: Any) -> None:
        if progress.batches == 2:
            raise Killed

    with Database("memory://", models=[Contact]) as db:
        db[Contact].create(email="c", name="old")

        def run(**options: Any) -> Any:
            objects = [Contact(email=letter, name="new") for letter in MAIL]
            return db[Contact].bulk_create(
                objects, on_conflict="update", unique="email", batch_size=2, resume_id="r", **options
            )

        with pytest.raises(Killed):
            run(progress=die)
        assert [item.created for item in run()] == [True, True, False, True, True, True]
        assert {one.email: one.name for one in db[Contact]} == dict.fromkeys(MAIL, "new")


# --- beside writers -----------------------------------------------------------------------------------------------


async def importer(process: Process, name: str) -> None:
    objects = [Contact(email=letter, name=name) for letter in MAIL[:4]]
    try:
        await process[Contact].bulk_create(objects, on_conflict="update", unique="email", batch_size=2)
    except (RetriesExhaustedError, CommitUnknownError):
        return
    for one in objects:
        found = await process[Contact].get_or_none(one.id)
        assert found is None or found.id == one.id


async def mover(process: Process, seed: int) -> None:
    """Removes contacts, and gives their addresses to others."""
    chance = random.Random(seed)
    for _ in range(5):
        try:
            found = await process[Contact].filter(email=chance.choice(MAIL)).first()
            if found is not None and chance.random() < 0.5:
                await process[Contact].remove(found.id)
            elif found is not None:
                await process[Contact].patch(found.id, email=chance.choice(MAIL), name="moved")
        except (UniqueViolationError, DoesNotExist, RetriesExhaustedError, CommitUnknownError):
            continue


def faults_of(seed: int) -> Iterator[str]:
    lossy = FaultRates(lose_answer=0.04, lose_request=0.04, repeat=0.04, echo=0.04, hold=0.04)
    test = Interleaving(seed, faults=lossy if seed % 2 else FaultRates())
    processes = [test.process(Contact) for _ in range(4)]
    test.at_once(processes[0][Contact].bulk_create([Contact(email=letter) for letter in MAIL[1:]]))
    test.add("first", importer(processes[0], "first"))
    test.add("second", importer(processes[1], "second"))
    test.add("mover", mover(processes[2], seed))
    test.run()
    records: list[Contact] = test.at_once(processes[3][Contact].to_list())
    if len({one.email for one in records}) != len(records):
        yield "two records have one address"
    if any(one.name == "moved" and one.version == 1 for one in records):
        yield "a new record was overwritten as one that had moved"
    report = test.at_once(processes[3].check())
    if not report.ok:
        yield str(report)


def test_beside_writers_each_value_has_one_record():
    assert not [(seed, *faults) for seed in range(12) if (faults := [*faults_of(seed)])]


def moved_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> tuple[bool, dict[str, str]]:
    """The result of an object whose record gets another value between the read and the commit of the write."""
    with Database("memory://moved", models=[Contact]) as db, Database("memory://moved", models=[Contact]) as other:
        ada = db[Contact].create(email="ada", name="Ada")
        looked = UniqueOwners.as_owner
        moved: list[str] = []

        def move_once(self: UniqueOwners, *args: Any) -> Any:
            if not moved:
                moved.append("moved")
                other[Contact].patch(ada.id, email="countess")
            return looked(self, *args)

        monkeypatch.setattr(UniqueOwners, "as_owner", move_once)
        (item,) = db[Contact].bulk_create([Contact(email="ada", name="new")], on_conflict="update", unique="email")
        return item.created, {one.email: one.name for one in db[Contact]}


def test_an_owner_is_looked_for_in_every_attempt(monkeypatch: pytest.MonkeyPatch):
    """A record that lost its value before the commit keeps what it has; the object becomes a record of its own."""
    assert moved_before_the_commit(monkeypatch) == (True, {"ada": "new", "countess": "Ada"})


def test_an_owner_of_an_earlier_attempt_would_lose_a_record(monkeypatch: pytest.MonkeyPatch):
    found: list[bytes | None] = []
    looked = UniqueOwners.owner

    def kept(self: UniqueOwners, *args: Any) -> bytes | None:
        if not found or found[-1] is None:
            found.append(looked(self, *args))
        return found[-1]

    monkeypatch.setattr(UniqueOwners, "owner", kept)
    assert moved_before_the_commit(monkeypatch) == (False, {"ada": "new"})
