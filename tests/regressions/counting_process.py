"""A process that increments one counter: ``python counting_process.py FILE TIMES``."""

from __future__ import annotations

import sys

from kvmodels import Database
from tests.zoo import Account


def increment(account: Account) -> None:
    """Add one."""
    account.n += 1


if __name__ == "__main__":
    with Database(sys.argv[1], models=[Account], durability="relaxed") as db:
        for _ in range(int(sys.argv[2])):
            db[Account].mutate(1, increment)
