"""Words in texts: a search index beside SQLite's FTS5 and tantivy, over the documentation strings of an environment.

    python -m benchmarks.documentation FILE; python -m benchmarks.search FILE [--texts 50000] [--rounds 3]

All three store the texts, stem English words and rank by BM25, on files without waiting for the disk. A query returns
the best ten with their texts. Times are milliseconds of processor time, all threads together: the median over the
queries of a row, each run in turn by the three, of which the best round counts.

Rules of this module: the number of records that kvmodels finds for a single word must be near that of FTS5, whose
stemmer differs in a few words, or the run ends.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sqlite3
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from itertools import islice, pairwise
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Final

from benchmarks.documentation import texts_of
from kvmodels import Database, KvModel, PrimaryKey, SearchIndex

BATCH: Final = 200
SINGLE: Final = 300
"""The number of texts that are written one a commit."""
BEST: Final = 10


class Doc(KvModel, collection="docs"):
    """A text."""

    id: PrimaryKey[int]
    text: str

    class Meta:
        """The index that is measured."""

        indexes: ClassVar = (SearchIndex("text", language="english", name="words"),)


class Store(ABC):
    """One library with a store of its own."""

    name: ClassVar[str]

    @abstractmethod
    def write(self, first: int, texts: Sequence[str]) -> None:
        """Store texts in one commit."""

    @abstractmethod
    def best(self, query: str) -> list[str]:
        """Return the texts of the best records."""

    @abstractmethod
    def count(self, word: str) -> int:
        """Return the number of records with a word."""


class Kvmodels(Store):
    """This library on a SQLite file."""

    name = "kvmodels"

    def __init__(self, folder: Path) -> None:
        self._db = Database(f"sqlite:///{folder}/docs.db", models=[Doc], durability="relaxed")
        self._docs = self._db[Doc]

    def write(self, first: int, texts: Sequence[str]) -> None:
        if len(texts) == 1:
            self._docs.create(id=first, text=texts[0])
        else:
            self._docs.bulk_create([Doc(id=key, text=text) for key, text in enumerate(texts, first)])

    def best(self, query: str) -> list[str]:
        return [hit.record.text for hit in self._docs.search("words", query)[:BEST]]

    def count(self, word: str) -> int:
        return self._docs.filter(words__search=word).count()


class Fts5(Store):
    """SQLite's full-text search."""

    name = "FTS5"

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "fts.db", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=OFF")
        self._connection.execute("CREATE VIRTUAL TABLE docs USING fts5(text, tokenize='porter unicode61')")

    def write(self, first: int, texts: Sequence[str]) -> None:
        self._connection.execute("BEGIN")
        rows = list(enumerate(texts, first))
        self._connection.executemany("INSERT INTO docs (rowid, text) VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")

    def best(self, query: str) -> list[str]:
        found = self._connection.execute(
            "SELECT text FROM docs WHERE docs MATCH ? ORDER BY rank LIMIT ?", (query, BEST)
        )
        return [text for (text,) in found]

    def count(self, word: str) -> int:
        (found,) = self._connection.execute("SELECT count(*) FROM docs WHERE docs MATCH ?", (word,)).fetchone()
        return int(found)


class Tantivy(Store):
    """The search engine of Rust, with one thread that writes."""

    name = "tantivy"

    def __init__(self, folder: Path) -> None:
        self._library: Any = import_module("tantivy")
        builder = self._library.SchemaBuilder()
        builder.add_text_field("text", stored=True, tokenizer_name="en_stem")
        self._index = self._library.Index(builder.build(), path=str(folder))
        self._writer = self._index.writer(heap_size=50_000_000, num_threads=1)

    def write(self, first: int, texts: Sequence[str]) -> None:
        del first
        for text in texts:
            self._writer.add_document(self._library.Document(text=[text]))
        self._writer.commit()
        self._index.reload()

    def best(self, query: str) -> list[str]:
        words = query if "OR" in query or query.startswith('"') else query.replace(" ", " AND ")
        searcher = self._index.searcher()
        found = searcher.search(self._index.parse_query(words, ["text"]), BEST).hits
        return [str(searcher.doc(address)["text"][0]) for _, address in found]

    def count(self, word: str) -> int:
        searcher = self._index.searcher()
        return int(searcher.search(self._index.parse_query(word, ["text"]), 1).count)


STORES: Final[Sequence[Callable[[Path], Store]]] = (Kvmodels, Fts5, Tantivy)


