"""Any storable value comes back equal, of its type, with its shared parts; all else is refused with its path."""

from __future__ import annotations

import collections
import gc
import math
import re
import struct
import threading
import weakref
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.keys import encode_key
from kvmodels.core.values import UNDEFINED, KvU64
from kvmodels.errors import DecodeError, InvalidValueError

CODEC = MsgpackCodec()


def again(value: Any) -> Any:
    return CODEC.decode(*CODEC.encode(value))


def form(member: Any) -> str:
    """A member of a set as text that does not depend on the order of sets."""
    if type(member) is tuple:
        return f"({','.join(map(form, member))})"
    if type(member) in (set, frozenset):
        return type(member).__name__ + "{" + ",".join(sorted(map(form, member))) + "}"
    return struct.pack(">d", member).hex() if type(member) is float else repr(member)


def same(left: Any, right: Any) -> bool:
    """Equal in value and type at every place, and shared in the same places; NaN is itself, -0.0 is not 0.0."""
    pending: list[tuple[Any, Any]] = [(left, right)]
    partners: dict[int, int] = {}
    while pending:
        a, b = pending.pop()
        if type(a) is not type(b):
            return False
        if type(a) in (list, dict, set):
            if id(a) in partners:
                if partners[id(a)] != id(b):
                    return False
                continue
            partners[id(a)] = id(b)
        if type(a) in (list, tuple):
            if len(a) != len(b):
                return False
            pending.extend(zip(a, b, strict=True))
        elif type(a) is dict:
            if len(a) != len(b):
                return False
            pending.extend(zip(a.keys(), b.keys(), strict=True))  # the order is kept as well
            pending.extend(zip(a.values(), b.values(), strict=True))
        elif type(a) in (set, frozenset):
            if form(a) != form(b):
                return False
        elif type(a) is float:
            if struct.pack(">d", a) != struct.pack(">d", b):
                return False
        elif type(a) is datetime:
            if a.replace(tzinfo=None) != b.replace(tzinfo=None) or a.utcoffset() != b.utcoffset():
                return False
            if a.fold != b.fold:
                return False
        elif type(a) is not type(UNDEFINED) and a != b:
            return False
    return len(set(partners.values())) == len(partners)


OFFSETS = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
SCALARS = st.one_of(
    st.none(),
    st.just(UNDEFINED),
    st.booleans(),
    st.integers(),
    st.integers(-(2**80), 2**80),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    st.binary(max_size=10),
    st.datetimes(),
    st.datetimes(timezones=OFFSETS).map(lambda value: value.replace(fold=0)),
    st.sampled_from([re.compile("a.b"), re.compile("x", re.IGNORECASE | re.MULTILINE), re.compile(rb"\d")]),
)
MEMBERS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)),
    max_leaves=4,
)
TREES = st.recursive(
    st.one_of(SCALARS, st.sets(MEMBERS, max_size=3), st.frozensets(MEMBERS, max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(MEMBERS, inner, max_size=4)),
    max_leaves=8,
)


@st.composite
def graphs(draw: st.DrawFn) -> Any:
    """Containers with random edges between them: shared ones, cycles, chains."""
    nodes: list[Any] = [draw(st.sampled_from([list, dict, set]))() for _ in range(draw(st.integers(1, 6)))]
    items = st.one_of(SCALARS, st.sampled_from(nodes))
    for node in nodes:
        if type(node) is list:
            node.extend(draw(st.lists(items, max_size=4)))
        elif type(node) is dict:
            node.update(draw(st.dictionaries(MEMBERS, items, max_size=4)))
        else:
            node.update(draw(st.lists(MEMBERS, max_size=3)))
    return nodes[0]


@given(TREES)
def test_trees_come_back(value):
    assert same(again(value), value)


@given(graphs())
def test_graphs_come_back_with_their_shared_parts(value):
    assert same(again(value), value)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), TREES, max_size=2))
def test_documents_come_back(document):
    data, encoding = CODEC.encode_document(document)
    assert same(CODEC.decode_document(data, encoding), document)
    assert same(CODEC.decode(data, encoding), document)


