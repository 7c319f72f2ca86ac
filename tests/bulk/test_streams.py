"""``bulk_create`` and ``bulk_update`` of a generator: one batch in memory, progress after each, results as numbers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from kvmodels import (
    AUTO,
    AsyncDatabase,
    BulkResult,
    Database,
    Field,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    StaleObjectError,
    Unique,
    UniqueViolationError,
)


class Item(KvModel, collection="items"):
    id: PrimaryKey[int] = Field(default=AUTO)
    token: Unique[int | None] = Field(default=None)
    n: int = 0


@pytest.fixture
def db():
    with Database("memory://", models=[Item]) as db:
        yield db
        assert db.check().ok


def made(count: int, seen: list[Any], look: Any = None) -> Iterator[Item]:
    for n in range(1, count + 1):
        if look is not None:
            seen.append(look())
        yield Item(id=n)


def test_a_batch_size_beyond_every_list_is_one_batch(db):
    created = db[Item].bulk_create(made(3, []), batch_size=2**70)
    assert len(created) == 3
    assert db[Item].bulk_update((one.obj for one in created), batch_size=2**70).batches == 1


@pytest.mark.parametrize("on_conflict", ["error", "ignore", "update"])
def test_each_batch_is_committed_before_the_next_objects_are_made(db, on_conflict: str):
    seen: list[int] = []
    reports: list[tuple[int, int]] = []
    result = db[Item].bulk_create(
        made(25, seen, db[Item].count),
        batch_size=10,
        on_conflict=on_conflict,
        progress=lambda one: reports.append((one.matched, db[Item].count())),
    )
    assert seen == [n // 10 * 10 for n in range(25)]
    assert reports == [(10, 10), (20, 20), (25, 25)]
    assert [item.obj.id for item in result] == list(range(1, 26))


async def test_the_asynchronous_facade_streams_too():
    async with AsyncDatabase("memory://", models=[Item]) as db:
        reports: list[int] = []
        taken: list[int] = []

        def objects() -> Iterator[Item]:
            for n in range(1, 26):
                taken.append(len(reports))
                yield Item(id=n)

        result = await db[Item].bulk_create(
            objects(), batch_size=10, results=False, progress=lambda one: reports.append(one.matched)
        )
        assert (result.matched, result.batches, reports) == (25, 3, [10, 20, 25])
        assert taken == [n // 10 for n in range(25)]


def test_results_as_numbers_keep_no_objects(db):
    alive: list[weakref.ref[Item]] = []
    most = 0

    def objects() -> Iterator[Item]:
        nonlocal most
        for n in range(1, 501):
            one = Item(id=n, token=n)
            alive.append(weakref.ref(one))
            if n % 50 == 0:
                gc.collect()
                most = max(most, sum(ref() is not None for ref in alive))
            yield one

    result = db[Item].bulk_create(objects(), batch_size=50, results=False)
    assert isinstance(result, BulkResult)
    assert (result.matched, result.written, result.batches, result.failed) == (500, 500, 10, ())
    assert most <= 2 * 50 + 1


def test_results_as_numbers_list_the_first_failures(db):
    db[Item].create(id=3)
    result = db[Item].bulk_create([Item(id=n) for n in range(1, 6)], on_conflict="ignore", results=False)
    assert (result.matched, result.written, result.failures, result.batches) == (5, 4, 1, 1)
    assert [(one.key, one.kind) for one in result.failed] == [(3, "AlreadyExistsError")]
    again = db[Item].bulk_create(
        [Item(id=n) for n in range(4, 9)], on_conflict="ignore", resume_id="a", batch_size=2, results=False
    )
    assert (again.matched, again.written, again.batches, again.resumed) == (5, 3, 3, False)
    resumed = db[Item].bulk_create(
        (Item(id=n) for n in range(4, 9)), on_conflict="ignore", resume_id="a", batch_size=2, results=False
    )
    assert (resumed.matched, resumed.written, resumed.batches, resumed.resumed) == (5, 3, 3, True)


def test_an_error_in_a_stream_names_its_object_and_what_is_committed(db):
    db[Item].create(id=100, token=17)
    with pytest.raises(UniqueViolationError) as caught:
        db[Item].bulk_create((Item(id=n, token=n) for n in range(1, 25)), batch_size=10)
    assert (caught.value.position, caught.value.committed, db[Item].count()) == (16, 10, 11)

    def failing() -> Iterator[Item]:
        yield from made(12, [])
        raise OSError("the file ends")

    db[Item].all().delete()
    with pytest.raises(OSError, match="the file ends") as broken:
        db[Item].bulk_create(failing(), batch_size=10)
    assert broken.value.__notes__ == ["kvmodels: the batches before position 10 are committed"]
    assert db[Item].count() == 10
    invalid = (Item.model_construct(id=200 + n, token=None, n="x" if n == 7 else 1) for n in range(9))
    with pytest.raises(ValidationError) as refused:
        db[Item].bulk_create(invalid, batch_size=5)
    assert any("position 7" in note for note in refused.value.__notes__)
    assert db[Item].count() == 15


def test_a_list_and_a_call_without_batches_are_still_validated_as_a_whole(db):
    objects = [Item(id=1), Item.model_construct(id=2, token=None, n="x")]
    for given, size in ((objects, 1), (iter(objects), None)):
        with pytest.raises(ValidationError):
            db[Item].bulk_create(given, batch_size=size)
        assert db[Item].count() == 0
    with pytest.raises(InvalidArgumentError):
        db[Item].bulk_create(objects, results="no")
    assert db[Item].bulk_create(iter(()), batch_size=3) == []
    assert db[Item].bulk_create(iter(()), batch_size=3, results=False).matched == 0


def test_a_stream_gets_automatic_keys(db):
    result = db[Item].bulk_create((Item(n=n) for n in range(7)), batch_size=3)
    assert len({item.obj.id for item in result}) == 7


# --- bulk_update ------------------------------------------------------------------------------------------------------


def changed(db: Database, seen: list[Any], look: Any) -> Iterator[Item]:
    for one in db[Item].all().to_list():
        seen.append(look())
        one.n = 1
        yield one


def test_each_batch_of_an_update_is_committed_before_the_next_objects_are_made(db):
    db[Item].bulk_create([Item(id=n) for n in range(1, 26)])
    seen: list[int] = []
    reports: list[tuple[int, int]] = []
    result = db[Item].bulk_update(
        changed(db, seen, lambda: len(reports)),
        batch_size=10,
        progress=lambda one: reports.append((one.matched, one.batches)),
    )
    assert seen == [n // 10 for n in range(25)]
    assert reports == [(10, 1), (20, 2), (25, 3)]
    assert (result.matched, result.written, result.batches) == (25, 25, 3)
    assert {one.n for one in db[Item]} == {1}
    assert db[Item].bulk_update(iter(())).matched == 0


def test_an_update_of_a_stream_keeps_one_batch_in_memory(db):
    db[Item].bulk_create([Item(id=n, token=n) for n in range(1, 301)])
    alive: list[weakref.ref[Item]] = []
    most = 0

    def objects() -> Iterator[Item]:
        nonlocal most
        for n in range(1, 301):
            one = db[Item].get(n)
            one.n = n
            alive.append(weakref.ref(one))
            if n % 50 == 0:
                gc.collect()
                most = max(most, sum(ref() is not None for ref in alive))
            yield one

    assert db[Item].bulk_update(objects(), batch_size=50).written == 300
    assert most <= 2 * 50 + 1
    assert [one.n for one in db[Item]] == list(range(1, 301))


def test_errors_in_a_stream_of_updates_name_their_object_and_what_is_committed(db):
    db[Item].bulk_create([Item(id=n, token=n) for n in range(1, 26)])
    loaded = db[Item].all().to_list()
    db[Item].patch(17, n=5)
    loaded[20].n = "x"
    with pytest.raises(StaleObjectError) as stale:
        db[Item].bulk_update(iter(loaded[:20]), batch_size=10)
    assert (stale.value.position, stale.value.key) == (16, 17)
    assert stale.value.__notes__ == [
        "kvmodels: 10 records in 1 batches were committed before this was raised",
    ]
    loaded[18:20] = [db[Item].get(19), db[Item].get(20)]
    result = db[Item].bulk_update(iter(loaded[10:]), on_error="collect", batch_size=5)
    assert [(one.key, one.kind) for one in result.failed] == [(17, "StaleObjectError"), (21, "ValidationError")]
    with pytest.raises(InvalidArgumentError, match="never loaded"):
        db[Item].bulk_update(one for one in (db[Item].get(1), Item(id=99)))


def test_a_record_that_returns_in_a_later_batch_is_stored_again_or_stale(db):
    db[Item].bulk_create([Item(id=1), Item(id=2)])
    first, second, other = db[Item].get(1), db[Item].get(2), db[Item].get(1)
    assert db[Item].bulk_update(iter([first, second, first]), batch_size=2).written == 3
    with pytest.raises(StaleObjectError):
        db[Item].bulk_update(iter([first, second, other]), batch_size=2)
    with pytest.raises(InvalidArgumentError, match="one primary key"):
        db[Item].bulk_update(iter([first, first]))


async def test_the_asynchronous_update_streams_too():
    async with AsyncDatabase("memory://", models=[Item]) as db:
        await db[Item].bulk_create([Item(id=n) for n in range(1, 26)])
        loaded = await db[Item].to_list()
        reports: list[int] = []
        taken: list[int] = []

        def objects() -> Iterator[Item]:
            for one in loaded:
                taken.append(len(reports))
                one.n = 2
                yield one

        result = await db[Item].bulk_update(objects(), batch_size=10, progress=lambda one: reports.append(one.matched))
        assert (result.written, reports) == (25, [10, 20, 25])
        assert taken == [n // 10 for n in range(25)]
