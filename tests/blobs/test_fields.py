"""Blobs as fields of records: sources, verbs, copies, reads, and what is refused."""

from __future__ import annotations

import asyncio
import io
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import ValidationError

from kvmodels import (
    AsyncDatabase,
    Blob,
    BlobGoneError,
    BlobTooLargeError,
    Database,
    DecodeError,
    Indexed,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    ModelDefinitionError,
    Partial,
    PrimaryKey,
    SchemaMismatchError,
    Unique,
    UniqueViolationError,
)
from kvmodels.api.blobs import store
from kvmodels.catalog import catalogue
from kvmodels.catalog.keyspace import chunk_key
from kvmodels.core.keys import decode_key
from kvmodels.flows import context
from kvmodels.flows.blobs import reading
from kvmodels.flows.blobs.upload import LARGE_CHUNK
from tests.blobs.stores import DAY_MS, MODELS, Paper, content, loose, read, require_owners, stored_ids
from tests.kv.stores import Clock

LONG = bytes(range(256)) * 4_000  # 1 MB


def pieces(*parts: bytes) -> Iterator[bytes]:
    """Return an iterator that gives each part once."""
    yield from parts


class Upload:
    """A file with an asynchronous ``read``, as web frameworks give them."""

    def __init__(self, text: bytes) -> None:
        self._file = io.BytesIO(text)

    async def read(self, size: int) -> bytes:
        """Return at most so many bytes."""
        return self._file.read(min(size, 1_000))


SOURCES: dict[str, Callable[[Path], Blob]] = {
    "bytes": lambda _: content(LONG),
    "bytearray": lambda _: Blob(bytearray(LONG), max_bytes=len(LONG)),
    "file": lambda _: Blob(io.BytesIO(LONG), max_bytes=len(LONG)),
    "iterator": lambda _: Blob(pieces(LONG[:7], b"", LONG[7:]), max_bytes=len(LONG)),
    "path": lambda path: Blob.from_path(path, max_bytes=len(LONG)),
    "empty": lambda _: content(b""),
}


@pytest.mark.parametrize("source", SOURCES)
def test_each_source_is_stored_once_and_read_again(source: str, tmp_path: Path) -> None:
    path = tmp_path / "paper.pdf"
    path.write_bytes(LONG)
    expected = b"" if source == "empty" else LONG
    with Database("memory://", models=MODELS) as db:
        made = db[Paper].create(id=1, scan=SOURCES[source](path))
        found = db[Paper].get(1)
        assert read(found.scan) == expected
        assert found == made
        assert made.scan is not None
        assert (made.scan.size, made.scan.content_type == "application/pdf") == (len(expected), source == "path")
        require_owners(db)
        assert not loose(db)


@pytest.mark.parametrize("url", ["sqlite", "lmdb"])
def test_a_file_engine_keeps_blobs_over_a_restart(url: str, tmp_path: Path) -> None:
    where = f"{url}:///{tmp_path}/store"
    with Database(where, models=MODELS) as db:
        db[Paper].create(id=1, scan=content(LONG))
        db[Paper].patch(1, cover=content(b"cover"))
        db[Paper].patch(1, scan=content(LONG[::-1]))
        require_owners(db)
    with Database(where, models=MODELS) as db:
        paper = db[Paper].get(1)
        assert (read(paper.scan), read(paper.cover)) == (LONG[::-1], b"cover")
        assert len(loose(db)) == 1


def test_an_asynchronous_database_streams_in_and_out() -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield LONG[:300_000]
        yield LONG[300_000:]

    async def scene() -> None:
        async with AsyncDatabase("memory://", models=MODELS) as db:
            sources: list[Any] = [parts(), Upload(LONG), io.BytesIO(LONG), LONG]
            for key, source in enumerate(sources):
                await db[Paper].create(id=key, scan=Blob(source, max_bytes=len(LONG)))
                scan = (await db[Paper].get(key)).scan
                assert scan is not None
                async with scan.open() as file:
                    assert await file.read(300_010) == LONG[:300_010]
                    assert await file.seek(-5, io.SEEK_END) == len(LONG) - 5
                    assert await file.read() == LONG[-5:]
                    assert await file.read() == b""
                with pytest.raises(InvalidArgumentError, match="async with"), scan.open():
                    pass

    asyncio.run(scene())


