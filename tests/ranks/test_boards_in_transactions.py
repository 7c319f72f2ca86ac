"""The commit of a transaction that has asked a board: it checks every counter, also those that have no row yet."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, ClassVar

import pytest

from kvmodels import (
    Database,
    KvModel,
    OperationTooLargeError,
    PrimaryKey,
    RankIndex,
    RetryPolicy,
    TransactionConflictError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from tests.limited_engine import limited


class Player(KvModel, collection="players"):
    id: PrimaryKey[str]
    score: int = 0

    class Meta:
        indexes: ClassVar = (
            RankIndex("-score", low=0, high=1_000, name="board"),
            RankIndex("-score", low=0, high=1_000, levels=1, name="coarse"),
        )


class Claim(KvModel, collection="claims"):
    id: PrimaryKey[str]


ASK: dict[str, Callable[[Any], Any]] = {
    "rank_of": lambda board: board.rank_of("a"),
    "position_of": lambda board: board.position_of("a"),
    "rank": lambda board: board.rank(score=1),
    "count": lambda board: board.count(),
    "count of a part": lambda board: board.count(score__gte=1),
    "item": lambda board: [one.id for one in board[:1]],
    "items": lambda board: [one.id for one in board[:10]],
    "percentile": lambda board: board.percentile(100),
}

SCORES = pytest.mark.parametrize("score", [5, 900])


def decided(board: str, ask: Callable[[Any], Any], write: Callable[[Any], Any], scores: dict[str, int]) -> None:
    """Ask a board in a transaction that writes, after which another writer commits first."""
    with Database("memory://", models=[Player, Claim]) as db:
        for key, score in scores.items():
            db[Player].create(id=key, score=score)
        before = ask(db[Player].rank(board))
        with pytest.raises(TransactionConflictError), db.transaction() as tx:
            assert ask(tx[Player].rank(board)) == before
            write(db)
            tx[Claim].create(id="x")
        assert ask(db[Player].rank(board)) != before
        assert db[Claim].get_or_none("x") is None


@SCORES
@pytest.mark.parametrize("board", ["board", "coarse"])
@pytest.mark.parametrize("name", ASK)
def test_a_new_record_whose_bucket_had_no_counter_is_a_conflict(board: str, name: str, score: int):
    decided(board, ASK[name], lambda db: db[Player].create(id="b", score=score), {"a": 0})


@pytest.mark.parametrize("name", ["rank_of", "rank", "count of a part", "item", "items", "percentile"])
def test_a_record_that_moves_to_a_bucket_without_a_counter_is_a_conflict(name: str):
    decided("board", ASK[name], lambda db: db[Player].patch("b", score=5), {"a": 0, "b": 0})


@pytest.mark.parametrize("name", ["rank", "count", "count of a part", "item", "items", "percentile"])
def test_the_first_record_of_a_board_is_a_conflict(name: str):
    decided("board", ASK[name], lambda db: db[Player].create(id="b", score=500), {})


def test_a_position_behind_the_last_record_is_a_conflict_once_there_is_one():
    with Database("memory://", models=[Player, Claim]) as db:
        with pytest.raises(TransactionConflictError), db.transaction() as tx:
            with pytest.raises(Player.DoesNotExist):
                tx[Player].rank("board")[0]
            db[Player].create(id="b", score=500)
            tx[Claim].create(id="x")


@pytest.mark.parametrize("name", ASK)
def test_own_writes_are_counted_and_are_no_conflict(name: str):
    with Database("memory://", models=[Player, Claim]) as db:
        db[Player].create(id="a", score=0)
        with db.transaction() as tx:
            tx[Player].create(id="b", score=900)
            answer = ASK[name](tx[Player].rank("board"))
        assert ASK[name](db[Player].rank("board")) == answer
        with pytest.raises(TransactionConflictError), db.transaction() as tx:
            tx[Player].create(id="c", score=700)
            ASK[name](tx[Player].rank("board"))
            db[Player].create(id="d", score=701)


@pytest.mark.parametrize("name", ASK)
@pytest.mark.parametrize("unchecked", [False, True])
def test_an_engine_with_few_checks_refuses_what_it_cannot_check(name: str, unchecked: bool):
    core = DatabaseCore([Player, Claim], retry=RetryPolicy(attempts=1), readonly=False, must_be_current=False)
    with Database.from_engine(limited(MemoryEngine)(), core) as db:
        db[Player].create(id="a", score=0)
        refused = nullcontext() if unchecked else pytest.raises(OperationTooLargeError, match="may check")
        with refused as caught, db.transaction() as tx:
            with tx.unchecked() if unchecked else nullcontext():
                ASK[name](tx[Player].rank("board"))
            tx[Claim].create(id="x")
        if caught is not None:
            assert caught.value.limit == "max_checks"
            assert "tx.unchecked()" in str(caught.value)
        assert (db[Claim].get_or_none("x") is None) is not unchecked
