"""Hooks, signals and time fields run on every path of a bulk write: before in each attempt, after once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, ClassVar

import pytest

from kvmodels import (
    AutoNow,
    AutoNowAdd,
    Database,
    F,
    Field,
    Indexed,
    KvModel,
    PrimaryKey,
    UniqueViolationError,
    Version,
)
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine


class Page(KvModel, collection="pages"):
    id: PrimaryKey[int]
    words: Indexed[int] = Field(default=0)
    length: int = 0
    revision: int = Version()
    seen: ClassVar[list[Any]] = []

    def before_insert(self) -> None:
        self.length = self.words * 6

    def after_insert(self) -> None:
        self.seen.append(("inserted", self.id, self.length))

    def before_update(self, old: Page) -> None:
        if self.words == 99:
            raise ValueError("too long")
        self.length = self.words * 6

    def after_update(self, old: Page) -> None:
        self.seen.append(("updated", self.id, old.words, self.words, self.revision))

    def before_remove(self) -> None:
        if self.words == 7:
            raise ValueError("not this one")

    def after_remove(self) -> None:
        self.seen.append(("removed", self.id))


@pytest.fixture
def seen() -> Iterator[list[Any]]:
    Page.seen.clear()
    yield Page.seen
    Page.seen.clear()


def pages(count: int = 4) -> Database:
    db = Database("memory://", models=[Page])
    db[Page].bulk_create([Page(id=number, words=number) for number in range(count)])
    Page.seen.clear()
    return db


@pytest.mark.parametrize("resume_id", [None, "job"])
@pytest.mark.parametrize("batch_size", [None, 1, 3])
def test_hooks_run_for_every_record_of_a_query(seen: list[Any], batch_size: int | None, resume_id: str | None):
    db = pages()
    db[Page].filter(words__gte=1).update(words=F("words") + 10, batch_size=batch_size, resume_id=resume_id)
    assert sorted(seen) == [("updated", n, n, n + 10, 2) for n in (1, 2, 3)]
    assert [(page.length, page.revision) for page in db[Page]] == [(0, 1), (66, 2), (72, 2), (78, 2)]
    seen.clear()
    db[Page].filter(words__gte=12).delete(batch_size=batch_size)
    assert sorted(seen) == [("removed", 2), ("removed", 3)]
    assert db.check().ok


def test_hooks_run_for_loaded_objects_and_upserts(seen: list[Any]):
    db = pages()
    loaded = db[Page].to_list()[:2]
    for page in loaded:
        page.words = 5
    db[Page].bulk_update(loaded)
    assert [(page.length, page.revision) for page in loaded] == [(30, 2)] * 2
    db[Page].bulk_update(loaded, ["words"])
    db[Page].bulk_create([Page(id=1, words=8), Page(id=9, words=2)], on_conflict="update")
    db[Page].update_or_create(id=9, defaults={"words": F("words") + 1}, create_defaults={})
    db[Page].update_or_create(id=10, defaults={"words": 1})
    assert seen == [
        ("updated", 0, 0, 5, 2),
        ("updated", 1, 1, 5, 2),
        ("updated", 0, 5, 5, 3),
        ("updated", 1, 5, 5, 3),
        ("updated", 1, 5, 8, 4),
        ("inserted", 9, 12),
        ("updated", 9, 2, 3, 2),
        ("inserted", 10, 6),
    ]
    assert db.check().ok


def test_a_hook_that_refuses_a_record_ends_the_write_or_is_listed(seen: list[Any]):
    db = pages(5)
    db[Page].patch(2, words=98)
    seen.clear()
    with pytest.raises(ValueError, match="too long"):
        db[Page].all().update(words=F("words") + 1, batch_size=2)
    assert [entry[1] for entry in seen] == [0, 1]
    result = db[Page].all().update(words=F("words") + 1, on_error="collect")
    assert [(failure.key, failure.kind, failure.message) for failure in result.failed] == [
        (2, "ValueError", "too long")
    ]
    assert [page.words for page in db[Page]] == [2, 3, 98, 4, 5]
    db[Page].patch(3, words=7)
    removed = db[Page].all().delete(on_error="collect")
    assert (removed.written, [failure.key for failure in removed.failed]) == (4, [3])
    assert [page.id for page in db[Page]] == [3]


def test_what_a_hook_raises_after_the_commit_does_not_write_a_batch_twice(seen: list[Any]):
    db = pages(6)
    calls: list[int] = []

    @db.signals.after_update.connect
    def fail(page: Any, old: Any) -> None:
        calls.append(page.id)
        if page.id == 3:
            raise UniqueViolationError("not of this write")

    for option in ("raise", "collect"):
        calls.clear()
        with pytest.raises(UniqueViolationError) as raised:
            db[Page].all().update(words=F("words") + 1, batch_size=2, on_error=option)
        assert calls == [0, 1, 2, 3]
        assert any("was committed" in note for note in raised.value.__notes__)
    assert [page.words for page in db[Page]] == [2, 3, 4, 5, 4, 5]
    with pytest.raises(UniqueViolationError):
        db[Page].update_or_create(id=3, defaults={"words": F("words") + 1}, create_defaults={})
    assert db[Page].get(3).words == 6
    assert db.check().ok


def test_in_a_transaction_hooks_run_at_the_verb_and_after_the_commit(seen: list[Any]):
    db = pages()
    with db.transaction() as tx:
        tx[Page].filter(words__gte=2).update(words=F("words") + 1)
        tx[Page].filter(words=0).delete()
        assert seen == []
        assert [page.length for page in tx[Page]] == [6, 18, 24]
    assert sorted(seen) == [("removed", 0), ("updated", 2, 2, 3, 2), ("updated", 3, 3, 4, 2)]


def test_a_lost_answer_runs_what_comes_after_once(seen: list[Any]):
    db = pages()
    store = db._engine
    assert isinstance(store, MemoryEngine)
    other = Database.from_engine(FaultEngine(store, plan=["lose_answer", None, "repeat"]), db._core)
    other[Page].all().update(words=F("words") + 1, batch_size=2)
    assert seen == [("updated", n, n, n + 1, 2) for n in range(4)]


def test_time_fields_are_those_of_the_write():
    class Note(KvModel, collection="timed"):
        id: PrimaryKey[int]
        n: Indexed[int] = Field(default=0)
        created_at: datetime = AutoNowAdd()
        updated_at: datetime = AutoNow()
        revision: int = Version()

    clock = [1_000]
    with Database("memory://", models=[Note], clock=lambda: clock[0]) as db:
        notes = db[Note]
        notes.bulk_create([Note(id=number, n=number) for number in range(5)])
        clock[0] = 5_000
        notes.filter(n__gte=1).update(n=F("n") + 1, batch_size=2)
        clock[0] = 9_000
        notes.bulk_create([Note(id=0, n=7), Note(id=9, n=9)], on_conflict="update")
        times = [(one.created_at.timestamp(), one.updated_at.timestamp(), one.revision) for one in notes]
        assert times == [(1, 9, 2), (1, 5, 2), (1, 5, 2), (1, 5, 2), (1, 5, 2), (9, 9, 1)]
