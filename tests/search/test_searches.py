"""Ranked searches in transactions and pages, their limits and errors, and highlights."""

from __future__ import annotations

from random import Random

import pytest

from kvmodels import (
    Database,
    InvalidArgumentError,
    InvalidCursorError,
    InvalidValueError,
    NoUsableIndexError,
    OperationTooLargeError,
    Search,
    UnknownFieldError,
)
from kvmodels.query.words import bm25
from tests.search.queries import Drawn, Note, Sought, drawn, notes, scores
from tests.search.test_ranked_searches import RECORDS, SEED, WEIGHTS, check_hits, check_queries

KEY = Sought("key", None)


def filled(chance: Random) -> tuple[Database, list[Note]]:
    db = Database("memory://", models=[Note])
    records = notes(chance, RECORDS)
    db[Note].bulk_create(records)
    return db, records


def test_entries_of_long_lists_are_looked_up_one_by_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bm25, "MUCH_LONGER", 0)
    assert check_queries("memory://", SEED + 1, 60)["found"]


def test_a_transaction_finds_its_own_writes():
    chance = Random(3)
    db, records = filled(chance)
    with db:
        for _ in range(12):
            asked = drawn(chance)
            with db.transaction() as tx:
                key = chance.randrange(RECORDS)
                records[key] = notes(chance, 1)[0].model_copy(update={"id": key})
                tx[Note].remove(key)
                tx[Note].insert(records[key])
                hits = tx[Note].search("by_text", asked.text).to_list()
                assert {hit.record.id for hit in hits} == {one.id for one in records if asked.test(one)}
                assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.record.id))
            check_hits(db[Note].search("by_text", asked.text).to_list(), scores(records, asked, WEIGHTS))
        assert db.check().ok


def test_a_search_in_a_transaction_does_not_conflict_over_statistics():
    db, _ = filled(Random(4))
    with db, db.transaction() as tx:
        assert tx[Note].filter(org="a").search("in_org", "key").to_list()
        db[Note].create(id=900, org="a", title=None, body="unrelated", tags=None, size=0)
        tx[Note].create(id=901, org="a", title=None, body="key", tags=None, size=0)


def test_a_transaction_scores_by_the_statistics_of_its_snapshot_and_its_writes():
    db, _ = filled(Random(4))
    asked = Drawn("key", lambda note: "key" in (word for text in note.texts() for word in text), True, (KEY,))
    with db, db.transaction() as tx:
        tx[Note].create(id=901, org="a", title="key", body="key value", tags=None, size=0)
        for number in range(20):
            db[Note].create(id=1000 + number, org="a", title=None, body="unrelated " * 30, tags=None, size=0)
        check_hits(tx[Note].search("by_text", "key").to_list(), scores(tx[Note].all().to_list(), asked, WEIGHTS))
        tx[Note].remove(901)


def test_pages_use_the_numbers_of_the_first_page():
    """Records that are added between two pages change no score, so no record is lost or repeated."""
    db, records = filled(Random(5))
    with db:
        query = db[Note].search("by_text", "key OR value OR store")
        wanted = [hit.record.id for hit in query]
        found, cursor = [], None
        for number in range(100):
            page = query.page(4, after=cursor)
            found += [hit.record.id for hit in page if hit.record.id < RECORDS]
            cursor = page.next_cursor
            if cursor is None:
                break
            db[Note].create(id=1000 + number, org="a", title="key", body="unrelated " * 40, tags=None, size=0)
        assert found == wanted
        assert len(records) == RECORDS


def test_another_search_refuses_the_cursor():
    db, _ = filled(Random(6))
    with db:
        cursor = db[Note].search("by_text", "key").page(2).next_cursor
        assert cursor is not None
        assert db[Note].search("by_text", '"key"').page(2, after=cursor).items  # the same search
        for other in ("value", "key value", '"key x1"', "key*"):
            with pytest.raises(InvalidCursorError):
                db[Note].search("by_text", other).page(2, after=cursor)


