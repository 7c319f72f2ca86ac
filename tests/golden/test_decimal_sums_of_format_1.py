"""The counters of sums of Decimals in format 1 are a promise too: their bytes, and the places in the catalogue."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgpack
import pytest

from kvmodels import Database, Sum
from kvmodels.catalog.catalogue import Header, index_definition
from kvmodels.core.keys import decode_key
from kvmodels.schema.compile.schema import schema_of
from tests.golden.story import golden_rows, told_again
from tests.golden.story_of_decimal_sums import Sale, stages

FOLDER = Path(__file__).parent / "format_1_decimal_sums"
STAGES = ["1_records", "2_changed"]
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"


def counters(stage: str) -> dict[tuple[Any, ...], int]:
    """The signed counters by group and kind."""
    found: dict[tuple[Any, ...], int] = {}
    for row in golden_rows(FOLDER, stage):
        key = decode_key(bytes.fromhex(row["key"]))
        if key[:2] == ("__kvmodels__", "counter"):
            found[key[5:]] = int.from_bytes(bytes.fromhex(row["value"]), "little", signed=True)
    return found


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path: Any, where: str):
    assert told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db") == STAGES


def test_a_counter_holds_whole_numbers_of_the_last_place():
    assert counters("1_records") == {
        ("Bern", "count"): 2,
        ("Bern", "present:tip"): 1,
        ("Bern", "sum:pieces"): 4,
        ("Bern", "sum:price"): 145,
        ("Bern", "sum:tip"): 10,
        ("Thun", "count"): 2,
        ("Thun", "present:tip"): 1,
        ("Thun", "sum:pieces"): 2,
        ("Thun", "sum:price"): 5 * 10**12 % 2**32,
        ("Thun", "sum:price:high"): 5 * 10**12 >> 32,
        ("Thun", "sum:tip"): -2,
    }
    assert counters("2_changed")["Bern", "sum:price"] == 195
    assert counters("2_changed")["Thun", "sum:tip"] == 0


def test_the_catalogue_has_the_places():
    (row,) = (row for row in golden_rows(FOLDER, "1_records") if row["parts"] == "('__kvmodels__', 'header')")
    value = msgpack.unpackb(bytes.fromhex(row["value"]))
    (listed,) = Header.from_value(value, ("header",)).collections["sales"].indexes
    assert listed.signature["places"] == {"price": 2, "tip": 0}
    assert [column[:2] for column in listed.signature["sums"]] == [
        ["price", "decimal"],
        ["tip", "decimal"],
        ["pieces", "int"],
    ]
    assert index_definition(listed).signature() == schema_of(Sale).indexes["shop_totals"].signature()
    assert "| `places` |" in DOCUMENTATION.read_text(encoding="utf-8")


def test_a_file_is_read_and_written_on(tmp_path: Any):
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "store.sqlite3", path)
    with Database(path, models=[Sale]) as db:
        assert db.check().ok
        db[Sale].create(id=9, shop="Bern", price=Decimal("0.1"))
        assert db[Sale].filter(shop="Bern").aggregate(Sum("price")) == {"price__sum": Decimal("2.05")}
        assert db.check().ok
