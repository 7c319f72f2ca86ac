"""The rows of guards in format 1 are a promise too: a guard with other rows would let others pass."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kvmodels import Database, Transaction, TransactionConflictError
from kvmodels.api.core import DatabaseCore
from kvmodels.core.keys import decode_key, encode_key
from tests.golden.story import database, golden_rows, store_of, told_again
from tests.golden.story_of_guards import MODELS, Booking, stages
from tests.golden.story_of_work import MODELS as WORK_MODELS

FOLDER = Path(__file__).parent / "format_1_guards"
OLDER = Path(__file__).parent / "format_1_work"
"""A store of the time before there were shared guards."""
STAGES = ["1_exclusive", "2_shared", "3_both"]
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"


def guards(stage: str) -> dict[Any, tuple[Any, ...]]:
    """The rows of guards: value and versionstamp by key."""
    rows = {decode_key(bytes.fromhex(row["key"])): row for row in golden_rows(FOLDER, stage)}
    return {key: (row["value"], row["versionstamp"]) for key, row in rows.items() if key[1] in ("guard", "share")}


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path, where):
    assert told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db") == STAGES


def test_what_is_stored_spelled_out():
    exclusive, shared = ("__kvmodels__", "guard", "room", 7), ("__kvmodels__", "share", "room", 7)
    house = ("__kvmodels__", "share", "house", b"\x00\xff", 1.5, True)
    first, second, third = (guards(stage) for stage in STAGES)
    assert [*first] == [exclusive]
    assert {*second} == {exclusive, shared, house}
    assert second[exclusive] == first[exclusive], "a shared holder does not set the exclusive row"
    assert second[shared] == second[house]
    assert {*third} == {*second}
    assert third[shared] == second[shared], "taken in both ways, a guard is exclusive"
    assert third[exclusive][1] > second[shared][1]
    assert {value for value, _ in third.values()} == {"c3"}
    page = DOCUMENTATION.read_text(encoding="utf-8")
    assert '`("__kvmodels__", "guard", name, *parts)`' in page
    assert '`("__kvmodels__", "share", name, *parts)`' in page


@pytest.mark.parametrize("shared", [True, False])
def test_a_file_is_read_whole_and_its_guards_hold(tmp_path, shared):
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "store.sqlite3", path)
    with Database(path, models=MODELS, require_current=True) as db:
        assert db.check().ok
        assert db[Booking].filter(room=7).count() == 1
        other = Database.from_engine(db._engine, DatabaseCore(MODELS))
        with pytest.raises(TransactionConflictError), db.transaction() as tx:
            tx.guard("room", 7, shared=shared)
            take(other, shared=not shared)


def take(db: Database, *, shared: bool) -> Transaction:
    with db.transaction() as tx:
        tx.guard("room", 7, "east", shared=shared)
        tx.guard("room", 7, shared=shared)
    return tx


@pytest.mark.parametrize("shared", [True, False])
def test_a_guard_of_a_store_from_before_shared_guards_holds(shared):
    rows = golden_rows(OLDER, "2_transaction")
    assert encode_key(("__kvmodels__", "guard", "room", 7, "east")).hex() in [row["key"] for row in rows]
    db = database(store_of(rows), *WORK_MODELS, tokens="later")
    other = Database.from_engine(db._engine, DatabaseCore(WORK_MODELS))
    with pytest.raises(TransactionConflictError), db.transaction() as tx:
        tx.guard("room", 7, "east", shared=shared)
        take(other, shared=not shared)
