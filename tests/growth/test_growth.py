"""The reads of a get, a filter, a page and a write do not depend on the number of records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kvmodels import Database, Field, Index, Indexed, KvModel, PrimaryKey, RetryPolicy, Unique
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import AtomicWrite, ReadRange, ReadResult, Row, Set
from kvmodels.engines.contract import Engine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.sqlite.engine import SqliteEngine
from tests.growth.counting import Reads, ReadsEngine, virtual_machine_steps

pytestmark = pytest.mark.servers

COLORS = 8

MARGIN = 5
"""Units of ten instructions of SQLite by which two equal reads may differ."""


class Person(KvModel, collection="people"):
    """Keys and values of one length, so that bytes can be compared."""

    id: PrimaryKey[str]
    email: Unique[str]
    color: Indexed[str]
    age: int
    nick: Unique[str | None] = Field(default=None)
    note: str = Field(default="-" * 50)

    class Meta:
        indexes: ClassVar = (Index("color", "-age"), Index("age", store="record"))


def person(n: int) -> Person:
    return Person(id=f"{n:08}", email=f"{n:08}@x.org", color=f"color-{n % COLORS}", age=20 + n % 50)


BLOCK = 1_000


def fill(engine: Engine, db: Database, size: int) -> None:
    """Insert the first block, and copy its rows with other numbers: ten times as fast as inserting all.

    Everything but the number repeats with every block, and the number has the same length everywhere.
    """
    before = {row.key for row in everything(engine)}
    db[Person].bulk_create([person(n) for n in range(BLOCK)])
    rows = [row for row in everything(engine) if row.key not in before]
    for block in range(1, size // BLOCK):
        number = f"{block:05}".encode()
        engine.commit(
            AtomicWrite(
                (),
                tuple(
                    Set(row.key.replace(b"00000", number), row.value.replace(b"00000", number), row.encoding)
                    for row in rows
                ),
            )
        )


def everything(engine: Engine) -> list[Row]:
    result = engine.read([ReadRange(b"", b"\xff")])
    assert isinstance(result, ReadResult)
    return result.ranges[0]


def test_the_copied_blocks_are_what_inserting_would_have_written():
    inserted, copied = MemoryEngine(), MemoryEngine()
    with Database.from_engine(inserted, core()) as one, Database.from_engine(copied, core()) as other:
        one[Person].bulk_create([person(n) for n in range(3 * BLOCK)])
        fill(copied, other, 3 * BLOCK)
        assert [row[:3] for row in everything(copied)] == [row[:3] for row in everything(inserted)]
        assert other.check().ok


MIDDLE = 420

CALLS: dict[str, Callable[[Any], Any]] = {
    "get by primary key": lambda db: db[Person].get(f"{MIDDLE:08}"),
    "get by unique index": lambda db: db[Person].get(email=f"{MIDDLE:08}@x.org"),
    "get what is absent": lambda db: db[Person].get_or_none("absent!!"),
    "get by an absent unique value": lambda db: db[Person].get_or_none(email="absent!!@x.org"),
    "in_bulk of 10": lambda db: db[Person].in_bulk([f"{n:08}" for n in range(0, 1_000, 100)]),
    "filter, first 20": lambda db: db[Person].filter(color="color-3")[:20].to_list(),
    "filter and order, first 20": lambda db: db[Person].filter(color="color-3").order_by("-age")[:20].to_list(),
    "copies, first 20": lambda db: db[Person].filter(age=40)[:10].to_list(),
    "range, first 20": lambda db: db[Person].filter(email__gte=f"{MIDDLE:08}")[:20].to_list(),
    "in, first 20": lambda db: db[Person].filter(color__in=["color-1", "color-5"])[:20].to_list(),
    "all, last 20": lambda db: db[Person].order_by("-id")[:20].to_list(),
    "first": lambda db: db[Person].filter(color="color-3").first(),
    "last": lambda db: db[Person].filter(color="color-3").last(),
    "exists": lambda db: db[Person].filter(color="color-3").exists(),
    "first page": lambda db: db[Person].filter(color="color-3").page(size=25),
    "third page": lambda db: third_page(db),
}

WRITES: dict[str, Callable[[Any], Any]] = {
    "patch of a plain field": lambda db: db[Person].patch(f"{MIDDLE:08}", note="+" * 50),
    "patch of an indexed field": lambda db: db[Person].patch(f"{MIDDLE:08}", color="color-9"),
    "patch of a unique field": lambda db: db[Person].patch(f"{MIDDLE:08}", email="moved123@x.org"),
    "create": lambda db: db[Person].create(id="new!!!!!", email="new!!!!!@x.org", color="color-9", age=33),
    "remove": lambda db: db[Person].remove(f"{MIDDLE:08}"),
}


def third_page(db: Database) -> Any:
    people = db[Person].filter(color="color-3")
    second = people.page(size=25, after=people.page(size=25).next_cursor)
    return people.page(size=25, after=second.next_cursor)


def counted(engine: ReadsEngine, db: Database) -> dict[str, Reads]:
    counts = {}
    for name, call in {**CALLS, **WRITES}.items():
        engine.reset()
        call(db)
        counts[name] = engine.counts
    return counts


def core() -> DatabaseCore:
    return DatabaseCore([Person], retry=RetryPolicy(), readonly=False, must_be_current=False)


@pytest.fixture(scope="module")
def in_memory() -> dict[int, dict[str, Reads]]:
    found = {}
    for size in (1_000, 10_000, 100_000):
        engine = ReadsEngine(MemoryEngine())
        with Database.from_engine(engine, core()) as db:
            fill(engine.inner, db, size)
            found[size] = counted(engine, db)
    return found


@pytest.mark.parametrize("call", [*CALLS, *WRITES])
def test_rows_and_bytes_read_are_equal_at_1_000_and_10_000_and_100_000_records(in_memory, call):
    small, medium, large = (in_memory[size][call] for size in (1_000, 10_000, 100_000))
    print(f"{call}: {small}")
    assert small == medium == large
    assert small.calls > 0 or call == "create"


def test_what_is_read_is_what_is_asked_for_and_no_more(in_memory):
    counts = in_memory[100_000]
    assert counts["get by primary key"][:3] == (1, 1, 1)
    assert counts["get by unique index"].rows == 2
    assert counts["get by an absent unique value"].rows == 0
    assert counts["filter, first 20"].rows == 40
    assert counts["filter and order, first 20"].rows == 40
    assert counts["copies, first 20"].rows == 10
    assert counts["all, last 20"].rows == 20
    assert (counts["exists"].calls, counts["exists"].rows) == (1, 0)
    assert counts["first page"].rows <= 2 * 26
    assert counts["patch of a plain field"].rows == 1
    assert counts["create"] == Reads(0, 0, 0, 0, 1)
    assert all(counts[name].commits == 1 for name in WRITES)


def on_file(path: Path, size: int) -> tuple[dict[str, Reads], dict[str, int]]:
    inner = SqliteEngine(path, durability="relaxed")
    engine = ReadsEngine(inner)
    steps: dict[str, int] = {}
    with Database.from_engine(engine, core()) as db:
        fill(inner, db, size)
        for name, call in CALLS.items():
            with virtual_machine_steps(inner) as seen:
                call(db)
            steps[name] = seen[0]
        counts = counted(engine, db)
    return counts, steps


def require_equal_on_sqlite(folder: Path, *sizes: int) -> None:
    found = {size: on_file(folder / f"{size}.db", size) for size in sizes}
    counts, steps = found[sizes[0]]
    for size in sizes[1:]:
        assert found[size][0] == counts, size
        # Rows that are stepped over grow with the store, and take several instructions each.
        assert all(abs(found[size][1][name] - taken) <= MARGIN for name, taken in steps.items()), size
    print(f"units of 10 instructions of SQLite at {sizes}: {steps}")
    assert all(taken < 3_000 for taken in steps.values())


def test_sqlite_hands_out_and_steps_over_the_same_at_1_000_and_10_000_records(tmp_path):
    """Its virtual machine executes as many instructions: no row is passed over that is not handed out."""
    require_equal_on_sqlite(tmp_path, 1_000, 10_000)


@pytest.mark.soak
def test_sqlite_hands_out_and_steps_over_the_same_at_100_000_records(tmp_path):
    require_equal_on_sqlite(tmp_path, 1_000, 100_000)
