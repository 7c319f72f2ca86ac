"""The story of transactions, bulk writes, time fields and classes that share a collection, in format 1.

``python -m tests.golden.story_of_work FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

from kvmodels import (
    AggregateIndex,
    AutoNow,
    AutoNowAdd,
    Database,
    F,
    Field,
    Indexed,
    KvModel,
    PrimaryKey,
    Unique,
    Version,
)
from kvmodels.catalog.keyspace import bulk_key
from tests.golden.story import Stopped, TellingEngine, database, sets, write_files


class Task(KvModel, collection="tasks"):
    """A record that says when and how often it was written."""

    id: PrimaryKey[int]
    code: Unique[str]
    state: Indexed[str] = Field(default="open")
    hits: Indexed[int] = Field(default=0)
    created_at: datetime = AutoNowAdd()
    day: date = AutoNowAdd()
    updated_at: Indexed[datetime] = AutoNow()
    revision: int = Version()

    class Meta:
        indexes: ClassVar = (AggregateIndex("state", sums=("hits",), name="per_state"),)


class Shape(KvModel, collection="shapes", discriminator="kind"):
    """The fields of all classes."""

    id: PrimaryKey[int]
    kind: str
    label: Unique[str]


class Circle(Shape):
    kind: Literal["circle"] = "circle"
    radius: Indexed[int]


class Square(Shape):
    kind: Literal["square"] = "square"
    side: Indexed[int]


MODELS = (Task, Shape)


def task(number: int, **changes: Any) -> Task:
    return Task(id=number, code=f"c{number}", **changes)


def walk(db: Database) -> Any:
    """Records in the order of their keys."""
    return db[Task].filter(state="open").update(hits=F("hits") + 1, batch_size=2, resume_id="walk")


def collect(db: Database) -> Any:
    """Records whose primary keys are stored first, because the update changes what they are found by."""
    return db[Task].filter(hits__gte=0).update(hits=F("hits") + 10, batch_size=2, resume_id="collect")


def clash(db: Database) -> Any:
    """A value that is unique, so that only the first record can take it."""
    return db[Task].all().update(code="same", batch_size=2, on_error="collect", resume_id="clash")


def create(db: Database) -> Any:
    """New objects, of which one has the code of another record."""
    return db[Task].bulk_create(
        [task(20), task(21, state="done"), Task(id=22, code="c20"), task(23)],
        on_conflict="ignore",
        batch_size=3,
        resume_id="create",
    )


def overwrite(db: Database) -> Any:
    """Objects that take the place of records, and one that is new."""
    return db[Task].bulk_create(
        [task(20, hits=7), task(30), task(21, hits=8)], on_conflict="update", batch_size=2, resume_id="overwrite"
    )


HALVES: tuple[tuple[str, Callable[[Database], Any], int], ...] = (
    ("walk", walk, 2),
    ("collect", collect, 3),
    ("clash", clash, 3),
    ("create", create, 2),
    ("overwrite", overwrite, 2),
)
"""Bulk writes, and how often each has set its progress when its first process is killed."""


def tidy(db: Database) -> None:
    """Every bulk write, to its end."""
    for _, write, _ in HALVES:
        write(db)


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, *MODELS)
    db[Task].bulk_create([task(number) for number in range(5)])
    db[Task].patch(4, state="done")
    db[Shape].insert(Circle(id=1, label="ring", radius=2))
    db[Shape].insert(Square(id=2, label="box", side=3))
    yield "1_records"
    with db.transaction() as tx:
        tx.guard("room", 7, "east")
        tx[Task].patch(0, hits=tx[Task].get(1).hits + 5)
        tx[Shape].remove(2)
        tx[Shape].insert(Square(id=3, label="box", side=4))
        tx.kv.set(("seen", 1), "yes")
    yield "2_transaction"
    for number, (name, write, times) in enumerate(HALVES, 3):
        engine.stop = sets(bulk_key(name), times)
        try:
            write(db)
        except Stopped:
            engine.stop = lambda _: False
            yield f"{number}_half_of_{name}"
    tidy(db)
    yield "8_done"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
