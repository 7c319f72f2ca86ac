"""``plan``, ``apply``, ``migrate``, ``violations``, ``resolve``, ``check`` and ``indexes``."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Any

import pytest

from kvmodels import Database
from tests.cli.conftest import entries_in

OLD = """
from kvmodels import AsyncDatabase, Indexed, KvModel, PrimaryKey
class Book(KvModel, collection="books"):
    isbn: PrimaryKey[str]
    title: str
    genre: str
    year: Indexed[int]
db = AsyncDatabase("shop.db", models=[Book])
"""

NEW = """
from kvmodels import AsyncDatabase, Indexed, KvModel, PrimaryKey, Unique, upgrade
class Book(KvModel, collection="books"):
    isbn: PrimaryKey[str]
    title: Unique[str]
    genre: Indexed[str]
    pages: int = 0
    class Meta:
        schema_version = 2
    @upgrade(to=2, touches=("pages",))
    @staticmethod
    def count_pages(fields):
        return {**fields, "pages": 100}
db = AsyncDatabase("shop.db", models=[Book])
"""

WITH_ULIDS = """
from kvmodels import ULID, AsyncDatabase, Database, Field, KvModel, PrimaryKey, Unique
class Guest(KvModel, collection="guests"):
    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    name: str
class NamedGuest(KvModel, collection="guests"):
    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    name: Unique[str]
def fill():
    with Database("guests.db", models=[Guest]) as db:
        return [str(db[Guest].create(name="Ada").id) for _ in range(2)]
