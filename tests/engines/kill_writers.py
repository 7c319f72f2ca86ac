"""Writers to be killed: ``python -m tests.engines.kill_writers URL``, one new writer for each line of input.

For each line a writer is forked; this process never has the file open. The writer prints its process id, then
commits for ever, each commit one record, one entry that points to it and one count, and prints its number when the
commit is acknowledged. When the writer has ended, ``ended`` and how it ended is printed.
"""

from __future__ import annotations

import os
import sys

from kvmodels.core.operations import Arithmetic, AtomicWrite, Check, Committed, Set
from kvmodels.engines.url import open_engine

COMMITS_AT_MOST = 20_000


def write_until_killed(url: str, writer: int) -> None:
    os.write(1, b"writer %d\n" % os.getpid())
    engine = open_engine(url, durability="commit", busy_timeout=60)
    for number in range(COMMITS_AT_MOST):
        name = b"%03d-%06d" % (writer, number)
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
        os.write(1, b"%d\n" % number)
    os.write(1, b"finished\n")


def main(url: str) -> None:
    for writer, _ in enumerate(sys.stdin):
        child = os.fork()
        if child == 0:
            write_until_killed(url, writer)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        os.write(1, b"ended %d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(sys.argv[1])
