"""Answers that are lost, late or given twice: every verb happens exactly once, or its error is true."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest

from kvmodels import (
    AlreadyExistsError,
    AsyncDatabase,
    CommitUnknownError,
    Database,
    EngineError,
    Field,
    Indexed,
    KvModel,
    PrimaryKey,
    RetryPolicy,
    StaleObjectError,
    Unique,
    UniqueViolationError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.contract import Engine
from kvmodels.engines.faults import COMMIT_FAULTS, FaultEngine
from kvmodels.engines.url import open_engine
from tests.robustness.models import require_readable
from tests.worlds import MEMORY


class Counter(KvModel, collection="counters"):
    id: PrimaryKey[int]
    name: Unique[str]
    kind: Indexed[str] = Field(default="plain")
    n: int = 0


def increment(counter: Counter) -> None:
    counter.n += 1


class Faults:
    """A plan that a test fills while the database is open."""

    def __init__(self) -> None:
        self.coming: list[Any] = []
        self.always: Any = None

    def __call__(self, write: Any) -> Any:
        return self.coming.pop(0) if self.coming else self.always


QUICK = RetryPolicy(attempts=20, deadline_s=1.0, initial_s=0.0, cap_s=0.0)


def core(model: type[KvModel] = Counter) -> DatabaseCore:
    """With a clock that goes on by 20 ms whenever it is asked, so that deadlines do not depend on the machine."""
    looks = count()
    return DatabaseCore(
        [model], retry=QUICK, readonly=False, must_be_current=False, monotonic=lambda: next(looks) * 0.02
    )


@pytest.fixture(params=MEMORY)
def inner(request, url_of) -> Engine:
    return open_engine(url_of(request.param), durability="relaxed")


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def engine(inner, faults) -> FaultEngine:
    return FaultEngine(inner, plan=faults)


@pytest.fixture
def db(engine) -> Iterator[Database]:
    with Database.from_engine(engine, core()) as opened:
        opened[Counter].create(id=1, name="one", n=10)
        yield opened


VERBS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    # What is done, and what is then there if it was done exactly once.
    "create": (lambda cs: cs.create(id=2, name="two"), lambda cs: cs.get(name="two").n == 0),
    "insert": (lambda cs: cs.insert(Counter(id=2, name="two")), lambda cs: cs.get(name="two").n == 0),
    "save of a new object": (lambda cs: cs.save(Counter(id=2, name="two")), lambda cs: cs.get(2).name == "two"),
    "save by force": (lambda cs: cs.save(Counter(id=1, name="uno", n=11), force=True), lambda cs: cs.get(1).n == 11),
    "patch": (lambda cs: cs.patch(1, name="uno", n=11), lambda cs: cs.get(name="uno").n == 11),
    "mutate": (lambda cs: cs.mutate(1, increment), lambda cs: cs.get(1).n == 11),
    "remove": (lambda cs: cs.remove(1), lambda cs: cs.get_or_none(1) is None and cs.get_or_none(name="one") is None),
    "get_or_create": (
        lambda cs: cs.get_or_create(name="two", defaults={"id": 2}),
        lambda cs: cs.get(name="two").id == 2,
    ),
    "bulk_create": (
        lambda cs: cs.bulk_create([Counter(id=n, name=f"{n}") for n in (2, 3)]),
        lambda cs: [found.id for found in cs.all()] == [1, 2, 3],
    ),
    "bulk_create and ignore": (
        lambda cs: cs.bulk_create([Counter(id=n, name=f"{n}") for n in (1, 2)], on_conflict="ignore"),
        lambda cs: [found.id for found in cs.all()] == [1, 2],
    ),
}

APPLIED = {
    "remove": lambda result: result is True,
    "get_or_create": lambda result: result[1] is True,
    "bulk_create": lambda result: [item.created for item in result] == [True, True],
    "bulk_create and ignore": lambda result: [item.created for item in result] == [False, True],
}


def untouched(counters: Any) -> bool:
    return [(found.id, found.name, found.n) for found in counters.all()] == [(1, "one", 10)]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fault", sorted(COMMIT_FAULTS))
def test_review_08_every_verb_happens_exactly_once_under_every_fault(db, engine, faults, verb, fault):
    call, happened = VERBS[verb]
    counters = db[Counter]
    faults.coming = [fault]
    if fault == "refuse":
        with pytest.raises(EngineError):
            call(counters)
        assert untouched(counters)
    else:
        result = call(counters)
        assert APPLIED.get(verb, lambda result: result.is_persisted)(result)
        assert happened(counters)
    assert engine.injected[fault] == 1
    before = [(e.key, e.value, e.versionstamp) for e in db.kv.list(prefix=("counters",))]
    engine.deliver_late()
    assert [(e.key, e.value, e.versionstamp) for e in db.kv.list(prefix=("counters",))] == before
    assert db.check().ok
    if fault != "refuse" and verb not in ("remove", "bulk_create", "bulk_create and ignore", "get_or_create"):
        # The versionstamp in the object is that of the delivery that counted.
        result.n += 1
        counters.save(result)


@pytest.mark.parametrize("fault", sorted(COMMIT_FAULTS - {"refuse"}))
def test_a_loaded_object_is_saved_and_removed_exactly_once(db, engine, faults, fault):
    loaded = db[Counter].get(1)
    loaded.n = 11
    faults.coming = [fault]
    db[Counter].save(loaded)
    loaded.n = 12
    faults.coming = [fault]
    db[Counter].save(loaded)
    assert db[Counter].get(1).n == 12
    faults.coming = [fault]
    assert db[Counter].remove(loaded) is True
    engine.deliver_late()
    assert db[Counter].get_or_none(1) is None
    assert db.check().ok


def lose(engine: FaultEngine, faults: Faults, fault: str, afterwards: Callable[[], Any]) -> None:
    """Give the next commit a fault, and do something at the moment it is sent."""
    original = engine.commit

    def commit(write: Any) -> Any:
        engine.commit = original  # type: ignore[method-assign]
        afterwards()
        return original(write)

    faults.coming = [fault]
    engine.commit = commit  # type: ignore[method-assign]


@pytest.mark.parametrize("fault", ["lose_answer", "lose_request", "hold", "land_before_next", "land_after_next"])
def test_an_error_after_a_lost_answer_is_true_for_ever(db, engine, faults, fault):
    """The refusal burns the token first, so that what is still on its way cannot be applied afterwards."""
    other = Database.from_engine(engine.inner, core())
    loaded = db[Counter].get(1)
    loaded.n = 50

    def somebody_is_faster() -> None:
        if fault in ("lose_request", "hold"):
            other[Counter].patch(1, n=99)
            other[Counter].create(id=7, name="seven")

    lose(engine, faults, fault, somebody_is_faster)
    if fault in ("lose_request", "hold"):
        with pytest.raises(StaleObjectError):
            db[Counter].save(loaded)
        expected = 99
    else:
        db[Counter].save(loaded)
        expected = 50
    engine.deliver_late()
    assert db[Counter].get(1).n == expected
    faults.coming = [fault]
    with pytest.raises(AlreadyExistsError):
        db[Counter].create(id=1, name="again")
    faults.coming = [fault]
    if fault in ("lose_request", "hold"):
        with pytest.raises(UniqueViolationError):
            db[Counter].create(id=8, name="seven")
    engine.deliver_late()
    assert db[Counter].get_or_none(8) is None
    assert db.check().ok
    other.close()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fault", ["lose_request", "hold"])
def test_when_every_answer_is_lost_the_error_has_a_token_that_tells_the_outcome(db, engine, faults, verb, fault):
    call, happened = VERBS[verb]
    faults.always = fault
    with pytest.raises(CommitUnknownError) as caught:
        call(db[Counter])
    require_readable(caught.value)
    assert caught.value.token
    assert "outcome" in str(caught.value.hint)
    faults.always = None
    for _ in range(2):
        assert db.outcome(caught.value.token) is False
        engine.deliver_late()
        assert untouched(db[Counter])
    call(db[Counter])
    assert happened(db[Counter])
    assert db.check().ok


@pytest.mark.parametrize("verb", VERBS)
def test_when_an_answer_is_lost_and_nothing_can_be_read_the_error_does_not_say_that_nothing_happened(inner, verb):
    """The commit was applied, so the error of the read behind it would be untrue."""
    faults, reads = Faults(), Faults()
    engine = FaultEngine(inner, plan=faults, read_plan=reads)
    call, happened = VERBS[verb]
    with Database.from_engine(engine, core()) as db:
        db[Counter].create(id=1, name="one", n=10)
        lose(engine, faults, "lose_answer", partial(setattr, reads, "always", "refuse"))
        with pytest.raises(CommitUnknownError) as caught:
            call(db[Counter])
        require_readable(caught.value)
        reads.always = None
        assert caught.value.token is not None
        for _ in range(2):
            assert db.outcome(caught.value.token) is True
        assert happened(db[Counter])
        assert db.check().ok


@pytest.mark.parametrize("verb", VERBS)
def test_when_a_request_is_lost_and_nothing_can_be_read_the_error_is_true(inner, verb):
    faults, reads = Faults(), Faults()
    engine = FaultEngine(inner, plan=faults, read_plan=reads)
    with Database.from_engine(engine, core()) as db:
        db[Counter].create(id=1, name="one", n=10)
        lose(engine, faults, "hold", partial(setattr, reads, "always", "refuse"))
        with pytest.raises(EngineError) as caught:
            VERBS[verb][0](db[Counter])
        assert not isinstance(caught.value, CommitUnknownError)
        reads.always = None
        engine.deliver_late()
        assert untouched(db[Counter])
        assert db.check().ok


def test_the_outcome_of_a_token_that_nobody_used_is_no_and_stays_no(db):
    assert db.outcome("never used") is False
    assert db.outcome("never used") is False


@pytest.mark.parametrize("fault", ["lose_answer", "lose_request", "hold", "repeat"])
def test_a_build_and_a_drop_go_through_lost_answers(inner, fault):
    class Plain(KvModel, collection="counters"):
        id: PrimaryKey[int]
        name: Unique[str]
        kind: str = "plain"
        n: int = 0

    opened = Database.from_engine(inner, core(Plain))
    opened[Plain].bulk_create([Plain(id=n, name=f"{n}") for n in range(250)])
    turn = iter(range(10**6))
    engine = FaultEngine(inner, plan=lambda _: fault if next(turn) % 2 else None)
    db = Database.from_engine(engine, core())
    (report,) = db.build_indexes()
    assert (report.index, report.state) == ("kind", "readable")
    engine.deliver_late()
    assert db[Counter].filter(kind="plain").count() == 250
    assert db.drop_index(Counter, "kind") is True
    engine.deliver_late()
    assert db.check().ok
    assert engine.injected[fault] > 2
    db.close()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fault", ["lose_answer", "lose_request", "hold", "repeat", "land_after_next"])
async def test_the_asynchronous_verbs_happen_exactly_once_too(inner, verb, fault):
    faults = Faults()
    engine = FaultEngine(inner, plan=faults)
    call, happened = VERBS[verb]
    judge = Database.from_engine(inner, core())
    judge[Counter].create(id=1, name="one", n=10)
    db = AsyncDatabase.from_engine(engine, core())
    await db.open()
    faults.coming = [fault]
    result = call(db[Counter])
    assert inspect.isawaitable(result)
    await result
    engine.deliver_late()
    assert happened(judge[Counter])
    assert judge.check().ok
    await db.close()
