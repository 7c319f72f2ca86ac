"""An exception of a bulk write says which record it is about, whoever has raised it."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError, field_validator

from kvmodels import (
    AlreadyExistsError,
    AsyncDatabase,
    Database,
    F,
    Field,
    Indexed,
    InvalidValueError,
    KvModel,
    Limits,
    MultiIndexed,
    PrimaryKey,
    StaleObjectError,
    Unique,
    UniqueViolationError,
)
from kvmodels.api._sync.repository import Repository
from kvmodels.errors import KeyTooLargeError, OperationTooLargeError


class VetoError(Exception):
    """The error of hooks in these tests."""


class Part(KvModel, collection="parts"):
    id: PrimaryKey[int]
    price: Indexed[int] = Field(default=1, ge=0)
    code: Unique[str | None] = Field(default=None)
    cost: int | None = None
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    veto: str = ""

    @field_validator("veto")
    @classmethod
    def refuse(cls, value: str) -> str:
        if value == "validator":
            raise ValueError("vetoed")
        return value

    def before_insert(self) -> None:
        if self.veto == "before_insert":
            raise VetoError

    def after_insert(self) -> None:
        if self.veto == "after_insert":
            raise VetoError

    def before_update(self, old: Part) -> None:
        if self.veto == "before_update" or old.veto == "next":
            raise VetoError

    def after_update(self, old: Part) -> None:
        if old.veto == "after_update":
            raise VetoError

    def before_remove(self) -> None:
        if self.veto == "before_remove":
            raise VetoError

    def after_remove(self) -> None:
        if self.veto == "after_remove":
            raise VetoError


class Pair(KvModel, collection="pairs"):
    a: PrimaryKey[int]
    b: PrimaryKey[str]
    n: int = 0


def notes(error: BaseException) -> str:
    return " / ".join(getattr(error, "__notes__", ()))


def parts(count: int = 10, **of_the_seventh: Any) -> Repository[Part]:
    made = [Part(id=n) for n in range(count)]
    if of_the_seventh:
        made[7] = Part(id=7, **of_the_seventh)
    db = Database("memory://", models=[Part, Pair])
    db[Part].bulk_create(made)
    return db[Part]


def raised(call: Callable[[], object], kind: type[Exception]) -> Exception:
    with pytest.raises(kind) as caught:
        call()
    return caught.value


RESUMED = pytest.mark.parametrize("named", [{}, {"resume_id": "once"}], ids=["at once", "resumable"])


@RESUMED
@pytest.mark.parametrize(("order", "before"), [("pk", 6), ("-pk", 0)])
def test_an_invalid_value_in_an_update_names_its_record(order: str, before: int, named: dict[str, Any]):
    query = parts(price=0).order_by(order)
    error = raised(lambda: query.update(price=F("price") - 1, batch_size=3, **named), ValidationError)
    told = ["kvmodels: this is about Part 7"]
    if before:
        told.append("kvmodels: 6 records in 2 batches were committed before this was raised")
    assert notes(error) == " / ".join(told)


@RESUMED
def test_a_term_without_a_value_names_its_record(named: dict[str, Any]):
    things = parts()
    things.filter(Part.id != 7).allow_scan().update(cost=1)
    error = raised(lambda: things.all().update(cost=F("cost") + 1, **named), InvalidValueError)
    assert isinstance(error, InvalidValueError)
    assert (error.model, error.key, error.position, error.field) == ("Part", 7, None, "cost")


@RESUMED
@pytest.mark.parametrize("hook", ["next", "after_update"])
def test_a_hook_of_an_update_names_its_record(hook: str, named: dict[str, Any]):
    error = raised(lambda: parts(veto=hook).all().update(price=2, batch_size=3, **named), VetoError)
    assert "kvmodels: this is about Part 7" in notes(error)
    committed = 9 if hook == "after_update" else 6
    assert f"{committed} records in {committed // 3} batches were committed" in notes(error)


@RESUMED
@pytest.mark.parametrize("hook", ["before_remove", "after_remove"])
def test_a_hook_of_a_removal_names_its_record(hook: str, named: dict[str, Any]):
    error = raised(lambda: parts(veto=hook).all().delete(batch_size=3, **named), VetoError)
    assert "kvmodels: this is about Part 7" in notes(error)


def test_a_validator_of_an_update_names_its_record_once():
    things = parts(cost=1)
    error = raised(lambda: things.filter(pk__gte=7).update(veto="validator"), ValidationError)
    assert notes(error) == "kvmodels: this is about Part 7"


def test_a_unique_value_of_an_update_names_its_record():
    things = parts(code="x")
    error = raised(lambda: things.filter(pk=5).update(code="x"), UniqueViolationError)
    assert isinstance(error, UniqueViolationError)
    assert (error.key, error.existing_key, error.position) == (5, 7, None)


def test_a_composite_key_is_named_as_a_tuple():
    db = Database("memory://", models=[Pair])
    db[Pair].bulk_create([Pair(a=1, b="x"), Pair(a=1, b="y")])
    error = raised(lambda: db[Pair].all().update(n=F("n") // F("n")), InvalidValueError)
    assert isinstance(error, InvalidValueError)
    assert error.key == (1, "x")


@RESUMED
@pytest.mark.parametrize("veto", ["before_insert", "after_insert"])
def test_a_hook_of_a_list_names_its_object(veto: str, named: dict[str, Any]):
    things = Database("memory://", models=[Part])[Part]
    objects = [Part(id=100 + n, veto=veto if n == 7 else "") for n in range(10)]
    error = raised(lambda: things.bulk_create(objects, batch_size=3, **named), VetoError)
    assert "kvmodels: this is about Part 107, the object at position 7" in notes(error)
    assert "the batches before position 6 are committed" in notes(error)
    assert things.count() == (9 if veto == "after_insert" else 6)


@RESUMED
def test_an_object_that_overwrites_names_itself_when_its_hook_refuses(named: dict[str, Any]):
    things = parts(veto="next")
    objects = [Part(id=n, price=2) for n in range(9, -1, -1)]
    error = raised(lambda: things.bulk_create(objects, on_conflict="update", **named), VetoError)
    assert notes(error) == "kvmodels: this is about Part 7, the object at position 2"


def test_an_invalid_object_of_a_list_names_itself():
    things = Database("memory://", models=[Part])[Part]
    bad = Part.model_construct(id=1, price=-1, code=None, cost=None, tags=[], veto="")
    error = raised(lambda: things.bulk_create([Part(id=0), bad]), ValidationError)
    assert notes(error) == "kvmodels: this is about Part 1, the object at position 1"
    error = raised(lambda: things.bulk_create([Part(id=0), Part.model_construct(price=1)]), Exception)
    assert "position 1" in notes(error)
    assert things.count() == 0


def test_an_object_of_another_model_tells_its_position():
    things = parts()
    for call in (things.bulk_create, things.bulk_update):
        error = raised(lambda: call([things.get(1), Pair(a=1, b="x")]), InvalidValueError)  # type: ignore[list-item]  # noqa: B023
        assert isinstance(error, InvalidValueError)
        assert error.position == 1


def test_a_key_that_is_taken_names_the_object():
    things = parts()
    error = raised(lambda: things.bulk_create([Part(id=20), Part(id=3)]), AlreadyExistsError)
    assert isinstance(error, AlreadyExistsError)
    assert (error.model, error.key, error.position) == ("Part", 3, 1)


@RESUMED
def test_a_loaded_object_that_is_refused_names_itself(named: dict[str, Any]):
    things = parts(cost=1)
    loaded = things.order_by("-pk").to_list()
    things.patch(7, price=5)
    error = raised(lambda: things.bulk_update(loaded, batch_size=2, **named), StaleObjectError)
    assert isinstance(error, StaleObjectError)
    assert (error.model, error.key, error.position) == ("Part", 7, 2)
    again = pickle.loads(pickle.dumps(error))
    assert (again.position, again.__notes__) == (2, error.__notes__)
    loaded = things.order_by("-pk").to_list()
    loaded[3].price = -1
    error = raised(lambda: things.bulk_update(loaded), ValidationError)
    assert notes(error) == "kvmodels: this is about Part 6, the object at position 3"


@RESUMED
def test_a_unique_value_of_a_loaded_object_names_it(named: dict[str, Any]):
    things = parts(code="x")
    loaded = things.filter(pk__in=[1, 2]).to_list()
    loaded[1].code = "x"
    error = raised(lambda: things.bulk_update(loaded, **named), UniqueViolationError)
    assert isinstance(error, UniqueViolationError)
    assert (error.key, error.position, error.committed) == (2, 1, 0)


def test_what_the_compiler_refuses_names_its_record():
    db = Database("memory://", models=[Part], limits=replace(Limits.EMBEDDED, max_key_bytes=200))
    things = db[Part]
    things.bulk_create([Part(id=n) for n in range(5)])
    loaded = things.all().to_list()
    loaded[3].code = "x" * 300
    error = raised(lambda: things.bulk_update(loaded), KeyTooLargeError)
    assert notes(error) == "kvmodels: this is about Part 3, the object at position 3"
    loaded = things.all().to_list()
    loaded[2].tags = [str(n) for n in range(1_001)]
    error = raised(lambda: things.bulk_update(loaded), OperationTooLargeError)
    assert "kvmodels: this is about Part 2, the object at position 2" in notes(error)
    new = [Part(id=10), Part(id=11, code="x" * 300)]
    assert "Part 11, the object at position 1" in notes(raised(lambda: things.bulk_create(new), KeyTooLargeError))


def test_a_refused_record_is_named_in_a_transaction_too():
    things = parts(veto="next")
    db = Database("memory://", models=[Part])
    db[Part].bulk_create(things.all().to_list())
    with pytest.raises(VetoError) as caught, db.transaction() as tx:
        tx[Part].all().update(price=3)
    assert notes(caught.value) == "kvmodels: this is about Part 7"


def test_what_a_hook_raises_about_another_record_keeps_its_attributes():
    db = Database("memory://", models=[Part, Pair])
    pairs = db[Pair]
    pairs.create(a=1, b="x")

    @db.signals.before_insert(Part)
    def also(part: Part) -> None:
        pairs.create(a=1, b="x")

    error = raised(lambda: db[Part].bulk_create([Part(id=1)]), AlreadyExistsError)
    assert isinstance(error, AlreadyExistsError)
    assert (error.model, error.key, error.position) == ("Pair", (1, "x"), None)
    assert notes(error) == "kvmodels: this is about Part 1, the object at position 0"


def test_a_refused_record_is_named_asynchronously():
    async def tried() -> str:
        async with AsyncDatabase("memory://", models=[Part]) as db:
            await db[Part].bulk_create([Part(id=n, veto="before_remove" if n == 2 else "") for n in range(4)])
            with pytest.raises(VetoError) as caught:
                await db[Part].all().delete()
            return notes(caught.value)

    assert asyncio.run(tried()) == "kvmodels: this is about Part 2"
