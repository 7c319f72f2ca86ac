"""Values that are encoded together have the same bytes and errors as values that are encoded one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from kvmodels.codecs.columns.base import ColumnCodec, descending, nullable
from kvmodels.codecs.columns.registry import column_matcher, column_packer
from kvmodels.codecs.columns.scalars import BOOL, FLOAT, INT, NUMBER, STR
from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.errors import KvModelsError
from tests.drawing import of_check

TEXTS = st.one_of(st.text(max_size=5), st.sampled_from(["", "a\0b", "ü", "\ud800", "\U0001f600"]))
NUMBERS = st.one_of(
    st.integers(0, 300), st.sampled_from([-1, 255, 256, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 2**2100])
)
ODD = st.sampled_from([None, True, 1.5, float("nan"), b"x"])
VALUES = st.one_of(TEXTS, NUMBERS, ODD)
CODECS = [STR, INT, BOOL, FLOAT, NUMBER, nullable(STR), descending(INT)]


def ended(call: Callable[[], Any]) -> Any:
    """Return the result or the error of a call."""
    try:
        return call()
    except KvModelsError as error:
        return type(error), str(error)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_a_column_is_packed_as_each_of_its_values(codec: ColumnCodec):
    pack = column_packer(codec.pack_stored)

    @seed(20261121)
    @settings(max_examples=of_check(80), deadline=None)
    @given(st.one_of(st.lists(TEXTS), st.lists(NUMBERS), st.lists(VALUES)))
    def compare(values: list[Any]) -> None:
        assert ended(lambda: pack(values)) == ended(lambda: [codec.pack_stored(value) for value in values])

    compare()


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_a_column_is_compared_with_keys_as_each_of_its_values(codec: ColumnCodec):
    matches = column_matcher(codec.pack_stored)

    @seed(20261121)
    @settings(max_examples=of_check(80), deadline=None)
    @given(st.one_of(st.lists(TEXTS), st.lists(NUMBERS), st.lists(NUMBERS).map(sorted), st.lists(VALUES)), st.data())
    def compare(values: list[Any], data: st.DataObject) -> None:
        packed = ended(lambda: [codec.pack_stored(value) for value in values])
        keys = [b"key" + part for part in packed] if isinstance(packed, list) else [b"key"] * len(values)
        others = [*keys]
        if keys:
            at = data.draw(st.integers(0, len(keys) - 1))
            changes = (b"", keys[at][:-1], keys[at] + b"\0", keys[-1], keys[at][:-1] + b"\1", b"key\x1c" + keys[at][4:])
            others[at] = data.draw(st.sampled_from(changes))
        for shown in (keys, others):
            expected = packed == [key[3:] for key in shown] if isinstance(packed, list) else packed
            assert ended(lambda: matches(values, shown, 3)) == expected  # noqa: B023 - called at once

    compare()


@pytest.mark.parametrize("numbers", [[1], [255, 256, 65535, 65536], [2**63 - 1], [300, 7, 400], [7, 300, 8]])
def test_positive_numbers_are_compared_byte_by_byte(numbers: list[int]):
    matches = column_matcher(INT.pack_stored)
    keys = [b"key" + INT.pack_stored(number) for number in numbers]
    assert matches(numbers, keys, 3)
    for at, key in enumerate(keys):
        for byte in range(3, len(key)):
            wrong = key[:byte] + bytes((key[byte] ^ 1,)) + key[byte + 1 :]
            assert not matches(numbers, [*keys[:at], wrong, *keys[at + 1 :]], 3)


@seed(20261121)
@settings(max_examples=of_check(80), deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES | st.lists(VALUES, max_size=2) | st.just({1: "x"}))))
def test_documents_are_encoded_as_each_of_them(documents: list[dict[str, Any]]):
    codec = MsgpackCodec()
    many = ended(lambda: codec.encode_many(documents))
    one_by_one = ended(lambda: [codec.encode_document(document) for document in documents])
    if isinstance(one_by_one, tuple):
        assert many == one_by_one
    else:
        assert [(value, many[1]) for value in many[0]] == one_by_one


def test_a_list_of_plain_parts_is_encoded_as_any_value():
    codec = MsgpackCodec()
    for parts in ([1], ["a", 2**70], [-1, "ü"]):
        assert codec.encode_document(parts) == codec.encode(parts) == (codec.encode_many([parts])[0][0], 4)
