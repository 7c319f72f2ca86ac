"""The indexes and blind values of several keys in format 1 are a promise: later releases find records by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import pytest

from kvmodels.core.keys import decode_key
from tests.golden.story import TellingEngine, database, golden_rows, store_of, told_again
from tests.golden.story_of_index_keys import FIRST, SECOND, THIRD, stages
from tests.golden.story_of_sealed_values import RING

FOLDER = Path(__file__).parent / "format_1_index_keys"
RELEASES: dict[str, type[Any]] = {"1_one_key": FIRST, "2_both_keys": SECOND, "3_the_other_key": THIRD}
STAGES = list(RELEASES)
LAYOUT = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path: Path, where: str) -> None:
    assert told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db") == STAGES


def test_the_names_of_the_indexes_and_columns_spelled_out() -> None:
    prefixes, columns = [], []
    for stage in STAGES:
        rows = {decode_key(bytes.fromhex(row["key"])): row["value"] for row in golden_rows(FOLDER, stage)}
        prefixes.append({str(key[0]).partition("_by_")[2] for key in rows if str(key[0]).startswith("guests_by_")})
        columns.append(set(msgpack.unpackb(bytes.fromhex(rows["guests", 1]))["$kv"]["c"]))
    of_one, of_two = {"passport", "city", "floor_city", "both"}, {"passport~blind2", "city~blind2", "floor_city~blind2"}
    assert prefixes == [of_one, of_one | of_two | {"both~blind1_2"}, of_two | {"both~blind1_2"}]
    blind = [{f"passport~casefold~blind{key}", f"city~blind{key}"} for key in (1, 2)]
    assert columns == [blind[0] | {"town~blind1"}, blind[0] | blind[1] | {"town~blind1"}, blind[1] | {"town~blind1"}]
    page = LAYOUT.read_text(encoding="utf-8")
    assert "`passport~blind2`" in page
    assert "`town_city~blind1_2`" in page


@pytest.mark.parametrize("stage", STAGES)
def test_the_present_code_finds_the_golden_records(stage: str) -> None:
    engine, model = TellingEngine(store_of(golden_rows(FOLDER, stage))), RELEASES[stage]
    with database(engine, model, tokens="later", keys=RING) as db:
        assert db.plan().is_current
        guests: Any = db[model]
        for found in (
            guests.get(passport="p-1"),
            guests.get(city="Rome"),
            guests.get(town="a", city="Rome"),
            guests.get(floor=guests.get(1).floor, city="Rome"),
        ):
            assert (found.id, found.passport) == (1, "P-1")
        assert db.check().ok
        guests.create(id=3, passport="P-3")
        guests.remove(1)
        assert db.check().ok