@given(st.lists(MEMBERS, max_size=8), st.randoms(use_true_random=False))
def test_equal_sets_have_equal_bytes_whatever_their_history(members, random):
    shuffled = list(members)
    random.shuffle(shuffled)
    # The first of equal members stays (0.0 and -0.0, 1 and True), so only distinct ones may be shuffled.
    if len(set(map(form, members))) == len(set(members)):
        assert CODEC.encode(set(members)) == CODEC.encode(set(shuffled))


@given(TREES)
def test_encoding_again_gives_the_same_bytes(value):
    assert CODEC.encode(again(value)) == CODEC.encode(value)


@pytest.mark.parametrize(
    "value", [KvU64(0), KvU64(2**64 - 1), b"", b"raw", 2**4000, -(2**4000), math.nan, -math.nan, -0.0, "", [], {}]
)
def test_single_values_come_back(value):
    assert same(again(value), value)


@pytest.mark.parametrize("value", [bytearray(b"ab"), memoryview(b"ab"), memoryview(b"aXbX")[::2]])
def test_bytes_like_values_come_back_as_bytes(value):
    assert CODEC.encode(value) == (b"ab", 3)
    assert again([value, {(1,): value}]) == [b"ab", {(1,): b"ab"}]


def test_identity_is_kept_for_every_kind_of_container():
    shared: list[Any] = [[1], {"a": 1}, {1}]
    value: Any = {"first": shared, "second": list(shared)}
    value["itself"] = value
    result = again(value)
    assert result["itself"] is result
    assert all(one is other for one, other in zip(result["first"], result["second"], strict=True))


def test_equal_containers_that_are_not_shared_stay_apart():
    result = again([[1], [1]])
    assert result == [[1], [1]]
    assert result[0] is not result[1]


def test_a_shared_part_of_a_document_is_stored_once_per_place():
    shared = ["x"]
    data, encoding = CODEC.encode_document({"a": shared, "b": shared})
    assert CODEC.decode_document(data, encoding) == {"a": ["x"], "b": ["x"]}
    assert data == CODEC.encode_document({"a": ["x"], "b": ["x"]})[0]


def test_a_part_of_a_document_may_contain_itself():
    ring: list[Any] = ["x"]
    ring.extend([ring, ring])
    document: dict[str, Any] = {"ring": ring, "map": {}}
    document["map"]["self"] = document["map"]
    (many,), encoding_of_many = CODEC.encode_many([document])
    for data, encoding in (CODEC.encode_document(document), (many, encoding_of_many)):
        result = CODEC.decode_document(data, encoding)
        assert result["ring"][0] == "x"
        assert result["ring"][1] is result["ring"][2] is result["ring"]
        assert result["map"]["self"] is result["map"]


@pytest.mark.parametrize("levels", [500, 1023, 1024, 1025, 20_000])
@pytest.mark.parametrize("kind", ["list", "dict"])
@pytest.mark.usefixtures("few_objects")
def test_nesting_has_no_limit(levels, kind):
    value: Any = "core"
    for _ in range(levels):
        value = [value] if kind == "list" else {"a": value}
    result, depth = again(value), 0
    while result != "core":
        result, depth = result[0 if kind == "list" else "a"], depth + 1
    assert depth == levels


def test_deep_documents_come_back():
    value: Any = 1
    for _ in range(5000):
        value = [value]
    result = CODEC.decode_document(*CODEC.encode_document({"deep": value}))["deep"]
    for _ in range(5000):
        (result,) = result
    assert result == 1


@pytest.mark.parametrize("kind", [tuple, frozenset])
def test_members_nest_sixteen_levels(kind):
    member: Any = 1
    for _ in range(15):
        member = kind([member])
    assert again({member}) == {member}
    member = kind([member])
    assert again({member: 1}) == {member: 1}
    for value in ({member}, {kind([member]): 1}):
        with pytest.raises(InvalidValueError, match="nested too deeply"):
            CODEC.encode(value)


def test_a_time_zone_comes_back_as_its_offset():
    value = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    result = again(value)
    assert result == value
    assert result.tzinfo == timezone(timedelta(hours=2))
    assert again(datetime(2026, 7, 1, tzinfo=UTC)).tzinfo is UTC


