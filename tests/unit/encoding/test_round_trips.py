"""A codec reads the values that it stored, with their types, sharing and cycles: for both codecs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels.codecs.msgpack import MsgpackCodec, ValueCodec
from kvmodels.codecs.v8.codec import V8Codec
from kvmodels.core.values import UNDEFINED, KvU64
from kvmodels.errors import DecodeError, InvalidValueError
from tests.unit.encoding.graphs import graphs, isomorphic, text, trees

MSGPACK, V8 = MsgpackCodec(), V8Codec()
both = pytest.mark.parametrize("codec", [MSGPACK, V8], ids=lambda codec: codec.name)


def again(codec: ValueCodec, value: Any) -> Any:
    return codec.decode(*codec.encode(value))


@both
@given(value=trees)
def test_a_tree_comes_back_as_it_was(codec: ValueCodec, value: Any):
    assert isomorphic(again(codec, value), value)


@both
@given(value=graphs())
def test_a_graph_comes_back_with_its_sharing_and_its_cycles(codec: ValueCodec, value: Any):
    assert isomorphic(again(codec, value), value)


@both
@given(document=st.dictionaries(text, trees, max_size=4))
def test_a_document_comes_back_as_it_was(codec: ValueCodec, document: dict[str, Any]):
    assert isomorphic(codec.decode_document(*codec.encode_document(document)), document)


@both
@given(value=trees)
def test_what_was_read_is_written_with_the_same_bytes(codec: ValueCodec, value: Any):
    data = codec.encode(value)
    assert codec.encode(codec.decode(*data)) == data


def test_the_comparison_of_these_tests_sees_lost_sharing_and_changed_types():
    inner: list[Any] = []
    assert isomorphic([inner, inner], [inner, inner])
    assert not isomorphic([inner, inner], [[], []])
    assert not isomorphic([[], []], [inner, inner])
    assert not isomorphic([1], [1.0])
    assert not isomorphic({1: 2}, {1.0: 2})
    assert not isomorphic({(1,)}, {(True,)})


@both
@pytest.mark.parametrize("kind", [list, dict])
def test_ten_thousand_levels_come_back(codec: ValueCodec, kind: type):
    value: Any = kind()
    for _ in range(10_000):
        value = [value] if kind is list else {"in": value}
    assert isomorphic(again(codec, value), value)


@both
@pytest.mark.usefixtures("few_objects")
def test_a_cycle_through_ten_thousand_levels_comes_back(codec: ValueCodec):
    root: list[Any] = []
    inner = root
    for _ in range(10_000):
        inner.append([])
        inner = inner[0]
    inner.append(root)
    assert isomorphic(again(codec, root), root)


@both
def test_tuples_beyond_sixteen_levels_are_refused(codec: ValueCodec):
    key: Any = ()
    for _ in range(15):
        key = (key,)
    assert again(codec, {key: 1}) == {key: 1}
    with pytest.raises(InvalidValueError, match="nested too deeply"):
        codec.encode({((key,),): 1})


@both
def test_t3_a_view_stores_its_window_only(codec: ValueCodec):
    buffer = bytes(range(250)) * 4
    window = memoryview(buffer)[10:20]
    assert codec.encode(window) == (buffer[10:20], 3)
    data, _ = codec.encode([window, memoryview(bytearray(buffer))[990:]])
    assert len(data) < 60
    assert codec.decode(*codec.encode([window])) == [buffer[10:20]]
    assert codec.decode(*codec.encode([memoryview(buffer)[::100]])) == [buffer[::100]]


@both
@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "$"),
        ({"a": [1, object()]}, "$.a[1]"),
        ({"a": {1: (1,)}}, "$.a[1]"),
        ([{"x y": KvU64(1)}], "$[0]['x y']"),
        (["a\ud800"], "$[0]"),
        ({"a": {"\ud800": 1}}, "$.a{key}"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_path(codec: ValueCodec, value: Any, path: str):
    with pytest.raises(InvalidValueError) as caught:
        codec.encode(value)
    assert caught.value.path == path


@both
def test_a_damaged_value_names_its_key(codec: ValueCodec):
    data, encoding = codec.encode({"a": [1, 2]})
    with pytest.raises(DecodeError) as caught:
        codec.decode(data[:-2], encoding, b"\x02users\x00")
    assert caught.value.key == ("users",)


@pytest.mark.parametrize(("writer", "reader"), [(MSGPACK, V8), (V8, MSGPACK)], ids=["msgpack by v8", "v8 by msgpack"])
def test_a_value_of_another_codec_names_the_codec_to_open_the_store_with(writer: ValueCodec, reader: ValueCodec):
    with pytest.raises(DecodeError, match=f'codec="{writer.name}"') as caught:
        reader.decode(*writer.encode({"a": 1}), b"\x02users\x00")
    assert caught.value.key == ("users",)
    assert reader.decode(*writer.encode(b"raw")) == b"raw"
    assert reader.decode(*writer.encode(KvU64(7))) == KvU64(7)


@both
def test_an_encoding_that_no_codec_has_is_a_decode_error(codec: ValueCodec):
    with pytest.raises(DecodeError, match="encoding 99"):
        codec.decode(b"", 99)


@both
def test_a_record_that_is_no_map_is_a_decode_error(codec: ValueCodec):
    for value in ([1], {1: 2}, UNDEFINED, datetime(2026, 1, 1, tzinfo=UTC) + timedelta(1)):
        with pytest.raises(DecodeError):
            codec.decode_document(*codec.encode(value))
