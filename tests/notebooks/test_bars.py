"""``progress=True`` draws a bar for every long call, on stderr or in the output of a cell."""

from __future__ import annotations

import inspect
import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import pytest
from rich.console import Console

from kvmodels import (
    CASCADE,
    AsyncDatabase,
    Database,
    Encrypted,
    F,
    ForeignKey,
    Indexed,
    InvalidArgumentError,
    KeyRing,
    KvModel,
    PrimaryKey,
    UnsupportedError,
    open_kv,
)
from kvmodels.api import progress as progress_package
from kvmodels.api.progress import bars, listening
from kvmodels.flows.bulk.options_and_results import BulkProgress
from tests.facades import facade_classes


class Team(KvModel, collection="teams"):
    id: PrimaryKey[int]


class User(KvModel, collection="users"):
    id: PrimaryKey[int]
    age: Indexed[int]
    town: str = "Bern"
    team: Annotated[ForeignKey[int, Team], CASCADE]


class Lamp(KvModel, collection="lamps"):
    id: PrimaryKey[int]


def users(numbers: Iterable[int] = range(30)) -> list[User]:
    return [User(id=number, age=number % 7, team=1) for number in numbers]


@pytest.fixture
def db() -> Any:
    with Database("memory://", models=[Team, User], tenant_models=[Lamp]) as db:
        db[Team].create(id=1)
        db[User].bulk_create(users())
        yield db


def dumped(db: Database) -> io.StringIO:
    file = io.StringIO()
    db.dump(file)
    file.seek(0)
    return file


def all_keys(db: Database) -> io.StringIO:
    file = io.StringIO()
    with open_kv() as kv:
        kv.set(("a",), 1)
        kv.dump(file)
    file.seek(0)
    return file


def imported(db: Database, **options: Any) -> None:
    db[User].bulk_create_from(db[User].all(), on_conflict="ignore", **options)


def loaded(db: Database, **options: Any) -> None:
    with open_kv() as kv:
        kv.load(all_keys(db), **options)


def rebuilt(db: Database, **options: Any) -> None:
    db.drop_index(User, "age")
    db.build_index(User, "age", **options)


def rebuilt_all(db: Database, **options: Any) -> None:
    db.drop_index(User, "age")
    db.build_indexes(**options)


def applied(db: Database, **options: Any) -> None:
    db.drop_index(User, "age")
    db.apply(**options)


def without_collection(db: Database, **options: Any) -> None:
    class Old(KvModel, collection="old"):
        id: PrimaryKey[int]

    with Database("memory://bars", models=[Old]) as one, Database("memory://bars") as other:
        one[Old].create(id=1)
        other.drop_collection("old", **options)


def without_tenant(db: Database, **options: Any) -> None:
    db.create_tenant("acme")
    db.tenant("acme")[Lamp].create(id=1)
    db.remove_tenant("acme", **options)


def rotated(_: Database, **options: Any) -> None:
    class Letter(KvModel, collection="letters"):
        id: PrimaryKey[int]
        text: Encrypted[str]

    with Database("memory://", models=[Letter], keys=KeyRing({1: bytes(32), 2: bytes(range(32))})) as one:
        one[Letter].bulk_create([Letter(id=number, text="x") for number in range(3)])
        one.rotate(Letter, to=2, **options)


CALLS: dict[str, tuple[Callable[..., Any], str]] = {
    "QuerySet.update": (lambda db, **o: db[User].all().update(age=F("age") + 1, **o), "update users 30/30"),
    "QuerySet.delete": (lambda db, **o: db[User].filter(age=3).delete(**o), "delete users 4/4"),
    "Repository.bulk_create": (lambda db, **o: db[User].bulk_create(users(range(50, 60)), **o), "create users 10/10"),
    "Repository.bulk_create_from": (imported, "create users"),
    "QuerySet.to_parquet": (lambda db, **o: db[User].all().to_parquet(io.BytesIO(), **o), "export 30"),
    "Repository.bulk_update": (lambda db, **o: db[User].bulk_update(db[User].to_list(), **o), "update users 30/30"),
    "Repository.remove_cascade": (lambda db, **o: db[Team].remove_cascade(1, resume_id="r", **o), "remove teams"),
    "Kv.dump": (lambda db, **o: db.kv.dump(io.StringIO(), **o), "dump"),
    "Kv.load": (loaded, "load 1/1"),
    "Database.dump": (lambda db, **o: db.dump(io.StringIO(), User, **o), "dump 30/30"),
    "Database.load": (lambda db, **o: db.load(dumped(db), on_conflict="ignore", **o), "load 31/31"),
    "Database.build_index": (rebuilt, "build users.age 30/30"),
    "Database.build_indexes": (rebuilt_all, "build users.age 30/30"),
    "Database.apply": (applied, "build users.age 30/30"),
    "Database.check": (lambda db, **o: db.check(User, **o), "check users.age 30/30"),
    "Database.migrate": (lambda db, **o: db.migrate(User, forget=["old"], **o), "migrate users 30/30"),
    "Database.rotate": (rotated, "rotate letters 3/3"),
    "Database.drop_index": (lambda db, **o: db.drop_index(User, "age", **o), "drop users.age 30/30"),
    "Database.drop_collection": (without_collection, "drop old"),
    "Database.remove_tenant": (without_tenant, "drop"),
    "Database.stats": (lambda db, **o: db.stats(exact=True, **o), "stats users 30/30"),
}


