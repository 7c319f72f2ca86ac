"""Tenants beside releases of the program: collections that a release adds, and two versions of the schema at once."""

from __future__ import annotations

from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    Indexed,
    IndexNotReadyError,
    KvModel,
    PrimaryKey,
    TransactionConflictError,
)
from kvmodels.catalog import collection
from kvmodels.schema.definition.definition import ModelSchema
from tests.tenants.models import Doc, User

NAME = "acme"


@pytest.fixture
def behind(tmp_path: Any) -> str:
    """A store with a tenant of a release without docs."""
    url = f"sqlite:///{tmp_path}/store.db"
    with Database(url, tenant_models=[User]) as db:
        db.create_tenant(NAME)
        db.tenant(NAME)[User].create(id=1, email="1", color="red")
    return url


def test_queries_of_a_collection_that_is_not_listed_yet_are_empty_and_write_nothing(behind: str):
    with Database(behind, tenant_models=[User, Doc]) as db:
        docs = db.tenant(NAME)[Doc]
        assert (docs.filter(owner=1).count(), docs.filter(owner=1).first(), docs.count()) == (0, None, 0)
        assert [one.rule for one in db.tenant(NAME).plan(Doc).steps] == ["collection_added"]  # nothing was written
        docs.create(owner=1, title="a")
        assert docs.filter(owner=1).count() == 1


def test_queries_of_a_collection_with_raw_keys_are_refused(behind: str):
    with Database(behind, tenant_models=[User]) as old:
        old.tenant(NAME).kv.set(("docs", 7), {"owner": 1})
    with Database(behind, tenant_models=[User, Doc]) as db, pytest.raises(IndexNotReadyError):
        db.tenant(NAME)[Doc].filter(owner=1).count()


@pytest.mark.parametrize("again", [False, True])
def test_the_first_write_in_a_transaction_lists_a_collection(behind: str, again: bool):
    with Database(behind, tenant_models=[User, Doc]) as db:
        acme = db.tenant(NAME)
        with acme.transaction() as tx:
            assert tx[User].get(1).color == "red"
            assert tx[Doc].filter(owner=1).count() == 0
            if again:
                db.tenant(NAME).apply()  # by another handle, after the snapshot was taken
            tx[Doc].create(owner=1, title="a")
            assert tx[Doc].filter(owner=1).count() == 1
            tx[User].patch(1, color="blue")
        assert (acme[Doc].filter(owner=1).count(), acme[User].get(1).color) == (1, "blue")
        assert acme.check().ok


def test_a_transaction_meets_another_change_of_the_catalogue(behind: str):
    with Database(behind, tenant_models=[User, Doc]) as db:
        acme = db.tenant(NAME)
        with pytest.raises(TransactionConflictError), acme.transaction() as tx:
            tx[User].get(1)
            acme.drop_index(User, "colors")
            tx[Doc].create(owner=1, title="a")
        assert acme[Doc].count() == 0


async def test_the_first_write_in_an_asynchronous_transaction_lists_a_collection(behind: str):
    async with AsyncDatabase(behind, tenant_models=[User, Doc]) as db:
        acme = db.tenant(NAME)
        async with acme.transaction() as tx:
            await tx[Doc].create(owner=1, title="a")
        assert await acme[Doc].filter(owner=1).count() == 1


def test_tenants_of_two_versions_are_not_joined_again_at_each_change_of_tenant(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
):
    class Lamp(KvModel, collection="lamps"):
        id: PrimaryKey[int]
        watts: int = 0

    class IndexedLamp(KvModel, collection="lamps"):
        id: PrimaryKey[int]
        watts: Indexed[int]

    class Shade(KvModel, collection="shades"):
        id: PrimaryKey[int]

    joins: list[str] = []
    join = collection.join

    def counted(schema: ModelSchema, *rest: Any) -> Any:
        joins.append(schema.collection)
        return join(schema, *rest)

    url = f"sqlite:///{tmp_path}/store.db"
    with Database(url, tenant_models=[Lamp]) as old:
        old.create_tenant("behind")
    with Database(url, tenant_models=[IndexedLamp, Shade], tenant_cache=0) as db:
        db.create_tenant("new")
        monkeypatch.setattr(collection, "join", counted)
        numbers: list[int] = []
        for _ in range(3):
            for name in ("behind", "new"):
                assert db.tenant(name)[Shade].count() == 0  # by a new handle each time
            numbers.append(len(joins))
    assert numbers[0] > 0
    assert numbers == numbers[:1] * 3
