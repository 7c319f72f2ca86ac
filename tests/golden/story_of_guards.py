"""The story of guards, exclusive and shared, in format 1.

``python -m tests.golden.story_of_guards FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from kvmodels import Indexed, KvModel, PrimaryKey
from tests.golden.story import TellingEngine, database, write_files


class Room(KvModel, collection="rooms"):
    """Something that bookings need."""

    id: PrimaryKey[int]


class Booking(KvModel, collection="bookings"):
    id: PrimaryKey[int]
    room: Indexed[int]


MODELS = (Room, Booking)


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, *MODELS)
    db[Room].create(id=7)
    with db.transaction() as tx:
        tx.guard("room", 7)
        tx[Booking].create(id=1, room=7)
    yield "1_exclusive"
    with db.transaction() as tx:
        tx.guard("room", 7, shared=True)
        tx.guard("house", b"\x00\xff", 1.5, True, shared=True)
        tx[Booking].create(id=2, room=7)
    yield "2_shared"
    with db.transaction() as tx:
        tx.guard("room", 7, shared=True)
        tx.guard("room", 7)
        tx[Booking].remove(1)
    yield "3_both"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
