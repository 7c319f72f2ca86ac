"""``history``, ``trash`` and ``undelete``: who changed a record, and the way back from its removal."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest

PROGRAM = """
import os
from datetime import date
from typing import Annotated
from pydantic import SecretStr
from kvmodels import CASCADE, AsyncDatabase, Database, Field, ForeignKey, History, KvModel, PrimaryKey, Unique

class Project(KvModel, collection="projects"):
    id: PrimaryKey[int]
    name: Unique[str]
    class Meta:
        history = History()

class Ticket(KvModel, collection="tickets"):
    day: PrimaryKey[date]
    number: PrimaryKey[int]
    project: Annotated[ForeignKey[int, Project], CASCADE]
    title: str
    token: SecretStr = Field(default=SecretStr("s3cr3t"))
    class Meta:
        history = History()

MODELS = [Project, Ticket]
db = AsyncDatabase(os.environ["TRACKER"], models=MODELS)

def fill():
    with Database(os.environ["TRACKER"], models=MODELS) as store:
        day = date(2026, 11, 29)
        with store.acting("ada"):
            store[Project].create(id=1, name="kv")
            store[Ticket].create(day=day, number=7, project=1, title="old")
        with store.acting("eve", reason="triage"):
            store[Ticket].patch((day, 7), title="new")
        with store.acting("ida", reason="done"):
            store[Project].remove(1)
"""


@pytest.fixture(params=["tracker.db", "lmdb:///tracker.lmdb"])
def url(request: pytest.FixtureRequest, folder, monkeypatch: pytest.MonkeyPatch, run) -> str:
    del run  # it lets the folder's programs be imported again
    (folder / "tracker_app.py").write_text(PROGRAM)
    monkeypatch.setenv("TRACKER", request.param)
    monkeypatch.setenv("KVMODELS_DATABASE", "tracker_app:db")
    monkeypatch.syspath_prepend(str(folder))
    vars(import_module("tracker_app"))["fill"]()
    return request.param


def printed(result: Any) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_dump_of_some_models_holds_their_old_versions_if_asked(url, run):
    del url
    without, versions = run("dump", "tickets"), run("dump", "tickets", "--history")
    assert '"tickets"' in versions.stdout
    assert (without.stderr, versions.stderr) == ("0 keys dumped\n", "3 keys dumped\n")


def test_the_history_of_a_record_tells_who_changed_what_and_who_removed_it(url, run):
    newest, first = printed(run("history", "tickets", "2026-11-29", "7", "--json"))
    assert (newest["actor"], newest["reason"], newest["changes"]) == ("eve", "triage", {"title": ["old", "new"]})
    assert (newest["ended"]["actor"], newest["ended"]["reason"]) == ("ida", "done")
    assert (first["actor"], first["ended"], first["changes"]["title"]) == ("ada", None, [None, "old"])
    assert "s3cr3t" not in json.dumps([newest, first])
    page = run("history", "tickets", "2026-11-29", "7", "-l", "1")
    assert page.stdout.splitlines()[0].split()[:4] == ["version", "at", "actor", "reason"]
    cursor = page.stderr.split("--after ")[1].strip()
    assert printed(run("history", "tickets", "2026-11-29", "7", "--after", cursor, "--json")) == [first]


def test_a_removed_record_is_restored_with_what_went_with_it(url, run):
    [project] = printed(run("trash", "projects", "--json"))
    assert (project["id"], project["actor"], project["record"]) == (1, "ida", {"id": 1, "name": "kv"})
    assert "s3cr3t" not in run("trash", "tickets", "--json").stdout
    refused = run("undelete", "tickets", "2026-11-29", "7")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert run("undelete", "projects", "1", "--also").stdout == "Project 1 restored, 1 others restored or changed\n"
    assert run("trash", "projects").stderr == "no removed records\n"
    assert printed(run("rows", "tickets"))[0]["title"] == "new"


def test_a_restored_record_gets_other_values_on_request(url, run):
    assert run("undelete", "projects", "1", "--set", "name=kv2", "--json").exit_code == 0
    assert printed(run("rows", "projects")) == [{"id": 1, "name": "kv2"}]
    assert run("undelete", "projects", "1").exit_code == 1


def test_a_wrong_key_is_explained(url, run):
    for words, message in {
        ("history", "tickets", "7"): "DAY NUMBER",
        ("history", "tickets", "yesterday", "7"): "'yesterday' is no value of day",
        ("undelete", "projects", "1", "--set", "name"): "--set FIELD=VALUE",
    }.items():
        result = run(*words)
        assert (result.exit_code, result.stdout) == (2, ""), words
        assert message in result.stderr
