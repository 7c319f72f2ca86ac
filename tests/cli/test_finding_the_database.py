"""Where a command finds its database, and how it opens it."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from typing import Any

import pytest

from kvmodels import Database, open_kv
from tests.cli.conftest import files_in


@pytest.fixture
def stores(folder):
    for name in ("option", "variable", "project"):
        with open_kv(f"{name}.db") as kv:
            kv.set(("name",), name)
    inner = folder / "src" / "inner"
    inner.mkdir(parents=True)
    return inner


def test_the_option_is_stronger_than_the_variable_and_this_than_the_project(stores, folder, run, monkeypatch):
    (folder / "pyproject.toml").write_text(f'[tool.kvmodels]\ndatabase = "{folder}/project.db"\n')
    monkeypatch.chdir(stores)
    assert run("get", "name").stdout == '"project"\n'
    monkeypatch.setenv("KVMODELS_DATABASE", f"{folder}/variable.db")
    assert run("get", "name").stdout == '"variable"\n'
    assert run("get", "name", "-d", f"{folder}/option.db").stdout == '"option"\n'
    assert run("-d", f"{folder}/option.db", "get", "name").stdout == '"option"\n'


def test_only_the_nearest_project_counts(stores, folder, run, monkeypatch):
    (folder / "pyproject.toml").write_text('[tool.kvmodels]\ndatabase = "project.db"\n')
    (stores / "pyproject.toml").write_text("[project]\nname = 'inner'\n")
    monkeypatch.chdir(stores)
    result = run("get", "name")
    assert result.exit_code == 2
    assert "no database was given" in result.stderr


@pytest.mark.parametrize("project", ["[tool.kvmodels", "[tool.kvmodels]\ndatabase = 1\n"])
def test_a_broken_project_is_named(folder, run, project):
    (folder / "pyproject.toml").write_text(project)
    result = run("keys")
    assert result.exit_code == 2
    assert "pyproject.toml" in result.stderr


@pytest.mark.parametrize("scheme", ["", "lmdb:///"])
@pytest.mark.parametrize("name", ["shop", "make"])
def test_a_database_of_a_program_is_opened_in_this_form(run, monkeypatch, scheme, name):
    monkeypatch.setenv("SHOP", f"{scheme}shop.store")
    assert run("set", "greeting", "hello", "-d", f"shop_app:{name}").exit_code == 0
    assert run("get", "greeting", "-d", f"shop_app:{name}").stdout == '"hello"\n'
    assert run("get", "greeting", "-d", f"{scheme}shop.store").stdout == '"hello"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing:db", "No module named 'nothing'"),
        ("shop_app:nothing", "has no attribute 'nothing'"),
        ("shop_app:url", "neither a Database nor an AsyncDatabase, but str"),
        ("shop_app:Book", "shop_app:Book is neither a Database nor an AsyncDatabase, but a class"),
        ("shop_app", "no store 'shop_app'. Did you mean shop_app:db?"),
    ],
)
def test_an_import_that_fails_is_explained_without_a_traceback(folder, run, text, message):
    result = run("keys", "-d", text)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert ", line" not in result.stderr


@pytest.mark.parametrize("fault", ["1 / 0", "import json\njson.loads('{')"])
def test_an_error_of_the_program_has_its_own_line(folder, run, fault):
    (folder / "broken_app.py").write_text(f"{fault}\n")
    last = len(fault.splitlines())
    assert run("keys", "-d", "broken_app:db").stderr.endswith(f"({folder / 'broken_app.py'}, line {last})\n")


def test_a_project_in_a_folder_above_brings_its_modules(stores, folder, run, monkeypatch):
    (folder / "pyproject.toml").write_text('[tool.kvmodels]\ndatabase = "shop_app:make"\n')
    monkeypatch.chdir(stores)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one not in ("", str(folder))])
    assert run("set", "greeting", "hello").exit_code == 0


@pytest.mark.parametrize("url", ["missing.db", "lmdb:///missing"])
@pytest.mark.parametrize("words", [["keys"], ["set", "a", "1"], ["delete", "a"]])
def test_no_command_creates_a_store_by_a_misspelt_name(folder, run, url, words):
    before = files_in(folder)
    result = run(*words, "-d", url)
    assert result.exit_code == 2
    assert result.stderr == f"Error: no store '{url}'. Give the path of a store, or module:object.\n"
    assert files_in(folder) == before


def test_a_file_of_another_program_is_refused(folder, run):
    (folder / "letter.db").write_bytes(b"Dear Ada, " * 100)
    before = files_in(folder)
    assert run("set", "a", "1", "-d", "letter.db").exit_code == 3
    assert files_in(folder) == before


@pytest.mark.parametrize("database", ["shop.db", "shop_app:shop", "shop_app:make"])
def test_readonly_refuses_every_write(folder, run, database):
    with Database("shop.db") as db:
        db.kv.set(("a",), 1)
    before = files_in(folder)
    assert run("get", "a", "--readonly", "-d", database).stdout == "1\n"
    result = run("set", "a", "2", "--readonly", "-d", database)
    assert result.exit_code == 2
    assert "--readonly forbids" in result.stderr
    if database != "shop_app:make":  # the constructor of a Database lists its collections
        assert files_in(folder) == before


def test_passwords_are_not_shown(run):
    result = run("keys", "-d", "postgres://ada:pa:ss@w/xyz@localhost/shop?password=secret")
    assert result.exit_code == 2
    assert "xyz" not in result.stderr
    assert "secret" not in result.stderr


def test_the_command_says_which_packages_are_missing(folder):
    code = "import sys; sys.modules['typer'] = None\nfrom kvmodels.cli.main import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ}, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'kvmodels[cli]'" in done.stderr


def test_importing_the_library_imports_nothing_of_the_command():
    code = "import sys, kvmodels; kvmodels.Database, kvmodels.AsyncDatabase; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {name for name in done.stdout.split() if name.startswith(("kvmodels.cli", "typer", "rich", "click"))}


def test_settings_hold_every_argument_of_the_constructor():
    given: dict[str, Any] = {"codec": "msgpack", "readonly": False, "require_current": True, "busy_timeout": 3.0}
    with Database("sqlite://:memory:", **given) as db:
        assert db.settings is not None
        assert (db.settings.url, db.settings.models) == ("sqlite://:memory:", ())
        assert given.items() <= db.settings.options.items()
        named = {*inspect.signature(Database.__init__).parameters} - {"self", "url", "models", "engine_options"}
        assert db.settings.options.keys() == {*named, "busy_timeout"}
        assert "memory" not in repr(db.settings)
        Database(db.settings.url, models=db.settings.models, **db.settings.options).close()
