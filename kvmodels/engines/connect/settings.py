"""Where a KV Connect database is and how it is used: its URL, the access token, and the options of the engine.

Rules of this module: the access token is sent to the server of the URL and shown nowhere: not in errors, not in
``repr``, not in the URL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

from kvmodels.errors import InvalidArgumentError

TOKEN_VARIABLE: Final = "DENO_KV_ACCESS_TOKEN"  # noqa: S105 - the name of a variable of the environment

EXAMPLES: Final = ("https://api.deno.com/v2/databases/<id>/connect", "http://localhost:4512")

_PARAMETER = re.compile(r"([?&][^=&]*=)[^&]*")
_CREDENTIALS = re.compile(r"^([^/]*//).*@", re.DOTALL)
_TOKEN = re.compile(r"[\x21-\x7e]+")


class ConnectOptions(NamedTuple):
    """Options of one engine; its ``repr`` leaves out the token."""

    access_token: str
    clock: Callable[[], int] | None
    readonly: bool
    busy_timeout: float
    pool_size: int

    def __repr__(self) -> str:
        return f"ConnectOptions(readonly={self.readonly}, busy_timeout={self.busy_timeout}, pool_size={self.pool_size})"


def shown_url(url: str) -> str:
    """Return the URL as messages show it: without credentials and without the values of its parameters."""
    return _PARAMETER.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", url))


def require_database_url(url: str) -> None:
    """Refuse what cannot be the address of a KV Connect database, before anything is sent.

    Raises:
        InvalidArgumentError: there is no host, the port is no number, or the URL has credentials or a fragment.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
        parts = None
    hint = None
    if parts is None or not host or not url.isascii() or any(one <= " " for one in url) or port == 0:
        hint = "Give the URL that a Deno program gives to Deno.openKv()."
    elif "@" in parts.netloc:
        hint = f"Leave out the user and the password: the access token is access_token=, or in {TOKEN_VARIABLE}."
    elif "#" in url:
        hint = "Leave out the fragment, which begins with a number sign."
    if hint is not None:
        raise InvalidArgumentError(
            "this is not the URL of a KV Connect database",
            argument="url",
            value=shown_url(url),
            expected=EXAMPLES,
            hint=hint,
        )


def access_token_of(given: object) -> str:
    """Return the access token that was given, or that of the environment.

    Raises:
        InvalidArgumentError: there is none, or it is no text that a header can hold.
    """
    token = os.environ.get(TOKEN_VARIABLE) if given is None else given
    if not token:
        raise InvalidArgumentError(
            "a KV Connect database needs an access token",
            argument="access_token",
            hint=f"Give access_token=, or set the variable {TOKEN_VARIABLE}.",
        )
    if not isinstance(token, str) or _TOKEN.fullmatch(token) is None:
        raise InvalidArgumentError(
            "the access token is not a text of visible ASCII characters",
            argument="access_token",
            hint="Give the token as the server or the console of Deno shows it, without spaces or line ends.",
        )
    return token


def require_sensible_options(options: ConnectOptions) -> None:
    """Refuse options that make no sense, before anything is sent. Raises InvalidArgumentError."""
    size = cast("object", options.pool_size)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InvalidArgumentError(
            "the size of the pool is not a positive integer", argument="pool_size", value=size, hint="Give 1 or more."
        )
    seconds = cast("object", options.busy_timeout)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < 1e9:
        raise InvalidArgumentError(
            "the time of a call is not a positive number of seconds",
            argument="busy_timeout",
            value=seconds,
            hint="Give seconds as a number above 0.",
        )
