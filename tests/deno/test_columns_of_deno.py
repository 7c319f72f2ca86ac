"""Key parts and folded texts of ``deno/kvmodels.ts`` are those of Python, for random values of every type of column."""

from __future__ import annotations

import json
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from kvmodels import ULID
from kvmodels.codecs.columns.base import descending
from kvmodels.codecs.columns.registry import column_codec
from tests.deno.runtime import run_script

SCRIPT = Path(__file__).with_name("pack_columns.ts")


def drawn(random: Random) -> list[Any]:
    """One value of each type."""
    moment = datetime(random.randrange(2, 9998), random.randrange(1, 13), 28, random.randrange(24), 59, 1, tzinfo=UTC)
    minutes = timedelta(minutes=random.randrange(-1439, 1440), seconds=random.choice((0, 0, 7)))
    digits = f"{random.getrandbits(random.randrange(1, 200)) + 1}"
    return [
        random.random() < 0.5,
        random.choice((1, -1)) * random.getrandbits(random.randrange(1, 1500)),
        random.choice((1, -1)) * random.random() * 10.0 ** random.randrange(-300, 300),
        "".join(random.choices("a\0\x01é日😀\uffff\U0010ffff", k=random.randrange(9))),
        UUID(int=random.getrandbits(128)),
        ULID(random.randbytes(16)),
        moment.date(),
        moment.replace(microsecond=random.choice((0, 1, 999_999))).astimezone(timezone(minutes)),
        time(random.randrange(24), random.randrange(60), 0, random.choice((0, 5))),
        timedelta(microseconds=random.randrange(-(10**15), 10**15)),
        Decimal(f"{random.choice(('', '-'))}{digits[:99]}E{random.randrange(-5900, 5900)}"),
        Decimal(f"{random.choice(('', '-'))}{random.randrange(10**6)}.{random.randrange(10**9)}00"),
        IPv4Address(random.getrandbits(32)),
        IPv6Address(random.getrandbits(128) & ~(random.getrandbits(random.randrange(1, 128)))),
    ]


WRONG: list[tuple[str, Any]] = [
    ("date", "2026-02-30"), ("date", "0000-01-01"), ("date", "2026-1-1"), ("time", "24:00:00"), ("time", "12:00"),
    ("time", "12:00:00+01:00"), ("datetime", "2026-01-01T00:00:00"), ("datetime", "9999-12-31T23:59:59-01:00"),
    ("datetime", "0001-01-01T00:00:00+01:00"), ("datetime", "2026-02-30T00:00:00+00:00"), ("decimal", "NaN"),
    ("decimal", "1E+6145"), ("decimal", "1" * 101), ("decimal", "."), ("decimal", ""), ("ip4", "1.2.3"),
    ("ip4", "01.2.3.4"), ("ip4", "256.0.0.1"), ("ip4", "::1"), ("ip6", "1.2.3.4"), ("ip6", "::1%eth0"),
    ("ip6", "1::2::3"), ("uuid", "af67d461e4163207d094499602f0ee99"), ("ulid", "81M853AW403YPS8VG496PJ8Y8M"),
    ("bool", 1), ("int", 1.5), ("int", True), ("float", "1"), ("number", "1"), ("str", 1),
]  # fmt: skip


@pytest.mark.servers
def test_values_and_letters_have_the_parts_of_python(tmp_path):
    random = Random(1)
    asked: list[tuple[str, Any, bool]] = []
    expected: list[str | None] = []
    for _ in range(60):
        for value in drawn(random):
            codec = column_codec(type(value))
            assert codec is not None
            document = value if codec.to_stored is None else codec.to_stored(value)
            down = random.random() < 0.3
            asked.append((codec.name, str(document) if codec.name in ("int", "timedelta") else document, down))
            expected.append((descending(codec) if down else codec).pack(value).hex())
    asked += [(name, value, False) for name, value in WRONG]
    expected += [None] * len(WRONG)
    letters = [chr(point) for point in [*range(0x530), 0x1E9E, 0xFB00] if not 0xD800 <= point < 0xE000]
    source = tmp_path / "input.json"
    source.write_text(json.dumps({"values": asked, "letters": letters}), encoding="utf-8")
    answered = json.loads(run_script(SCRIPT, source))
    for one, part, wanted in zip(asked, answered["parts"], expected, strict=True):
        assert part == wanted, one
    folded = dict(zip(letters, answered["folded"], strict=True))
    refused = {letter for letter, one in folded.items() if one is None}
    assert refused == {letter for letter in letters if "\u017f" < letter < "\u0400" or letter > "\u052f"}
    assert all(one == letter.casefold() for letter, one in folded.items() if one is not None)
