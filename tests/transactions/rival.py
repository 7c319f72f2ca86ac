"""Another process that writes whenever it is told to, or says that it may not write now.

It changes an account, replaces a note that refers to the account, or reserves primary keys.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self

import kvmodels
from kvmodels import Database, EngineTimeoutError, KvModel
from kvmodels.catalog.keyspace import key_counter
from kvmodels.core.operations import AtomicWrite, Set
from tests.transactions.models import Account, Note

ROOT = Path(kvmodels.__file__).parent.parent


class Rival:
    """The other process, with one store open at a time.

    It serves many tests, since to start it takes longer than most of them.

    Attributes:
        answers: to the writes in the store that is open.
    """

    def __init__(self) -> None:
        self.answers: list[str] = []
        arguments = [sys.executable, "-m", "tests.transactions.rival"]
        self._process = subprocess.Popen(
            arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    @contextmanager
    def opened(self, url: str, *, notes: bool = False) -> Iterator[Self]:
        """Have it open a store for the block, which on a busy machine takes longer than a transaction may.

        Args:
            url: of the store.
            notes: whether it knows notes, so that accounts are referred to.
        """
        self.answers = []
        assert self._ask(json.dumps([url, notes])) == "open"
        try:
            yield self
        finally:
            assert self._ask("close") == "closed"

    def write(self, what: str = "account") -> str:
        """Have it write; what it answers."""
        self.answers.append(self._ask(what))
        return self.answers[-1]

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def written(db: Database, what: str, number: int) -> Literal["written", "busy"]:
    try:
        if what == "account":
            db[Account].patch(1, balance=number)
        elif what == "counter":
            counter = Set(key_counter("tickets"), *db._core.context.codec.encode(number + 1))
            db._engine.commit(AtomicWrite((), (counter,)))
        else:
            with db.transaction() as tx:
                tx[Note].filter(account=1).delete()
                tx[Note].create(id=number, account=1)
    except EngineTimeoutError:
        return "busy"
    return "written"


def main() -> None:
    """Open a store and write there, as the lines say that are read."""
    for line in sys.stdin:
        url, notes = json.loads(line)
        models: list[type[KvModel]] = [Account, Note] if notes else [Account]
        with Database(url, models=models, durability="relaxed", busy_timeout=0) as db:
            print("open", flush=True)
            for number, what in enumerate(iter(lambda: sys.stdin.readline().strip(), "close")):
                print(written(db, what, 100 * number), flush=True)
        print("closed", flush=True)


if __name__ == "__main__":
    main()
