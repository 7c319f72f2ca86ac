"""The bytes of columns are a promise: what is listed here never changes."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address
from typing import Any
from uuid import UUID

import pytest

from kvmodels.codecs.columns.base import ColumnCodec, descending, nullable
from kvmodels.codecs.columns.registry import column_codec
from kvmodels.core.ulid import ULID
from kvmodels.core.values import KeyNumber
from tests.source_tree import REPOSITORY


def codec(annotation: Any, *metadata: Any) -> ColumnCodec:
    found = column_codec(annotation, metadata)
    assert found is not None
    return found


GOLDEN: list[tuple[ColumnCodec, Any, str]] = [
    (codec(bool), True, "27"),
    (codec(bool), False, "26"),
    (codec(int), -5, "13fa"),
    (codec(int, KeyNumber()), 7, "21c01c000000000000"),
    (codec(float), 1.5, "21bff8000000000000"),
    (codec(float), -0.0, "218000000000000000"),
    (codec(str), "a\0", "026100ff00"),
    (codec(bytes), b"\0", "010100ff00"),
    (codec(bytes), b"", "010100"),
    (codec(UUID), UUID(int=1), "0230303030303030302d303030302d303030302d303030302d30303030303030303030303100"),
    (codec(ULID), ULID(0), "02303030303030303030303030303030303030303030303030303000"),
    (codec(date), date(5, 1, 2), "02303030352d30312d303200"),
    (
        codec(datetime),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "02323032362d30312d30325430333a30343a30352e3030303030302b30303a303000",
    ),
    (
        codec(datetime),
        datetime(2026, 1, 2, 5, 4, 5, tzinfo=timezone(timedelta(hours=2))),
        "02323032362d30312d30325430333a30343a30352e3030303030302b30303a303000",
    ),
    (codec(time), time(1, 2), "0230313a30323a30302e30303030303000"),
    (codec(timedelta), timedelta(seconds=-1), "11f0bdbf"),
    (codec(Decimal), Decimal("1.50"), "01032000ff1000"),
    (codec(Decimal), Decimal("-1.5"), "0101dfffefff00"),
    (codec(Decimal), Decimal("-0.00"), "010200"),
    (codec(IPv4Address), IPv4Address("10.0.0.1"), "01040a00ff00ff0100"),
    (codec(IPv6Address), IPv6Address("::1"), "0106" + "00ff" * 15 + "0100"),
    (nullable(codec(str)), None, "0100"),
    (descending(codec(str)), "a", "01fd9effff00"),
    (descending(codec(str)), "a\0", "01fd9eff00ffffff00"),
    (descending(nullable(codec(str))), None, "01feffff00"),
    (descending(codec(int)), -5, "01ec05ff00"),
]


@pytest.mark.parametrize(("column", "value", "data"), GOLDEN, ids=[f"{c.name}-{d}" for c, _, d in GOLDEN])
def test_a_column_has_these_bytes_for_ever(column, value, data):
    assert column.pack(value).hex() == data


def test_the_page_on_column_encoding_shows_bytes_that_are_held_here():
    page = (REPOSITORY / "docs" / "design" / "0002-column-encoding.md").read_text("utf-8")
    shown = set(re.findall(r"`((?:[0-9a-f]{2})+)` \|$", page, re.MULTILINE))
    assert len(shown) == 16
    assert shown <= {data for _, _, data in GOLDEN}
