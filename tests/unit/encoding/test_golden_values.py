"""The bytes of values are a promise: what is listed here never changes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.values import UNDEFINED, KvU64
from tests.source_tree import REPOSITORY

CODEC = MsgpackCodec()


def shared() -> Any:
    inner = [1]
    return [inner, inner]


def cycle() -> Any:
    outer: dict[str, Any] = {}
    outer["self"] = outer
    return outer


GOLDEN: list[tuple[Any, int, str]] = [
    (KvU64(7), 2, "0700000000000000"),
    (b"a", 3, "61"),
    (b"", 3, ""),
    ({"a": 1}, 4, "81a16101"),
    (None, 4, "c0"),
    (True, 4, "c3"),
    (1, 4, "01"),
    (-1, 4, "ff"),
    (2**64 - 1, 4, "cfffffffffffffffff"),
    (-(2**63), 4, "d38000000000000000"),
    (1.5, 4, "cb3ff8000000000000"),
    (-0.0, 4, "cb8000000000000000"),
    ("ü", 4, "a2c3bc"),
    ([b"x"], 4, "91c40178"),
    (UNDEFINED, 4, "c70001"),
    (2**64, 4, "c70902010000000000000000"),
    (-(2**63) - 1, 4, "c70902ff7fffffffffffffff"),
    ({(1, "a"): 2}, 4, "81d6039201a16102"),
    ({2, 1}, 4, "c70304920102"),
    (frozenset({"b", "a"}), 4, "c7050592a161a162"),
    (datetime(1970, 1, 1), 4, "d70600dcbffeff2bc000"),
    (datetime(1970, 1, 1, fold=1), 4, "c7090600dcbffeff2bc00001"),
    (datetime(1970, 1, 1, tzinfo=UTC), 4, "d80700dcbffeff2bc0000000000000000000"),
    (
        datetime(1970, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        4,
        "d80700dcbffeff2bc000000000049c2c0600",
    ),
    (re.compile("a", re.IGNORECASE), 4, "d60892a16122"),
    (shared(), 4, "d80a9292d60900000001d609000000019101"),
    (cycle(), 4, "c70d0a9181a473656c66d60900000000"),
]


@pytest.mark.parametrize(("value", "encoding", "data"), GOLDEN, ids=[f"{e}-{d or 'empty'}" for _, e, d in GOLDEN])
def test_a_value_has_these_bytes_for_ever(value, encoding, data):
    assert CODEC.encode(value) == (bytes.fromhex(data), encoding)
    again = CODEC.decode(bytes.fromhex(data), encoding)
    assert CODEC.encode(again) == (bytes.fromhex(data), encoding)
    assert type(again) is type(value)


def test_the_page_on_value_encoding_shows_bytes_that_are_held_here():
    page = (REPOSITORY / "docs" / "design" / "0001-value-encoding.md").read_text("utf-8")
    shown = set(re.findall(r"`((?:[0-9a-f]{2})+)` \|$", page, re.MULTILINE))
    assert len(shown) == 12
    assert shown <= {data for _, _, data in GOLDEN}
