"""A writer for the demo that loses updates, as code without a check does; the demo must notice."""

from __future__ import annotations

from examples.airports import CONTESTED, Airport, visit, visit_all
from kvmodels import Database


def lose_one(path: str, seed: int, rounds: int) -> int:
    """As ``visit_all``, but one process reads a record, updates it, and then saves what it had read over that."""
    conflicts = visit_all(path, seed, rounds)
    if seed != 0:
        return conflicts
    with Database(path, models=[Airport]) as db:
        airports = db[Airport]
        # One update less than all others first, so that the demo would be content if none were lost.
        airports.mutate(CONTESTED[0], take_back)
        read_before = airports.get(CONTESTED[0])
        airports.mutate(CONTESTED[0], visit)
        airports.save(read_before, force=True)
    return conflicts


def take_back(airport: Airport) -> None:
    """The reverse of ``visit``."""
    airport.visits -= 1
    airport.city = airport.city[::-1]
