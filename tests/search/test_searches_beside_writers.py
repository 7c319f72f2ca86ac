"""Searches beside writers: records that nobody writes are found exactly once, and a transaction sees one state."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from kvmodels import Database, IndexNotReadyError, KvModel, PrimaryKey, StaleObjectError
from kvmodels.flows.evolution import record_pass
from tests.search.queries import Note, drawn, notes, scores
from tests.search.test_ranked_searches import WEIGHTS, check_hits, pages

RECORDS = 24
WRITERS = 4
WRITES, ON_SERVERS = 40, 6
"""The writes of each writer."""


def writing(db: Database, number: int, writes: int) -> None:
    """Create, change and remove the records of one writer, whose keys follow those that are never written."""
    chance = Random(number)
    for _ in range(writes):
        key = RECORDS + chance.randrange(4) * WRITERS + number
        (note,) = notes(chance, 1)
        match chance.randrange(4):
            case 0:
                db[Note].remove(key)
            case 1:
                db[Note].update_or_create(id=key, defaults=note.model_dump(exclude={"id"}))
            case 2:
                db[Note].bulk_create([note.model_copy(update={"id": key})], on_conflict="update")
            case _:
                try:
                    db[Note].patch(key, title=note.title, tags=note.tags)
                except (Note.DoesNotExist, StaleObjectError):
                    continue


def ask(db: Database, chance: Random, untouched: list[Note]) -> None:
    """Compare searches with the words of the records that are never written."""
    asked = drawn(chance)
    wanted = [one.id for one in untouched if asked.test(one)]
    hits = db[Note].search("by_text", asked.text).to_list()
    assert sorted(hit.record.id for hit in hits if hit.record.id < RECORDS) == wanted, asked.text
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.record.id))
    assert all(asked.test(hit.record) for hit in hits), asked.text
    found = db[Note].filter(by_text__search=asked.text).to_list()
    assert sorted(one.id for one in found if one.id < RECORDS) == wanted, asked.text
    assert all(map(asked.test, found)), asked.text


def walk(db: Database, chance: Random, untouched: list[Note]) -> None:
    """Compare the pages of a search, between which others write."""
    asked = drawn(chance)
    query, found, cursor = db[Note].search("by_text", asked.text), list[int](), None
    while True:
        page = query.page(3, after=cursor)
        found += [hit.record.id for hit in page if hit.record.id < RECORDS]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert sorted(found) == [one.id for one in untouched if asked.test(one)], asked.text


def equals_the_formula(db: Database, chance: Random) -> None:
    """Compare the scores in a transaction with those of all records that it reads."""
    asked = drawn(chance)
    with db.transaction() as tx, tx.unchecked():
        check_hits(tx[Note].search("by_text", asked.text).to_list(), scores(tx[Note].all().to_list(), asked, WEIGHTS))


@pytest.mark.parametrize("engine", ["memory", "sqlite", "lmdb"])
def test_searches_beside_writers_find_what_no_one_writes_once(
    engine: str, quick_folder: Path, request: pytest.FixtureRequest
):
    server = request.node.callspec.params.get("_server_stores")
    url = "memory://" if engine == "memory" else f"{engine}:///{quick_folder}/notes"
    chance = Random(5)
    with Database(url, models=[Note]) as db:
        untouched = notes(chance, RECORDS)
        for one in untouched:
            db[Note].insert(one)
        writes = WRITES if server is None else ON_SERVERS
        threads = [threading.Thread(target=writing, args=(db, number, writes)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            ask(db, chance, untouched)
            walk(db, chance, untouched)
            if server is None:
                equals_the_formula(db, chance)
        for thread in threads:
            thread.join()
        for _ in range(5):
            asked = drawn(chance)
            query = db[Note].search("by_text", asked.text)
            hits = query.to_list()
            check_hits(hits, scores(db[Note].all().to_list(), asked, WEIGHTS))
            assert pages(query, 4) == [hit.record.id for hit in hits]
        assert db.check().ok


class OldNote(KvModel, collection="notes"):
    """The release before, without an index."""

    id: PrimaryKey[int]
    org: str | None
    title: str | None
    body: str
    tags: list[str] | None
    size: int


@pytest.mark.parametrize("engine", ["memory", "sqlite", "lmdb"])
def test_searches_beside_a_build_are_refused_until_they_find_every_record(
    engine: str, quick_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    url = "memory://built" if engine == "memory" else f"{engine}:///{quick_folder}/notes"
    chance, untouched, seen = Random(6), notes(Random(6), RECORDS), list[bool]()
    for size in ("FIRST_BATCH", "LARGEST_BATCH"):
        monkeypatch.setattr(record_pass, size, 4)
    with ExitStack() as opened:
        old = opened.enter_context(Database(url, models=[OldNote]))
        old[OldNote].bulk_create([OldNote(**one.model_dump()) for one in untouched])
        db = opened.enter_context(Database(url, models=[Note]))
        threads = [threading.Thread(target=writing, args=(db, number, WRITES)) for number in range(2)]

        def look(*_: object) -> None:
            if not seen:  # the build has begun
                for thread in threads:
                    thread.start()
            try:
                ask(db, chance, untouched)
                walk(db, chance, untouched)
            except IndexNotReadyError:
                seen.append(False)
            else:
                seen.append(True)

        assert db.apply(progress=look).complete
        for thread in threads:
            thread.join()
        look()
        assert seen == sorted(seen)
        assert not seen[0]
        assert seen[-1]
        for _ in range(5):
            equals_the_formula(db, chance)
        assert db.check().ok
