"""Observers receive every finished operation: once, with its costs, and without any effect on it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kvmodels import (
    AggregateIndex,
    AlreadyExistsError,
    AsyncDatabase,
    Count,
    Database,
    DoesNotExist,
    FinishedOperation,
    Indexed,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    QueryLog,
    RetriesExhaustedError,
    TransactionConflictError,
    Unique,
    UniqueViolationError,
)
from kvmodels.runtime.observing import observation


class User(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    age: Indexed[int]

    class Meta:
        indexes = (AggregateIndex("age"),)


def users(*numbers: int) -> list[User]:
    return [User(id=number, email=f"{number}@x.org", age=number % 2) for number in numbers]


def opened(seen: list[FinishedOperation]) -> Database:
    """A database with five users, whose later operations are seen."""
    db = Database("memory://", models=[User])
    db[User].bulk_create(users(*range(5)))
    db.add_observer(seen.append)
    return db


def costs(one: FinishedOperation) -> tuple[Any, ...]:
    return one.verb, one.collection, one.indexes, one.reads, one.rows, one.commits


AGE = ("users.age",)
EMAIL = ("users.email",)

CALLS: list[tuple[Callable[[Database], object], tuple[Any, ...]]] = [
    (lambda db: db[User].get(1), ("get", "users", (), 1, 1, 0)),
    (lambda db: db[User].get(email="1@x.org"), ("get", "users", EMAIL, 1, 2, 0)),
    (lambda db: db[User].get_or_none(9), ("get_or_none", "users", (), 1, 0, 0)),
    (lambda db: db[User].in_bulk([1, 2, 9]), ("in_bulk", "users", (), 1, 2, 0)),
    (lambda db: db[User].create(id=5, email="5@x.org", age=5), ("insert", "users", (), 0, 0, 1)),
    (lambda db: db[User].mutate(1, lambda user: None), ("mutate", "users", (), 1, 1, 1)),
    (lambda db: db[User].remove(1), ("remove", "users", (), 1, 1, 1)),
    (lambda db: db[User].bulk_create(users(6, 7)), ("bulk_create", "users", (), 0, 0, 1)),
    (lambda db: db[User].filter(age=1).to_list(), ("to_list", "users", AGE, 1, 4, 0)),
    (lambda db: list(db[User].filter(age=1)), ("iterate", "users", AGE, 1, 4, 0)),
    (lambda db: db[User].filter(age=1).first(), ("first", "users", AGE, 1, 2, 0)),
    (lambda db: db[User].order_by("id").page(size=2), ("page", "users", (), 1, 3, 0)),
    (lambda db: db[User].filter(age__gte=1).count(), ("count", "users", ("users.age_totals",), 1, 1, 0)),
    (lambda db: db[User].filter(age=1).update(age=3), ("update", "users", AGE, 2, 4, 1)),
    (
        lambda db: db[User].group_by("age").aggregate(Count()).to_list(),
        ("group_by", "users", ("users.age_totals",), 1, 2, 0),
    ),
    (lambda db: db.kv.set(("a",), "secret"), ("commit", None, (), 0, 0, 1)),
    (lambda db: db.kv.get(("a",)), ("get", None, (), 1, 0, 0)),
    (lambda db: db.kv.namespace("n").set("a", b"b"), ("set", None, (), 0, 0, 1)),
    (lambda db: db.plan(), ("plan", None, (), 2, 6, 0)),
]


@pytest.mark.parametrize(("call", "expected"), CALLS, ids=[f"{row[1][0]}-{n}" for n, row in enumerate(CALLS)])
def test_a_call_is_one_operation_with_its_costs(call: Callable[[Database], object], expected: tuple[Any, ...]):
    seen: list[FinishedOperation] = []
    with opened(seen) as db:
        call(db)
    assert [costs(one) for one in seen] == [expected]
    assert seen[0].duration >= seen[0].waited >= 0
    assert seen[0].attempts == 1
    assert seen[0].error is None


def test_the_opening_is_an_operation_for_the_observer_of_the_constructor():
    seen: list[FinishedOperation] = []
    Database("memory://", models=[User], observer=seen.append).close()
    assert [(one.verb, one.commits) for one in seen] == [("open", 1)]


async def test_an_asynchronous_database_reports_the_same():
    sync_seen: list[FinishedOperation] = []
    with Database("memory://", models=[User], observer=sync_seen.append) as db:
        db[User].bulk_create(users(0, 1, 2))
        db[User].get(email="1@x.org")
        list(db[User].filter(age=0))
        with db.transaction() as tx:
            tx[User].filter(age=0).count()
            tx[User].remove(2)
        db.check()
        list(db.kv.list(prefix=()))
    seen: list[FinishedOperation] = []
    async with AsyncDatabase("memory://", models=[User], observer=seen.append) as adb:
        await adb[User].bulk_create(users(0, 1, 2))
        await adb[User].get(email="1@x.org")
        _ = [user async for user in adb[User].filter(age=0)]
        async with adb.transaction() as tx:
            await tx[User].filter(age=0).count()
            await tx[User].remove(2)
        await adb.check()
        _ = [entry async for entry in adb.kv.list(prefix=())]
    assert [costs(one) for one in seen] == [costs(one) for one in sync_seen]
    assert [one.batch_size for one in seen if one.batch_size] == [3]


def test_an_error_is_reported_with_its_code_and_raised():
    seen: list[FinishedOperation] = []
    with opened(seen) as db:
        with pytest.raises(DoesNotExist):
            db[User].get(99)
        with pytest.raises(UniqueViolationError):
            db[User].create(id=99, email="1@x.org", age=1)
        with pytest.raises(ZeroDivisionError):
            db[User].mutate(1, lambda user: setattr(user, "age", 1 // 0))
    assert [(one.error, one.code) for one in seen] == [
        ("DoesNotExist", "KV201"),
        ("UniqueViolationError", "KV302"),
        ("ZeroDivisionError", None),
    ]


def test_an_iteration_is_one_operation_also_if_it_ends_early():
    seen: list[FinishedOperation] = []
    with opened(seen) as db:
        db[User].bulk_create(users(*range(5, 1000)))
        numbers = iter(db[User].iterator(batch_size=100))
        for _ in range(150):
            next(numbers)
        assert len(seen) == 1
        numbers.close()  # type: ignore[attr-defined]
    assert [(one.verb, one.reads, one.error) for one in seen[1:]] == [("iterate", 2, None)]


async def test_a_cancelled_call_is_reported():
    seen: list[FinishedOperation] = []
    async with AsyncDatabase("memory://") as db:
        db.add_observer(seen.append)
        async with db.kv.lock("job"):
            waiting = asyncio.create_task(db.kv.lock("job").acquire())
            while not waiting.done() and len(seen) < 2:
                await asyncio.sleep(0)
                waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
    assert ("acquire", "CancelledError") in {(one.verb, one.error) for one in seen}


# --- transactions -------------------------------------------------------------------------------------------------


def test_a_transaction_is_an_operation_beside_those_of_its_methods():
    seen: list[FinishedOperation] = []
    with opened(seen) as db, db.transaction() as tx:
        user = tx[User].get(1)
        user.age = 9
        tx[User].save(user)
        tx.kv.set(("seen",), 1)
    assert [(one.verb, one.in_transaction, one.commits) for one in seen] == [
        ("get", True, 0),
        ("save", True, 0),
        ("set", True, 0),
        ("transaction", False, 1),
    ]


def test_a_transaction_that_fails_is_reported_once():
    seen: list[FinishedOperation] = []
    with opened(seen) as db:
        with pytest.raises(TransactionConflictError), db.transaction() as tx:
            tx[User].save(tx[User].get(1))
            db[User].mutate(1, lambda user: setattr(user, "age", 7))
        with pytest.raises(KeyError), db.transaction():
            raise KeyError
    ended = [one for one in seen if one.verb == "transaction"]
    assert [(one.error, one.code, one.conflicts, one.commits) for one in ended] == [
        ("TransactionConflictError", "KV404", 1, 0),
        ("KeyError", None, 0, 0),
    ]


def test_the_runs_of_a_function_are_the_attempts_of_one_operation():
    seen: list[FinishedOperation] = []
    with opened(seen) as db:

        @db.transactional()
        def older(tx: Any, defeats: list[int]) -> None:
            user = tx[User].get(1)
            user.age += 1
            if defeats:
                db[User].mutate(1, lambda other: setattr(other, "age", defeats.pop()))
            tx[User].save(user)

        older([10, 20])
        with db.transaction() as outer:
            older([])  # joins it
            assert outer[User].get(1).age == 12
    first, second = [one for one in seen if one.verb == "transaction"]
    assert (first.attempts, first.conflicts, first.commits, first.error) == (3, 2, 1, None)
    assert (second.attempts, second.conflicts, second.commits) == (1, 0, 1)
    begins = [one.started for one in first.retries]
    assert begins == sorted(begins)
    assert begins[-1] + first.retries[-1].duration <= first.duration


def test_a_function_that_is_beaten_every_time_reports_all_its_conflicts():
    seen: list[FinishedOperation] = []
    with opened(seen) as db:

        @db.transactional(retries=2)
        def beaten(tx: Any) -> None:
            tx[User].save(tx[User].get(1))
            db[User].mutate(1, lambda user: setattr(user, "age", user.age + 1))

        with pytest.raises(RetriesExhaustedError):
            beaten()
    (ended,) = (one for one in seen if one.verb == "transaction")
    assert (ended.attempts, ended.conflicts, ended.error) == (3, 3, "RetriesExhaustedError")


def test_the_retry_of_a_single_write_is_an_attempt():
    seen: list[FinishedOperation] = []
    with opened(seen) as db:
        rivals = iter([True])

        def change(user: User) -> None:
            if next(rivals, False):
                db[User].mutate(1, lambda other: setattr(other, "age", 5))
            user.age += 1

        db[User].mutate(1, change)
    rival, ended = seen
    assert (rival.attempts, ended.attempts, ended.conflicts, ended.commits) == (1, 2, 1, 1)


# --- queues -------------------------------------------------------------------------------------------------------


def test_a_listener_reports_messages_and_no_look_at_an_empty_queue():
    seen: list[FinishedOperation] = []
    done = threading.Event()
    with Database("memory://") as db:
        db.add_observer(seen.append)
        with db.kv.listen(lambda message: done.set()):
            db.kv.enqueue({"to": "ada"})
            assert done.wait(60)
    assert sorted(one.verb for one in seen) == ["acknowledge", "enqueue", "take"]


# --- observers ----------------------------------------------------------------------------------------------------


def test_without_observers_nothing_is_made_and_nothing_is_called(monkeypatch: pytest.MonkeyPatch):
    seen: list[FinishedOperation] = []
    with opened(seen) as db:
        db.remove_observer(seen.append)  # another bound method: not the same object
        db._opening.reporters = ()

        def unexpected(*_: object, **__: object) -> None:
            raise AssertionError("something is observed")

        monkeypatch.setattr(observation.Observation, "__init__", unexpected)
        monkeypatch.setattr(observation.Observation, "through", unexpected)
        for call, _ in CALLS:
            call(db)
        with db.transaction() as tx:
            tx[User].get(2)
    assert seen == []


def test_an_observer_is_removed_by_the_object_that_was_added():
    seen: list[FinishedOperation] = []
    observer = seen.append
    with Database("memory://", observer=observer) as db:
        assert db.remove_observer(observer) is True
        assert db.remove_observer(observer) is False
        db.kv.get(("a",))
    assert [one.verb for one in seen] == ["open"]


@pytest.fixture
def failing() -> Callable[[FinishedOperation], None]:
    def fail(_: FinishedOperation) -> None:
        raise ZeroDivisionError

    return fail


def test_an_observer_that_fails_is_logged_once_and_changes_nothing(failing, caplog: pytest.LogCaptureFixture):
    seen: list[FinishedOperation] = []
    with caplog.at_level(logging.ERROR), Database("memory://", models=[User], observer=failing) as db:
        db.add_observer(seen.append)
        for user in users(1, 2, 3):
            db[User].insert(user)
        with pytest.raises(DoesNotExist):
            db[User].get(9)
    assert [record.name for record in caplog.records] == ["kvmodels.observer"]
    assert [one.verb for one in seen] == ["insert"] * 3 + ["get"]


async def awaited(_: FinishedOperation) -> None: ...


@pytest.mark.parametrize("observer", [1, "log", awaited])
def test_an_observer_that_cannot_be_called_is_refused_before_the_store_is_opened(observer, tmp_path):
    with pytest.raises(InvalidArgumentError, match="plain function"):
        Database(tmp_path / "a.db", observer=observer)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("as_argument", [True, False])
def test_the_class_of_an_observer_is_refused(as_argument: bool):
    observer: Any = QueryLog
    with pytest.raises(InvalidArgumentError, match=r"a class instead of an object.*QueryLog\(\)"):
        if as_argument:
            Database("memory://", observer=observer)
        else:
            Database("memory://").add_observer(observer)


def test_an_insert_of_a_taken_key_or_value_met_no_rival():
    seen: list[FinishedOperation] = []
    with opened(seen) as db:
        with pytest.raises(AlreadyExistsError):
            db[User].create(id=1, email="new", age=1)
        with pytest.raises(UniqueViolationError):
            db[User].create(id=77, email=db[User].get(1).email, age=1)
    failed = [one for one in seen if one.error is not None]
    assert [(one.verb, one.conflicts, one.attempts, one.commits) for one in failed] == [("insert", 0, 1, 0)] * 2


def test_observers_are_called_by_several_threads():
    seen: list[FinishedOperation] = []
    with opened(seen) as db:
        threads = [
            threading.Thread(target=lambda: [db[User].get(number % 5) for number in range(100)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [costs(one) for one in seen] == [("get", "users", (), 1, 1, 0)] * 400
