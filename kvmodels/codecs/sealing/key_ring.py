"""The master keys of a program: a ring of keys, or any object that returns a key by its id.

Rules of this module: a key never appears in a ``repr``, an error or a log. A source is asked by the drivers and never
by a flow itself, because it may ask a service on the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, cast

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels.errors import InvalidArgumentError

KEY_BYTES: Final = 32
LARGEST_ID: Final = 2**32 - 1

_HINT: Final = "Give ids from 1 on, each with 32 random bytes: KeyRing({1: key}), such as of os.urandom(32)."


class KeyProvider(Protocol):
    """Any object with this method gives a database its keys, such as a client of a key service."""

    def get(self, key_id: int, /) -> bytes:
        """Return the 32 bytes of a master key; raises LookupError if there is none with this id."""
        ...


class KeyRing:
    """The master keys of encrypted fields, by id.

    A new collection begins with the lowest id of the ring. ``db.rotate(Model, to=id)`` changes to another one.

    Args:
        keys: for each id, a whole number from 1 on, a key of 32 random bytes.

    Raises:
        InvalidArgumentError: there is no key, an id is not a whole number from 1 on, or a key has another length.

    Examples:
        >>> ring = KeyRing({1: bytes(32), 2: bytes(range(32))})
        >>> ring
        KeyRing(ids=(1, 2))
        >>> len(ring.get(2))
        32
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Mapping[int, bytes]) -> None:
        given = cast("object", keys)
        if not isinstance(given, Mapping) or not keys:
            raise InvalidArgumentError(
                "a ring of keys has no keys", argument="keys", value=type(keys).__name__, hint=_HINT
            )
        for key_id, key in cast("Mapping[Any, Any]", keys).items():
            require_id("keys", key_id)
            require_key(key_id, key)
        self._keys = {key_id: bytes(keys[key_id]) for key_id in sorted(keys)}

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the keys, in ascending order."""
        return tuple(self._keys)

    def get(self, key_id: int, /) -> bytes:
        """Return the key with an id.

        Raises:
            LookupError: the ring has none.
        """
        return self._keys[key_id]

    def __repr__(self) -> str:
        return f"KeyRing(ids={self.ids})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a ring of keys is not pickled, because the pickle would hold the keys")


def require_id(argument: str, key_id: object) -> int:
    """Return the id of a key. Raises InvalidArgumentError."""
    if type(key_id) is not int or not 1 <= key_id <= LARGEST_ID:
        raise InvalidArgumentError(
            "the id of a key is not a whole number from 1 on", argument=argument, value=short_repr(key_id), hint=_HINT
        )
    return key_id


def require_key(key_id: int, key: object) -> bytes:
    """Return a key that a source has returned. Raises InvalidArgumentError, without the key."""
    if not isinstance(key, bytes | bytearray) or len(key) != KEY_BYTES:
        raise InvalidArgumentError(
            "a key does not have 32 bytes", argument="keys", value=f"the key with id {key_id}", hint=_HINT
        )
    return bytes(key)


class KeyCache:
    """The keys that a database has asked its source for: each id once, unless the source had none.

    Attributes:
        first: the id that a new collection begins with: the lowest of a ring, 1 of any other source.
        random: returns so many random bytes.
    """

    def __init__(self, source: KeyProvider | None, random: Callable[[int], bytes]) -> None:
        self._source = source
        self._known: dict[int, bytes] = {}
        self.random = random
        self.first = 1
        if isinstance(source, KeyRing):
            self.first = source.ids[0]
            self._known.update((key_id, source.get(key_id)) for key_id in source.ids)
        elif source is not None and not callable(getattr(source, "get", None)):
            raise InvalidArgumentError(
                "this is not a source of keys",
                argument="keys",
                value=type(source).__name__,
                hint="Give a KeyRing({1: key}), or an object whose get(key_id) returns 32 bytes.",
            )

    def __repr__(self) -> str:
        return f"KeyCache(ids={tuple(self._known)})"

    def key(self, key_id: int | None) -> bytes | None:
        """Return a key that is known; None if the source has none with this id, or was not asked yet."""
        return None if key_id is None else self._known.get(key_id)

    def unknown(self, ids: Iterable[int]) -> tuple[int, ...]:
        """Return the ids that the source must be asked for."""
        if self._source is None or isinstance(self._source, KeyRing):
            return ()
        return tuple(key_id for key_id in dict.fromkeys(ids) if key_id not in self._known)

    def ask(self, ids: Iterable[int]) -> None:
        """Ask the source for some keys; those that it does not have stay unknown."""
        for key_id in self.unknown(ids):
            assert self._source is not None, "nothing is unknown without a source"
            try:
                key = self._source.get(key_id)
            except LookupError:
                continue
            if cast("object", key) is not None:
                self._known[key_id] = require_key(key_id, key)


show_public_path(KeyRing, KeyProvider)
