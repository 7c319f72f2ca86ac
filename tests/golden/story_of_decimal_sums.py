"""The story of sums of Decimals, in format 1.

``python -m tests.golden.story_of_decimal_sums FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

from kvmodels import AggregateIndex, KvModel, PrimaryKey
from tests.golden.story import TellingEngine, database, write_files


class Sale(KvModel, collection="sales"):
    """A price that is always there, a tip that may be None, and a number of pieces."""

    id: PrimaryKey[int]
    shop: str
    price: Decimal
    tip: Decimal | None = None
    pieces: int = 1

    class Meta:
        indexes: ClassVar = (AggregateIndex("shop", sums={"price": 2, "tip": 0, "pieces": None}),)


RECORDS: tuple[dict[str, Any], ...] = (
    {"id": 1, "shop": "Bern", "price": Decimal("1.50"), "tip": Decimal("1E+1")},
    {"id": 2, "shop": "Bern", "price": Decimal("-0.05"), "pieces": 3},
    {"id": 3, "shop": "Thun", "price": Decimal("50000000000")},
    {"id": 4, "shop": "Thun", "price": Decimal("0.00"), "tip": Decimal("-2.000")},
)


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, Sale)
    db[Sale].bulk_create([Sale(**record) for record in RECORDS])
    yield "1_records"
    db[Sale].patch(1, price=Decimal("2"))
    db[Sale].remove(4)
    yield "2_changed"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
