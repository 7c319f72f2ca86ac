"""``dump``, ``load``, ``backup``, ``restore`` and ``copy``: what arrives, and what bad input leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvmodels import Database, open_kv
from tests.cli.conftest import files_in

APP = ("-d", "shop_app:make")
BOOK = '{"key":["books","%s"],"document":{"isbn":"%s","title":"%s","genre":"novel","price":1.0}}'


@pytest.fixture
def shop(folder: Path, run) -> Path:
    """A store with two books and a raw key."""
    lines = [
        '{"kvmodels_dump":2,"collections":["books"]}',
        BOOK % ("1", "1", "Emma"),
        BOOK % ("2", "2", "Ulysses"),
        '{"end":{"keys":2}}',
    ]
    done = run("load", "-", "--into-used", *APP, stdin="\n".join(lines) + "\n")
    assert (done.exit_code, done.stdout) == (0, "2 keys loaded\n")
    assert run("set", "theme", "dark", *APP).exit_code == 0
    return folder


def content(url: str) -> list[tuple[Any, Any]]:
    with open_kv(url, readonly=True) as kv:
        return [(entry.key, entry.value) for entry in kv.list(())]


@pytest.mark.parametrize("url", ["copy.db", "lmdb:///copy.lmdb"])
def test_a_whole_store_moves_by_dump_by_copy_and_by_backup(shop, run, url):
    assert run("dump", "-o", "whole.ndjson", "-d", "shop.db").exit_code == 0
    piped = run("dump", "-d", "shop.db")
    assert piped.stdout.splitlines()[1:] == Path("whole.ndjson").read_text().splitlines()[1:]
    assert "dumped" in piped.stderr
    ways: list[list[tuple[str, ...]]] = [
        [("load", "whole.ndjson", "-d", url)],
        [("copy", "shop.db", url)],
        [("backup", "backup.db", "-d", "shop.db"), ("restore", "backup.db", "-d", url)],
    ]
    for number, way in enumerate(ways):
        target = url.replace("copy", f"copy{number}")
        for words in way:
            done = run(*[target if word == url else word for word in words])
            assert done.exit_code == 0, done.stderr
        assert content(target) == content("shop.db")
        refused = run(*[target if word == url else word for word in way[-1]])
        assert refused.exit_code == 3
        assert "empty store" in refused.stderr
        assert "kvmodels load FILE --into-used" in refused.stderr


def test_some_models_and_the_lines_of_deno_are_loaded_into_a_store_in_use(shop, run):
    dumped = run("dump", "books", "-d", "shop_app:make")
    assert len(dumped.stdout.splitlines()) == 4
    lines = run("dump", "Book", "--format", "deno", *APP).stdout
    assert json.loads(lines.splitlines()[0])["key"][0] == {"type": "string", "value": "books"}
    for text, options in ((dumped.stdout, ()), (lines, ("--format", "deno"))):
        refused = run("load", "-", "--into-used", *options, *APP, stdin=text)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "KV305" in refused.stderr
        kept = run("load", "-", "books", "--into-used", "--on-conflict", "ignore", "--json", *options, *APP, stdin=text)
        assert json.loads(kept.stdout) == {"written": 0, "skipped": 2, "failures": 0}
    assert run("delete", "theme", *APP).exit_code == 0
    assert run("load", "-", "--format", "deno", "-d", "raw.db", stdin=lines).exit_code == 0
    assert content("raw.db") == [
        (("books", number), {"isbn": number, "title": title, "genre": "novel", "price": 1.0})
        for number, title in (("1", "Emma"), ("2", "Ulysses"))
    ]


def test_records_that_violate_a_constraint_are_listed(shop, run):
    other = BOOK % ("3", "3", "Emma")
    text = f'{{"kvmodels_dump":2,"collections":["books"]}}\n{other}\n{{"end":{{"keys":1}}}}\n'
    for on_conflict, said in (("ignore", "1 left out"), ("update", "")):
        done = run("load", "-", "--into-used", "--on-conflict", on_conflict, *APP, stdin=text)
        assert done.exit_code == 1
        assert said in done.stdout
        assert "KV302" in done.stderr
    assert run("check", *APP).exit_code == 0


@pytest.mark.parametrize(
    ("code", "said", "words"),
    [
        (2, "no model is called", ("dump", "novels", *APP)),
        (2, "no model classes", ("dump", "books", "-d", "shop.db")),
        (3, "File exists", ("dump", "-o", "theme.json", *APP)),
        (2, "missing.db", ("dump", "-d", "missing.db")),
        (2, "cannot open", ("load", "missing.ndjson", "-d", "shop.db")),
        (2, "need --into-used", ("load", "broken.ndjson", "books", *APP)),
        (2, "--restart", ("load", "broken.ndjson", "--into-used", "--restart", *APP)),
        (3, "line 2", ("load", "broken.ndjson", "--into-used", *APP)),
        (3, "line 3: the dump is cut off", ("load", "cut.ndjson", "--into-used", *APP)),
        (3, "line 2: string_type", ("load", "invalid.ndjson", "--into-used", *APP)),
        (3, "not that of a dump", ("load", "theme.json", "--into-used", *APP)),
        (3, "not an entry of Deno", ("load", "cut.ndjson", "--into-used", "--format", "deno", *APP)),
        (3, "load --into-used reads", ("load", "cut.ndjson", "-d", "shop.db")),
        (3, "theme.json", ("restore", "theme.json", "-d", "new.db")),
        (3, "", ("backup", "theme.json", "-d", "shop.db")),
        (2, "--readonly forbids", ("load", "cut.ndjson", "--into-used", "--readonly", *APP)),
        (2, "--readonly forbids", ("copy", "shop.db", "new.db", "--readonly")),
        (2, "SRC and DST are the same store", ("copy", "shop.db", "shop.db")),
    ],
)
def test_bad_input_is_named_and_changes_nothing(shop, run, code, said, words):
    first = '{"kvmodels_dump":2,"collections":["books"]}'
    for name, lines in {
        "broken": [first, BOOK[:30]],
        "cut": [first, BOOK % ("9", "9", "Faust")],
        "invalid": [first, (BOOK % ("9", "9", "Faust")).replace('"Faust"', "7"), '{"end":{"keys":1}}'],
    }.items():
        Path(f"{name}.ndjson").write_text("\n".join(lines) + "\n")
    Path("theme.json").write_text('{"theme": "dark"}\n')
    with Database("shop.db", readonly=True) as db:
        before = [(entry.key, entry.versionstamp) for entry in db.kv.list(())]
    files = set(files_in(shop))
    done = run(*words)
    assert (done.exit_code, done.stdout) == (code, ""), done.stderr
    assert said in done.stderr
    with Database("shop.db", readonly=True) as db:
        assert [(entry.key, entry.versionstamp) for entry in db.kv.list(())] == before
    assert Path("theme.json").read_text() == '{"theme": "dark"}\n'
    assert {name for name in files_in(shop) if not name.startswith("shop.db")} <= files
