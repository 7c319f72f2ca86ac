"""Signals: who is called, in which order, for which models, and what is refused."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    Field,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    Unique,
    UniqueViolationError,
)
from kvmodels.schema.declare.on_write import HOOK_NAMES
from tests.hooks.models import Page, Plain


class Base(KvModel, abstract=True):
    id: PrimaryKey[int]
    n: int = 0


class Left(Base, collection="left"):
    pass


class Right(Base, collection="right"):
    pass


class Deep(Left, collection="deep"):
    pass


@pytest.fixture
def db() -> Iterator[Database]:
    Page.heard.clear()
    with Database("memory://", models=[Left, Right, Deep, Page, Plain]) as opened:
        yield opened


def test_every_signal_is_sent_with_its_arguments(db: Database):
    calls: list[tuple[Any, ...]] = []
    for name in HOOK_NAMES:
        getattr(db.signals, name).connect(lambda *objs, name=name: calls.append((name, *[o.n for o in objs])), Left)
    db[Left].create(id=1, n=1)
    db[Left].patch(1, n=2)
    db[Left].remove(1)
    assert calls == [
        ("before_insert", 1),
        ("after_insert", 1),
        ("before_update", 2, 1),
        ("after_update", 2, 1),
        ("before_remove", 2),
        ("after_remove", 2),
    ]


def test_receivers_run_after_the_method_in_the_order_in_which_they_were_connected(db: Database):
    def receiver(name: str, page: Page) -> None:
        page.slug += name

    receivers = [partial(receiver, name) for name in "abc"]
    for one in receivers:
        db.signals.before_insert.connect(one, Page)
    db.signals.before_insert.connect(receivers[0], Page)  # is connected already, and keeps its place
    assert db[Page].create(id=1, title="X").slug == "xabc"


def test_receivers_of_a_base_class_hear_of_its_subclasses_and_those_of_none_of_every_model(db: Database):
    calls: list[str] = []

    @db.signals.after_insert(Base)
    def of_base(one: Base) -> None:
        calls.append(f"base {type(one).__name__}")

    @db.signals.after_insert(Left, Right)
    def of_two(one: Base) -> None:
        calls.append(f"two {type(one).__name__}")

    @db.signals.after_insert.connect
    def of_all(one: KvModel) -> None:
        calls.append(f"all {type(one).__name__}")

    db[Left].create(id=1)
    db[Deep].create(id=1)
    db[Plain].create(id=1)
    assert calls == ["base Left", "two Left", "all Left", "base Deep", "two Deep", "all Deep", "all Plain"]
    assert of_two(Left(id=5)) is None  # the decorator gives the function back


def test_a_function_that_hears_of_a_model_twice_is_called_once(db: Database):
    calls: list[Any] = []
    db.signals.after_insert.connect(calls.append, Base)
    db.signals.after_insert.connect(calls.append, Left)
    db[Left].create(id=1)
    assert len(calls) == 1


def test_disconnect_takes_a_function_away_for_all_models_or_for_some(db: Database):
    calls: list[Any] = []
    signal = db.signals.after_insert
    signal.connect(calls.append, Left, Right)
    assert signal.disconnect(calls.append, Left)
    assert not signal.disconnect(calls.append, Left)
    db[Left].create(id=1)
    db[Right].create(id=1)
    assert [type(one) for one in calls] == [Right]
    assert signal.disconnect(calls.append)
    assert not signal.disconnect(calls.append)
    assert not db.signals.after_update.disconnect(print)
    db[Right].create(id=2)
    assert len(calls) == 1


def test_a_receiver_is_held_and_its_handle_alone_sends_to_it(db: Database):
    calls: list[int] = []

    def connect() -> None:
        def local(one: Left) -> None:
            calls.append(one.id)

        db.signals.after_insert.connect(local, Left)

    connect()
    gc.collect()
    with Database("memory://", models=[Left]) as other:
        other[Left].create(id=7)
    db[Left].create(id=8)
    assert calls == [8]


def test_connecting_takes_effect_for_the_next_write(db: Database):
    db[Left].create(id=1)

    @db.signals.before_update(Left)
    def double(one: Left, old: Left) -> None:
        one.n = old.n * 2 + 1

    assert db[Left].patch(1, n=5).n == 1
    db.signals.before_update.disconnect(double)
    assert db[Left].patch(1, n=5).n == 5


def test_an_exception_of_a_receiver_before_the_write_aborts_it(db: Database):
    @db.signals.before_insert(Left)
    def refuse(one: Left) -> None:
        raise PermissionError("no")

    with pytest.raises(PermissionError):
        db[Left].create(id=1)
    assert db[Left].count() == 0


def test_all_receivers_after_the_write_run_and_the_first_error_goes_on(db: Database):
    calls: list[str] = []

    def failing(name: str, one: Left) -> None:
        calls.append(name)
        raise RuntimeError(name)

    for name in ("a", "b"):
        db.signals.after_insert.connect(partial(failing, name), Left)
    db.signals.after_insert.connect(lambda one: calls.append("c"), Left)
    with pytest.raises(RuntimeError, match="a") as caught:
        db[Left].create(id=1)
    assert calls == ["a", "b", "c"]
    assert caught.value.__notes__ == [
        "kvmodels: the write was committed before this was raised",
        "kvmodels: after the commit this was raised too: RuntimeError('b')",
    ]
    assert db[Left].count() == 1


def test_a_receiver_may_write_with_the_same_database(db: Database):
    @db.signals.after_insert(Left)
    def mirror(one: Left) -> None:
        db[Right].create(id=one.id, n=one.n)

    db[Left].create(id=1, n=3)
    assert db[Right].get(1).n == 3


async def _waiting(one: KvModel) -> None: ...


class _Awaited:
    async def __call__(self, one: KvModel) -> None: ...


@pytest.mark.parametrize("receiver", [_waiting, partial(_waiting), _Awaited()])
def test_an_asynchronous_receiver_is_refused(db: Database, receiver: Any):
    with pytest.raises(InvalidArgumentError, match="asynchronous"):
        db.signals.after_insert.connect(receiver, Left)


@pytest.mark.parametrize("arguments", [(Left, print), ("x", Left), (print, "Left"), (print, int), (print, Left(id=1))])
def test_what_is_no_function_or_no_model_is_refused(db: Database, arguments: Any):
    with pytest.raises(InvalidArgumentError):
        db.signals.after_insert.connect(*arguments)


def test_signals_show_how_many_listen(db: Database):
    db.signals.after_insert.connect(print)
    assert "after_insert=1" in repr(db.signals)
    assert repr(db.signals.after_insert) == "<signal after_insert connections=1>"


def test_connections_of_several_threads_are_all_kept(db: Database):
    start = threading.Barrier(8)

    def connect(number: int) -> None:
        start.wait()
        for position in range(50):
            db.signals.after_insert.connect(partial(print, number, position), Left)

    threads = [threading.Thread(target=connect, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(db.signals.after_insert.connections) == 400


class Code(KvModel, collection="codes"):
    id: PrimaryKey[int]
    code: str = Field(default="")


async def test_receivers_of_an_asynchronous_database_are_connected_before_it_is_open():
    calls: list[int] = []
    db = AsyncDatabase("memory://", models=[Code])
    db.signals.after_insert.connect(lambda one: calls.append(one.id), Code)
    async with db:
        await db[Code].create(id=3)
    assert calls == [3]


def test_hooks_run_in_a_transaction_before_with_the_verb_and_after_with_the_commit(db: Database):
    calls: list[str] = []
    for name in HOOK_NAMES:
        getattr(db.signals, name).connect(lambda *objs, name=name: calls.append(name), Left)
    with db.transaction() as tx:
        one = tx[Left].create(id=1)
        tx[Left].patch(1, n=1)
        assert calls == ["before_insert", "before_update"]
        assert not one.is_persisted or one.versionstamp is None
        tx[Left].rename(1, 2)
        tx[Left].remove(2)
        calls.append("end")
    assert calls == [
        "before_insert",
        "before_update",
        "before_update",
        "before_remove",
        "end",
        "after_insert",
        "after_update",
        "after_update",
        "after_remove",
    ]
    calls.clear()
    with pytest.raises(ZeroDivisionError), db.transaction() as tx:
        tx[Left].create(id=5)
        raise ZeroDivisionError
    assert calls == ["before_insert"]


def test_an_error_of_a_hook_in_a_transaction_aborts_it(db: Database):
    @db.signals.before_insert(Right)
    def refuse(one: Right) -> None:
        raise PermissionError("no")

    with pytest.raises(PermissionError), db.transaction() as tx:
        tx[Left].create(id=1)
        tx[Right].create(id=1)
    assert db[Left].count() == 0


def test_a_write_that_violates_a_unique_index_sends_nothing_after_it():
    class Key(KvModel, collection="keys"):
        id: PrimaryKey[int]
        name: Unique[str]

    with Database("memory://", models=[Key]) as db:
        calls: list[Any] = []
        db.signals.after_insert.connect(calls.append, Key)
        db[Key].create(id=1, name="a")
        with pytest.raises(UniqueViolationError):
            db[Key].create(id=2, name="a")
        assert len(calls) == 1
