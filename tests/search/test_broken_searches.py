"""The tests of searches notice words that are lost, frequencies that are wrong, and scores that differ."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from kvmodels import Database, KvModelsError
from kvmodels.indexing import entries, simple
from kvmodels.indexing.entries import fold
from kvmodels.indexing.kinds.contract import Contents
from kvmodels.indexing.kinds.search import SearchMaintenance
from kvmodels.query.kinds import search as access
from kvmodels.query.kinds.ranking import RankRecords
from kvmodels.query.words import bm25
from kvmodels.schema.kinds import search as definition
from kvmodels.schema.words import stored_terms
from kvmodels.schema.words.tokenizer import Tokenizer
from tests.search.queries import Note
from tests.search.test_ranked_searches import SEED, check_queries
from tests.search.test_search_lookups import check_queries as check_lookups

QUERIES = 60


def convicted() -> None:
    with pytest.raises((AssertionError, KvModelsError, LookupError, StopIteration, RuntimeError)):
        check_queries("memory://", SEED, QUERIES)


def test_the_checks_pass_without_a_mutant():
    assert check_queries("memory://", SEED, QUERIES)["found"]


def test_stop_words_that_are_removed_in_the_query_only_are_noticed(monkeypatch: pytest.MonkeyPatch):
    """The records keep terms of stop words, so they are longer than the formula says."""
    packed = stored_terms.packed_terms

    def with_stop_words(tokenizer: Tokenizer, texts: Any) -> bytes | None:
        return packed(Tokenizer(stop_words=()), texts)

    monkeypatch.setattr(definition, "packed_terms", with_stop_words)
    convicted()


def test_weights_that_are_ignored_are_noticed(monkeypatch: pytest.MonkeyPatch):
    options = definition.options_of

    def unweighted(index: Any) -> definition.SearchOptions:
        found = options(index)
        return replace(found, weights=tuple(1.0 for _ in found.weights))

    monkeypatch.setattr(bm25, "options_of", unweighted)
    convicted()


def test_a_payload_that_is_not_compared_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """An entry whose key stays is not written: its frequencies and norm are those of another text."""
    whole = SearchMaintenance.contents
    first: dict[bytes, Any] = {}

    def without_changes(self: SearchMaintenance, *arguments: Any) -> Contents:
        found = whole(self, *arguments)
        return found._replace(entries={key: first.setdefault(key, value) for key, value in found.entries.items()})

    with Database("memory://", models=[Note]) as db:
        monkeypatch.setattr(SearchMaintenance, "contents", without_changes)
        db[Note].create(id=1, org="a", title="key", body="key", tags=[], size=1)
        db[Note].patch(1, title="key key key")
        monkeypatch.undo()
        assert not db.check().ok


def test_a_filter_that_is_tested_after_the_limit_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """The mutant gives the flow the first records alone, as if the slice were taken before the other conditions."""
    whole = bm25.WordRanking.steps

    def limited(self: bm25.WordRanking) -> Any:
        steps, sent = whole(self), None
        while True:
            try:
                step = steps.send(sent)
            except StopIteration:
                return
            if isinstance(step, RankRecords):
                best = sorted(step.distances.items(), key=lambda one: (one[1], one[0]))[:4]
                step = step._replace(distances=dict(best))
            sent = yield step

    monkeypatch.setattr(bm25.WordRanking, "steps", limited)
    convicted()


@pytest.mark.fast_kinds
def test_statistics_that_are_not_taken_back_are_noticed(monkeypatch: pytest.MonkeyPatch):
    def added_only(totals: Any, amounts: Any, sign: int) -> None:
        if sign > 0:
            fold(totals, amounts, sign)

    with Database("memory://", models=[Note]) as db:
        db[Note].create(id=1, org="a", title="key", body="key", tags=[], size=1)
        monkeypatch.setattr(simple, "fold", added_only)
        db[Note].patch(1, title="key value store key value store")
        monkeypatch.undo()
        assert {found.index for found in db.check().counters} == {"by_text", "in_org"}


def test_statistics_that_are_counted_twice_in_a_retry_are_noticed(monkeypatch: pytest.MonkeyPatch):
    """The mutant adds the sums of an attempt that met a conflict to those of the next attempt."""
    attempts: list[Note] = []
    kept: dict[bytes, int] = {}

    def adding(totals: Any, amounts: Any, sign: int) -> None:
        fold(kept, amounts, sign)
        totals.update({key: kept.get(key, 0) for key in amounts})

    with Database("memory://", models=[Note]) as db:

        def overtaken(note: Note) -> Note:
            if not attempts:
                db[Note].patch(note.id, size=note.size + 1)
            attempts.append(note)
            note.title = "key value store key value store"
            return note

        db[Note].bulk_create([Note(id=key, org="a", title="key", body="", tags=[], size=1) for key in (1, 2)])
        db[Note].mutate(1, overtaken)
        assert (len(attempts), db.check().ok) == (2, True)
        attempts.clear()
        monkeypatch.setattr(simple, "fold", adding)
        monkeypatch.setattr(entries, "fold", adding)
        db[Note].mutate(2, overtaken)
        monkeypatch.undo()
        assert len(attempts) == 2
        assert {found.index for found in db.check().counters} == {"by_text", "in_org"}


def test_a_field_of_a_word_that_is_ignored_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bm25, "_counts", lambda term, value: True)
    monkeypatch.setattr(access, "terms_decide", lambda node: True)
    convicted()


def test_a_phrase_that_is_not_verified_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(access.BestWords, "verifies", lambda self, origin: False)
    monkeypatch.setattr(definition, "holds", lambda node, frequencies, words: True)
    convicted()


def test_alternatives_that_are_taken_as_decided_by_one_list_are_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(access, "terms_decide", lambda node: True)
    with pytest.raises(AssertionError):
        check_lookups("memory://", SEED, QUERIES)


def test_a_length_that_is_not_rounded_like_that_of_others_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bm25, "length_of", lambda norm: norm)
    convicted()


def test_another_logarithm_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bm25, "log", math.log10)
    convicted()
