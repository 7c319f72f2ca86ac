"""Format 1 is a promise: the same story gives the same bytes, and a file of that format is read for ever."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kvmodels import Database, IndexNotReadyError, KvModel
from kvmodels.catalog.keyspace import FORMAT
from kvmodels.core.keys import decode_key, encode_key
from tests.golden.story import Column, Grade, NewUser, User, column, golden_rows, stages, told_again

FOLDER = Path(__file__).parent / "format_1"
STAGES = sorted(path.stem for path in FOLDER.glob("*.json"))
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"


def golden(stage: str) -> list[dict[str, Any]]:
    return golden_rows(FOLDER, stage)


def test_the_present_format_is_the_one_of_the_golden_files():
    assert FORMAT == 1
    assert len(STAGES) == 6


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_bytes(tmp_path, where):
    seen = told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db")
    assert seen == STAGES


def test_keys_in_the_golden_files_are_the_encodings_of_their_parts():
    for stage in STAGES:
        for row in golden(stage):
            key = bytes.fromhex(row["key"])
            assert repr(decode_key(key)) == row["parts"]
            assert encode_key(decode_key(key)) == key


def test_every_kind_of_row_is_in_the_golden_files_and_in_the_documentation():
    table = DOCUMENTATION.read_text(encoding="utf-8")
    kinds = set()
    for stage in STAGES:
        for row in golden(stage):
            first, *rest = decode_key(bytes.fromhex(row["key"]))
            kinds.add(rest[0] if first == "__kvmodels__" else str(first).partition("~")[0])
    own = {"header", "fence", "build", "drop", "violation", "token"}
    assert own <= kinds
    for kind in own:
        assert f'("__kvmodels__", "{kind}"' in table
    for model in (Column, User, NewUser):
        name = "columns" if model is Column else "users"
        assert {f"{name}_by_{index}" for index in INDEXES[model]} <= kinds


INDEXES: dict[type[KvModel], tuple[str, ...]] = {
    Column: tuple(name for name in Column.model_fields if name not in ("place", "number")),
    User: ("email", "phone", "badge", "desk", "login", "color", "team", "city", "age", "oldest", "address"),
    NewUser: ("nick",),
}


def test_one_line_of_each_kind_spelled_out():
    """A reader in another language needs this, and runs nothing of the library."""
    rows = {row["parts"]: row for row in golden("4_built_with_violations")}
    slot = rows["('users_by_email', 'ada@x.org')"]
    assert (slot["encoding"], bytes.fromhex(slot["value"])) == (4, b"\x91\x01")
    entry = rows["('users_by_team', 'core', 2)"]
    assert (entry["encoding"], entry["value"], entry["expire_at"]) == (3, "", None)
    record, copy = rows["('users', 2)"], rows["('users_by_city', 'Rome', 2)"]
    assert (record["value"], record["versionstamp"]) == (copy["value"], copy["versionstamp"])
    assert rows["('users_by_phone', b'', 1)"]["value"] == ""
    assert "('users_by_badge', b'', 1)" not in rows
    assert bytes.fromhex(rows["('users_by_desk', b'')"]["value"]) == b"\x91\x01"
    deadline = {row["expire_at"] for parts, row in rows.items() if "eve" in parts or "'none', 3" in parts}
    assert deadline == {1_700_000_000_000 + 3_600_000}
    assert rows["('users', 3)"]["versionstamp"] == rows["('users_by_login', 'eve')"]["versionstamp"]


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "store.sqlite3", path)
    return path


def clock() -> int:
    """Before the deadline in the story."""
    return 1_700_000_001_000


@pytest.mark.parametrize("readonly", [False, True])
def test_a_file_of_format_1_is_read_whole(file, readonly):
    with Database(file, models=[Column, NewUser], readonly=readonly, clock=clock) as db:
        columns = db[Column].all().to_list()
        assert columns == [
            column("a", 1),
            column("b", -1, maybe=0, real=0.0, amount=1_000, raw=b"", text="", boolean=False),
        ]
        assert columns[0].grade is Grade.HIGH
        users = db[NewUser].all().to_list()
        assert [(user.id, user.login, user.color, user.nick) for user in users] == [
            (1, "ada", "red", "none"),
            (2, "bob", "blue", "none"),
            (3, "eve", "blue", "none"),
            (5, "zoe", "green", "zoe"),
        ]
        assert db[NewUser].get(email="ada@x.org").tags == ["a", "b"]
        assert db.check().ok


def test_every_index_of_a_file_of_format_1_answers(file):
    with Database(file, models=[Column, NewUser], clock=clock) as db:
        first = db[Column].get(("a", 1))
        for name in INDEXES[Column]:
            found = db[Column].filter(**{name: getattr(first, name)}).to_list()
            assert first in found, name
            assert db[Column].filter(**{name: getattr(first, name)}).explain().index == name
        users = db[NewUser]
        assert [user.id for user in users.filter(color="blue").order_by("-age")] == [2, 3]
        assert [user.id for user in users.order_by("-age")] == [1, 2, 3, 5]
        assert [user.id for user in users.filter(city="", login="zoe")] == [5]
        assert users.filter(desk=None).to_list()[0].id == 1
        with pytest.raises(IndexNotReadyError) as caught:
            users.get(nick="zoe")
        assert caught.value.state == "pending"


def test_a_file_of_format_1_is_written_on_and_its_violations_are_resolved(file):
    with Database(file, models=[Column, NewUser], clock=clock) as db:
        users = db[NewUser]
        users.patch(2, nick="bob")
        users.remove(3)
        (report,) = db.build_indexes()
        assert (report.index, report.state, report.violations) == ("nick", "readable", ())
        assert users.get(nick="bob").id == 2
        users.create(id=9, email="new@x.org", login="new", color="red", nick="new", desk="N")
        db[Column].remove(("b", -1))
        assert db.check().ok


def test_after_its_deadline_a_record_of_a_file_of_format_1_is_gone_with_all_its_entries(file):
    with Database(file, models=[Column, NewUser], clock=lambda: 1_700_003_600_000) as db:
        assert [user.id for user in db[NewUser].all()] == [1, 2, 5]
        assert db[NewUser].filter(color="blue").count() == 1
        assert db[NewUser].get_or_none(email="eve@x.org") is None
        assert db.check().ok
