"""Sealed values: AES-256-GCM under keys that are derived for each field, and blind values for indexes.

A sealed value is ``kve1``, the id of its master key in 4 bytes, 13 random bytes, the ciphertext and its tag. The first
random byte chooses one of 256 keys, the other twelve are the nonce, so one field takes 2**40 values before the limit of
random nonces. Each key comes from the master key by HKDF-SHA256 with the collection, the field and that byte. The
primary key of the record, the collection and the field are associated data: a value that is moved to another record or
field is not opened.

A blind value is the HMAC-SHA256 of a packed column under a key of its own, cut to 16 bytes: equal values of one field
have equal blind values, and without the key no value can be tried.

Rules of this module: pure; random bytes are given. The package is loaded with this module, so a program without
encrypted fields does not need it.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Final

from kvmodels.core.keys import encode_key
from kvmodels.errors import UnsupportedError

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ModuleNotFoundError as missing:
    if missing.name is None or missing.name.partition(".")[0] != "cryptography":
        raise
    raise UnsupportedError(
        "encrypted fields need a package that is not installed",
        reason="cryptography",
        hint="Install it: pip install 'kvmodels[crypto]'.",
    ) from missing

MAGIC: Final = b"kve1"
RANDOM_BYTES: Final = 13
BLIND_BYTES: Final = 16
OVERHEAD: Final = len(MAGIC) + 4 + RANDOM_BYTES + 16
"""The bytes that a sealed value has more than its plaintext."""

_RANDOM: Final = len(MAGIC) + 4
_CIPHERTEXT: Final = _RANDOM + RANDOM_BYTES


def key_id_of(sealed: object) -> int | None:
    """Return the id of the key of a sealed value; None for bytes that are none."""
    if type(sealed) is not bytes or len(sealed) < OVERHEAD or not sealed.startswith(MAGIC):
        return None
    return int.from_bytes(sealed[len(MAGIC) : _RANDOM], "big")


class CollectionKeys:
    """The keys that one master key gives one collection, each derived at first use."""

    def __init__(self, master: bytes, collection: str) -> None:
        self._master = master
        self._collection = collection
        self._ciphers: dict[tuple[str, int], AESGCM] = {}
        self._blind: dict[str, bytes] = {}
        self.check = self._derived("check").hex()[:16]
        """The check value: processes that have different keys under one id have different ones."""

    def _derived(self, *use: str, byte: bytes = b"") -> bytes:
        info = encode_key(("kve1", self._collection, *use)) + byte
        return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(self._master)

    def _cipher(self, field: str, byte: int) -> AESGCM:
        found = self._ciphers.get((field, byte))
        if found is None:
            found = AESGCM(self._derived("value", field, byte=bytes((byte,))))
            self._ciphers[field, byte] = found
        return found

    def seal(self, key_id: int, field: str, pk: bytes, plain: bytes, random: bytes) -> bytes:
        """Return the sealed value of a field of the record with a packed primary key."""
        sealed = self._cipher(field, random[0]).encrypt(random[1:], plain, self._bound(field, pk))
        return MAGIC + key_id.to_bytes(4, "big") + random + sealed

    def open(self, field: str, pk: bytes, sealed: bytes) -> bytes | None:
        """Return the plaintext; None if the value was changed, moved, or sealed with another key."""
        cipher = self._cipher(field, sealed[_RANDOM])
        try:
            return cipher.decrypt(sealed[_RANDOM + 1 : _CIPHERTEXT], sealed[_CIPHERTEXT:], self._bound(field, pk))
        except InvalidTag:
            return None

    def _bound(self, field: str, pk: bytes) -> bytes:
        return encode_key((self._collection, field)) + pk

    def blind(self, field: str, part: bytes) -> bytes:
        """Return the blind value of a packed column."""
        key = self._blind.get(field)
        if key is None:
            key = self._blind[field] = self._derived("blind", field)
        return hmac.digest(key, part, sha256)[:BLIND_BYTES]
