"""The keys of tenants in format 1 are a promise too: with others, a tenant could be read as part of another one."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgpack
import pytest

from kvmodels import Database
from kvmodels.core.keys import decode_key
from tests.golden.story import golden_rows, told_again
from tests.golden.story_of_tenants import Account, User, stages

FOLDER = Path(__file__).parent / "format_1_tenants"
STAGES = ["1_one", "2_two", "3_removed"]
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path, where):
    assert told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db") == STAGES


def test_the_rows_of_tenants_spelled_out():
    stored = {decode_key(bytes.fromhex(row["key"])): row["value"] for row in golden_rows(FOLDER, "2_two")}
    assert {key[2] for key in stored if key[:2] == ("__kvmodels__", "tenant")} == {"acme", "initech"}
    row = msgpack.unpackb(bytes.fromhex(stored["__kvmodels__", "tenants", "acme"]))
    assert row.keys() == {"state", "id"}
    assert row["state"] == "active"
    assert ("__kvmodels__", "tenant", "acme", "users_by_email", "ada@example.org") in stored
    text = DOCUMENTATION.read_text(encoding="utf-8")
    assert '`("__kvmodels__", "tenants", name)`' in text
    assert '`("__kvmodels__", "tenant", name, *key)`' in text


def test_a_file_is_opened_with_its_tenants(tmp_path):
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "store.sqlite3", path)
    with Database(path, models=[Account], tenant_models=[User]) as db:
        assert [one.name for one in db.tenants()] == ["initech"]
        assert db.tenant("initech").check().ok
        assert db.tenant("initech")[User].get(email="ada@example.org").color == "blue"
