"""The story of a blind index that moves to another key, in format 1.

``python -m tests.golden.story_of_index_keys FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from kvmodels import Encrypted, Field, Index, Indexed, KvModel, PrimaryKey, Unique
from tests.golden.story import TellingEngine, database, write_files
from tests.golden.story_of_sealed_values import RING


def release(keys: int | tuple[int, ...]) -> type[Any]:
    """The class of a release with these index keys; the field ``town`` stays with key 1."""

    class Guest(KvModel, collection="guests"):
        id: PrimaryKey[int]
        passport: Annotated[str, Encrypted(index_key=keys), Unique(key=str.casefold)]
        city: Annotated[str | None, Encrypted(index_key=keys), Indexed()] = Field(default=None)
        town: Encrypted[str] = Field(default="a")
        floor: int = 0

        class Meta:
            indexes = (Index("floor", "city"), Index("town", "city", name="both"))

    return Guest


FIRST, SECOND, THIRD = release(1), release((2, 1)), release(2)


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    first = database(engine, FIRST, tokens="first", keys=RING)
    first[FIRST].create(id=1, passport="P-1", city="Rome")
    yield "1_one_key"
    second = database(engine, SECOND, tokens="second", keys=RING)
    assert second.apply().complete
    second[SECOND].create(id=2, passport="P-2", floor=1)
    yield "2_both_keys"
    third = database(engine, THIRD, tokens="third", keys=RING)
    for name in ("passport", "city", "floor_city", "both"):
        third.drop_index(THIRD, name)
    assert third.apply().complete
    third[THIRD].patch(1, floor=2)
    assert third.rotate(THIRD, to=2).complete
    yield "3_the_other_key"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
