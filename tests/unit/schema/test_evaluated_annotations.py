"""Classes of modules that do not postpone annotations: from 3.14 on, ``__dict__`` of a class lacks its annotations."""

from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from kvmodels import AutoNow, Creation, Database, Index, KvModel, ModelDefinitionError, PrimaryKey, Transaction


class City(TypedDict):
    name: str
    country: "Country"


class Country(TypedDict):
    code: str


def test_a_reserved_name_is_refused():
    with pytest.raises(ModelDefinitionError, match="reserved") as refused:

        class Job(KvModel, collection="jobs"):
            id: PrimaryKey[int]
            if_version: int

    assert refused.value.field == "if_version"


def test_a_function_in_place_of_a_type_is_refused():
    with pytest.raises(ModelDefinitionError, match="function as its type"):

        class Job(KvModel, collection="jobs"):
            id: PrimaryKey[int]
            changed: AutoNow  # type: ignore[valid-type]


def test_a_field_that_a_request_body_declares_again_is_part_of_it():
    class Place(KvModel, collection="places"):
        id: PrimaryKey[int]
        name: str

    class Short(Creation[Place], exclude=("name",)):
        pass

    class Long(Short):
        name: str

    assert issubclass(Long, BaseModel)
    assert "name" not in Short.model_fields
    assert "name" in Long.model_fields


def test_a_projection_names_a_class_that_is_declared_later():
    class Place(KvModel, collection="places"):
        id: PrimaryKey[int]
        name: str
        country: Country

    with Database("memory://", models=[Place]) as db:
        db[Place].create(id=1, name="Bern", country={"code": "CH"})
        assert list(db[Place].only(City)) == [{"name": "Bern", "country": {"code": "CH"}}]


# As imported under `if TYPE_CHECKING`: unknown once the functions below are defined.
ForTypeCheckers = Any


def first_letter(name: ForTypeCheckers) -> ForTypeCheckers:
    return str(name)[:1]


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int]
    name: str

    class Meta:
        indexes = (Index("name", key=first_letter, version=1, name="letter", returns=str),)

    def before_update(self, old: ForTypeCheckers) -> ForTypeCheckers:
        self.name = self.name.strip()


def rename(tx: Transaction, name: ForTypeCheckers) -> ForTypeCheckers:
    tx[Note].patch(1, name=name)


del ForTypeCheckers


def test_functions_may_name_what_only_type_checkers_know():
    """Python 3.14 evaluates annotations when a signature is read, and then such a name is a NameError."""
    with Database("memory://", models=[Note]) as db:
        db[Note].create(id=1, name="one")
        db.transactional()(rename)(" two ")
        assert db[Note].get(1).name == "two"
        assert db[Note].filter(letter="t").count() == 1
