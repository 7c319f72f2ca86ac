"""Change a record or create it: the race of many callers, and what a bulk insert does with records that exist."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import field_validator

from kvmodels import (
    AlreadyExistsError,
    Database,
    F,
    Field,
    Index,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    PrimaryKeyChangedError,
    Unique,
    UniqueViolationError,
    UnknownFieldError,
    Version,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.bulk.options_and_results import BulkItem, BulkProgress
from kvmodels.testing.watched_engine import CallCounts, EngineScript, WatchedEngine


class Account(KvModel, collection="accounts"):
    id: PrimaryKey[int]
    email: Unique[str]
    name: str = ""
    n: int = 0
    revision: int = Version()

    class Meta:
        indexes = (Index("name", "-n"),)


def accounts_db(**options: Any) -> Database:
    return Database("memory://", models=[Account], **options)


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Return the results or errors of calls that threads make at one moment."""
    barrier = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def call(position: int) -> None:
        barrier.wait()
        try:
            results[position] = calls[position]()
        except Exception as error:  # noqa: BLE001 - a call may raise anything; the test looks at it
            results[position] = error

    threads = [threading.Thread(target=call, args=(position,)) for position in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("lookup", ["id", "email"])
@pytest.mark.parametrize("engine", ["memory", "sqlite", "lmdb"])
def test_K19_five_of_five_concurrent_upserts_succeed(lookup: str, engine: str, url_of):
    with Database(url_of(engine), models=[Account]) as db:
        accounts = db[Account]
        by: dict[str, Any] = {"id": 1} if lookup == "id" else {"email": "a@x"}
        rest = {name: value for name, value in {"id": 1, "email": "a@x", "n": 1}.items() if name not in by}

        def upsert() -> tuple[Account, bool]:
            return accounts.update_or_create(defaults={"n": F("n") + 1}, create_defaults=rest, **by)

        results = at_once(*[upsert] * 5)
        errors = [result for result in results if isinstance(result, Exception)]
        assert not errors, errors
        assert sorted(created for _, created in results) == [False] * 4 + [True]
        assert (accounts.get(1).n, accounts.get(1).revision) == (5, 5)
        assert db.check().ok


def test_the_changes_of_an_upsert_are_those_of_the_defaults():
    accounts = accounts_db()[Account]
    made, created = accounts.update_or_create(email="a@x", defaults={"id": 1, "name": "Ada"})
    assert (created, made.name) == (True, "Ada")
    changed, created = accounts.update_or_create(email="a@x", defaults={"id": 1, "name": "Bob"})
    assert (created, changed.name, changed.revision) == (False, "Bob", 2)
    moved, _ = accounts.update_or_create(email="a@x", defaults={"email": "b@x"})
    assert (moved.email, accounts.get(email="b@x").id) == ("b@x", 1)
    assert accounts.get_or_none(email="a@x") is None


def test_an_upsert_refuses_what_it_cannot_do():
    accounts = accounts_db()[Account]
    accounts.create(id=1, email="a@x")
    accounts.create(id=2, email="b@x")
    with pytest.raises(InvalidArgumentError):
        accounts.update_or_create(name="Ada", defaults={"n": 1})
    with pytest.raises(InvalidArgumentError):
        accounts.update_or_create(id=3, defaults={"n": F("n") + 1})
    with pytest.raises(UnknownFieldError):
        accounts.update_or_create(id=1, defaults={"m": 1})
    with pytest.raises(UnknownFieldError):
        accounts.update_or_create(id=1, defaults={"n": F("m") + 1}, create_defaults={})
    with pytest.raises(UniqueViolationError):
        accounts.update_or_create(id=1, defaults={"email": "b@x"})
    with pytest.raises(UniqueViolationError):
        accounts.update_or_create(id=3, defaults={"email": "b@x"})
    with pytest.raises(AlreadyExistsError):
        accounts.update_or_create(email="c@x", defaults={"id": 2})
    with pytest.raises(PrimaryKeyChangedError):
        accounts.update_or_create(email="a@x", defaults={"id": 7})
    assert [(one.id, one.email, one.revision) for one in accounts] == [(1, "a@x", 1), (2, "b@x", 1)]


def test_an_upsert_in_a_transaction_reads_what_the_transaction_wrote():
    db = accounts_db()
    with db.transaction() as tx:
        _, first = tx[Account].update_or_create(email="a@x", defaults={"id": 1, "n": 1})
        _, second = tx[Account].update_or_create(email="a@x", defaults={"n": F("n") + 10}, create_defaults={})
    assert (first, second) == (True, False)
    assert db[Account].get(1).n == 11


def outcome(items: Sequence[BulkItem[Account]]) -> list[str]:
    return ["created" if item.created else "failed" if item.error else "overwritten" for item in items]


@pytest.mark.parametrize("batch_size", [None, 1, 2, 100])
def test_bulk_create_overwrites_the_records_of_the_same_primary_keys(batch_size: int | None):
    db = accounts_db()
    accounts = db[Account]
    accounts.bulk_create([Account(id=number, email=f"{number}@x", name="old") for number in (1, 3)])
    objects = [Account(id=number, email=f"{number}@y", name="new", n=number) for number in range(1, 5)]
    told: list[BulkProgress] = []
    items = accounts.bulk_create(objects, on_conflict="update", batch_size=batch_size, progress=told.append)
    batches = -(-4 // (batch_size or 4))
    assert told[-1] == BulkProgress(4, 4, batches, total=4)
    assert len(told) == batches
    assert outcome(items) == ["overwritten", "created", "overwritten", "created"]
    assert [item.obj for item in items] == objects == accounts.to_list()
    assert [one.revision for one in objects] == [2, 1, 2, 1]
    objects[0].n = 50
    accounts.save(objects[0])
    assert accounts.get(1).n == 50
    assert db.check().ok


def test_bulk_create_moves_unique_values_between_the_records_that_it_overwrites():
    db = accounts_db()
    accounts = db[Account]
    accounts.bulk_create([Account(id=number, email=f"{number}@x") for number in (1, 2)])
    accounts.bulk_create([Account(id=1, email="2@x"), Account(id=2, email="1@x")], on_conflict="update")
    assert accounts.get(email="2@x").id == 1
    assert db.check().ok


def test_bulk_create_with_update_raises_where_another_record_has_a_unique_value():
    accounts = accounts_db()[Account]
    accounts.create(id=9, email="9@x")
    objects = [Account(id=1, email="1@x"), Account(id=2, email="9@x")]
    with pytest.raises(UniqueViolationError) as raised:
        accounts.bulk_create(objects, on_conflict="update")
    assert (raised.value.position, raised.value.committed, raised.value.existing_key) == (1, 0, 9)
    assert accounts.count() == 1


def test_bulk_create_with_update_refuses_a_primary_key_twice():
    accounts = accounts_db()[Account]
    objects = [Account(id=number % 2, email=f"{number}@x") for number in range(3)]
    with pytest.raises(InvalidArgumentError):
        accounts.bulk_create(objects, on_conflict="update", batch_size=1)
    assert accounts.count() == 0


def test_there_are_no_batches_in_a_transaction():
    db = accounts_db()
    with db.transaction() as tx:
        with pytest.raises(InvalidArgumentError):
            tx[Account].bulk_create([Account(id=1, email="1@x")], batch_size=1)
        with pytest.raises(InvalidArgumentError):
            tx[Account].bulk_create([Account(id=1, email="1@x")], progress=print)
        items = tx[Account].bulk_create([Account(id=1, email="1@x", n=1)])
        again = tx[Account].bulk_create([Account(id=1, email="1@x", n=2)], on_conflict="update")
    assert outcome([*items, *again]) == ["created", "overwritten"]
    assert (db[Account].get(1).n, db[Account].get(1).revision) == (2, 1)


class Slugged(KvModel, collection="slugged"):
    id: PrimaryKey[int]
    slug: Unique[str] = Field(default="")

    def before_insert(self) -> None:
        self.slug = f"s{self.id // 2}"


def test_ignored_conflicts_are_those_of_what_hooks_have_made():
    db = Database("memory://", models=[Slugged])
    items = db[Slugged].bulk_create([Slugged(id=number) for number in range(5)], on_conflict="ignore")
    assert [item.created for item in items] == [True, False, True, False, True]
    db[Slugged].remove(2)
    items = db[Slugged].bulk_create([Slugged(id=number) for number in (1, 3, 5)], on_conflict="ignore")
    assert [item.created for item in items] == [False, True, False]
    assert db.check().ok


class Announced(KvModel, collection="announced"):
    id: PrimaryKey[int]
    mail: Unique[str]

    def after_insert(self) -> None:
        raise AlreadyExistsError("told already", model="Announced", key=self.id)


@pytest.mark.parametrize("verb", ["get_or_create", "update_or_create"])
def test_what_a_hook_raises_after_the_commit_is_not_taken_for_a_race(verb: str):
    db = Database("memory://", models=[Announced])
    with pytest.raises(AlreadyExistsError) as raised:
        getattr(db[Announced], verb)(id=1, defaults={"mail": "a"})
    assert "kvmodels: the write was committed before this was raised" in raised.value.__notes__
    assert db[Announced].get(1).mail == "a"


class Named(KvModel, collection="named"):
    """Its own validator changes a key, which no type of a field shows."""

    id: PrimaryKey[str]
    name: Unique[str]
    kind: str = "a"
    n: int = 0

    @field_validator("id", "name")
    @classmethod
    def lower(cls, value: str) -> str:
        return value.lower()


class Tidied(KvModel, collection="tidied"):
    """Its hook changes a unique value."""

    id: PrimaryKey[int]
    name: Unique[str]
    n: int = 0

    def before_insert(self) -> None:
        self.name = self.name.lower()


def test_an_upsert_by_a_value_that_the_class_changes_finds_the_record_of_the_changed_value():
    with Database("memory://", models=[Named]) as db:
        rows = db[Named]
        rows.create(id="A", name="ADA")
        assert rows.get_or_create(name="ADA", defaults={"id": "q"})[0].id == "a"
        assert rows.get_or_create(id="A", defaults={"name": "q"})[0].name == "ada"
        changed, created = rows.update_or_create(name="ADA", defaults={"n": 2}, create_defaults={"id": "q"})
        assert (changed.id, changed.n, created, rows.count()) == ("a", 2, False, 1)
        assert rows.update_or_create(id="B", defaults={"name": "BOB"})[1] is True


def test_an_upsert_by_a_value_that_a_hook_changes_finds_the_record_that_is_in_the_way():
    with Database("memory://", models=[Tidied]) as db:
        rows = db[Tidied]
        rows.create(id=1, name="ADA")
        assert rows.get_or_create(name="ADA", defaults={"id": 2})[0].id == 1
        changed, created = rows.update_or_create(name="ADA", defaults={"n": 2}, create_defaults={"id": 2})
        assert (changed.id, changed.n, created, rows.count()) == (1, 2, False, 1)


@pytest.mark.parametrize("verb", ["get_or_create", "update_or_create"])
def test_a_record_that_has_the_key_and_differs_in_other_lookups_is_an_error_without_a_retry(verb: str):
    script = EngineScript()
    with Database.from_engine(WatchedEngine(MemoryEngine(), script, lossy=False), DatabaseCore([Named])) as db:
        rows = db[Named]
        rows.create(id="a", name="ada")
        script.calls = CallCounts()
        with pytest.raises(UniqueViolationError):
            getattr(rows, verb)(name="ada", kind="b", defaults={"id": "q"})
        with pytest.raises(AlreadyExistsError):
            getattr(rows, verb)(id="a", kind="b", defaults={"name": "q"})
        assert sum(script.calls) < 20  # 50 rounds would make more than 100