def drawn_lines(text: str) -> str:
    """The lines of bars, without the bars and the times."""
    words = [line.translate(str.maketrans("", "", "━╸╺")).split() for line in text.splitlines()]
    return "\n".join(" ".join(one[:-1]) for one in words if one)


@pytest.mark.parametrize("name", CALLS)
def test_every_long_call_draws_a_bar_on_stderr(db: Database, capsys: pytest.CaptureFixture[str], name: str):
    call, line = CALLS[name]
    call(db, progress=True)
    seen = capsys.readouterr()
    assert seen.out == ""
    assert line in drawn_lines(seen.err)
    db.check(progress=False)
    assert capsys.readouterr().err == ""


def test_no_call_with_progress_is_missing_here():
    found = {
        f"{cls.__name__}.{name}"
        for cls in facade_classes().values()
        if not cls.__name__.startswith("Async")
        for name, function in inspect.getmembers(cls, inspect.isfunction)
        if "progress" in inspect.signature(function).parameters and not name.startswith("_")
    }
    methods = {one.split(".")[1] for one in CALLS} | {"load_deno"}
    assert {one.split(".")[1] for one in found} <= methods, found


async def test_an_asynchronous_database_draws_the_same_bars(capsys: pytest.CaptureFixture[str]):
    async with AsyncDatabase("memory://", models=[Team, User]) as db:
        await db[Team].create(id=1)
        await db[User].bulk_create(users(), progress=True)
        await db[User].all().update(age=1, progress=True)
        await db.check(User, progress=True)
        await db.kv.dump(io.StringIO(), progress=True)
    lines = drawn_lines(capsys.readouterr().err)
    assert [line in lines for line in ("create users 30/30", "update users 30/30", "check users.age 30/30", "dump")]


def test_a_transaction_has_no_batches_to_draw(db: Database, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(InvalidArgumentError, match="no batches in a transaction"), db.transaction() as tx:
        tx[User].filter(age=3).update(age=4, progress=True)
    assert capsys.readouterr().err == ""


def test_an_error_of_the_call_ends_the_bar_where_it_was(db: Database, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(Exception, match="primary key exists"):
        db[User].bulk_create(users(range(40, 50)) + users(range(3)), batch_size=5, progress=True)
    assert "create users 10/13" in drawn_lines(capsys.readouterr().err)


def test_the_total_is_known_before_the_first_batch(db: Database):
    def totals(call: Callable[..., Any], **options: Any) -> list[int | None]:
        told: list[BulkProgress] = []
        call(progress=told.append, batch_size=10, **options)
        return [one.total for one in told if one.batches]

    everyone, some = db[User].all(), db[User].filter(age__lt=3)
    number = some.count()
    assert totals(everyone.update, town="Chur") == [30, 30, 30]
    assert totals(some.update, town="Bern") == [number, number]
    assert totals(some.update, age=2) == [number, number]  # keys that are collected in memory
    assert totals(some.update, town="Chur", resume_id="one") == [number, number]  # keys that are stored
    assert totals(everyone.update, town="Bern", resume_id="two") == [30, 30, 30]
    assert totals(everyone[5:18].update, town="Chur") == [13, 13]
    assert totals(everyone.filter(town="Bern").allow_scan().delete) == [None, None]
    assert totals(lambda **o: db[User].bulk_create(iter(users(range(60, 75))), **o)) == [None, None]
    assert totals(lambda **o: db[User].bulk_create(users(range(80, 95)), resume_id="three", **o)) == [15, 15]


@pytest.mark.parametrize("given", [1, "yes", 0])
def test_another_value_is_refused_with_both_forms(db: Database, given: Any):
    for call in (db[User].all().delete, db.check, lambda progress: db.dump(io.StringIO(), progress=progress)):
        with pytest.raises(InvalidArgumentError) as caught:
            call(progress=given)
        assert caught.value.hint is not None
        assert caught.value.hint.startswith("Give True, or a function that takes ")


def test_without_rich_nothing_is_written(db: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "kvmodels.api.progress.bars", raising=False)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(listening, "bars", progress_package.__getattr__("bars"))
    with pytest.raises(UnsupportedError) as caught:
        db[User].all().delete(progress=True)
    assert caught.value.hint == "Install it: pip install 'kvmodels[rich]'. Without it, give a function as progress=."
    assert db[User].count() == 30
    assert db[User].all().delete(progress=lambda _: None).written == 30


def test_a_label_is_text_and_bars_stay_apart():
    console = Console(file=io.StringIO(), width=200)
    with bars.drawn(console) as report:
        report("check [red]a\x1b[2J\u202e", 1, 2)
        report("load", 7, None)
        report("check [red]a\x1b[2J\u202e", 2, 2)
    text = drawn_lines(console.file.getvalue())  # type: ignore[attr-defined]
    assert "check [red]a\\x1b[2J\\u202e 2/2" in text
    assert "load 7/7" in text


def test_the_command_line_draws_the_same_bars():
    output = (Path(__file__).parents[2] / "kvmodels/cli/output.py").read_text("utf-8")
    assert "bars.drawn(" in output
    assert "rich.progress" not in output
