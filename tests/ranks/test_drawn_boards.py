"""Boards answer what ``sorted()`` answers, on every engine, for every type, with ties and values outside the bounds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvmodels import Database
from tests.ranks.players import BOARDS, Group, Player, expected_percentile, expected_rank, groups, player
from tests.worlds import MEMORY_AND_IN_TEST_SERVERS

RECORDS = 60
SEED = 20261129
QUERIES: dict[str | None, int] = {None: 150, "connect": 40, "connect-own": 40}
"""The number of questions for stores in memory here, and for the servers whose reads take longest."""
OTHERS = 80
"""For every other engine."""


def check_boards(url: str, seed: int, questions: int) -> Counter[str]:
    """Ask the boards of a store, and compare the answers."""
    chance = Random(seed)
    print(f"seed {seed}")
    with Database(url, models=[Player]) as db:
        records = {key: player(chance, key) for key in range(RECORDS)}
        for one in records.values():
            db[Player].insert(one)
        for key in chance.sample(range(RECORDS), RECORDS // 3):
            match chance.randrange(3):
                case 0:
                    db[Player].remove(key)
                    del records[key]
                case 1:
                    records[key] = db[Player].patch(key, **player(chance, key).model_dump(exclude={"id"}))
                case _:
                    records[key] = db[Player].patch(key, score=chance.randrange(1_001))
        return ask(db, list(records.values()), chance, questions)


def ask(db: Any, records: list[Player], chance: Random, questions: int) -> Counter[str]:
    """Ask drawn questions of drawn boards."""
    counts = Counter[str]()
    boards = [group for spec in BOARDS for group in groups(spec, records)]
    for _ in range(questions):
        group = chance.choice(boards)
        board = db[Player].rank(group.spec.name, **group.keywords)
        kind = chance.choice(["rank", "places", "item", "slice", "percentile", "count"])
        counts[kind] += 1
        QUESTIONS[kind](board, group, chance)
    return counts


def _rank(board: Any, group: Group, chance: Random) -> None:
    value = group.spec.draw(chance)
    assert board.rank(**{group.spec.field: value}) == expected_rank(group, value), (group.spec, value)


def _places(board: Any, group: Group, chance: Random) -> None:
    for position, one in enumerate(group.members):
        if chance.random() < 0.1:
            assert board.position_of(one) == position, (group.spec, one)
            assert board.rank_of(one.id) == expected_rank(group, getattr(one, group.spec.field)), (group.spec, one)
    assert board.rank_of(RECORDS + 1) is None


def _item(board: Any, group: Group, chance: Random) -> None:
    position = chance.randrange(len(group.members) + 2)
    if position < len(group.members):
        assert board[position] == group.members[position], (group.spec, position)
    else:
        with pytest.raises(Player.DoesNotExist):
            board[position]


def _slice(board: Any, group: Group, chance: Random) -> None:
    start, stop = sorted(chance.randrange(RECORDS + 2) for _ in range(2))
    end = chance.choice([None, stop])
    assert board[start:end] == group.members[start:end], (group.spec, start, end)


def _percentile(board: Any, group: Group, chance: Random) -> None:
    percent = chance.choice(["0", "1", "50", "66.7", "99.9", "100"])
    assert board.percentile(float(percent)) == expected_percentile(group, percent), (group.spec, percent)


def _count(board: Any, group: Group, chance: Random) -> None:
    field, (low, high) = group.spec.field, sorted(group.spec.draw(chance) for _ in range(2))
    assert board.count() == len(group.members)
    values = group.values
    assert board.count(**{f"{field}__gte": low}) == sum(one >= low for one in values), (group.spec, low)
    wanted = sum(low < one <= high for one in values)
    assert board.count(**{f"{field}__gt": low, f"{field}__lte": high}) == wanted, (group.spec, low, high)
    assert board.count(**{f"{field}__in": [low, high]}) == sum(one in (low, high) for one in values)
    assert board.count(**{f"{field}__ne": low}) == sum(one != low for one in values)


QUESTIONS = {
    "rank": _rank,
    "places": _places,
    "item": _item,
    "slice": _slice,
    "percentile": _percentile,
    "count": _count,
}


@pytest.mark.parametrize("engine", MEMORY_AND_IN_TEST_SERVERS)
def test_drawn_boards_answer_what_sorted_answers(engine: str, quick_folder: Path, request: pytest.FixtureRequest):
    url = "memory://" if engine == "memory" else f"{engine}:///{quick_folder}/players"
    server = request.node.callspec.params.get("_server_stores")
    questions = QUERIES.get(server, OTHERS) if engine == "memory" else OTHERS
    assert check_boards(url, SEED, questions).keys() == QUESTIONS.keys()


def test_a_transaction_has_its_own_writes_on_its_boards():
    chance = Random(SEED)
    with Database("memory://", models=[Player]) as db:
        records = {key: player(chance, key) for key in range(RECORDS)}
        db[Player].bulk_create(list(records.values()))
        with db.transaction() as tx:
            for key in range(0, RECORDS, 3):
                records[key] = tx[Player].patch(key, **player(chance, key).model_dump(exclude={"id"}))
            for key in range(1, RECORDS, 7):
                tx[Player].remove(key)
                del records[key]
            new = player(chance, RECORDS)
            tx[Player].insert(new)
            ask(tx, [*records.values(), new], chance, 100)
        assert db.check().ok


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(40))
def test_twenty_thousand_questions_are_answered_as_sorted_answers(seed: int):
    check_boards("memory://", seed, 500)
