"""``kvmodels search``: words, conditions, pages and formats, and models that have none or several search indexes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvmodels import Database
from tests.cli.conftest import Run

PROGRAM = """
from kvmodels import AsyncDatabase, KvModel, PrimaryKey, SearchIndex

class Page(KvModel, collection="pages"):
    id: PrimaryKey[int]
    org: str
    title: str
    class Meta:
        indexes = (SearchIndex("title", name="by_text"), SearchIndex("title", group="org", name="in_org"))

class Note(KvModel, collection="notes"):
    id: PrimaryKey[int]
    text: str
    class Meta:
        indexes = (SearchIndex("text", name="by_text"),)

class Plain(KvModel, collection="plain"):
    id: PrimaryKey[int]

MODELS = [Page, Note, Plain]
db = AsyncDatabase("search.db", models=MODELS)
"""


@pytest.fixture
def search(folder: Path, run: Run) -> Callable[..., Any]:
    """Run ``kvmodels search`` on a store of pages and notes."""
    program: dict[str, Any] = {"__name__": "search_program"}
    exec(compile(PROGRAM, "search_app.py", "exec", dont_inherit=True), program)
    with Database("search.db", models=program["MODELS"]) as db:
        for number, (org, title) in enumerate(
            [("a", "Ordered keys, ordered by an order"), ("a", "Keys"), ("b", "Keys")]
        ):
            db[program["Page"]].create(id=number, org=org, title=title)
        for number in range(3):
            db[program["Note"]].create(id=number, text="word " * (3 - number) + "redis " * (number == 1))
    (folder / "search_app.py").write_text(PROGRAM)
    return lambda *words: run("search", *words, "-d", "search_app:db")


def test_records_are_printed_with_their_scores_the_best_first(search: Callable[..., Any]):
    found = json.loads(search("notes", "word", "--json").stdout)
    assert [one["id"] for one in found] == [0, 2, 1]
    assert list(found[0]) == ["score", "id", "text"]
    assert found[0]["score"] > found[1]["score"] > found[2]["score"] > 0  # 1 is longer than 2
    assert search("notes", "wor* -redis", "--nl").stdout.count("\n") == 2
    assert search("notes", '"word word word', "--table").stdout.splitlines()[0].split() == ["score", "id", "text"]
    assert json.loads(search("notes", '"', "--json").stdout) == []


def test_pages_are_continued(search: Callable[..., Any]):
    first = search("notes", "word", "-l", "2", "--json")
    cursor = first.stderr.split("--after ")[1].strip()
    last = search("notes", "word", "-l", "2", "--json", "--after", cursor)
    assert [one["id"] for one in json.loads(last.stdout)] == [1]
    assert "more" not in last.stderr


def test_conditions_and_the_index_are_chosen(search: Callable[..., Any]):
    found = search("Page", "keys", "org=a", "--index", "in_org", "--json")
    assert [one["id"] for one in json.loads(found.stdout)] == [1, 0]
    tested = search("Page", "keys", "org=b", "--index", "by_text", "--json")
    assert [one["id"] for one in json.loads(tested.stdout)] == [2]
    refused = search("Page", "keys", "--index", "in_org")
    assert (refused.exit_code, "KV703" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("Page", "keys"), "Choose one with --index: by_text, in_org"),
        (("Page", "keys", "--index", "id"), "has no search index 'id'"),
        (("Plain", "keys"), "Plain has no search index"),
        (("Pages", "keys"), "no model is called 'Pages'"),
        (("notes", "word", "redis"), "'redis' is not a condition"),
    ],
)
def test_a_wrong_command_line_says_what_to_write(search: Callable[..., Any], words: tuple[str, ...], said: str):
    result = search(*words)
    assert result.exit_code == 2
    assert said in result.stderr
