"""Hooks of models: when they are called, with what, how often, and what becomes of what they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from kvmodels import (
    AlreadyExistsError,
    AsyncDatabase,
    Database,
    DecodeError,
    DoesNotExist,
    Field,
    InvalidArgumentError,
    KvModel,
    ModelDefinitionError,
    PrimaryKey,
    PrimaryKeyChangedError,
    RetriesExhaustedError,
    RetryPolicy,
    StaleObjectError,
    UniqueViolationError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.schema.compile.schema import schema_of
from tests.hooks.models import Page, Plain

MADE: Any = type(KvModel)
"""Makes a class of a name, bases and a namespace."""


@pytest.fixture
def db() -> Iterator[Database]:
    Page.heard.clear()
    with Database("memory://", models=[Page, Plain]) as opened:
        yield opened
        assert opened.check().ok


def heard() -> list[tuple[Any, ...]]:
    calls = list(Page.heard)
    Page.heard.clear()
    return calls


def test_an_insert_stores_what_its_hook_has_changed(db: Database):
    page = Page(id=1, title="News")
    db[Page].insert(page)
    assert heard() == [("before_insert", 1, "News"), ("after_insert", 1, "news", True)]
    assert page.slug == "news"
    assert db[Page].get(1).model_dump() == page.model_dump()
    assert db[Page].filter(slug="news").count() == 1


def test_every_verb_that_inserts_calls_the_hooks(db: Database):
    pages = db[Page]
    pages.create(id=1, title="A")
    pages.save(Page(id=2, title="B"))
    pages.save(Page(id=3, title="C"), force=True)
    pages.get_or_create(id=4, defaults={"title": "D"})
    assert [call[0] for call in heard()] == ["before_insert", "after_insert"] * 4
    assert [page.slug for page in pages.all()] == ["a", "b", "c", "d"]


def test_every_verb_that_changes_calls_the_hooks_with_the_stored_object(db: Database):
    pages = db[Page]
    page = pages.create(id=1, title="A")
    heard()
    page.title = "B"
    pages.save(page)
    assert heard() == [("before_update", 1, "B", "A"), ("after_update", 1, "b", "a")]
    assert pages.patch(1, title="C").slug == "c"
    assert heard() == [("before_update", 1, "C", "B"), ("after_update", 1, "c", "b")]
    pages.mutate(1, lambda one: one.model_copy(update={"title": "D"}))
    assert heard() == [("before_update", 1, "D", "C"), ("after_update", 1, "d", "c")]
    pages.save(Page(id=1, title="E"), force=True)
    assert heard() == [("before_update", 1, "E", "D"), ("after_update", 1, "e", "d")]
    pages.rename(1, 2)
    assert heard() == [("before_update", 2, "E", "E"), ("after_update", 2, "e", "e")]
    found, created = pages.get_or_create(id=2, defaults={"title": "F"})
    assert (found.title, created, heard()) == ("E", False, [])


def test_a_removal_calls_the_hooks_with_the_object_as_it_was_stored(db: Database):
    pages = db[Page]
    pages.create(id=1, title="A")
    loaded = pages.create(id=2, title="B")
    heard()
    assert pages.remove(1)
    assert heard() == [("before_remove", 1, "A"), ("after_remove", 1, "a", False)]
    loaded.title = "never saved"
    assert pages.remove(loaded)
    assert heard() == [("before_remove", 2, "B"), ("after_remove", 2, "b", False)]
    assert not pages.remove(1)
    assert heard() == []


def test_nothing_is_heard_of_reads_and_of_writes_that_write_nothing(db: Database):
    db[Page].create(id=1, title="A")
    heard()
    db[Page].get(1)
    db[Page].rename(1, 1)
    db[Page].refresh(db[Page].get(1))
    with pytest.raises(DoesNotExist):
        db[Page].patch(5, title="B")
    assert heard() == []


def test_building_and_checking_calls_no_hooks(db: Database):
    db[Page].create(id=1, title="A")
    heard()
    assert db.build_indexes() == ()
    assert db.check(repair="all").ok
    assert heard() == []


class Failing(KvModel, collection="failing"):
    """Its hooks raise when they are told to."""

    id: PrimaryKey[int]
    name: str = "x"
    items: list[int] = Field(default_factory=list)

    fails: ClassVar[str] = ""

    def _maybe(self, name: str) -> None:
        self.items.append(1)
        self.name = name
        if self.fails == name:
            raise RuntimeError(name)

    def before_insert(self) -> None:
        self._maybe("before_insert")

    def before_update(self, old: Any) -> None:
        self._maybe("before_update")

    def before_remove(self) -> None:
        self._maybe("before_remove")

    def after_insert(self) -> None:
        if self.fails == "after_insert":
            raise RuntimeError("after_insert")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with Database("memory://", models=[Failing]) as opened:
        yield opened
        monkeypatch.undo()


def test_an_exception_of_a_hook_before_the_write_aborts_it_and_leaves_the_object_alone(failing, monkeypatch):
    items = [7]
    one = Failing(id=1, items=items)
    monkeypatch.setattr(Failing, "fails", "before_insert")
    with pytest.raises(RuntimeError, match="before_insert"):
        failing[Failing].insert(one)
    assert (one.name, one.items, items, one.is_persisted) == ("x", [7], [7], False)
    assert failing[Failing].count() == 0

    monkeypatch.setattr(Failing, "fails", "before_update")
    failing[Failing].insert(one)
    assert one.items == [7, 1]
    with pytest.raises(RuntimeError, match="before_update"):
        failing[Failing].save(one)
    with pytest.raises(RuntimeError, match="before_update"):
        failing[Failing].rename(1, 2)
    assert failing[Failing].get(1).items == [7, 1]

    monkeypatch.setattr(Failing, "fails", "before_remove")
    for target in (1, one):
        with pytest.raises(RuntimeError, match="before_remove"):
            failing[Failing].remove(target)
    assert failing[Failing].count() == 1


def test_an_exception_of_a_hook_after_the_write_goes_on_with_a_note_that_it_was_committed(failing, monkeypatch):
    one = Failing(id=1)
    monkeypatch.setattr(Failing, "fails", "after_insert")
    with pytest.raises(RuntimeError) as caught:
        failing[Failing].insert(one)
    assert caught.value.__notes__ == ["kvmodels: the write was committed before this was raised"]
    assert one.is_persisted
    assert failing[Failing].get(1) == one


def test_a_failed_write_calls_no_hook_after_it_and_changes_nothing(db: Database):
    db[Page].create(id=1, title="A", path="/a")
    heard()
    copied = Page(id=1, title="B")
    with pytest.raises(AlreadyExistsError):
        db[Page].insert(copied)
    assert (copied.slug, copied.is_persisted) == ("", False)
    other = Page(id=2, title="B", path="/a")
    with pytest.raises(UniqueViolationError):
        db[Page].insert(other)
    assert {call[0] for call in heard()} == {"before_insert"}  # of both: nothing is read before the first attempt
    assert (other.slug, other.is_persisted, other._note) == ("", False, "")
    stale = db[Page].get(1)
    db[Page].patch(1, title="C")
    heard()
    stale.title = "D"
    with pytest.raises(StaleObjectError):
        db[Page].save(stale)
    assert all(call[0] == "before_update" for call in heard())
    assert stale.slug == "a"


class Meddling(KvModel, collection="meddling"):
    """Its hook lets somebody else write first, as often as it is told to."""

    id: PrimaryKey[int]
    n: int = 0
    seen: list[int] = Field(default_factory=list)

    meddle: ClassVar[list[Any]] = []
    calls: ClassVar[list[str]] = []

    def before_update(self, old: Any) -> None:
        self.calls.append(f"before {old.n}")
        self.seen.append(old.n)
        if self.meddle:
            self.meddle.pop()()

    def after_update(self, old: Any) -> None:
        self.calls.append(f"after {old.n}")


def meddler(url: str) -> tuple[Database, Database]:
    Meddling.calls.clear()
    Meddling.meddle.clear()
    engine = MemoryEngine()
    ours, theirs = (
        Database.from_engine(engine, DatabaseCore([Meddling], retry=RetryPolicy(attempts=3, initial_s=0)))
        for _ in range(2)
    )
    return ours, theirs


def test_hooks_before_a_write_run_in_every_attempt_on_a_fresh_copy_and_those_after_it_once():
    ours, theirs = meddler("x")
    ours[Meddling].create(id=1)
    Meddling.meddle.append(lambda: theirs[Meddling].patch(1, n=10))
    changed = ours[Meddling].mutate(1, lambda one: setattr(one, "n", one.n + 1))
    assert (changed.n, changed.seen) == (11, [0, 10])  # theirs saw 0 and stored it; ours of the first attempt is gone
    assert Meddling.calls == ["before 0", "before 0", "after 0", "before 10", "after 10"]


def test_a_write_that_never_succeeds_calls_hooks_before_it_only():
    ours, theirs = meddler("x")
    ours[Meddling].create(id=1)
    raw = theirs.kv.unsafe()
    original = raw.get(("meddling", 1))

    def disturb() -> None:
        raw.set(("meddling", 1), original.value)
        Meddling.meddle.append(disturb)

    Meddling.meddle.append(disturb)
    with pytest.raises(RetriesExhaustedError):
        ours[Meddling].patch(1, n=1)
    assert set(Meddling.calls) == {"before 0"}
    assert len(Meddling.calls) >= 3
    Meddling.meddle.clear()


@pytest.mark.parametrize("fault", ["lose_answer", "lose_request", "repeat", "land_before_next"])
def test_hooks_after_a_write_run_once_when_its_answer_is_lost(fault: Any):
    Page.heard.clear()
    engine = MemoryEngine()
    with Database.from_engine(engine, DatabaseCore([Page])):
        faulty = Database.from_engine(FaultEngine(engine, plan=[None, fault]), DatabaseCore([Page]))
        faulty[Page].create(id=1, title="A")
        heard()
        faulty[Page].create(id=2, title="B")
        calls = [call for call in heard() if call[0] == "after_insert"]
        assert calls == [("after_insert", 2, "b", True)]
        assert faulty[Page].count() == 2


class Strict(KvModel, collection="strict"):
    """Changes by its hook are validated, and stored as any other value."""

    id: PrimaryKey[int]
    n: int = Field(default=0, ge=0)

    makes: ClassVar[Any] = 0

    def before_insert(self) -> None:
        self.n = self.makes


def test_what_a_hook_makes_is_validated(monkeypatch: pytest.MonkeyPatch):
    with Database("memory://", models=[Strict]) as db:
        monkeypatch.setattr(Strict, "makes", "5")
        assert db[Strict].create(id=1).n == 5
        monkeypatch.setattr(Strict, "makes", -1)
        with pytest.raises(ValidationError):
            db[Strict].create(id=2)
        assert db[Strict].count() == 1


def test_a_hook_sees_a_valid_object(db: Database):
    page = Page(id=1, title="A")
    page.__dict__["id"] = "1"  # as an assignment leaves it without validate_assignment
    db[Page].insert(page)
    assert heard()[0] == ("before_insert", 1, "A")
    page.__dict__["title"] = None
    with pytest.raises(ValidationError):
        db[Page].save(page)
    assert heard() == []


def test_private_attributes_that_a_hook_sets_reach_the_object_of_the_caller(db: Database):
    page = db[Page].create(id=1, title="A")
    assert page._note == "by hook"
    assert db[Page].get(1)._note == ""


def test_fields_that_a_hook_sets_count_as_set(db: Database):
    page = Page(id=1, title="A")
    db[Page].insert(page)
    assert page.model_dump(exclude_unset=True) == {"id": 1, "title": "A", "slug": "a"}


class Renaming(KvModel, collection="renaming"):
    id: PrimaryKey[int]

    def before_insert(self) -> None:
        self.id += 1


class Loose(KvModel, collection="loose", extra="allow"):
    id: PrimaryKey[int]

    def before_update(self, old: Any) -> None:
        for name in list(self.__pydantic_extra__ or {}):
            delattr(self, name)


def test_a_hook_cannot_change_the_primary_key():
    with Database("memory://", models=[Renaming]) as db:
        with pytest.raises(PrimaryKeyChangedError, match="a hook changed"):
            db[Renaming].create(id=1)
        assert db[Renaming].count() == 0


def test_a_hook_may_take_extra_fields_away():
    with Database("memory://", models=[Loose]) as db:
        one = db[Loose].create(id=1, colour="red")
        assert db[Loose].get(1).model_dump() == {"id": 1, "colour": "red"}
        db[Loose].save(one)
        assert one.model_dump() == db[Loose].get(1).model_dump() == {"id": 1}


def test_hooks_are_inherited_and_may_call_those_of_the_parent():
    calls: list[str] = []

    class Base(KvModel, abstract=True):
        id: PrimaryKey[int]

        def before_insert(self) -> None:
            super().before_insert()
            calls.append("base")

        def after_remove(self) -> None:
            calls.append("removed")

    class Child(Base, collection="child"):
        def before_insert(self) -> None:
            super().before_insert()
            calls.append("child")

    with Database("memory://", models=[Child]) as db:
        db[Child].create(id=1)
        db[Child].remove(1)
    assert calls == ["base", "child", "removed"]


def test_a_mixin_brings_hooks_when_it_comes_first():
    calls: list[Any] = []

    class Audited:
        def before_insert(self) -> None:
            calls.append(self)

    class Thing(Audited, KvModel, collection="things"):
        id: PrimaryKey[int]

    with Database("memory://", models=[Thing]) as db:
        db[Thing].create(id=1)
    assert len(calls) == 1

    with pytest.raises(ModelDefinitionError, match="hidden") as caught:

        class Hidden(KvModel, Audited, collection="hidden"):
            id: PrimaryKey[int]

    assert caught.value.option == "Audited.before_insert"
    assert "class Hidden(Audited, KvModel)" in str(caught.value.hint)


async def _asynchronous(self: Any) -> None: ...


async def _generating(self: Any) -> Any:
    yield None


def _too_few() -> None: ...
def _too_many(self: Any, old: Any) -> None: ...


@pytest.mark.parametrize("hook", [_asynchronous, _generating])
def test_an_asynchronous_hook_is_refused_when_the_class_is_made(hook: Any):
    with pytest.raises(ModelDefinitionError, match="asynchronous"):
        MADE("M", (KvModel,), {"__annotations__": {"id": PrimaryKey[int]}, "before_insert": hook})


@pytest.mark.parametrize("hook", [_too_few, _too_many])
def test_a_hook_with_other_arguments_is_refused_when_the_class_is_made(hook: Any):
    with pytest.raises(ModelDefinitionError, match="other arguments") as caught:
        MADE("M", (KvModel,), {"__annotations__": {"id": PrimaryKey[int]}, "after_remove": hook})
    assert caught.value.option == "after_remove"


def test_a_hook_of_an_abstract_class_is_checked_too():
    with pytest.raises(ModelDefinitionError, match="asynchronous"):

        class Base(KvModel, abstract=True):
            async def before_remove(self) -> None: ...  # type: ignore[override]


def test_a_hook_that_returns_something_to_be_awaited_is_an_error(monkeypatch: pytest.MonkeyPatch, db: Database):
    db.signals.before_insert.connect(lambda one: _asynchronous(one), Plain)
    with pytest.raises(InvalidArgumentError, match="awaited"):
        db[Plain].create(id=1)
    assert db[Plain].count() == 0


def test_a_field_cannot_have_the_name_of_a_hook():
    with pytest.raises(ModelDefinitionError, match="attribute of every model"):
        MADE("Odd", (KvModel,), {"__annotations__": {"id": PrimaryKey[int], "before_insert": int}, "__module__": "m"})


def test_a_model_without_hooks_has_none_and_one_with_them_only_its_own():
    assert schema_of(Plain).hooks is None
    found = schema_of(Strict).hooks
    assert found is not None
    assert [name for name in found._fields if getattr(found, name)] == ["before_insert"]


def test_a_record_that_has_expired_is_none_to_hooks():
    clock = [1_000_000]
    calls: list[str] = []

    class Session(KvModel, collection="sessions"):
        id: PrimaryKey[int]

        def before_insert(self) -> None:
            calls.append("insert")

        def before_update(self, old: Any) -> None:
            calls.append("update")

        def before_remove(self) -> None:
            calls.append("remove")

    with Database("memory://", models=[Session], clock=lambda: clock[0]) as db:
        db[Session].create(id=1, expire_in=10)
        clock[0] += 20_000
        assert not db[Session].remove(1)
        db[Session].save(Session(id=1), force=True)
        assert calls == ["insert", "insert"]


async def test_the_asynchronous_facade_calls_the_same_hooks():
    Page.heard.clear()
    async with AsyncDatabase("memory://", models=[Page]) as db:
        page = await db[Page].create(id=1, title="A")
        await db[Page].patch(1, title="B")
        await db[Page].rename(1, 2)
        await db[Page].remove(2)
    assert page.slug == "a"
    assert [call[0] for call in heard()] == [
        f"{when}_{what}" for what in ("insert", "update", "update", "remove") for when in ("before", "after")
    ]


def test_a_record_that_cannot_be_read_is_removed_by_its_key_without_hooks():
    db = Database("memory://", models=[Strict, Page])
    for name, model in (("strict", Strict), ("pages", Page)):
        db.kv.unsafe().set((name, 1), {"id": 1, "n": "no number", "title": None})
        with pytest.raises(DecodeError):
            db[model].get(1)
    assert db[Strict].remove(1)
    with pytest.raises(DecodeError) as caught:
        db[Page].all().delete()
    assert "remove(1)" in str(caught.value.hint)
    (found,) = db.check(repair="all").findings
    assert (found.kind, found.repaired) == ("undecodable", False)
    assert "remove(key)" in str(found.hint)
    Page.heard.clear()
    with db.transaction() as tx:
        assert tx[Page].remove(1)
    assert not heard()
    assert db.check().ok
    assert not db[Page].remove(1)
