"""Particulars of the codec v8: bytes of Deno, marks that JavaScript does not see, types that JavaScript lacks."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from kvmodels.codecs.v8.codec import V8Codec
from kvmodels.core.values import UNDEFINED, KvArray, KvMap, KvU64
from kvmodels.errors import DecodeError, InvalidValueError
from tests.source_tree import REPOSITORY

CODEC = V8Codec()
PAGE = REPOSITORY / "docs/design/0004-v8-values.md"


def v8(text: str) -> bytes:
    return b"\xff\x0f" + bytes.fromhex(text)


def read(text: str) -> Any:
    return CODEC.decode(v8(text), 1)


def again(value: Any) -> Any:
    return CODEC.decode(*CODEC.encode(value))


def shared() -> Any:
    inner: list[Any] = []
    return [inner, inner]


GOLDEN: list[tuple[Any, str]] = [
    (None, "30"),
    (UNDEFINED, "5f"),
    (True, "54"),
    (1, "5a 10 0100000000000000"),
    (1.0, "49 02"),
    (1.5, "4e 000000000000f83f"),
    (-0.0, "4e 0000000000000080"),
    ("é", "22 01 e9"),
    ("日", "63 02 e565"),
    ([b"a"], "41 01 42 01 61 56 42 00 01 00 24 00 01"),
    ({"a": None}, "6f 22 01 61 30 7b 01"),
    ({1: None}, "00 3b 5a 10 0100000000000000 30 3a 02"),
    (KvMap({"a": None}), "3b 22 01 61 30 3a 02"),
    ({"b", "a"}, "27 22 01 61 22 01 62 2c 02"),
    (frozenset({None}), "00 27 30 2c 01"),
    ({(True,)}, "27 00 41 01 54 24 00 01 2c 01"),
    (datetime(1970, 1, 1, tzinfo=UTC), "44 0000000000000000"),
    (re.compile("a", re.IGNORECASE), "52 22 01 61 02"),
    (shared(), "41 02 41 00 24 00 00 5e 01 24 00 02"),
    (KvArray([], {"a": None}), "41 00 22 01 61 30 24 01 00"),
    (memoryview(b"\x01\x00\x02\x00").cast("H"), "42 04 01000200 56 57 00 04 00"),
]
DOCUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"a": 1}, "6f 22 01 61 49 02 7b 01"),
    ({"a": 1.0}, "6f 22 01 61 00 4e 000000000000f03f 7b 01"),
    ({"a": 2**53 - 1}, "6f 22 01 61 4e ffffffffffff3f43 7b 01"),
    ({"a": 2**53}, "6f 22 01 61 5a 10 0000000000002000 7b 01"),
]


@pytest.mark.parametrize(
    ("value", "text"), GOLDEN, ids=lambda part: part if isinstance(part, str) else type(part).__name__
)
def test_the_bytes_of_a_value_are_a_promise(value: Any, text: str):
    assert CODEC.encode(value) == (v8(text), 1)
    found = read(text)
    assert found == value
    assert type(found) is type(value)
    assert f"`{text}`" in PAGE.read_text()


@pytest.mark.parametrize(("document", "text"), DOCUMENTS, ids=lambda part: str(part)[:30])
def test_the_numbers_of_a_document_are_a_promise(document: dict[str, Any], text: str):
    assert CODEC.encode_document(document) == (v8(text), 1)
    found = CODEC.decode_document(v8(text), 1)
    assert (found, type(found["a"])) == (document, type(document["a"]))
    assert f"`{text}`" in PAGE.read_text()


def test_version_16_which_deno_writes_is_read_as_15():
    assert CODEC.decode(bytes.fromhex("ff104902"), 1) == 1.0
    for header in ("ff0e", "ff11", "fe0f", "ff"):
        with pytest.raises(DecodeError, match="versions 15 and 16"):
            CODEC.decode(bytes.fromhex(header + "4902"), 1)


def test_an_integral_number_that_javascript_wrote_into_a_document_is_an_int():
    wrote = "6f 2201 61 4e 0000000000007042 2201 62 4e 0000000000007043 2201 63 49 04 2201 64 55 05 7b 04"
    document = CODEC.decode_document(v8(wrote), 1)
    assert document == {"a": 2**40, "b": 2.0**56, "c": 2, "d": 5}
    assert [type(value) for value in document.values()] == [int, float, int, int]


def test_sets_have_the_same_bytes_whatever_their_order():
    names = [f"name {number}" for number in range(50)]
    members = {(name, frozenset({name, 1})) for name in names}
    grown: set[Any] = set(range(10_000))  # a larger table lists its members in another order
    grown |= members
    grown -= set(range(10_000))
    assert list(grown) != list(members)
    assert CODEC.encode(grown) == CODEC.encode(members)


# -- containers as keys and members


def test_a_container_that_is_a_member_is_compared_by_identity():
    first, second = sorted(read("27 41 00 24 00 00 41 00 24 00 00 2c 02"), key=id)
    assert (first == second, list(first), list(second)) == (False, [], [])


def test_a_map_that_holds_itself_as_key_and_value_is_read_and_written():
    found = read("3b 22 01 6d 5e 00 5e 00 30 3a 04")
    assert isinstance(found, KvMap)
    assert found["m"] is found
    assert found[found] is None
    assert CODEC.encode(found)[0] == v8("3b 22 01 6d 5e 00 5e 00 30 3a 04")


def test_a_container_that_turns_out_to_be_a_member_is_one_object_everywhere():
    found = read("41 02 6f 7b 00 27 5e 01 2c 01 24 00 02")
    assert next(iter(found[1])) is found[0]


def test_members_and_keys_that_python_takes_for_equal_are_decode_errors():
    for text in ("27 49 02 5a 10 0100000000000000 2c 02", "3b 54 30 49 02 30 3a 04"):
        with pytest.raises(DecodeError, match="equal in Python"):
            read(text)


def test_the_properties_of_an_array_are_kept_even_if_it_was_referred_to_before_they_were_read():
    found = read("41 01 5e 00 22 01 78 30 24 01 01")
    assert (type(found), found.properties, found[0] is found) == (KvArray, {"x": None}, True)


# -- what Python has no type for


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("6e 000000000000f83f", 1.5),
        ("7a 10 0700000000000000", 7),
        ("73 22 01 61", "a"),
        ("79", True),
        ("53 02 c3a9", "é"),
        (
            "72 54 6d 22 01 6d 73 22 01 73 63 49 02 2e",
            {"name": "TypeError", "message": "m", "stack": "s", "cause": 1.0},
        ),
        ("42 02 6162", b"ab"),
        ("7e 02 04 6162 56 42 01 00 03", b"b"),
        ("61 03 49 02 54 40 01 03", [UNDEFINED, True, UNDEFINED]),
    ],
)
def test_javascript_values_without_a_type_in_python_are_read_as_the_plain_ones(text: str, value: Any):
    assert read(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("5c 00", "a host object"),
        ("70 00", "a shared object"),
        ("75 00", "a SharedArrayBuffer"),
        ("52 22 01 61 40", "a RegExp with a flag that Python lacks"),
        ("52 22 03 28 3f 3c 00", "a RegExp that Python does not compile"),
        ("61 a1 8d 86 01 40 00 a1 8d 86 01", "a sparse array that is too long"),
        ("41 01 5e 01 24 00 01", "a reference to no object"),
        ("30 30", "data after the value"),
        ("63 02 00d8", "a string with a lone surrogate"),
        ("40", "an unknown tag"),
    ],
)
def test_what_cannot_be_read_is_a_decode_error_that_says_what_it_is(text: str, reason: str):
    with pytest.raises(DecodeError) as caught:
        read(text)
    assert caught.value.reason == reason


# -- what JavaScript has no type for


def test_a_date_is_the_same_moment_in_utc():
    local = datetime(2026, 3, 1, 12, 30, 0, 123_456, timezone(timedelta(hours=5)))
    assert (again(local), again(local).tzinfo) == (local, UTC)


@pytest.mark.parametrize("year", [1692, 1970, 2026, 2247])
def test_microseconds_come_back_exactly(year: int):
    for microsecond in range(0, 1_000_000, 7919):
        moment = datetime(year, 6, 1, 1, 2, 3, microsecond, UTC)
        assert again(moment) == moment


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 1),
        datetime(9000, 1, 1, 0, 0, 0, 123_457, UTC),
        re.compile(b"a"),
        re.compile("a", re.VERBOSE),
        re.compile("a", re.ASCII),
        re.compile("(?P<name>a)"),
        re.compile("(?i)a"),
        re.compile(r"\Aa"),
        re.compile("a++"),
        re.compile("[]a]"),
        KvArray([1], {"0": 2}),
        KvArray([1], {1: 2}),  # type: ignore[dict-item]
        [KvU64(1)],
        (1,),
    ],
)
def test_what_javascript_lacks_is_refused(value: Any):
    with pytest.raises(InvalidValueError) as caught:
        CODEC.encode([value])
    assert caught.value.hint


def test_a_typed_array_is_a_memoryview_of_its_numbers():
    numbers = memoryview(b"\x00\x00\xc0\x3f").cast("f")
    assert list(again(numbers)) == [1.5]
    assert again(numbers).format == "f"
    assert again(memoryview(b"abc")) == b"abc"


def test_nan_and_infinity_are_numbers():
    assert math.isnan(again(math.nan))
    assert again([math.inf, -math.inf]) == [math.inf, -math.inf]


@pytest.mark.servers
@pytest.mark.usefixtures("few_objects")
def test_more_levels_than_can_be_read_are_refused_when_they_are_written():
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidValueError, match="nested too deeply"):
        CODEC.encode(value)
    assert CODEC.encode(value[0])[0].endswith(b"$\x00\x01")
