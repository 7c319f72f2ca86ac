"""The content of a store without versionstamps, in a form that distinguishes every type; content to fill a store."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, Set
from kvmodels.core.values import UNDEFINED, KvU64
from kvmodels.engines.contract import Engine
from tests.unit.encoding.graphs import isomorphic

SHARED: list[Any] = [1]
CYCLE: dict[str, Any] = {"shared": [SHARED, SHARED]}
CYCLE["self"] = CYCLE

EVERYTHING: dict[tuple[Any, ...], Any] = {
    (b"bytes\0",): None,
    ("text", 1, 1.0, True): {"a": [1, 1.0, True, None]},
    ("text", 1, 1.0, False): UNDEFINED,
    (2**100, -0.0): 2**100,
    (float("nan"), float("-inf")): [float("inf"), -0.0, 1e300],
    ("counter",): KvU64(2**64 - 1),
    ("raw",): b"\0\xff\n",
    ("members",): {"set": {1, "a", b"b"}, "frozen": frozenset({(1, "a")}), (1, "k"): "tuple key"},
    ("time",): [
        datetime(2026, 1, 2, 3, 4, 5, 6),
        datetime(2026, 1, 2, tzinfo=UTC),
        datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=-5))),
    ],
    ("pattern",): re.compile(r"a+\n", re.IGNORECASE),
    ("graph",): CYCLE,
    ("dollar",): {"$int": "no tag", "\u2028": "line\nbreaks\r\u0085"},
    ("empty",): "",
}  # fmt: skip
"""A value of every kind, under keys with every kind of part."""


def fill(kv: Any, values: dict[tuple[Any, ...], Any] = EVERYTHING) -> None:
    """Store the values, every third one with a deadline."""
    for number, (key, value) in enumerate(values.items()):
        kv.set(key, value, expire_in=None if number % 3 else 60 + number)


def engine_of(kv: Any) -> Engine:
    """The engine of a store of either world."""
    engine: Engine = (kv if hasattr(kv, "_opening") else kv.kv)._opening.open()
    return engine


def damage(kv: Any, key: tuple[Any, ...]) -> None:
    """Store bytes that no codec reads."""
    engine_of(kv).commit(AtomicWrite((), (Set(encode_key(key), b"\xc1", 4),)))


def contents(kv: Any) -> list[tuple[bytes, Any, int | None]]:
    """Packed key, value and deadline of everything, in order."""
    return [(encode_key(entry.key), entry.value, entry.expires_at) for entry in kv.list(())]


def same(one: list[tuple[bytes, Any, int | None]], other: list[tuple[bytes, Any, int | None]]) -> bool:
    """Whether two stores hold the same, with all types and with what is shared inside values."""
    return len(one) == len(other) and all(
        (a[0], a[2]) == (b[0], b[2]) and isomorphic(a[1], b[1]) for a, b in zip(one, other, strict=True)
    )


def dumped(kv: Any) -> str:
    """The dump of a store as text."""
    file = io.StringIO()
    kv.dump(file)
    return file.getvalue()
