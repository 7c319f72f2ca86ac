"""Errors of PostgreSQL as errors of this library.

Rules of this module: nothing of libpq's own messages is shown, because those of a connection may contain a password;
an error is raised outside of the handler that caught its cause, so that it is not chained either. A message of the
server is told apart by its SQLSTATE.
"""

from __future__ import annotations

from typing import Final

import psycopg

from kvmodels.engines.postgres.settings import shown_addresses
from kvmodels.engines.shared.server_errors import (
    FULL,
    GONE,
    MAY_NOT_WRITE,
    NOT_ENCRYPTED,
    REFUSED,
    TAKES_NO_WRITES,
    UNREACHABLE,
    WRONG_CREDENTIALS,
)
from kvmodels.errors import (
    DecodeError,
    EngineError,
    EngineTimeoutError,
    KeyTooLargeError,
    KvModelsError,
    UnsupportedError,
)

WRONG_ISOLATION: Final = "KV002"
FORGOTTEN: Final = "KV003"
READ_ONLY: Final = "25006"
NO_PERMISSION: Final = "42501"
ABSENT: Final = ("3F000", "42P01", "42883")

LONGEST_INDEXED: Final = 2_704
"""Bytes of the largest row that a B-tree of PostgreSQL takes."""

_LOST: Final = ("08", "57P01", "57P02", "57P03", "57P05", "40003")
_OF_FIRST_TRANSACTION: Final = ("23505", "40P01", READ_ONLY, "55P03")
_BUSY: Final = ("55P03", "57014", "25P03", "25P04", "40001", "40P01", "53300", "57P03")
_CREDENTIALS: Final = ("28000", "28P01")
_NO_DATABASE: Final = "3D000"
_CONNECTION_MESSAGES: Final = {
    "too many connections for": "53300",
    "no more connections allowed": "53300",
    "password authentication failed": "28P01",
    "no password supplied": "28P01",
    "authentication failed for user": "28000",
    "no pg_hba.conf entry": "28000",
    'role "': "28000",
    '" does not exist': _NO_DATABASE,
    "the database system is": "57P03",
    "too many clients": "53300",
    "remaining connection slots": "53300",
    "terminating connection due to administrator command": "57P01",
}
"""Parts of messages of a server that speaks English, the first that fits counts."""
_DAMAGED: Final = ("XX001", "XX002", "58030")
_FULL: Final = ("53100", "53200")
_PREPARED: Final = ("26000", "42P05")
"""A prepared statement is absent, or is there already, on a connection that a proxy shares among clients."""


def is_lost(error: psycopg.Error) -> bool:
    """Return whether the error leaves open what became of the statement: the connection ended before its answer."""
    state = error.sqlstate
    if state is None or state.startswith(_LOST):
        return True
    return error.diag.severity_nonlocalized in ("FATAL", "PANIC")


def is_certain(error: psycopg.Error) -> bool:
    """Return whether a call of two transactions that fails with this error has applied nothing.

    Such errors come from the first transaction alone. Any other one may come from the seal, behind the operations.
    """
    state = error.sqlstate
    return state is not None and (state.startswith("KV") or state in _OF_FIRST_TRANSACTION)


def is_busy(error: psycopg.Error) -> bool:
    """Return whether the statement may succeed later as it is."""
    return error.sqlstate in _BUSY


def grants(schema: str) -> str:
    """Return the statements that give a role everything that this engine needs."""
    return (
        f"GRANT USAGE ON SCHEMA {schema} TO role; "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO role; "
        f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO role"
    )


_CAUSES: Final = {
    "Connection refused": "connection refused",
    "resolve host": "unknown host name",
    "translate host name": "unknown host name",
    "No such file or directory": "no socket",
    "certificate": "certificate",
    "SSL": "TLS",
    "read-only": "read only",
    "hot standby": "read only",
    "timeout": "timeout",
}
"""Parts of messages about a connection that no server has accepted, with the fixed text that is shown instead."""


def _cause_of(error: psycopg.Error) -> str:
    """Return why no server has accepted a connection; all causes if several servers were tried."""
    text = str(error)
    return ", ".join(dict.fromkeys(cause for words, cause in _CAUSES.items() if words in text)) or "no connection"


