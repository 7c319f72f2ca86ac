"""From a URL to an open engine.

Rules of this module: a scheme is known in one table, with the options that it takes; options are keyword arguments,
never parts of the URL, and one that an engine does not know is refused, not ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Literal, cast

from kvmodels._support import suggest as spelling
from kvmodels.engines.connect import engine as connect
from kvmodels.engines.contract import Engine
from kvmodels.engines.etcd import engine as etcd
from kvmodels.engines.lmdb import engine as lmdb
from kvmodels.engines.memory import engine as memory
from kvmodels.engines.postgres import engine as postgres
from kvmodels.engines.sqlite import engine as sqlite
from kvmodels.errors import InvalidArgumentError, KvModelsError, UnsupportedError
from kvmodels.limits import Limits

MEMORY = "memory://"
SQLITE = "sqlite://"
LMDB = "lmdb://"
POSTGRES = "postgresql://"
CONNECT = "https://"
PLAIN_CONNECT = "http://"
ETCD = "etcd://"
ENCRYPTED_ETCD = "etcds://"
KNOWN_URLS = (
    "memory://",
    "memory://name",
    "sqlite:///relative/path",
    "sqlite:////absolute/path",
    "sqlite://:memory:",
    "lmdb:///relative/path",
    "lmdb:////absolute/path",
    "postgresql://user@host/database",
    "https://host/path",
    "http://localhost:4512",
    "etcd://host:2379/prefix",
    "etcds://host:2379/prefix",
)

_SIMILAR = 0.75
"""The least similarity of a scheme or an option to a suggested one."""

FILE_OPTIONS = ("allow_network_fs", "busy_timeout", "change_log", "poll_interval", "snapshot_max_age")

OPTIONS = {
    MEMORY: ("change_log", "snapshot_max_age"),
    SQLITE: FILE_OPTIONS,
    LMDB: (*FILE_OPTIONS[:3], "map_size", *FILE_OPTIONS[3:]),
    POSTGRES: (
        "busy_timeout",
        "change_log",
        "create",
        "durable_reads",
        "idle_timeout",
        "poll_interval",
        "pool_size",
        "prepare",
        "schema",
        "snapshot_max_age",
    ),
    CONNECT: ("access_token", "busy_timeout", "pool_size"),
    ETCD: (
        "accept_restore",
        "allow_lossy_server",
        "busy_timeout",
        "cacert",
        "cert",
        "create",
        "key",
        "max_txn_ops",
        "password",
        "snapshot_max_age",
        "user",
    ),
}
"""The options of each engine besides ``limits``, ``durability``, ``clock`` and ``readonly``, which all of them take."""

ENGINES = {
    MEMORY: "the engine in memory",
    SQLITE: "SQLite",
    LMDB: "LMDB",
    POSTGRES: "PostgreSQL",
    CONNECT: "KV Connect",
    ETCD: "etcd",
}

_INSTEAD = {
    (ETCD, "change_log"): "Leave it out: in etcd, keys, prefixes and models can be watched without it.",
}

NO_SUCH_OPTION = "Besides its named arguments the call takes only the options that are listed as expected."

FOR_ETCD = "For an etcd cluster, begin the URL with etcd://, or etcds:// for TLS."

_ETCD_PORT = re.compile(r"https?://[^/?#]*:2379(?![0-9])")
_PASSWORD = re.compile(r"^([^/]*//[^:/@]*:).*@", re.DOTALL)
_PARAMETER = re.compile(r"([?&][^=&]*=)[^&]*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HALF_A_SCHEME = re.compile(r"(memory|sqlite|lmdb|postgresql|etcds?):", re.IGNORECASE)


def open_engine(
    url: str | os.PathLike[str] = MEMORY,
    *,
    limits: Limits | None = None,
    durability: Literal["commit", "relaxed"] = "commit",
    clock: Callable[[], int] | None = None,
    readonly: bool = False,
    **engine_options: Any,
) -> Engine:
    """Open the store that a URL or a path names.

    Args:
        url: ``memory://`` (a new store), ``memory://name`` (shared in this process), a path or ``sqlite:///relative``
            or ``sqlite:////absolute`` (one SQLite file), ``sqlite://:memory:`` (a private SQLite in memory),
            ``lmdb:///relative`` or ``lmdb:////absolute`` (one LMDB folder; needs the extra ``lmdb``),
            ``postgresql://user@host/database`` with libpq's parameters (needs the extra ``postgres``),
            ``https://host/path`` or ``http://localhost:4512`` (a KV Connect database; needs the extra ``connect``),
            ``etcd://h1:2379,h2:2379,h3:2379/prefix`` or ``etcds://`` (an etcd cluster; needs the extra ``etcd``).
        limits: further limits; of each number the smaller one holds.
        durability: ``"commit"`` (a returned commit survives a power loss) or ``"relaxed"`` (a killed process).
            In memory nothing survives either.
        clock: milliseconds since the epoch, for expiry; None for the system's clock.
        readonly: commits raise ReadOnlyError.
        engine_options: ``snapshot_max_age`` in seconds, ``change_log`` in seconds or as a timedelta; for
            SQLite and LMDB also ``busy_timeout`` and ``poll_interval`` in seconds, and ``allow_network_fs``; for
            LMDB also ``map_size`` in bytes; for PostgreSQL ``busy_timeout``, ``poll_interval``, ``schema``,
            ``pool_size``, ``idle_timeout``, ``prepare``, ``create`` and ``durable_reads``; for KV Connect
            ``access_token``, ``busy_timeout`` and ``pool_size``; for etcd ``busy_timeout``, ``cacert``, ``cert``,
            ``key``, ``user``, ``password``, ``max_txn_ops``, ``create``, ``allow_lossy_server`` and ``accept_restore``.

    Raises:
        InvalidArgumentError: the scheme or an option is unknown, or the path makes no sense.
        UnsupportedError: the package that the engine needs is not installed.
        EngineError: what the engine raises when it opens.

    Examples:
        >>> open_engine("memory://").capabilities.traits.persistent
        False
        >>> open_engine("postgres://localhost")
        Traceback (most recent call last):
        ...
        kvmodels.InvalidArgumentError: [KV503] no engine has this scheme (argument='url', ...
    """
    text = _text_of(url)
    if durability not in ("commit", "relaxed"):
        raise InvalidArgumentError(
            "this durability does not exist", argument="durability", value=durability, expected=("commit", "relaxed")
        )
    if not isinstance(cast("object", readonly), bool):
        raise InvalidArgumentError(
            "this is neither True nor False", argument="readonly", value=readonly, hint="Give True or False."
        )
    if clock is not None and not callable(cast("object", clock)):
        raise InvalidArgumentError(
            "this is not a function",
            argument="clock",
            value=clock,
            hint="Give a function that returns milliseconds since the epoch, or None.",
        )
    scheme, path = (None, text) if isinstance(url, os.PathLike) else _split(text)
    if scheme == CONNECT:
        _refuse_unknown_options(engine_options, CONNECT)
        with _hint_about_etcd(text):
            reach = _connect_engine()
            return reach(text, limits, durability=durability, clock=clock, readonly=readonly, **engine_options)
    if scheme == ETCD:
        _refuse_unknown_options(engine_options, ETCD)
        replicated = _etcd_engine()
        return replicated(text, limits, durability=durability, clock=clock, readonly=readonly, **engine_options)
    largest = Limits.LMDB if scheme == LMDB else Limits.EMBEDDED
    bounds = largest if limits is None else limits.within(largest)
    if scheme == MEMORY:
        _refuse_unknown_options(engine_options, MEMORY)
        return memory.MemoryEngine(bounds, url=text, clock=clock, readonly=readonly, **engine_options)
    _refuse_unknown_options(engine_options, scheme or SQLITE)
    if scheme == POSTGRES:
        connect = _postgres_engine()
        return connect(text, bounds, durability=durability, clock=clock, readonly=readonly, **engine_options)
    make: Callable[..., Engine] = _lmdb_engine() if scheme == LMDB else sqlite.SqliteEngine
    return make(path, bounds, url=text, durability=durability, clock=clock, readonly=readonly, **engine_options)


def _lmdb_engine() -> Callable[..., Engine]:
    try:
        return lmdb.LmdbEngine
    except ModuleNotFoundError as missing:
        if missing.name != "lmdb":
            raise
        raise UnsupportedError(
            "the engine needs a package that is not installed",
            reason="lmdb",
            hint="Install it: pip install 'kvmodels[lmdb]'.",
        ) from missing


def _postgres_engine() -> Callable[..., Engine]:
    try:
        return postgres.PostgresEngine
    except ModuleNotFoundError as missing:
        if missing.name not in ("psycopg", "psycopg_binary"):
            raise
        raise UnsupportedError(
            "the engine needs a package that is not installed",
            reason="psycopg",
            hint="Install it: pip install 'kvmodels[postgres]'.",
        ) from missing


def default_codec(url: str | os.PathLike[str]) -> str:
    """Return the name of the codec for the values of a store, where the program does not choose one.

    Examples:
        >>> default_codec("app.db"), default_codec("https://api.deno.com/v2/databases/<id>/connect")
        ('msgpack', 'v8')
    """
    return "v8" if isinstance(url, str) and url.startswith((CONNECT, PLAIN_CONNECT)) else "msgpack"


def _connect_engine() -> Callable[..., Engine]:
    try:
        return connect.ConnectEngine
    except ModuleNotFoundError as missing:
        if missing.name != "httpx2":
            raise
        raise UnsupportedError(
            "the engine needs a package that is not installed",
            reason="httpx2",
            hint="Install it: pip install 'kvmodels[connect]'.",
        ) from missing


@contextmanager
def _hint_about_etcd(text: str) -> Generator[None]:
    """Add to the hint of an error how URLs of etcd begin, if the URL has the port of etcd."""
    try:
        yield
    except KvModelsError as error:
        if _ETCD_PORT.match(text):
            error.hint = f"{error.hint} {FOR_ETCD}" if error.hint else FOR_ETCD
        raise


def _etcd_engine() -> Callable[..., Engine]:
    try:
        return etcd.EtcdEngine
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in ("grpc", "google"):
            raise
        raise UnsupportedError(
            "the engine needs a package that is not installed",
            reason="grpcio" if missing.name.startswith("grpc") else "protobuf",
            hint="Install it: pip install 'kvmodels[etcd]'.",
        ) from missing


def _text_of(url: str | os.PathLike[str]) -> str:
    try:
        text = cast("object", os.fspath(url))
    except TypeError:
        text = None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgumentError(
            "this is neither a URL nor a path", argument="url", value=url, expected="text that is not empty"
        )
    return text


def _split(text: str) -> tuple[str | None, str]:
    """Scheme (None for a plain path) and path of a URL."""
    if text.startswith(MEMORY):
        return MEMORY, text[len(MEMORY) :]
    if text.startswith(SQLITE):
        return SQLITE, _path_in(text, SQLITE)
    if text.startswith(LMDB):
        return LMDB, _path_in(text, LMDB)
    if text.startswith(POSTGRES):
        return POSTGRES, text
    if text.startswith((CONNECT, PLAIN_CONNECT)):
        return CONNECT, text
    if text.startswith((ETCD, ENCRYPTED_ETCD)):
        return ETCD, text
    if match := _SCHEME.match(text):
        scheme = match[0]
        raise InvalidArgumentError(
            "no engine has this scheme",
            argument="url",
            value=_without_secrets(text),
            expected=KNOWN_URLS,
            suggestion=spelling.closest(scheme.lower(), OPTIONS, _SIMILAR),
            hint="Give one of these, or a path for an SQLite file.",
        )
    if match := _HALF_A_SCHEME.match(text):
        raise InvalidArgumentError(
            "the URL lacks a slash",
            argument="url",
            value=text,
            expected=KNOWN_URLS,
            suggestion=MEMORY if match[1].lower() == "memory" else None,
            hint=f"Give one of these; a file of this name is './{text}'.",
        )
    if text.startswith(":"):
        raise InvalidArgumentError(
            "a path does not begin with a colon",
            argument="url",
            value=text,
            expected=KNOWN_URLS,
            suggestion="sqlite://:memory:" if text == sqlite.PRIVATE_MEMORY else f"./{text}",
        )
    return None, text


def _path_in(text: str, scheme: str) -> str:
    rest = text[len(scheme) :]
    if scheme == SQLITE and rest == sqlite.PRIVATE_MEMORY:
        return rest
    if not rest.startswith("/") or rest == "/":
        shown = _without_secrets(text)
        default = "app.db" if scheme == SQLITE else "app.lmdb"
        raise InvalidArgumentError(
            "this URL names no SQLite file" if scheme == SQLITE else "this URL names no LMDB folder",
            argument="url",
            value=shown,
            expected=tuple(known for known in KNOWN_URLS if known.startswith(scheme)),
            suggestion=f"{scheme}/{(rest.strip('/') if shown == text else '') or default}",
        )
    if "?" in rest:
        raise InvalidArgumentError(
            "the URL has parameters",
            argument="url",
            value=_without_secrets(text),
            hint="Options are keyword arguments. For a file name with a question mark give the plain path.",
        )
    return rest[1:]


def _without_secrets(url: str) -> str:
    """The URL as it may be shown: without a password, which may hold any character, and values of parameters."""
    return _PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1***@", url))


def _refuse_unknown_options(given: Iterable[str], scheme: str) -> None:
    for option in given:
        if option not in OPTIONS[scheme]:
            *others, last = [ENGINES[other] for other in OPTIONS if option in OPTIONS[other]] or [""]
            owners = f"{', '.join(others)} and {last}" if others else last
            elsewhere = f"It is an option of {owners}: leave it out, or open a store of such an engine."
            raise InvalidArgumentError(
                "the engine does not have this option",
                argument=option,
                expected=OPTIONS[scheme],
                suggestion=spelling.closest(option, OPTIONS[scheme], _SIMILAR),
                hint=_INSTEAD.get((scheme, option), elsewhere if owners else NO_SUCH_OPTION),
            )
