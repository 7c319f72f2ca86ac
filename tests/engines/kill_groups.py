"""Writers whose threads share transactions, to be killed: ``python -m tests.engines.kill_groups KIND PATH``.

For each line of input a writer is forked; this process never has the store open. The writer prints its process id, then
its threads commit for ever, each commit one record, one entry that points to it and one count. Each prints its own name
and the number of its commit when it is acknowledged.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from kvmodels.core.operations import Arithmetic, AtomicWrite, Check, Committed, Set
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.sqlite.engine import SqliteEngine

THREADS = 6
COMMITS_AT_MOST = 5_000


def open_engine(kind: str, path: str, **options: Any) -> SqliteEngine | LmdbEngine:
    return (SqliteEngine if kind == "sqlite" else LmdbEngine)(path, durability="commit", **options)


def write_until_killed(engine: SqliteEngine | LmdbEngine, writer: int, thread: int) -> None:
    for number in range(COMMITS_AT_MOST):
        name = b"%03d-%d-%06d" % (writer, thread, number)
        outcome = engine.commit(
            AtomicWrite(
                (Check(b"record/" + name, None),),
                (
                    Set(b"record/" + name, b"x" * 200, 3),
                    Set(b"entry/" + name, b"record/" + name, 3),
                    Arithmetic("sum", b"count", 1),
                ),
            )
        )
        assert isinstance(outcome, Committed)
        os.write(1, b"%d %d\n" % (thread, number))


def main(kind: str, path: str) -> None:
    for writer, _ in enumerate(sys.stdin):
        child = os.fork()
        if child == 0:
            os.write(1, b"writer %d\n" % os.getpid())
            engine = open_engine(kind, path, busy_timeout=60)
            threads = [
                threading.Thread(target=write_until_killed, args=(engine, writer, thread)) for thread in range(THREADS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        os.write(1, b"ended %d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