def _cannot_encrypt(error: psycopg.Error) -> bool:
    """Return whether no server that was tried allows an encrypted connection, which waiting does not change."""
    text = str(error)
    ended = "SYSCALL" in text or "closed" in text  # the server has ended, such as for a restart
    return not ended and set(_cause_of(error).split(", ")) <= {"certificate", "TLS"}


def _state_of_connection(error: psycopg.Error) -> str | None:
    """Return the SQLSTATE of a failed connection attempt, of which libpq tells the message alone."""
    text = str(error)
    return next((state for words, state in _CONNECTION_MESSAGES.items() if words in text), None)


def is_terminated(error: psycopg.Error) -> bool:
    """Return whether an administrator ended the connection while it was being set up; the server takes others."""
    return (error.sqlstate or _state_of_connection(error)) == "57P01"


def unreachable(error: psycopg.Error, url: str, conninfo: str) -> KvModelsError:
    """Return the error for a failed connection attempt, with the servers that were tried."""
    state = error.sqlstate or _state_of_connection(error)
    if state in _CREDENTIALS:
        return WRONG_CREDENTIALS.of(url, state, "Check the user and the password (PGPASSWORD, ~/.pgpass).")
    if state == _NO_DATABASE:
        return EngineError(
            "the server has no database of this name",
            url=url,
            reason="absent",
            hint="Create it, for example with createdb, or correct its name in the URL.",
        )
    if state in _BUSY:
        return EngineTimeoutError(
            "the server takes no connections at present",
            url=url,
            reason=state,
            hint="It is starting, or has no connection left (max_connections, CONNECTION LIMIT): raise its limit, or "
            "lower pool_size in the programs that use it; docs/guides/postgres.md has the sum.",
        )
    cause, tried = state or _cause_of(error), shown_addresses(conninfo)
    where = "" if tried is None else f"Tried: {tried}. "
    if state is None and _cannot_encrypt(error):
        hint = f"{where}Check sslmode, sslrootcert, the certificate of the server and its names."
        return NOT_ENCRYPTED.of(url, cause, hint)
    return UNREACHABLE.of(
        url,
        cause,
        f"{where}Check host, port, sslmode and whether a server that takes writes is running; the server's log says "
        "more.",
    )


def translated(error: psycopg.Error, url: str, schema: str) -> KvModelsError:
    """Return the error of this library for an error of a statement, which changed nothing."""
    state = error.sqlstate
    if is_lost(error):
        return EngineTimeoutError(
            "the connection to the server was lost",
            url=url,
            reason=state or "no connection",
            hint="Nothing was written; try again.",
        )
    if state in _BUSY:
        return EngineTimeoutError("the server was busy for too long", url=url, reason=state)
    if state == WRONG_ISOLATION:
        return UnsupportedError(
            "the default isolation level of the server is not read committed",
            url=url,
            hint="ALTER ROLE role SET default_transaction_isolation = 'read committed', then connect again.",
        )
    if state == NO_PERMISSION:
        hint = f"As the owner of the schema: {grants(schema)}. Or open the store with readonly=True."
        return MAY_NOT_WRITE.of(url, state, hint)
    if state == READ_ONLY:
        hint = "Name all servers in the URL (postgresql://user@h1,h2/db), or open the store with readonly=True."
        return TAKES_NO_WRITES.of(url, state, hint)
    return _of_storage(state, url)


def _of_storage(state: str | None, url: str) -> KvModelsError:
    if state in _FULL:
        return FULL.of(url, state)
    if state == "54000":
        return KeyTooLargeError("a key is too large", limit="max_key_bytes", size=None, maximum=LONGEST_INDEXED)
    if state in _DAMAGED:
        return DecodeError("the server reports damaged data", reason=state)
    if state in ABSENT:
        return GONE.of(url, state)
    if state in _PREPARED:
        return UnsupportedError(
            "a proxy between this program and the server does not keep prepared statements",
            url=url,
            reason=state,
            hint="Open the store with prepare=False, in every program that uses this proxy.",
        )
    return REFUSED.of(url, state, "The server's log shows the statement under this SQLSTATE.")
