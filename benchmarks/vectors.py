"""Similar vectors: an index of vectors beside sqlite-vec, usearch, and a matrix of numpy in memory.

    python -m benchmarks.vectors [--numbers 10000 100000] [--queries 20] [--rounds 3]

Vectors of 384 normally distributed numbers, all of one length, and origins that are drawn like them. A query returns
the ten nearest by cosine. kvmodels and sqlite-vec are SQLite files without waiting for the disk; usearch is in memory,
with its default settings, and approximate: its row shows the share of the ten that it finds. Times are milliseconds of
processor time: the median over the origins, of which the best round counts.

Rules of this module: all but usearch find the same records, or the run ends.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import apsw
import numpy as np
import sqlite_vec
from usearch.index import Index as VectorTree

from benchmarks.search import line, processor_ms
from kvmodels import Database, KvModel, PrimaryKey, Vector, VectorIndex

DIM: Final = 384
BATCH: Final = 500
WANTED: Final = 10
SHARES: Final = (0.001, 0.01, 0.1, 1.0)
"""The shares of the records that a filter finds."""

Ask = Callable[[Any], list[int]]


class Item(KvModel, collection="items"):
    """A vector in each stored form."""

    id: PrimaryKey[int]
    look: Vector

    class Meta:
        """The indexes that are measured."""

        indexes: ClassVar = (
            VectorIndex("look", dim=DIM, name="float32"),
            VectorIndex("look", dim=DIM, store="int8", name="int8"),
        )


def fill(db: Database, matrix: Any) -> None:
    """Store the vectors in batches."""
    for start in range(0, len(matrix), BATCH):
        some = matrix[start : start + BATCH]
        db[Item].bulk_create([Item(id=key, look=Vector(row)) for key, row in enumerate(some, start)])


def fill_sqlite_vec(connection: apsw.Connection, matrix: Any) -> None:
    """Store the vectors in batches."""
    connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF")
    connection.execute(f"CREATE VIRTUAL TABLE items USING vec0(look float[{DIM}] distance_metric=cosine)")
    for start in range(0, len(matrix), BATCH):
        rows = [(key, row.tobytes()) for key, row in enumerate(matrix[start : start + BATCH], start)]
        with connection:
            connection.executemany("INSERT INTO items (rowid, look) VALUES (?, ?)", rows)


def fill_usearch(tree: VectorTree, matrix: Any) -> None:
    """Add the vectors."""
    tree.add(np.arange(len(matrix)), matrix)


def opened_vec(path: Path) -> apsw.Connection:
    """Return a connection with the extension."""
    connection = apsw.Connection(str(path))
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    return connection


def median_of(ask: Ask, origins: Sequence[Any], rounds: int) -> float:
    """Return the median time of the origins."""
    return statistics.median(min(processor_ms(partial(ask, one)) for _ in range(rounds)) for one in origins)


def similar(db: Database, index: str, share: float, number: int, origin: Any) -> list[int]:
    """Return the keys of the nearest records, of the first ones alone if the share is below 1."""
    found = db[Item].similar(index, origin)
    if share < 1:
        found = found.filter(id__lt=int(number * share))
    return [hit.record.id for hit in found[:WANTED]]


def measured(number: int, queries: int, rounds: int) -> None:
    """Print the table for a number of vectors."""
    chance = np.random.default_rng(47)
    matrix = chance.normal(size=(number + queries, DIM)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1)[:, None]
    matrix, origins = matrix[:number], list(matrix[number:])
    folder = Path(tempfile.mkdtemp())
    db = Database(f"sqlite:///{folder}/items.db", models=[Item], durability="relaxed")
    connection, tree = opened_vec(folder / "vec.db"), VectorTree(ndim=DIM, metric="cos")

    def by_numpy(origin: Any) -> list[int]:
        far = 1 - matrix @ origin
        return [int(one) for one in np.argsort(far)[:WANTED]]

    def by_vec(origin: Any) -> list[int]:
        sql = "SELECT rowid FROM items WHERE look MATCH ? AND k = ? ORDER BY distance"
        return [int(key) for (key,) in connection.execute(sql, (origin.tobytes(), WANTED))]

    def by_usearch(origin: Any) -> list[int]:
        return [int(key) for key in tree.search(origin, WANTED).keys]

    print(f"\n{number:,} vectors of {DIM} numbers\n")
    print("| | kvmodels, float32 | kvmodels, int8 | sqlite-vec | usearch | numpy in memory |")
    print("|---|---:|---:|---:|---:|---:|")
    taken = [processor_ms(one) for one in (partial(fill, db, matrix), partial(fill_sqlite_vec, connection, matrix),
                                           partial(fill_usearch, tree, matrix))]  # fmt: skip
    rates = [f"{number / one * 1_000:,.0f}" for one in taken]
    print(f"| vectors a second, batches of {BATCH} | {rates[0]}, both | | {rates[1]} | {rates[2]} | - |", flush=True)
    asks: list[Ask] = [partial(similar, db, name, 1.0, number) for name in ("float32", "int8")]
    for origin in origins:
        wanted = by_numpy(origin)
        assert all(sorted(ask(origin)) == sorted(wanted) for ask in (*asks, by_vec))
    found = [len({*by_usearch(origin)} & {*by_numpy(origin)}) for origin in origins]
    times = [median_of(ask, origins, rounds) for ask in (*asks, by_vec, by_usearch, by_numpy)]
    print(line("the ten nearest, ms", times, 1), flush=True)
    print(f"| found of the ten nearest, % | 100 | 100 | 100 | {100 * sum(found) / WANTED / queries:.0f} | 100 |")
    for share in SHARES[:-1]:
        some: list[Ask] = [partial(similar, db, name, share, number) for name in ("float32", "int8")]
        text = " | ".join(f"{median_of(ask, origins, rounds):.1f}" for ask in some)
        print(f"| of {share:.1%} of the records, ms | {text} | - | - | - |", flush=True)
    db.close()
    connection.close()


def main() -> None:
    """Measure, and print a table for each number."""
    asked = argparse.ArgumentParser(prog="python -m benchmarks.vectors", description=__doc__)
    asked.add_argument("--numbers", type=int, nargs="+", default=[10_000, 100_000], help="of vectors")
    asked.add_argument("--queries", type=int, default=20, help="for each number (20)")
    asked.add_argument("--rounds", type=int, default=3, help="of each query (3)")
    given = asked.parse_args()
    for number in given.numbers:
        measured(number, given.queries, given.rounds)


if __name__ == "__main__":
    main()
