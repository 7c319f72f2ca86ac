"""Bulk writes under small limits, over records that expire or share a collection with other classes, and awaited."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from kvmodels import AsyncDatabase, Database, F, Field, Indexed, KvModel, OperationTooLargeError, PrimaryKey, Unique
from kvmodels.flows.bulk.options_and_results import BulkProgress
from kvmodels.limits import Limits
from tests.bulk.jobs import JOBS, state
from tests.bulk.models import Thing, memory, things
from tests.worlds import in_test_servers


@pytest.mark.parametrize("limits", [Limits.DENO, Limits.DENOKV_SERVER], ids=lambda limits: limits.name)
@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("resume_id", ["job", *in_test_servers(None)])
def test_batches_are_as_large_as_the_limits_allow(limits: Limits, name: str, resume_id: str | None):
    db = Database("memory://", models=[Thing], limits=limits)
    for thing in things(60):
        db[Thing].insert(thing)
    twin = memory(60)
    result = JOBS[name].run(db, resume_id)
    assert result.written == JOBS[name].run(twin, None).written
    assert state(db) == state(twin)
    assert db.check().ok


class Text(KvModel, collection="texts"):
    id: PrimaryKey[int]
    text: str = ""
    code: Unique[str] = Field(default="")


def texts(count: int, limits: Limits = Limits.EMBEDDED) -> Database:
    db = Database("memory://", models=[Text], limits=limits)
    db[Text].bulk_create([Text(id=number, code=str(number)) for number in range(count)], batch_size=20)
    return db


def test_a_batch_that_is_too_large_is_halved():
    db = texts(90, Limits.DENO.within(Limits.EMBEDDED))
    told: list[BulkProgress] = []
    result = db[Text].all().update(text="x" * 60_000, progress=told.append)
    assert (result.written, db[Text].filter(id=89).first().text) == (90, "x" * 60_000)  # type: ignore[union-attr]
    assert result.batches == len(told) > 8
    loaded = db[Text].to_list()
    assert db[Text].bulk_update(loaded).written == 90
    with pytest.raises(OperationTooLargeError), db.transaction() as tx:
        tx[Text].all().update(text="y" * 60_000)


def test_a_record_that_is_too_large_is_an_error_or_a_failure():
    db = texts(20)
    too_long = {"code": F("code") * 1_500}
    with pytest.raises(ValueError, match="too long"):
        db[Text].filter(id__lt=30).allow_scan().update(too_long)
    result = db[Text].filter(id__lt=30).allow_scan().update(too_long, on_error="collect")
    assert [failure.key for failure in result.failed] == list(range(10, 20))
    assert {failure.kind for failure in result.failed} == {"KeyTooLargeError"}
    assert [len(one.code) for one in db[Text]] == [1_500] * 10 + [2] * 10
    assert db.check().ok


class Session(KvModel, collection="sessions"):
    id: PrimaryKey[int]
    user: Indexed[str]
    n: int = 0

    class Meta:
        ttl = 10


def test_deadlines_stay_and_expired_records_are_gone():
    clock = [1_000]
    with Database("memory://", models=[Session], clock=lambda: clock[0]) as db:
        sessions = db[Session]
        sessions.bulk_create([Session(id=number, user="u") for number in range(4)])
        clock[0] = 6_000
        sessions.bulk_create([Session(id=number, user="u") for number in range(4, 8)])
        before = [sessions.expires_at(number) for number in range(8)]
        loaded = sessions.to_list()
        assert sessions.filter(user="u").update(n=F("n") + 1).written == 8
        assert [sessions.expires_at(number) for number in range(8)] == before
        clock[0] = 11_500
        assert sessions.filter(user="u").update(user="v").written == 4
        result = sessions.bulk_update(loaded, on_error="collect")
        assert [failure.key for failure in result.failed] == list(range(8))
        items = sessions.bulk_create([Session(id=1, user="w"), Session(id=5, user="w")], on_conflict="update")
        assert [item.created for item in items] == [True, False]
        assert sessions.expires_at(5) == before[5]
        assert sessions.all().delete().written == 5
        assert db.check().ok


class Shape(KvModel, collection="shapes", discriminator="kind"):
    id: PrimaryKey[int]
    kind: str
    size: Indexed[int] = Field(default=0)


class Circle(Shape):
    kind: Literal["circle"] = "circle"
    radius: int = 1


class Square(Shape):
    kind: Literal["square"] = "square"
    side: int = 1


def test_classes_that_share_a_collection_are_written_together_and_each_for_itself():
    db = Database("memory://", models=[Shape, Circle, Square])
    db[Circle].bulk_create([Circle(id=number, size=number) for number in range(0, 10, 2)])
    db[Square].bulk_create([Square(id=number, size=number) for number in range(1, 10, 2)])
    assert db[Shape].filter(size__gte=2).update(size=F("size") + 1).written == 8
    assert db[Circle].all().update(radius=F("size") * 2, resume_id="circles").written == 5
    assert [(one.id, one.size, one.radius) for one in db[Circle]] == [
        (number, number + (number >= 2), (number + (number >= 2)) * 2) for number in range(0, 10, 2)
    ]
    loaded = db[Shape].to_list()
    for shape in loaded:
        shape.size = 1
    assert db[Shape].bulk_update(loaded, ["size"]).written == 10
    assert db[Square].filter(size=1)[:2].delete().written == 2
    assert [shape.id for shape in db[Shape]] == [0, 2, 4, 5, 6, 7, 8, 9]
    changed, created = db[Shape].update_or_create(id=4, defaults={"size": F("size") + 5}, create_defaults={})
    assert (type(changed), changed.size, created) == (Circle, 6, False)
    assert db[Circle].all().delete().written == 5
    assert db[Shape].count() == 3
    assert db.check().ok


def test_the_asynchronous_verbs_do_the_same():
    async def main() -> None:
        async with AsyncDatabase("memory://", models=[Thing]) as db:
            await db[Thing].bulk_create(things(20))
            told: list[int] = []
            result = (
                await db[Thing]
                .filter(n__gte=1)
                .update(
                    n=F("n") + 1, batch_size=5, resume_id="job", progress=lambda progress: told.append(progress.written)
                )
            )
            assert (result.written, told[-1]) == (17, 17)
            assert (await db[Thing].filter(n__gte=1).update(n=F("n") + 1, resume_id="job")).resumed
            assert await db.forget_bulk("job")
            assert (await db[Thing].order_by("-n")[:3].delete()).written == 3
            loaded = await db[Thing].to_list()
            assert (await db[Thing].bulk_update(loaded, on_error="collect")).written == 17
            made = await asyncio.gather(
                *(
                    db[Thing].update_or_create(id=50, defaults={"n": F("n") + 1}, create_defaults={"n": 1})
                    for _ in range(5)
                )
            )
            assert sorted(created for _, created in made) == [False] * 4 + [True]
            async with db.transaction() as tx:
                assert (await tx[Thing].filter(id=50).update(n=F("n") * 2)).written == 1
            assert (await db[Thing].get(50)).n == 10
            assert (await db.check()).ok

    asyncio.run(main())
