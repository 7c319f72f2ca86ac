"""Migrations step by step: what they rewrite, what stops them, and that each record is rewritten once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, ClassVar

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    DecodeError,
    Field,
    IndexChangedError,
    Indexed,
    IndexNotReadyError,
    KvModel,
    Limits,
    MultiIndexed,
    PrimaryKey,
    RetryPolicy,
    SchemaMismatchError,
    Sum,
    Unique,
    Upgrade,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import AtomicWrite, Committed, Conflict
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.url import open_engine
from kvmodels.errors import CommitUnknownError
from kvmodels.flows.evolution.throttle import Pace
from kvmodels.runtime.sync import run
from tests.evolution.accounts import Account, NewAccount, Touched, account
from tests.evolution.releases import database
from tests.oracle import audit, read_engine, read_store, spec_of
from tests.stateful import cards


class Stopped(BaseException):
    """The process was killed here."""


def filled(opened: Any, records: int) -> Any:
    old = opened(Account)
    old[Account].bulk_create([Account(**account(n)) for n in range(records)])
    return old


def own_keys(db: Any) -> set[Any]:
    return {entry.key[1] for entry in db.kv.list(prefix=("__kvmodels__",))}


def test_what_a_migration_has_rewritten_is_no_reason_to_refuse_anything_afterwards(opened):
    """A field without a default, which the upgrade has made in every record."""
    opened(cards.First)[cards.First].create(id=1, code="A", note="n")
    db = opened(cards.Renamed)
    assert db.migrate(cards.Renamed).complete
    assert db.plan().refused == ()
    assert db.apply().complete
    assert db.plan().is_current
    assert db[cards.Renamed].get(1).remark == "n!"
    assert db.check().ok


def test_what_a_migration_has_passed_over_is_still_said_by_the_next_plan(tmp_path):
    """Fields are forgotten in records that have them; a new field may be missing in all others."""

    class Old(KvModel, collection="notes"):
        id: PrimaryKey[int]
        size: int = 0

    class Nick(Old, collection="notes"):
        nick: str = ""

    class Required(KvModel, collection="notes"):
        id: PrimaryKey[int]
        size: str = ""
        need: str

    path = str(tmp_path / "app.db")
    with Database(path, models=[Old]) as db:
        db[Old].create(id=1)
    with Database(path, models=[Nick]) as db:
        db.apply()
    with Database(path, models=[Required]) as db:
        before = {(step.subject, step.rule) for step in db.plan().refused}
        assert before == {("size", "field_retyped"), ("need", "field_required")}
        assert db.migrate(Required, forget=("nick",)).complete
        assert {(step.subject, step.rule) for step in db.plan().refused} == before


def test_a_migration_goes_on_where_it_stopped_and_counts_every_record_once(opened):
    filled(opened, 700)
    db = opened(Touched)
    told: list[Any] = []

    def stop_after_the_second(progress: Any) -> None:
        told.append(progress)
        if len(told) % 2 == 0:
            raise Stopped

    for _ in range(2):
        with pytest.raises(Stopped):
            db.migrate(Touched, progress=stop_after_the_second)
    assert "migration" in own_keys(db)
    report = db.migrate(Touched, progress=told.append)
    assert report.complete
    assert [one.scanned for one in told] == sorted({one.scanned for one in told})
    assert (told[-1].step, told[-1].index, told[-1].scanned, told[-1].written) == ("migrate", None, 700, 700)
    assert [found.visits for found in db[Touched].all()] == list(range(1, 701))
    assert db[Touched].filter(city="rome").aggregate(total=Sum("visits"))["total"] == sum(range(1, 701, 2))
    assert own_keys(db) == {"header", "counter"}
    assert db.check().ok
    again = db.migrate(Touched)
    assert (again.complete, again.scanned, again.written) == (True, 0, 0)
    assert str(again) == "accounts: version 2, 0 scanned, 0 written, complete"


def test_records_that_writers_have_rewritten_are_passed_over(opened):
    filled(opened, 30)
    db = opened(Touched)
    db.build_indexes()  # raises the schema version
    for n in range(0, 30, 3):
        db[Touched].patch(n, age=99)
    before = {n: db.kv.get(("accounts", n)).versionstamp for n in range(0, 30, 3)}
    report = db.migrate(Touched)
    assert (report.scanned, report.written) == (30, 20)
    assert all(db.kv.get(("accounts", n)).versionstamp == before[n] for n in before)
    assert audit(read_store(db.kv), [spec_of(Touched)]) == []


def test_a_throttle_is_kept_in_virtual_time():
    slept: list[float] = []
    engine = MemoryEngine()
    core = DatabaseCore([Account])
    db = Database.from_engine(engine, core)
    db[Account].bulk_create([Account(**account(n)) for n in range(100)])
    later = DatabaseCore([Touched])
    run(engine, later.open(engine))
    run(engine, later.migrate(Touched, (), Pace(throttle=20)), sleep=slept.append)
    assert sum(slept) == pytest.approx(5.0)
    assert max(slept) <= 1.0


# --- what cannot be rewritten -----------------------------------------------------------------------------------------


class Person(KvModel, collection="people"):
    id: PrimaryKey[int]
    nick: Unique[str]
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    after: str = ""


def moved(document: dict[str, Any]) -> dict[str, Any]:
    if document["after"] == "fail":
        raise ValueError
    return {**document, "nick": document["after"] or document["nick"]}


class Later(KvModel, collection="people"):
    id: PrimaryKey[int]
    nick: Unique[str]
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    after: str = ""

    class Meta:
        schema_version: ClassVar = 2
        upgrades: ClassVar = (Upgrade(2, moved, touches=("nick",)),)


def people(opened: Any, *names: tuple[str, str]) -> Any:
    old = opened(Person)
    old[Person].bulk_create([Person(id=n, nick=nick, after=after) for n, (nick, after) in enumerate(names)])
    return opened(Later)


def test_duplicates_that_an_upgrade_makes_are_listed_and_resolved_by_a_change(opened):
    db = people(opened, ("a", "x"), ("b", "x"), ("c", ""), ("d", "c"))
    report = db.migrate(Later)
    assert not report.complete
    assert set(report.violations) == {(1, "duplicate", "nick"), (3, "duplicate", "nick")}
    assert [(one.index, one.key, one.kind) for one in db.violations(Later)] == [
        (None, 1, "duplicate"),
        (None, 3, "duplicate"),
    ]
    assert str(db.violations(Later)[0]) == "people: 1 duplicate (nick)"
    assert db[Later].get(1).nick == "x"
    assert db.check().ok
    db[Later].patch(1, nick="y")
    assert [one.key for one in db.migrate(Later).violations] == [3]
    db[Later].remove(2)
    report = db.migrate(Later)
    assert (report.complete, report.violations) == (True, ())
    assert {found.id: found.nick for found in db[Later].all()} == {0: "x", 1: "y", 3: "c"}
    assert db[Later].get(nick="c").id == 3
    assert own_keys(db) == {"header"}
    assert db.check().ok


class Rated(KvModel, collection="people"):
    """The release of ``Later`` with a new field in an index, whose build has to rewrite the records."""

    id: PrimaryKey[int]
    nick: Unique[str]
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    after: str = ""
    rating: Indexed[int] = Field(default=0)

    class Meta:
        schema_version: ClassVar = 2
        upgrades: ClassVar = (Upgrade(2, moved, touches=("nick",)),)


def test_a_record_that_another_index_refuses_does_not_stop_the_build_that_rewrites_it(opened):
    people(opened, ("a", "x"), ("b", "x"), ("c", ""))
    db = opened(Rated)
    report = db.apply()
    assert not report.complete
    assert [(one.index, one.key, one.kind, one.reason) for one in db.violations(Rated)] == [
        ("rating", 1, "duplicate", "nick"),
        (None, 1, "duplicate", "nick"),
    ]
    db[Rated].patch(1, nick="y")
    assert db.apply().complete
    assert db[Rated].filter(rating=0).count() == 3
    assert db.plan().is_current
    assert db.check().ok


def test_values_that_records_hand_on_to_each_other_move_whatever_the_order(opened):
    names = [(f"n{n}", f"n{n + 1}") for n in range(250)]
    db = people(opened, *names, ("z", ""))
    told: list[Any] = []
    report = db.migrate(Later, progress=told.append)
    assert report.complete
    assert [found.nick for found in db[Later].all()] == [f"n{n + 1}" for n in range(250)] + ["z"]
    assert audit(read_store(db.kv), [spec_of(Later)]) == []
    assert len(told) == 2


def test_two_records_that_swap_their_values_across_batches_do_so(opened):
    names = [("first", "last"), *((f"n{n}", "") for n in range(150)), ("last", "first")]
    db = people(opened, *names)
    assert db.migrate(Later).complete
    assert (db[Later].get(nick="last").id, db[Later].get(nick="first").id) == (0, 151)
    assert audit(read_store(db.kv), [spec_of(Later)]) == []


def test_review_24_one_record_that_cannot_be_upgraded_stops_nobody(opened):
    db = people(opened, ("a", ""), ("b", "fail"), ("c", "x" * 3_000), ("d", ""))
    raw = db.kv.unsafe()
    document = db.kv.get(("people", 3)).value
    raw.set(("people", 3), "no document")
    report = db.migrate(Later)
    assert {found.key: found.kind for found in report.violations} == {
        1: "not_decodable",
        2: "too_long",
        3: "not_decodable",
    }
    assert (report.scanned, report.written) == (4, 1)
    raw.set(("people", 3), document)
    db[Later].remove(1)
    db[Later].save(Later(id=2, nick="c2"), force=True)
    report = db.migrate(Later)
    assert report.complete
    assert db.check().ok


def test_review_24_a_build_and_a_migration_run_no_hooks(opened):
    called: list[str] = []

    class Hooked(KvModel, collection="people"):
        id: PrimaryKey[int]
        nick: Unique[str]
        tags: MultiIndexed[list[str]] = Field(default_factory=list)
        after: Indexed[str] = Field(default="")

        class Meta:
            schema_version: ClassVar = 2
            upgrades: ClassVar = (Upgrade(2, moved, touches=("nick",)),)

        def before_update(self, old: Any) -> None:
            called.append("before")

        def after_update(self, old: Any) -> None:
            called.append("after")

    people(opened, ("a", "x"), ("b", ""))
    db = opened(Hooked)
    assert db.apply().complete
    assert called == []
    db[Hooked].patch(1, nick="y")
    assert called == ["before", "after"]


def test_review_24_a_dump_takes_a_migration_along_as_one_that_begins_anew(opened, tmp_path):
    filled(opened, 300)
    db = opened(Touched)

    def stop(progress: Any) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        db.migrate(Touched, progress=stop)
    db.kv.dump(tmp_path / "dump.ndjson")
    with Database("memory://", models=[]) as copy:
        copy.kv.load(tmp_path / "dump.ndjson")
        assert "migration" not in own_keys(copy)
    other = f"memory://loaded-{id(db)}"
    with Database(other) as loading:
        loading.kv.load(tmp_path / "dump.ndjson")
        with Database(other, models=[Touched]) as loaded:
            assert loaded.migrate(Touched).complete
            assert [found.visits for found in loaded[Touched].all()] == list(range(1, 301))
            assert loaded[Touched].get(email="user7@x.org").id == 7
            assert loaded.check().ok


# --- who else is there ------------------------------------------------------------------------------------------------


def test_a_migration_raises_the_schema_version_so_that_nobody_writes_the_older_one(opened):
    old = filled(opened, 200)
    db = opened(Touched)
    refused: list[int] = []

    def write_as_old_code(progress: Any) -> None:
        try:
            old[Account].create(**account(1_000 + len(refused)))
        except SchemaMismatchError:
            refused.append(progress.scanned)

    assert db.migrate(Touched, progress=write_as_old_code).complete
    assert len(refused) == 2
    assert old[Account].filter(city="rome").count() == 100


def test_a_later_release_takes_over_a_migration_and_the_earlier_one_ends_with_an_error(opened):
    class Third(KvModel, collection="accounts"):
        id: PrimaryKey[int]
        email: Unique[str]
        size: Indexed[int]
        city: Indexed[str] = Field(default="rome")
        age: Indexed[int] = Field(default=0)
        tags: MultiIndexed[list[str]] = Field(default_factory=list)
        name: str = ""
        visits: int = 0

        class Meta:
            schema_version: ClassVar = 3
            indexes: ClassVar = Account.Meta.indexes
            upgrades: ClassVar = (
                Upgrade(2, Touched.folded, touches=("email", "visits")),
                Upgrade(3, lambda document: {**document, "visits": document["visits"] * 10}, touches=("visits",)),
            )

    filled(opened, 300)
    second, third = opened(Touched), opened(Third)

    def take_over(progress: Any) -> None:
        if not done:
            done.append(third.migrate(Third))

    done: list[Any] = []
    with pytest.raises(SchemaMismatchError):
        second.migrate(Touched, progress=take_over)
    assert done[0].complete
    assert (done[0].scanned, done[0].written) == (300, 300)
    assert [found.visits for found in third[Third].all()] == [10 * n for n in range(1, 301)]
    assert third.check().ok


def test_two_processes_that_forget_different_fields_carry_out_both(opened):
    class Less(KvModel, collection="accounts"):
        id: PrimaryKey[int]
        email: Unique[str]
        size: Indexed[int]
        city: Indexed[str] = Field(default="rome")
        age: Indexed[int] = Field(default=0)

    class Full(Account, collection="accounts"):
        note: str = "n"
        mark: str = "m"

    db = opened(Full)
    db[Full].bulk_create([Full(**account(n, tags=[])) for n in range(150)])
    for name in [index.name for index in Account.Meta.indexes] + ["tags"]:
        db.drop_index(Full, name)
    one, other = opened(Less), opened(Less)
    seen: list[Any] = []

    def second(progress: Any) -> None:
        if not seen:
            seen.append(None)
            seen.append(other.migrate(Less, forget=("mark",)))

    assert one.migrate(Less, forget=("note",), progress=second).complete
    assert seen[1].complete
    assert all({"note", "mark"}.isdisjoint(one.kv.get(("accounts", n)).value) for n in range(150))
    assert {"note", "mark"}.isdisjoint(
        one.kv.get(("__kvmodels__", "header")).value["collections"]["accounts"]["fields"]
    )
    assert one.kv.get(("accounts", 0)).value["visits"] == 0
    assert own_keys(one) == {"header"}


def test_what_an_upgrade_has_left_behind_can_be_forgotten(opened):
    """It touched the field without taking it away, so that the catalogue takes it for gone."""

    class Named(KvModel, collection="guests"):
        id: PrimaryKey[int]
        name: str

    class First(KvModel, collection="guests"):
        id: PrimaryKey[int]
        first: str

        class Meta:
            schema_version: ClassVar = 2
            upgrades: ClassVar = (Upgrade(2, lambda d: {**d, "first": d["name"]}, touches=("name", "first")),)

    old = opened(Named)
    old[Named].bulk_create([Named(id=n, name="Ada") for n in range(3)])
    db = opened(First)
    db.apply()
    assert db.migrate(First).complete
    assert db.kv.get(("guests", 1)).value["name"] == "Ada"
    report = db.migrate(First, forget=("name",))
    assert (report.complete, report.scanned, report.written) == (True, 3, 3)
    assert all("name" not in db.kv.get(("guests", n)).value for n in range(3))
    assert [guest.first for guest in db[First].all()] == ["Ada"] * 3
    report = db.migrate(First, forget=("nmae",))
    assert (report.complete, report.scanned, report.written) == (True, 3, 0)
    assert db.check().ok
    assert own_keys(db) == {"header"}


def test_several_databases_migrate_at_once_from_threads(opened):
    filled(opened, 300)
    handles = [opened(Touched, retry=RetryPolicy(attempts=500, deadline_s=60)) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        reports = list(pool.map(lambda db: db.migrate(Touched), handles))
    assert all(report.complete for report in reports)
    assert sum(report.written for report in reports) == 300
    assert [found.visits for found in handles[0][Touched].all()] == list(range(1, 301))
    assert handles[0].check().ok


def test_the_asynchronous_database_does_the_same(tmp_path):
    path = str(tmp_path / "app.db")
    with Database(path, models=[Account]) as old:
        old[Account].bulk_create([Account(**account(n)) for n in range(20)])

    async def main() -> None:
        async with AsyncDatabase(path, models=[NewAccount]) as db:
            assert not (await db.plan()).is_current
            seen: list[Any] = []
            report = await db.apply(progress=seen.append, throttle=10_000)
            assert report.complete
            assert {one.step for one in seen} == {"build", "migrate", "drop"}
            assert (await db.plan()).is_current
            assert await db.violations(NewAccount) == []
            assert await db.resolve(NewAccount) == ()
            assert await db.build_indexes() == ()
            assert (await db.migrate(NewAccount)).complete
            assert (await db[NewAccount].get(email="user3@x.org")).first == "Ada3"
            assert (await db.check()).ok

    asyncio.run(main())


# --- lost answers and limits ------------------------------------------------------------------------------------------


class ForgetfulEngine(FaultEngine):
    """Loses every third answer, alternately of a commit that was applied and of one that was not."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._numbers = count(1)

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        number = next(self._numbers)
        if number % 6 == 0:
            raise CommitUnknownError("the answer was lost")
        outcome = super().commit(write)
        if number % 6 == 3:
            raise CommitUnknownError("the answer was lost")
        return outcome


