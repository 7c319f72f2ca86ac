"""The schema of a store on a PostgreSQL server: making it, and keeping its functions up to date.

Rules of this module: the statements are the files of ``sql/``. Functions carry a version in their names, so that
programs of two releases use one store side by side; the set of functions has a number and is replaced when it is older.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final, NamedTuple

import psycopg

from kvmodels.engines.postgres.connection import PostgresConnection
from kvmodels.engines.postgres.errors import ABSENT, NO_PERMISSION, grants, translated
from kvmodels.engines.shared.server_errors import NO_STORE
from kvmodels.errors import EngineError, ForeignFileError, KvModelsError, UnsupportedError

FORMAT: Final = 1
"""The number of the tables; a store with a greater one was made by a later release."""

FUNCTIONS: Final = 6
"""The number of the set of functions."""

_TABLES: Final = "SELECT relname FROM pg_catalog.pg_class WHERE relnamespace = %s::pg_catalog.regnamespace LIMIT 1"
_EXISTS: Final = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s"
_LOCK: Final = "SELECT pg_catalog.pg_advisory_xact_lock(%s)"


class SchemaState(NamedTuple):
    """The numbers of a store: of its tables, and of its functions."""

    format: int
    functions: int


def quoted(schema: str) -> str:
    """Return the name of a schema, which ``require_sensible_options`` has looked at, as an identifier of SQL."""
    return f'"{schema}"'


def prepare_schema(connection: PostgresConnection, schema: str, url: str, *, create: bool) -> None:
    """Make the tables and functions of a store if they are absent, or replace functions that are older.

    Args:
        connection: at rest.
        schema: its name.
        url: for messages.
        create: whether it may be made or changed.

    Raises:
        ForeignFileError: the schema holds something else.
        UnsupportedError: a later release has made it.
        EngineError: there is no store, or a permission is missing; EngineTimeoutError.
    """
    failure: KvModelsError
    try:
        _prepare(connection, schema, url, create=create)
    except psycopg.Error as error:
        if error.sqlstate == NO_PERMISSION:
            failure = EngineError(
                "the role may not use or make the schema of the store",
                url=url,
                reason=error.sqlstate,
                hint=f"To make it: GRANT CREATE ON DATABASE name TO role. To use it: {grants(quoted(schema))}.",
            )
        else:
            failure = translated(error, url, schema)
    else:
        return
    raise failure


def _prepare(connection: PostgresConnection, schema: str, url: str, *, create: bool) -> None:
    state = _state(connection, schema)
    if state is None and not create:
        hint = f"Check the database and schema={schema!r}, or open it once with create=True and readonly=False."
        raise NO_STORE.of(url, "absent", hint)
    if state is None or (state.functions < FUNCTIONS and create):
        with connection.transaction():
            number = int.from_bytes(hashlib.sha256(f"kvmodels {schema}".encode()).digest()[:8], "big", signed=True)
            connection.execute(_LOCK, (number,))
            state = _state(connection, schema)
            if state is None:
                _make_tables(connection, schema, url)
            if state is None or state.functions < FUNCTIONS:
                _make_functions(connection, schema)
            state = _state(connection, schema)
    if state is None or state.format > FORMAT:
        raise UnsupportedError(
            "a later release of this library has made the store", url=url, hint="Update this program's kvmodels."
        )
    if state.functions < FUNCTIONS:
        raise UnsupportedError(
            "the functions of the store are of an earlier release",
            url=url,
            hint="Open it once with create=True and readonly=False, as the owner of the schema.",
        )


def _state(connection: PostgresConnection, schema: str) -> SchemaState | None:
    try:
        # A savepoint in a transaction, so that an absent table does not end it.
        with connection.transaction():
            row = connection.execute(
                f"SELECT format, functions FROM {quoted(schema)}.meta WHERE one".encode(),  # noqa: S608 - a quoted name
                prepare=False,
            ).fetchone()
    except psycopg.Error as error:
        if error.sqlstate in ABSENT:
            return None
        raise
    return None if row is None else SchemaState(*row)


def _make_tables(connection: PostgresConnection, schema: str, url: str) -> None:
    if connection.execute(_EXISTS, (schema,)).fetchone() is None:
        connection.execute(f"CREATE SCHEMA {quoted(schema)}".encode(), prepare=False)
    elif connection.execute(_TABLES, (quoted(schema),)).fetchone() is not None:
        raise ForeignFileError(
            "the schema holds tables that this library did not make",
            url=url,
            reason=schema,
            hint="Give the name of another schema: schema=.",
        )
    connection.execute(_text("tables.sql", schema), prepare=False)


def _make_functions(connection: PostgresConnection, schema: str) -> None:
    connection.execute(_text("functions.sql", schema), prepare=False)
    connection.execute(
        f"UPDATE {quoted(schema)}.meta SET functions = {FUNCTIONS} WHERE one".encode(),  # noqa: S608 - a quoted name, a number
        prepare=False,
    )


def _text(name: str, schema: str) -> bytes:
    text = files("kvmodels.engines.postgres").joinpath("sql", name).read_text("utf-8")
    return text.replace("SCHEMA.", f"{quoted(schema)}.").encode()
