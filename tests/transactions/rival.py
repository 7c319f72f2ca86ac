"""Another process that writes an account whenever it is told to, or says that it may not write now."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import kvmodels
from kvmodels import Database, EngineTimeoutError
from tests.transactions.models import Account

ROOT = Path(kvmodels.__file__).parent.parent


class Rival:
    """The other process.

    Args:
        url: of the store.
    """

    def __init__(self, url: str) -> None:
        self.answers: list[str] = []
        arguments = [sys.executable, "-m", "tests.transactions.rival", url]
        self.process = subprocess.Popen(
            arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def wait_until_open(self) -> None:
        """Wait until it has opened the store, which on a busy machine takes longer than a transaction may."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "open\n"

    def write(self) -> str:
        """Have it write; what it answers."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("write\n")
        self.answers.append(self.process.stdout.readline().strip())
        return self.answers[-1]


@contextmanager
def rival_of(url: str) -> Iterator[Rival]:
    """A process that ends with the block."""
    rival = Rival(url)
    try:
        rival.wait_until_open()
        yield rival
    finally:
        rival.process.kill()
        rival.process.communicate()


def written(db: Database, number: int) -> Literal["written", "busy"]:
    try:
        db[Account].patch(1, balance=number)
    except EngineTimeoutError:
        return "busy"
    return "written"


def main(url: str) -> None:
    """Write with each line that is read."""
    with Database(url, models=[Account], durability="relaxed", busy_timeout=0) as db:
        print("open", flush=True)
        for number, _ in enumerate(sys.stdin):
            print(written(db, 100 * number), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