def test_a_search_of_too_many_entries_names_the_word():
    db, records = filled(Random(7))
    with db:
        with pytest.raises(OperationTooLargeError) as caught:
            db[Note].search("by_text", "key", max_postings=3).to_list()
        assert "'key'" in str(caught.value.hint)
        with db.transaction() as tx, pytest.raises(OperationTooLargeError):
            tx[Note].search("by_text", "key", max_postings=3).to_list()
        asked = Drawn("key x1", lambda note: {"key", "x1"} <= {word for text in note.texts() for word in text})
        found = db[Note].search("by_text", asked.text, max_postings=RECORDS)
        assert {hit.record.id for hit in found} == {one.id for one in records if asked.test(one)}


def test_calls_that_cannot_be_answered_say_why():
    db, _ = filled(Random(8))
    with db:
        repository = db[Note]
        with pytest.raises(InvalidValueError):
            repository.search("by_text", 5)  # type: ignore[arg-type]
        with pytest.raises(InvalidValueError):
            repository.search("by_text", Search.all("key", field="note"))
        with pytest.raises(InvalidArgumentError) as without:
            repository.search("large", "key")
        assert "rank=False" in str(without.value.hint)
        with pytest.raises(InvalidArgumentError):
            repository.search("by_text", "key", max_postings=0)
        with pytest.raises(NoUsableIndexError) as group:
            repository.search("in_org", "key").to_list()
        assert "org" in str(group.value.hint)
        with pytest.raises(NoUsableIndexError):
            repository.order_by("id").search("by_text", "key")
        with pytest.raises(NoUsableIndexError, match="results of a ranked query have an order of their own"):
            repository.search("by_text", "key").order_by("id")
        with pytest.raises(InvalidArgumentError, match=r"Count from the beginning, or use to_list\(\)\[-1\]"):
            repository.search("by_text", "key")[-1]
        for ask, names in (
            (lambda: repository.search("by_txt", "key"), "takes one of: in_org, by_text, large"),
            (lambda: repository.filter(by_txt="key"), "of their own are: in_org, by_text, large"),
        ):
            with pytest.raises(UnknownFieldError, match=names) as typo:
                ask()
            assert typo.value.suggestion == "by_text"
            assert "terms of" not in str(typo.value)
        with pytest.raises(NoUsableIndexError) as field:
            repository.search("body", "key")
        assert "SearchIndex" in str(field.value.hint)


def test_a_highlight_is_escaped_and_cut():
    db, _ = filled(Random(9))
    with db:
        body = "word " * 50 + "<script>key</script> & Value, " + "word " * 50
        db[Note].create(id=500, org="a", title="Key", body=body, tags=["東京都 key", "x"], size=9)
        (hit,) = db[Note].filter(size=9).search("by_text", 'title:key val* "key value" OR 東京')
        assert hit.highlight("body", words=7) == (
            "…word &lt;script&gt;<b>key</b>&lt;/script&gt; &amp; <b>Value</b>, word word…"
        )
        assert hit.highlight("title", before="[", after="]") == "[Key]"
        assert hit.highlight("tags") == "<b>東京</b>都 <b>key</b>\nx"
        assert hit.highlight("body", words=None).count("word") == 100
        with pytest.raises(InvalidArgumentError):
            hit.highlight("size")
        with pytest.raises(InvalidArgumentError):
            hit.highlight("body", words=0)
        for marks in ({"before": 5}, {"after": None}, {"before": b"<b>"}, {"after": "x" * 1_001}):
            with pytest.raises(InvalidArgumentError, match="Give a tag") as refused:
                hit.highlight("body", **marks)
            assert {refused.value.argument: refused.value.value} == marks
        assert hit.highlight("title", before="x" * 1_000, after="") == "x" * 1_000 + "Key"
        record, score = hit
        assert (record.id, score) == (500, hit.score)
