"""``plan``, ``apply`` and ``check`` in one tenant and in all of them; ``dump`` and ``load`` of a store with some."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from kvmodels import Database
from tests.cli.conftest import Run

OLD = """
from kvmodels import AsyncDatabase, Indexed, KvModel, PrimaryKey
class Page(KvModel, collection="pages"):
    id: PrimaryKey[int]
    title: str
db = AsyncDatabase("sites.db", tenant_models=[Page])
"""

NEW = OLD.replace("title: str", "title: Indexed[str]")


@pytest.fixture
def sites(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two tenants of the old release; the program ``new_sites_app`` has one index more."""
    (folder / "old_sites_app.py").write_text(OLD)
    (folder / "new_sites_app.py").write_text(NEW)
    monkeypatch.syspath_prepend(str(folder))
    page = vars(import_module("old_sites_app"))["Page"]
    with Database("sites.db", tenant_models=[page]) as db:
        for name in ("acme", "initech"):
            db.create_tenant(name)
            db.tenant(name)[page].create(id=1, title=name)
    monkeypatch.setenv("KVMODELS_DATABASE", "new_sites_app:db")
    return folder


@pytest.mark.usefixtures("sites")
def test_one_tenant_is_planned_and_applied_by_name(run: Run):
    assert run("plan", "--check", "--tenant", "acme").exit_code == 1
    done = run("apply", "--tenant", "acme", "--json")
    assert [one["index"] for one in json.loads(done.stdout)["builds"]] == ["title"]
    assert run("plan", "pages", "--check", "--tenant", "acme").exit_code == 0
    assert run("plan", "--check", "--tenant", "initech").exit_code == 1


@pytest.mark.usefixtures("sites")
def test_an_unknown_tenant_and_a_url_are_wrong_usage(run: Run):
    for command in ("plan", "apply"):
        unknown = run(command, "--tenant", "unknown")
        assert (unknown.exit_code, "no tenant of this name" in unknown.stderr) == (2, True)
        by_url = run(command, "--tenant", "acme", "-d", "sites.db")
        assert (by_url.exit_code, "model classes" in by_url.stderr) == (2, True)


@pytest.mark.usefixtures("sites")
def test_all_tenants_are_planned_and_applied(run: Run):
    planned = run("plan", "--check", "--all-tenants")
    assert (planned.exit_code, "2 tenants (acme, initech)" in planned.stdout) == (1, True)
    done = run("apply", "pages", "--all-tenants", "--json")
    assert json.loads(done.stdout) == {"current": 0, "applied": ["acme", "initech"], "incomplete": {}, "failed": []}
    assert run("plan", "--check", "--all-tenants").exit_code == 0
    assert run("apply", "--all-tenants").stdout.startswith("2 current, 0 applied, 0 failed: complete")


@pytest.mark.usefixtures("sites")
def test_a_change_of_all_tenants_that_loses_data_is_confirmed(run: Run):
    assert run("apply", "--all-tenants").exit_code == 0
    losing = ("apply", "-d", "old_sites_app:db", "--all-tenants", "--allow", "drop_index")
    assert (run(*losing[:4]).exit_code, run(*losing).exit_code, run(*losing, "--yes").exit_code) == (1, 1, 0)
    assert run("plan", "--check", "--all-tenants", "-d", "old_sites_app:db").exit_code == 0


@pytest.mark.usefixtures("sites")
def test_wrong_usage_of_all_tenants_has_a_message(run: Run):
    assert run("apply", "-d", "shop_app:shop").exit_code == 0
    for command in ("plan", "apply"):
        both = run(command, "--tenant", "acme", "--all-tenants")
        assert (both.exit_code, "exclude each other" in both.stderr) == (2, True)
        without = run(command, "--all-tenants", "-d", "shop_app:shop")
        assert (without.exit_code, "no models of tenants" in without.stderr) == (2, True)
        misspelt = run(command, "paegs", "--all-tenants")
        assert (misspelt.exit_code, "Did you mean pages?" in misspelt.stderr) == (2, True)


@pytest.mark.usefixtures("sites")
def test_a_store_with_tenants_is_dumped_and_loaded(run: Run):
    assert run("dump", "-o", "sites.ndjson").exit_code == 0
    refused = run("load", "sites.ndjson", "--into-used")
    assert (refused.exit_code, "a dump of a store with tenants" in refused.stderr) == (3, True)
    assert run("load", "sites.ndjson", "-d", "copy.db").exit_code == 0
    page = vars(import_module("old_sites_app"))["Page"]
    with Database("copy.db", tenant_models=[page]) as copy:
        assert [copy.tenant(one.name)[page].get(1).title for one in copy.tenants()] == ["acme", "initech"]


@pytest.mark.usefixtures("sites")
def test_one_tenant_and_all_tenants_are_checked_and_repaired(run: Run):
    assert run("apply", "--all-tenants").exit_code == 0
    page = vars(import_module("new_sites_app"))["Page"]
    with Database("sites.db", tenant_models=[page]) as db:
        db.tenant("acme").kv.unsafe().delete(("pages_by_title", "acme", 1))
    assert (run("check", "--tenant", "acme").exit_code, run("check", "--tenant", "initech").exit_code) == (1, 0)
    found = run("check", "--all-tenants")
    assert (found.exit_code, found.stdout.splitlines()[0]) == (1, "NOT OK: 2 checked, 3 rows scanned, 0 failed")
    assert "acme: NOT OK: " in found.stdout
    repaired = json.loads(run("check", "pages", "--all-tenants", "--repair", "--json").stdout)
    assert (repaired["ok"], list(repaired["reports"]), repaired["failed"]) == (True, ["acme"], [])
    assert run("check", "--all-tenants").stdout == "ok: 2 checked, 4 rows scanned, 0 failed\n"
    assert run("check", "--tenant", "acme", "--all-tenants").exit_code == 2


@pytest.mark.usefixtures("sites")
def test_the_rows_of_each_tenant_are_listed(run: Run):
    found = run("stats", "--all-tenants", "-d", "sites.db", "--json")
    assert [(one["tenant"], one["rows"]) for one in json.loads(found.stdout)] == [("acme", 2), ("initech", 2)]
    assert run("stats", "--all-tenants").stdout.split()[:4] == ["tenant", "rows", "size", "expiring"]
    assert [run("stats", "--tenant", "acme", *more).exit_code for more in ((), ("--all-tenants",))] == [0, 2]
