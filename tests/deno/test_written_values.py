"""The real Deno reads values of the codec v8, and this library reads those of Deno."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kvmodels.codecs.v8.codec import V8Codec
from kvmodels.core.values import UNDEFINED, KvArray, KvMap, KvU64
from tests.deno.runtime import put, run_deno, stored_again
from tests.source_tree import REPOSITORY
from tests.unit.encoding.graphs import graphs, trees

CODEC = V8Codec()


def cyclic() -> Any:
    inner: list[Any] = [1.0]
    outer: dict[str, Any] = {"inner": [inner, inner]}
    outer["self"] = outer
    return outer


VALUES: list[tuple[Any, Any]] = [
    (None, {"t": "null"}),
    (UNDEFINED, {"t": "undefined"}),
    (True, {"t": "bool", "v": True}),
    (1, {"t": "bigint", "v": "1"}),
    (-(2**64), {"t": "bigint", "v": str(-(2**64))}),
    (2**2048 - 1, {"t": "bigint", "v": str(2**2048 - 1)}),
    (1.0, {"t": "number", "v": "1"}),
    (-0.0, {"t": "number", "v": "-0"}),
    (math.nan, {"t": "number", "v": "NaN"}),
    (2.0**31, {"t": "number", "v": "2147483648"}),
    (0.1, {"t": "number", "v": "0.1"}),
    ("é\x00", {"t": "string", "v": "é\x00"}),
    ("a日😀", {"t": "string", "v": "a日😀"}),
    (b"raw", {"t": "bytes", "v": [114, 97, 119], "buffer": 3}),
    (KvU64(2**64 - 1), {"t": "u64", "v": str(2**64 - 1)}),
    (datetime(2026, 1, 1, 0, 0, 0, 123_456, UTC), {"t": "date", "ms": 1767225600123}),
    (re.compile("a[b/]", re.I | re.S), {"t": "regexp", "source": r"a[b/]", "flags": "is"}),
    ({"0": None, "日": None, "__proto__": None}, None),
    (KvMap({"a": None}), {"t": "map", "v": [[{"t": "string", "v": "a"}, {"t": "null"}]]}),
    ({None: True}, {"t": "map", "v": [[{"t": "null"}, {"t": "bool", "v": True}]]}),
    ({(None,)}, {"t": "set", "v": [{"t": "array", "v": [{"t": "null"}], "properties": []}]}),
    (frozenset({None}), {"t": "set", "v": [{"t": "null"}]}),
    (
        KvArray([None], {"x": True}),
        {"t": "array", "v": [{"t": "null"}], "properties": [["x", {"t": "bool", "v": True}]]},
    ),
    (
        [memoryview(bytes(1000))[10:12]],
        {"t": "array", "v": [{"t": "bytes", "v": [0, 0], "buffer": 2}], "properties": []},
    ),
    (memoryview(b"\xff\xff\xff\xff").cast("I"), {"t": "Uint32Array", "v": ["4294967295"]}),
    (cyclic(), None),
]
DESCRIBED = {
    17: {"t": "object", "v": [["0", {"t": "null"}], ["日", {"t": "null"}], ["__proto__", {"t": "null"}]]},
    25: {
        "t": "object",
        "v": [
            [
                "inner",
                {
                    "t": "array",
                    "v": [{"t": "array", "v": [{"t": "number", "v": "1"}], "properties": []}, {"t": "ref", "id": 2}],
                    "properties": [],
                },
            ],
            ["self", {"t": "ref", "id": 0}],
        ],
    },
}

COMPARED_APART = (8, 15, 20, 25)
"""NaN equals nothing, a Date of Deno has no microseconds, a member has its identity, a cycle no end."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "kv.sqlite3"
    assert run_deno(made) == {}
    return made


def test_deno_reads_what_was_written_and_its_own_copy_is_read_as_equal(file: Path):
    put(file, [CODEC.encode(value) for value, _ in VALUES])
    described = run_deno(file)
    for number, (_, expected) in enumerate(VALUES):
        assert described[number] == (expected or DESCRIBED[number]), number
    copies = [CODEC.decode(*row) for row in stored_again(file)]
    for number, (value, _) in enumerate(VALUES):
        if number not in COMPARED_APART:
            assert copies[number] == value, number
            assert isinstance(copies[number], type(value)) or isinstance(value, frozenset), number
    nan, moment, members, cycle = (copies[number] for number in COMPARED_APART)
    assert math.isnan(nan)
    assert moment == datetime(2026, 1, 1, 0, 0, 0, 123_000, UTC)
    assert [list(member) for member in members] == [[None]]
    assert cycle["self"] is cycle
    assert cycle["inner"][0] is cycle["inner"][1]


def test_deno_computes_with_the_ints_of_a_document(file: Path):
    documents = [{"a": 36, "b": 1.0, "c": 2**53 - 1, "d": 2**53, "e": -0.0, "f": -5, "g": 2.0**40}]
    put(file, [CODEC.encode_document(document) for document in documents])
    [described] = run_deno(file).values()
    assert dict(described["v"]) == {
        "a": {"t": "number", "v": "36"},
        "b": {"t": "number", "v": "1"},
        "c": {"t": "number", "v": "9007199254740991"},
        "d": {"t": "bigint", "v": "9007199254740992"},
        "e": {"t": "number", "v": "-0"},
        "f": {"t": "number", "v": "-5"},
        "g": {"t": "number", "v": "1099511627776"},
    }
    [row] = stored_again(file)
    assert CODEC.decode_document(*row) == documents[0]


@pytest.mark.servers
def test_deno_reads_generated_values_and_what_it_stores_is_read_again(file: Path):
    # One start of Deno for all of them, so they are collected first.
    collected: list[tuple[bytes, int]] = []

    @settings(database=None, max_examples=300, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.one_of(trees, graphs()))
    def collect(value: Any) -> None:
        collected.append(CODEC.encode(value))

    collect()
    put(file, collected)
    assert len(run_deno(file)) == len(collected)
    copies = stored_again(file)
    for ours, theirs in zip(collected, copies, strict=True):
        value, copy = CODEC.decode(*ours), CODEC.decode(*theirs)
        # Deno does not know the marks of a frozenset and of a plain dict among Maps.
        assert isinstance(copy, set if isinstance(value, frozenset) else type(value))
        assert not hasattr(value, "__len__") or len(copy) == len(value)


def test_deno_writes_the_recorded_values_as_it_did(file: Path):
    recorded = json.loads((REPOSITORY / "tests/data/deno_values.json").read_text())["values"]
    stored = [(bytes.fromhex(value["hex"]), value["v_encoding"]) for value in recorded if "hex" in value]
    put(file, stored)
    assert len(run_deno(file)) == len(stored)
    same = sum(row == again for row, again in zip(stored, stored_again(file), strict=True))
    assert same > 100
