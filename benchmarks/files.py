"""Files: a blob read through kvmodels, beside its chunks read by hand with sqlite3 and hashed.

    python -m benchmarks.files [--megabytes 100] [--rounds 7]

Both read the same rows of one SQLite file in their order and compute their SHA-256, which kvmodels compares with the
stored one. Rounds of the two alternate. Times are milliseconds of processor time, of which the median counts.

Rules of this module: both find the same hash, or the run ends.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.search import processor_ms
from kvmodels import Blob, Database, KvModel, PrimaryKey
from kvmodels.catalog.keyspace import chunk_key

PIECE: Final = 1024 * 1024
AIM: Final = 2.0
"""The most that a read through kvmodels may take, as a multiple of that by hand."""

CHUNKS: Final = "SELECT v FROM kv WHERE k >= ? AND k < ? ORDER BY k"


class Document(KvModel, collection="documents"):
    """A record with a file."""

    id: PrimaryKey[int]
    scan: Blob


class Times(NamedTuple):
    """Milliseconds of processor time of one full read."""

    kvmodels: float
    by_hand: float

    @property
    def ratio(self) -> float:
        """The time of kvmodels as a multiple of that by hand."""
        return self.kvmodels / self.by_hand


def pieces(megabytes: int) -> Iterator[bytes]:
    """Yield the content, no two pieces of which are equal."""
    for number in range(megabytes):
        yield number.to_bytes(8) * (PIECE // 8)


def read(blob: Blob) -> None:
    """Read all content in pieces; the last one compares the hash."""
    size = 0
    with blob.open() as file:
        while piece := file.read(PIECE):
            size += len(piece)
    assert size == blob.size


def read_by_hand(connection: sqlite3.Connection, blob: Blob) -> None:
    """Read the chunks of a blob and compare their hash."""
    digest, stored = sha256(), blob.stored
    for (chunk,) in connection.execute(CHUNKS, (chunk_key(stored.id, 0), chunk_key(stored.id, stored.chunks))):
        digest.update(chunk)
    assert digest.hexdigest() == blob.sha256


def measured(megabytes: int, rounds: int) -> Times:
    """Store a file, and return the times in which it is read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        with Database(f"sqlite:///{path}", models=[Document], durability="relaxed") as db:
            content = Blob(pieces(megabytes), max_bytes=megabytes * PIECE)
            blob = db[Document].create(id=1, scan=content).scan
            connection = sqlite3.connect(path)
            reads = (partial(read, blob), partial(read_by_hand, connection, blob))
            for one in reads:
                one()
            taken = [[processor_ms(one) for one in reads] for _ in range(rounds)]
            connection.close()
    return Times(*map(statistics.median, zip(*taken, strict=True)))


def main() -> None:
    """Measure, and print the times."""
    asked = argparse.ArgumentParser(prog="python -m benchmarks.files", description=__doc__)
    asked.add_argument("--megabytes", type=int, default=100, help="of the file (100)")
    asked.add_argument("--rounds", type=int, default=7, help="of each read (7)")
    given = asked.parse_args()
    times = measured(given.megabytes, given.rounds)
    print("| A file of | kvmodels, ms | sqlite3 by hand, ms | ratio | aim |")
    print("|---|---:|---:|---:|---:|")
    print(f"| {given.megabytes} MiB | {times.kvmodels:.0f} | {times.by_hand:.0f} | {times.ratio:.2f} | {AIM:.1f} |")


if __name__ == "__main__":
    main()
