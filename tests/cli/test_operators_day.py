"""One day of an operator, from the first look into a store to a new schema version."""

from __future__ import annotations

import json
import runpy
import sqlite3
import threading
from contextlib import closing
from typing import Any, Self

import pytest

from kvmodels import Database, OperationCounters, RetriesExhaustedError
from tests.cli.test_terminals import environment, on_terminal

pytestmark = pytest.mark.servers

PROGRAM = """
import os
from kvmodels import AsyncDatabase, Index, Indexed, KvModel, PrimaryKey, Unique, upgrade

class Book(KvModel, collection="books"):
    isbn: PrimaryKey[int]
    title: Unique[str]
    genre: Indexed[str]
    price: float = 1.0
    {more}

db = AsyncDatabase(os.environ.get("SHOP", "shop.db"), models=[Book])
"""

WITH_INDEX = """
    class Meta:
        indexes = (Index("price"),)
"""

WITH_CENTS = """
    cents: int = 0

    class Meta:
        schema_version = 2
        indexes = (Index("price"), Index("cents"))

    @upgrade(to=2, touches=("cents",))
    @staticmethod
    def count_cents(document):
        document["cents"] = round(document["price"] * 100)
        return document
"""

PROGRAMS = {"morning_app": "", "noon_app": WITH_INDEX, "evening_app": WITH_CENTS}


@pytest.fixture(params=[10_000, pytest.param(100_000, marks=pytest.mark.soak)])
def records(request, folder):
    """A store with so many records, and three releases of its program."""
    for name, more in PROGRAMS.items():
        (folder / f"{name}.py").write_text(PROGRAM.replace("{more}", more))
    with opened("morning_app") as db:
        book: Any = db.models[0]
        books = [book(isbn=n, title=f"title {n}", genre=f"genre {n % 50}", price=n % 100) for n in range(request.param)]
        for start in range(0, request.param, 10_000):
            db[book].bulk_create(books[start : start + 10_000])
    return request.param


def opened(program: str, **options: Any) -> Database:
    """Open the store with the class of a release."""
    return Database("shop.db", models=[runpy.run_path(f"{program}.py")["Book"]], **options)


class Writers:
    """Four threads that change records of every part of the store until they are stopped."""

    def __init__(self, db: Database, records: int) -> None:
        self._books, self._records = db[db.models[0]], records
        self._stop, self.written = threading.Event(), [0] * 4
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(4)]

    def _write(self, number: int) -> None:
        for turn in range(10**9):
            if self._stop.is_set():
                break
            try:
                # Every second write meets the other threads in one record.
                key = turn * 37 % self._records if turn % 2 else 0
                self._books.patch(key, price=float(turn % 100 + number))
                self.written[number] += 1
            except RetriesExhaustedError:
                continue

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def conflict_once(db: Database) -> None:
    """Change a record that another writer changes at the same time, once."""
    books = db[db.models[0]]
    others: list[float] = [7.0]

    def change(book: Any) -> None:
        if others:
            books.patch(1, price=others.pop())
        book.price = 8.0

    books.mutate(1, change)


def test_the_day(records, run, folder):
    # In the morning: look inside, with the path of the file and nothing else.
    assert [row["index"] for row in json.loads(run("indexes", "--json", "-d", "shop.db").stdout)] == [
        "books.title",
        "books.genre",
    ]
    assert "books" in run("info", "-d", "shop.db").stdout
    [stored] = json.loads(run("stats", "--json", "-d", "shop.db").stdout)["collections"]
    assert [stored["records"]["rows"], *(one["entries"]["rows"] for one in stored["indexes"])] == [records] * 3
    assert run("keys", "books", "--limit", "2", "-d", "shop.db").stdout == '["books",0]\n["books",1]\n'
    assert json.loads(run("get", "books", "7", "-d", "shop.db").stdout)["genre"] == "genre 7"

    # Add an index while four writers of the new release work, with a progress bar.
    counters = OperationCounters()
    with opened("noon_app", observer=counters) as db, Writers(db, records) as writers:
        words = ["-m", "kvmodels", "apply", "-d", "noon_app:db"]
        code, shown = on_terminal(words, environment("shop.db"))
        assert (code, "build books.price" in shown) == (0, True), shown
        # Two indexes are used, and nobody asks for the genre.
        list(db[db.models[0]].filter(price=5.0)[:10])
        db[db.models[0]].get(title="title 3")
        conflict_once(db)
        metrics = db.metrics()
    assert min(writers.written) > 0
    assert {one.index for one in metrics.indexes if not one.uses} == {"genre"}
    [books] = [one for one in metrics.collections if one.collection == "books"]
    assert books.commits > 0
    assert (books.conflicts > 0, books.retries > 0) == (True, True)
    assert run("check", "-d", "noon_app:db").exit_code == 0

    # Damage one entry, find it and repair it.
    with closing(sqlite3.connect("shop.db")) as file, file:
        [(key,)] = file.execute("SELECT k FROM kv WHERE instr(k, ?) LIMIT 1", (b"books_by_price",))
        file.execute("DELETE FROM kv WHERE k = ?", (key,))
    found = run("check", "books", "-d", "noon_app:db")
    assert (found.exit_code, "1 missing" in found.stdout) == (1, True)
    assert run("check", "books", "--repair", "-d", "noon_app:db").exit_code == 1
    assert run("check", "books", "-d", "noon_app:db").exit_code == 0

    # Back up, lose a record, and restore into a new file.
    assert run("backup", "copy.db", "-d", "shop.db").exit_code == 0
    with opened("noon_app") as db:
        db[db.models[0]].remove(0)
    assert run("get", "books", "0", "-d", "shop.db").exit_code == 1
    assert run("restore", "copy.db", "-d", "restored.db").exit_code == 0
    assert run("get", "books", "0", "-d", "restored.db").exit_code == 0
    assert run("check", "-d", "restored.db").exit_code == 0

    # Move everything to another engine.
    assert run("dump", "-o", "shop.ndjson", "-d", "shop.db").exit_code == 0
    assert run("load", "shop.ndjson", "-d", "lmdb:///shop.lmdb").exit_code == 0
    with Database("lmdb:///shop.lmdb", readonly=True) as moved:
        assert moved.kv.count(("books",)) == records - 1
    assert run("check", "-d", "lmdb:///shop.lmdb").exit_code == 0

    # In the evening: a new schema version, with an upgrade of every record.
    assert run("plan", "--check", "-d", "evening_app:db").exit_code == 1
    assert run("apply", "-d", "evening_app:db").exit_code == 0
    assert run("migrate", "books", "-d", "evening_app:db").exit_code == 0
    assert run("plan", "--check", "-d", "evening_app:db").exit_code == 0
    assert run("check", "-d", "evening_app:db").exit_code == 0
