"""A season of a game in two leagues: results arrive from many threads, and everybody asks for places meanwhile.

Rules of this module: mypy and pyright accept it in strict mode, without a cast and without an ignored line; a test
runs both of them, and compares every line that it prints. The players come from a seed, so every run has the same ones.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

from kvmodels import Board, Database, F, KvModel, PrimaryKey, RankIndex

LEAGUES = ("gold", "silver")
PLAYERS = 300
"""The number of players of each league."""
THREADS = 8
ROUNDS = 10
"""The number of results of each thread."""


def show(what: str, found: object) -> None:
    """One line of the output: what was asked, and what came out."""
    print(f"{what:<28} {found}")


class Player(KvModel, collection="players"):
    """A player of one league. The greatest number of points has the first place."""

    id: PrimaryKey[int]
    league: str
    points: int = 0

    class Meta:
        indexes = (RankIndex("-points", group="league", low=0, high=1_000, name="board"),)


def enter(db: Database) -> None:
    """Enter the players with the points of the last season."""
    chance = random.Random(1)
    players = [
        Player(id=number, league=LEAGUES[number % 2], points=min(1_000, max(0, int(chance.gauss(500, 150)))))
        for number in range(PLAYERS * 2)
    ]
    for start in range(0, len(players), 10):  # small batches, because etcd takes 60 operations in a commit
        db[Player].bulk_create(players[start : start + 10])


def board_of(db: Database, league: str) -> Board[Player]:
    """Return the board of a league; nothing is read before it is asked for something."""
    return db[Player].rank("board", league=league)


def play(db: Database, thread: int) -> None:
    """Add the points of some games. Every thread writes to the same boards, and no thread waits for another one."""
    chance = random.Random(thread)
    for _ in range(ROUNDS):
        player = chance.randrange(PLAYERS * 2 // THREADS) * THREADS + thread
        db[Player].patch(player, points=F("points") + chance.randrange(1, 50))


def profile(board: Board[Player], player: int) -> str:
    """Return the line on a player's page: the place, and the players around."""
    position, rank = board.position_of(player), board.rank_of(player)
    if position is None or rank is None:
        return "not on this board"
    around = ", ".join(f"{one.id}: {one.points}" for one in board[max(0, position - 1) : position + 2])
    return f"place {rank} of {board.count()}, among {around}"


def season(db: Database) -> None:
    """Let all threads report results, and ask for places meanwhile: each answer is that of one state."""
    with ThreadPoolExecutor(THREADS) as pool:
        running = [pool.submit(play, db, thread) for thread in range(THREADS)]
        for league in LEAGUES:
            board = board_of(db, league)
            best = board[:10]
            assert [one.points for one in best] == sorted((one.points for one in best), reverse=True)
            assert board.count() == PLAYERS
        for one in running:
            one.result()


def tour(url: str = "memory://leaderboard") -> None:
    """Play a season on one store, and compare its boards with sorted lists."""
    with Database(url, models=[Player]) as db:
        enter(db)
        season(db)
        for league in LEAGUES:
            board = board_of(db, league)
            show(f"the best of {league}", [(one.id, one.points) for one in board[:3]])
            show("a result of 700 would be on", f"place {board.rank(points=700)}")
            show("half of the players have", f"at most {board.percentile(50)}")
            show("with 600 points and more", board.count(points__gte=600))
        show("player 17", profile(board_of(db, "silver"), 17))
        show("player 17 in gold", profile(board_of(db, "gold"), 17))
        show("its cost", board_of(db, "silver").explain(points=500))
        with db.transaction() as tx:
            tx[Player].patch(17, league="gold")  # promoted: both boards change in one commit
        show("player 17, promoted", profile(board_of(db, "gold"), 17))
        for league in LEAGUES:
            ranked = sorted(db[Player].filter(league=league), key=lambda one: (-one.points, one.id))
            show(f"{league} equals sorted()", board_of(db, league)[:] == ranked)
        show("consistent", db.check().ok)


if __name__ == "__main__":
    tour()
