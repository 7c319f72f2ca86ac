"""The schema of a store on a PostgreSQL server: making it, and keeping its functions up to date.

Rules of this module: the statements are the files of ``sql/``. Functions carry a version in their names, so that
programs of two releases use one store side by side; the set of functions has a number and is replaced when it is older.
"""

from __future__ import annotations

import hashlib
import time
from importlib.resources import files
from typing import Final, NamedTuple

import psycopg

from kvmodels.engines.postgres.connection import PostgresConnection
from kvmodels.engines.postgres.errors import ABSENT, NO_PERMISSION, grants
from kvmodels.engines.postgres.settings import PostgresOptions
from kvmodels.engines.shared.server_errors import MAY_NOT_WRITE, NO_STORE, ServerError
from kvmodels.errors import EngineError, EngineTimeoutError, ForeignFileError, UnsupportedError

FORMAT: Final = 1
"""The number of the tables; a store with a greater one was made by a later release."""

FUNCTIONS: Final = 8
"""The number of the set of functions."""

WITHOUT_SEALS: Final = 6
"""The number of the newest set without early commits, with which a store can be used."""

ADDING_INTEGERS: Final = 8
"""The number of the first set that computes sums of ints; with an older one, this process computes them."""

UPGRADE_WAIT_MS: Final = 1_000
"""How long one attempt to change the tables of a store in use may wait for their locks."""

NOT_UPGRADED: Final = ServerError(
    EngineTimeoutError,
    "the store could not be upgraded, because its tables are in use",
    "Open it again without durable_reads=, or when no snapshot, dump or backup of it is running.",
)

_TABLES: Final = "SELECT relname FROM pg_catalog.pg_class WHERE relnamespace = %s::pg_catalog.regnamespace LIMIT 1"
_EXISTS: Final = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s"
_LOCK: Final = "SELECT pg_catalog.pg_advisory_xact_lock(%s)"


_CONTEXT: Final = "numbers[1], numbers[2], numbers[3], numbers[4]"
_STRICT: Final = {
    "APPLY(": "commit_1(",
    "OUTPUT": "",
    "RESULT": "TABLE (part int4, outcome int4, s int8, d int8, failed int4[])",
    "VARIABLES": "",
    "ENTER": f"SCHEMA.enter_1({_CONTEXT}, numbers[5] = 1)",
    "FIRST": "part := -1; s := last; d := present;\n    RETURN NEXT;",
    "BASE": "NULL",
    "EMIT": "RETURN NEXT;",
    "NOTICE": "    IF last <> g.state THEN\n        PERFORM SCHEMA.notify_1(last);\n    END IF;\n",
}
_EARLY: Final = {
    "APPLY(": "apply_2(",
    "OUTPUT": ", OUT answer int8[], OUT failures int4[]",
    "RESULT": "record",
    "VARIABLES": "\n    part int4;\n    outcome int4;\n    s int8;\n    failed int4[];",
    "ENTER": f"SCHEMA.enter_2({_CONTEXT}, numbers[5])",
    "FIRST": "answer := ARRAY[present, g.early::int4 + 2 * (g.sealed < last)::int4, last];",
    "BASE": "CASE WHEN g.early THEN g.sealed END",
    "EMIT": "answer := answer || outcome::int8 || s;\n"
    "        IF outcome > 0 THEN\n"
    "            failures := failures || part || cardinality(failed) || failed;\n"
    "        END IF;",
    "NOTICE": "",
}
"""The parts in which the two functions of ``apply.sql`` differ, by their places."""


class SchemaState(NamedTuple):
    """The numbers of a store: of its tables, and of its functions."""

    format: int
    functions: int


def quoted(schema: str) -> str:
    """Return the name of a schema, which ``require_sensible_options`` has looked at, as an identifier of SQL."""
    return f'"{schema}"'


