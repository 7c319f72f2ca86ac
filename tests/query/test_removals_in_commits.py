"""A removal whose record is read in the transaction of its commit ends as the one that reads it before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels import AsyncDatabase, Database, Field, Indexed, KvModel, PrimaryKey, RetryPolicy, Unique
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import Committed, Conflict, ReadRange, Removal
from kvmodels.engines.contract import Capabilities, WriteCalls
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.errors import LimitExceededError, ReadOnlyError, RetriesExhaustedError, SchemaMismatchError
from kvmodels.indexing import simple
from kvmodels.limits import Limits
from tests.contract.shorthand import rows
from tests.passing_engine import PassingEngine
from tests.query.test_direct_writes import NOW, STEPS, in_full, story


class Place(KvModel, collection="places"):
    id: PrimaryKey[int]
    name: Unique[str]
    kind: str = "a"
    text: str = ""


class Watching(PassingEngine):
    """Somebody else writes right before each of the next removals; all are counted."""

    def __init__(self, inner: SqliteEngine) -> None:
        super().__init__(inner)
        self.remover = inner
        self.rivals: list[Callable[[], object]] = []
        self.outcomes: list[Committed | Conflict] = []
        self.allowed = inner.limits

    @property
    def limits(self) -> Limits:
        return self.allowed

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(self.traits, writes=WriteCalls(remove=self.remove))

    def remove(self, removal: Removal) -> Committed | Conflict:
        if self.rivals:
            self.rivals.pop(0)()
        self.outcomes.append(self.remover.remove(removal))
        return self.outcomes[-1]


def watched(attempts: int = 50, **options: Any) -> tuple[Watching, Database]:
    engine = Watching(SqliteEngine(":memory:", clock=lambda: NOW, **options))
    db = Database.from_engine(engine, DatabaseCore((Place,), retry=RetryPolicy(attempts=attempts, initial_s=0.0)))
    db[Place].create(id=1, name="one")
    return engine, db


@given(st.lists(STEPS, min_size=1, max_size=12))
def test_both_ways_tell_and_store_the_same(steps: list[tuple[str, Any, Any]]):
    def told() -> Any:
        engine = SqliteEngine(":memory:", clock=lambda: NOW)
        try:
            return story(steps, engine)
        finally:
            engine.close()

    short = told()
    with pytest.MonkeyPatch.context() as patch:
        in_full(patch)
        assert told() == short


@pytest.mark.fast_kinds
def test_a_removal_is_one_commit_without_a_read(monkeypatch: pytest.MonkeyPatch):
    engine, db = watched()
    monkeypatch.setattr(engine, "read", None)  # nobody may ask for it
    assert db[Place].remove(1)
    assert [type(outcome) for outcome in engine.outcomes] == [Committed]


@pytest.mark.fast_kinds
def test_what_somebody_else_has_written_meanwhile_is_no_conflict():
    engine, db = watched(attempts=1)
    engine.rivals = [lambda: db[Place].patch(1, name="two")]
    assert db[Place].remove(1)
    assert [type(outcome) for outcome in engine.outcomes] == [Committed]
    assert db.check().ok
    db[Place].create(id=2, name="two")
    engine.rivals = [lambda: db[Place].remove(2)]
    assert not db[Place].remove(2)


def more_indexes(engine: Watching) -> Callable[[], object]:
    """Another release begins to maintain an index, and has built it."""

    class Later(KvModel, collection="places"):
        id: PrimaryKey[int]
        name: Unique[str]
        kind: Indexed[str] = Field(default="a")
        text: str = ""

    def opened() -> None:
        db = Database.from_engine(engine.inner, DatabaseCore((Later,)))
        db.build_indexes()
        assert db[Later].filter(kind="a").count() == 1

    return opened


class Other(KvModel, collection="others"):
    id: PrimaryKey[int]


def another_collection(engine: Watching) -> Callable[[], object]:
    """The header changes, and the removal may be made nevertheless."""
    return lambda: Database.from_engine(engine.inner, DatabaseCore((Place, Other)))


def nothing_goes_that_has_entries_which_the_program_does_not_know() -> None:
    engine, db = watched()
    engine.rivals = [more_indexes(engine)]
    refused = False
    try:
        db[Place].remove(1)
    except SchemaMismatchError:
        refused = True
    assert refused
    assert engine.outcomes == [Conflict((0,))]
    assert db[Place].get(1).name == "one"


@pytest.mark.fast_kinds
def test_nothing_goes_that_has_entries_which_the_program_does_not_know():
    nothing_goes_that_has_entries_which_the_program_does_not_know()


def test_a_removal_that_does_not_check_the_header_is_convicted(monkeypatch: pytest.MonkeyPatch):
    real = SqliteEngine.remove

    def unchecked(engine: SqliteEngine, removal: Removal) -> Committed | Conflict:
        (row,) = rows(engine, ReadRange(removal.check.key))
        return real(engine, removal._replace(check=removal.check._replace(versionstamp=row.versionstamp)))

    monkeypatch.setattr(SqliteEngine, "remove", unchecked)
    with pytest.raises(AssertionError):
        nothing_goes_that_has_entries_which_the_program_does_not_know()


@pytest.mark.fast_kinds
def test_an_attempt_that_met_another_header_counts():
    engine, db = watched(attempts=1)
    engine.rivals = [another_collection(engine)]
    with pytest.raises(RetriesExhaustedError) as raised:
        db[Place].remove(1)
    assert raised.value.attempts == 1
    engine, db = watched(attempts=2)
    engine.rivals = [another_collection(engine)]
    assert db[Place].remove(1)
    assert engine.outcomes == [Conflict((0,))]
    assert db.check().ok


@pytest.mark.fast_kinds
@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        ("max_checks", range(4)),
        ("max_mutations", range(4)),
        ("max_key_bytes", range(8, 72, 4)),
        ("max_operation_bytes", range(20, 260, 8)),
    ],
    ids=str,
)
def test_an_operation_over_a_limit_is_refused_as_the_full_way_refuses_it(
    limit: str, sizes: range, monkeypatch: pytest.MonkeyPatch
):
    def told(size: int) -> Any:
        engine, db = watched()
        db[Place].create(id=2, name="o" * 40)
        engine.allowed = replace(Limits.EMBEDDED, **cast("Any", {limit: size}))
        small = Database.from_engine(engine, DatabaseCore((Place,)))
        try:
            return small[Place].remove(2), len(engine.outcomes)
        except LimitExceededError as error:
            return str(error), 0
        finally:
            assert db.check().ok

    short = [told(size) for size in sizes]
    in_full(monkeypatch)
    full = [told(size) for size in sizes]
    assert [one for one, _ in short] == [one for one, _ in full]
    assert {type(one) for one, _ in short} == {bool, str}
    assert short[-1] == (True, 1)


@pytest.mark.fast_kinds
def test_a_large_record_is_read_before():
    engine, db = watched()
    db[Place].create(id=2, name="two", text="x" * simple.LARGEST_AWAITED)
    assert db[Place].remove(2)
    assert engine.outcomes == [Conflict(())]
    assert db[Place].get_or_none(2) is None
    assert db.check().ok


def test_records_of_another_codec_are_read_before():
    engine = Watching(SqliteEngine(":memory:"))
    db = Database.from_engine(engine, DatabaseCore((Place,), codec="v8"))
    db[Place].create(id=1, name="one")
    assert db[Place].remove(1)
    assert engine.outcomes == []


def test_what_is_not_there_is_no_error_in_a_store_that_is_read_only(tmp_path: Path):
    with Database(str(tmp_path / "store.db"), models=[Place]) as db:
        db[Place].create(id=1, name="one")
    with Database(str(tmp_path / "store.db"), models=[Place], readonly=True) as db:
        assert not db[Place].remove(2)
        with pytest.raises(ReadOnlyError):
            db[Place].remove(1)


async def test_tasks_remove_in_one_transaction(tmp_path: Path):
    async with AsyncDatabase(str(tmp_path / "store.db"), models=[Place], durability="relaxed") as db:
        for key in range(20):
            await db[Place].create(id=key, name=str(key))
        assert await asyncio.gather(*(db[Place].remove(key % 25) for key in range(30))) == [
            *[True] * 20,
            *[False] * 10,
        ]
        assert (await db.check()).ok
