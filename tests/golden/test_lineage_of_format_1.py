"""The row of the lineage and the text of a position in format 1: programs store the text, so later releases read it."""

from __future__ import annotations

from pathlib import Path

from kvmodels import Database, KvModel, Position, PrimaryKey
from kvmodels.core.lineage import LINEAGE_KEY
from kvmodels.core.operations import point
from kvmodels.flows.effects import read

KEY = bytes.fromhex("025f5f6b766d6f64656c735f5f00026c696e6561676500")
VALUE = bytes.fromhex("d9206137623463306431653266333435353636373738383939303030616162626363")
POSITION = "1.a7b4c0d1e2f345566778899000aabbcc.dfe0b81f6809a85a.0006616dfe93bc270000.026c616d707300150100"
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"


class Lamp(KvModel, collection="lamps"):
    id: PrimaryKey[int]


def test_the_row_of_the_lineage_and_a_position_in_the_middle_of_a_scan():
    with Database("memory://", models=[Lamp], change_log=60) as db:
        db[Lamp].bulk_create([Lamp(id=1), Lamp(id=2)])
        db.kv.unsafe().set(("__kvmodels__", "lineage"), "a7b4c0d1e2f345566778899000aabbcc")
        [[row]] = db[Lamp]._runner.run_part(read([point(LINEAGE_KEY)]), None).ranges
        assert (row.key, row.value) == (KEY, VALUE)
        position = db[Lamp].changed_since(limit=1).position
        found = Position.parse(POSITION)
        assert (position.lineage, position.scope, position.cursor) == (found.lineage, found.scope, found.cursor)
        assert str(found) == POSITION
    assert '`("__kvmodels__", "lineage")`' in DOCUMENTATION.read_text(encoding="utf-8")
