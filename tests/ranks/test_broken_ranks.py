"""The tests of ranks notice a level that is left out, a bucket out of order, and a sum that is not taken back."""

from __future__ import annotations

from typing import Any

import pytest

from kvmodels import Database, KvModelsError
from kvmodels.indexing import simple
from kvmodels.indexing.entries import fold
from kvmodels.indexing.kinds.contract import Contents
from kvmodels.indexing.kinds.rank import RankMaintenance
from kvmodels.query.aggregates import Measure
from kvmodels.query.kinds import boards
from kvmodels.query.kinds.rank import RankAccess
from kvmodels.schema.definition.definition import IndexDefinition
from kvmodels.schema.kinds.rank import Buckets
from tests.ranks.players import Player
from tests.ranks.test_drawn_boards import SEED, check_boards
from tests.ranks.test_rank_index import small_league


def convicted(questions: int = 150) -> None:
    with pytest.raises((AssertionError, LookupError)):
        check_boards("memory://", SEED, questions)


def test_a_counter_of_a_level_that_is_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch):
    whole = RankMaintenance.contents

    def without_the_second_level(self: RankMaintenance, *arguments: Any) -> Contents:
        found = whole(self, *arguments)
        kept = {key: one for key, one in found.amounts.items() if self.layout.group_in(key)[1][0] != 2}
        return found._replace(amounts=kept)

    monkeypatch.setattr(RankMaintenance, "contents", without_the_second_level)
    convicted()


def test_buckets_that_are_not_monotone_are_noticed(monkeypatch: pytest.MonkeyPatch):
    right = Buckets.bucket
    monkeypatch.setattr(Buckets, "bucket", lambda self, value: right(self, value) ^ 1)
    convicted()


def test_a_bound_that_is_one_bucket_off_is_noticed(monkeypatch: pytest.MonkeyPatch):
    right = Buckets.start
    monkeypatch.setattr(Buckets, "start", lambda self, bucket: right(self, max(0, bucket - 1)))
    convicted()


def test_a_level_that_is_not_added_up_is_noticed(monkeypatch: pytest.MonkeyPatch):
    right = boards.BoardKeys.before
    monkeypatch.setattr(boards.BoardKeys, "before", lambda self, bucket: list(right(self, bucket))[1:])
    convicted()


@pytest.mark.fast_kinds
def test_a_sum_that_is_not_taken_back_is_noticed(monkeypatch: pytest.MonkeyPatch):
    right = fold

    def added_only(totals: Any, amounts: Any, sign: int) -> None:
        if sign > 0:
            right(totals, amounts, sign)

    monkeypatch.setattr(simple, "fold", added_only)
    convicted()


def test_a_value_that_is_compared_with_its_equals_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """``<=`` for ``<``: a rank counts the records with the same value."""
    right = boards.BoardKeys.entries
    monkeypatch.setattr(boards.BoardKeys, "entries", lambda self, start, end: right(self, start, end + b"\xff"))
    convicted()


def test_a_count_that_is_answered_by_counters_of_another_kind_is_noticed(monkeypatch: pytest.MonkeyPatch):
    def any_number(self: RankAccess, definition: IndexDefinition, measure: Measure) -> tuple[str, ...]:
        return ()

    with Database("memory://", models=[Player]) as db:
        db[Player].bulk_create(small_league())
        query = db[Player].filter(league="gold")
        assert query.allow_scan().count() == 4
        monkeypatch.setattr(RankAccess, "counters", any_number)
        with pytest.raises((AssertionError, KvModelsError)):
            assert query.count() == 4
