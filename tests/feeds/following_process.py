"""A program that follows a store into a file of SQLite until it is killed; ``write`` writes until it is told to end."""

from __future__ import annotations

import sys
from random import Random

from kvmodels import Database
from kvmodels.ext.fts import FtsSink
from tests.feeds.sinks import MODELS, write


def follow(url: str, path: str) -> None:
    with Database(url, models=MODELS, busy_timeout=60) as db:
        sink = FtsSink(path, "text")
        print("following", flush=True)
        db.follow(MODELS, sink, batch_size=5).run()


def write_beside(url: str, seed: str) -> None:
    random = Random(seed)
    with Database(url, models=MODELS, busy_timeout=60) as db:
        print("writing", flush=True)
        while True:
            write(db, random)


if __name__ == "__main__":
    {"follow": follow, "write": write_beside}[sys.argv[1]](sys.argv[2], sys.argv[3])
