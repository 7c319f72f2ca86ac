"""Stores whose functions lack a rule, for tests that must notice it."""

from __future__ import annotations

from unittest.mock import patch

from kvmodels.engines.postgres import schema
from kvmodels.engines.postgres.connection import PostgresConnection, connect


def make_mutant(connection: PostgresConnection, part: str, other: str) -> None:
    """Make the functions of the store again, with a part of their text replaced.

    AssertionError: there is no such part.
    """
    text = schema._text
    found: list[str] = []

    def mutated(name: str, of: str) -> bytes:
        read = text(name, of).decode()
        if part in read:
            found.append(name)
        return read.replace(part, other).encode()

    with patch.object(schema, "_text", mutated):
        schema._make_functions(connection, "kvmodels")
    assert found, part


def replace_functions(url: str, part: str, other: str) -> None:
    """Make the functions of the store of a URL again, with a part of their text replaced."""
    connection = connect(url, url, prepare=False, backoff=60)
    make_mutant(connection, part, other)
    connection.close()


def restore(connection: PostgresConnection) -> None:
    """Make the functions of the store as they are."""
    schema._make_functions(connection, "kvmodels")