old = AsyncDatabase("guests.db", models=[Guest])
db = AsyncDatabase("guests.db", models=[NamedGuest])
"""


@contextmanager
def books_of(program: str) -> Iterator[Any]:
    """Open the store with the class of one release; yields its repository."""
    book = vars(import_module(program))["Book"]
    with Database("shop.db", models=[book]) as db:
        yield db[book]


@pytest.fixture
def shop(folder, run, monkeypatch):
    """A store of the old release; the program ``new_app`` is the new one."""
    (folder / "old_app.py").write_text(OLD)
    (folder / "new_app.py").write_text(NEW)
    assert run("apply", "--silent", "-d", "old_app:db").exit_code == 0
    with books_of("old_app") as books:
        for number, title in enumerate(("Emma", "Ulysses", "Emma")):
            books.create(isbn=str(number), title=title, genre="novel", year=1900 + number)
    monkeypatch.setenv("KVMODELS_DATABASE", "new_app:db")
    return folder


def test_records_with_ulids_are_listed_as_violations(folder, run, monkeypatch):
    (folder / "guests_app.py").write_text(WITH_ULIDS)
    assert run("apply", "--silent", "-d", "guests_app:old").exit_code == 0
    first, second = import_module("guests_app").fill()
    monkeypatch.setenv("KVMODELS_DATABASE", "guests_app:db")
    applied = run("apply")
    assert applied.exit_code == 1
    assert "1 violations" in applied.stdout
    listed = run("violations", "--json")
    [found] = json.loads(listed.stdout)
    assert (listed.exit_code, found["key"], found["holder"]) == (1, second, first)


def test_a_release_is_planned_applied_and_completed(shop, run):
    before = entries_in("shop.db")
    assert run("plan", "--check", "-d", "old_app:db").exit_code == 0
    pending = run("plan", "--check")
    assert pending.exit_code == 1
    assert "books.title  index_added" in pending.stdout
    assert {step["rule"] for step in json.loads(run("plan", "--json").stdout)["steps"]} >= {"index_undeclared"}
    refused = run("apply")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "index_undeclared" in refused.stderr
    unanswered = run("apply", "--allow", "drop_index")
    assert unanswered.exit_code == 1
    assert "--yes" in unanswered.stderr
    assert entries_in("shop.db") == before

    applied = run("apply", "--allow", "drop_index", "--yes")
    assert applied.exit_code == 1  # two books have one title
    assert "NOT COMPLETE" in applied.stdout
    assert "kvmodels violations" in applied.stderr
    asked = run("indexes", "drop", "books.title")
    assert "The store then no longer enforces that its values are unique." in asked.stderr
    listed = run("violations", "books")
    assert listed.exit_code == 1
    assert "'2' duplicate" in listed.stdout
    assert json.loads(run("violations", "Book", "--index", "title", "--json").stdout)[0]["key"] == "2"
    assert run("resolve", "books").exit_code == 1
    rows = json.loads(run("indexes", "--json").stdout)
    assert {row["index"]: row["state"] for row in rows} == {"books.genre": "readable", "books.title": "pending"}
    assert run("indexes").stdout.splitlines()[0].split() == [
        "index", "state", "kind", "columns", "generation", "violations", "declared",
    ]  # fmt: skip

    with books_of("new_app") as books:
        books.remove("2")
    assert run("resolve", "books", "--index", "title").exit_code == 0
    migrated = run("migrate", "books", "--forget", "year", "--yes")
    assert migrated.exit_code == 0
    assert run("plan", "--check").exit_code == 0
    assert run("violations").stdout == "no violations\n"
    assert '["pages", 100]' in run("get", "books", '"0"').stdout


def test_one_index_is_dropped_and_built(shop, run):
    assert run("indexes", "drop", "books.year", "-d", "shop.db").exit_code == 1
    assert run("indexes", "drop", "books.year", "--yes", "-d", "shop.db").exit_code == 0
    assert run("indexes", "drop", "books.year", "--yes", "-d", "shop.db").exit_code == 1
    assert "no indexes" in run("indexes", "-d", "shop.db").stderr
    built = run("indexes", "build", "Book.year", "-d", "old_app:db")
    assert built.exit_code == 0
    assert "books.year" in built.stdout
    assert run("check", "-d", "old_app:db").exit_code == 0


def test_a_collection_that_no_model_declares_is_dropped(shop, run):
    assert run("drop", "books", "-d", "shop.db").exit_code == 1  # it was not confirmed
    refused = run("drop", "books", "--yes", "-d", "old_app:db")
    assert "Remove " in refused.stderr
    done = run("drop", "books", "--yes", "-d", "shop.db")
    assert (done.exit_code, "dropped books" in done.stdout + done.stderr) == (0, True)
    assert run("drop", "books", "--yes", "-d", "shop.db").exit_code == 1
    assert run("count", "books", "-d", "shop.db").exit_code != 0
    assert "no collections" in run("info", "-d", "shop.db").stderr


def test_damage_is_found_and_repaired(shop, run):
    with closing(sqlite3.connect("shop.db")) as file, file:
        [key, *_] = [key for (key,) in file.execute("SELECT k FROM kv") if b"books_by_year" in key]
        file.execute("DELETE FROM kv WHERE k = ?", (key,))
    for words in (["check"], ["check", "books"]):
        found = run(*words, "-d", "old_app:db")
        assert found.exit_code == 1
        assert found.stdout.startswith("NOT OK")
        assert "missing books.year '0'" in found.stdout
        assert "; kvmodels check --repair repairs it." in found.stdout
    undeclared = run("check", "-d", "shop.db")
    assert undeclared.exit_code == 1
    assert "Run kvmodels check --repair -d module:object, with a database that declares it." in undeclared.stdout
    assert json.loads(run("check", "--json", "-d", "old_app:db").stdout)["findings"][0]["kind"] == "missing"
    repaired = run("check", "--repair", "-d", "old_app:db")
    assert repaired.exit_code == 1
    assert "; repaired" in repaired.stdout
    assert run("check", "--repair=all", "-d", "old_app:db").exit_code == 1
    assert run("check", "--repair=some", "--yes", "-d", "old_app:db").exit_code == 2
    assert run("check", "--repair=all", "--yes", "-d", "old_app:db").exit_code == 0


def test_unknown_names_are_refused_and_change_nothing(shop, run):
    before = entries_in("shop.db")
    for words, message in (
        (["plan", "bokos"], "Did you mean books?"),
        (["check", "Boks"], "no model is called 'Boks'"),
        (["apply", "--allow", "everything"], "expected="),
        (["apply", "--throttle", "0"], "throttle"),
        (["migrate", "books", "--forget", "title", "--yes"], "KV503"),
        (["violations", "books", "--index", "nothing"], "KV"),
        (["resolve", "books", "--index", "nothing"], "KV"),
        (["indexes", "build", "books"], "COLLECTION.INDEX"),
        (["indexes", "build", "books.nothing"], "KV"),
        (["indexes", "drop", "boks.year"], "no model is called"),
        (["plan", "-d", "shop.db"], "module:object"),
        (["check", "--repair", "-d", "shop.db"], "module:object"),
        (["check", "books", "-d", "shop.db"], "with a URL, all collections are checked"),
        (["check", "--repair", "--readonly"], "--readonly"),
        (["indexes", "nothing"], "No such command"),
    ):
        result = run(*words)
        assert (result.exit_code, result.stdout) == (2, ""), words
        assert message in result.stderr, words
    assert entries_in("shop.db") == before
