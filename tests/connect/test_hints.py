"""Errors of a program over KV Connect: their hints name what is possible there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import create_model

from kvmodels import AggregateIndex, Database, Indexed, KvModel, OperationTooLargeError, PrimaryKey, Unique
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import EngineError, InvalidArgumentError, KvModelsError, UnsupportedError, ValueTooLargeError
from tests.connect.own_server import OwnServer
from tests.connect.scripted import ACCESS_TOKEN, ScriptedServer

KEYS = [("k", number) for number in range(11)]


class Person(KvModel, collection="people"):
    id: PrimaryKey[int]
    email: Unique[str]
    city: Indexed[str]


class Counted(KvModel, collection="counted"):
    id: PrimaryKey[int]
    city: str = ""

    class Meta:
        indexes = (AggregateIndex("city"),)


def with_unique_fields(number: int) -> Any:
    fields: Any = {f"u{n}": (Unique[str], f"{n}") for n in range(number)}
    return create_model(
        "Many", __base__=KvModel, __cls_kwargs__={"collection": "many"}, id=(PrimaryKey[int], ...), **fields
    )


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with ScriptedServer(MemoryEngine()) as server:
        server.max_checks, server.names_failed_checks = 10, False
        with Database(server.url, models=[Person, Counted], access_token=ACCESS_TOKEN) as opened:
            yield opened


def in_transaction(db: Database, records: int) -> None:
    with db.transaction() as tx:
        for number in range(records):
            tx[Person].create(id=number, email=f"{number}@x", city="Bern")


CASES: dict[str, tuple[Callable[[Database], object], type[KvModelsError], str]] = {
    "get_many": (lambda db: db.kv.get_many(KEYS), OperationTooLargeError, "several calls"),
    "watch of many": (lambda db: next(db.kv.watch(KEYS, timeout=0)), OperationTooLargeError, "several calls"),
    "watch of a prefix": (lambda db: next(db.kv.watch(prefix=("k",))), UnsupportedError, "kv.watch([...])"),
    "watch of records": (lambda db: next(db[Person].watch()), UnsupportedError, "kv.watch([...])"),
    "snapshot": (lambda db: db.kv.snapshot(), UnsupportedError, "kv.get_many()"),
    "dump": (lambda db: db.kv.dump("no.dump"), UnsupportedError, "docs/guides/engines.md"),
    "dump of models": (lambda db: db.dump("no.dump"), UnsupportedError, "docs/guides/engines.md"),
    "backup": (lambda db: db.kv.backup("no.backup"), UnsupportedError, "where it is served"),
    "record with deadline": (
        lambda db: db[Person].create(id=1, email="a", city="b", expire_in=5),
        UnsupportedError,
        "with a query",
    ),
    "bulk create": (
        lambda db: db[Person].bulk_create([Person(id=n, email=f"{n}", city="b") for n in range(9)]),
        OperationTooLargeError,
        "batch_size=",
    ),
    "transaction": (lambda db: in_transaction(db, 9), OperationTooLargeError, "Write fewer records"),
    "large value": (lambda db: db.kv.set(("k",), "x" * 65_536), ValueTooLargeError, "divide it into several"),
    "batch of a list": (lambda db: list(db.kv.list(("k",), batch_size=1001)), OperationTooLargeError, "batch_size"),
    "late message": (
        lambda db: db.kv.enqueue("m", delay=30 * 24 * 3600 + 0.001),
        InvalidArgumentError,
        "0 to 2.592e+06 seconds",
    ),
}


@pytest.mark.parametrize(("call", "error", "hint"), CASES.values(), ids=CASES)
def test_what_is_not_possible_is_refused_with_a_hint_that_helps_there(db, call, error, hint):
    before = list(db.kv.list(()))
    with pytest.raises(error) as caught:
        call(db)
    assert hint in str(caught.value.hint)
    assert list(db.kv.list(())) == before


def test_what_the_hints_advise_works(db):
    assert len(db.kv.get_many(KEYS[:10])) == 10
    assert len(next(db.kv.watch(KEYS[:10], timeout=60))) == 10
    people = [Person(id=n, email=f"{n}", city="b") for n in range(9)]
    assert len(db[Person].bulk_create(people, batch_size=4)) == 9
    assert db[Person].filter(city="b").delete().written == 9
    assert db.kv.enqueue("m", delay=30 * 24 * 3600).ok, "the longest delay"


def test_a_record_with_seven_unique_values_fits_ten_checks_and_one_with_eight_is_refused_with_this_number():
    for number, fits in ((7, True), (8, False)):
        model = with_unique_fields(number)
        with ScriptedServer(MemoryEngine()) as server:
            server.max_checks, server.names_failed_checks = 10, False
            with Database(server.url, models=[model], access_token=ACCESS_TOKEN) as db:
                if fits:
                    assert db[model].create(id=1).id == 1
                    continue
                with pytest.raises(OperationTooLargeError) as caught:
                    db[model].create(id=1)
                assert "seven unique values" in str(caught.value.hint)
                assert db[model].count() == 0


def test_a_wrong_token_says_who_has_the_right_one():
    with OwnServer("memory://hints") as server, pytest.raises(EngineError) as caught:
        Database(server.url, models=[Person], access_token="another-token")
    assert "the operator of the server" in str(caught.value.hint)
