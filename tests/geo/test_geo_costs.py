"""An index of places costs a write little more than a plain index, in bytecode instructions, and few reads a query."""

from __future__ import annotations

import pytest

from kvmodels import GeoIndex, GeoPoint, Index, KvModel, PrimaryKey, Unique
from kvmodels.schema.declare.declarations import DeclaredIndex
from tests.write_costs import instructions_of_writes

BERN = GeoPoint(lat=46.95, lon=7.44)
MOST = (1.3, 1.1)
"""The instructions of a create, and of a patch of another field, by those with a plain index in its place."""


def counted_with(index: DeclaredIndex) -> tuple[int, int]:
    """Return the instructions of a create, and of a patch of another field."""

    class Item(KvModel, collection="items"):
        id: PrimaryKey[int]
        code: Unique[str]
        color: str = "green"
        location: GeoPoint = BERN
        note: str = ""

        class Meta:
            indexes = (index,)

    return instructions_of_writes(Item)


@pytest.mark.fast_kinds
def test_an_index_of_places_costs_a_write_little_and_a_patch_of_other_fields_nothing():
    plain, geo = counted_with(Index("color")), counted_with(GeoIndex("location"))
    for found, before, most in zip(geo, plain, MOST, strict=True):
        assert found <= before * most, (plain, geo)
