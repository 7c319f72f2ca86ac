"""The models of a store that Python and Deno share, and one of several Python programs that write its records.

Usage: python -m tests.deno.accounts FILE NUMBER ROUNDS
"""

from __future__ import annotations

import json
import sys
from typing import Annotated

from kvmodels import Database, Index, Indexed, KvModel, PrimaryKey, RetryPolicy, Unique, UniqueViolationError

PATIENT = RetryPolicy(attempts=100_000, deadline_s=120)
"""The machine may be busy, and the test is about results."""


class Account(KvModel, collection="accounts"):
    id: PrimaryKey[int]
    email: Annotated[str, Unique(key=str.casefold)]
    hits: Indexed[int]
    owner: str


class AccountWithOwner(KvModel, collection="accounts"):
    id: PrimaryKey[int]
    email: Annotated[str, Unique(key=str.casefold)]
    hits: Indexed[int]
    owner: Indexed[str]


def first_letter(owner: str) -> str:
    return owner[:1]


class AccountWithLetter(KvModel, collection="accounts"):
    id: PrimaryKey[int]
    email: Annotated[str, Unique(key=str.casefold)]
    hits: Indexed[int]
    owner: Indexed[str]

    class Meta:
        indexes = (Index("owner", key=first_letter, version=1, name="letter"),)


class User(KvModel, collection="users"):
    """The model of the page of the module."""

    id: PrimaryKey[int]
    email: Unique[str]
    plan: Indexed[str]
    visits: int = 0


def increment(account: Account) -> None:
    account.hits += 1


def fight(file: str, number: int, rounds: int) -> list[str]:
    """Try to get each address, and count one hit for each try; returns the addresses that this program has got."""
    won: list[str] = []
    with Database(file, models=[Account], codec="v8", retry=PATIENT) as db:
        accounts = db[Account]
        for turn in range(rounds):
            email = f"ADDRESS{turn}@example.org"
            try:
                accounts.create(id=1000 * number + turn + 1, email=email, hits=-1, owner="python")
                won.append(email)
            except UniqueViolationError:
                pass
            accounts.mutate(0, increment)
    return won


if __name__ == "__main__":
    print(json.dumps(fight(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
