"""Parts of names: an index of trigrams beside a scan and beside the trigrams of SQLite's FTS5.

    python -m benchmarks.documentation FILE; python -m benchmarks.parts_of_texts FILE [--titles 5000] [--rounds 3]

The titles are the first lines of documentation strings, and the parts are drawn from them. All stores are SQLite files
without waiting for the disk. A query returns the records. Times are milliseconds of processor time: the median over
the parts of a row, asked in turn, of which the best round counts.

Rules of this module: all three find the same records, or the run ends.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.documentation import titles_of
from benchmarks.search import line, processor_ms
from kvmodels import Database, KvModel, PrimaryKey, TrigramIndex

BATCH: Final = 200
PARTS: Final = 10
"""The number of parts of a row."""
LENGTH: Final = 6
"""The number of characters of a part."""

Ask = Callable[[str], list[int]]


class Title(KvModel, collection="titles"):
    """A title that is indexed."""

    id: PrimaryKey[int]
    text: str

    class Meta:
        """The index that is measured."""

        indexes: ClassVar = (TrigramIndex("text", name="parts"),)


class Plain(KvModel, collection="plain"):
    """A title without an index."""

    id: PrimaryKey[int]
    text: str


def opened(model: type[KvModel], folder: Path) -> Database:
    """Return a new store of one model."""
    return Database(f"sqlite:///{folder}/{model.__name__}.db", models=[model], durability="relaxed")


def fill(db: Database, model: type[Title | Plain], titles: Sequence[str]) -> None:
    """Store the titles in batches."""
    for start in range(0, len(titles), BATCH):
        some = titles[start : start + BATCH]
        db[model].bulk_create([model(id=key, text=text) for key, text in enumerate(some, start)])


def fill_fts5(connection: sqlite3.Connection, titles: Sequence[str]) -> None:
    """Store the titles in batches."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("CREATE VIRTUAL TABLE titles USING fts5(text, tokenize='trigram')")
    rows = list(enumerate(titles))
    for start in range(0, len(rows), BATCH):
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO titles (rowid, text) VALUES (?, ?)", rows[start : start + BATCH])
        connection.execute("COMMIT")


def drawn_parts(titles: Sequence[str], chance: random.Random) -> dict[str, list[str]]:
    """Return parts by how many titles have them, in any case."""
    lowered = [title.lower() for title in titles]
    rows: dict[str, list[str]] = {"in 1 to 5 titles": [], "in 0.2 to 1 %": [], "in more than 2 %": []}
    while any(len(found) < PARTS for found in rows.values()):
        title = chance.choice(lowered)
        start = chance.randrange(len(title) - LENGTH)
        part = title[start : start + LENGTH]
        number = sum(part in one for one in lowered)
        share = number / len(titles)
        name = "in 1 to 5 titles" if number <= 5 else "in more than 2 %" if share > 0.02 else "in 0.2 to 1 %"
        if (number <= 5 or share > 0.02 or 0.002 <= share <= 0.01) and len(rows[name]) < PARTS:
            rows[name].append(part)
    return rows


def asked(asks: Sequence[Ask], parts: Sequence[str], rounds: int) -> list[float]:
    """Return the median time of the parts for each store, after a comparison of the answers."""
    times: list[list[float]] = [[] for _ in asks]
    for part in parts:
        answers = [sorted(ask(part)) for ask in asks]
        assert answers[0] == answers[1] == answers[2], part
        for taken, ask in zip(times, asks, strict=True):
            taken.append(min(processor_ms(partial(ask, part)) for _ in range(rounds)))
    return [statistics.median(taken) for taken in times]


def main() -> None:
    """Measure, and print the table."""
    asked_for = argparse.ArgumentParser(prog="python -m benchmarks.parts_of_texts", description=__doc__)
    asked_for.add_argument("file", type=Path, help="written by python -m benchmarks.documentation")
    asked_for.add_argument("--titles", type=int, default=5_000, help="at most so many (5000)")
    asked_for.add_argument("--rounds", type=int, default=3, help="of each part (3)")
    given = asked_for.parse_args()
    titles = [one for one in titles_of(given.file, given.titles * 2) if one.isascii()][: given.titles]
    folder, chance = Path(tempfile.mkdtemp()), random.Random(39)
    indexed, plain = opened(Title, folder), opened(Plain, folder)
    connection = sqlite3.connect(folder / "fts.db", isolation_level=None)
    characters = sum(map(len, titles))
    print(f"{len(titles):,} titles, {characters / len(titles):.0f} characters each\n")
    print("| | kvmodels, trigrams | kvmodels, scan | FTS5, trigrams |\n|---|---:|---:|---:|")
    writes = (partial(fill, indexed, Title, titles), partial(fill, plain, Plain, titles),
              partial(fill_fts5, connection, titles))  # fmt: skip
    print(line("titles a second, batches of 200", [len(titles) / processor_ms(one) * 1_000 for one in writes], 0))

    def by_fts5(part: str) -> list[int]:
        found = connection.execute("SELECT rowid, text FROM titles WHERE text LIKE ?", (f"%{part}%",))
        return [key for key, _ in found]

    asks: tuple[Ask, Ask, Ask] = (
        lambda part: [one.id for one in indexed[Title].filter(text__icontains=part)],
        lambda part: [one.id for one in plain[Plain].filter(text__icontains=part).allow_scan()],
        by_fts5,
    )
    parts = drawn_parts([title.replace("%", " ").replace("_", " ") for title in titles], chance)
    for name, some in parts.items():
        print(line(f"a part {name}, ms", asked(asks, some, given.rounds), 2), flush=True)
    for opened_one in (indexed, plain, connection):
        opened_one.close()  # which moves the write-ahead log into the file
    sizes = [(folder / f"{name}.db").stat().st_size / characters for name in ("Title", "Plain", "fts")]
    print(line("store on disk, times the text", sizes, 1))


if __name__ == "__main__":
    main()