@pytest.mark.parametrize("where", ["memory", "sqlite", "lmdb"])
def test_lost_answers_lose_and_repeat_nothing(url_of, where):
    url = url_of(where)
    keeper = open_engine(url)
    db = database(open_engine(url), Account)
    db[Account].bulk_create([Account(**account(n)) for n in range(400)])
    migrating = database(ForgetfulEngine(open_engine(url)), NewAccount)
    told: list[Any] = []
    assert migrating.apply(progress=told.append).complete
    assert max(one.written for one in told if one.step == "migrate") <= 400
    assert [found.visits for found in migrating[NewAccount].all()] == list(range(1, 401))
    assert audit(read_engine(keeper), [spec_of(NewAccount)]) == []
    assert not [entry for entry in read_engine(keeper) if entry.key[:2] == ("__kvmodels__", "migration")]


def test_a_migration_keeps_the_limits_of_the_engine(opened):
    old = opened(Account, limits=Limits.DENO)
    for n in range(0, 120, 10):
        old[Account].bulk_create([Account(**account(k)) for k in range(n, n + 10)])
    db = opened(Touched, limits=Limits.DENO)
    assert db.migrate(Touched).complete
    assert db[Touched].get(email="user77@x.org").visits == 78
    assert db.check().ok


def test_deadlines_of_records_stay_as_they_are(opened):
    class Session(KvModel, collection="sessions"):
        id: PrimaryKey[int]
        token: Unique[str]

    class Folded(KvModel, collection="sessions"):
        id: PrimaryKey[int]
        token: Unique[str]

        class Meta:
            schema_version: ClassVar = 2
            upgrades: ClassVar = (Upgrade(2, lambda d: {**d, "token": d["token"].lower()}, touches=("token",)),)

    old = opened(Session)
    old[Session].create(id=1, token="A", expire_in=1_000)
    old[Session].create(id=2, token="B")
    deadline = old.kv.get(("sessions", 1)).expires_at
    db = opened(Folded)
    assert db.migrate(Folded).complete
    entries = {entry.key: entry.expires_at for entry in db.kv.list(prefix=("sessions_by_token",))}
    assert entries == {("sessions_by_token", "a"): deadline, ("sessions_by_token", "b"): None}
    assert db.kv.get(("sessions", 1)).expires_at == deadline
    assert db.check().ok


def test_review_25_a_check_beside_a_migration_finds_nothing(opened):
    filled(opened, 320)
    db, other = opened(NewAccount), opened(NewAccount)
    reports: list[Any] = []

    def check(progress: Any) -> None:
        other[NewAccount].patch(progress.scanned % 320, age=progress.scanned % 5)
        reports.append(other.check())

    assert db.apply(progress=check).complete
    assert len(reports) > 6
    assert all(report.ok for report in reports), [report for report in reports if not report.ok]
    assert db.check().ok


def test_review_03_a_query_that_was_planned_before_a_migration_began_misses_nothing(opened):
    """The older release reads on through what it has cached; what it would miss is refused by the guard of the read."""
    old = filled(opened, 700)
    rows = iter(old[Account].filter(email__startswith="User"))
    assert next(rows).id == 0
    plain = iter(old[Account].filter(city="rome"))
    next(plain)
    assert opened(Touched).apply().complete
    with pytest.raises((IndexChangedError, IndexNotReadyError)):
        list(rows)
    with pytest.raises(DecodeError):
        list(plain)
