"""The keys and values of a store in etcd are a promise: their bytes."""

from __future__ import annotations

import pytest

from kvmodels.core.operations import Row, to_versionstamp
from kvmodels.engines.etcd.layout import (
    StoreRecord,
    deadline_key,
    decode_clock,
    decode_record,
    encode_clock,
    encode_record,
    encode_row,
    format_of,
    keys_of,
    parse_deadline_key,
    row_of,
)
from kvmodels.errors import DecodeError

KEYS = keys_of("/app")


def test_the_keys_of_a_store():
    assert KEYS == (b"/app/\x00", b"/app/\x01", b"/app/\x02", b"/app/\x03", b"/app/\x04")


def test_the_record_of_a_store():
    record = StoreRecord(0x0102030405060708, 0xF1F2F3F4F5F6F7F8)
    data = b"kvmodels\x01\x01\x02\x03\x04\x05\x06\x07\x08\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8"
    assert encode_record(record) == data
    assert (format_of(data), decode_record(data)) == (1, record)
    assert format_of(b"something else") is None


@pytest.mark.parametrize(
    ("row", "data"),
    [
        (Row(b"k", b"v", 3, to_versionstamp(9), None), b"\x00\x03v"),
        (Row(b"k", b"", 4, to_versionstamp(9), None), b"\x00\x04"),
        (Row(b"k", b"v", 255, to_versionstamp(9), 1), b"\x01\x80\x00\x00\x00\x00\x00\x00\x01\xffv"),
        (Row(b"k", b"v", 3, to_versionstamp(9), -1), b"\x01\x7f\xff\xff\xff\xff\xff\xff\xff\x03v"),
    ],
)
def test_the_value_of_a_row(row, data):
    assert encode_row(row) == data
    assert row_of(b"k", data, 9) == row


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x02\x03v", b"\x01\x80\x00\x00\x00\x00\x00\x00\x01"])
def test_a_value_that_is_no_row_is_damage(data):
    with pytest.raises(DecodeError):
        row_of(b"k", data, 9)


def test_a_value_without_a_deadline_is_less_than_one_with_a_deadline():
    lasting, expiring = Row(b"k", b"\xff", 255, b"", None), Row(b"k", b"", 0, b"", -(1 << 63))
    assert encode_row(lasting) < b"\x01" < encode_row(expiring)


def test_entries_of_deadlines_are_in_their_order():
    deadlines = [-(1 << 63), -5, 0, 1, 1_700_000_000_000, (1 << 63) - 1]
    keys = [deadline_key(KEYS, one, b"key") for one in deadlines]
    assert keys == sorted(keys)
    assert keys[3] == b"/app/\x03\x80\x00\x00\x00\x00\x00\x00\x01key"
    assert [parse_deadline_key(KEYS, one) for one in keys] == [(one, b"key") for one in deadlines]


def test_the_clock_in_the_marker():
    assert encode_clock(1_700_000_000_000) == b"\x00\x00\x01\x8b\xcf\xe5\x68\x00"
    assert decode_clock(encode_clock(1_700_000_000_000)) == 1_700_000_000_000
    assert encode_clock(-5) == bytes(8)
