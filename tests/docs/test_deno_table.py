"""The page on Deno KV names every call of Deno, and only such calls of ours as exist."""

from __future__ import annotations

import re

import pytest

import kvmodels
from kvmodels.api._sync.kv import AtomicOperation, Kv
from tests.source_tree import REPOSITORY

CALLS = [
    *("Deno.openKv", "kv.get", "kv.getMany", "kv.list", "kv.set", "kv.delete", "kv.atomic", "kv.watch", "kv.close"),
    *("kv.enqueue", "kv.listenQueue", "kv.commitVersionstamp", "iter.cursor", "using kv"),
    *(".check", ".mutate", ".sum", ".min", ".max", ".set", ".delete", ".enqueue", ".commit"),
    *("Deno.KvU64", "Deno.KvKey", "Deno.KvEntry", "Deno.KvEntryMaybe"),
    *("limit", "reverse", "cursor", "batchSize", "consistency", "expireIn", "keysIfUndelivered", "backoffSchedule"),
    *("raw", "delay"),
]
"""The reference of Deno KV: functions, methods of Kv and AtomicOperation, types, options."""


def rows() -> list[tuple[str, str]]:
    page = (REPOSITORY / "docs" / "guides" / "deno.md").read_text("utf-8")
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in page.splitlines() if line[:1] == "|"]
    return [(row[0], row[1]) for row in cells if row[0] not in ("Deno", "---|---|---")]


@pytest.mark.parametrize("call", CALLS)
def test_every_call_of_deno_has_a_row(call):
    assert any(re.search(rf"(?<![\w.]){re.escape(call)}\b", deno) for deno, _ in rows())


def test_what_the_table_gives_exists():
    found = 0
    for _, here in rows():
        for name in re.findall(r"`kv\.(\w+)\(", here):
            assert callable(getattr(Kv, name)), name
            found += 1
        for name in re.findall(r"`\.(\w+)\(", here):
            assert callable(getattr(AtomicOperation, name)), name
            found += 1
        for name in re.findall(r"`(?:with )?(open_kv|open_async_kv|KvU64|KvMap|UNDEFINED|COMMIT_VERSIONSTAMP)\b", here):
            assert hasattr(kvmodels, name), name
            found += 1
    assert found > 30