class NoOffset(tzinfo):
    """A zone that knows no offset, by which Python calls a datetime naive."""

    def utcoffset(self, dt: Any) -> None:
        return None

    def dst(self, dt: Any) -> None:
        return None

    def tzname(self, dt: Any) -> str:
        return "?"


def test_a_datetime_without_an_offset_is_naive():
    assert again(datetime(2026, 1, 1, tzinfo=NoOffset())) == datetime(2026, 1, 1)


@pytest.mark.parametrize(
    "value", [datetime.min, datetime.max, datetime.max.replace(tzinfo=timezone(-timedelta(hours=9)))]
)
def test_the_ends_of_time_come_back(value):
    assert same(again(value), value)


# -- refusals


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 1


class Shape(Enum):
    ROUND = "round"


class Point(NamedTuple):
    x: int


class Text(str):
    __slots__ = ()


REFUSED = [
    (("a",), "$", "tuple"),
    ([1, ("a",)], "$[1]", "tuple"),
    ({"a": [KvU64(1)]}, "$.a[0]", "KvU64"),
    ({"a b": {1: object()}}, "$['a b'][1]", "object"),
    ({"a": {"b": "\ud800"}}, "$.a.b", "str"),
    ("\ud800", "$", "str"),
    ({"\udfff": 1}, "${key}", "str"),
    ({"x": {(1, "\ud800"): 1}}, "$.x{key}", "str"),
    ({"x": {(1, KvU64(1)): 1}}, "$.x{key}", "KvU64"),
    ([{1, Colour.RED}], "$[0]", "Colour"),
    ([Level.HIGH], "$[0]", "Level"),
    ({Level.HIGH: 1}, "${key}", "Level"),
    ([Shape.ROUND], "$[0]", "Shape"),
    ([collections.OrderedDict(a=1)], "$[0]", "OrderedDict"),
    ([collections.defaultdict(list)], "$[0]", "defaultdict"),
    ([Point(1)], "$[0]", "Point"),
    ([Text("a")], "$[0]", "Text"),
    ([date(2026, 1, 1)], "$[0]", "date"),
    ([timedelta(1)], "$[0]", "timedelta"),
    ([Decimal(1)], "$[0]", "Decimal"),
    ([UUID(int=1)], "$[0]", "UUID"),
    ([1j], "$[0]", "complex"),
    ([range(3)], "$[0]", "range"),
    ([re.compile("a", re.DEBUG)], "$[0]", "Pattern"),
    ([len], "$[0]", "builtin_function_or_method"),
]


@pytest.mark.parametrize(("value", "path", "kind"), REFUSED, ids=[f"{k}-{p}" for _, p, k in REFUSED])
def test_what_cannot_be_stored_is_refused_with_its_path(value, path, kind):
    with pytest.raises(InvalidValueError) as caught:
        CODEC.encode(value)
    assert (caught.value.path, caught.value.type) == (path, kind)
    assert caught.value.hint
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(("value", "path", "kind"), REFUSED, ids=[f"{k}-{p}" for _, p, k in REFUSED])
def test_in_graphs_and_documents_as_well(value, path, kind):
    shared: list[Any] = []
    with pytest.raises(InvalidValueError) as caught:
        CODEC.encode([shared, shared, value])
    assert caught.value.path == "$[2]" + path[1:]
    with pytest.raises(InvalidValueError) as caught:
        CODEC.encode_document({"field": value})
    assert caught.value.path == "$.field" + path[1:]


def test_a_refused_value_in_a_deep_chain_does_not_need_the_square_of_its_depth():
    value: Any = object()
    for _ in range(20_000):
        value = [value]
    with pytest.raises(InvalidValueError) as caught:
        CODEC.encode(value)
    assert caught.value.path == "$" + "[0]" * 20_000


def test_a_refusal_leaves_the_codec_usable():
    for _ in range(3):
        with pytest.raises(InvalidValueError):
            CODEC.encode({"a": [1, object()]})
        assert again({"a": [1, 2]}) == {"a": [1, 2]}


# -- decoding


