"""Boards from the command line, on the admin page, and in a web service."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient

from kvmodels import AsyncDatabase, Database, KvModel, ParsedLookups, PrimaryKey, RankIndex
from kvmodels.ext.fastapi import AsyncRepo, Lookups, add_error_handlers, lifespan
from tests.admin.html import ParsedPage
from tests.admin.shop import browsed
from tests.cli.conftest import Run, folder, run

__all__ = ["folder", "run"]

SCORES = {"ada": 900, "bo": 1_200, "cy": 900, "di": 300}

PROGRAM = """
from kvmodels import Database, KvModel, PrimaryKey, RankIndex


class Player(KvModel, collection="players"):
    id: PrimaryKey[str]
    league: str = "gold"
    score: int | None = None

    class Meta:
        indexes = (RankIndex("-score", group="league", low=0, high=1_000, levels=2, name="board"),)


db = Database("game.db", models=[Player])
"""


class Player(KvModel, collection="players"):
    id: PrimaryKey[str]
    league: str = "gold"
    score: int | None = None

    class Meta:
        indexes = (RankIndex("-score", group="league", low=0, high=1_000, levels=2, name="board"),)


def players() -> list[Player]:
    return [*(Player(id=id, score=score) for id, score in SCORES.items()), Player(id="eve")]


def test_the_command_line_lists_a_board_and_its_largest_bucket(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    (folder / "game_app.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("KVMODELS_DATABASE", "game_app:db")
    with Database("game.db", models=[Player]) as db:
        db[Player].bulk_create(players())
    best = run("rows", "players", "league=gold", "score__gte=500", "--order", "-score").stdout
    assert [best.index(name) for name in ("bo", "ada", "cy")] == sorted(
        best.index(name) for name in ("bo", "ada", "cy")
    )
    assert "di" not in best
    assert (
        "1 range of index board" in run("explain", "players", "league=gold", "score__gte=0", "--order", "-score").stdout
    )
    assert "players.board  readable  rank  league, score" in run("indexes").stdout
    assert "players.board: 2 records in the largest bucket" in run("stats", "--exact").stderr
    assert "largest bucket" not in run("stats").stderr
    printed = run("inspect", "-d", "game.db").stdout
    assert "RankIndex('-score', group=('league',), name='board', low=0, high=1000, levels=2)" in printed
    (folder / "printed_app.py").write_text(printed)
    module = vars(import_module("printed_app"))
    with Database("game.db", models=module["MODELS"]) as db:
        board = db[module["Players"]].rank("board", league="gold")
        assert [one.id for one in board[:2]] == ["bo", "ada"]
        assert db.check().ok


def test_the_admin_page_lists_and_changes_players_of_a_board():
    with Database("memory://", models=[Player]) as db:
        db[Player].bulk_create(players())
        with browsed(db) as client:
            page = ParsedPage(client.get("/admin/records/players?league=gold&score__gte=0&order_by=-score").text)
            assert page.within("kv-key").split()[:4] == ["bo", "ada", "cy", "di"]
            everybody = ParsedPage(client.get("/admin/records/players").text)
            assert len(everybody.within("kv-key").split()) == 5
            assert client.get("/admin/records/players/record?id=bo").status_code == 200
            assert "board" in client.get("/admin/indexes").text
        assert db[Player].rank("board", league="gold").rank_of("cy") == 2


def test_a_service_lists_a_board_in_its_order_and_counts_it():
    app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://", models=[Player])))
    add_error_handlers(app)

    @app.get("/players")
    async def found(
        repository: AsyncRepo[Player],
        lookups: Annotated[ParsedLookups, Depends(Lookups[Player]("league", "score__gte", order=("-score",)))],
    ) -> list[str]:
        await repository.bulk_create(players(), on_conflict="ignore")
        return [one.id async for one in repository.filter(lookups.where).order_by(*lookups.order_by)]

    @app.get("/rank")
    async def rank(repository: AsyncRepo[Player], league: str, score: int) -> int:
        return await repository.rank("board", league=league).rank(score=score)

    with TestClient(app) as client:
        assert client.get("/players?league=gold&score__gte=300").json() == ["bo", "ada", "cy", "di"]
        refused = client.get("/players?score__gte=300")  # without the group
        assert (refused.status_code, refused.json()["code"]) == (400, "KV703")
        assert client.get("/rank?league=gold&score=901").json() == 2
        assert client.get("/rank?league=tin&score=901").json() == 1
