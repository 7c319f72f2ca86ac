"""Before a schema version is raised, and whenever a plan is made, a release is tried on stored records."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Literal

import pytest

from kvmodels import (
    AsyncDatabase,
    DecodeError,
    KvModel,
    PrimaryKey,
    SchemaChangeRefusedError,
    SchemaMismatchError,
    Unique,
    Upgrade,
)
from kvmodels.catalog.plan_rules import StepKind
from kvmodels.flows.evolution import apply
from tests.robustness.models import require_readable


class Song(KvModel, collection="songs"):
    id: PrimaryKey[int]
    title: Unique[str]
    length: str = "3:10"
    mood: str = "calm"


def in_seconds(document: dict[str, Any]) -> dict[str, Any]:
    minutes, seconds = document["length"].split(":")
    return {**document, "length": 60 * int(minutes) + int(seconds)}


class InSeconds(KvModel, collection="songs"):
    id: PrimaryKey[int]
    title: Unique[str]
    length: int
    mood: str = "calm"

    class Meta:
        schema_version: ClassVar = 2
        upgrades: ClassVar = (Upgrade(2, in_seconds, touches=("length",)),)


def tolerant(document: dict[str, Any]) -> dict[str, Any]:
    return in_seconds(document) if ":" in document["length"] else {**document, "length": 0}


class Tolerant(KvModel, collection="songs"):
    id: PrimaryKey[int]
    title: Unique[str]
    length: int
    mood: str = "calm"

    class Meta:
        schema_version: ClassVar = 2
        upgrades: ClassVar = (Upgrade(2, tolerant, touches=("length",)),)


class Moods(Song, collection="songs"):
    mood: Literal["calm", "gay", "sad"] = "calm"


class FewerMoods(Song, collection="songs"):
    """Of the same types as ``Moods``, as far as the catalogue knows."""

    mood: Literal["calm", "gay"] = "calm"


def stored(db: Any) -> list[Any]:
    return [(entry.key, entry.versionstamp) for entry in db.kv.list(prefix=())]


def test_an_upgrade_that_fails_on_a_record_is_refused_before_the_version_is_raised(opened):
    old = opened(Song)
    old[Song].bulk_create([Song(id=n, title=f"t{n}", length="" if n in (3, 5) else "1:02") for n in range(20)])
    before = stored(old)
    new = opened(InSeconds)
    (step,) = new.plan().refused
    assert (step.rule, step.kind, step.allow) == ("upgrade_fails", StepKind.REFUSED, "leave_records")
    assert list(step.records) == [(3, "length: upgrade to 2: ValueError"), (5, "length: upgrade to 2: ValueError")]
    assert step.detail == "2 of 20 tried: length: upgrade to 2: ValueError (2, first 3)"
    with pytest.raises(SchemaChangeRefusedError) as caught:
        new.apply()
    require_readable(caught.value)
    assert caught.value.steps == (f"songs: upgrade_fails ({step.detail})",)
    assert stored(old) == before
    old[Song].patch(1, mood="wild")
    with pytest.raises(SchemaMismatchError):
        new[InSeconds].patch(1, mood="gay")
    # Each way out of the text: the upgrade is mended; the older release mends the records; they are allowed to stay.
    assert opened(Tolerant).plan().refused == ()
    old[Song].patch(3, length="0:01")
    old[Song].remove(5)
    assert new.apply().complete
    assert new[InSeconds].get(3).length == 1
    with pytest.raises(SchemaMismatchError):
        old[Song].patch(1, mood="calm")


def test_records_that_are_allowed_to_stay_are_listed_until_they_fit(opened):
    opened(Song)[Song].bulk_create([Song(id=n, title=f"t{n}", length="" if n == 3 else "1:02") for n in range(6)])
    new = opened(InSeconds)
    assert new.apply(allow=("leave_records",)).complete, "no index waits for them"
    assert [(step.rule, step.allowed, step.kind) for step in new.plan().steps] == [
        ("records_refused", False, StepKind.SAFE),
        ("records_outdated", False, StepKind.SAFE),
    ]
    assert new.apply().complete
    assert new[InSeconds].get(2).length == 62
    with pytest.raises(DecodeError) as caught:
        new[InSeconds].get(3)
    assert (caught.value.field, caught.value.reason) == ("length", "upgrade to 2: ValueError")
    assert not new.migrate(InSeconds).complete
    (violation,) = new.violations(InSeconds)
    assert str(violation) == "songs: 3 not_decodable (length: upgrade to 2: ValueError)"
    new[InSeconds].save(InSeconds(id=3, title="t3", length=9), force=True)
    assert new.migrate(InSeconds).complete
    assert new.plan().steps == ()


def test_a_sample_is_as_large_as_it_is_said_to_be(opened, monkeypatch):
    monkeypatch.setattr(apply, "ROWS_AT_ONCE", 40)
    old = opened(Song)
    old[Song].bulk_create([Song(id=n, title=f"t{n}", length="" if n == 123 else "1:02") for n in range(124)])
    new = opened(InSeconds)
    assert new.plan().refused == new.plan(sample=123).refused == ()
    for sample in (124, 200, None):
        (step,) = new.plan(sample=sample).refused
        assert step.detail == "1 of 124 tried: length: upgrade to 2: ValueError (1, first 123)"
        with pytest.raises(SchemaChangeRefusedError):
            new.apply(sample=sample)
    old[Song].patch(0, length="?")
    assert new.plan(sample=0).refused == ()
    assert [one.key for step in new.plan(sample=1).refused for one in step.records] == [0]


def test_a_sample_of_one_collection_does_not_count_for_another(opened):
    class Other(KvModel, collection="others"):
        id: PrimaryKey[int]

    db = opened(Song, Other)
    db[Other].bulk_create([Other(id=n) for n in range(3)])
    db[Song].create(id=1, title="a", length="?")
    assert [step.detail.partition(":")[0] for step in opened(Other, InSeconds).plan().refused] == ["1 of 1 tried"]


def test_what_the_upgraded_record_would_be_is_tried_too(opened):
    def doubled(document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "title": document["title"] * 30}

    class Doubled(Song, collection="songs"):
        class Meta:
            schema_version: ClassVar = 2
            upgrades: ClassVar = (Upgrade(2, doubled, touches=("title",)),)

    opened(Song)[Song].bulk_create([Song(id=n, title=f"t{n}" * (40 if n == 2 else 1)) for n in range(4)])
    (step,) = opened(Doubled).plan().refused
    assert list(step.records) == [(2, "too_long (title)")]


def test_a_field_that_no_longer_takes_its_values_is_seen_in_the_records(opened):
    old = opened(Moods)
    old[Moods].bulk_create([Moods(id=n, title=f"t{n}", mood=("calm", "gay", "sad")[n % 3]) for n in range(9)])
    (step,) = opened(FewerMoods).plan().steps
    assert (step.rule, step.kind) == ("records_refused", StepKind.SAFE)
    assert step.detail == "3 of 9 tried: mood: literal_error (3, first 2)"
    assert old.plan().steps == ()
    assert opened(FewerMoods).apply().complete


def test_what_a_type_that_is_to_be_allowed_refuses_is_said_beside_it(opened):
    old = opened(Song)
    old[Song].bulk_create([Song(id=n, title=f"t{n}", mood=("calm", "sad")[n % 2]) for n in range(4)])
    assert [(step.rule, [one.key for one in step.records]) for step in opened(FewerMoods).plan().steps] == [
        ("field_retyped", []),
        ("records_refused", [1, 3]),
    ]


def test_a_release_that_is_behind_is_not_tried(opened):
    opened(Song)[Song].create(id=1, title="a")
    new = opened(InSeconds)
    new.apply()
    new.migrate(InSeconds)
    old = opened(Song)
    assert [step.rule for step in old.plan().steps] == ["schema_version_lower"]


def test_the_asynchronous_twin_tries_records_too(tmp_path):
    async def main() -> list[str]:
        url = str(tmp_path / "songs.db")
        async with AsyncDatabase(url, models=[Song]) as old:
            await old[Song].create(id=1, title="a", length="?")
        async with AsyncDatabase(url, models=[InSeconds]) as new:
            assert (await new.plan(sample=0)).refused == ()
            with pytest.raises(SchemaChangeRefusedError):
                await new.apply(sample=None)
            return [step.rule for step in (await new.plan()).refused]

    assert asyncio.run(main()) == ["upgrade_fails"]
