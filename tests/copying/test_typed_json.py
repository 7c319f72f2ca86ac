"""Values as JSON: everything that can be stored comes back with its types and its sharing, and nothing else is read."""

from __future__ import annotations

import json
import math
import re
import struct
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels.codecs.base import IdentityDict, IdentityList, IdentityMap, IdentitySet
from kvmodels.codecs.typed_json import key_from_json, key_to_json, parse_line, value_from_json, value_to_json
from kvmodels.core.keys import encode_key
from kvmodels.core.values import UNDEFINED, KvArray, KvMap, KvU64
from tests.unit.encoding.graphs import graphs, isomorphic, trees, typed


def through_text(value):
    return value_from_json(parse_line(json.dumps(value_to_json(value), ensure_ascii=False, allow_nan=False)))


@given(trees)
def test_trees_come_back(value):
    assert isomorphic(through_text(value), value)


@given(graphs())
def test_shared_containers_and_cycles_come_back(value):
    assert isomorphic(through_text(value), value)


parts = st.one_of(
    st.binary(max_size=9),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    st.integers(-(2**2000), 2**2000),
    st.floats(),
    st.booleans(),
)


@given(st.lists(parts, max_size=5).map(tuple))
def test_keys_come_back(key):
    back = key_from_json(parse_line(json.dumps(key_to_json(key))))
    assert encode_key(back) == encode_key(key)


def as_javascript(text):
    """The text after a program with one kind of number has parsed and printed it."""
    return json.dumps(json.loads(text, parse_int=one_kind, parse_float=one_kind))


def one_kind(digits):
    number = float(digits)
    return int(number) if number.is_integer() else number


def test_numbers_survive_a_program_that_knows_one_kind_of_them():
    value = [1.0, 2.0**53, 2**53, -0.0, 1.5, 1e300, 5e-324, 2**64, -(2**70), 0, 1, 2**53 - 1, 1 - 2**53]
    back = value_from_json(parse_line(as_javascript(json.dumps(value_to_json(value)))))
    assert [typed(item) for item in back] == [typed(item) for item in value]


def test_a_chain_of_ten_thousand_lists_comes_back():
    value: list = []
    for _ in range(10_000):
        value = [value]
    assert isomorphic(through_text(value), value)


@pytest.mark.parametrize(
    "value",
    [
        KvU64(2**64 - 1),
        UNDEFINED,
        b"\0\xff",
        datetime(2026, 10, 25, 2, 30, fold=1),
        datetime(1, 1, 1),
        datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=-5, seconds=7, microseconds=3))),
        datetime(2026, 1, 2, tzinfo=UTC),
        re.compile(r"a+", re.IGNORECASE),
        re.compile(rb"\x00", re.DOTALL),
        {"$int": 1, "plain": 2},
        {"": 1},
        {},
        {1: "a", (1, frozenset({2})): "b"},
        10**5000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_of_value_comes_back_with_its_type(value):
    back = through_text(value)
    assert (type(back), back) == (type(value), value)
    if isinstance(value, datetime):
        assert (back.fold, back.tzinfo) == (value.fold, value.tzinfo)


@pytest.mark.parametrize("bits", ["7ff8000000000000", "fff8000000000000", "7ff8000000000001"])
def test_a_nan_keeps_its_bits(bits):
    back = through_text([struct.unpack(">d", bytes.fromhex(bits))[0]])[0]
    assert math.isnan(back)
    assert struct.pack(">d", back).hex() == bits


def test_what_only_deno_has_comes_back():
    array = KvArray([1, UNDEFINED], {"index": 0})
    back = through_text({"map": KvMap({"a": 1}), "array": array, "view": memoryview(b"\1\0\0\0").cast("i")})
    assert type(back["map"]) is KvMap
    assert (type(back["array"]), back["array"], back["array"].properties) == (KvArray, [1, UNDEFINED], {"index": 0})
    assert back["view"].format == "i"
    assert back["view"].tolist() == [1]


def test_containers_that_are_keys_by_identity_come_back_as_such():
    one, other, items, members = IdentityDict(a=1), IdentityDict(a=1), IdentityList([1]), IdentitySet([2])
    source = KvMap({one: "one", other: other, items: 3, IdentityMap({1: 2}): 4, "set": {members, (one, 5)}})
    back = through_text(source)
    assert [type(key) for key in back] == [IdentityDict, IdentityDict, IdentityList, IdentityMap, str]
    first, second = list(back)[:2]
    assert back[second] is second
    assert any(member[0] is first for member in back["set"] if type(member) is tuple)


def test_equal_sets_have_equal_texts():
    names = [f"{number:03}" for number in range(100)]
    assert json.dumps(value_to_json(set(names))) == json.dumps(value_to_json(set().union(reversed(names))))


@pytest.mark.parametrize(
    "form",
    [
        {"$nothing": 1}, {"$int": "12"}, {"$int": 12}, {"$float": "1"}, {"$float": "nan"}, {"$float": 1},
        {"$float": "nan:0000000000000000"}, {"$bytes": "a"}, {"$bytes": 1}, {"$bytes": "a==="}, {"$u64": "-1"},
        {"$u64": "x"}, {"$undefined": 0}, {"$datetime": "noon"}, {"$datetime": []}, {"$datetime": ["2026-01-01", 2]},
        {"$pattern": ["(", 0]}, {"$pattern": [1, 0]}, {"$pattern": "a"}, {"$pattern": ["[[a]", 32]},
        {"$view": ["x", ""]}, {"$view": ["i", "AA=="]}, {"$set": [1, 1]}, {"$set": [[1]]}, {"$set": 1},
        {"$frozenset": [1, 1]}, {"$tuple": 1}, {"$dict": [[1, 2], [1, 3]]}, {"$dict": [[1]]}, {"$dict": {}},
        {"$map": 1}, {"$array": [1]}, {"$identity": [1]}, {"$identity": 1}, {"$identity": {"$set": [1]}, "b": 1},
        {"$ref": 0}, {"$graph": []}, {"$graph": 1}, {"$graph": [1]}, {"$graph": [[{"$ref": 1}]]},
        {"$graph": [[{"$ref": True}]]}, {"$int": "0x1", "a": 1}, {"a": 1, "$int": "0x1"}, {"$set": [], "a": 1},
        [[{"$graph": [[]]}]],
    ],
    ids=json.dumps,
)  # fmt: skip
def test_a_form_that_is_never_written_is_refused(form):
    with pytest.raises(ValueError, match=r"."):
        value_from_json(form)


@pytest.mark.parametrize("form", [None, "a", {}, [None], [[]], [{"$undefined": True}], ["\ud800"], [{"$u64": "1"}]])
def test_a_key_that_is_never_written_is_refused(form):
    with pytest.raises(ValueError, match=r"."):
        key_from_json(form)


@pytest.mark.parametrize("text", ["", "{", "[NaN]", "[Infinity]", "[1e999]", "[" * 100_000, b"\xff", "{}x"])
def test_a_text_that_is_no_json_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        value_from_json(parse_line(text))


def test_a_value_of_an_unknown_type_is_refused():
    with pytest.raises(ValueError, match="object"):
        value_to_json([object()])
