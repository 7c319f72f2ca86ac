"""Location and options of a store in etcd: its URL, the variables of etcdctl, and the options of the engine.

Rules of this module: passwords are options or variables of the environment, never parts of a URL, and are shown
nowhere: not in errors, not in ``repr``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, cast

from kvmodels.engines.etcd.protocol.session import Credentials
from kvmodels.engines.etcd.protocol.transport import TlsFiles
from kvmodels.errors import InvalidArgumentError
from kvmodels.limits import Limits

PLAIN: Final = "etcd://"
ENCRYPTED: Final = "etcds://"
DEFAULT_PORT: Final = 2379
DEFAULT_PREFIX: Final = "/kvmodels"

DEFAULT_TXN_OPS: Final = 128
LEAST_TXN_OPS: Final = 16
MOST_TXN_OPS: Final = 1_000_000

EXAMPLES: Final = ("etcd://host:2379/prefix", "etcds://h1:2379,h2:2379,h3:2379/prefix", "etcd:///prefix")

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_PREFIX = re.compile(r"(/[A-Za-z0-9._-]+)*")
_CREDENTIALS = re.compile(r"^([^/]*//).*@", re.DOTALL)
_PARAMETER = re.compile(r"([?&][^=&]*=)[^&]*")


class EtcdOptions(NamedTuple):
    """Options of one engine.

    Attributes:
        clock: milliseconds since the epoch; None for that of this machine.
        readonly: commits are refused.
        busy_timeout: seconds that one call may take.
        snapshot_max_age: seconds after which a snapshot expires.
        max_txn_ops: operations in one list of a transaction.
        allow_lossy_server: whether releases that lose commits may be written to.
        accept_restore: whether a store may be adopted that was restored into another cluster.
        create: whether the store is made if it is absent.
    """

    clock: Callable[[], int] | None
    readonly: bool
    busy_timeout: float
    snapshot_max_age: float
    max_txn_ops: int
    allow_lossy_server: bool
    accept_restore: bool
    create: bool


class Location(NamedTuple):
    """Location of a store.

    Attributes:
        endpoints: hosts with their ports.
        prefix: of the keys, which begins with a slash and does not end with one.
        encrypted: whether connections use TLS.
    """

    endpoints: tuple[str, ...]
    prefix: str
    encrypted: bool


class TlsPaths(NamedTuple):
    """The paths of the files for TLS that were given, or None."""

    cacert: str | os.PathLike[str] | None
    cert: str | os.PathLike[str] | None
    key: str | os.PathLike[str] | None


def limits_of(max_txn_ops: int) -> Limits:
    """Return the limits of servers that take so many operations in each list of a transaction.

    A check may be two comparisons and a mutation two changes; one of each is for the store itself.

    Examples:
        >>> limits_of(128) == Limits.ETCD, limits_of(1_024).max_checks, limits_of(1_024).max_mutations
        (True, 511, 508)
    """
    return replace(Limits.ETCD, max_checks=(max_txn_ops - 2) // 2, max_mutations=(max_txn_ops - 8) // 2)


def shown_url(url: str) -> str:
    """Return the URL as messages show it: without credentials and without the values of its parameters.

    Examples:
        >>> shown_url("etcd://user:secret@host/app?token=x")
        'etcd://***@host/app?token=***'
    """
    return _PARAMETER.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", url))


def location_of(url: str) -> Location:
    """Return where the store of a URL is; without hosts in it, ``ETCDCTL_ENDPOINTS`` has them.

    Raises:
        InvalidArgumentError: the URL, or the variable, makes no sense.

    Examples:
        >>> location_of("etcd://h1,h2:2380/app/users")
        Location(endpoints=('h1:2379', 'h2:2380'), prefix='/app/users', encrypted=False)
        >>> location_of("etcds://[::1]").prefix
        '/kvmodels'
    """
    encrypted = url.startswith(ENCRYPTED)
    rest = url[len(ENCRYPTED if encrypted else PLAIN) :]
    hosts, slash, path = rest.partition("/")
    prefix = (slash + path).rstrip("/")
    hint = _hint_about(hosts, prefix)
    if hint is not None:
        raise InvalidArgumentError(
            "this is not the URL of a store in etcd",
            argument="url",
            value=shown_url(url),
            expected=EXAMPLES,
            hint=hint,
        )
    if not hosts:
        endpoints, secure = _endpoints_of_the_environment()
        return Location(endpoints, prefix or DEFAULT_PREFIX, encrypted or secure)
    return Location(tuple([_with_port(one) for one in hosts.split(",")]), prefix or DEFAULT_PREFIX, encrypted)


def _hint_about(hosts: str, prefix: str) -> str | None:
    """Return what is wrong with the parts of a URL; None if nothing is."""
    if "@" in hosts or "@" in prefix:
        return (
            "Leave out the user and the password: they are user= and password=, or ETCDCTL_USER and ETCDCTL_PASSWORD."
        )
    if "?" in prefix or "#" in prefix or "?" in hosts:
        return "Options are keyword arguments, not parts of the URL."
    if hosts and not all(_is_host(one) for one in hosts.split(",")):
        return "Give hosts with ports, separated by commas."
    if _PREFIX.fullmatch(prefix) is None:
        return "The prefix has letters, digits, dots, underscores and hyphens, in parts between single slashes."
    return None


def _is_host(text: str) -> bool:
    match = _HOST.fullmatch(text)
    return match is not None and (match[2] is None or 0 < int(match[2]) < 1 << 16)


def _with_port(host: str) -> str:
    match = _HOST.fullmatch(host)
    assert match is not None, "it was looked at before"
    return host if match[2] else f"{host}:{DEFAULT_PORT}"


def _endpoints_of_the_environment() -> tuple[tuple[str, ...], bool]:
    """Return the endpoints in ``ETCDCTL_ENDPOINTS``, and whether they use TLS."""
    given = os.environ.get("ETCDCTL_ENDPOINTS", "")
    endpoints = [one.strip().rstrip("/") for one in given.split(",") if one.strip()]
    secure = any(one.startswith("https://") for one in endpoints)
    hosts = [re.sub(r"^https?://", "", one) for one in endpoints]
    if not hosts or not all(_is_host(one) for one in hosts):
        raise InvalidArgumentError(
            "no endpoint of an etcd cluster is given",
            argument="url",
            expected=EXAMPLES,
            hint="Name hosts in the URL, or set ETCDCTL_ENDPOINTS to hosts with ports, separated by commas.",
        )
    return tuple([_with_port(one) for one in hosts]), secure


def credentials_of(user: object, password: object) -> Credentials | None:
    """Return the user and the password that were given, or those of the environment; None if there is no user.

    Raises:
        InvalidArgumentError: one of the two is missing, or is not a text.
    """
    for argument, given in (("user", user), ("password", password)):
        if given is not None and not isinstance(given, str):
            raise InvalidArgumentError("this is not a text", argument=argument, hint=f"Give {argument}= as a str.")
    name, colon, secret = os.environ.get("ETCDCTL_USER", "").partition(":")
    name = cast("str", user) if user is not None else name
    if password is not None:
        secret = cast("str", password)
    elif not colon:
        secret = os.environ.get("ETCDCTL_PASSWORD", "")
    if not name:
        return None
    if not secret:
        raise InvalidArgumentError(
            "a user is given without a password",
            argument="password",
            hint="Give password=, or set ETCDCTL_PASSWORD.",
        )
    return Credentials(name, secret)


def tls_of(paths: TlsPaths, *, encrypted: bool) -> TlsFiles | None:
    """Return the contents of the files that were given, or of those of the environment; None without encryption.

    Raises:
        InvalidArgumentError: a file cannot be read, only one of certificate and key is given, or a file is given
            although the URL asks for no encryption.
    """
    given = [one for one in ("cacert", "cert", "key") if getattr(paths, one) is not None]
    if not encrypted:
        if given:
            raise InvalidArgumentError(
                "a file for TLS is given, but the URL asks for no encryption",
                argument=given[0],
                hint="Begin the URL with etcds://.",
            )
        return None
    ca, certificate, key = (
        _content(argument, getattr(paths, argument) or os.environ.get(variable))
        for argument, variable in (("cacert", "ETCDCTL_CACERT"), ("cert", "ETCDCTL_CERT"), ("key", "ETCDCTL_KEY"))
    )
    if (certificate is None) != (key is None):
        raise InvalidArgumentError(
            "a client certificate needs a certificate and its key",
            argument="cert" if certificate is None else "key",
            hint="Give both cert= and key=.",
        )
    return TlsFiles(ca, key, certificate)


def _content(argument: str, path: str | os.PathLike[str] | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except (OSError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            "a file for TLS cannot be read",
            argument=argument,
            value=path,
            hint=f"Give the path of a file in PEM format ({type(error).__name__}).",
        ) from None


def require_sensible_options(options: EtcdOptions) -> None:
    """Refuse options that make no sense, before anything is sent.

    Raises:
        InvalidArgumentError: names the first of them.
    """
    for argument in ("busy_timeout", "snapshot_max_age"):
        seconds: object = options._asdict()[argument]
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < 1e9:
            raise InvalidArgumentError(
                "this is not a positive number of seconds",
                argument=argument,
                value=seconds,
                hint="Give seconds as a number above 0.",
            )
    number = cast("object", options.max_txn_ops)
    if isinstance(number, bool) or not isinstance(number, int) or not LEAST_TXN_OPS <= number <= MOST_TXN_OPS:
        raise InvalidArgumentError(
            "the number of operations in a transaction is too small or not an integer",
            argument="max_txn_ops",
            value=number,
            hint=f"Give the value of --max-txn-ops of the servers, {LEAST_TXN_OPS} or more.",
        )
    for argument in ("readonly", "allow_lossy_server", "accept_restore", "create"):
        flag: object = options._asdict()[argument]
        if not isinstance(flag, bool):
            raise InvalidArgumentError(
                "this is neither True nor False", argument=argument, value=flag, hint="Give True or False."
            )