def test_an_asynchronous_source_needs_an_event_loop() -> None:
    with Database("memory://", models=MODELS) as db:
        with pytest.raises(InvalidArgumentError, match="asynchronous"):
            db[Paper].create(id=1, scan=Blob(Upload(b""), max_bytes=1))
        assert not db[Paper].all().exists()


def test_a_range_read_fetches_only_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    fetch = reading.read_chunks

    def noting(blob: Any, first: int, count: int) -> Any:
        asked.append((first, count))
        return fetch(blob, first, count)

    with Database("memory://", models=MODELS) as db:
        scan = db[Paper].create(id=1, scan=content(LONG * 3)).scan
        assert scan is not None
        monkeypatch.setattr(store, "read_chunks", noting)
        chunk = scan.stored.chunk
        with scan.open() as file:
            file.seek(5 * chunk - 2)
            assert file.read(4) == (LONG * 3)[5 * chunk - 2 : 5 * chunk + 2]
            assert file.tell() == 5 * chunk + 2
        assert asked == [(4, 2)] or chunk < LARGE_CHUNK
        asked.clear()
        with scan.open() as file:
            while file.read(100_000):
                pass
        assert len(asked) <= 1 + -(-len(LONG) * 3 // (15 * chunk)) or chunk == LARGE_CHUNK
        assert sum(count for _, count in asked) == scan.stored.chunks


def test_an_id_is_never_taken_from_outside() -> None:
    with Database("memory://", models=MODELS) as db:
        secret = db[Paper].create(id=1, scan=content(b"secret")).scan
        assert secret is not None
        shown = db[Paper].get(1).model_dump_json()
        assert "content_type" in shown
        assert secret.stored.id.hex() not in shown
        for given in (secret.stored.to_value(), {"id": secret.stored.id.hex()}, secret.sha256):
            with pytest.raises(ValidationError):
                Paper.model_validate({"id": 2, "scan": given})
        with pytest.raises(ValidationError):
            Paper.model_validate_json(shown)
        assert "scan" not in Partial[Paper].model_fields
        assert read(db[Paper].get(1).scan) == b"secret"


def test_a_second_place_gets_a_copy() -> None:
    clock = Clock()
    with Database("memory://", models=MODELS, clock=clock) as db:
        papers = db[Paper]
        first = papers.create(id=1, scan=content(LONG))
        second = papers.create(id=2, scan=first.scan, cover=first.scan)
        one_shot = Blob(pieces(b"a", b"b"), max_bytes=2)
        papers.bulk_create([Paper(id=3, scan=one_shot), Paper(id=4, scan=one_shot)])
        third = papers.get(3)
        third.cover = third.scan
        papers.save(third)
        fourth = papers.get(4)
        fourth.title, fourth.cover = "x", second.cover
        papers.bulk_update([fourth])
        require_owners(db)
        assert len(stored_ids(db)) == 7
        papers.remove(1)
        papers.remove(3)
        clock.ms += DAY_MS
        assert db.sweep_blobs() == 3
        require_owners(db)
        assert read(papers.get(2).scan) == read(papers.get(2).cover) == read(papers.get(4).cover) == LONG
        assert read(papers.get(4).scan) == b"ab"
        with pytest.raises(BlobGoneError):
            papers.create(id=5, scan=first.scan)


def test_a_blob_of_another_store_is_not_taken_for_a_removed_one() -> None:
    with Database("memory://", models=MODELS) as db, Database("memory://", models=MODELS) as other:
        scan = db[Paper].create(id=1, scan=content(b"scan")).scan
        assert scan is not None
        with pytest.raises(BlobGoneError, match=r"the store does not have .*another store or tenant"):
            other[Paper].create(id=1, scan=scan)
        with scan.open() as file:
            other[Paper].create(id=1, scan=Blob(file, max_bytes=100))
        assert read(other[Paper].get(1).scan) == b"scan"


def test_unchanged_blobs_stay_where_they_are() -> None:
    with Database("memory://", models=MODELS) as db:
        papers = db[Paper]
        papers.create(id=1, scan=content(b"scan"))
        before = stored_ids(db)
        paper = papers.get(1)
        paper.title = "a"
        papers.save(paper)
        papers.patch(1, title="b")
        papers.mutate(1, lambda one: setattr(one, "title", "c"))
        papers.filter(id=1).update(title="d")
        papers.rename(1, 2)
        papers.update_or_create(id=2, defaults={"title": "e"})
        assert stored_ids(db) == before
        assert not loose(db)
        require_owners(db)
        papers.patch(2, scan=None)
        assert loose(db).keys() == before


def test_a_write_that_fails_leaves_a_loose_blob() -> None:
    class Ticket(KvModel, collection="tickets"):
        id: PrimaryKey[int]
        code: Unique[str]
        scan: Blob

    clock = Clock()
    with Database("memory://", models=[Ticket], clock=clock) as db:
        db[Ticket].create(id=1, code="a", scan=content(b"1"))
        again = Ticket(id=2, code="a", scan=content(b"2"))
        with pytest.raises(UniqueViolationError):
            db[Ticket].insert(again)
        assert len(loose(db)) == 1
        again.code = "b"
        db[Ticket].insert(again)
        require_owners(db)
        with pytest.raises(RuntimeError), db.transaction() as tx:
            tx[Ticket].create(id=3, code="c", scan=content(b"3"))
            raise RuntimeError
        with db.transaction() as tx:
            tx[Ticket].create(id=4, code="d", scan=content(b"4"))
            tx[Ticket].patch(4, scan=content(b"5"))
            tx[Ticket].remove(1)
        require_owners(db)
        clock.ms += DAY_MS
        assert db.sweep_blobs(limit=1) == 1
        db.sweep_blobs()
        assert [read(ticket.scan) for ticket in db[Ticket].all()] == [b"2", b"5"]
        assert len(stored_ids(db)) == 2
        assert not loose(db)


def test_hooks_and_functions_keep_and_drop_blobs_only() -> None:
    with Database("memory://", models=MODELS) as db:
        db[Paper].create(id=1, scan=content(b"scan"))
        with pytest.raises(InvalidArgumentError, match="not stored yet"):
            db[Paper].mutate(1, lambda one: setattr(one, "cover", content(b"new")))
        db[Paper].mutate(1, lambda one: setattr(one, "scan", None))
        assert db[Paper].get(1).scan is None
        with pytest.raises(InvalidArgumentError, match="all records of a query"):
            db[Paper].filter(id=1).update(scan=content(b"x"))
        db[Paper].filter(id=1).update(scan=None)


def test_content_that_is_too_long_is_refused() -> None:
    with Database("memory://", models=MODELS) as db:
        with pytest.raises(BlobTooLargeError) as caught:
            db[Paper].create(id=1, scan=Blob(pieces(LONG, LONG, LONG), max_bytes=2_500_000))
        assert caught.value.maximum == 2_500_000
        assert 2_500_000 < caught.value.size < 3 * len(LONG), "the rest was not read"
        assert not db[Paper].all().exists()
        require_owners(db)


def test_an_upload_that_stands_still_for_a_day_ends() -> None:
    clock = Clock()
    with Database("memory://", models=MODELS, clock=clock) as db:

        def slow() -> Iterator[bytes]:
            yield LONG * 2
            clock.ms += DAY_MS
            assert db.sweep_blobs() == 1
            yield LONG * 2

        with pytest.raises(BlobGoneError, match="stood still"):
            db[Paper].create(id=1, scan=Blob(slow(), max_bytes=len(LONG) * 4))
        assert not stored_ids(db)
        assert not db[Paper].all().exists()


def test_a_reader_gets_no_mixed_content() -> None:
    clock = Clock()
    with Database("memory://", models=MODELS, clock=clock) as db:
        old = db[Paper].create(id=1, scan=content(LONG * 3)).scan
        assert old is not None
        with old.open() as file:
            first = file.read(1_000)
            db[Paper].patch(1, scan=content(b"new" * len(LONG)))
            assert first + file.read(len(LONG) * 2) == (LONG * 3)[: 1_000 + len(LONG) * 2]
            clock.ms += DAY_MS
            db.sweep_blobs()
            with pytest.raises(BlobGoneError):
                file.read()
        assert read(db[Paper].get(1).scan) == b"new" * len(LONG)


def test_a_full_read_finds_damaged_content() -> None:
    with Database("memory://", models=MODELS) as db:
        scan = db[Paper].create(id=1, scan=content(LONG)).scan
        assert scan is not None
        key = decode_key(chunk_key(scan.stored.id, 1))
        value = db.kv.get(key).value
        db.kv.unsafe().set(key, bytes(len(value)))
        with scan.open() as file, pytest.raises(DecodeError, match="damaged"):
            file.read()
        db.kv.unsafe().set(key, b"short")
        with scan.open() as file, pytest.raises(DecodeError, match="damaged"):
            file.read()


def test_queries_know_only_none() -> None:
    with Database("memory://", models=MODELS) as db:
        db[Paper].create(id=1, scan=content(b"1"))
        db[Paper].create(id=2)
        assert [one.id for one in db[Paper].filter(scan=None).allow_scan()] == [2]
        assert [read(one["scan"]) for one in db[Paper].filter(id=1).values("scan")] == [b"1"]
        with pytest.raises(InvalidValueError):
            db[Paper].filter(scan=content(b"1")).allow_scan().to_list()


def test_blobs_are_top_level_fields_of_records_without_deadlines() -> None:
    with pytest.raises(ModelDefinitionError, match="not inside another type"):
        type("Many", (KvModel,), {"__annotations__": {"id": PrimaryKey[int], "scans": list[Blob]}}, collection="many")
    with pytest.raises(ModelDefinitionError, match="key or index"):

        class Sorted(KvModel, collection="sorted"):
            id: PrimaryKey[int]
            scan: Annotated[Blob, Indexed()]

        Database("memory://", models=[Sorted])
    with pytest.raises(ModelDefinitionError, match="lifetime"):

        class Short(KvModel, collection="short"):
            id: PrimaryKey[int]
            scan: Blob

            class Meta:
                ttl = 5

        Database("memory://", models=[Short])
    with Database("memory://", models=MODELS) as db, pytest.raises(InvalidArgumentError, match="cannot expire"):
        db[Paper].insert(Paper(id=1), expire_in=5)


@pytest.mark.parametrize("given", ["a.pdf", Path("a.pdf"), 5, None])
def test_a_value_that_is_no_source_is_refused(given: Any) -> None:
    with Database("memory://", models=MODELS) as db, pytest.raises(InvalidArgumentError):
        db[Paper].create(id=1, scan=Blob(given))


def test_options_of_a_blob_are_checked() -> None:
    for options in ({"max_bytes": 0}, {"max_bytes": "5"}, {"content_type": "a\nb"}, {"content_type": ""}):
        with pytest.raises(InvalidArgumentError):
            Blob(b"", **options)
    pending = Blob(b"abc")
    with pytest.raises(InvalidArgumentError, match="not stored yet"):
        _ = pending.size
    assert "is_stored=False" in repr(pending)


def test_a_pickled_blob_knows_no_database() -> None:
    with Database("memory://", models=MODELS) as db:
        paper = db[Paper].create(id=1, scan=content(b"1"))
        copied: Blob = pickle.loads(pickle.dumps(paper.scan))
        assert copied == paper.scan
        with pytest.raises(InvalidArgumentError, match="without a database"):
            copied.open()


def test_a_release_without_blobs_only_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store"
    with Database(url, models=MODELS) as new:
        new[Paper].create(id=1, scan=content(b"1"))
        with monkeypatch.context() as patch:
            patch.setattr(catalogue, "blob_fields_in", lambda _: None)  # an older release does not know the section
            patch.setattr(context, "_headers", {})
            with Database(url, models=MODELS) as old:
                assert old[Paper].get(1).title == ""
                with pytest.raises(SchemaMismatchError, match="does not know"):
                    old[Paper].remove(1)
        require_owners(new)


def test_a_new_field_is_listed_before_it_is_written(tmp_path: Path) -> None:
    class Before(KvModel, collection="notes"):
        id: PrimaryKey[int]

    class After(KvModel, collection="notes"):
        id: PrimaryKey[int]
        scan: Blob | None = None

    url = f"sqlite:///{tmp_path}/store"
    with Database(url, models=[Before]) as db:
        db[Before].create(id=1)
    with Database(url, models=[After]) as db:
        with pytest.raises(SchemaMismatchError, match="blob field"):
            db[After].patch(1, scan=content(b"1"))
        assert db[After].get(1).scan is None
        db.apply()
        db[After].patch(1, scan=content(b"1"))
        require_owners(db)
    with Database(url, models=[Before]) as db:  # a field that a class does not declare is kept, and given up
        db[Before].remove(1)
        assert len(loose(db)) == 1
