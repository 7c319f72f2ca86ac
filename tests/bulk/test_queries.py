"""Change and remove the records of a query: slices and orders, batches, results, no Halloween loop, bad arguments."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from kvmodels import (
    AsyncDatabase,
    Database,
    F,
    Field,
    Index,
    Indexed,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    NoUsableIndexError,
    OperationTooLargeError,
    PrimaryKey,
    PrimaryKeyChangedError,
    Unique,
    UniqueViolationError,
    UnknownFieldError,
)
from kvmodels.api._sync.queryset import QuerySet
from kvmodels.flows.bulk import query_writes
from kvmodels.flows.bulk.options_and_results import BulkProgress
from tests.bulk.models import Thing, memory
from tests.worlds import in_test_servers, in_the_soak

Narrow = Callable[[QuerySet[Thing]], QuerySet[Thing]]

# One query through every kind of index, most of them over the very column that changes.
THROUGH: dict[str, Narrow] = {
    "primary key": lambda qs: qs.filter(n__gte=1).using_index("pk").allow_scan(),
    "primary key, from its end": lambda qs: qs.order_by("-pk"),
    "single": lambda qs: qs.filter(n__gte=1).using_index("n"),
    "single, from its end": lambda qs: qs.filter(n__gte=1).using_index("n").order_by("-n"),
    "compound": lambda qs: qs.filter(kind="a", n__gte=1).using_index("newest"),
    "partial": lambda qs: qs.filter(kind="a", n__gte=1).using_index("of_a"),
    "covering": lambda qs: qs.filter(n__gte=1).using_index("covering"),
    "copies": lambda qs: qs.filter(n__gte=1).using_index("copied"),
    "unique": lambda qs: qs.filter(n__gte=1).using_index("serial"),
    "computed": lambda qs: qs.filter(tens__gte=0).using_index("tens"),
    "several values": lambda qs: qs.filter(Thing.tags.any() >= 0).using_index("tags"),
    "alternatives": lambda qs: qs.filter(n__in=[1, 2, 3, 4, 5]),
    "union": lambda qs: qs.filter((Thing.n >= 2) | (Thing.kind == "b")),
    "equal values": lambda qs: qs.filter(kind="a"),
    "sorted in memory": lambda qs: qs.filter(n__gte=1).order_by("label", "-n").sort_in_memory(1000),
    "everything": lambda qs: qs.all(),
}


@pytest.mark.parametrize("batch_size", [3, *in_test_servers(None)])
@pytest.mark.parametrize("through", THROUGH)
def test_review_12_no_update_meets_its_own_changes(through: str, batch_size: int | None):
    db = memory(40)
    things = db[Thing]
    query = THROUGH[through](things)
    expected = {thing.id for thing in query}
    before = {thing.id: thing for thing in things}
    result = query.update(n=F("n") + 1, tags=[0, 1, 2, 9], batch_size=batch_size)
    assert (result.matched, result.written, result.failed) == (len(expected), len(expected), ())
    for thing in things:
        changed = thing.id in expected
        assert thing.n == before[thing.id].n + changed, thing.id
        assert thing.tags == ([0, 1, 2, 9] if changed else before[thing.id].tags)
    assert db.check().ok


@pytest.mark.parametrize("batch_size", [3, *in_test_servers(None)])
@pytest.mark.parametrize("through", THROUGH)
def test_a_removal_takes_what_the_query_finds(through: str, batch_size: int | None):
    db = memory(40)
    query = THROUGH[through](db[Thing])
    expected = {thing.id for thing in query}
    result = query.delete(batch_size=batch_size)
    assert (result.matched, result.written) == (len(expected), len(expected))
    assert {thing.id for thing in db[Thing]} == set(range(40)) - expected
    assert db.check().ok


SLICES = (slice(1), slice(5), slice(2, 6), slice(4, None), slice(3, 3), slice(100, 200))


@pytest.mark.parametrize("through", [name for name in THROUGH if name not in ("several values", "union")])
@pytest.mark.parametrize("verb", ["update", *in_test_servers("delete")])
def test_K12_a_slice_limits_what_is_written(through: str, verb: str):
    for number, part in enumerate(SLICES):
        db, batch_size = memory(20), (None, 1, 3)[number % 3]
        query = THROUGH[through](db[Thing])[part]
        expected = [thing.id for thing in query]
        if verb == "update":
            assert query.update(label="chosen", batch_size=batch_size).written == len(expected)
            written = [thing.id for thing in db[Thing] if thing.label == "chosen"]
        else:
            assert query.delete(batch_size=batch_size).written == len(expected)
            written = sorted(set(range(20)) - {thing.id for thing in db[Thing]})
        assert written == sorted(expected), part
        assert db.check().ok, part


def test_K12_delete_of_a_slice_of_one_removes_one():
    things = memory(5)[Thing]
    assert things.filter(n__gte=0)[:1].delete().written == 1
    assert things.count() == 4


def test_P8_only_what_satisfies_the_filter_at_its_commit_is_removed():
    """Another writer changes a record between the read of the query and its batch: it is left alone."""
    db = memory(6)
    things = db[Thing]

    def meanwhile(progress: BulkProgress) -> None:
        if progress.batches == 1:
            things.patch(4, kind="c")

    result = things.filter(kind="a").delete(batch_size=1, progress=meanwhile)
    assert (result.matched, result.written) == (2, 2)
    assert [thing.id for thing in things] == [1, 3, 4, 5]


@pytest.mark.parametrize("count", [39, 40, 41, 82, *in_the_soak(42, 43, 81, 83, 84)])
@pytest.mark.parametrize("batch_size", [None, 20, 40, 41])
def test_K8_every_record_is_written_wherever_the_batches_end(count: int, batch_size: int | None):
    db = memory(count)
    things = db[Thing]
    told: list[BulkProgress] = []
    result = things.filter(n__gte=0).update(label="x", batch_size=batch_size, progress=told.append)
    batches = -(-count // (batch_size or 500))
    assert (result.matched, result.written, result.batches) == (count, count, batches)
    assert [progress.batches for progress in told] == list(range(1, batches + 1))
    assert told[-1].written == count
    assert {thing.label for thing in things} == {"x"}
    loaded = things.to_list()
    assert things.bulk_update(loaded, batch_size=batch_size).batches == batches
    assert things.all().delete(batch_size=batch_size).written == count
    assert (things.count(), list(db.kv.list(prefix=("things",)))) == (0, [])
    assert db.check().ok


def test_changes_see_the_record_as_it_was():
    class Pair(KvModel, collection="pairs"):
        id: PrimaryKey[int]
        a: int
        b: float
        text: str = "x"

    pairs = Database("memory://", models=[Pair])[Pair]
    pairs.create(id=1, a=7, b=2.5)
    pairs.all().update(a=F("b") * 2, b=F("a") - F("b") / 2, text=F("text") + "y")
    assert (pairs.get(1).a, pairs.get(1).b, pairs.get(1).text) == (5, 5.75, "xy")
    pairs.all().update({"a": 100 - F("a") // 2 % 2 - (1 + F("a"))})
    assert pairs.get(1).a == 100 - 5 // 2 % 2 - 6
    pairs.patch(1, a=F("a") + 1)
    assert pairs.get(1).a == 95


NO_VALUE: dict[str, tuple[dict[str, Any], str, str]] = {
    "a text and a number": ({"kind": F("kind") + 1}, "str + int", "goes with the type"),
    "None": ({"n": F("n") + F("label")}, "int + NoneType", "None takes no part"),
    "division by 0": ({"n": F("n") // (F("n") - F("n"))}, "int // int", "divided by 0"),
    "remainder by 0": ({"n": F("n") % 0}, "int % int", "divided by 0"),
    "too large": ({"n": 10**400 / (F("n") + 1)}, "int / int", "out of the range"),
}


@pytest.mark.parametrize("case", NO_VALUE)
def test_a_term_without_a_value_says_what_is_wrong_with_it(case: str):
    changes, types, hint = NO_VALUE[case]
    with pytest.raises(InvalidValueError, match="cannot be computed") as caught:
        memory(3)[Thing].all().update(changes)
    assert caught.value.type == types
    assert re.search(hint, caught.value.hint or "")


def test_terms_of_fields_that_a_model_does_not_have_are_refused():
    things = memory(3)[Thing]
    for bad in (F("m") + 1, 1 - F("label.x")):
        with pytest.raises(UnknownFieldError):
            things.all().update(n=bad)
    with pytest.raises(UnknownFieldError):
        things.all().update(m=1)
    with pytest.raises(InvalidValueError):
        F(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        bool(F("n"))
    with pytest.raises(InvalidValueError) as raised:
        things.all().update(n=F("label") + 1)
    assert raised.value.field == "label"
    with pytest.raises(InvalidValueError):
        things.all().update(n=F("n") // 0)


async def awaited(progress: BulkProgress) -> None:
    """Nobody would wait for it."""


BAD: dict[str, tuple[type[Exception], Callable[[QuerySet[Thing]], Any]]] = {
    "no changes": (InvalidArgumentError, lambda qs: qs.update()),
    "primary key": (PrimaryKeyChangedError, lambda qs: qs.update(id=5)),
    "batch_size": (InvalidArgumentError, lambda qs: qs.update(n=1, batch_size=0)),
    "on_error": (InvalidArgumentError, lambda qs: qs.delete(on_error="ignore")),  # type: ignore[arg-type]
    "progress": (InvalidArgumentError, lambda qs: qs.delete(progress=3)),  # type: ignore[arg-type]
    "awaited progress": (InvalidArgumentError, lambda qs: qs.delete(progress=awaited)),
    "resume_id": (InvalidArgumentError, lambda qs: qs.delete(resume_id="")),
    "values": (InvalidArgumentError, lambda qs: qs.values("n").delete()),
    "no index": (NoUsableIndexError, lambda qs: qs.filter(label="x").delete()),
    "invalid": (ValidationError, lambda qs: qs.update(n="many")),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused_before_anything_is_written(case: str):
    db = memory(5)
    before = list(db.kv.list(prefix=()))
    error, call = BAD[case]
    with pytest.raises(error):
        call(db[Thing].all())
    assert list(db.kv.list(prefix=())) == before


def test_a_whole_collection_is_not_emptied_by_mistake():
    things = memory(3)[Thing]
    with pytest.raises(InvalidArgumentError):
        things.delete()
    assert things.all().delete().written == 3


@pytest.mark.parametrize("arguments", [((), {"label": "x"}), (({"label": "x"},), {"batch_size": 1}), ((), {})])
def test_a_whole_collection_is_not_changed_by_mistake(arguments: tuple[tuple[Any, ...], dict[str, Any]]):
    db = memory(3)
    given, named = arguments
    for verb in (db[Thing].update, db.repository(Thing).update):
        with pytest.raises(InvalidArgumentError, match=r"all\(\)\.update"):
            verb(*given, **named)
    with db.transaction() as tx, pytest.raises(InvalidArgumentError, match=r"all\(\)\.update"):
        tx[Thing].update(*given, **named)
    assert db[Thing].all().update(label="x").written == 3


def test_a_whole_collection_is_not_changed_or_emptied_by_mistake_asynchronously():
    async def tried() -> None:
        async with AsyncDatabase("memory://", models=[Thing]) as db:
            with pytest.raises(InvalidArgumentError, match=r"all\(\)\.update"):
                await db[Thing].update(label="x")
            with pytest.raises(InvalidArgumentError, match=r"all\(\)\.delete"):
                await db[Thing].delete()

    asyncio.run(tried())


class Coded(KvModel, collection="coded"):
    id: PrimaryKey[int]
    code: Unique[int]
    kind: Indexed[str] = Field(default="a")

    class Meta:
        indexes = (Index("kind", "code"),)


def coded(count: int) -> Database:
    db = Database("memory://", models=[Coded])
    db[Coded].bulk_create([Coded(id=number, code=number) for number in range(count)])
    return db


@pytest.mark.parametrize("batch_size", [None, 4])
def test_collected_errors_leave_out_the_records_that_cannot_be_written(batch_size: int | None):
    db = coded(10)
    result = db[Coded].filter(kind="a").update(code=F("code") // 2 * 2 + 20, batch_size=batch_size, on_error="collect")
    assert (result.matched, result.written, result.failures) == (10, 5, 5)
    assert {failure.kind for failure in result.failed} == {"UniqueViolationError"}
    assert all(isinstance(failure.error, UniqueViolationError) for failure in result.failed)
    left = {failure.key for failure in result.failed}
    assert {one.id // 2 for one in db[Coded] if one.id in left} == set(range(5))
    assert all(one.code == (one.id if one.id in left else one.id // 2 * 2 + 20) for one in db[Coded])
    assert db.check().ok


def test_an_error_says_what_was_committed_before_it():
    db = coded(10)
    with pytest.raises(UniqueViolationError) as raised:
        db[Coded].filter(kind="a").update(code=F("code") + 3, batch_size=3)
    assert raised.value.committed == 0
    with pytest.raises(UniqueViolationError) as raised:
        db[Coded].filter(id__in=[7, 8, 9, 0]).order_by("-pk").update(code=F("code") + 3, batch_size=3)
    assert (raised.value.committed, raised.value.existing_key) == (3, 3)
    assert "3 records in 1 batches" in raised.value.__notes__[0]
    assert db.check().ok


def test_unique_values_move_along_within_one_batch():
    db = coded(100)
    assert db[Coded].all().update(code=F("code") + 1).written == 100
    assert [one.code for one in db[Coded]] == list(range(1, 101))


def test_more_keys_than_memory_may_hold_are_refused(monkeypatch):
    things = memory(20)[Thing]
    monkeypatch.setattr(query_writes, "MOST_COLLECTED", 10)
    with pytest.raises(OperationTooLargeError) as raised:
        things.filter(n__gte=0).update(n=F("n") + 1)
    assert raised.value.limit == "collected_keys"
    assert things.filter(n__gte=0).update(n=F("n") + 1, resume_id="many").written == 20
    assert things.order_by("pk").update(n=F("n") + 1).written == 20


def test_in_a_transaction_all_of_it_is_one_commit():
    db = memory(30)
    things = db[Thing]
    with db.transaction() as tx:
        tx[Thing].create(id=100, n=5, kind="a")
        changed = tx[Thing].filter(kind="a").update(n=F("n") + 1)
        again = tx[Thing].filter(kind="a").update(n=F("n") + 1)
        removed = tx[Thing].filter(kind="b")[:4].delete()
        loaded = tx[Thing].filter(kind="b").to_list()
        for thing in loaded:
            thing.label = "kept"
        stored = tx[Thing].bulk_update(loaded)
        assert tx[Thing].get(100).n == 7
        assert things.count() == 30
        for option in ({"batch_size": 3}, {"resume_id": "x"}, {"progress": print}):
            with pytest.raises(InvalidArgumentError):
                tx[Thing].filter(kind="a").delete(**option)
    assert (changed.written, again.written, removed.written, stored.written) == (16, 16, 4, 11)
    assert [thing.n for thing in things.filter(kind="a").order_by("pk")] == [n % 7 + 2 for n in range(0, 30, 2)] + [7]
    assert [thing.label for thing in things.filter(kind="b")] == ["kept"] * 11
    assert len({entry.versionstamp for entry in db.kv.list(prefix=("things",))}) == 1
    assert db.check().ok


def test_a_transaction_that_fails_writes_nothing_in_bulk():
    db = memory(10)
    before = db[Thing].to_list()
    with pytest.raises(RuntimeError), db.transaction() as tx:
        tx[Thing].filter(kind="a").update(n=F("n") + 1)
        tx[Thing].filter(kind="b").delete()
        raise RuntimeError
    assert db[Thing].to_list() == before
