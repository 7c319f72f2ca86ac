"""Stores that are served, and the tokens that open them.

Rules of this module: tokens are compared in constant time and never shown. A client exchanges its access token for a
token of the data path, which ends by itself. It is signed with the access token, so the server stores nothing, clients
survive a restart, and a removed access token ends its tokens of the data path.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import Final, cast
from uuid import UUID, uuid5

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.api._async.database import AsyncDatabase
from kvmodels.api._async.kv import AsyncKv
from kvmodels.api._sync.database import Database
from kvmodels.api._sync.kv import Kv
from kvmodels.api.opening import Opening
from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.kv.store_format import StoreFormat

_TOKEN: Final = re.compile("[!-~]{12,}")
"""The minimum of 12 characters is that of Deno's own servers."""

_MAX_EXPIRY_DIGITS: Final = 12

_IDS: Final = UUID("5f1d1b0e-3a5c-4c33-9a53-4b8f3f0c6c53")
_parts_of: Final = cast("Callable[[object], tuple[Opening, StoreFormat]]", attrgetter("_opening", "_form"))


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token that opens a store, and the rights of its owner.

    Attributes:
        token: the secret, at least 12 visible characters; it is not part of the ``repr``.
        readonly: whether every write is refused.
        model_writes: whether keys of models and of kvmodels itself may be written. Grant it only to programs that keep
            indexes consistent, which are those of kvmodels.

    Raises:
        InvalidArgumentError: the token is too short, or has characters that a bearer token cannot have.

    Examples:
        >>> AccessToken("only-for-reading", readonly=True)
        AccessToken(readonly=True, model_writes=False)
    """

    token: str
    readonly: bool = False
    model_writes: bool = False

    def __post_init__(self) -> None:
        given = cast("object", self.token)
        if not (isinstance(given, str) and _TOKEN.fullmatch(given)):
            raise InvalidArgumentError(
                "an access token is too short, or has spaces or invisible characters",
                argument="token",
                hint="Give 12 or more visible ASCII characters, such as those of secrets.token_urlsafe().",
            )

    def __repr__(self) -> str:
        return f"AccessToken(readonly={self.readonly}, model_writes={self.model_writes})"

    def data_token(self, database_id: UUID, expires_s: int) -> str:
        """Return the token of the data path until this second of the epoch."""
        return f"{expires_s}.{self._signature(database_id, expires_s)}"

    def accepts(self, given: str, database_id: UUID, now_s: float) -> bool:
        """Return whether a token of the data path was made with this access token and has not ended."""
        expires, _, signature = given.partition(".")
        if not (expires.isascii() and expires.isdigit() and len(expires) < _MAX_EXPIRY_DIGITS):
            return False
        return equal(signature, self._signature(database_id, int(expires))) and now_s < int(expires)

    def _signature(self, database_id: UUID, expires_s: int) -> str:
        return hmac.new(self.token.encode(), f"{database_id} {expires_s}".encode(), sha256).hexdigest()


def equal(one: str, other: str) -> bool:
    """Compare secrets in a time that does not depend on them."""
    return hmac.compare_digest(one.encode(), other.encode())


@dataclass(frozen=True, slots=True)
class ServedStore:
    """A store that is served under a path.

    Attributes:
        store: an open store with the codec ``"v8"``: ``Database``, ``AsyncDatabase``, ``Kv`` or ``AsyncKv``. It stays
            yours: close it after the server has ended.
        tokens: the access tokens that open it.
        path: where it is served, such as ``"/shop"``; Deno opens ``https://host/shop``.

    Raises:
        InvalidArgumentError: there is no token, a token is given twice, the path is invalid, or the store has another
            codec or is a namespace.

    Examples:
        >>> from kvmodels import open_kv
        >>> with open_kv(codec="v8") as kv:
        ...     shared = ServedStore(kv, [AccessToken("a-long-secret")], path="/shop")
    """

    store: Database | AsyncDatabase | Kv | AsyncKv
    tokens: Sequence[AccessToken]
    path: str = "/"

    def __post_init__(self) -> None:
        secrets = [one.token for one in self.tokens]
        if not secrets or len(set(secrets)) < len(secrets):
            raise InvalidArgumentError(
                "a shared store needs access tokens, each of them once",
                argument="tokens",
                hint="Give a list of AccessToken objects.",
            )
        rest = self.path.removeprefix("/")
        if not self.path.startswith("/") or (rest and not all(map(_is_segment, rest.split("/")))):
            raise InvalidArgumentError(
                "this is not a path of a shared store",
                argument="path",
                hint="Write '/', or letters, digits, '-' and '_' between slashes, such as '/shop'.",
            )
        if not isinstance(self.store, Database | AsyncDatabase):
            _require_shareable(self.parts()[1])

    @property
    def database_id(self) -> UUID:
        """The id that clients send with every request; it depends on the path, so a restart does not change it."""
        return uuid5(_IDS, self.path)

    def parts(self) -> tuple[Opening, StoreFormat]:
        """Return the opening of the engine, and the format of keys and values.

        Raises:
            ClosedError: the database is not open.
            InvalidArgumentError: the store has another codec, or is a namespace.
        """
        store = self.store
        opening, form = _parts_of(store.kv if isinstance(store, Database | AsyncDatabase) else store)
        _require_shareable(form)
        return opening, form

    def access(self, token: str) -> AccessToken | None:
        """Return the access token that equals a given one."""
        found = None
        for one in self.tokens:  # all of them, so that the time does not depend on their order
            if equal(one.token, token):
                found = one
        return found


def _is_segment(text: str) -> bool:
    return text.isascii() and text.replace("-", "").replace("_", "").isalnum() and text != "v2"


def _require_shareable(form: StoreFormat) -> None:
    if form.codec.name != "v8" or form.root:
        raise InvalidArgumentError(
            "this store cannot be shared with Deno",
            argument="store",
            hint='Open it with codec="v8", the encoding of Deno, and share the whole store instead of a namespace.',
        )
