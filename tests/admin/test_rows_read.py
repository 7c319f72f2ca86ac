"""No page reads more rows than it shows plus a constant, also deep inside of a collection."""

from __future__ import annotations

from typing import Any

import pytest

from kvmodels import Database
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.url import open_engine
from kvmodels.ext.admin.browsing import SCANNED
from kvmodels.testing.watched_engine import EngineScript, WatchedEngine
from tests.admin.html import ParsedPage
from tests.admin.shop import MODELS, browsed, fill
from tests.worlds import in_test_servers

PREFIX = "%5B%22books%22%5D"
CONSTANT = 20
"""Rows besides those of the page: the header for each read of the catalogue, a row more to see the next page."""


class RowCounter(WatchedEngine):
    """Counts the rows that reads and counts return."""

    rows = 0

    def read(self, *arguments: Any, **options: Any) -> Any:
        found = super().read(*arguments, **options)
        self.rows += sum(map(len, getattr(found, "ranges", ())))
        self.rows += sum(map(len, getattr(found, "followed", ())))
        return found

    def count(self, *arguments: Any, **options: Any) -> Any:
        found = super().count(*arguments, **options)
        self.rows += sum(getattr(found, "numbers", ()))
        return found


def walk(url: str, books: int, pages: int) -> None:
    engine = RowCounter(open_engine(url), EngineScript(), lossy=False)
    with Database.from_engine(engine, DatabaseCore(MODELS)) as db:
        fill(db, books)
        with browsed(db) as client:

            def rows_of(path: str) -> tuple[int, ParsedPage]:
                engine.rows = 0
                answer = client.get(path)
                assert answer.status_code == 200, answer.text
                return engine.rows, ParsedPage(answer.text)

            for query in ("", "genre=essay&order_by=-price", "status=open", "order_by=-isbn", "tags__contains=y"):
                path = f"/admin/records/books?{query}&size=25"
                for _ in range(pages):
                    rows, page = rows_of(path)
                    shown = page.within("kv-key").count(" ") + 1
                    assert shown == 25
                    assert 25 <= rows <= 2 * shown + CONSTANT, path  # an entry and a record for each
                    path = page.links["next"]
            rows, page = rows_of("/admin/records/books?order_by=-pk")  # the end
            assert page.within("kv-key").startswith(str(books))
            assert rows <= 25 + CONSTANT
            for query in ("title=Book 7", "title__icontains=zzz&order_by=title", "status=open&genre=essay&note=x"):
                rows, page = rows_of(f"/admin/records/books?{query}")
                assert page.within("#scan")
                assert SCANNED <= rows <= 2 * SCANNED + CONSTANT, query
            for path, most in {
                "": 0,
                f"records/books/record?id={books}": 1,
                f"records/books/edit?id={books}": 21,
                "records/books/new": 20,
                "records/books?search=978-00000": 22,
                "keys": 50,
                f"keys?prefix={PREFIX}": 200,
                f"keys?prefix={PREFIX}&after=%5B%22books%22,{books // 2}%5D": 200,
                "indexes": 0,
                "query?collection=books&lookups=genre%3Dessay+price__lt%3D20": 50,
                "query?collection=books&lookups=title%3Dx": SCANNED,
                "schema": 100 * len(MODELS),
                "check": 0,
                "queue": 0,
                "jobs": 0,
            }.items():
                rows, _ = rows_of(f"/admin/{path}")
                assert rows <= most + CONSTANT, (path, rows)


@pytest.mark.servers
@pytest.mark.parametrize("books", [2_000, *in_test_servers(10_000)])
def test_pages_of_some_thousand_records(books: int):
    walk("memory://", books, 3)


@pytest.mark.soak
def test_pages_of_a_million_records(tmp_path):
    walk(f"sqlite:///{tmp_path / 'shop.sqlite'}", 1_000_000, 200)


def test_the_counter_counts():
    engine = RowCounter(open_engine("memory://"), EngineScript(), lossy=False)
    with Database.from_engine(engine, DatabaseCore(MODELS)) as db:
        fill(db, 30)
        engine.rows = 0
        assert len(db[MODELS[1]].filter(genre="essay").to_list()) == 10
        assert 20 <= engine.rows <= 21
