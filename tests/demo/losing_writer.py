"""A writer for the demo that loses exactly one update, as code without a check does; the demo must notice."""

from __future__ import annotations

from examples.airports import CONTESTED, Airport, visit, visit_many
from kvmodels import Database


def lose_one(path: str, seed: int, visits: int) -> int:
    """As ``visit_many``, but the first process takes back one update of its own by overwriting it."""
    conflicts = visit_many(path, seed, visits - 1)
    with Database(path, models=[Airport]) as db:
        airports = db[Airport]
        if seed != 0:
            airports.mutate(CONTESTED[0], visit)
            return conflicts
        airports.mutate(CONTESTED[0], visit)
        lost = airports.get(CONTESTED[0])
        lost.visits -= 1
        lost.city = lost.city[::-1]
        airports.save(lost, force=True)
    return conflicts
