"""``tenant(name, create=True)``: the first use works at the first attempt, whatever it is."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from kvmodels import AsyncDatabase, Database, TransactionConflictError, UniqueViolationError
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from tests.native_engine import NativeEngine
from tests.tenants.models import TENANT_MODELS, Doc, User
from tests.worlds import in_test_servers


def red(number: int) -> User:
    return User(id=number, email=str(number), color="red")


SERVERS = in_test_servers("postgres", "etcd34")


@pytest.fixture(params=["memory", "sqlite", "lmdb", *SERVERS])
def url(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> str:
    return url_of(request.param)


def test_a_transaction_creates_the_tenant(url: str):
    with Database(url, tenant_models=TENANT_MODELS) as db:
        acme = db.tenant("acme", create=True)
        with acme.transaction() as tx:
            assert (tx[User].filter(color="red").to_list(), tx[User].get_or_none(1)) == ([], None)
            assert db.tenants() == (), "a read creates nothing"
            tx[User].insert(red(1))
            tx[Doc].insert(Doc(owner=1))
            tx.kv.set(("note",), 1)
        with acme.transaction() as tx:
            tx[User].patch(1, color="blue")
        assert (acme[User].get(1).color, acme[Doc].count(), acme.kv.get(("note",)).value) == ("blue", 1, 1)
        assert acme.check().ok
        other = db.tenant("initech", create=True)
        with other.transaction() as tx:
            tx.kv.enqueue("message")
        assert [one.name for one in db.tenants()] == ["acme", "initech"]


def test_a_dump_is_loaded_into_a_tenant_that_the_load_creates(url: str):
    with Database(url, tenant_models=TENANT_MODELS) as db:
        db.tenant("acme", create=True)[User].insert(red(1))
        file = io.StringIO()
        db.tenant("acme").kv.dump(file)
        file.seek(0)
        copy = db.tenant("copy", create=True)
        copy.kv.load(file)
        assert (copy[User].filter(color="red").count(), copy.check().ok) == (1, True)
        assert copy[User].insert(red(2)).id == 2


@pytest.mark.parametrize("engine", ["memory", "native", *SERVERS])
async def test_an_asynchronous_transaction_creates_the_tenant(url_of: Callable[[str], str], engine: str):
    if engine == "native":
        core = DatabaseCore([], tenant_models=TENANT_MODELS)
        opened = AsyncDatabase.from_engine(NativeEngine(MemoryEngine()), core)
    else:
        opened = AsyncDatabase(url_of(engine), tenant_models=TENANT_MODELS)
    async with opened as db:
        acme = db.tenant("acme", create=True)
        async with acme.transaction() as tx:
            assert await tx[User].filter(color="red").to_list() == []
            await tx[User].insert(red(1))
        assert await acme[User].filter(color="red").count() == 1
        file = io.StringIO()
        await acme.kv.dump(file)
        file.seek(0)
        copy = db.tenant("copy", create=True)
        await copy.kv.load(file)
        assert await copy[User].filter(color="red").count() == 1


RIVALS: dict[str, tuple[Callable[[Database], object], bool]] = {
    "of the same key": (lambda acme: acme[User].insert(red(1)), True),
    "of the same unique value": (lambda acme: acme[User].insert(User(id=9, email="1", color="red")), True),
    "of a key that was read": (lambda acme: acme[User].insert(red(7)), True),
    "of another record": (lambda acme: acme[User].insert(User(id=8, email="8", color="green")), False),
    "an index less": (lambda acme: acme.drop_index(User, "colors"), True),
}


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("rival", RIVALS)
def test_a_transaction_that_creates_the_tenant_meets_the_conflicts_of_any_other(rival: str, exists: bool):
    write, conflicts = RIVALS[rival]
    with Database("memory://", tenant_models=TENANT_MODELS) as db:
        if exists:
            db.create_tenant("acme")
        acme = db.tenant("acme", create=True)
        refused = pytest.raises((TransactionConflictError, UniqueViolationError)) if conflicts else nullcontext()
        with refused, acme.transaction() as tx:
            assert tx[User].get_or_none(7) is None
            db.create_tenant("acme")
            write(db.tenant("acme"))
            tx[User].insert(red(1))
        assert db.tenant("acme").check().ok
