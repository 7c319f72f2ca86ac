"""Removals in resumable batches: the same records as by one removal, each once, whatever happens in between."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Annotated, Any

import pytest

from kvmodels import (
    CASCADE,
    SET_NULL,
    Database,
    Field,
    ForeignKey,
    InvalidArgumentError,
    KvModel,
    Limits,
    OperationTooLargeError,
    PrimaryKey,
    ProtectedError,
    RetriesExhaustedError,
    SchemaMismatchError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.contract import Engine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.bulk.options_and_results import BulkProgress
from kvmodels.flows.retry_policy import DEFAULT_RETRY
from tests.bulk.jobs import DyingEngine, Fate, Killed
from tests.references.families import FAMILIES, Deed, Person, Town


class Label(KvModel, collection="labels"):
    id: PrimaryKey[int]


class Album(KvModel, collection="albums"):
    id: PrimaryKey[int]
    label: Annotated[ForeignKey[int, Label], CASCADE]


class Strict(KvModel, collection="albums"):
    id: PrimaryKey[int]
    label: ForeignKey[int, Label]


class Track(KvModel, collection="tracks"):
    id: PrimaryKey[int]
    album: Annotated[ForeignKey[int, Album], CASCADE]

    def before_remove(self) -> None:
        removed.append(self.id)


class Review(KvModel, collection="reviews"):
    id: PrimaryKey[int]
    track: Annotated[ForeignKey[int | None, Track], SET_NULL] = Field(default=None)


class Invoice(KvModel, collection="invoices"):
    id: PrimaryKey[int]
    track: ForeignKey[int | None, Track] = Field(default=None)
    label: ForeignKey[int | None, Label] = Field(default=None)


MUSIC = (Label, Album, Track, Review, Invoice)
ALBUMS, TRACKS = 2, 3
removed: list[int] = []


def opened(engine: Engine) -> Database:
    core = DatabaseCore(MUSIC, retry=DEFAULT_RETRY, readonly=False, must_be_current=False)
    return Database.from_engine(engine, core)


def filled(db: Database) -> Database:
    """Label 1 has albums with tracks, which have a review each; label 2 has one album with a track."""
    removed.clear()
    db[Label].bulk_create([Label(id=1), Label(id=2)])
    db[Album].bulk_create(
        [Album(id=number, label=1) for number in range(ALBUMS)] + [Album(id=100, label=2)], batch_size=3
    )
    tracks = [Track(id=10 * album + number, album=album) for album in range(ALBUMS) for number in range(TRACKS)]
    db[Track].bulk_create([*tracks, Track(id=1000, album=100)], batch_size=3)
    db[Review].bulk_create([Review(id=track.id, track=track.id) for track in tracks], batch_size=3)
    return db


EVERYTHING = 1 + ALBUMS + 2 * ALBUMS * TRACKS
"""The label, its albums, their tracks, and the reviews of these."""


def require_removed(db: Database) -> None:
    assert [label.id for label in db[Label]] == [2]
    assert [album.id for album in db[Album]] == [100]
    assert [track.id for track in db[Track]] == [1000]
    assert db[Review].count() == db[Review].filter(track=None).count() == ALBUMS * TRACKS
    report = db.check()
    assert report.ok, report
    assert not report.dangling_references
    assert not report.stray_guards


@pytest.mark.parametrize("batch_size", [1, 4, None])
def test_everything_that_refers_to_a_record_goes_before_it(batch_size: int | None):
    told: list[BulkProgress] = []
    with filled(opened(MemoryEngine())) as db:
        result = db[Label].remove_cascade(1, resume_id="label", batch_size=batch_size, progress=told.append)
        assert (result.matched, result.written, result.failed, result.resumed) == (EVERYTHING, EVERYTHING, (), False)
        assert (told[-1].written, told[-1].batches) == (EVERYTHING, result.batches)
        assert len(told) == result.batches
        assert sorted(removed) == [10 * album + number for album in range(ALBUMS) for number in range(TRACKS)]
        require_removed(db)
        again = db[Label].remove_cascade(1, resume_id="label")
        assert (again.written, again.batches, again.resumed) == (EVERYTHING, result.batches, True)


def test_a_process_that_dies_at_any_request_is_continued():
    fates: tuple[Fate, ...] = ("before", "after")
    at, alive = 0, False
    while not alive:
        at += 1
        store = MemoryEngine()
        db = filled(opened(store))
        try:
            result = opened(DyingEngine(store, at // 2 + 1, fates[at % 2]))[Label].remove_cascade(
                1, resume_id="label", batch_size=4
            )
            alive = True
        except Killed:
            result = opened(store)[Label].remove_cascade(1, resume_id="label", batch_size=4)
        assert result.written == EVERYTHING, at
        require_removed(db)
        assert db.forget_bulk("label")
        assert not list(db.kv.list(prefix=("__kvmodels__", "bulk")))
        db.close()
    assert at > 30


def halfway(store: MemoryEngine) -> Database:
    """A store in which a cascade was killed after some batches."""
    db = filled(opened(store))
    with pytest.raises(Killed):
        opened(DyingEngine(store, 20))[Label].remove_cascade(1, resume_id="label", batch_size=3)
    assert 0 < db[Track].count() < 1 + ALBUMS * TRACKS
    return db


def test_a_record_with_the_key_of_a_removed_target_stays():
    db = halfway(MemoryEngine())
    db[Label].remove(1)
    db[Label].create(id=1)
    db[Album].create(id=50, label=1)
    result = db[Label].remove_cascade(1, resume_id="label")
    assert 0 < result.written < EVERYTHING
    assert result.resumed
    assert (db[Label].count(), db[Album].count()) == (2, 2)


def test_a_changed_target_and_new_records_that_refer_to_it_are_removed():
    db = halfway(MemoryEngine())
    db[Label].save(db[Label].get(1))
    db[Album].create(id=50, label=1)
    assert db[Label].remove_cascade(1, resume_id="label").written == EVERYTHING + 1
    require_removed(db)


def test_a_protected_record_ends_the_removal_at_once():
    with filled(opened(MemoryEngine())) as db:
        db[Invoice].create(id=1, label=1)
        with pytest.raises(ProtectedError) as caught:
            db[Label].remove_cascade(1, resume_id="label")
        assert (caught.value.referrer, caught.value.keys) == ("invoices", (1,))
        assert (db[Album].count(), removed) == (ALBUMS + 1, [])
        db[Invoice].remove(1)
        db[Invoice].create(id=2, track=11)
        with pytest.raises(ProtectedError, match="other records") as caught:
            db[Label].remove_cascade(1, resume_id="label")
        assert caught.value.keys == (2,)
        assert (db[Label].count(), db[Track].get(11).album) == (2, 1)
        db[Invoice].remove(2)
        assert db[Label].remove_cascade(1, resume_id="label").resumed
        require_removed(db)


def test_a_removal_that_is_too_large_names_the_one_in_batches():
    few = replace(Limits.DENOKV_SERVER, name="few", max_checks=12)
    with filled(opened(MemoryEngine(limits=few))) as db:
        with pytest.raises(OperationTooLargeError) as caught:
            db[Label].remove(1)
        assert "remove_cascade(key, resume_id=" in (caught.value.hint or "")
        assert db[Label].remove_cascade(db[Label].get(1), resume_id="label").written == EVERYTHING
        require_removed(db)


def test_steady_inserters_end_the_removal_after_twenty_rounds():
    few = replace(Limits.DENOKV_SERVER, name="few", max_checks=12)
    keys = iter(range(-1, -10_000, -1))
    with filled(opened(MemoryEngine(limits=few))) as db:

        def insert(_: BulkProgress) -> None:
            """Add what does not fit into the last commit, before what was passed already."""
            if not db[Album].filter(label=1).exists():
                db[Album].bulk_create([Album(id=next(keys), label=1) for _ in range(12)], batch_size=3)

        with pytest.raises(RetriesExhaustedError, match="in every attempt") as caught:
            db[Label].remove_cascade(1, resume_id="label", progress=insert)
        assert caught.value.attempts == 20
        assert db[Label].remove_cascade(1, resume_id="label").written == EVERYTHING + 20 * 12
        require_removed(db)


def test_an_effect_that_changes_in_between_holds_from_then_on():
    store = MemoryEngine()
    with filled(opened(store)) as db:

        def protect(progress: BulkProgress) -> None:
            if progress.batches == 1:
                strict = DatabaseCore((Label, Strict), retry=DEFAULT_RETRY, readonly=False, must_be_current=False)
                Database.from_engine(store, strict).apply()

        with pytest.raises(SchemaMismatchError, match="another effect"):
            db[Label].remove_cascade(1, resume_id="label", batch_size=1, progress=protect)
        assert (db[Label].count(), db[Album].count()) == (2, ALBUMS + 1)


def test_an_absent_record_and_one_that_nothing_can_refer_to():
    with filled(opened(MemoryEngine())) as db:
        assert db[Label].remove_cascade(9, resume_id="label").written == 0
        assert db[Invoice].remove_cascade(9, resume_id="invoice").written == 0
        db[Invoice].create(id=1)
        assert db[Invoice].remove_cascade(1, resume_id="invoice").written == 1
        assert db[Invoice].remove_cascade(1, resume_id="invoice").resumed


def test_wrong_arguments_are_refused():
    with filled(opened(MemoryEngine())) as db:
        for options in ({"resume_id": ""}, {"resume_id": "a", "batch_size": 0}, {"resume_id": None}):
            wrong: dict[str, Any] = options
            with pytest.raises(InvalidArgumentError):
                db[Label].remove_cascade(1, **wrong)
        with db.transaction() as tx, pytest.raises(InvalidArgumentError):
            tx[Label].remove_cascade(1, resume_id="a")
        db[Album].filter(label=2).delete(resume_id="a")
        with pytest.raises(InvalidArgumentError, match="other arguments"):
            db[Label].remove_cascade(1, resume_id="a")


@pytest.mark.parametrize("seeds", [range(25), pytest.param(range(25, 2000), marks=pytest.mark.soak)], ids=str)
def test_it_removes_what_one_removal_removes(seeds: range):
    for seed in seeds:
        chance = random.Random(seed)
        rows = families(chance)
        with Database("memory://", models=FAMILIES) as one, Database("memory://", models=FAMILIES) as other:
            for db in (one, other):
                with db.transaction() as tx:
                    for row in rows:
                        tx[type(row)].insert(row.model_copy())
            compare_removals(one, other, chance.choice(rows), chance.randint(1, 4), seed)


def compare_removals(one: Database, other: Database, target: Town | Person | Deed, batch_size: int, seed: int) -> None:
    """Remove a record by one commit in the one store, and in batches in the other one."""
    repository = other[type(target)]
    try:
        one[type(target)].remove(target.id)
    except ProtectedError:
        with pytest.raises(ProtectedError):
            repository.remove_cascade(target.id, resume_id="all", batch_size=batch_size)
    else:
        repository.remove_cascade(target.id, resume_id="all", batch_size=batch_size)
        assert content(other) == content(one), seed
    report = other.check()
    assert report.ok, (seed, report)
    assert not report.dangling_references, seed
    assert not report.stray_guards, seed


def families(chance: random.Random) -> list[Town | Person | Deed]:
    """Records that refer to each other at random, also in cycles."""
    numbers = range(chance.randint(3, 9))
    spouses = chance.sample(numbers, len(numbers))

    def some() -> int | None:
        return chance.choice([None, *numbers])

    towns = [Town(id=number, region=some(), charter=chance.choice([None, None, some()])) for number in numbers]
    people = [Person(id=number, home=some(), spouse=spouses[number]) for number in numbers]
    return [*towns, *people, *(Deed(id=number, owner=some(), witness=some()) for number in numbers)]


def content(db: Database) -> list[list[Any]]:
    return [db[model].to_list() for model in FAMILIES]