def prepare_schema(connection: PostgresConnection, options: PostgresOptions, url: str) -> int:
    """Make the tables and functions of a store if they are absent, or upgrade older ones; the number of its functions.

    An upgrade waits for snapshots, which may take long. If it is not done in time, the store is opened as it is, and
    the next one that opens it tries again.

    Args:
        connection: at rest.
        options: of the engine; an upgrade may wait for ``busy_timeout``.
        url: for messages.

    Raises:
        ForeignFileError: the schema holds something else.
        UnsupportedError: a later release has made it.
        EngineError: there is no store, or a permission is missing.
        psycopg.Error: another refusal, or the connection was lost; it may be called again.
    """
    schema, readonly = options.schema, options.readonly
    deadline = time.monotonic() + options.busy_timeout
    try:
        functions = _prepared(connection, schema, url, create=options.create and not readonly, deadline=deadline)
        if functions > WITHOUT_SEALS and not readonly:
            _require_seals(connection, schema, url)
        return functions
    except psycopg.errors.InsufficientPrivilege:
        pass
    raise EngineError(
        "the role may not use or make the schema of the store",
        url=url,
        reason=NO_PERMISSION,
        hint=f"To make it: GRANT CREATE ON DATABASE name TO role. To use it: {grants(quoted(schema))}.",
    )


def _prepared(connection: PostgresConnection, schema: str, url: str, *, create: bool, deadline: float) -> int:
    state = _state(connection, schema)
    if state is None and not create:
        hint = f"Check the database and schema={schema!r}, or open it once with create=True and readonly=False."
        raise NO_STORE.of(url, "absent", hint)
    if state is None or (state.functions < FUNCTIONS and create):
        state = _make(connection, schema, url, state, deadline)
    if state is None or state.format > FORMAT:
        raise UnsupportedError(
            "a later release of this library has made the store", url=url, hint="Update this program's kvmodels."
        )
    if state.functions < WITHOUT_SEALS:
        raise UnsupportedError(
            "the functions of the store are of an earlier release",
            url=url,
            hint="Open it once with create=True and readonly=False, as the owner of the schema.",
        )
    return state.functions


def _make(
    connection: PostgresConnection, schema: str, url: str, state: SchemaState | None, deadline: float
) -> SchemaState | None:
    """Make or upgrade a store; its state, which is as before if an upgrade could not get its locks in time."""
    number = int.from_bytes(hashlib.sha256(f"kvmodels {schema}".encode()).digest()[:8], "big", signed=True)
    while True:
        try:
            with connection.transaction():
                connection.execute(_LOCK, (number,))
                state = _state(connection, schema)
                if state is None:
                    _make_tables(connection, schema, url)
                elif state.functions <= WITHOUT_SEALS:
                    connection.execute(f"SET LOCAL lock_timeout = {UPGRADE_WAIT_MS}".encode(), prepare=False)
                    connection.execute(_text("upgrade.sql", schema), prepare=False)
                if state is None or state.functions < FUNCTIONS:
                    _make_functions(connection, schema)
                return _state(connection, schema)
        except psycopg.errors.LockNotAvailable:
            if time.monotonic() >= deadline:
                return state


def _require_seals(connection: PostgresConnection, schema: str, url: str) -> None:
    """Refuse a role that may commit and not seal, whose commits would fail when other programs commit early.

    Raises EngineError, psycopg.Error.
    """
    name = quoted(schema)
    text = (
        f"SELECT pg_catalog.has_table_privilege('{name}.commits', 'INSERT') "
        f"AND NOT pg_catalog.has_table_privilege('{name}.seals', 'INSERT')"
    )
    if connection.execute(text.encode(), prepare=False).fetchall()[0][0]:
        raise MAY_NOT_WRITE.of(url, NO_PERMISSION, f"{grants(name)}.")


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
    for parts in (_STRICT, _EARLY):
        text = _text("apply.sql", schema)
        for place, part in parts.items():
            text = text.replace(place.encode(), part.replace("SCHEMA.", f"{quoted(schema)}.").encode())
        connection.execute(text, prepare=False)
    connection.execute(
        f"UPDATE {quoted(schema)}.meta SET functions = {FUNCTIONS} WHERE one".encode(),  # noqa: S608 - a quoted name, a number
        prepare=False,
    )


def _text(name: str, schema: str) -> bytes:
    text = files("kvmodels.engines.postgres").joinpath("sql", name).read_text("utf-8")
    return text.replace("SCHEMA.", f"{quoted(schema)}.").encode()