def drawn_queries(texts: Sequence[str], chance: random.Random, store: Store) -> dict[str, list[str]]:
    """Return the queries of each row, of words that have the named share of the texts and are indexed."""
    words = [re.findall(r"[^\W\d_]+", text.lower()) for text in texts]
    counts = Counter(word for found in words for word in set(found) if len(word) > 2)
    pairs = Counter(pair for found in words for pair in set(pairwise(found)))
    total = len(texts)

    def drawn(low: float, high: float, most: int) -> list[str]:
        fitting = sorted(word for word, number in counts.items() if low <= number <= high)
        chance.shuffle(fitting)
        return list(islice((word for word in fitting if store.count(word)), most))

    rare, middle, common = drawn(3, 30, 6), drawn(total * 0.005, total * 0.05, 12), drawn(total * 0.08, total, 12)
    near = sorted(pair for pair, number in pairs.items() if 20 <= number <= 300 and {*pair} <= counts.keys())
    chance.shuffle(near)
    phrases = (f'"{one} {other}"' for one, other in near if store.count(one) and store.count(other))
    return {
        "a rare word (3 to 30 texts)": rare,
        "a word in 0.5 to 5 %": middle[:6],
        "a word in more than 8 %": common[:6],
        "two middle words, AND": [f"{one} {other}" for one, other in zip(middle[:6], middle[6:], strict=True)],
        "common AND rare": [f"{common[at % len(common)]} {rare[at]}" for at in range(6)],
        "three common words, OR": [" OR ".join(chance.sample(common, 3)) for _ in range(6)],
        "a phrase of two words": list(islice(phrases, 6)),
    }


def processor_ms(call: Callable[[], object]) -> float:
    """Return the processor time of a call in milliseconds."""
    begun = time.process_time()
    call()
    return (time.process_time() - begun) * 1_000


def written(store: Store, texts: Sequence[str]) -> tuple[float, float]:
    """Store the texts, the last of them one a commit; return how many a second of processor time were stored."""
    most = len(texts) - SINGLE

    def batches() -> None:
        for start in range(0, most, BATCH):
            store.write(start, texts[start : min(start + BATCH, most)])

    def singly() -> None:
        for key in range(most, len(texts)):
            store.write(key, texts[key : key + 1])

    return most / processor_ms(batches) * 1_000, SINGLE / processor_ms(singly) * 1_000


def asked(stores: Sequence[Store], queries: Sequence[str], rounds: int) -> list[float]:
    """Return the median time of the queries for each store; of each query the best round counts."""
    times: list[list[float]] = [[] for _ in stores]
    for query in queries:
        best = [inf] * len(stores)
        for _ in range(rounds):
            for at, store in enumerate(stores):
                best[at] = min(best[at], processor_ms(partial(store.best, query)))
        for taken, one in zip(times, best, strict=True):
            taken.append(one)
    return [statistics.median(taken) for taken in times]


def agree(stores: Sequence[Store], word: str) -> None:
    """Compare the numbers of texts with a word, which stemmers find."""
    kvmodels, fts5 = stores[0].count(word), stores[1].count(word)
    assert abs(kvmodels - fts5) <= max(5, fts5 / 5), (word, kvmodels, fts5)


def size_of(folder: Path) -> int:
    """Return the number of bytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def line(name: str, figures: Sequence[float], digits: int) -> str:
    """Return a row of the table."""
    return " | ".join(["", name, *(f"{figure:,.{digits}f}" for figure in figures), ""]).strip()


def main() -> None:
    """Measure, and print the table."""
    asked_for = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    asked_for.add_argument("file", type=Path, help="written by python -m benchmarks.documentation")
    asked_for.add_argument("--texts", type=int, default=50_000, help="at most so many (50000)")
    asked_for.add_argument("--rounds", type=int, default=3, help="of each query (3)")
    given = asked_for.parse_args()
    chance = random.Random(39)
    texts = texts_of(given.file)
    chance.shuffle(texts)
    texts = texts[: given.texts]
    folders = [Path(tempfile.mkdtemp()) for _ in STORES]
    stores = [made(folder) for made, folder in zip(STORES, folders, strict=True)]
    print(f"{len(texts):,} texts, {sum(map(len, texts)) / 1e6:.1f} million characters\n")
    print(" | ".join(["|", *(store.name for store in stores), ""]).strip(), flush=True)
    print("|---|---:|---:|---:|")
    rates = [written(store, texts) for store in stores]
    print(line("texts a second, batches of 200", [rate for rate, _ in rates], 0))
    print(line("texts a second, one a commit", [rate for _, rate in rates], 0), flush=True)
    queries = drawn_queries(texts, chance, stores[0])
    for word in [*queries["a rare word (3 to 30 texts)"], *queries["a word in 0.5 to 5 %"]]:
        agree(stores, word)
    for name, some in queries.items():
        print(line(f"{name}, ms", asked(stores, some, given.rounds), 2), flush=True)
    print(line("store on disk, MB", [size_of(folder) / 1e6 for folder in folders], 1))
    for folder in folders:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
