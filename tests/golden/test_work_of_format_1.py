"""Rows of transactions, bulk writes, time fields and classes of one collection are promised by format 1 too.

Of a bulk write the promise is that any later version goes on with it: from its place, or if that cannot be read any
more from the last primary key. So the text of a place and of an error may change, and nothing else.
"""

from __future__ import annotations

import re
import shutil
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgpack
import pytest

from kvmodels import Database
from kvmodels.catalog.keyspace import bulk_key
from kvmodels.core.keys import decode_key, encode_key
from tests.golden.story import START_MS, database, golden_rows, rows_of, store_of, told_again
from tests.golden.story_of_work import HALVES, MODELS, Circle, Shape, Square, Task, stages, tidy

FOLDER = Path(__file__).parent / "format_1_work"
STAGES = sorted(path.stem for path in FOLDER.glob("*.json"))
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"
START = datetime.fromtimestamp(START_MS / 1000, UTC)
LATER_MS = START_MS + 86_400_000


def promised(row: dict[str, Any]) -> Any:
    """The value of a row, without texts that may change in the progress and in the failures of a bulk write."""
    if not row["parts"].startswith("('__kvmodels__', 'bulk', "):
        return row["value"]
    value = msgpack.unpackb(bytes.fromhex(row["value"])) if row["encoding"] == 4 else row["value"]
    return (
        {name: part for name, part in value.items() if name not in ("cursor", "message")}
        if isinstance(value, dict)
        else value
    )


def value(stage: str, *parts: Any) -> Any:
    (row,) = [row for row in golden_rows(FOLDER, stage) if row["key"] == encode_key(parts).hex()]
    return msgpack.unpackb(bytes.fromhex(row["value"]), strict_map_key=False)


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path, where):
    seen = told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db", promised)
    assert seen == STAGES
    assert len(seen) == 8


def test_keys_in_the_golden_files_are_the_encodings_of_their_parts():
    for stage in STAGES:
        for row in golden_rows(FOLDER, stage):
            key = bytes.fromhex(row["key"])
            assert repr(decode_key(key)) == row["parts"]
            assert encode_key(decode_key(key)) == key


def test_every_new_kind_of_row_is_in_the_documentation():
    table = DOCUMENTATION.read_text(encoding="utf-8")
    rows = [decode_key(bytes.fromhex(row["key"])) for stage in STAGES for row in golden_rows(FOLDER, stage)]
    assert any(row[:2] == ("__kvmodels__", "guard") for row in rows)
    assert '("__kvmodels__", "guard", name, *parts)' in table
    kinds = {
        (len(row) > 3, *(part for part in row[4:] if isinstance(part, str))) for row in rows if row[1:2] == ("bulk",)
    }
    described = {
        (False,): '("__kvmodels__", "bulk", resume_id)',
        (True, "key"): '("__kvmodels__", "bulk", resume_id, run, "key", *pk)',
        (True, "failed"): '("__kvmodels__", "bulk", resume_id, run, "failed", *pk)',
        (True, "item"): '("__kvmodels__", "bulk", resume_id, run, "item", position)',
        (True, "item", "overwritten"): '("__kvmodels__", "bulk", resume_id, run, "item", position, "overwritten")',
    }
    assert kinds == described.keys()
    for text in described.values():
        assert f"`{text}`" in table


def test_what_is_stored_spelled_out():
    """A reader in another language needs this, and runs nothing of the library."""
    moment = "2023-11-14T22:13:20+00:00"
    assert value("1_records", "tasks", 4) == {
        "id": 4,
        "code": "c4",
        "state": "done",
        "hits": 0,
        "created_at": moment,
        "day": "2023-11-14",
        "updated_at": moment,
        "revision": 2,
    }
    assert value("1_records", "shapes", 1) == {"id": 1, "kind": "circle", "label": "ring", "radius": 2}
    assert value("2_transaction", "shapes", 3) == {"id": 3, "kind": "square", "label": "box", "side": 4}
    assert value("2_transaction", "shapes_by_label", "box") == [3]
    guards = [row for row in golden_rows(FOLDER, "2_transaction") if "'guard'" in row["parts"]]
    assert [(row["parts"], row["value"]) for row in guards] == [("('__kvmodels__', 'guard', 'room', 7, 'east')", "c3")]
    half = value("3_half_of_walk", "__kvmodels__", "bulk", "walk")
    table = (
        DOCUMENTATION.read_text(encoding="utf-8").partition("## The progress of a bulk write")[2].partition("\n## ")[0]
    )
    assert half.keys() == set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert (half["phase"], half["matched"], half["written"], half["batches"]) == ("walk", 2, 2, 1)
    assert half["last"] == encode_key((1,)), "the primary key of the last record that was passed"
    collected = value("4_half_of_collect", "__kvmodels__", "bulk", "collect")
    assert (collected["phase"], collected["collected"], collected["matched"]) == ("write", 5, 2)
    left = [row["parts"] for row in golden_rows(FOLDER, "4_half_of_collect") if "'key'" in row["parts"]]
    assert left == [f"('__kvmodels__', 'bulk', 'collect', {collected['run']!r}, 'key', {n})" for n in (2, 3, 4)]
    created = value("6_half_of_create", "__kvmodels__", "bulk", "create")
    assert (created["phase"], created["position"], created["written"]) == ("list", 3, 2)
    for name, _, _ in HALVES:
        tombstone = value("8_done", "__kvmodels__", "bulk", name)
        assert (tombstone["phase"], tombstone["cursor"], tombstone["last"]) == ("done", "", b"")


