"""A process that changes shared records and fights for unique values: ``python -m tests.connect.writing_process``.

Its arguments are the URL of the database and its own number; it prints how many of the values it has won, and how many
of its sums are certain and how many unknown.
"""

from __future__ import annotations

import json
import sys

from kvmodels import CommitUnknownError, Database, RetryPolicy, UniqueViolationError
from tests.connect.models import Person
from tests.connect.scripted import ACCESS_TOKEN

ROUNDS = 15


def older(person: Person) -> None:
    person.age += 1


def main() -> None:
    url, number = sys.argv[1], int(sys.argv[2])
    won = certain = unknown = 0
    retry = RetryPolicy(attempts=1_000, deadline_s=120.0)
    with Database(url, models=[Person], access_token=ACCESS_TOKEN, retry=retry, busy_timeout=60) as db:
        for at in range(ROUNDS):
            db[Person].mutate(at % 2, older)
            try:
                db[Person].create(id=1_000 + number * 100 + at, email=f"contended {at}", city="Oslo")
                won += 1
            except UniqueViolationError:
                pass
            try:
                db.kv.atomic().sum(("n",), 1).commit()
                certain += 1
            except CommitUnknownError:
                unknown += 1
    print(json.dumps([won, certain, unknown]))


if __name__ == "__main__":
    main()
