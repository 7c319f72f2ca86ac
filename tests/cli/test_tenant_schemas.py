"""``plan`` and ``apply`` in tenants: of one by name, and of all of them."""

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
