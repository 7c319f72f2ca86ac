"""Queries beside writers find each unwritten record; each result was stored at some time, and is in order."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvmodels import Database, Vector
from tests.query.engines import watched
from tests.vectors.queries import DIM, FAR, Doc, check_answer, distances, docs, drawn, expected
from tests.vectors.test_vector_queries import filled, ranked, url_of
from tests.worlds import MEMORY_AND_IN_TEST_SERVERS

KEPT = 40
"""The number of records without a writer."""
WRITTEN = range(1_000, 1_010)
"""The keys of the others."""


def write(repository: Any, chance: Random) -> None:
    """Write or remove one of the others."""
    key = chance.choice(WRITTEN)
    if chance.random() < 0.3:
        repository.remove(key)
        return
    (made,) = docs(chance, 1)
    repository.save(made.model_copy(update={"id": key, "rank": chance.randrange(KEPT)}), force=True)


def ask(repository: Any, chance: Random, records: list[Doc]) -> None:
    """Query the nearest of all records; check those without a writer and the written ones separately."""
    asked = drawn(chance, records)
    most = chance.choice([1, 5, 60])
    hits = ranked(repository, asked, asked.by)[:most].to_list()
    wanted = expected(asked, records)
    kept = [hit for hit in hits if hit.record.id < KEPT]
    check_answer(asked, kept, wanted[: len(kept)], records)
    assert len(hits) == most or len(kept) == len(wanted), asked
    assert [(hit.distance, hit.record.id) for hit in hits] == sorted((hit.distance, hit.record.id) for hit in hits)
    for hit in hits:
        assert hit.record.embedding is not None
        assert asked.test(hit.record), asked
        (distance,) = distances(asked.metric, asked.origin, [hit.record])
        assert abs(hit.distance - distance) <= FAR * max(1.0, abs(distance)), asked


def check_between_reads(seed: int, queries: int, *, snapshots: bool) -> None:
    """Somebody writes before each read of a query."""
    chance = Random(seed)
    db, engine = watched([Doc], snapshots=snapshots)
    records = filled(db, chance, KEPT)
    elsewhere = watched([Doc], engine=engine.inner)[0][Doc]

    def meanwhile() -> None:
        for _ in range(chance.randrange(3)):
            write(elsewhere, chance)
        engine.before_read = meanwhile

    for _ in range(queries):
        engine.before_read = meanwhile
        ask(db[Doc], chance, records)
    engine.before_read = None
    assert db.check().ok


@pytest.mark.parametrize("snapshots", [True, False])
def test_queries_are_right_whatever_is_written_between_their_reads(snapshots: bool):
    check_between_reads(1, 20, snapshots=snapshots)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_queries_are_right_whatever_is_written_between_their_reads(seed: int):
    for snapshots in (True, False):
        check_between_reads(seed, 200, snapshots=snapshots)


def check_a_record_that_comes_nearer() -> None:
    """A record that no batch has had comes nearer than a result that was returned: it is left out."""
    moved = Counter[int]()
    for number in range(1, 6):
        db, engine = watched([Doc], snapshots=False)
        far = {key: Vector([key + 1.0, *[0] * (DIM - 1)]) for key in range(40)}
        db[Doc].bulk_create([Doc(id=key, embedding=one, size=int(key in (0, 39))) for key, one in far.items()])
        elsewhere = watched([Doc], engine=engine.inner)[0][Doc]
        reads = iter(range(1, 20))

        def move(number: int = number, elsewhere: Any = elsewhere, engine: Any = engine, reads: Any = reads) -> None:
            if next(reads) == number:
                elsewhere.patch(39, embedding=Vector([0.5, *[0] * (DIM - 1)]))
            else:
                engine.before_read = move

        engine.before_read = move
        hits = db[Doc].filter(size=1).similar("l2_int8", Vector([1e-3, *[0] * (DIM - 1)]))[:2].to_list()
        assert [hit.distance for hit in hits] == sorted(hit.distance for hit in hits)
        assert 0 in [hit.record.id for hit in hits]
        moved[len(hits)] += 1
    assert moved[1], "it never was left out"


def test_a_record_that_comes_nearer_than_a_result_is_left_out():
    check_a_record_that_comes_nearer()


@pytest.mark.servers
@pytest.mark.parametrize("engine", MEMORY_AND_IN_TEST_SERVERS)
def test_queries_beside_two_threads_that_write_are_right(engine: str, quick_folder: Path):
    chance = Random(3)
    with Database(url_of(engine, quick_folder), models=[Doc], durability="relaxed") as db:
        records = filled(db, chance, KEPT)
        ended = threading.Event()
        errors: list[BaseException] = []

        def work(seed: int) -> None:
            own = Random(seed)
            try:
                while not ended.is_set():
                    write(db[Doc], own)
            except BaseException as error:  # noqa: BLE001 - raised below, in the thread of the test
                errors.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(60):
                ask(db[Doc], chance, records)
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        assert errors == []
        assert db.check().ok
