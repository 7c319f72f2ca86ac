"""``tenants``, ``tenants create``, ``copy`` and ``remove``, and commands that ``--tenant`` confines to one tenant."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from kvmodels import Database
from tests.cli.conftest import Run

PROGRAM = """
from kvmodels import AsyncDatabase, Indexed, KvModel, PrimaryKey
class Account(KvModel, collection="accounts"):
    id: PrimaryKey[int]
class Page(KvModel, collection="pages"):
    id: PrimaryKey[int]
    title: Indexed[str]
db = AsyncDatabase("pages.db", models=[Account], tenant_models=[Page])
"""


@pytest.fixture(autouse=True)
def program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pages_app.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("KVMODELS_DATABASE", "pages_app:db")
    page = vars(import_module("pages_app"))["Page"]
    with Database("pages.db", tenant_models=[page]) as db:
        for name in ("acme", "initech"):
            db.create_tenant(name)
        db.tenant("acme")[page].create(id=1, title="of acme")


def _kill(count: int) -> None:
    raise KeyboardInterrupt


def test_tenants_are_listed_created_and_removed(run: Run):
    assert run("tenants", "create", "zeta").exit_code == 0
    assert run("tenants", "create", "zeta").exit_code == 1
    listed = json.loads(run("tenants", "--json").stdout)
    assert listed == [{"name": name, "state": "active"} for name in ("acme", "initech", "zeta")]
    page = run("tenants", "--limit", "1", "--after", "acme")
    assert ("initech" in page.stdout, "--after initech" in page.stderr) == (True, True)
    assert run("tenants", "remove", "zeta", "--yes").exit_code == 0
    assert run("tenants", "remove", "zeta", "--yes").exit_code == 1
    assert "zeta" not in run("tenants", "-d", "pages.db").stdout
    assert run("tenants", "create", "new", "--readonly").exit_code == 2


def test_commands_work_in_the_tenant_that_is_named(run: Run):
    assert json.loads(run("rows", "pages", "--tenant", "acme", "--json").stdout) == [{"id": 1, "title": "of acme"}]
    assert json.loads(run("count", "pages", "--tenant", "initech", "--json").stdout) == 0
    assert run("set", "note", "1", "--tenant", "initech").exit_code == 0
    assert run("get", "note", "--tenant", "initech").stdout.strip() == "1"
    assert run("get", "note", "--tenant", "acme").exit_code == 1
    assert run("get", "note").exit_code == 1
    for words in (
        ("info",),
        ("stats",),
        ("inspect",),
        ("keys",),
        ("queue",),
        ("queue", "dead"),
        ("locks",),
        ("indexes",),
    ):
        found = run(*words, "--tenant", "acme")
        assert (found.exit_code, "__kvmodels__" in found.stdout.replace('"__kvmodels__"', "")) == (0, False), words
    assert "title" in run("indexes", "--tenant", "acme").stdout
    assert run("indexes", "--tenant", "acme", "build", "Page.title").exit_code == 0


def test_a_command_in_an_unknown_tenant_and_one_of_the_whole_store_are_refused(run: Run):
    unknown = run("rows", "pages", "--tenant", "unknown")
    assert (unknown.exit_code, "no tenant of this name" in unknown.stderr) == (2, True)
    assert run("backup", "copy.db", "--tenant", "acme").exit_code == 2
    assert run("tenants", "--tenant", "acme").exit_code == 2


def test_a_tenant_is_dumped_and_loaded_into_another_that_is_empty(run: Run):
    assert run("dump", "--tenant", "acme", "-o", "acme.ndjson").stderr == "3 keys dumped\n"
    assert "acme" not in Path("acme.ndjson").read_text("utf-8").replace("of acme", "")
    assert run("load", "acme.ndjson", "--tenant", "initech").stdout == "3 keys loaded\n"
    assert json.loads(run("rows", "pages", "--tenant", "initech", "--json").stdout) == [{"id": 1, "title": "of acme"}]
    assert run("check", "--all-tenants").exit_code == 0
    refused = [
        run("load", "acme.ndjson", "--tenant", name, *words)
        for name, words in (("initech", ()), ("unknown", ()), ("acme", ("--readonly",)))
    ]
    assert [(one.exit_code > 0, "Error: " in one.stderr) for one in refused] == [(True, True)] * 3
    assert [one["name"] for one in json.loads(run("tenants", "--json").stdout)] == ["acme", "initech"]


def test_records_of_a_tenant_are_dumped_and_loaded_into_one_that_is_used(run: Run):
    assert run("dump", "pages", "--tenant", "acme", "-o", "pages.ndjson").exit_code == 0
    again = run("load", "pages.ndjson", "--tenant", "acme", "--into-used", "--on-conflict", "ignore", "--json")
    assert (again.exit_code, json.loads(again.stdout)["skipped"]) == (0, 1)
    assert run("load", "pages.ndjson", "--tenant", "initech", "--into-used").exit_code == 0
    assert json.loads(run("count", "pages", "--tenant", "initech", "--json").stdout) == 1
    assert run("dump", "accounts", "--tenant", "acme").exit_code == 2


def test_a_load_into_a_tenant_that_was_killed_begins_again_with_restart(run: Run, monkeypatch: pytest.MonkeyPatch):
    run("dump", "--tenant", "acme", "-o", "acme.ndjson")
    page = vars(import_module("pages_app"))["Page"]
    with Database("pages.db", tenant_models=[page]) as db, monkeypatch.context() as patch:
        patch.setattr("kvmodels.api._sync.copies.abandon", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            db.tenant("initech").kv.load("acme.ndjson", progress=_kill)
    killed = run("load", "acme.ndjson", "--tenant", "initech")
    assert (killed.exit_code, "restart" in killed.stderr) == (3, True)
    assert run("load", "acme.ndjson", "--tenant", "initech", "--restart").exit_code == 0
    assert json.loads(run("count", "pages", "--tenant", "initech", "--json").stdout) == 1


def test_a_dump_of_the_store_with_its_tenants_is_no_dump_of_one(run: Run):
    run("dump", "-o", "all.ndjson")
    whole = run("load", "all.ndjson", "--tenant", "initech")
    assert (whole.exit_code > 0, "tenants" in whole.stderr) == (True, True)
    assert json.loads(run("count", "pages", "--tenant", "initech", "--json").stdout) == 0


def test_a_tenant_is_copied_in_its_store_into_another_and_into_a_store_of_its_own(run: Run):
    assert run("tenants", "copy", "acme", "trial").exit_code == 0
    assert json.loads(run("rows", "pages", "--tenant", "trial", "--json").stdout) == [{"id": 1, "title": "of acme"}]
    assert run("tenants", "copy", "acme", "moved", "--to", "other.db").stderr == "3 keys copied\n"
    assert json.loads(run("tenants", "-d", "other.db", "--json").stdout) == [{"name": "moved", "state": "active"}]
    assert run("tenants", "copy", "acme", "--to", "own.db", "-d", "pages.db").exit_code == 0
    page = vars(import_module("pages_app"))["Page"]
    with Database("own.db", models=[page]) as own:
        assert (own[page].get(1).title, own.check().ok) == ("of acme", True)
    refused = [
        run("tenants", "copy", "acme", *words) for words in (("trial",), ("--to", "own.db"), ("x", "--readonly"))
    ]
    assert ["Error: " in one.stderr for one in refused] == [True] * 3
    assert 0 not in [one.exit_code for one in refused]
