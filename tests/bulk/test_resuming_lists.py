"""bulk_create and bulk_update with ``resume_id``: killed, resumed and repeated, each object is written exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import pytest

from kvmodels import (
    AggregateIndex,
    AlreadyExistsError,
    BulkItem,
    Database,
    Indexed,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    PrimaryKey,
    StaleObjectError,
    Unique,
    UniqueViolationError,
    Version,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.contract import Engine
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.bulk.options_and_results import BulkProgress, BulkResult
from kvmodels.flows.retry_policy import DEFAULT_RETRY
from tests.bulk.jobs import DyingEngine, Fate, Killed
from tests.bulk.test_lost_answers import FAULTS

COUNT = 7

Conflict = Literal["error", "ignore", "update"]


class Part(KvModel, collection="parts"):
    id: PrimaryKey[int]
    code: Unique[str]
    shelf: Indexed[int] = 0  # type: ignore[assignment]
    revision: int = Version()
    seen: ClassVar[list[str]] = []

    class Meta:
        indexes = (AggregateIndex("shelf", name="per_shelf"),)

    def before_insert(self) -> None:
        Part.seen.append(f"insert {self.id}")

    def before_update(self, old: Part) -> None:
        Part.seen.append(f"update {self.id}")


def opened(engine: Engine) -> Database:
    return Database.from_engine(
        engine, DatabaseCore((Part,), retry=DEFAULT_RETRY, readonly=False, must_be_current=False)
    )


def new_parts() -> list[Part]:
    return [Part(id=number, code=f"c{number}", shelf=number % 2) for number in range(COUNT)]


def rows(db: Database) -> list[tuple[int, str, int, int]]:
    return [(part.id, part.code, part.shelf, part.revision) for part in db[Part]]


def create(db: Database, on_conflict: Conflict, parts: Sequence[Part] | None = None, **options: Any) -> Any:
    options = dict[str, Any](batch_size=2, resume_id="load") | options
    return db[Part].bulk_create(new_parts() if parts is None else parts, on_conflict=on_conflict, **options)


def told(items: Sequence[BulkItem[Part]]) -> list[Any]:
    return [
        (item.obj.id, item.created, item.error and (type(item.error), str(item.error), item.error.position))
        for item in items
    ]


def move(db: Database, **options: Any) -> BulkResult:
    """As a program does it: load, change, store; what it has stored before the kill it changes once more."""
    loaded = db[Part].to_list()
    for part in loaded:
        part.shelf += 10
    return db[Part].bulk_update(loaded, **dict[str, Any](batch_size=2, resume_id="move") | options)


def in_the_way(store: Engine, on_conflict: Conflict) -> None:
    """Records that the list meets: one with its primary key, and one with a unique value of it."""
    if on_conflict != "error":
        opened(store)[Part].create(id=3, code="c3", shelf=5)
    if on_conflict == "ignore":
        opened(store)[Part].create(id=50, code="c5", shelf=5)


@pytest.mark.parametrize("fate", ["before", "after"])
@pytest.mark.parametrize("on_conflict", ["error", "ignore", "update"])
def test_a_creation_that_dies_at_any_request_is_gone_on_with(on_conflict: Conflict, fate: Fate):
    plain = MemoryEngine()
    in_the_way(plain, on_conflict)
    expected = told(create(opened(plain), on_conflict, resume_id=None))
    at, alive = 0, False
    while not alive:
        at += 1
        store = MemoryEngine()
        in_the_way(store, on_conflict)
        try:
            items = create(opened(DyingEngine(store, at, fate)), on_conflict)
            alive = True
        except Killed:
            items = create(opened(store), on_conflict)
        db = opened(store)
        assert told(items) == expected, at
        assert rows(db) == rows(opened(plain)), at
        seen = len(Part.seen)
        assert told(create(opened(store), on_conflict, batch_size=3)) == expected, at
        assert len(Part.seen) == seen, "a repetition runs no hooks"
        assert rows(db) == rows(opened(plain)), at
        assert db.check().ok, at
        assert db.forget_bulk("load")
        assert not list(db.kv.list(prefix=("__kvmodels__", "bulk"))), at
    assert at > 6


@pytest.mark.parametrize("fate", ["before", "after"])
def test_an_update_that_dies_at_any_request_is_gone_on_with(fate: Fate):
    at, alive = 0, False
    while not alive:
        at += 1
        store = MemoryEngine()
        create(opened(store), "error", resume_id=None)
        try:
            result = move(opened(DyingEngine(store, at, fate)))
            alive = True
        except Killed:
            result = move(opened(store))
        db = opened(store)
        assert (result.matched, result.written, result.failed) == (COUNT, COUNT, ()), at
        assert rows(db) == [(number, f"c{number}", number % 2 + 10, 2) for number in range(COUNT)], at
        again = move(opened(store))
        assert (again.matched, again.written, again.resumed) == (COUNT, COUNT, True)
        assert rows(db)[0][2:] == (10, 2), at
        assert db.check().ok, at
    assert at > 6


def test_objects_that_are_stored_already_are_done_and_not_stale():
    store = MemoryEngine()
    create(opened(store), "error", resume_id=None)
    kept = [part.model_copy(deep=True) for part in opened(store)[Part]]
    for part in kept:
        part.shelf = 9
    again = [part.model_copy(deep=True) for part in kept]

    def die(progress: BulkProgress) -> None:
        if progress.batches == 2:
            raise Killed

    with pytest.raises(Killed):
        opened(store)[Part].bulk_update(kept, batch_size=2, resume_id="job", progress=die)
    result = opened(store)[Part].bulk_update(again, batch_size=2, resume_id="job")
    assert (result.written, result.batches, result.resumed) == (COUNT, 4, True)
    assert {row[2:] for row in rows(opened(store))} == {(9, 2)}
    with pytest.raises(StaleObjectError):
        opened(store)[Part].bulk_update(again, resume_id="another")


def test_failures_are_listed_by_every_later_call_also_those_of_objects_that_are_not_valid():
    db = opened(MemoryEngine())
    create(db, "error", resume_id=None)
    loaded = db[Part].to_list()
    loaded[1].code = "c0"
    loaded[4].shelf = object()  # type: ignore[assignment]
    db[Part].patch(5, shelf=1)
    first = db[Part].bulk_update(loaded, batch_size=3, on_error="collect", resume_id="job")
    kinds = {failure.key: failure.kind for failure in first.failed}
    assert kinds == {1: "UniqueViolationError", 4: "ValidationError", 5: "StaleObjectError"}
    assert (first.matched, first.written) == (COUNT, COUNT - 3)
    again = db[Part].bulk_update(db[Part].to_list(), on_error="collect", resume_id="job")
    assert [failure[:3] for failure in again.failed] == [failure[:3] for failure in first.failed]
    assert (again.matched, again.written, again.resumed) == (COUNT, COUNT - 3, True)
    assert db.check().ok


def test_an_id_is_for_one_list():
    db = opened(MemoryEngine())
    create(db, "error")
    others = [
        lambda: create(db, "ignore"),
        lambda: create(db, "error", new_parts()[1:]),
        lambda: create(db, "error", new_parts()[::-1]),
        lambda: create(db, "error", [*new_parts(), Part(id=99, code="c99")]),
        lambda: move(db, resume_id="load"),
        lambda: db[Part].all().delete(resume_id="load"),
    ]
    for other in others:
        with pytest.raises(InvalidArgumentError) as raised:
            other()
        assert raised.value.argument == "resume_id"
    assert move(db).written == COUNT
    for other in (lambda: move(db, on_error="collect"), lambda: move(db, fields=["shelf"])):
        with pytest.raises(InvalidArgumentError):
            other()
    assert len(rows(db)) == COUNT


@pytest.mark.parametrize("bad", ["", 5, b"x"])
def test_an_id_is_a_text_and_not_for_transactions(bad: Any):
    db = opened(MemoryEngine())
    for verb in (lambda: create(db, "error", resume_id=bad), lambda: move(db, resume_id=bad)):
        with pytest.raises((InvalidArgumentError, InvalidValueError)):
            verb()
    with db.transaction() as tx:
        for verb in (
            lambda: tx[Part].bulk_create(new_parts(), resume_id="x"),
            lambda: tx[Part].bulk_update([], resume_id="x"),
        ):
            with pytest.raises(InvalidArgumentError):
                verb()
    assert rows(db) == []


def test_a_creation_goes_on_when_what_was_in_the_way_is_gone():
    db = opened(MemoryEngine())
    db[Part].create(id=50, code="c4")
    with pytest.raises(UniqueViolationError) as raised:
        create(db, "error")
    assert (raised.value.position, raised.value.committed) == (4, 4)
    db[Part].remove(50)
    assert all(item.created for item in create(db, "error"))
    assert [row[0] for row in rows(db)] == list(range(COUNT))
    with pytest.raises(AlreadyExistsError):
        create(db, "error", resume_id="another")


@pytest.mark.parametrize("verb", ["create", "update"])
def test_two_processes_with_one_id_share_a_list(verb: str):
    store = MemoryEngine()
    db, other = opened(store), opened(store)
    if verb == "update":
        create(db, "error", resume_id=None)
    others: list[Any] = []

    def meanwhile(progress: BulkProgress) -> None:
        if not others:
            others.append(None)
            others.append(create(other, "error") if verb == "create" else move(other))

    Part.seen.clear()
    result: Any = create(db, "error", progress=meanwhile) if verb == "create" else move(db, progress=meanwhile)
    if verb == "create":
        assert told(result) == told(others[1]) == [(number, True, None) for number in range(COUNT)]
        assert Part.seen == [f"insert {number}" for number in range(COUNT)]
    else:
        assert result.written == others[1].written == COUNT
        assert {row[3] for row in rows(db)} == {2}
    assert db.check().ok


def test_an_empty_list_is_done_at_once():
    db = opened(MemoryEngine())
    assert create(db, "update", []) == create(db, "update", []) == []
    assert db[Part].bulk_update([], resume_id="move").matched == 0
    assert db.forget_bulk("load")
    assert db.forget_bulk("move")


def test_a_list_that_was_forgotten_while_it_ran_stops():
    db = opened(MemoryEngine())

    def forget(progress: BulkProgress) -> None:
        if progress.batches == 2:
            db.forget_bulk("load")

    with pytest.raises(InvalidArgumentError, match="forgotten"):
        create(db, "error", progress=forget)
    assert len(rows(db)) == 4


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("verb", ["error", "ignore", "update", "bulk_update"])
def test_a_lost_answer_changes_nothing_of_a_list(verb: Any, fault: str):
    commits = 0
    while True:
        store = MemoryEngine()
        if verb == "bulk_update":
            create(opened(store), "error", resume_id=None)
        else:
            in_the_way(store, verb)
        engine = FaultEngine(store, plan=[*[None] * commits, fault])  # type: ignore[list-item]
        db = opened(engine)
        if verb == "bulk_update":
            assert move(db).written == COUNT
        else:
            items = create(db, verb)
            assert sum(item.created for item in items) == {"error": 7, "ignore": 5, "update": 6}[verb]
            assert told(create(opened(store), verb)) == told(items)
        engine.deliver_late()
        expected = {"error": {1}, "ignore": {1}, "update": {1, 2}, "bulk_update": {2}}[verb]
        assert {row[3] for row in rows(opened(store))} == expected, commits
        assert opened(store).check().ok
        if not engine.injected[fault]:
            break
        commits += 1
    assert commits > 1
