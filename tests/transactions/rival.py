"""Another process that writes whenever it is told to, or says that it may not write now.

It changes an account, replaces a note that refers to the account, or reserves primary keys.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import kvmodels
from kvmodels import Database, EngineTimeoutError, KvModel
from kvmodels.catalog.keyspace import key_counter
from kvmodels.core.operations import AtomicWrite, Set
from tests.transactions.models import Account, Note

ROOT = Path(kvmodels.__file__).parent.parent


class Rival:
    """The other process.

    Args:
        url: of the store.
        notes: whether it knows notes, so that accounts are referred to.
    """

    def __init__(self, url: str, *, notes: bool = False) -> None:
        self.answers: list[str] = []
        arguments = [sys.executable, "-m", "tests.transactions.rival", url, *(["notes"] if notes else [])]
        self.process = subprocess.Popen(
            arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def wait_until_open(self) -> None:
        """Wait until it has opened the store, which on a busy machine takes longer than a transaction may."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "open\n"

    def write(self, what: str = "account") -> str:
        """Have it write; what it answers."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(what + "\n")
        self.answers.append(self.process.stdout.readline().strip())
        return self.answers[-1]


@contextmanager
def rival_of(url: str, *, notes: bool = False) -> Iterator[Rival]:
    """A process that ends with the block."""
    rival = Rival(url, notes=notes)
    try:
        rival.wait_until_open()
        yield rival
    finally:
        rival.process.kill()
        rival.process.communicate()


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


def main(url: str, notes: str = "") -> None:
    """Write with each line that is read."""
    models: list[type[KvModel]] = [Account, Note] if notes else [Account]
    with Database(url, models=models, durability="relaxed", busy_timeout=0) as db:
        print("open", flush=True)
        for number, what in enumerate(sys.stdin):
            print(written(db, what.strip(), 100 * number), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