def state(db: Database) -> list[Any]:
    return [task.model_dump(exclude={"updated_at"}) for task in db[Task]]


@pytest.mark.parametrize("place", ["as it was", "unknown"])
@pytest.mark.parametrize("stage", [stage for stage in STAGES if "half" in stage])
def test_bulk_writes_that_an_earlier_version_has_begun_are_gone_on_with(stage, place):
    rows = golden_rows(FOLDER, stage)
    if place == "unknown":  # the place is text that a later version may not know any more; then the last key tells
        for row in rows:
            if row["parts"] in [f"('__kvmodels__', 'bulk', {name!r})" for name, _, _ in HALVES]:
                held = msgpack.unpackb(bytes.fromhex(row["value"]))
                row["value"] = msgpack.packb({**held, "cursor": held["cursor"] and "x" + held["cursor"][1:]}).hex()
    begun = [name for name, _, _ in HALVES if any(row["key"] == bulk_key(name).hex() for row in rows)]
    db = database(store_of(rows), *MODELS, tokens="later")
    results = {name: write(db) for name, write, _ in HALVES if name in begun}
    assert db.check().ok
    assert results["walk"].resumed
    # Behind its place there are open ones that were created since.
    assert results["walk"].written == 4 + {"create": 1, "overwrite": 2}.get(begun[-1], 0)
    hits = {task.id: task.hits for task in db[Task]}
    for number, before in enumerate((5, 0, 0, 0, 0)):
        assert hits[number] == before + (number != 4) + 10 * ("collect" in begun), number
    if "clash" in begun:
        assert results["clash"].written == 1
        assert {failure.kind for failure in results["clash"].failed} == {"UniqueViolationError"}
    if "create" in begun:
        assert [item.created for item in results["create"]] == [True, True, False, True]
        assert results["create"][2].error.existing_key == 20
    if "overwrite" in begun:
        assert [item.created for item in results["overwrite"]] == [False, True, False]
    done = rows_of(db._engine)
    for name, write, _ in HALVES:
        if name in begun:
            write(db)
    assert rows_of(db._engine) == done, "what is done is not done again"


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "store.sqlite3", path)
    return path


def test_a_file_is_read_whole_and_written_on(file):
    with Database(file, models=MODELS, clock=lambda: LATER_MS, require_current=True) as db:
        assert db.plan().is_current
        assert db.check().ok
        before = state(db)
        tidy(db)
        assert state(db) == before
        assert [(type(shape), shape.id, shape.label) for shape in db[Shape]] == [
            (Circle, 1, "ring"),
            (Square, 3, "box"),
        ]
        assert db[Circle].filter(radius=2).count() == db[Square].filter(side=4).count() == 1
        first = db[Task].get(0)
        assert (first.created_at, first.day, first.updated_at) == (START, date(2023, 11, 14), START)
        with db.transaction() as tx:
            tx.guard("room", 7, "east")
            changed = tx[Task].patch(0, state="late")
        later = datetime.fromtimestamp(LATER_MS / 1000, UTC)
        assert (changed.created_at, changed.updated_at, changed.revision) == (START, later, first.revision + 1)
        assert [task.id for task in db[Task].filter(updated_at__gt=START)] == [0]
        assert all(db.forget_bulk(name) for name, _, _ in HALVES)
        assert not list(db.kv.list(prefix=("__kvmodels__", "bulk")))
        assert db.check().ok
