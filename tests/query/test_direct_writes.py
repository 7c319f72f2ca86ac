"""A write whose first attempt guesses ends as one that reads first: result, error, state and stored rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels import (
    AlreadyExistsError,
    Database,
    F,
    Field,
    Index,
    KvModel,
    PrimaryKey,
    RetryPolicy,
    Unique,
    UniqueViolationError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import AtomicWrite, Committed, Conflict, ReadRange, ReadResult, Row
from kvmodels.engines.contract import Engine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import DecodeError, RetriesExhaustedError
from kvmodels.flows.writing import attempt
from kvmodels.indexing import compiler
from kvmodels.schema.instances import state_of
from tests.passing_engine import PassingEngine

NOW = 1_700_000_000_000


class Person(KvModel, collection="people"):
    """Plain indexes, few values, and a validator that refuses some."""

    id: PrimaryKey[int]
    email: Unique[str | None] = Field(default=None)
    name: str = Field(default="", max_length=3)
    tags: list[str] = []

    class Meta:
        indexes = (Index("name", "-id"), Index("email", "name", name="both"))


class Account(KvModel, collection="people"):
    """Plain values alone: what a patch makes of one is validated once."""

    id: PrimaryKey[int]
    email: Unique[str | None] = Field(default=None)
    name: str = Field(default="", max_length=3)
    score: float | None = None
    note: str = ""

    class Meta:
        indexes = (Index("name", "-id"), Index("email", "name", name="both"))


IDS = st.one_of(st.integers(0, 2), st.integers(0, 3), st.sampled_from(["1", 2.0, None, True, (1,), 2**70]))
EMAILS = st.sampled_from([None, "a", "b", "c\0", "d", "\ud800", 7])
NAMES = st.sampled_from(["", "x", "y\0", "long", 5, F("name") + "z", F("email")])
NUMBERS = st.sampled_from([0, 1, 1.0, -0.0, float("inf"), True, "2", "x", None, 2**70])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "email": EMAILS,
        "name": NAMES,
        "id": IDS,
        "tags": st.just(["t"]),
        "no": NAMES,
        "score": NUMBERS,
        "note": NAMES,
    },
)
STEPS = st.one_of(
    st.tuples(st.just("create"), IDS, FIELDS),
    st.tuples(st.just("patch"), IDS, FIELDS),
    st.tuples(st.just("mutate"), IDS, FIELDS),
    st.tuples(st.just("replace"), IDS, FIELDS),
    st.tuples(st.just("save"), IDS, FIELDS),
    st.tuples(st.just("remove"), IDS, FIELDS),
    st.tuples(
        st.just("foreign"),
        st.integers(0, 3),
        st.sampled_from([{"more": 1}, {"name": 9}, {"note": 9}, {"score": "x"}, {"id": 3}, None]),
    ),
    st.tuples(st.just("expire"), st.integers(0, 2), st.just({})),
)


def mutated(fields: dict[str, Any]) -> Callable[[KvModel], None]:
    def change(person: KvModel) -> None:
        values: dict[str, Any] = vars(person)
        values.update({name: value for name, value in fields.items() if name in type(person).model_fields})

    return change


def foreign(db: Database, number: int, change: dict[str, Any] | None) -> Any:
    """Return a row that another program may put under the key of a record."""
    key = ("people", number)
    stored = db.kv.get(key).value
    if change is None or not isinstance(stored, dict):
        return db.kv.unsafe().set(key, change).ok
    return db.kv.unsafe().set(key, {**stored, **change}).ok


def carry_out(db: Database, step: tuple[str, Any, Any], model: type[Any]) -> Any:
    verb, number, fields = step
    people = db[model]
    if verb == "create":
        return people.create(**{"id": number, **fields})
    if verb == "patch":
        return people.patch(number, **fields)
    if verb == "mutate":
        return people.mutate(number, mutated(fields))
    if verb == "replace":
        return people.mutate(number, lambda person: person.model_copy(update=fields))
    if verb == "save":
        held = people.get_or_none(number) if isinstance(number, int) else None
        held = held or model(id=0, name="new")
        if fields.get("tags"):
            people.patch(held.id, name="z")  # so that the object is behind
        mutated(fields)(held)
        return people.save(held)
    if verb == "expire":
        return people.patch(number, expire_in=60)
    return foreign(db, number, fields) if verb == "foreign" else people.remove(number)


def outcome(db: Database, step: tuple[str, Any, Any], model: type[Any]) -> Any:
    try:
        found = carry_out(db, step, model)
    except Exception as error:  # noqa: BLE001 - every error is compared
        return type(error), str(error)
    if not isinstance(found, KvModel):
        return found
    return repr(found.__dict__), found.model_fields_set, found.__pydantic_extra__, state_of(found)


def story(
    steps: list[tuple[str, Any, Any]], engine: Engine | None = None, model: type[Any] = Person
) -> tuple[list[Any], list[Row]]:
    """Return the outcome of each step, and the stored rows at the end."""
    engine = engine or MemoryEngine(clock=lambda: NOW)
    db = Database.from_engine(engine, DatabaseCore((model,)))
    begun = [("create", number, {"email": email, "name": "x"}) for number, email in enumerate(("a", None, "b"))]
    outcomes = [outcome(db, step, model) for step in (*begun, *steps)]
    found = engine.read([ReadRange(b"", b"\xff")], include_expired=True)
    assert isinstance(found, ReadResult)
    return outcomes, found.ranges[0]


def in_full(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attempt, "may_guess", lambda *_: False)  # every attempt goes by what it has read
    patch.setattr(compiler, "compile_simple", lambda *_: None)


@given(st.lists(STEPS, min_size=1, max_size=12), st.sampled_from([Person, Account]))
def test_both_ways_tell_and_store_the_same(steps: list[tuple[str, Any, Any]], model: type[KvModel]):
    short = story(steps, model=model)
    with pytest.MonkeyPatch.context() as patch:
        in_full(patch)
        assert story(steps, model=model) == short


@pytest.mark.parametrize("model", [Person, Account])
@pytest.mark.parametrize("change", [{"name": 9}, {"note": 9}, {"score": "x"}, {"tags": "t"}, {"id": 3}, {"id": True}])
def test_what_another_program_has_spoiled_is_not_mended_by_a_patch(model: type[Any], change: dict[str, Any]):
    """Not even where the patch replaces the very value that cannot be read."""
    for name in set(model.model_fields) & {"name", "note", "score"}:
        steps = [("foreign", 1, change), ("patch", 1, {name: 1.5 if name == "score" else "y"})]
        short, _ = story(steps, model=model)
        with pytest.MonkeyPatch.context() as patch:
            in_full(patch)
            assert story(steps, model=model)[0] == short
        if "id" not in change:
            assert (short[-1][0] is DecodeError) == (change.keys() <= set(model.model_fields))


class Rivalled(PassingEngine):
    """Somebody else writes right before each of the next commits."""

    def __init__(self) -> None:
        super().__init__(MemoryEngine())
        self.rivals: list[Callable[[], object]] = []
        self.commits = 0

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self.commits += 1
        if self.rivals:
            self.rivals.pop(0)()
        return super().commit(write)


def rivalled(attempts: int = 50) -> tuple[Rivalled, Database]:
    engine = Rivalled()
    db = Database.from_engine(engine, DatabaseCore((Person,), retry=RetryPolicy(attempts=attempts, initial_s=0.0)))
    db[Person].create(id=1, email="a", name="x")
    return engine, db


def test_a_value_that_is_taken_meanwhile_is_found_out_by_the_next_attempt():
    engine, db = rivalled()
    people = db[Person]
    engine.rivals = [lambda: people.create(id=2, email="b")]
    with pytest.raises(UniqueViolationError) as taken:
        people.patch(1, email="b")
    assert (taken.value.existing_key, people.get(1).email) == (2, "a")
    engine.rivals = [lambda: people.create(id=3)]
    with pytest.raises(AlreadyExistsError):
        people.create(id=3, email="c")
    with pytest.raises(UniqueViolationError):
        people.create(id=4, email="a")
    assert db.check().ok


def test_a_change_begins_again_with_what_somebody_else_has_written():
    engine, db = rivalled()
    people, seen = db[Person], list[str]()

    def rename(person: Person) -> None:
        seen.append(person.name)
        person.name += "z"

    engine.rivals = [lambda: people.patch(1, name="y", email="b"), lambda: None, lambda: people.patch(1, name="w")]
    assert people.mutate(1, rename).name == "wz"
    assert seen == ["x", "y", "w"]
    engine.rivals = [lambda: people.patch(1, name="v")]
    assert people.remove(1)
    assert not people.remove(1)
    assert db.check().ok


def exhausted(attempts: int) -> tuple[int, list[Any]]:
    """How often a function was called that met a rival every time, and what was raised of it and of a removal."""
    engine, db = rivalled(attempts)
    people, calls = db[Person], list[None]()

    def touch(person: Person) -> None:
        calls.append(None)

    def rival() -> None:
        rest, engine.rivals = engine.rivals, []
        people.patch(1, name="y")
        engine.rivals = rest

    raised: list[Any] = []
    for write in (lambda: people.mutate(1, touch), lambda: people.remove(1)):
        engine.rivals = [rival] * 9
        with pytest.raises(RetriesExhaustedError) as error:
            write()
        raised += [error.value.attempts, error.value.failed_checks]
    return len(calls), raised


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_the_first_attempt_counts(attempts: int, monkeypatch: pytest.MonkeyPatch):
    calls, raised = exhausted(attempts)
    assert raised == [attempts, (("people", 1),)] * 2
    in_full(monkeypatch)
    assert exhausted(attempts) == (calls, raised)


def test_an_insert_is_one_commit_and_a_change_one_read_more():
    engine, db = rivalled()
    before = engine.commits
    db[Person].create(id=2, email="b")
    db[Person].patch(2, email="c")
    db[Person].remove(2)
    assert engine.commits - before == 3
