"""Every command with bad input: a message, its exit code, and nothing is changed; no command may be left out."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import COMMAND, Run, entries_in, files_in

APP = "shop_app:shop"

# The words of a command that would be carried out, and bad ones with their exit codes and messages.
COMMANDS: dict[tuple[str, ...], tuple[tuple[str, ...], list[tuple[int, str, tuple[str, ...]]]]] = {
    ("info",): ((), [(2, "--exact", ("--exact",))]),
    ("stats",): ((), [(2, "throttle", ("--exact", "--throttle", "0"))]),
    ("inspect",): ((), [(2, "books", ("books",))]),
    ("rows",): (
        ("books",),
        [
            (2, "Did you mean books?", ("bokos",)),
            (2, "gerne", ("books", "gerne=novel")),
            (2, "price", ("books", "price__gte=much", "--scan")),
            (1, "--scan", ("books", "price=1")),
            (2, "--after", ("books", "--after", "nothing")),
        ],
    ),
    ("count",): (("books",), [(2, "bokos", ("bokos",)), (2, "gerne", ("books", "gerne=novel"))]),
    ("explain",): (("books",), [(2, "bokos", ("bokos",)), (2, "gerne", ("books", "gerne=novel"))]),
    ("search",): (
        ("books", "sea"),
        [
            (2, "bokos", ("bokos", "sea")),
            (2, "search index", ("books", "sea")),
        ],
    ),
    ("insert",): (
        ("books", "books.json"),
        [
            (2, "bokos", ("bokos", "books.json")),
            (2, "missing.json", ("books", "missing.json")),
            (2, "line 1", ("books", "broken.json")),
        ],
    ),
    ("export",): (("books",), [(2, "bokos", ("bokos",)), (2, "gerne", ("books", "gerne=novel"))]),
    ("history",): (("books", "1"), [(2, "bokos", ("bokos", "1")), (2, "history", ("books", "1"))]),
    ("trash",): (("books",), [(2, "bokos", ("bokos",)), (2, "history", ("books",))]),
    ("undelete",): (
        ("books", "1"),
        [
            (2, "bokos", ("bokos", "1")),
            (2, "one word for each", ("books", "1", "2")),
            (2, "FIELD=VALUE", ("books", "1", "--set", "title")),
            (2, "history", ("books", "1")),
        ],
    ),
    ("plan",): (("books",), [(2, "bokos", ("bokos",)), (2, "--sample", ("--sample", "-1"))]),
    ("apply",): (("books",), [(2, "bokos", ("bokos",)), (2, "allow", ("--allow", "everything", "--yes"))]),
    ("migrate",): (("books",), [(2, "bokos", ("bokos",)), (2, "title", ("books", "--forget", "title", "--yes"))]),
    ("sweep",): ((), [(2, "--limit", ("--limit", "0")), (2, "books", ("books",))]),
    ("rotate",): (
        ("books", "--to", "1"),
        [(2, "bokos", ("bokos", "--to", "1")), (2, "does not have the key", ("books", "--to", "1"))],
    ),
    ("drop",): (("books", "--yes"), [(1, "bokos", ("bokos", "--yes")), (2, "declare", ("books", "--yes"))]),
    ("violations",): (("books",), [(2, "bokos", ("bokos",)), (2, "gerne", ("books", "--index", "gerne"))]),
    ("resolve",): (("books",), [(2, "bokos", ("bokos",)), (2, "gerne", ("books", "--index", "gerne"))]),
    ("check",): (
        ("books",),
        [(2, "bokos", ("bokos",)), (2, "some", ("--repair=some",)), (1, "--yes", ("--repair=all",))],
    ),
    ("indexes",): ((), [(2, "books", ("books",))]),
    ("indexes", "build"): (("books.genre",), [(2, "COLLECTION.INDEX", ("books",)), (2, "gerne", ("books.gerne",))]),
    ("indexes", "drop"): (
        ("books.genre", "--yes"),
        [(2, "COLLECTION.INDEX", ("books", "--yes")), (1, "--yes", ("books.genre",))],
    ),
    ("dump",): ((), [(2, "bokos", ("bokos",)), (3, "File exists", ("-o", "broken.json"))]),
    ("load",): (
        ("dump.ndjson", "--into-used"),
        [(2, "missing.ndjson", ("missing.ndjson",)), (3, "line 1", ("broken.json", "--into-used"))],
    ),
    ("backup",): (("copy.db",), [(3, "broken.json", ("broken.json",))]),
    ("restore",): (("backup.db",), [(3, "broken.json", ("broken.json",)), (2, "missing.db", ("missing.db",))]),
    ("copy",): (("missing.db", "other.db"), [(2, "missing.db", ("missing.db", "other.db"))]),
    ("follow",): (("shop_app:Book",), [(2, "not a follower", ("shop_app:Book",)), (2, "MODULE:FOLLOWER", ())]),
    ("keys",): ((), [(2, "malformed JSON", ('["a',)), (2, "--limit", ("--limit", "0"))]),
    ("get",): (("a",), [(2, "malformed JSON", ('["a',)), (1, "no key", ("nothing",))]),
    ("set",): (
        ("a", "1"),
        [(2, "malformed JSON", ("a", '{"b":')), (2, "VALUE", ("a",)), (1, "reserved", ("books", "1", "x"))],
    ),
    ("delete",): (("a",), [(2, "malformed JSON", ('["a',)), (1, "--yes", ("a", "--prefix"))]),
    ("watch",): (
        ("a", "--timeout", "0"),
        [(2, "malformed JSON", ('["a',)), (2, "--since", ("a", "--since", "0" * 20)), (3, "change", ("a", "--prefix"))],
    ),
    ("queue",): ((), [(2, "--limit", ("--limit", "0"))]),
    ("queue", "dead"): ((), [(2, "malformed JSON", ('["a',)), (2, "--limit", ("--limit", "0"))]),
    ("locks",): ((), [(2, "nightly", ("nightly",))]),
    ("tenants",): ((), [(2, "--limit", ("--limit", "0"))]),
    ("tenants", "create"): (("acme",), [(2, "models of tenants", ("acme",))]),
    ("tenants", "copy"): (
        ("acme", "trial"),
        [(2, "no tenant of this name", ("acme", "trial")), (2, "the copy has no name", ("acme",))],
    ),
    ("tenants", "remove"): (
        ("acme", "--yes"),
        [(1, "no tenant acme", ("acme", "--yes")), (1, "--yes is required", ("acme",))],
    ),
    ("shell",): ((), [(2, "books", ("books",))]),
    ("serve",): (
        ("--access-token", "the token of this test"),
        [(2, "not an address", ("--addr", "nowhere")), (2, "access token", ())],
    ),
    ("admin",): ((), [(2, "--port", ("--port", "none")), (2, "books", ("books",))]),
}
WITHOUT_STORE = {("version",)}
OWN_DATABASES = {("copy",), ("follow",), ("restore",), ("load",), ("serve",)}
"""They create the store, or take it as an argument."""


def commands(group: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*above, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*above, name))


@pytest.fixture(params=["shop.db", "lmdb:///shop.lmdb"])
def url(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> str:
    """The URL of a store with a book and a key."""
    monkeypatch.setenv("SHOP", request.param)
    monkeypatch.syspath_prepend(str(folder))
    (folder / "broken.json").write_text('{"isbn": 7')
    (folder / "notes.db").write_bytes(b"no database" * 100)
    with vars(import_module("shop_app"))["make"]() as db:
        [book] = db.models
        db[book].create(isbn="1", title="Emma", genre="novel")
        db.kv.set(("a",), 1)
    return request.param


def test_every_command_is_here():
    assert set(commands(COMMAND)) == set(COMMANDS) | WITHOUT_STORE


def test_bad_input_is_refused_with_a_message_and_changes_nothing(url: str, folder: Path, run: Run):
    before, names = entries_in(url), set(files_in(folder))
    for command, (_, refused) in COMMANDS.items():
        for code, message, words in refused:
            result = run(*command, *words, "-d", APP)
            assert (result.exit_code, result.stdout) == (code, ""), (command, words, result.stderr)
            assert message in result.stderr, (command, words, result.stderr)
            assert "Traceback" not in result.stderr
    assert entries_in(url) == before
    assert {name for name in files_in(folder) if "shop" not in name} == {name for name in names if "shop" not in name}


def test_a_file_of_another_program_and_a_missing_one_are_refused_by_every_command(folder: Path, run: Run):
    (folder / "notes.db").write_bytes(b"no database" * 100)
    (folder / "dump.ndjson").write_text("")
    for command, (words, _) in COMMANDS.items():
        for name in ("notes.db", "missing.db"):
            if name == "missing.db" and command in OWN_DATABASES:
                continue
            result = run(*command, *words, "-d", name)
            assert (result.exit_code in (2, 3), result.stdout) == (True, ""), (command, name, result.stderr)
            assert result.stderr.startswith(("Error: ", "Usage: ")), (command, result.stderr)
    assert (folder / "notes.db").read_bytes() == b"no database" * 100
    assert not (folder / "missing.db").exists()
