"""The reads and rows of each call on a board, as the page shows them; and what the index costs a write."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

import pytest

from kvmodels import Database, Index, KvModel, PrimaryKey, RankIndex, Unique
from kvmodels.api.core import DatabaseCore
from kvmodels.catalog.keyspace import index_layout
from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import Arithmetic, AtomicWrite, Mutation, Set
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.indexing.entries import EMPTY_VALUE, StoredRecord
from kvmodels.indexing.kinds.registry import maintenance_for
from kvmodels.schema.compile.schema import schema_of
from tests.docs.measured_engine import MeasuredEngine
from tests.source_tree import REPOSITORY
from tests.write_costs import instructions_of_writes

PAGE = REPOSITORY / "docs" / "guides" / "leaderboards.md"
ROW = re.compile(r"^\| `(board.*?)` \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
CALLS = 50
FEW = 10_000


class Player(KvModel, collection="players"):
    """A record of a board with scores of a bell curve."""

    id: PrimaryKey[int]
    league: str = "gold"
    score: int

    class Meta:
        indexes: ClassVar = (RankIndex("-score", group="league", low=0, high=100_000, name="board"),)


def score(chance: Random) -> int:
    return min(100_000, max(0, int(chance.gauss(50_000, 15_000))))


def fill(engine: MeasuredEngine, records: int, chance: Random) -> None:
    """Store the rows of records after the first one, as the library stores them; quick enough for a million."""
    layout = index_layout("players", schema_of(Player).indexes["board"], 1)
    maintenance, codec = maintenance_for(layout), MsgpackCodec()
    prefix, heads, totals = encode_key(("players",)), dict[int, tuple[bytes, list[bytes]]](), Counter[bytes]()
    for start in range(1, records, 20_000):
        mutations: list[Mutation] = []
        for key in range(start, min(start + 20_000, records)):
            value, pk = score(chance), encode_key((key,))
            document = {"id": key, "league": "gold", "score": value}
            if value not in heads:
                found = maintenance.contents(StoredRecord(b"", document, b"", 0), codec)
                heads[value] = next(iter(found.entries)), [*found.amounts]
            head, counters = heads[value]
            totals.update(counters)
            mutations += [Set(prefix + pk, *codec.encode_document(document)), Set(head + pk, *EMPTY_VALUE)]
        engine.commit(AtomicWrite((), tuple(mutations)))
    engine.commit(AtomicWrite((), tuple(Arithmetic("sum", key, number) for key, number in totals.items())))


def measured(records: int) -> dict[str, tuple[int, int]]:
    """Return the reads and the mean of the rows of each call."""
    engine, chance = MeasuredEngine(MemoryEngine()), Random(1)
    with Database.from_engine(engine, DatabaseCore([Player])) as db:
        db[Player].create(id=0, score=50_000)
        fill(engine, records, chance)
        assert records > FEW or db.check().ok
        board = db[Player].rank("board", league="gold")
        board.count()

        def position() -> int:
            return chance.randrange(records - 20)

        def part() -> Any:
            start = position()
            return board[start : start + 20]

        calls: dict[str, Callable[[], Any]] = {
            "board.rank(score=...)": lambda: board.rank(score=score(chance)),
            "board.rank_of(player)": lambda: board.rank_of(position()),
            "board.position_of(player)": lambda: board.position_of(position()),
            "board[n]": lambda: board[position()],
            "board[n : n + 20]": part,
            "board.percentile(n)": lambda: board.percentile(chance.randrange(100)),
            "board.count()": board.count,
            "board.count(score__gte=...)": lambda: board.count(score__gte=score(chance)),
        }
        return {name: cost(engine, call) for name, call in calls.items()}


def cost(engine: MeasuredEngine, call: Callable[[], Any]) -> tuple[int, int]:
    engine.take()
    reads = rows = 0
    for _ in range(CALLS):
        call()
        taken = engine.take()
        reads, rows = reads + taken.reads, rows + taken.rows
    assert reads % CALLS == 0
    return reads // CALLS, round(rows / CALLS)


def shown(column: int) -> dict[str, tuple[int, int]]:
    """Return the reads and rows of the calls on the page."""
    found = ROW.findall(PAGE.read_text(encoding="utf-8"))
    return {row[0]: (int(row[1]), int(row[column])) for row in found}


@pytest.mark.servers
def test_the_page_shows_the_reads_and_rows_of_each_call_at_ten_thousand_records():
    found = measured(FEW)
    assert shown(2) == found, found


@pytest.mark.soak
def test_the_page_shows_the_reads_and_rows_of_each_call_at_a_million_records():
    found = measured(1_000_000)
    assert shown(3) == found, found


def counted_with(index: Any) -> tuple[int, int]:
    """Return the instructions of a create, and of a patch of another field."""

    class Item(KvModel, collection="items"):
        id: PrimaryKey[int]
        code: Unique[str]
        score: int = 7
        note: str = ""

        class Meta:
            indexes: ClassVar = (index,)

    return instructions_of_writes(Item)


@pytest.mark.fast_kinds
def test_an_index_of_ranks_costs_a_patch_of_other_fields_nothing():
    plain, ranked = counted_with(Index("score")), counted_with(RankIndex("score", low=0, high=9))
    print(plain, ranked)
    assert ranked[1] <= plain[1] * 1.1, (plain, ranked)
    assert ranked[0] <= plain[0] * 2, (plain, ranked)
