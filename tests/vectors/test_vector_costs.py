"""The reads of a query, the rows that they give, and the records that the bounds of each store leave."""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar

import pytest

from kvmodels import Field, Indexed, KvModel, PrimaryKey, Vector, VectorIndex
from kvmodels.flows.reading.scan import FEWEST_TESTED
from tests.query.engines import WatchedEngine, watched
from tests.vectors.queries import METRICS, STORES

DIM = 32
RECORDS = 600
FOUND = 100
"""The records of a filter that another index answers."""


class Text(KvModel, collection="texts"):
    id: PrimaryKey[int]
    topic: Indexed[str] = Field(default="a")
    half: str = "x"
    look: Vector[DIM]  # type: ignore[type-arg,valid-type]

    class Meta:
        indexes: ClassVar = tuple(
            VectorIndex("look", metric=metric, store=store, group=group, name=f"{metric}_{store}_{name}")
            for metric in METRICS
            for store in STORES
            for name, group in (("all", ()), ("half", "half"))
        )


READ_AT_MOST = {"float32": 5, "float16": 6, "int8": 15}
"""The records that are read for five results among random vectors."""


def filled() -> tuple[WatchedEngine, Any]:
    """A counting engine and its records."""
    chance = Random(11)
    db, engine = watched([Text])
    vectors = [Vector([chance.gauss(0, 1) for _ in range(DIM)]) for _ in range(RECORDS)]
    db[Text].bulk_create(
        [
            Text(id=key, topic="rare" if key < FOUND else "a", half="xy"[key % 2], look=one)
            for key, one in enumerate(vectors)
        ]
    )
    return engine, db[Text]


@pytest.fixture(scope="module")
def texts() -> tuple[WatchedEngine, Any]:
    return filled()


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("metric", METRICS)
def test_each_entry_is_read_once_and_the_records_within_the_bounds_in_one_read(metric, store, texts):
    engine, repository = texts
    check_costs(engine, repository, metric, store)


def check_costs(engine: WatchedEngine, repository: Any, metric: str, store: str) -> None:
    """Count the reads of five results, the rows of entries, and those of records."""
    chance = Random(metric)
    most = 0
    for _ in range(5):
        origin = Vector([chance.gauss(0, 1) for _ in range(DIM)])
        for name, conditions, entries, reads in (
            ("all", {}, RECORDS, 2),
            ("half", {"half": "x"}, RECORDS // 2, 2),
            ("half", {"half__in": ["x", "y"]}, RECORDS, 2),
            ("all", {"topic": "rare"}, 2 * FOUND, 3),
            ("half", {"half": "x", "topic": "rare"}, FOUND + FOUND // 2, 3),
        ):
            engine.meter.reset()
            query = repository.filter(**conditions).similar(f"{metric}_{store}_{name}", origin)
            assert len(query[:5].to_list()) == 5
            records = engine.meter.rows - entries
            assert engine.meter.reads == reads, (name, conditions)
            # Records that are tested are read in batches of at least so many.
            least = FEWEST_TESTED if "topic" in conditions else 5
            assert least <= records <= max(least, READ_AT_MOST[store]), (name, conditions)
            most = max(most, records - least)
    assert most > 0 or store != "int8", "int8 never needed another record"


def test_numbers_of_results_are_counted_without_their_rows(texts):
    engine, repository = texts
    engine.meter.reset()
    assert repository.filter(half="x").similar("l2_int8_half", Vector([1] * DIM)).count() == RECORDS // 2
    assert (engine.meter.reads, engine.meter.rows) == (1, 0)
