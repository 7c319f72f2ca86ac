"""Batches of new objects that are compiled by columns end as batches that are compiled object by object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from traceback import format_tb
from typing import Any

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st
from pydantic import field_validator

from kvmodels import AlreadyExistsError, Database, Field, Index, Indexed, KvModel, PrimaryKey, RetryPolicy, Unique
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import AtomicWrite, Committed, Conflict, ReadRange, ReadResult, Row
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import EngineError, KvModelsError, RetriesExhaustedError, UniqueViolationError
from kvmodels.flows.bulk import create as bulk
from kvmodels.flows.bulk import insert as bulk_insert
from kvmodels.indexing import rules
from kvmodels.limits import Limits
from kvmodels.schema.compile.record_codec import RecordCodec
from kvmodels.schema.instances import state_of
from tests.passing_engine import PassingEngine

NOW = 1_700_000_000_000


class Person(KvModel, collection="people"):
    """Plain indexes over few values, of which some are refused by the model and some by an index."""

    id: PrimaryKey[int]
    email: Unique[str | None] = Field(default=None)
    name: str = Field(default="", max_length=3)
    city: Indexed[str] = Field(default="x")
    tags: list[str] = []

    class Meta:
        indexes = (Index("name", "-id"), Index("email", "name", name="both"))


class Visit(KvModel, collection="visits"):
    """A primary key of two columns, and values that are stored in another form."""

    day: PrimaryKey[datetime]
    guest: PrimaryKey[str]
    room: Unique[int]


PEOPLE = st.fixed_dictionaries(
    {"id": st.one_of(st.integers(0, 40), st.sampled_from(["1", 2.0, 2**70, -3]))},
    optional={
        "email": st.sampled_from([None, "a", "b\0", "ü", "\ud800", 7]),
        "name": st.sampled_from(["", "x", "y\0", "long"]),
        "city": st.sampled_from(["a", "b\0", "ü"]),
        "tags": st.just(["t"]),
    },
)
VISITS = st.fixed_dictionaries(
    {
        "day": st.sampled_from([datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)]),
        "guest": st.sampled_from(["a", "b"]),
        "room": st.integers(0, 9),
    }
)


def made(model: type[KvModel], values: list[dict[str, Any]]) -> list[Any]:
    """Objects whose values nobody has validated yet."""
    objects = [
        model(day=datetime(2026, 1, 1, tzinfo=UTC), guest="", room=0) if model is Visit else Person(id=0)
        for _ in values
    ]
    for one, fields in zip(objects, values, strict=True):
        vars(one).update(fields)
    return objects


def told(error: Exception) -> Any:
    """Everything that an error says."""
    attributes = [getattr(error, name, None) for name in ("position", "committed", "key", "existing_key", "index")]
    return type(error), str(error), getattr(error, "__notes__", None), attributes


def story(model: type[KvModel], present: list[Any], given: list[Any], size: int | None) -> Any:
    """Return the outcome of a bulk write, its progress, the state of the objects, and the stored rows."""
    engine = MemoryEngine(clock=lambda: NOW)
    db = Database.from_engine(engine, DatabaseCore((model,)))
    for one in made(model, present):
        try:
            db[model].insert(one)
        except (KvModelsError, ValueError):
            continue
    objects = made(model, given)
    kept = [vars(one).get("tags") for one in objects]
    progress: list[Any] = []
    try:
        found: Any = [
            (objects.index(item.obj), *item[1:])
            for item in db[model].bulk_create(objects, batch_size=size, progress=progress.append)
        ]
    except Exception as error:  # noqa: BLE001 - every error is compared
        found = told(error)
    same = [vars(one).get("tags") is tags for one, tags in zip(objects, kept, strict=True)]
    rows = engine.read([ReadRange(b"", b"\xff")], include_expired=True)
    assert isinstance(rows, ReadResult)
    return found, progress, [(vars(one), state_of(one)) for one in objects], same, rows.ranges[0]


def in_full(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bulk, "insert_columns", lambda *_: None)


@pytest.mark.parametrize(("model", "drawn"), [(Person, PEOPLE), (Visit, VISITS)])
def test_both_ways_tell_and_store_the_same(model: type[KvModel], drawn: st.SearchStrategy[Any]):
    @seed(20261121)
    @given(st.lists(drawn, max_size=2), st.lists(drawn, max_size=6), st.sampled_from([None, 1, 2, 4]))
    def compare(present: list[Any], given: list[Any], size: int | None) -> None:
        short = story(model, present, given, size)
        with pytest.MonkeyPatch.context() as patch:
            in_full(patch)
            assert story(model, present, given, size) == short

    compare()


class Lenient(KvModel, collection="lenient"):
    """Its validator is trusted, so its objects are validated in batches; a name of ! makes it raise a foreign error."""

    id: PrimaryKey[int]
    name: str = ""

    class Meta:
        trust_validators = True

    @field_validator("name")
    @classmethod
    def _refuse(cls, value: str) -> str:
        if value == "!":
            raise KeyError(value)
        return value


def test_an_error_of_a_validator_names_its_record_in_a_batch():
    with Database(models=[Lenient]) as db, pytest.raises(KeyError) as error:
        batch = [Lenient(id=1), Lenient(id=2)]
        vars(batch[1])["name"] = "!"
        db[Lenient].bulk_create(batch)
    assert any("position 1" in note for note in error.value.__notes__)


@pytest.mark.fast_kinds
def test_a_defect_of_the_batch_is_raised_and_not_worked_around(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> Any:
        raise RuntimeError("defect")

    with Database(models=[Person, Visit]) as db:
        monkeypatch.setattr(RecordCodec, "_document", broken)
        batch = made(Visit, [{}, {"day": datetime(2026, 1, 2, tzinfo=UTC)}])
        with pytest.raises(RuntimeError, match="defect") as error:
            db[Visit].bulk_create(batch)
        assert "in prepare_many" in "".join(format_tb(error.tb))


class Rivalled(PassingEngine):
    """Somebody else writes right before each of the next commits."""

    def __init__(self) -> None:
        super().__init__(MemoryEngine())
        self.rivals: list[Callable[[], object]] = []
        self.writes: list[AtomicWrite] = []

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self.writes.append(write)
        if self.rivals:
            self.rivals.pop(0)()
        return super().commit(write)


def rivalled(**options: Any) -> tuple[Rivalled, Database]:
    engine = Rivalled()
    db = Database.from_engine(engine, DatabaseCore((Person,), **options))
    engine.writes.clear()
    return engine, db


def people(*ids: int, **fields: Any) -> list[Person]:
    return [Person(id=number, email=f"p{number}", **fields) for number in ids]


def taken_on_the_way(db: Database, engine: Rivalled) -> None:
    """The second of three batches meets a record, and then a unique value, that somebody has stored meanwhile."""
    other = db[Person]
    engine.rivals = [lambda: None, lambda: other.create(id=4, email="other")]
    with pytest.raises(AlreadyExistsError) as refused:
        other.bulk_create(people(1, 2, 3, 4, 5), batch_size=2)
    assert (refused.value.position, refused.value.committed, refused.value.key) == (3, 2, 4)
    engine.rivals = [lambda: None, lambda: other.create(id=20, email="p14")]
    with pytest.raises(UniqueViolationError) as held:
        other.bulk_create(people(11, 12, 13, 14, 15), batch_size=2)
    assert (held.value.position, held.value.committed, held.value.existing_key) == (3, 2, 20)
    assert sorted(one.id for one in other) == [1, 2, 4, 11, 12, 20]
    assert db.check().ok


def test_what_is_taken_on_the_way_is_found_out():
    engine, db = rivalled()
    taken_on_the_way(db, engine)


@pytest.mark.parametrize("rule", ["record_check", "slot_check"])
def test_the_schedule_convicts_a_batch_without_its_checks(rule: str, monkeypatch: pytest.MonkeyPatch):
    engine, db = rivalled()
    monkeypatch.setattr(rules, rule, lambda *_: None)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        taken_on_the_way(db, engine)


def test_a_batch_goes_on_when_what_it_met_is_gone():
    engine, db = rivalled()
    other = db[Person]

    def pass_by() -> None:
        other.create(id=3)
        other.remove(3)
        db.kv.unsafe().set(("__kvmodels__", "header"), db.kv.get(("__kvmodels__", "header")).value)

    engine.rivals = [lambda: None, pass_by]
    items = other.bulk_create(people(1, 2, 3, 4, 5), batch_size=2)
    assert [(item.obj.id, item.created, item.error) for item in items] == [(n, True, None) for n in range(1, 6)]
    assert [other.save(item.obj).id for item in items] == [1, 2, 3, 4, 5]
    assert db.check().ok


@pytest.mark.parametrize("attempts", [1, 3])
def test_the_first_attempt_counts(attempts: int, monkeypatch: pytest.MonkeyPatch):
    def exhausted() -> Any:
        engine, db = rivalled(retry=RetryPolicy(attempts=attempts, initial_s=0.0))
        header = ("__kvmodels__", "header")

        def rival() -> None:
            rest, engine.rivals = engine.rivals, []
            db.kv.unsafe().set(header, db.kv.get(header).value)
            engine.rivals = rest

        engine.rivals = [rival] * 9
        with pytest.raises(RetriesExhaustedError) as error:
            db[Person].bulk_create(people(1, 2))
        return error.value.attempts, error.value.failed_checks

    short = exhausted()
    in_full(monkeypatch)
    assert exhausted() == short


def test_later_batches_store_the_objects_as_they_were_when_all_were_validated():
    engine, db = rivalled()
    objects = people(1, 2, 3, 4, name="a", tags=["t"])

    def change(_: object) -> None:
        for one in objects:
            one.name, one.tags = "z", [*one.tags, "u"]

    engine.rivals = [lambda: None, lambda: db[Person].create(id=30)]
    db[Person].bulk_create(objects, batch_size=2, progress=change)
    assert [(one.name, one.tags) for one in db[Person].filter(id__lt=10)] == [("a", ["t"])] * 4


def test_what_an_engine_raises_says_which_batches_are_committed():
    engine, db = rivalled()

    def fail() -> None:
        raise EngineError("disk")

    engine.rivals = [lambda: None, fail]
    with pytest.raises(EngineError, match="disk") as error:
        db[Person].bulk_create(people(1, 2, 3), batch_size=2)
    assert error.value.__notes__ == ["kvmodels: the batches before position 2 are committed"]


def test_a_batch_is_one_commit_with_a_check_for_each_record_and_slot():
    engine, db = rivalled()
    db[Person].bulk_create(people(1, 2, 3))
    (write,) = engine.writes
    assert (len(write.checks), len(write.mutations)) == (1 + 3 + 3, 3 + 3 + 3 * 3)


@pytest.mark.fast_kinds
def test_objects_that_were_stored_and_functions_of_the_user_go_the_full_way(monkeypatch: pytest.MonkeyPatch):
    class Careful(KvModel, collection="careful"):
        id: PrimaryKey[int]
        name: str = ""

        @field_validator("name")
        @classmethod
        def _strip(cls, value: str) -> str:
            return value.strip()

    db = Database("memory://", models=[Person, Careful])
    taken: list[Any] = []
    real = bulk_insert.InsertColumns.compiled

    def noted(*given: Any) -> Any:
        taken.append(given)
        return real(*given)

    monkeypatch.setattr(bulk_insert.InsertColumns, "compiled", noted)
    (first,) = db[Person].bulk_create(people(1))
    assert len(taken) == 1
    first.obj.id, first.obj.email = 2, "other"
    db[Person].bulk_create([first.obj])
    db[Careful].bulk_create([Careful(id=1, name=" a ")])
    db[Person].bulk_create(people(5), expire_in=60)
    db[Person].bulk_create(people(6), on_conflict="ignore")
    with db.transaction() as tx:
        tx[Person].bulk_create(people(7))
    assert len(taken) == 1
    assert db.check().ok


@seed(20261121)
@given(
    st.integers(1, 4),
    st.sampled_from(["max_checks", "max_mutations", "max_key_bytes", "max_value_bytes", "max_operation_bytes"]),
    st.integers(1, 400),
)
def test_a_limit_is_met_by_both_ways_at_the_same_size(count: int, limit: str, size: int):
    changed: dict[str, Any] = {limit: size}

    def ended() -> Any:
        db = Database.from_engine(MemoryEngine(), DatabaseCore((Person,)))
        db._core.context.limits = replace(Limits.EMBEDDED, **changed)
        try:
            return [item.created for item in db[Person].bulk_create(people(*range(count), tags=["t" * 90]))]
        except KvModelsError as error:
            return told(error)

    short = ended()
    with pytest.MonkeyPatch.context() as patch:
        in_full(patch)
        assert ended() == short


def test_rows_are_those_of_a_single_insert():
    def stored(write: Callable[[Database], object]) -> list[tuple[Any, ...]]:
        engine = MemoryEngine(clock=lambda: NOW)
        db = Database.from_engine(engine, DatabaseCore((Person,)))
        write(db)
        found = engine.read([ReadRange(b"", b"\xff")])
        assert isinstance(found, ReadResult)
        return [without_versionstamp(row) for row in found.ranges[0]]

    numbers = [0, 1, 255, 256, 65_536, 2**63 - 1, 2**63, 2**64, -1]

    def one_by_one(db: Database) -> None:
        for one in people(*numbers, city="ü"):
            db[Person].insert(one)

    assert stored(lambda db: db[Person].bulk_create(people(*numbers, city="ü"))) == stored(one_by_one)


def without_versionstamp(row: Row) -> tuple[Any, ...]:
    return row.key, row.value, row.encoding, row.expire_at
