"""Where a PostgreSQL store is and how it is used: the connection string, and the options of the engine.

Rules of this module: a connection string, and an error of the library that read it, may contain a password in any
place, also where it was misread. Neither is shown, quoted or chained.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from kvmodels.engines.shared.background import require_retention
from kvmodels.errors import InvalidArgumentError

SCHEME: Final = "postgresql://"

CONNECT_TIMEOUT_S: Final = 10
"""Seconds for a connection attempt, unless the connection string has ``connect_timeout``."""

ANSWER_S: Final = 30.0
"""Seconds that a call waits for its answer beyond ``busy_timeout``."""

_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PASSWORD = re.compile(r"^([^/]*//[^:/@?]*:).*@", re.DOTALL)
_PARAMETER = re.compile(r"([?&][^=&]*=)[^&]*")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class PostgresOptions(NamedTuple):
    """Options that all handles of one store share."""

    durability: str
    clock: Callable[[], int] | None
    readonly: bool
    schema: str
    pool_size: int
    prepare: bool
    busy_timeout: float
    snapshot_max_age: float
    poll_interval: float
    change_log: int | None
    create: bool
    durable_reads: bool | None
    idle_timeout: float


def shown_url(url: str) -> str:
    """Return the URL without its password, which may hold any character, and without the values of its parameters."""
    return _PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1***@", url))


def require_sensible_options(options: PostgresOptions) -> None:
    """Refuse options that make no sense, before a connection is opened.

    Raises:
        InvalidArgumentError: names the first of them.
    """
    if options.durability not in ("commit", "relaxed"):
        raise InvalidArgumentError(
            "this durability does not exist",
            argument="durability",
            value=options.durability,
            expected=("commit", "relaxed"),
        )
    schema = cast("object", options.schema)
    if not isinstance(schema, str) or _SCHEMA.fullmatch(schema) is None or schema.startswith("pg_"):
        raise InvalidArgumentError(
            "this is not the name of a schema",
            argument="schema",
            value=schema,
            hint="Give 1 to 63 ASCII letters, digits and underscores that begin with a letter, but not with pg_.",
        )
    size = cast("object", options.pool_size)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InvalidArgumentError(
            "the size of the pool is not a positive integer", argument="pool_size", value=size, hint="Give 1 or more."
        )
    for argument in ("busy_timeout", "snapshot_max_age", "poll_interval", "idle_timeout"):
        seconds: object = options._asdict()[argument]
        sensible = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 <= seconds < 1e9
        if not sensible or (seconds == 0 and argument != "busy_timeout"):
            raise InvalidArgumentError(
                "a number of seconds is negative, zero or not a number",
                argument=argument,
                value=seconds,
                hint="Give seconds as a number, 0 or more (all but busy_timeout: above 0).",
            )
    require_durable_reads(options.durable_reads)
    for argument in ("prepare", "create"):
        if not isinstance(options._asdict()[argument], bool):
            raise InvalidArgumentError(
                "this is neither True nor False",
                argument=argument,
                value=options._asdict()[argument],
                hint="Give True or False.",
            )


def require_durable_reads(durable_reads: object) -> None:
    """Refuse a value that is neither True, False nor None. Raises InvalidArgumentError."""
    if durable_reads is not None and not isinstance(durable_reads, bool):
        raise InvalidArgumentError(
            "this is neither True, False nor None",
            argument="durable_reads",
            value=durable_reads,
            hint="Give True if reads must show only what is on the disk, False if writers are to share its flushes, or "
            "None to leave it as the store has it.",
        )


def retention_ms(change_log: object) -> int | None:
    """Return the retention of the change log in milliseconds; see ``require_retention``."""
    return require_retention(change_log)  # type: ignore[arg-type]


def connection_string(url: str, *, readonly: bool) -> str:
    """Return the connection string of libpq for a URL, with the settings that the engine needs.

    Args:
        url: as the user gave it, with libpq's parameters.
        readonly: whether a server that only reads will do.

    Raises:
        InvalidArgumentError: libpq cannot read it.
    """
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except (psycopg.Error, UnicodeError):
        given = None
    if given is None:  # outside of the handler: a chained error would contain the connection string
        raise InvalidArgumentError(
            "libpq cannot read this URL",
            argument="url",
            value=shown_url(url),
            expected="postgresql://user@host/database?sslmode=verify-full",
            hint="Encode special characters of names and passwords with percent signs.",
        )
    given.setdefault("connect_timeout", str(CONNECT_TIMEOUT_S))
    given.setdefault("application_name", os.environ.get("PGAPPNAME", "kvmodels"))
    given.setdefault("tcp_user_timeout", str(round(ANSWER_S * 1_000)))
    given.setdefault("keepalives_idle", "30")
    given["client_encoding"] = "UTF8"
    if not readonly:
        given["target_session_attrs"] = "read-write"
    _require_encryption(given)
    return make_conninfo("", **given)


def shown_addresses(conninfo: str) -> str | None:
    """Return the servers that a connection string names, for a message; None if it may have been misread.

    A password with an unencoded @ or / can end up in the host, the port or the name of the database.
    """
    given = {option.keyword.decode(): (option.val or b"").decode() for option in Conninfo.get_defaults()}
    given.update({name: str(value) for name, value in conninfo_to_dict(conninfo).items()})
    hosts = (given["host"] or given["hostaddr"]).split(",")
    ports = [port or "5432" for port in given["port"].split(",")]
    misread = any("@" in given[name] for name in ("host", "hostaddr", "port", "dbname"))
    if misread or given.get("service") or not all(port.isdigit() for port in ports):
        return None
    ports *= len(hosts) if len(ports) == 1 else 1
    return ", ".join(f"{host or 'the local socket'}:{port}" for host, port in zip(hosts, ports, strict=False))


def _require_encryption(given: dict[str, str]) -> None:
    """Verify the certificate of a server on another machine, unless the user decided about it."""
    service = given.get("service", os.environ.get("PGSERVICE"))
    if "sslmode" in given or "PGSSLMODE" in os.environ or service is not None:
        return
    hosts = given.get("host", os.environ.get("PGHOST", "")).split(",")
    if given.get("hostaddr"):
        hosts = given["hostaddr"].split(",")
    if all(not host or host.startswith(("/", "@")) or host in _LOOPBACK for host in hosts):
        return
    given["sslmode"] = "verify-full"
    own = Path("~/.postgresql/root.crt").expanduser()
    if "sslrootcert" not in given and "PGSSLROOTCERT" not in os.environ and not own.exists():
        given["sslrootcert"] = "system"
