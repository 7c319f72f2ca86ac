"""The command line hides the values of encrypted fields, and rotates their keys."""

from __future__ import annotations

import json

import pytest

from kvmodels import Database, KeyRing
from tests.cli.conftest import Run

PROGRAM = """
from typing import Annotated
from kvmodels import AsyncDatabase, Encrypted, History, KeyRing, KvModel, PrimaryKey, Unique
class Patient(KvModel, collection="patients"):
    id: PrimaryKey[int]
    name: Encrypted[str]
    insurance: Annotated[Encrypted[str], Unique()]
    class Meta:
        history = History()
RING = KeyRing({1: bytes(32), 2: bytes(range(32))})
db = AsyncDatabase("patients.db", models=[Patient], keys=RING)
"""
APP = ("-d", "patients_app:db")


@pytest.fixture(autouse=True)
def _filled(folder, run: Run) -> None:
    (folder / "patients_app.py").write_text(PROGRAM)
    (folder / "new.ndjson").write_text('{"id": 1, "name": "Planted", "insurance": "P-1"}\n')
    assert run("insert", "patients", "new.ndjson", *APP).exit_code == 0


@pytest.mark.parametrize("form", ["--table", "--json", "--nl", "--csv"])
def test_records_are_printed_without_the_values(run: Run, form: str):
    for command in (("rows", "patients"), ("rows", "patients", "insurance=P-1"), ("export", "patients")):
        result = run(*command, form, *APP)
        assert result.exit_code == 0
        assert "(encrypted)" in result.stdout
        assert "Planted" not in result.stdout + result.stderr
        assert "Planted" in run(*command, form, "--show-encrypted", *APP).stdout


def test_old_versions_and_removed_records_are_printed_without_the_values(run: Run, folder):
    with Database(folder / "patients.db") as db:
        db.kv.get(("patients", 1))
    for command in (("history", "patients", "1"), ("history", "patients", "1", "--json")):
        assert "Planted" not in run(*command, *APP).stdout
        assert "Planted" in run(*command, "--show-encrypted", *APP).stdout
    (folder / "remove_app.py").write_text(
        "from patients_app import *\nfrom kvmodels import Database\n"
        "with Database('patients.db', models=[Patient], keys=RING) as d: d[Patient].remove(1)\n"
    )
    assert run("rows", "patients", "-d", "remove_app:db").exit_code == 0
    trash = run("trash", "patients", "--json", *APP)
    assert json.loads(trash.stdout)[0]["record"]["name"] == "(encrypted)"
    assert "Planted" in run("trash", "patients", "--show-encrypted", *APP).stdout
    assert "Planted" not in run("undelete", "patients", "1", "--json", *APP).stdout


def test_a_hidden_value_is_not_inserted(run: Run, folder):
    (folder / "out.ndjson").write_text(run("export", "patients", *APP).stdout)
    result = run("insert", "patients", "out.ndjson", "--replace", *APP)
    assert result.exit_code == 2
    assert "name: this stands for the value of an encrypted field" in result.stderr


def test_keys_are_rotated(run: Run):
    result = run("rotate", "patients", "--to", "2", "--json", *APP)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["written"] == 1
    assert run("rotate", "patients", "--to", "2", *APP).stdout.startswith("patients: key 2, 0 scanned")
    refused = run("rotate", "patients", "--to", "3", *APP)
    assert refused.exit_code == 2
    assert "does not have the key" in refused.stderr
    assert KeyRing({1: bytes(32)}).ids == (1,)


def test_a_store_without_classes_shows_sealed_bytes(run: Run):
    for command in (("rows", "patients"), ("get", "patients", "1"), ("inspect",), ("info",)):
        assert "Planted" not in run(*command, "-d", "patients.db").stdout


def test_the_keys_in_use_are_printed(run: Run):
    assert run("rotate", "patients", "--to", "2", *APP).exit_code == 0
    result = run("stats", *APP)
    assert "patients: keys in use: 1, 2" in result.stdout + result.stderr
    assert json.loads(run("stats", "--json", *APP).stdout)["collections"][0]["keys"] == [1, 2]
