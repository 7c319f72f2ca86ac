"""Rewrites give a record a new versionstamp and end no version: builds, migrations, repair, and equal documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvmodels import AggregateIndex, Database, Field, History, Index, Indexed, KvModel, PrimaryKey, upgrade
from tests.kv.stores import Clock


class First(KvModel, collection="tasks"):
    id: PrimaryKey[int]
    rank: int = 0
    nick: str = "old"

    class Meta:
        history = History()


class Counted(KvModel, collection="tasks"):
    id: PrimaryKey[int]
    rank: Indexed[int] = Field(default=0)
    nick: str = "old"

    class Meta:
        history = History()
        indexes = (AggregateIndex("rank"), Index("-rank", name="copied", store="record"))


class Second(KvModel, collection="tasks"):
    id: PrimaryKey[int]
    rank: Indexed[int] = Field(default=0)
    size: int

    class Meta:
        history = History()
        schema_version = 2

    @upgrade(to=2, touches=["size"])
    def _size(document: Any) -> Any:
        document["size"] = len(document.get("nick", ""))
        return document


def test_rewrites_end_no_version_and_are_found_by_each_of_their_versionstamps(url_of: Callable[[str], str]):
    url, clock = url_of("sqlite"), Clock()
    stamps: list[str | None] = []
    with Database(url, models=[First], clock=clock) as db:
        stamps.append(db[First].create(id=1, rank=3).versionstamp)
        clock.ms += 1_000
        stamps.append(db[First].patch(1, rank=3).versionstamp)  # which changes nothing
    with Database(url, models=[Counted], clock=clock) as db:
        assert db.apply(allow=("forget_field",)).complete
        stamps.append(db[Counted].get(1).versionstamp)
        assert len(list(db[Counted].history(1))) == 1
        assert db.check(repair=True).ok
        clock.ms += 1_000
        db[Counted].patch(1, rank=4)
    assert len(set(stamps)) == 3, "each of them has written the record"
    with Database(url, models=[Second], clock=clock) as db:
        db.apply(allow=("drop_index",))
        assert db.migrate(Second).complete
        clock.ms += 1_000
        db[Second].patch(1, rank=5)
        revisions = list(db[Second].history(1))
        assert [one.record.rank for one in revisions if one.record is not None] == [5, 4, 3]
        for stamp in stamps:
            found = db[Second].history(1).at(stamp or "")
            assert found is not None
            assert found.versionstamp == stamps[0]
            assert db[Second].as_of(stamp or "").get(1).rank == 3
        assert db.check().ok


def test_a_field_that_is_forgotten_leaves_the_old_versions_whose_ends_stay(url_of: Callable[[str], str]):
    url = url_of("sqlite")
    with Database(url, models=[First]) as db:
        db[First].create(id=1, nick="secret")
        changed = db[First].patch(1, rank=1).versionstamp
        db[First].patch(1, rank=2)
    with Database(url, models=[Second]) as db:
        db.apply(allow=("forget_field",))
        db.migrate(Second, forget=["nick"])
        rows = list(db.kv.unsafe().list(prefix=("__kvmodels__", "history")))
        assert len(rows) == 2
        assert all("nick" not in row.value["doc"] for row in rows)
        found = db[Second].history(1).at(changed or "")
        assert found is not None
        assert (found.versionstamp, found.record is not None) == (changed, True)
        assert [one.versionstamp for one in db[Second].history(1)][1] == changed
        assert db.check().ok


def test_a_row_that_cannot_be_decoded_is_found_and_removed_by_repair():
    with Database("memory://", models=[First]) as db:
        db[First].create(id=1)
        db[First].patch(1, rank=1)
        (row,) = db.kv.unsafe().list(prefix=("__kvmodels__", "history"))
        db.kv.unsafe().set(row.key, "nonsense")
        assert [one.kind for one in db.check().findings] == ["undecodable_version"]
        assert db.check(repair=True).ok
        assert [one.record for one in db[First].history(1)] == [First(id=1, rank=1)]
