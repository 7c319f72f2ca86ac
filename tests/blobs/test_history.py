"""Blobs of records with a history: old versions keep their content for as long as their rows live."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kvmodels import Blob, BlobGoneError, Database, History, KvModel, PrimaryKey
from tests.blobs.stores import DAY_MS, MODELS, Deed, Paper, Will, content, loose, read, require_owners, stored_ids
from tests.kv.stores import Clock


def test_old_versions_keep_their_content_until_they_expire() -> None:
    clock = Clock()
    with Database("memory://", models=MODELS, clock=clock) as db:
        deeds = db[Deed]
        deeds.create(id=1, scan=content(b"first"))
        deeds.patch(1, scan=content(b"second"))
        deeds.remove(1)
        assert len(loose(db)) == 2
        clock.ms += 10 * DAY_MS - 1
        assert db.sweep_blobs() == 0
        last, ended = deeds.history(1)
        assert ended.record is not None
        assert last.record is not None
        assert (read(ended.record.scan), read(last.record.scan)) == (b"first", b"second")
        clock.ms += DAY_MS + 1
        assert db.sweep_blobs() == 2
        assert not list(deeds.history(1))
        assert not stored_ids(db)
        with pytest.raises(BlobGoneError):
            read(ended.record.scan)


def test_revert_and_restore_take_their_blobs_back() -> None:
    clock = Clock()
    with Database("memory://", models=MODELS, clock=clock) as db:
        wills = db[Will]
        wills.create(id=1, scan=content(b"first"))
        first = wills.get(1).versionstamp
        assert first is not None
        wills.patch(1, scan=content(b"second"))
        assert [value["due"] for value in loose(db).values()] == [None]
        before = stored_ids(db)
        assert read(wills.revert(1, first).scan) == b"first"
        require_owners(db)
        wills.remove(1)
        clock.ms += 1_000 * DAY_MS
        assert db.sweep_blobs() == 0
        assert read(wills.restore(1).scan) == b"first"
        wills.remove(1)
        assert read(wills.restore(1, {"scan": content(b"third")}).scan) == b"third"
        assert before < stored_ids(db)
        require_owners(db)


def test_a_forced_save_takes_back_the_blob_of_an_older_version() -> None:
    with Database("memory://", models=MODELS) as db:
        db[Paper].create(id=1, scan=content(b"first"))
        old = db[Paper].get(1)
        db[Paper].patch(1, scan=content(b"second"))
        db[Paper].save(old, force=True)
        assert read(db[Paper].get(1).scan) == b"first"
        require_owners(db)
        assert len(stored_ids(db)) == 2


def test_a_blob_that_was_swept_is_not_restored() -> None:
    clock = Clock()
    with Database("memory://", models=MODELS, clock=clock) as db:
        db[Paper].create(id=1, scan=content(b"first"))
        old = db[Paper].get(1)
        db[Paper].patch(1, scan=None)
        clock.ms += DAY_MS
        assert db.sweep_blobs() == 1
        with pytest.raises(BlobGoneError):
            db[Paper].save(old, force=True)
        assert db[Paper].get(1).scan is None


def test_forgetting_gives_up_the_content_at_once() -> None:
    with Database("memory://", models=MODELS) as db:
        wills = db[Will]
        wills.create(id=1, scan=content(b"first"))
        wills.patch(1, scan=content(b"second"))
        wills.remove(1)
        wills.forget(1)
        assert db.sweep_blobs() == 2
        wills.create(id=2, scan=content(b"third"))
        wills.patch(2, scan=content(b"fourth"))
        wills.forget(2, including=True)
        assert db.sweep_blobs() == 2
        assert not stored_ids(db)
        assert not loose(db)


def test_the_end_of_a_history_or_a_collection_gives_up_its_content() -> None:
    class Without(KvModel, collection="wills"):
        id: PrimaryKey[int]
        scan: Blob | None = None

    with Database("memory://", models=MODELS) as db:
        db[Will].create(id=1, scan=content(b"first"))
        db[Will].patch(1, scan=content(b"second"))
        db[Will].create(id=2, scan=content(b"third"))
        db[Will].remove(2)
        other = Database.from_engine(db._engine, type(db._core)([Without]))
        other.apply(allow=("drop_history",))
        assert other.sweep_blobs() == 2
        assert read(other[Without].get(1).scan) == b"second"
        require_owners(other)
        none = Database.from_engine(db._engine, type(db._core)([]))
        none.drop_collection("wills")
        none.sweep_blobs()
        assert not stored_ids(none)
        assert not loose(none)


def test_an_excluded_blob_is_given_up_after_a_day() -> None:
    class Draft(KvModel, collection="drafts"):
        id: PrimaryKey[int]
        preview: Blob | None = None
        scan: Blob | None = None

        class Meta:
            history = History(keep=timedelta(days=100), exclude=("preview",))

    clock = Clock()
    with Database("memory://", models=[Draft], clock=clock) as db:
        db[Draft].create(id=1, preview=content(b"small"), scan=content(b"large"))
        db[Draft].patch(1, preview=None)
        db[Draft].remove(1)
        clock.ms += DAY_MS
        assert db.sweep_blobs() == 1
        assert len(stored_ids(db)) == 1
        assert read(db[Draft].restore(1).scan) == b"large"


def test_a_transaction_finds_blobs_that_were_stored_after_it_began() -> None:
    with Database("memory://", models=MODELS) as db:
        with db.transaction() as tx:
            tx[Deed].create(id=1, scan=content(b"1"))
            deed = tx[Deed].get(1)
            deed.scan = content(b"2")
            tx[Deed].save(deed)
        assert read(db[Deed].get(1).scan) == b"2"
        assert len(loose(db)) == 1
        require_owners(db)