@pytest.mark.parametrize("encoding", [0, 1, 5, 255])
def test_another_encoding_is_a_decode_error_naming_the_key(encoding):
    with pytest.raises(DecodeError, match="does not read") as caught:
        CODEC.decode(b"\xff\x0f", encoding, encode_key(("users", 1)))
    assert caught.value.key == ("users", 1)


MALFORMED = [
    "c1",
    "9101ff",
    "92",
    "a1ff",
    "81",
    "d901",
    "8180c0",
    "c700",
    "c7000b",
    "d40100",
    "c70002",
    "d40201",
    "d70200",
    "d50300",
    "d6039201",
    "c7030592010192",
    "d60492",
    "c70304920101",
    "d4060a",
    "d706ffffffffffffffff",
    "c70906000000000000000000",
    "d80700000000000000007f7f7f7f7f7f7f7f",
    "d50892a1",
    "d60892a12800",
    "c7080892a161ce00000080",
    "d40891",
    "d60900000000",
    "91d60900000000",
    "d40a90",
    "d40a91",
    "d50a9101",
    "c7070a91d60900000000",
    "c7080a9191d60900000001",
    "d50a9190d60900000000",
    "d60a9191919090",
    "c70a0a9181d60900000000c0",
    "c7060a9191d4090000",
    "91d40a90",
    "c70308d40891",
]


@pytest.mark.parametrize("data", ["", *MALFORMED])
def test_malformed_bytes_are_decode_errors(data):
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(bytes.fromhex(data), 4, encode_key(("k",)))
    assert caught.value.key == ("k",)
    assert caught.value.reason


@pytest.mark.parametrize("size", [0, 7, 9])
def test_a_u64_has_eight_bytes(size):
    with pytest.raises(DecodeError):
        CODEC.decode(bytes(size), 2)


def test_a_key_that_is_damaged_too_is_shown_as_bytes():
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(b"\xc1", 4, b"\xfe")
    assert caught.value.key == b"\xfe"


@pytest.mark.parametrize("value", [None, 1, "a", [], {1: 2}, {"a": 1, None: 2}, KvU64(1), b"raw"])
def test_a_document_is_a_map_of_field_names(value):
    with pytest.raises(DecodeError, match="damaged") as caught:
        CODEC.decode_document(*CODEC.encode(value), encode_key(("users", 1)))
    assert caught.value.key == ("users", 1)


def test_data_that_promises_more_than_there_is_reserves_no_memory():
    # 1,000 arrays inside each other, each promising a million elements.
    data = (b"\xdd" + (1 << 20).to_bytes(4, "big")) * 1000
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(data + bytes(200_000), 4)
    assert caught.value.reason == "data that is cut off"


def test_deeply_nested_extensions_do_not_end_the_process():
    data = b"\xc0"
    for _ in range(2000):
        body = b"\x91" + data
        data = b"\xc9" + len(body).to_bytes(4, "big") + b"\x05" + body
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(data, 4)
    assert caught.value.reason == "extensions nested too deeply"


# -- use


def test_one_codec_serves_many_threads():
    value = {"members": {(1, "a"), frozenset({2})}, "big": 2**90, "when": datetime(2026, 1, 1, tzinfo=UTC)}
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(300):
            result = again(value)
            if result != value:
                wrong.append(result)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_codec_may_be_used_while_it_is_in_use():
    # A finaliser, or a signal handler, may run in the middle of an encode and encode something itself.
    class Node:
        pass

    inside: list[Any] = []

    def finalise() -> None:
        inside.append(again({"inner": {3, 4}}))

    class Zone(tzinfo):
        def utcoffset(self, dt: Any) -> timedelta:
            node = Node()
            weakref.finalize(node, finalise)
            del node
            gc.collect(0)
            return timedelta(hours=1)

        def dst(self, dt: Any) -> None:
            return None

        def tzname(self, dt: Any) -> str:
            return "+1"

    value = ["before", datetime(2026, 1, 1, tzinfo=Zone()), "after"]
    encoded = CODEC.encode(value)
    assert inside[0] == {"inner": {3, 4}}
    assert CODEC.decode(*encoded) == ["before", datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))), "after"]
