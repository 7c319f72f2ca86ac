"""A model is a plain pydantic model: in FastAPI, in pickles, in signatures; and has its own exceptions."""

import inspect
import pickle
from typing import Annotated

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import ValidationError

from kvmodels import errors
from kvmodels.core.ulid import ULID
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.markers import Field, Indexed, PrimaryKey, Unique


class Account(KvModel):
    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    email: Unique[str] = Field(max_length=20)
    age: Annotated[int | None, Indexed()] = None


class Admin(Account):
    level: int = 0


def test_a_model_is_body_and_response_of_fastapi():
    app = FastAPI()

    @app.post("/accounts")
    def create(account: Account) -> Account:
        return account

    @app.patch("/accounts", response_model=Account)
    def change(account: Account):
        return account.model_copy(update={"age": 5})

    client = TestClient(app)
    created = client.post("/accounts", json={"email": "a@x.org", "age": 3}).json()
    assert str(ULID(created["id"])) == created["id"]
    assert (created["email"], created["age"]) == ("a@x.org", 3)
    assert client.patch("/accounts", json=created).json() == created | {"age": 5}
    assert client.post("/accounts", json={"email": "a" * 21}).status_code == 422
    schema = client.get("/openapi.json").json()["components"]["schemas"]["Account"]
    assert set(schema["properties"]) == {"id", "email", "age"}
    assert schema["required"] == ["email"]


def test_every_model_has_its_own_exceptions():
    assert issubclass(Account.DoesNotExist, errors.DoesNotExist)
    assert issubclass(Admin.DoesNotExist, Account.DoesNotExist)
    assert issubclass(Admin.MultipleObjectsReturned, Account.MultipleObjectsReturned)
    assert Account.DoesNotExist.__qualname__ == "Account.DoesNotExist"
    with pytest.raises(Account.DoesNotExist):
        raise Admin.DoesNotExist("no record matches", model="Admin", lookup=1)


@pytest.mark.parametrize("kind", [Account.DoesNotExist, Admin.MultipleObjectsReturned])
def test_they_survive_pickling(kind):
    error = pickle.loads(pickle.dumps(kind("no record matches", model="Account", lookup={"id": 1})))
    assert type(error) is kind
    assert error.lookup == {"id": 1}


def test_objects_survive_pickling():
    account = Account(email="a@x.org")
    assert pickle.loads(pickle.dumps(account)) == account


def test_the_signature_is_that_of_the_fields():
    assert list(inspect.signature(Account).parameters) == ["id", "email", "age"]


def test_input_is_validated_by_pydantic_alone():
    with pytest.raises(ValidationError):
        Account(email="a" * 21)
    with pytest.raises(ValidationError):
        Account.model_validate({})


def test_extra_attributes_of_pydantic_stay_in_reach():
    assert set(Account.model_fields) == {"id", "email", "age"}
    assert Account(email="x").model_dump(exclude={"id"}) == {"email": "x", "age": None}
    assert "email" not in dir(Account)
