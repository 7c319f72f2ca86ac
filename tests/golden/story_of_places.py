"""The story of indexes of places, in format 1.

``python -m tests.golden.story_of_places FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from kvmodels import GeoIndex, GeoPoint, KvModel, PrimaryKey, Q
from tests.golden.story import TellingEngine, database, write_files


class Address(BaseModel):
    city: str
    point: GeoPoint | None = None


class Shop(KvModel, collection="shops"):
    """A place in a field, and one in a nested model."""

    id: PrimaryKey[int]
    location: GeoPoint | None = None
    kind: str | None = None
    address: Address | None = None

    class Meta:
        indexes: ClassVar = (
            GeoIndex("location"),
            GeoIndex("location", group="kind", where=Q(id__gte=2), name="by_kind"),
            GeoIndex("address.point"),
        )


RECORDS: tuple[dict[str, Any], ...] = (
    {"id": 1, "location": GeoPoint(lat=46.95, lon=7.44), "kind": "bakery"},
    {"id": 2, "location": GeoPoint(lat=90, lon=180), "kind": "bakery"},
    {"id": 3, "location": GeoPoint(lat=-90, lon=-180), "address": Address(city="Bern")},
    {"id": 4, "location": GeoPoint(lat=0, lon=0), "kind": "smith"},
    {"id": 5, "address": Address(city="Suva", point=GeoPoint(lat=-18.1416, lon=178.4419))},
    {"id": 6, "location": GeoPoint(lat=-0.0, lon=-180), "kind": "smith"},
)


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, Shop)
    db[Shop].bulk_create([Shop(**record) for record in RECORDS])
    yield "1_records"
    db[Shop].patch(1, location=GeoPoint(lat=46.9500001, lon=7.44))
    db[Shop].patch(2, kind=None)
    db[Shop].patch(4, location=None)
    db[Shop].remove(6)
    yield "2_changed"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
