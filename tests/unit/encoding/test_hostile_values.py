"""Whatever bytes a store holds, reading them gives a value or a DecodeError."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from kvmodels.encoding.values import MsgpackCodec
from kvmodels.errors import DecodeError, InvalidValueError
from kvmodels.values import UNDEFINED

CODEC = MsgpackCodec()
SEED = 20260105


def seeds() -> list[bytes]:
    shared: list[Any] = [1, {"a": 2}]
    cycle: dict[Any, Any] = {"list": shared, "again": shared, (1, frozenset({2})): {3, (4,)}}
    cycle["self"] = cycle
    values: list[Any] = [
        {"id": "01ARZ3NDEK", "email": "ada@x.org", "age": 36, "tags": ["a", "b"], "score": 1.5, "none": None},
        cycle,
        [2**70, -(2**70), UNDEFINED, re.compile("a+"), datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)],
        {(1, ("a", b"b")): {frozenset({1, 2}), 3}},
    ]
    return [CODEC.encode(value)[0] for value in values]


def mutations(count: int, seed: int) -> list[bytes]:
    """Random bytes, and valid encodings cut, changed, doubled and spliced."""
    source = random.Random(seed)
    valid = seeds()
    made = []
    for _ in range(count):
        data = bytearray(source.choice(valid))
        match source.randrange(5):
            case 0:
                data = bytearray(source.randbytes(source.randrange(40)))
            case 1:
                del data[source.randrange(len(data)) :]
            case 2:
                at = source.randrange(len(data))
                other = source.choice(valid)
                data[at : at + source.randrange(4)] = other[source.randrange(len(other)) :][: source.randrange(12)]
            case _:
                for _ in range(source.randrange(1, 4)):
                    data[source.randrange(len(data))] = source.choice(
                        [source.randrange(256), source.randrange(0xC0, 0x100)]
                    )
        made.append(bytes(data))
    return made


def written_again(value: Any) -> tuple[bytes, int] | None:
    """The bytes of what was read; None for the one thing that can be read and not be written."""
    try:
        return CODEC.encode(value)
    except InvalidValueError as error:
        if error.type != "tuple":
            raise
        return None


def read_all(count: int, seed: int) -> tuple[int, int]:
    """How many were values and how many DecodeErrors; anything else is raised."""
    values = 0
    for data in mutations(count, seed):
        try:
            value = CODEC.decode(data, 4)
        except DecodeError:
            continue
        values += 1
        encoded = written_again(value)
        if encoded is not None:
            assert CODEC.encode(CODEC.decode(*encoded)) == encoded, data.hex()
    return values, count - values


def test_twenty_thousand_damaged_values_are_values_or_decode_errors():
    values, errors = read_all(20_000, SEED)
    print(f"seed {SEED}: {values} values, {errors} decode errors")
    assert min(values, errors) > 1_000


@pytest.mark.soak
def test_a_million_damaged_values_are_values_or_decode_errors():
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    values, errors = read_all(1_000_000, seed)
    assert min(values, errors) > 50_000
