"""The story of indexes of ranks, in format 1.

``python -m tests.golden.story_of_ranks FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar

from kvmodels import KeyNumber, KvModel, PrimaryKey, Q, RankIndex
from tests.golden.story import TellingEngine, database, write_files

FIRST, LAST = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)


class Player(KvModel, collection="players"):
    """A rank by every type."""

    id: PrimaryKey[int]
    league: str | None = None
    score: int | None = None
    speed: float = 0.0
    price: Decimal = Decimal(0)
    seen: datetime = FIRST
    born: date = date(2000, 1, 1)
    played: timedelta = timedelta(0)
    level: Annotated[int, KeyNumber()] = 0

    class Meta:
        indexes: ClassVar = (
            RankIndex("-score", group="league", low=0, high=100_000, name="board"),
            RankIndex("score", low=0, high=15, levels=1, name="ascending"),
            RankIndex("speed", low=0, high=1, levels=2, where=Q(score__gte=0), name="speeds"),
            RankIndex("-price", low=0, high=Decimal("0.1"), levels=1, name="prices"),
            RankIndex("seen", low=FIRST, high=LAST, levels=6, name="sightings"),
            RankIndex("born", low=date(1900, 1, 1), high=date(2030, 12, 31), levels=2, name="births"),
            RankIndex("-played", low=timedelta(0), high=timedelta(hours=1), levels=2, name="times"),
            RankIndex("level", low=1, high=256, levels=2, name="levels"),
        )


RECORDS: tuple[dict[str, Any], ...] = (
    {"id": 1, "league": "gold", "score": 50_000, "speed": 0.5, "price": Decimal("0.05"), "level": 16},
    {"id": 2, "league": "gold", "score": 99_999, "speed": -1e300, "seen": LAST, "level": 17},
    {"id": 3, "league": "gold", "score": 10**30, "speed": float("inf"), "born": date(1899, 12, 31)},
    {"id": 4, "score": -5, "price": Decimal("-1e3000"), "played": timedelta(minutes=30)},
    {"id": 5, "league": "gold", "played": timedelta(days=-1)},
)


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, Player)
    db[Player].bulk_create([Player(**record) for record in RECORDS])
    yield "1_records"
    db[Player].patch(1, score=50_001)
    db[Player].patch(2, score=7)
    db[Player].patch(4, score=None, league="silver")
    db[Player].remove(3)
    yield "2_changed"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
