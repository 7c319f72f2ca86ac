"""A process that stores and reads a large file, and prints by how many bytes its memory grew.

``python -m tests.blobs.large_process URL MEGABYTES``
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator

from kvmodels import Blob, Database
from tests.blobs.stores import MODELS, Paper

PIECE = bytes(range(256)) * 4_000


def pieces(count: int) -> Iterator[bytes]:
    """Yield pieces of 1 MB, each another one."""
    for number in range(count):
        yield number.to_bytes(24) + PIECE[:-24]


def memory() -> int:
    """Return the most bytes that the process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(url: str, megabytes: int) -> None:
    """Store and read one file after a small one, which loads the code."""
    before = 0
    with Database(url, models=MODELS) as db:
        for key, count in ((1, 4), (2, megabytes)):
            made = db[Paper].create(id=key, scan=Blob(pieces(count), max_bytes=2_000_000_000)).scan
            assert made is not None
            with made.open() as file:
                size = 0
                while piece := file.read(100_000):
                    size += len(piece)
            assert size == count * len(PIECE)
            before = memory() if key == 1 else before
    print(memory() - before)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
