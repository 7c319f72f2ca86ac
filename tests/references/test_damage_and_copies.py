"""Changes of foreign keys by other programs are reported; a dump carries keys, and is refused if one has no target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvmodels import Database, DecodeError, ProtectedError, ReferenceViolationError, open_kv
from tests.references.families import FAMILIES, Town
from tests.references.models import MODELS, Author, Book, Cover
from tests.references.test_verbs import fill


def test_a_check_lists_what_has_no_target():
    with Database("memory://", models=MODELS) as db:
        fill(db)
        db.kv.unsafe().delete(("authors", 1))
        report = db.check()
        assert [(one.collection, one.index, one.primary_key) for one in report.dangling_references] == [
            ("books", "author_id", 1)
        ]
        assert [(one.collection, one.primary_key) for one in report.stray_guards] == [("authors", 1)]
        assert "1 dangling references" in str(report)
        repaired = db.check(repair=True)
        assert not repaired.ok, "nobody knows what the record should refer to"
        assert [one.repaired for one in repaired.stray_guards] == [True]
        assert db.check(Cover).ok
        assert not db.check(Book).ok


def test_an_unreadable_record_that_others_may_refer_to_is_not_said_to_be_repaired():
    with Database("memory://", models=MODELS) as db:
        fill(db)
        raw = db.kv.unsafe()
        raw.set(("authors", 1), "damaged")
        raw.set(("covers", 9), "damaged")
        author, cover = db.check().undecodable
        assert (author.primary_key, cover.primary_key) == (1, 9)
        assert "No repair deletes it" in str(author.hint)
        assert cover.hint == 'db.check(repair="all") deletes it.'
        assert [one.repaired for one in db.check(repair="all").undecodable] == [False, True]
        raw.delete(("authors", 1))
        assert [one.primary_key for one in db.check().dangling_references] == [1]


def test_an_entry_of_no_record_is_reported_by_a_cascade_and_repaired():
    with Database("memory://", models=FAMILIES) as db:
        db[Town].create(id=1)
        db[Town].create(id=2)
        db.kv.unsafe().set(("towns_by_region", 1, 5), b"")
        db.kv.unsafe().set(("towns_by_region", 1, 2), b"")
        with pytest.raises(DecodeError, match=r"db\.check\(repair=True\)") as caught:
            db[Town].remove(1)
        assert (caught.value.field, caught.value.key) == ("region", 2)
        with pytest.raises(DecodeError), db.transaction() as tx:
            tx[Town].remove(1)
        db.check(repair=True)
        assert db[Town].remove(1)
        assert db[Town].count() == 1


def test_a_dump_keeps_foreign_keys(tmp_path: Path):
    with Database("memory://", models=MODELS) as db:
        fill(db)
        assert list(db.kv.list(("__kvmodels__", "ref")))
        db.kv.dump(tmp_path / "dump.jsonl")
    assert '"ref"' not in (tmp_path / "dump.jsonl").read_text(), "guards matter by their versionstamps only"
    with open_kv(tmp_path / "store.db") as kv:
        kv.load(tmp_path / "dump.jsonl")
        assert not list(kv.list(("__kvmodels__", "ref")))
    with Database(tmp_path / "store.db", models=MODELS) as db:
        assert db.check().ok
        with pytest.raises(ProtectedError):
            db[Author].remove(1)


def test_a_dump_without_a_target_is_refused(tmp_path: Path):
    path = tmp_path / "dump.jsonl"
    with Database("memory://", models=MODELS) as db:
        fill(db)
        db.kv.dump(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    key = next(
        line["key"] for line in lines if line.get("key", [None])[0] == "authors" and line["key"][1] in (1, {"int": 1})
    )
    kept = [line for line in lines if line.get("key") != key]
    kept[-1]["end"]["keys"] -= 1
    path.write_text("".join(f"{json.dumps(line)}\n" for line in kept))
    with open_kv("memory://") as kv:
        with pytest.raises(ReferenceViolationError) as caught:
            kv.load(path)
        assert (caught.value.field, caught.value.target) == ("author_id", 1)
        assert list(kv.list(())) == []
