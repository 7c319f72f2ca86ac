"""A process that stores, replaces, copies, drops and sweeps files, and kills itself at one of its commits.

``python -m tests.blobs.kill_process URL NUMBER WHEN`` dies at the commit with this number, ``before`` or ``after`` it;
it prints the number of commits if it comes to its end.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from kvmodels import Database
from tests.blobs.stores import DAY_MS, MODELS, Paper, Will, content

LARGE = bytes(range(256)) * 10_000  # several batches


def work(db: Database, step: list[int]) -> None:
    """Store files in all ways, with a sweep of what is due; ``step`` moves the clock."""
    papers, wills = db[Paper], db[Will]
    paper = papers.create(id=1, scan=content(LARGE))
    papers.patch(1, scan=content(b"second"))
    papers.create(id=2, scan=paper.scan)
    wills.create(id=1, scan=content(b"will"))
    wills.patch(1, scan=content(b"last will"))
    wills.remove(1)
    wills.restore(1)
    papers.remove(1)
    step[0] += 2 * DAY_MS
    db.sweep_blobs()
    with db.transaction() as tx:
        tx[Paper].create(id=3, scan=content(LARGE[:300_000]))
        tx[Paper].patch(2, scan=None)
    wills.forget(1, including=True)
    db.sweep_blobs()


def main(url: str, number: int, when: str) -> None:
    """Do the work, and die at a commit."""
    step = [0]
    with Database(url, models=MODELS, clock=lambda: time.time_ns() // 1_000_000 + step[0]) as db:
        kind: Any = type(db._engine)
        commit, count = kind.commit, 0

        def counted(engine: Any, write: Any) -> Any:
            nonlocal count
            count += 1
            if count == number and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            answer = commit(engine, write)
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        kind.commit = counted
        work(db, step)
    print(count)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
