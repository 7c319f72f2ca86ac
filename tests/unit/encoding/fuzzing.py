"""Reads hostile bytes with both codecs under a limit of memory: a value or a DecodeError, and nothing else.

python -m tests.unit.encoding.fuzzing COUNT SEED
"""

from __future__ import annotations

import json
import random
import re
import resource
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.codecs.v8.codec import V8Codec
from kvmodels.core.values import UNDEFINED, KvArray, KvMap
from kvmodels.errors import DecodeError, InvalidValueError
from tests.source_tree import REPOSITORY

ADDRESS_SPACE = 256 * 2**20

Codec = MsgpackCodec | V8Codec


def values(source: random.Random) -> list[Any]:
    shared: list[Any] = [1, {"a": 2}]
    cycle: dict[Any, Any] = {"list": shared, "again": shared, (1, frozenset({2})): {3, (4,)}}
    cycle["self"] = cycle
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    return [
        {"id": "01ARZ3NDEK", "email": "ada@x.org", "age": 36, "tags": ["a", "b"], "score": 1.5, "none": None},
        cycle,
        deep,
        [2**70, -(2**70), UNDEFINED, re.compile("a+"), datetime(2026, 1, 1, tzinfo=UTC), b"bytes", "日本"],
        {(1, ("a", b"b")): {frozenset({1, 2}), 3}},
        [source.random() for _ in range(20)],
    ]


def valid_encodings(codec: Codec, source: random.Random) -> list[bytes]:
    """Return the output of the codec; for v8, also that of Deno."""
    encoded = [codec.encode(value)[0] for value in values(source)]
    if isinstance(codec, V8Codec):
        encoded += [codec.encode(value)[0] for value in (KvMap({"a": {1: 2}}), KvArray([1], {"x": [2]}))]
        recorded = json.loads((REPOSITORY / "tests/data/deno_values.json").read_text())["values"]
        encoded += [bytes.fromhex(value["hex"]) for value in recorded if value.get("v_encoding") == 1]
    return encoded


def mutated(source: random.Random, valid: list[bytes]) -> bytes:
    """A valid encoding that is cut, changed, doubled or spliced."""
    data = bytearray(source.choice(valid))
    match source.randrange(5):
        case 0:
            del data[source.randrange(len(data)) :]
        case 1:
            at = source.randrange(len(data))
            other = source.choice(valid)
            data[at : at + source.randrange(4)] = other[source.randrange(len(other)) :][: source.randrange(12)]
        case 2:
            at = source.randrange(len(data))
            data[at:at] = data[at : at + source.randrange(1, 9)] * source.randrange(1, 200)
        case _:
            for _ in range(source.randrange(1, 4)):
                data[source.randrange(len(data))] = source.choice(
                    [source.randrange(256), source.randrange(0xC0, 0x100)]
                )
    return bytes(data)


def invented(codec: Codec, source: random.Random, valid: list[bytes]) -> bytes:
    """Random bytes; or bytes out of valid encodings in another order, behind the header that v8 wants."""
    size = source.randrange(60)
    if source.random() < 0.5:
        return source.randbytes(size)
    alphabet = source.choice(valid)
    return (b"\xff\x0f" if isinstance(codec, V8Codec) else b"") + bytes(source.choice(alphabet) for _ in range(size))


def read(codec: Codec, encoding: int, data: bytes) -> bool:
    """Whether the data is a value, which must then come back the same when it is written; False for a DecodeError."""
    try:
        value = codec.decode(data, encoding)
    except DecodeError:
        return False
    if isinstance(codec, V8Codec):
        with suppress(DecodeError):
            codec.decode_document(data, encoding)
    try:
        written = codec.encode(value)
    except InvalidValueError:  # such as a pattern that Python compiles and JavaScript does not
        return True
    assert codec.encode(codec.decode(*written)) == written, data.hex()
    return True


def bombs(codec: Codec) -> list[bytes]:
    """Small or long data that promises far more than it is."""
    if isinstance(codec, MsgpackCodec):
        return [b"\x91" * 2**21, b"\xdd\xff\xff\xff\xff" * 2**18, b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"]
    longest = b"\xff\xff\xff\xff\x0f"
    return [
        b"\xff\x0f" + data
        for data in (
            *(tag + longest for tag in (b'"', b"c", b"S", b"Z", b"z", b"A", b"a", b"B", b"~" + longest, b"^")),
            *(
                tag * 2**20
                for tag in (b"A\x01", b"o", b";", b"'", b"\0A\x01", b"\0'", b"\x00", b"\xff", b"0", b"r.", b"rc")
            ),
            b"a" + longest[:-1] + b"\x00@\x00" + longest,
            b"A\x7f" + b"a\xa0\x8d\x06@\x00\xa0\x8d\x06" * 127 + b"$\x00\x7f",
            b"I" + b"\x80" * 2**21,
            b"D" + b"\xff" * 8,
            b"B\x01aVB\xff\x0f\x01\x00",
        )
    ]


def main(count: int, seed: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    codecs: list[tuple[Codec, int]] = [(MsgpackCodec(), 4), (V8Codec(), 1)]
    for codec, encoding in codecs:
        source = random.Random(seed)
        valid = valid_encodings(codec, source)
        for bomb in bombs(codec):
            assert not read(codec, encoding, bomb), bomb[:20].hex()
        good = 0
        for number in range(count // 2):
            data = mutated(source, valid) if number % 2 else invented(codec, source, valid)
            good += read(codec, encoding, data)
        print(f"{codec.name}: seed {seed}: {good} values, {count // 2 - good} decode errors", flush=True)
        assert good > count // 100, "the inputs no longer reach what lies behind the first check"


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
