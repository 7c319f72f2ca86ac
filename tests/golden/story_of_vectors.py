"""The story of indexes of vectors, in format 1.

``python -m tests.golden.story_of_vectors FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from kvmodels import KvModel, PrimaryKey, Q, Vector, VectorIndex
from tests.golden.story import TellingEngine, database, write_files


class Shade(BaseModel):
    """A nested vector."""

    rgb: Vector | None = None


class Color(KvModel, collection="colors"):
    """A vector in every stored form, in groups, and in a nested model."""

    id: PrimaryKey[int]
    look: Vector | None = None
    org: str | None = None
    tags: list[str] = []
    shade: Shade | None = None

    class Meta:
        indexes: ClassVar = (
            VectorIndex("look", dim=3),
            VectorIndex("look", dim=3, metric="l2", store="float16", group="org", where=Q(id__gte=2), name="of_org"),
            VectorIndex("look", dim=3, metric="dot", store="int8", group="tags", name="tagged"),
            VectorIndex("shade.rgb", dim=2, metric="l2", store="int8"),
        )


RECORDS: tuple[dict[str, Any], ...] = (
    {"id": 1, "look": Vector([1, -0.5, 0.1]), "org": "acme"},
    {"id": 2, "look": Vector([0.1, 0.2, -65504]), "org": "acme", "tags": ["a", "b"]},
    {"id": 3, "org": "acme", "tags": ["a"], "shade": Shade(rgb=Vector([0, 0]))},
    {"id": 4, "look": Vector([1e-30, 0, 3e-8]), "tags": ["b"], "shade": Shade(rgb=Vector([1e-44, -3e38]))},
)


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, Color)
    db[Color].bulk_create([Color(**record) for record in RECORDS])
    yield "1_records"
    db[Color].patch(1, look=Vector([1, -0.5, 0.2]))
    db[Color].patch(2, org="zoo", tags=["b"])
    db[Color].patch(4, look=None)
    db[Color].remove(3)
    yield "2_changed"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
