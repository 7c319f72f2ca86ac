"""Classes of modules that do not postpone annotations: from 3.14 on, ``__dict__`` of a class lacks its annotations."""

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from kvmodels import AutoNow, Creation, Database, KvModel, ModelDefinitionError, PrimaryKey


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
