"""Searches read the shortest lists of entries, and plans and numbers name these lists."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kvmodels import (
    Database,
    InvalidArgumentError,
    InvalidCursorError,
    KvModel,
    PrimaryKey,
    Q,
    SearchIndex,
    TrigramIndex,
)
from kvmodels.query.hidden_operands import without_operands


class Entry(KvModel, collection="entries"):
    id: PrimaryKey[int]
    org: str = "a"
    title: str = ""
    body: str = ""

    class Meta:
        indexes = (
            SearchIndex("title", "body", group="org", name="in_org"),
            SearchIndex("title", "body", name="by_text"),
            TrigramIndex("title", name="parts"),
        )


RECORDS = 1_200
"""More than the number of entries up to which candidates are counted."""


@pytest.fixture(scope="module")
def db() -> Database:
    opened = Database("memory://", models=[Entry])
    opened[Entry].bulk_create(
        Entry(id=n, org="ab"[n % 2], title="common title", body=f"also here mid{n % 40} rare{n % 400}")
        for n in range(RECORDS)
    )
    return opened


def asked(text: str) -> list[int]:
    words = {word.removeprefix("body:") for word in text.replace('"', "").split()}
    every = ({"common", "title", "also", "here", f"mid{n % 40}", f"rare{n % 400}"} for n in range(RECORDS))
    return [n for n, held in enumerate(every) if words <= held]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("common rare7", 310),  # a first part of each list at once, then the rest of the shortest
        ("commonplace common", 310),
        ("also common here title mid7 rare7", 310),
        ('"mid7 rare7" common', 310),
        ("body:rare7 common", 310),
        ("body:rare7", 3),
    ],
)
def test_words_that_must_all_be_found_read_the_list_of_the_rarest(db: Database, text: str, rows: int):
    query = db[Entry].filter(by_text__search=text)
    plan = query.explain(analyze=True)
    assert [one.id for one in query] == asked(text)
    assert plan.analysis is not None
    assert plan.analysis.rows <= rows
    assert plan.analysis.records <= len(asked(text)) + 3
    assert query.count() == len(asked(text))


def test_a_search_among_alternatives_reads_its_rarest_word(db: Database):
    query = db[Entry].filter(Q(in_org__search="also common here title rare7", org="b") | Q(id=3))
    assert [one.id for one in query] == sorted({3, *asked("rare7")})
    analysis = query.explain(analyze=True).analysis
    assert analysis is not None
    assert dict(analysis.lists) == {"rare7": 3}


def test_pages_continue_in_the_lists_of_the_first_page(db: Database):
    query = db[Entry].filter(by_text__search="also common here title mid3")
    found, cursor = list[int](), None
    while True:
        page = query.page(size=7, after=cursor)
        found += [one.id for one in page]
        cursor = page.next_cursor
        if cursor is None:
            break
        with pytest.raises(InvalidCursorError):
            db[Entry].filter(by_text__search="also common here title mid4").page(size=7, after=cursor)
    assert found == asked("mid3")


def test_a_transaction_and_a_bulk_write_find_the_same_records(db: Database):
    with Database("memory://", models=[Entry]) as other:
        other[Entry].bulk_create(db[Entry].filter(id__lt=400).to_list())
        with other.transaction() as tx:
            tx[Entry].create(id=900, body="also rare7 mid7")
            assert [one.id for one in tx[Entry].filter(by_text__search="mid7 also rare7")] == [7, 900]
        assert other[Entry].filter(by_text__search="mid7 also rare7").update(body="none").written == 2
        assert other[Entry].filter(by_text__search="mid7 also rare7").count() == 0
        assert other[Entry].filter(~Q(by_text__search="mid7 also"), id__lt=20).count() == 20
        assert other.check().ok


def test_a_plan_names_the_lists_that_were_read(db: Database):
    ranked = str(db[Entry].search("by_text", "rare7 common").explain(analyze=True))
    assert re.search(r"lists +'common' 3 rows, 'rare7' 3 rows", ranked)
    either = db[Entry].filter(by_text__search="rare7 OR rare8 OR mid7 OR mid8 OR mid9 OR mid1").explain(analyze=True)
    assert "1 more 6 rows" in str(either)
    assert "rare8" in str(db[Entry].filter(by_text__search="rare8 common").explain())
    parts = db[Entry].filter(title__icontains="monplace").explain(analyze=True).analysis
    assert parts is not None
    assert {name for name, _ in parts.lists} <= {"mon", "onp", "npl", "pla", "lac", "ace"}
    plain = db[Entry].filter(id__gte=5)[:3].explain(analyze=True).analysis
    assert plain is not None
    assert plain.lists == ()
    assert "rare7" not in str(without_operands(db[Entry].search("by_text", "rare7").explain(analyze=True)))


def test_numbers_of_a_store_name_the_longest_list(db: Database):
    numbers = {one.name: one for one in db.stats(exact=True).collections[0].indexes}
    assert numbers["by_text"].lists == 4 + 40 + 400
    assert numbers["by_text"].longest_list == ("also", RECORDS)
    assert numbers["in_org"].longest_list == ("also", RECORDS // 2)
    assert numbers["parts"].lists == len({"common title"[at : at + 3] for at in range(10)})
    assert "444 lists of entries, the longest of 'also' with 1,200" in str(db.stats(exact=True))
    assert {one.lists for one in db.stats().collections[0].indexes} == {None}


def test_bounds_of_a_highlight_are_checked(db: Database):
    with Database("memory://", models=[Entry]) as other:
        other[Entry].create(id=1, title="word " * 300 + "needle" + " word" * 300, body="x" * 100_000 + " needle")
        (hit,) = other[Entry].search("by_text", "needle")
        for wrong in ({"before": 5}, {"after": None}, {"words": "5"}, {"words": 0}, {"characters": 0}, {"words": True}):
            highlight: Any = hit.highlight
            with pytest.raises(InvalidArgumentError) as caught:
                highlight("title", **wrong)
            assert caught.value.argument == next(iter(wrong))
        assert hit.highlight("title", characters=25) == "…word <b>needle</b> word word…"
        assert hit.highlight("title", characters=3) == "…<b>nee</b>…"
        assert len(hit.highlight("body")) < 1_300
        assert "<b>needle</b>" in hit.highlight("body")
        assert len(hit.highlight("body", words=None)) > 100_000
        assert hit.highlight("body", words=None, characters=6) == "…<b>needle</b>"
