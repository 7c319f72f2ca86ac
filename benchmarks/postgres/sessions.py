"""The records and operations that every side of the comparison on PostgreSQL shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

RECORDS: Final = 2_000
CITIES: Final = 100
PAGE: Final = 20
CONNECTIONS: Final = 10
"""Of each pool; it is the default of kvmodels."""
CONTENDED: Final = 0
"""The record that all callers of the contended update change."""

SCHEMA: Final = "benchmark_{library}"
TABLE: Final = """
CREATE TABLE people (id int8 PRIMARY KEY, email text NOT NULL UNIQUE, city text NOT NULL, name text NOT NULL,
    visits int4 NOT NULL);
CREATE INDEX ON people (city, id);
"""
"""Tables as a program would make them by hand; SQLModel and Django use the same ones."""

Operation = Callable[[int], Any]
"""One call with a number. An asynchronous side returns an awaitable."""


class Operations(NamedTuple):
    """The operations of one side.

    Attributes:
        get: the record of a number by its key.
        unique_get: the record of a number by its email address.
        page: 20 records of a city in the order of their keys.
        insert: a record with a new number.
        update: changes the name of a record.
        contended_update: adds 1 to the visits of one record.
        close: ends every connection.
    """

    get: Operation
    unique_get: Operation
    page: Operation
    insert: Operation
    update: Operation
    contended_update: Operation
    close: Callable[[], Any]


ROWS: Final = Operations._fields[:-1]


def email(number: int) -> str:
    """Return the unique value of a record."""
    return f"{number}@example.org"


def city(number: int) -> str:
    """Return the indexed value of a record."""
    return f"city {number % CITIES}"


def fields(number: int) -> dict[str, Any]:
    """Return the fields of a new record."""
    return {"id": number, "email": email(number), "city": city(number), "name": "Ada", "visits": 0}
