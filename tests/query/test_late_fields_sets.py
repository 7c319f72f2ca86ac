"""Objects that are read many at once know which of their fields were given, as those that are read one by one do."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, Self

import pytest
from pydantic import PrivateAttr, field_validator, model_validator

from kvmodels import Database, Field, Indexed, KvModel, PrimaryKey
from kvmodels.schema.instances import FIELDS_SET

MANY = 12


class Simple(KvModel, collection="one"):
    id: PrimaryKey[int]
    name: Indexed[str] = Field(default="x")
    size: int = Field(default=3, alias="Size")


class Checked(Simple, collection="one", validate_assignment=True):
    @field_validator("name")
    @classmethod
    def lower(cls, name: str) -> str:
        return name.lower()


class Open(Simple, collection="one", extra="allow"): ...


class Secret(Simple, collection="one"):
    _seen: list[int] = PrivateAttr(default_factory=list)


class After(Simple, collection="one"):
    @model_validator(mode="after")
    def forget(self) -> Self:
        self.model_fields_set.discard("size")
        return self


class Before(Simple, collection="one"):
    @model_validator(mode="before")
    @classmethod
    def shorten(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if name != "size" or value != 3}


class Post(Simple, collection="one"):
    def model_post_init(self, context: Any, /) -> None:
        self.model_fields_set.discard("name")


class Made(Simple, collection="one"):
    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.model_fields_set.discard("name")


class Answering(Simple, collection="one"):
    def __getattr__(self, name: str) -> Any:
        if name == "nickname":
            return self.name
        raise AttributeError(name)


class Watched(Simple, collection="one"):
    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__(name)


MODELS: list[type[Any]] = [Simple, Checked, Open, Secret, After, Before, Post, Made, Answering, Watched]
LEFT_OUT = {Simple, Checked, Open}


def fields_of(one: Any) -> Any:
    return one.model_fields_set


def dumped(one: Any) -> Any:
    return one.model_dump(exclude_unset=True), one.model_dump_json(exclude_unset=True, by_alias=True)


def assigned(one: Any) -> Any:
    one.name = "new"
    return one.model_fields_set, one.__dict__


def removed(one: Any) -> Any:
    del one.size
    return one.model_fields_set, one.__dict__


def extended(one: Any) -> Any:
    if type(one) is Open:
        setattr(one, "more", 1)  # noqa: B010 - checkers know nothing of it
    return one.model_fields_set, one.__pydantic_extra__


def updated(one: Any) -> Any:
    other = one.model_copy(update={"name": "b"})
    return other.model_fields_set, other, one.model_fields_set


def unset(one: Any) -> Any:
    other = copy.copy(one)
    other.model_fields_set.discard("id")
    return one.model_fields_set, other.model_fields_set


def copied(one: Any) -> Any:
    others = [copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one)), one.model_copy(deep=True)]
    return [(other, other.model_fields_set, other.versionstamp) for other in others], others[0] == one


def validated(one: Any) -> Any:
    again = type(one).model_validate(one, from_attributes=True)
    return again is one, again.model_fields_set


def shown(one: Any) -> Any:
    return repr(one), dict(one), one.is_persisted, one.versionstamp, one == copy.copy(one)


USES: list[Callable[[Any], Any]] = [
    fields_of,
    dumped,
    assigned,
    removed,
    extended,
    updated,
    unset,
    copied,
    validated,
    shown,
]


def filled(model: type[Any]) -> Database:
    db = Database("memory://", models=[model])
    db[model].bulk_create([model(id=number, name="a", Size=number) for number in range(MANY)])
    return db


def has_its_set(one: object) -> bool:
    try:
        object.__getattribute__(one, FIELDS_SET)
    except AttributeError:
        return False
    return True


@pytest.mark.fast_kinds
@pytest.mark.parametrize("model", MODELS)
def test_whatever_asks_for_the_fields_set_of_an_object_finds_it(model: type[Any]):
    with filled(model) as db:
        for use in USES:
            many = db[model].all().to_list(), db[model].filter(name="a").to_list()
            assert {has_its_set(one) for objects in many for one in objects} == {model not in LEFT_OUT}
            for objects in many:
                one_by_one = [db[model].get(number) for number in range(MANY)]
                assert all(map(has_its_set, one_by_one))
                assert [use(one) for one in objects] == [use(one) for one in one_by_one]


def test_each_object_has_a_set_of_its_own():
    with filled(Simple) as db:
        first, *others = db[Simple].all().to_list()
        first.model_fields_set.discard("name")
        assert first.model_fields_set == {"id", "size"}
        assert first.model_fields_set is first.model_fields_set
        assert {frozenset(one.model_fields_set) for one in others} == {frozenset({"id", "name", "size"})}


def test_objects_without_their_set_are_written_as_others_are():
    with filled(Simple) as db:
        rows: Any = db[Simple]
        for one in rows.all().to_list():
            one.size += 1
            rows.save(one)
        rows.bulk_update(rows.all().to_list(), fields=["size"])
        kept = rows.all().to_list()
        rows.remove(kept[0])
        rows.save(kept[0])
        assert [one.size for one in rows.all()] == [number + 1 for number in range(MANY)]
        assert db.check().findings == ()


def test_an_object_that_is_not_made_yet_has_no_set():
    class Early(Simple, collection="early"):
        def __init__(self, **values: Any) -> None:
            self.name = "too early"
            super().__init__(**values)

    with pytest.raises(AttributeError, match=FIELDS_SET):
        Early(id=1)
    with pytest.raises(AttributeError, match=FIELDS_SET):
        Simple.__new__(Simple).model_fields_set
    with pytest.raises(AttributeError, match="'Simple' object has no attribute 'nowhere'"):
        Simple(id=1).nowhere  # type: ignore[attr-defined]
