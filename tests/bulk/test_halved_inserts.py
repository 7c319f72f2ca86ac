"""``bulk_create`` with ``batch_size`` halves a batch that is too large; without, all objects are one commit or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    BulkResult,
    Database,
    Field,
    KvModel,
    Limits,
    MultiIndexed,
    OperationTooLargeError,
    PrimaryKey,
    Unique,
    UniqueViolationError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import LimitExceededError
from tests.limited_engine import LimitedEngine

VALUES = 8
FEW = replace(Limits.EMBEDDED, max_mutations=60)


class Text(KvModel, collection="texts"):
    id: PrimaryKey[int]
    slug: Unique[str | None] = Field(default=None)
    words: MultiIndexed[list[int]] = Field(default=[])
    text: str = ""


def texts(count: int, *, words: int = VALUES) -> list[Text]:
    return [Text(id=n, slug=f"s{n}", words=list(range(n, n + words))) for n in range(count)]


def in_memory() -> Database:
    return Database("memory://", models=[Text], limits=FEW)


def as_etcd() -> Database:
    """Return a database of an engine with the limits of etcd, which fails if anything larger is sent."""
    return Database.from_engine(LimitedEngine(MemoryEngine(), Limits.ETCD, ()), DatabaseCore([Text]))


@pytest.fixture(params=[in_memory, as_etcd])
def db(request: pytest.FixtureRequest) -> Iterator[Database]:
    make: Callable[[], Database] = request.param
    with make() as made:
        yield made
        assert made.check().ok


@pytest.mark.parametrize("on_conflict", ["error", "ignore", "update"])
def test_a_batch_that_is_too_large_is_halved(db: Database, on_conflict: Any):
    reports: list[tuple[int, int]] = []
    results = db[Text].bulk_create(
        texts(20),
        batch_size=20,
        on_conflict=on_conflict,
        progress=lambda one: reports.append((one.matched, db[Text].count())),
    )
    assert [(item.obj.id, item.created) for item in results] == [(n, True) for n in range(20)]
    assert reports == [(5, 5), (10, 10), (15, 15), (20, 20)], "of 20 objects a quarter fits: 50 of 60 mutations"
    assert db[Text].filter(words__contains=10).count() == VALUES


def test_without_a_batch_size_all_objects_are_stored_or_none(db: Database):
    with pytest.raises(OperationTooLargeError) as refused:
        db[Text].bulk_create(texts(20))
    assert "batch_size" in str(refused.value.hint)
    assert db[Text].count() == 0
    with pytest.raises(OperationTooLargeError), db.transaction() as tx:
        tx[Text].bulk_create(texts(20))
    assert db[Text].count() == 0


def test_objects_of_an_iterator_are_halved_too(db: Database):
    result = db[Text].bulk_create(iter(texts(25)), batch_size=20, results=False)
    assert isinstance(result, BulkResult)
    assert (result.matched, result.written, result.batches) == (25, 25, 5)


def test_an_object_that_is_too_large_for_itself_is_named(db: Database):
    objects = texts(10)
    objects[7].words = list(range(100))
    with pytest.raises(OperationTooLargeError) as refused:
        db[Text].bulk_create(objects, batch_size=10)
    assert db[Text].count() == 7
    assert refused.value.__notes__[0] == "kvmodels: the batches before position 7 are committed"


def test_errors_of_a_half_name_the_place_in_the_list(db: Database):
    db[Text].create(id=100, slug="s8")
    with pytest.raises(UniqueViolationError) as refused:
        db[Text].bulk_create(texts(20), batch_size=20)
    assert (refused.value.position, refused.value.committed, db[Text].count()) == (8, 5, 6)
    results = db[Text].bulk_create(texts(20), batch_size=20, on_conflict="ignore")
    assert [item.obj.id for item in results if item.created] == [*range(5, 8), *range(9, 20)]


class KilledError(Exception):
    """The process ends after a batch."""


def test_a_halved_write_is_resumed_where_it_ended(db: Database):
    def kill(_: object) -> None:
        raise KilledError

    with pytest.raises(KilledError):
        db[Text].bulk_create(texts(20), batch_size=20, resume_id="texts", progress=kill)
    first = db[Text].count()
    assert 0 < first < 20
    results = db[Text].bulk_create(texts(20), batch_size=20, resume_id="texts")
    assert [(item.obj.id, item.created) for item in results] == [(n, True) for n in range(20)]
    again = db[Text].bulk_create(texts(20), batch_size=20, resume_id="texts", results=False)
    assert (again.written, again.resumed, db[Text].count()) == (20, True, 20)


class Copied(KvModel, collection="copied"):
    id: PrimaryKey[int]

    def after_insert(self) -> None:
        raise OperationTooLargeError("a hook wrote too much", limit="max_mutations", size=2, maximum=1, hint="Less.")


def test_an_error_of_a_hook_after_the_commit_is_not_one_of_the_batch():
    with Database("memory://", models=[Copied]) as db:
        with pytest.raises(LimitExceededError, match="a hook wrote too much"):
            db[Copied].bulk_create([Copied(id=n) for n in range(4)], batch_size=2)
        assert [one.id for one in db[Copied]] == [0, 1]


async def test_the_asynchronous_facade_halves_too():
    async with AsyncDatabase("memory://", models=[Text], limits=FEW) as db:
        result = await db[Text].bulk_create(texts(20), batch_size=20, results=False)
        assert (result.written, result.batches) == (20, 4)
        assert (await db.check()).ok
