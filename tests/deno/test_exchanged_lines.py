"""The real Deno imports a dump in its format, and its exports are loaded here as equal values."""

from __future__ import annotations

import io
import math
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kvmodels import Database, Indexed, KvMap, KvModel, KvU64, PrimaryKey, open_kv
from kvmodels.core.values import UNDEFINED
from tests.deno.runtime import run_script

SCRIPT = Path(__file__).with_name("exchange.ts")

VALUES: dict[tuple[Any, ...], Any] = {
    (b"\0\xff", "é\0", 1, 1.5, True, False): None,
    (-(2**70), math.inf, -math.inf): UNDEFINED,
    ("nan", math.nan): [1.0, -0.5, 2.0**60, math.inf, math.nan],
    ("ints",): [0, -1, 2**64, 2**1000],
    ("text",): {"a日😀": "line\n\u2028", "": {"nested": [[], {}]}},
    ("bytes",): b"\xfb\xff\x00",
    ("u64",): KvU64(2**64 - 1),
    ("time",): [datetime(2026, 1, 2, 3, 4, 5, 6_000, UTC), datetime(1, 1, 1, tzinfo=UTC)],
    ("pattern",): re.compile("a+", re.I | re.S),
    ("map",): KvMap({1: "a", "b": KvMap({}), None: [True]}),
    ("set",): {1, 2.5, "a", b"b", None},
    ("array",): memoryview(b"\x01\x00\xff\xff").cast("h"),
}  # fmt: skip


def exchanged(tmp_path: Path, lines: str) -> str:
    source = tmp_path / "lines.ndjson"
    source.write_text(lines, encoding="utf-8")
    return run_script(SCRIPT, tmp_path / "kv.sqlite3", str(source))


def test_values_go_to_deno_and_come_back_equal(tmp_path):
    class Tree(KvModel, collection="trees"):
        id: PrimaryKey[int]
        kind: Indexed[str]
        height: float

    with Database(models=[Tree], codec="v8") as db, open_kv(codec="v8") as copy:
        for key, value in VALUES.items():
            db.kv.set(key, value)
        db[Tree].create(id=1, kind="oak", height=20.0)
        written = io.StringIO()
        assert db.kv.dump(written, format="deno") == len(VALUES) + 1
        copy.load(io.StringIO(exchanged(tmp_path, written.getvalue())), format="deno")
        for entry in db.kv.list(()):
            if not str(entry.key[0]).startswith(("__kvmodels__", "trees_by_")):
                back = copy.get(entry.key).value
                assert repr(back) == repr(entry.value) or back == entry.value
                assert type(back) is type(entry.value)
        assert copy.get(("trees", 1)).value == {"id": 1.0, "kind": "oak", "height": 20.0}
        error = copy.get(("deno", "error")).value
        assert (error["name"], error["message"]) == ("TypeError", "wrong")
        assert error["cause"] == datetime(1970, 1, 1, 0, 0, 0, 5_000, UTC)
        assert copy.get(("deno", "pattern")).value == re.compile(r"a\/[b/]\n", re.I)
        assert copy.get(("deno", "clamped")).value == b"\x01\xff"
        numbers = copy.get(("deno", "numbers")).value
        assert repr(numbers) == "[1.0, 1, -1.5, nan, -inf, 1.152921504606847e+18]"
