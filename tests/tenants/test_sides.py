"""Models are declared for the store or for its tenants, and names are checked."""

from __future__ import annotations

import io

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    ForeignKey,
    InvalidArgumentError,
    KvModel,
    ModelDefinitionError,
    PrimaryKey,
    TenantModelError,
    UnsupportedError,
)
from kvmodels.limits import Limits
from tests.tenants.models import TENANT_MODELS, Account, Doc, User


class Invoice(KvModel, collection="invoices"):
    """Refers to a model that the tests declare on the other side."""

    id: PrimaryKey[int]
    account: ForeignKey[int, Account]


class Tag(KvModel, collection="users"):
    """Of the store, with a collection that tenants have too."""

    id: PrimaryKey[int]


def test_a_foreign_key_from_one_side_to_the_other_is_refused():
    with pytest.raises(ModelDefinitionError, match="from a tenant to the store itself") as caught:
        Database("memory://", models=[Account], tenant_models=[Invoice])
    assert (caught.value.model, caught.value.field) == ("Invoice", "account")
    with pytest.raises(ModelDefinitionError, match="from a tenant to the store itself"):
        Database("memory://", models=[Invoice], tenant_models=[Account])
    Database("memory://", tenant_models=[Invoice, Account]).close()


def test_a_model_of_both_sides_is_refused_and_a_collection_may_be_on_both():
    with pytest.raises(ModelDefinitionError, match="to the store itself and to tenants"):
        Database("memory://", models=[User], tenant_models=TENANT_MODELS)
    with Database("memory://", models=[Tag], tenant_models=TENANT_MODELS) as db:
        db[Tag].create(id=1)
        db.create_tenant("acme")
        assert db.tenant("acme")[User].count() == 0
        assert db[Tag].count() == 1


async def test_a_model_of_the_other_side_is_a_typed_error():
    with Database("memory://", models=[Account], tenant_models=TENANT_MODELS) as db:
        db.create_tenant("acme")
        for place, model in ((db, User), (db, Doc), (db.tenant("acme"), Account)):
            with pytest.raises(TenantModelError):
                place[model]
    async with AsyncDatabase("memory://", models=[Account], tenant_models=TENANT_MODELS) as other:
        with pytest.raises(TenantModelError):
            await other[User].count()


@pytest.mark.parametrize("name", ["", "x" * 65, "é" * 33, "\0" * 33, "\ud800", 7, None, b"acme"])
def test_what_is_no_name_is_refused(name):
    with Database("memory://", tenant_models=TENANT_MODELS) as db:
        for call in (db.tenant, db.create_tenant, db.remove_tenant):
            with pytest.raises(InvalidArgumentError):
                call(name)


def test_names_of_any_characters_are_tenants_of_their_own():
    names = ["a", "a\0", "a\0b", "ab", "tenants", "__kvmodels__", "é" * 32, "x" * 64]
    with Database("memory://", tenant_models=TENANT_MODELS) as db:
        for number, name in enumerate(names):
            assert db.create_tenant(name)
            db.tenant(name)[User].create(id=number, email=name, color="red")
        assert [one.name for one in db.tenants()] == sorted(names, key=str.encode)
        assert [one.name for one in db.tenants(prefix="a", limit=2)] == ["a", "a\0"]
        assert [one.name for one in db.tenants(after="a\0b", prefix="a")] == ["ab"]
        assert db.remove_tenant("a")
        assert [db.tenant(name)[User].get(email=name).id for name in names[1:]] == list(range(1, len(names)))


def test_a_database_without_models_of_tenants_has_none():
    with Database("memory://") as db:
        for call in (db.tenant, db.create_tenant):
            with pytest.raises(InvalidArgumentError, match="without models of tenants"):
                call("acme")
        assert db.tenants() == ()
    with pytest.raises(InvalidArgumentError):
        Database("memory://", tenant_cache=-1)


def test_a_dump_of_a_tenant_is_loaded_into_another_one():
    with Database("memory://", tenant_models=TENANT_MODELS) as db:
        db.create_tenant("acme")
        acme = db.tenant("acme")
        acme[User].create(id=1, email="1", color="red")
        file = io.StringIO()
        acme.kv.dump(file)
        db.create_tenant("copy")
        file.seek(0)
        copy = db.tenant("copy")
        copy.kv.load(file)
        assert (copy[User].get(email="1").id, copy.check().ok, acme.check().ok) == (1, True, True)


def test_a_dump_with_keys_of_tenants_is_not_loaded():
    lines = (
        '{"kvmodels_dump":1,"codec":"msgpack","versionstamp":"0"}\n{"key":["__kvmodels__","tenants","a"],"value":1}\n'
    )
    with Database("memory://") as db:
        with pytest.raises(UnsupportedError):
            db.kv.load(io.StringIO(lines))
        assert db.kv.count(()) == 0


def test_a_collection_that_a_release_adds_is_listed_by_a_write_or_by_apply():
    for add in (lambda acme: acme[Doc].create(owner=1), lambda acme: acme.apply()):
        with (
            Database("memory://adds", tenant_models=[User]) as old,
            Database("memory://adds", tenant_models=TENANT_MODELS) as new,
        ):
            old.create_tenant("acme")
            old.tenant("acme")[User].create(id=1, email="1", color="red")
            acme = new.tenant("acme")
            assert [one.name for one in acme.collections()] == ["users"]
            add(acme)
            assert [one.name for one in acme.collections()] == ["docs", "docs_readers", "users"]
            assert acme.check().ok


def test_the_limits_of_a_tenant_are_those_left_after_its_prefix():
    with Database("memory://", tenant_models=TENANT_MODELS) as db:
        db.create_tenant("acme")
        acme = db.tenant("acme")
        left = Limits.EMBEDDED.max_key_bytes - 28
        assert acme.kv.set(("x" * (left - 2),), 1).ok
        with pytest.raises(Exception, match=f"maximum={left}"):
            acme.kv.set(("x" * (left - 1),), 1)


def test_the_store_explains_counts_and_lists_keys_of_tenants_and_cannot_write_them():
    with Database("memory://", models=[Account], tenant_models=TENANT_MODELS) as db:
        db.create_tenant("acme")
        db.tenant("acme").kv.set(("raw", 1), 1)
        key = ("__kvmodels__", "tenant", "acme", "raw", 1)
        assert str(db.explain_key(key)) == "key of the tenant acme"
        assert str(db.explain_key(("__kvmodels__", "tenants", "acme"))) == "state of the tenant acme"
        assert db.kv.get(key).value == 1
        assert db.stats().tenants.rows == 2
        assert db.check().unchecked == ("tenants: db.check(tenants=True) checks them",)
        with pytest.raises(ValueError, match="reserved"):
            db.kv.set(key, 2)


def test_handles_are_kept_up_to_a_number_and_a_forgotten_one_loses_nothing():
    with Database("memory://", tenant_models=TENANT_MODELS, tenant_cache=2) as db:
        seen: list[str] = []
        db.signals.after_insert.connect(lambda user: seen.append(user.email), User)
        for name in ("a", "b", "c"):
            db.create_tenant(name)
        first = db.tenant("a")
        assert db.tenant("a") is first
        assert db.tenant("b") is not db.tenant("c")
        assert db.tenant("a") is not first
        for number, handle in enumerate((first, db.tenant("a"))):
            handle[User].create(id=number, email=str(number), color="red")
        assert seen == ["0", "1"]
        assert db.tenant("a")[User].count() == 2
