"""Every value recorded from the real Deno is read as what it is, and written so that it is the same again."""

from __future__ import annotations

import json
import math
import re
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kvmodels.codecs.v8.codec import V8Codec
from kvmodels.core.values import UNDEFINED, KvArray, KvMap, KvU64
from kvmodels.errors import DecodeError
from tests.source_tree import REPOSITORY

CODEC = V8Codec()
RECORDED = json.loads((REPOSITORY / "tests/data/deno_values.json").read_text())["values"]
STORED = [value for value in RECORDED if "hex" in value]

NOT_IN_PYTHON = {
    '"\\ud800"': "a string with a lone surrogate",
    '"a\\udc00b"': "a string with a lone surrogate",
    "new Date(NaN)": "a Date that Python's datetime cannot hold",
    "new Date(8.64e15)": "a Date that Python's datetime cannot hold",
}
FORMATS = {"Uint32Array": "I", "Float32Array": "f", "BigInt64Array": "q", "BigUint64Array": "Q"}
SCALARS = frozenset({"undefined", "null", "bool", "number", "string", "bigint", "u64"})


class Comparison:
    """Compares a value with its recorded description; objects are numbered as they are met."""

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}
        self.buffers: dict[int, bytes] = {}

    def check(self, value: Any, described: dict[str, Any]) -> None:
        kind = described["t"]
        if kind == "ref" and described["id"] in self.buffers:
            assert value == self.buffers[described["id"]]
            return
        if kind == "ref":
            assert value is self.objects[described["id"]]
            return
        if "id" in described:
            self.objects[described["id"]] = value
        if kind in SCALARS:
            self.scalar(value, described)
        else:
            getattr(self, "raw_bytes" if kind == "bytes" else kind)(value, described)

    def scalar(self, value: Any, described: dict[str, Any]) -> None:
        expected: Any = {
            "undefined": lambda: UNDEFINED,
            "null": lambda: None,
            "number": lambda: struct.unpack(">d", bytes.fromhex(described["hex"]))[0],
            "bigint": lambda: int(described["v"]),
            "u64": lambda: KvU64(int(described["v"])),
        }.get(described["t"], lambda: described["v"])()
        assert type(value) is type(expected)
        if isinstance(expected, float):
            assert struct.pack(">d", value) == struct.pack(">d", expected)
        else:
            assert value == expected

    def array(self, value: Any, described: dict[str, Any]) -> None:
        kept: dict[str, Any] = getattr(value, "properties", {})
        properties = {key["v"]: item for key, item in described.get("props", ())}
        assert isinstance(value, KvArray if set(properties) - set(map(str, range(len(value)))) else list)
        assert len(value) == described["length"]
        for position, item in enumerate(value):
            hole = {"t": "undefined"}
            listed = described["v"][position] if "v" in described else properties.pop(str(position), hole)
            self.check(item, hole if listed["t"] == "hole" else listed)
        assert set(kept) == set(properties)
        for name, item in properties.items():
            self.check(kept[name], item)

    def object(self, value: Any, described: dict[str, Any]) -> None:
        assert isinstance(value, dict)
        assert not isinstance(value, KvMap)
        assert list(value) == [key["v"] for key, _ in described["v"]]
        for (_, item), found in zip(described["v"], value.values(), strict=True):
            self.check(found, item)

    def map(self, value: Any, described: dict[str, Any]) -> None:
        assert isinstance(value, KvMap)
        assert len(value) == len(described["v"])
        for (key, item), (found_key, found) in zip(described["v"], value.items(), strict=True):
            self.check(found_key, key)
            self.check(found, item)

    def set(self, value: Any, described: dict[str, Any]) -> None:
        assert isinstance(value, set)
        assert len(value) == len(described["v"])
        for member in described["v"]:
            assert sum(self.matches(found, member) for found in value) == 1

    def matches(self, value: Any, described: dict[str, Any]) -> bool:
        try:
            self.check(value, described)
        except AssertionError:
            return False
        return True

    def raw_bytes(self, value: Any, described: dict[str, Any]) -> None:
        assert value == bytes.fromhex(described["hex"])

    arraybuffer = raw_bytes

    def typedarray(self, value: Any, described: dict[str, Any]) -> None:
        start, size = described["byteOffset"], described["byteLength"]
        buffer = described["buffer"]
        if buffer["t"] == "arraybuffer":
            self.buffers[buffer["id"]] = bytes.fromhex(buffer["hex"])
        window = self.buffers[buffer["id"]][start : start + size]
        if described["type"] in FORMATS:
            assert isinstance(value, memoryview)
            assert (value.format, value.tobytes()) == (FORMATS[described["type"]], window)
        else:
            assert value == window

    def date(self, value: Any, described: dict[str, Any]) -> None:
        (milliseconds,) = struct.unpack(">d", bytes.fromhex(described["ms_hex"]))
        assert value == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
        assert value.tzinfo is UTC

    def regexp(self, value: Any, described: dict[str, Any]) -> None:
        assert isinstance(value, re.Pattern)
        assert value.pattern == described["source"]["v"]
        for letter, flag in {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}.items():
            assert bool(value.flags & flag) == (letter in described["flags"])

    def boxed(self, value: Any, described: dict[str, Any]) -> None:
        self.check(value, described["v"])

    def error(self, value: Any, described: dict[str, Any]) -> None:
        assert value == {"name": described["name"], "message": described["message"]["v"]}


@pytest.mark.parametrize("recorded", STORED, ids=lambda recorded: recorded["expr"][:40])
def test_what_deno_stored_is_read_as_what_it_is(recorded: dict[str, Any]):
    data, encoding = bytes.fromhex(recorded["hex"]), recorded["v_encoding"]
    reason = NOT_IN_PYTHON.get(recorded["expr"])
    if reason is not None:
        with pytest.raises(DecodeError) as caught:
            CODEC.decode(data, encoding, b"\x02a\x00")
        assert (caught.value.reason, caught.value.key) == (reason, ("a",))
        return
    value = CODEC.decode(data, encoding)
    Comparison().check(value, recorded["value"])
    written = CODEC.encode(value)
    assert CODEC.encode(CODEC.decode(*written)) == written


def test_most_recorded_values_are_written_with_the_very_bytes_of_deno():
    same = 0
    for recorded in STORED:
        if recorded["expr"] in NOT_IN_PYTHON:
            continue
        data, encoding = CODEC.encode(CODEC.decode(bytes.fromhex(recorded["hex"]), recorded["v_encoding"]))
        same += data.hex() == re.sub("^ff10", "ff0f", recorded["hex"]) and encoding == recorded["v_encoding"]
    assert same == 88


def test_the_exceptions_are_recorded():
    assert {recorded["expr"] for recorded in STORED} >= set(NOT_IN_PYTHON)
    assert (len(RECORDED), len(STORED)) == (123, 117)


def test_a_number_that_python_counts_as_an_index_is_the_name_of_a_property():
    value = CODEC.decode(bytes.fromhex("ff0f6f4e0000c0ffffffef4149027b01"), 1)
    assert value == {"4294967294": 1.0}
    assert math.copysign(1, CODEC.decode(bytes.fromhex("ff0f4e0000000000000080"), 1)) == -1
