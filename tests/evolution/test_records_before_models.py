"""A model is declared over a prefix that already holds records: nothing uses its indexes before they are built."""

from __future__ import annotations

import io
from typing import Any, ClassVar

import pytest

from kvmodels import (
    AggregateIndex,
    AsyncDatabase,
    Count,
    Database,
    Field,
    Indexed,
    IndexNotReadyError,
    KvModel,
    Limits,
    PrimaryKey,
    SchemaMismatchError,
    Unique,
    Upgrade,
    open_kv,
)
from kvmodels.catalog.catalogue import IndexState
from kvmodels.core.operations import Check
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Commit, Flow
from kvmodels.flows.evolution import header as adoption
from kvmodels.flows.evolution.header import commit_header
from tests.oracle import audit, read_store, spec_of


class User(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str] = Field(default="red")

    class Meta:
        indexes: ClassVar = (AggregateIndex("color", name="colors"),)


class Bare(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: str
    color: str = "red"


class City(KvModel, collection="cities"):
    id: PrimaryKey[int]
    name: Unique[str]


RECORDS = (
    {"id": 1, "email": "ada@x.org", "color": "red"},
    {"id": 2, "email": "bob@x.org"},  # without a field that has a default
    {"id": 3, "email": "ada@x.org", "color": "blue"},
)


def write_raw(url: str, codec: Any = "msgpack", records: Any = RECORDS) -> None:
    with open_kv(url, codec=codec) as kv:
        for record in records:
            kv.set(("users", record["id"]), record)


def states(db: Any, collection: str = "users") -> list[tuple[str, int, str]]:
    header = db.kv.get(("__kvmodels__", "header")).value
    return [(ix["name"], ix["generation"], ix["state"]) for ix in header["collections"][collection]["indexes"]]


def rules(db: Any) -> list[str]:
    return [step.rule for step in db.plan().steps]


def require_exact(db: Any, *models: Any) -> None:
    assert db.plan().is_current
    assert db.check().ok
    assert audit(read_store(db.kv), [spec_of(model) for model in models]) == []


@pytest.fixture
def keeper(url):
    """Keeps a store in memory alive, and is another process to the others."""
    with open_kv(url) as kv:
        yield kv


@pytest.mark.parametrize("codec", ["msgpack", "v8"])
def test_nothing_uses_the_indexes_of_records_that_were_there_before_until_they_are_built(url_of, codec):
    for engine in ("memory", "sqlite", "lmdb"):
        url = url_of(engine)
        with open_kv(url, codec=codec):
            write_raw(url, codec)
            with Database(url, models=[User], codec=codec) as db:
                assert rules(db) == ["index_unbuilt"] * 3
                assert not db.plan().is_current
                users = db[User]
                assert users.get(1).email == "ada@x.org"
                assert [user.id for user in users.all()] == [1, 2, 3]
                for ask in (
                    lambda users=users: users.get(email="bob@x.org"),
                    lambda users=users: users.filter(color="red").to_list(),
                    lambda users=users: users.filter(color="red").count(),
                    lambda users=users: list(users.group_by("color").aggregate(Count())),
                ):
                    with pytest.raises(IndexNotReadyError) as unready:
                        ask()
                    assert unready.value.state == "disabled"
                loaded = users.get(1)

                def in_transaction(db: Any = db) -> None:
                    with db.transaction() as tx:
                        tx[User].create(id=9, email="eve@x.org")

                for write in (
                    lambda users=users: users.create(id=9, email="ada@x.org"),
                    lambda users=users, loaded=loaded: users.save(loaded, force=True),
                    lambda users=users: users.patch(1, color="blue"),
                    lambda users=users: users.remove(1),
                    lambda users=users: users.bulk_create([User(id=9, email="ada@x.org")]),
                    lambda users=users: users.all().delete(),
                    in_transaction,
                    lambda db=db: db.migrate(User),
                ):
                    with pytest.raises(SchemaMismatchError) as refused:
                        write()
                    assert "db.apply()" in str(refused.value.hint)
                assert len(db.check().unchecked) == 3
                report = db.apply()
                assert not report.complete
                assert [(one.key, one.kind) for one in db.violations(User, "email")] == [(3, "duplicate")]
                assert sorted(user.id for user in users.filter(color="red")) == [1, 2]
                users.patch(3, email="eve@x.org")
                assert db.apply().complete
                assert users.get(email="eve@x.org").id == 3
                assert db.check().ok
                if codec == "msgpack":  # which the oracle reads
                    require_exact(db, User)
            with Database(url, models=[User], codec=codec) as db:
                assert db.plan().is_current


async def test_an_async_database_sees_records_that_were_there_before(url, keeper):
    write_raw(url)
    async with AsyncDatabase(url, models=[User]) as db:
        assert {step.rule for step in (await db.plan()).steps} == {"index_unbuilt"}
        with pytest.raises(IndexNotReadyError):
            await db[User].get(email="bob@x.org")
        with pytest.raises(SchemaMismatchError):
            await db[User].create(id=9, email="ada@x.org")
        await db.build_indexes()
        await db[User].patch(3, email="eve@x.org")
        assert (await db.apply()).complete
        assert (await db[User].get(email="bob@x.org")).id == 2
        assert (await db.check()).ok


def test_a_collection_without_records_is_listed_as_readable_by_one_commit(url, keeper, monkeypatch):
    keeper.set(("users",), "no record: the key has no more parts than the prefix")
    keeper.set(("users2", 1), "a record of another collection")
    requests: list[type] = []
    original = adoption.list_new

    def watched(*arguments: Any) -> Flow[bool]:
        flow, answer = original(*arguments), None
        while True:
            try:
                request = flow.send(answer)
            except StopIteration as ended:
                result: bool = ended.value
                return result
            requests.append(type(request))
            answer = yield request

    monkeypatch.setattr("kvmodels.flows.evolution.header.list_new", watched)
    with Database(url, models=[User, City]) as db:
        assert requests == [Commit]
        assert {state for _, _, state in (*states(db), *states(db, "cities"))} == {"readable"}
        db[User].create(id=1, email="ada@x.org")
        assert db[User].get(email="ada@x.org").id == 1


class Racing:
    """Writes a record at the last moment before the first commit that lists collections; ``checked``: as it should."""

    def __init__(self, url: str, *, checked: bool) -> None:
        self._url, self._checked, self._left = url, checked, 1

    def __call__(self, context: Context, view: Any, header: Any, *, checks: list[Check]) -> Flow[bool]:
        if self._left:
            self._left -= 1
            write_raw(self._url)
        return commit_header(context, view, header, checks=checks if self._checked else ())


def test_a_record_that_comes_just_before_the_header_is_committed_is_seen(url, keeper, monkeypatch):
    monkeypatch.setattr(adoption, "commit_header", Racing(url, checked=True))
    with Database(url, models=[User, City]) as db:
        assert states(db, "cities") == [("name", 1, "readable")]
        assert rules(db) == ["index_unbuilt"] * 3
        with pytest.raises(IndexNotReadyError):
            db[User].filter(color="red").to_list()


def test_without_the_check_such_a_record_would_be_missed(url, keeper, monkeypatch):
    """The mutant of the rule that the commit checks that there are no records."""
    monkeypatch.setattr(adoption, "commit_header", Racing(url, checked=False))
    with Database(url, models=[User, City]) as db:
        assert rules(db) == []
        assert db[User].filter(color="red").count() == 0


def test_entries_that_another_program_keeps_under_the_prefix_of_an_index_are_left_alone(url, keeper):
    write_raw(url, records=RECORDS[:2])
    keeper.set(("users_by_email", "ada@x.org"), {"id": 1})
    with Database(url, models=[User]) as db:
        assert sorted(states(db)) == [("color", 1, "disabled"), ("colors", 1, "disabled"), ("email", 2, "disabled")]
        assert db.apply().complete
        assert db[User].get(email="ada@x.org").id == 1
        db[User].remove(1)
        assert db.plan().is_current
        assert db.check().ok
    assert keeper.get(("users_by_email", "ada@x.org")).value == {"id": 1}


def folded(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "email": document["email"].upper()}


class Upgraded(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str] = Field(default="red")

    class Meta:
        schema_version: ClassVar = 2
        upgrades: ClassVar = (Upgrade(2, folded, touches=("email",)),)


def test_records_that_were_there_before_are_of_the_first_schema_version(url, keeper):
    write_raw(url, records=RECORDS[:2])
    with Database(url, models=[Upgraded]) as db:
        assert db[Upgraded].get(2).email == "BOB@X.ORG"
        assert rules(db) == ["index_unbuilt", "index_unbuilt", "records_outdated"]
        assert db.apply().complete
        assert db[Upgraded].get(email="BOB@X.ORG").id == 2
        require_exact(db, Upgraded)


def test_a_later_release_with_an_upgrade_builds_what_an_earlier_one_has_left_unbuilt(url, keeper):
    write_raw(url, records=RECORDS[:2])
    Database(url, models=[User]).close()

    class Later(KvModel, collection="users"):
        id: PrimaryKey[int]
        email: Unique[str]
        color: str = "red"

        class Meta:
            schema_version: ClassVar = 2
            upgrades: ClassVar = (Upgrade(2, folded, touches=("email",)),)

    with Database(url, models=[Later]) as db:
        before = keeper.get(("__kvmodels__", "header")).versionstamp
        with pytest.raises(SchemaMismatchError):
            db.migrate(Later)
        assert keeper.get(("__kvmodels__", "header")).versionstamp == before
        assert db.apply().complete
        assert db[Later].get(email="ADA@X.ORG").id == 1
        assert db.plan().is_current
        assert db.check().ok


def test_a_build_that_is_interrupted_goes_on_and_writers_keep_every_index_meanwhile(url, keeper):
    write_raw(url, records=RECORDS[:2])

    def stop(progress: Any) -> None:
        raise KeyboardInterrupt

    with Database(url, models=[User]) as db, pytest.raises(KeyboardInterrupt):
        db.apply(progress=stop)
    with Database(url, models=[User]) as db:
        assert {state for _, _, state in states(db)} == {IndexState.WRITE_ONLY.value}
        db[User].create(id=4, email="eve@x.org", color="green")
        assert db.apply().complete
        assert [user.id for user in db[User].filter(color="green")] == [4]
        require_exact(db, User)


def test_a_release_that_does_not_declare_an_unbuilt_index_may_write_beside_it(url, keeper):
    write_raw(url)
    with Database(url, models=[User]) as db, Database(url, models=[Bare]) as bare:
        bare[Bare].patch(3, email="eve@x.org")
        with pytest.raises(SchemaMismatchError):
            db[User].patch(3, email="eve@x.org")
        assert db.apply().complete
        with pytest.raises(SchemaMismatchError):
            bare[Bare].patch(3, email="ada@x.org")
        require_exact(db, User)


def test_once_the_records_are_gone_the_next_opening_makes_the_indexes_readable(url, keeper):
    write_raw(url)
    Database(url, models=[User]).close()
    for record in RECORDS:
        keeper.delete(("users", record["id"]))
    with Database(url, models=[User]) as db:
        assert db.plan().is_current
        db[User].create(id=1, email="ada@x.org")
        require_exact(db, User)


def test_a_store_that_is_opened_for_reading_shows_what_would_have_to_be_built(tmp_path):
    url = str(tmp_path / "app.db")
    write_raw(url)
    with Database(url, models=[User], readonly=True) as db:
        assert rules(db) == ["collection_added", "index_unbuilt", "index_unbuilt", "index_unbuilt"]
        assert db[User].get(1).id == 1
        with pytest.raises(IndexNotReadyError):
            db[User].get(email="bob@x.org")


def test_a_program_that_requires_a_current_schema_does_not_open_such_a_store(url, keeper):
    write_raw(url)
    with pytest.raises(SchemaMismatchError):
        Database(url, models=[User], require_current=True)


def test_a_copy_of_the_store_remembers_that_the_indexes_are_not_built(url, keeper):
    write_raw(url)
    with Database(url, models=[User]) as db, open_kv("memory://") as copy:
        file = io.BytesIO()
        db.kv.dump(file)
        file.seek(0)
        copy.load(file)
        assert copy.get(("__kvmodels__", "header")).value == keeper.get(("__kvmodels__", "header")).value


def test_many_collections_are_listed_within_the_limits_of_a_small_engine(url, keeper):
    def model(number: int) -> Any:
        columns = {f"c{column}": Indexed[str] for column in range(12)}
        body = {"__annotations__": {"id": PrimaryKey[int], **columns}, "__module__": __name__}
        return type(f"Many{number}", (KvModel,), body, collection=f"many{number}")

    models = [model(number) for number in range(12)]
    for number in (3, 11):
        keeper.set((f"many{number}", 1), {"id": 1, **{f"c{column}": "x" for column in range(12)}})
    with Database(url, models=models, limits=Limits.DENOKV_SERVER) as db:
        assert rules(db) == ["index_unbuilt"] * 24
        assert db.apply().complete
        assert db[models[3]].filter(c11="x").count() == 1
        assert db.check().ok
