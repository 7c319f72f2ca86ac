"""An index of ranks: its declaration, its rows, builds, checks, repairs, descriptions and refusals."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from pydantic import AwareDatetime

from kvmodels import (
    AsyncDatabase,
    Database,
    Index,
    IndexNotReadyError,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    KvU64,
    ModelDefinitionError,
    NoUsableIndexError,
    PrimaryKey,
    RankIndex,
    RetryPolicy,
    TransactionConflictError,
    UnknownFieldError,
    describe,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.cli.model_source import model_source
from kvmodels.core.operations import Counted, Guard, GuardFailed, ReadRange
from kvmodels.engines.memory.engine import MemoryEngine
from tests.limited_engine import FEW, LimitedEngine, limited
from tests.ranks.players import START, Player


def small_league() -> list[Player]:
    """Four players of one league, two of them with equal scores, and one without a score."""
    rest: dict[str, Any] = {
        "league": "gold", "speed": 0.5, "price": Decimal(1), "seen": START, "born": date(2000, 1, 1),
        "played": datetime.resolution, "tags": [],
    }  # fmt: skip
    scores = {1: 700, 2: 400, 3: 700, 4: None}
    return [Player(id=key, score=score, **rest) for key, score in scores.items()]


def game(*declared: Any, **namespace: Any) -> Any:
    class Game(KvModel, collection="games"):
        id: PrimaryKey[int]
        league: str = "gold"
        score: int | None = 0
        note: str = ""

        class Meta:
            indexes: ClassVar = declared

    return Game


BOARD = RankIndex("-score", group="league", low=0, high=100, levels=2, name="board")


# --- declaration --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((), {}),
        (("score", "note"), {}),
        (("note",), {}),
        (("score",), {"low": "0"}),
        (("score",), {"low": 100, "high": 0}),
        (("score",), {"high": 1.5}),
        (("score",), {"levels": 0}),
        (("score",), {"levels": 7}),
        (("score",), {"levels": True}),
        (("score",), {"group": "-league"}),
        (("score",), {"group": "score"}),
        (("-missing",), {}),
        (("score",), {"unique": True}),
        (("score",), {"where": "score"}),
    ],
)
def test_a_declaration_that_means_nothing_is_refused(arguments: tuple[str, ...], options: dict[str, Any]):
    with pytest.raises(ModelDefinitionError) as caught:
        game(RankIndex(*arguments, **{"low": 0, "high": 100, **options}))
    assert caught.value.hint


def test_bounds_that_are_exchanged_or_without_a_time_zone_are_refused_by_name():
    with pytest.raises(ModelDefinitionError, match="low is not less than high"):
        game(RankIndex("score", low=100, high=0))
    with pytest.raises(ModelDefinitionError, match="Give low= a time zone"):

        class Visit(KvModel, collection="visits"):
            id: PrimaryKey[int]
            at: AwareDatetime

            class Meta:
                indexes: ClassVar = (RankIndex("at", low=START.replace(tzinfo=None), high=START),)


def test_a_field_that_has_no_order_of_numbers_is_refused():
    class Medal(IntEnum):
        GOLD = 1

    for annotation, bounds in ((str, ("a", "b")), (bool, (False, True)), (list[int], (0, 1)), (Medal, (0, 1))):
        with pytest.raises(ModelDefinitionError):

            class Game(KvModel, collection="games"):
                id: PrimaryKey[int]
                value: annotation  # type: ignore[valid-type]

                class Meta:
                    indexes: ClassVar = (RankIndex("value", low=bounds[0], high=bounds[1]),)


def test_records_that_expire_are_refused():
    with pytest.raises(ModelDefinitionError):

        class Game(KvModel, collection="games"):
            id: PrimaryKey[int]
            score: int

            class Meta:
                ttl = 60
                indexes: ClassVar = (RankIndex("score", low=0, high=9),)

    model = game(BOARD)
    with Database("memory://", models=[model]) as db, pytest.raises(InvalidArgumentError) as caught:
        db[model].create(id=1, expire_in=60)
    assert caught.value.value == "board"


def test_it_is_described_and_printed_as_source_text():
    described = {index.name: index for index in describe(Player).indexes}
    assert str(described["board"]) == "rank board (league, -score), low 0, high 1000"
    assert (described["board"].group, described["board"].sorts) == (("league",), True)
    with Database("memory://", models=[Player]) as db:
        source = model_source(db.collections(), db.indexes())
    assert "RankIndex('-score', group=('league',), name='board', low=0, high=1000)," in source
    assert "RankIndex('-price', name='prices', low=Decimal('0'), high=Decimal('10'), levels=3)," in source
    assert "from decimal import Decimal" in source


# --- rows -----------------------------------------------------------------------------------------------------------


def test_its_keys_are_explained_and_its_largest_bucket_is_in_statistics():
    model = game(BOARD)
    with Database("memory://", models=[model]) as db:
        db[model].bulk_create([model(id=key, score=50) for key in range(7)] + [model(id=8, score=90)])
        entry = db.explain_key(("games_by_board", "gold", *db.kv.list(prefix=("games_by_board",)).__next__().key[2:]))
        assert (entry.kind, entry.primary_key, entry.columns) == ("entry", 8, {"league": "gold", "score": 90})
        keys = [one.key for one in db.kv.list(prefix=("__kvmodels__", "counter", "games", "board"))]
        explained = [str(db.explain_key(key)) for key in keys]
        assert explained[-1] == "counter 81 of games.board: league='gold'"
        (stats,) = db.stats(exact=True).collections[0].indexes
        assert (stats.largest_bucket, stats.entries.rows) == (7, 8 + len(keys))
        assert str(stats).endswith("7 in the largest bucket")
        assert db.stats().collections[0].indexes[0].largest_bucket is None


def test_damaged_rows_are_found_and_repaired():
    model = game(BOARD)
    with Database("memory://", models=[model]) as db:
        db[model].bulk_create([model(id=key, score=key * 10) for key in range(9)])
        counters = [one.key for one in db.kv.list(prefix=("__kvmodels__", "counter", "games", "board"))]
        raw = db.kv.unsafe()
        raw.set(counters[0], KvU64(77))
        raw.delete(counters[3])
        raw.set((*counters[0][:-2], 2, 255, "x"), KvU64(1))
        (entry, *_) = [one.key for one in db.kv.list(prefix=("games_by_board",))]
        raw.delete(entry)
        report = db.check()
        assert [found.kind for found in report.findings] == ["missing", "counter", "counter", "counter"]
        assert {found.group for found in report.counters} == {("gold",)}
        assert db.check(repair=True).ok
        assert db.check().ok
        assert db[model].rank("board", league="gold")[0].id == 8


def test_a_repair_removes_counters_that_are_0_and_no_others():
    model = game(BOARD)
    with Database("memory://", models=[model]) as db:
        db[model].bulk_create([model(id=key, score=key * 10) for key in range(9)])
        for key in range(1, 9):
            db[model].remove(key)
        counters = ("__kvmodels__", "counter", "games", "board")
        assert db.check().findings == ()
        assert sum(int(one.value) == 0 for one in db.kv.list(prefix=counters)) > 8
        assert db.check(repair=True).ok
        assert [one.value for one in db.kv.list(prefix=counters)] == [KvU64(1), KvU64(1)]


def test_it_is_built_over_stored_records_and_not_used_before(tmp_path: Path):
    old, new = game(Index("league")), game(Index("league"), BOARD)
    path = tmp_path / "games.db"
    with Database(path, models=[old]) as db:
        db[old].bulk_create([old(id=key, score=None if key % 5 == 0 else key % 90) for key in range(300)])
        db.kv.unsafe().set(("games", 1_000), {**db.kv.get(("games", 1)).value, "id": 1_000}, expire_in=1_000)
    with Database(path, models=[new]) as db:
        board = db[new].rank("board", league="gold")
        with pytest.raises(IndexNotReadyError):
            board.count()
        reports = {report.index: report for report in db.build_indexes(new)}
        assert [violation.kind for violation in reports["board"].violations] == ["expires"]
        db[new].remove(1_000)
        assert all(report.state == "readable" for report in db.build_indexes(new))
        assert (board.count(), board.rank(score=88)) == (
            240,
            1 + sum(key % 90 > 88 and key % 5 > 0 for key in range(300)),
        )
        assert db.check().ok
        file = io.BytesIO()
        db.kv.dump(file)
    file.seek(0)
    with Database("memory://", models=[new]) as db:
        db.kv.load(file)
        assert db[new].rank("board", league="gold").count() == 240
        assert db.drop_index(new, "board")
        assert list(db.kv.list(prefix=("__kvmodels__", "counter"))) == []
        assert list(db.kv.list(prefix=("games_by_board",))) == []


def test_its_entries_serve_conditions_and_orders():
    with Database("memory://", models=[Player]) as db:
        db[Player].bulk_create(small_league())
        players = db[Player].filter(league="gold", score__gte=0).order_by("-score")
        assert players.explain().index == "board"
        assert [one.id for one in players] == [1, 3, 2]
    model = game(BOARD)
    with Database("memory://", models=[model]) as db:
        with pytest.raises(NoUsableIndexError) as caught:
            list(db[model].filter(league="gold"))  # a record without a score has no entry
        assert caught.value.candidates[1:] == ("board on league, -score (ranks)",)


# --- boards -------------------------------------------------------------------------------------------------------


def test_a_board_that_does_not_exist_is_refused_with_the_line_to_write():
    with Database("memory://", models=[Player]) as db:
        players = db[Player]
        with pytest.raises(UnknownFieldError) as unknown:
            players.rank("bord", league="gold")
        assert unknown.value.suggestion == "board"
        for group in ({}, {"league": "gold", "id": 1}, {"id": 1}):
            with pytest.raises(NoUsableIndexError) as missing:
                players.rank("board", **group)
            assert 'rank("board", league=...)' in str(missing.value)
        with pytest.raises(InvalidValueError):
            players.rank("board", league=7)


def test_arguments_of_a_board_are_checked_before_anything_is_read():
    with Database("memory://", models=[Player]) as db:
        board = db[Player].rank("board", league="gold")
        for wrong in ({}, {"speed": 1}, {"score": 1, "speed": 1}):
            with pytest.raises(InvalidArgumentError):
                board.rank(**wrong)
        for value in ("x", None, 1.5):
            with pytest.raises(InvalidValueError):
                board.rank(score=value)
        for percent in (-1, 101, float("nan"), True, "5"):
            with pytest.raises(InvalidArgumentError):
                board.percentile(percent)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError):
            board.count(speed=1)
        with pytest.raises(InvalidArgumentError, match=r"board\[board.count\(\) - 1\] the last"):
            board[-1]
        with pytest.raises(InvalidArgumentError, match="Count positions from 0"):
            board[-3:]
        with pytest.raises(InvalidArgumentError, match=r"write board\[a:b\]\[::step\]"):
            board[::2]
        with pytest.raises(Player.DoesNotExist, match=r"Positions are below count\(\)"):
            board[10**9]
        with pytest.raises(InvalidValueError):
            board.rank_of("x")
        with pytest.raises(TypeError):
            iter(board)
        with pytest.raises(AttributeError):
            getattr(board, "filter")  # noqa: B009


def test_records_that_are_not_on_a_board_have_no_place_there():
    with Database("memory://", models=[Player]) as db:
        db[Player].bulk_create(small_league())
        gold, tin = (db[Player].rank("board", league=league) for league in ("gold", "tin"))
        assert (gold.rank_of(1), gold.rank_of(4), gold.rank_of(9), tin.rank_of(1)) == (1, None, None, None)
        assert (tin.count(), tin.percentile(50), tin[:5]) == (0, None, [])
        stale = db[Player].get(2)
        db[Player].patch(2, score=900)
        assert (gold.rank_of(stale), gold.position_of(3)) == (1, 2)
        assert str(gold.explain(score=650)) == "index board: 2 counters and 0 entries, of 0 in the bucket"
        assert repr(gold) == "Board(Player, 'board', league='gold')"


SMALL = replace(FEW, name="SMALL", max_checks=10_000, max_mutations=10_000, max_read_entries=60)


def test_a_bucket_with_more_records_than_one_read_returns():
    model = game(RankIndex("-score", group="league", low=0, high=10, levels=1, name="board"))
    with Database.from_engine(limited(MemoryEngine, SMALL)(), DatabaseCore([model])) as db:
        db[model].bulk_create([model(id=key, score=5 if key % 50 else 6) for key in range(150)])
        board = db[model].rank("board", league="gold")
        assert (board.rank(score=5), board.rank(score=4), board.count(score=5)) == (4, 151, 147)
        assert (board.position_of(149), board.rank_of(149)) == (149, 4)
        assert [board[position].id for position in (0, 3, 120, 149)] == [0, 1, 120, 149]
        assert [one.id for one in board[118:]] == list(range(118, 150))
        assert board.percentile(50) == 5


class ChangedBeforeCounting(LimitedEngine):
    """Calls back once before it counts."""

    before_count: Callable[[], object] | None = None

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        if self.before_count is not None:
            call, self.before_count = self.before_count, None
            call()
        return super().count(ranges, guard)


def test_a_rank_is_right_although_the_schema_changes_while_its_bucket_is_counted():
    model = game(RankIndex("-score", group="league", low=0, high=10, levels=1, name="board"), Index("note"))
    engine = ChangedBeforeCounting(MemoryEngine(url="memory://counted"), SMALL)
    with (
        Database.from_engine(engine, DatabaseCore([model])) as db,
        Database("memory://counted", models=[model]) as other,
    ):
        db[model].bulk_create([model(id=key, score=5) for key in range(150)])
        engine.before_count = lambda: other.drop_index(model, "note")
        assert db[model].rank("board", league="gold").position_of(149) == 149
        assert engine.before_count is None


async def test_an_asynchronous_board_answers_the_same():
    async with AsyncDatabase("memory://", models=[Player]) as db:
        await db[Player].bulk_create(small_league())
        board = db[Player].rank("board", league="gold")
        assert (await board.rank(score=500), await board.rank_of(3), await board.position_of(3)) == (3, 1, 1)
        assert ((await board[2]).id, [one.id for one in await board[:2]]) == (2, [1, 3])
        assert (await board.percentile(100), await board.count(score__lt=700)) == (700, 1)
        async with db.transaction() as tx:
            await tx[Player].patch(2, score=800)
            assert await tx[Player].rank("board", league="gold").rank_of(2) == 1


def test_a_transaction_that_reads_a_rank_conflicts_unless_it_is_unchecked():
    with Database("memory://", models=[Player], retry=RetryPolicy(attempts=1)) as db:
        db[Player].bulk_create(small_league())
        for unchecked in (False, True):
            with nullcontext() if unchecked else pytest.raises(TransactionConflictError), db.transaction() as tx:
                with tx.unchecked() if unchecked else nullcontext():
                    tx[Player].rank("board", league="gold").rank(score=500)
                db[Player].patch(1, score=1_000 + unchecked)
                tx[Player].patch(2, speed=0.25)


def test_moments_are_ranked_as_instants():
    with Database("memory://", models=[Player]) as db:
        one = small_league()[0].model_copy(update={"tags": ["a"], "seen": datetime(2026, 3, 9, tzinfo=UTC)})
        db[Player].insert(one)
        board = db[Player].rank("seen", tags="a")
        assert (board.percentile(50), board.count(seen__gte=START)) == (datetime(2026, 3, 9, tzinfo=UTC), 1)


def test_counters_have_at_most_fifteen_rows_a_level_and_never_more_than_all_buckets():
    model, chance = game(BOARD), Random(5)
    with Database("memory://", models=[model]) as db:
        db[model].bulk_create([model(id=key, score=key) for key in range(64)])
        for _ in range(800):
            db[model].patch(chance.randrange(64), score=chance.randrange(101))
        rows = len(list(db.kv.list(prefix=("__kvmodels__", "counter", "games", "board"))))
        assert 64 < rows <= 16 + 16**2
        plan = db[model].rank("board", league="gold").explain(score=33)
        assert (plan.counters <= 2 * 15, plan.entries <= plan.bucket) == (True, True)
