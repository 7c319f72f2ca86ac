"""A store with tenants is dumped and loaded as a whole: nothing is found by a check, and nothing writes meanwhile."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    DecodeError,
    EngineError,
    ForeignKey,
    Index,
    Indexed,
    InvalidArgumentError,
    KvModel,
    KvModelsError,
    PrimaryKey,
    ReferenceViolationError,
    TenantError,
    TenantNotFoundError,
    Unique,
    UnsupportedError,
)
from kvmodels.limits import Limits
from tests.tenants.models import Account

NAMES = ("acme", "initech", "z\0o")


class Author(KvModel, collection="authors"):
    """With an index that holds copies of the records."""

    id: PrimaryKey[int]
    email: Unique[str]
    name: str

    class Meta:
        indexes: ClassVar = (Index("name", store="record", name="by_name"),)


class Book(KvModel, collection="books"):
    """Refers to an author."""

    id: PrimaryKey[int]
    author: ForeignKey[int, Author]
    title: str = ""


class TitledBook(KvModel, collection="books"):
    """Of a later release, whose index the store does not have yet."""

    id: PrimaryKey[int]
    author: ForeignKey[int, Author]
    title: Indexed[str] = ""  # type: ignore[assignment]


MODELS: dict[str, Any] = {"models": [Account], "tenant_models": [Author, Book]}


def fill(db: Database) -> None:
    db[Account].create(id=1, email="a@example.org")
    for name in NAMES:
        db.create_tenant(name)
        one = db.tenant(name)
        for number in range(20):
            one[Author].create(id=number, email=f"{number}@{name}", name=f"n{number % 3}")
            one[Book].create(id=number, author=number, title=name)
        one[Book].remove(19)
        one[Author].remove(19)
        one.kv.set(("raw", name), 7)
        one.kv.enqueue({"to": name})


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def url(request: pytest.FixtureRequest, url_of: Callable[[str, str], str]) -> str:
    """An empty store of each engine."""
    return url_of(request.param, "copy")


@pytest.fixture
def store() -> Iterator[Database]:
    """A store with tenants, in memory."""
    with Database("memory://", **MODELS) as db:
        fill(db)
        yield db


def dumped(db: Database, form: Any = "kvmodels") -> str:
    file = io.StringIO()
    db.kv.dump(file, format=form)
    return file.getvalue()


def contents(db: Database) -> list[Any]:
    """Everything that a user can read, without versionstamps."""
    found: list[Any] = [[one.model_dump() for one in db[Account]]]
    for status in db.tenants():
        one = db.tenant(status.name)
        rows: list[Any] = [status]
        rows += [record.model_dump() for record in (*one[Author], *one[Book])]
        rows += [author.email for author in one[Author].filter(name="n1")]
        rows += [(entry.key, entry.value) for entry in one.kv.list(("raw",))]
        rows += [message.value for message in one.kv.messages()]
        found.append(rows)
    return found


def check(db: Database) -> None:
    assert db.check().ok
    for status in db.tenants():
        assert db.tenant(status.name).check().ok


def test_a_store_with_tenants_is_the_same_after_a_dump_and_a_load(store: Database, url: str):
    text = dumped(store)
    first, *_, last = map(json.loads, text.splitlines())
    assert first["kvmodels_dump"] == 3
    with Database(url, **MODELS) as copy:
        assert copy.kv.load(io.StringIO(text)) == last["end"]["keys"]
        assert contents(copy) == contents(store)
        assert dumped(copy).splitlines()[1:] == text.splitlines()[1:]
        check(copy)
        acme = copy.tenant("acme")
        for entry in acme.kv.list(("authors",)):  # copies in an index have the versions of their records
            author = Author.model_validate(entry.value)
            acme[Author].save(acme[Author].filter(name=author.name).to_list()[0])
        with pytest.raises(ReferenceViolationError):
            acme[Book].create(id=77, author=19)
        acme[Author].create(id=19, email="19", name="n1")
        acme[Book].create(id=77, author=19)
        check(copy)
        heard: list[Any] = []
        with copy.listen_tenants(lambda tenant, message: heard.append((tenant.tenant_name, message))) as listener:
            while len(heard) < 3:
                listener.wait(0.01)
        assert sorted(heard) == [(name, {"to": name}) for name in sorted(NAMES)]


def test_indexes_that_are_not_ready_are_built_after_a_load():
    with Database("memory://states", models=[Account], tenant_models=[Author, Book]) as db:
        fill(db)
        with Database("memory://states", models=[Account], tenant_models=[Author, TitledBook]) as new:

            def stop(_: object) -> None:
                raise InterruptedError

            with pytest.raises(InterruptedError):
                new.apply(tenants=["acme"], progress=stop)
            new.apply(tenants=["initech"])
            text = dumped(new)
    with Database("memory://", models=[Account], tenant_models=[Author, TitledBook]) as copy:
        copy.kv.load(io.StringIO(text))
        assert copy.apply().tenants_behind == 2
        check(copy)
        assert copy.apply(tenants=True).complete
        check(copy)
        assert [copy.tenant(name)[TitledBook].filter(title=name).count() for name in NAMES] == [19, 19, 19]


def attempts(db: Database, name: str) -> list[Callable[[], object]]:
    one = db.tenant(name)
    return [
        lambda: one.kv.set(("x",), 1),
        lambda: one[Author].create(id=99, email="x", name="x"),
        lambda: db.tenant(name, create=True).kv.enqueue(1),
        lambda: one.kv.lock("x").acquire(),
        lambda: db.create_tenant(name),
        lambda: db.remove_tenant(name),
        lambda: db.create_tenant("other"),
        lambda: db[Account].create(id=9, email="9"),
    ]


def test_no_write_succeeds_during_a_load(store: Database, url: str):
    text = dumped(store)
    with Database(url, **MODELS) as copy:
        calls: list[int] = []

        def try_to_write(keys: int) -> None:
            calls.append(keys)
            for attempt in [attempt for name in NAMES for attempt in attempts(copy, name)]:
                with pytest.raises(KvModelsError):
                    attempt()

        copy.kv.load(io.StringIO(text), progress=try_to_write)
        assert calls
        assert contents(copy) == contents(store)
        check(copy)


def test_a_load_that_is_given_up_leaves_the_store_empty_and_one_that_was_killed_is_restarted(store: Database):
    text = dumped(store)
    lines = text.splitlines(keepends=True)
    with Database("memory://", **MODELS) as copy:
        for broken in (lines[:-1], [*lines[:-1], lines[5], lines[-1]], [*lines[:-9], *lines[-8:]]):
            with pytest.raises(DecodeError):
                copy.kv.load(io.StringIO("".join(broken)))
            assert (copy.tenants(), list(copy.kv.unsafe().list(("__kvmodels__", "tenant")))) == ((), [])
        killed: Any = copy.kv.load

        class Killed(BaseException):
            pass

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kvmodels.api._sync.copies.abandon", lambda *_: None)

            def kill(_: int) -> None:
                raise Killed

            with pytest.raises(Killed):
                killed(io.StringIO(text), progress=kill)
        with pytest.raises(EngineError):
            copy.kv.load(io.StringIO(text))
        copy.kv.load(io.StringIO(text), restart=True)
        assert contents(copy) == contents(store)
        check(copy)


def test_a_tenant_whose_row_was_not_activated_is_opened_by_create_tenant(store: Database):
    text = dumped(store)
    with Database("memory://", **MODELS) as copy:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kvmodels.flows.transfer.whole_store.activate", lambda *_: iter(()))
            copy.kv.load(io.StringIO(text))
        assert {one.state for one in copy.tenants()} == {"loading"}
        with pytest.raises(TenantNotFoundError, match="is being loaded"):
            copy.tenant("acme")[Author].count()
        assert [copy.create_tenant(name) for name in NAMES[:2]] == [False, False]
        assert copy.remove_tenant(NAMES[2])
        assert copy.tenant("acme")[Author].count() == 19
        check(copy)


def test_other_places_and_formats_refuse_tenants(store: Database):
    with pytest.raises(UnsupportedError):
        dumped(store, "deno")
    text = dumped(store)
    with Database("memory://", **MODELS) as copy:
        copy.create_tenant("whole")
        with pytest.raises(UnsupportedError):
            copy.tenant("whole").kv.load(io.StringIO(text))
        with pytest.raises(EngineError, match="empty store"):
            copy.kv.load(io.StringIO(text))
    old = text.replace('"kvmodels_dump":3', '"kvmodels_dump":1')
    with Database("memory://") as other, pytest.raises(DecodeError):
        other.kv.load(io.StringIO(old))


def test_a_tenant_that_is_being_removed_is_not_dumped(store: Database):
    def stop(_: object) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        store.remove_tenant("initech", progress=stop)
    with Database("memory://", **MODELS) as copy:
        copy.kv.load(io.StringIO(dumped(store)))
        assert [one.name for one in copy.tenants()] == ["acme", "z\0o"]
        check(copy)


def test_a_tenant_is_copied_to_another_name_another_store_and_a_store_of_its_own(store: Database, url: str):
    acme = contents(store)[1][1:]
    assert store.copy_tenant("acme", as_="trial") > 60
    with Database(url, **MODELS) as other, Database("memory://", models=[Author, Book]) as own:
        store.copy_tenant("acme", to=other, as_="acme")
        store.copy_tenant("acme", to=own, as_=None)
        for place in (store.tenant("trial"), other.tenant("acme"), own):
            assert place.check().ok
            assert [author.id for author in place[Author].filter(name="n1")] == [*range(1, 19, 3)]
            assert [one.value for one in place.kv.messages()] == [{"to": "acme"}]
            place[Author].save(place[Author].filter(name="n1").to_list()[0])
        assert [[rows[0].name, rows[1:] == acme] for rows in contents(other)[1:]] == [["acme", True]]
        assert {rows[0].name: rows[1:] for rows in contents(store)[1:]}["trial"] == acme
        heard: list[Any] = []
        with other.listen_tenants(lambda tenant, message: heard.append((tenant.tenant_name, message))) as listener:
            while not heard:
                listener.wait(0.01)
        assert heard == [("acme", {"to": "acme"})]


def test_a_copy_that_fails_leaves_nothing_and_one_that_was_killed_is_removed(store: Database):
    store.tenant("acme").kv.set(("large",), "x" * 50_000)
    with Database("memory://", **MODELS, limits=replace(Limits.EMBEDDED, max_value_bytes=10_000)) as other:
        with pytest.raises(KvModelsError):
            store.copy_tenant("acme", to=other, as_="acme")
        assert (other.tenants(), [entry.key[1] for entry in other.kv.list(())]) == ((), ["header"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvmodels.api._sync.copies.abandon", lambda *_: None)
        patch.setattr("kvmodels.flows.transfer.whole_store.TenantLoading.finish", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.copy_tenant("acme", as_="trial")
    trial = store.tenant("trial")
    for attempt in (lambda: trial.kv.set(("x",), 1), trial[Author].count, lambda: store.create_tenant("trial")):
        with pytest.raises(TenantNotFoundError, match="is being loaded"):
            attempt()
    assert store.remove_tenant("trial")
    assert store.copy_tenant("acme", as_="trial")
    assert store.tenant("trial").check().ok
    assert store.check().ok


def test_wrong_copies_are_refused_before_anything_is_written(store: Database):
    copy: Any = store.copy_tenant
    for arguments in ({"as_": ""}, {"as_": "x" * 65}, {"as_": "b", "to": 7}, {"as_": 7}):
        with pytest.raises(InvalidArgumentError):
            copy("acme", **arguments)
    with pytest.raises(TenantNotFoundError):
        copy("unknown", as_="b")
    with pytest.raises(TenantError, match="has a tenant of this name"):
        copy("acme", as_="initech")
    with pytest.raises(EngineError, match="empty store"):
        copy("acme", as_=None)
    with pytest.raises(UnsupportedError):
        store.tenant("acme").copy_tenant("acme", as_="b")
    with pytest.raises(UnsupportedError):
        copy("acme", to=store.tenant("acme"), as_="b")
    assert [one.name for one in store.tenants()] == [*NAMES]
    assert store.tenant("initech").check().ok


async def test_the_asynchronous_form_loads_what_the_other_has_dumped(store: Database):
    text = dumped(store)
    async with AsyncDatabase("memory://", **MODELS) as copy:
        await copy.kv.load(io.StringIO(text))
        again = io.StringIO()
        await copy.kv.dump(again)
        assert again.getvalue().splitlines()[1:] == text.splitlines()[1:]
        assert (await copy.tenant("acme").check()).ok
        await copy.copy_tenant("acme", as_="trial")
        assert (await copy.tenant("trial").check()).ok
