"""Known answers: a sealed value, a blind value and a check value are made as the page on the layout says."""

from __future__ import annotations

import hmac
from hashlib import sha256

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kvmodels import Database, KeyRing
from kvmodels.codecs.sealing.cipher import CollectionKeys, key_id_of
from kvmodels.core.keys import encode_key
from tests.encryption.models import ONE, RING, TWO, Patient, patient

RANDOM = bytes(range(100, 113))

CHECK = "1d73d4be9380c7a4"

SEALED = (
    "6b76653100000001"  # kve1, key 1
    "6465666768696a6b6c6d6e6f70"
)


def derived(master: bytes, *use: str, byte: bytes = b"") -> bytes:
    """HKDF-SHA256 of one block, written out."""
    extracted = hmac.digest(bytes(32), master, sha256)
    return hmac.digest(extracted, encode_key(("kve1", "patients", *use)) + byte + b"\x01", sha256)


def test_a_sealed_value_is_that_of_the_formula():
    sealed = CollectionKeys(ONE, "patients").seal(1, "name", encode_key((7,)), b"\x04\xa3Ada", RANDOM)
    cipher = AESGCM(derived(ONE, "value", "name", byte=RANDOM[:1]))
    bound = encode_key(("patients", "name")) + encode_key((7,))
    assert sealed.hex() == SEALED + cipher.encrypt(RANDOM[1:], b"\x04\xa3Ada", bound).hex()
    assert key_id_of(sealed) == 1


def test_a_blind_value_and_a_check_value_are_those_of_the_formula():
    keys = CollectionKeys(TWO, "patients")
    part = encode_key(("i-7",))
    assert keys.blind("insurance", part) == hmac.digest(derived(TWO, "blind", "insurance"), part, sha256)[:16]
    assert keys.check == derived(TWO, "check").hex()[:16]


def test_the_recorded_bytes_stay():
    keys, part = CollectionKeys(ONE, "patients"), encode_key(("i-7",))
    assert keys.check == CHECK
    assert keys.blind("insurance", part).hex() == "3d2bed0b56c5827099d40dafcec5bf62"
    assert keys.seal(1, "name", encode_key((7,)), b"\x04\xa3Ada", RANDOM).hex() == (
        "6b766531000000016465666768696a6b6c6d6e6f700d9d0db0dde0989cb362c374b1ae1b37d2a0928c0c"
    )


def test_the_first_random_byte_chooses_the_key():
    keys = CollectionKeys(ONE, "patients")
    one, other = (keys.seal(1, "name", b"", b"x", bytes([byte]) + bytes(12)) for byte in (0, 1))
    assert one[21:] != other[21:]
    assert keys.open("name", b"", one) == keys.open("name", b"", other) == b"x"
    assert keys.open("other", b"", one) is None
    assert keys.open("name", b"\x01", one) is None


def test_the_header_names_the_key_its_check_value_and_the_fields():
    with Database("memory://", models=[Patient], keys=RING) as db:
        db[Patient].insert(patient(1))
        header = db.kv.unsafe().get(("__kvmodels__", "header")).value
    assert header["collections"]["patients"]["encrypted"] == {
        "current": 1,
        "keys": {"1": CHECK},
        "fields": {"name": 1, "insurance": 1, "city": 1, "tags": 1, "notes": 1},
        "plain": {},
    }


def test_a_new_collection_begins_with_the_lowest_id_of_the_ring():
    with Database("memory://", models=[Patient], keys=KeyRing({5: TWO, 3: ONE, 1: bytes(32)})) as db:
        db[Patient].insert(patient(1))
        assert key_id_of(db.kv.get(("patients", 1)).value["name"]) == 1
