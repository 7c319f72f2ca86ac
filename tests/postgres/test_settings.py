"""Connections, permissions, isolation, names, the clock, failovers, and how many round trips a call is."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from kvmodels import Database, Indexed, KvModel, PrimaryKey, Unique
from kvmodels.cli.failures import USAGE, exit_code_of
from kvmodels.cli.wording import in_commands
from kvmodels.core.operations import Arithmetic, AtomicWrite, Committed, Counted, ReadRange, Set, point
from kvmodels.engines.postgres import settings
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.engines.postgres.schema import WITHOUT_SEALS
from kvmodels.engines.url import open_engine
from kvmodels.errors import (
    EngineError,
    EngineTimeoutError,
    ForeignFileError,
    InvalidArgumentError,
    KvModelsError,
    ReadOnlyError,
    ResumeExpiredError,
    SnapshotLostError,
    UnsupportedError,
)
from tests.contract.shorthand import EVERYTHING, commit, get, keys, number, put, stored
from tests.postgres.databases import Databases
from tests.postgres.proxy import proxy_of
from tests.postgres.server import PostgresServer

HOUR_US = 3_600_000_000

pytestmark = pytest.mark.servers


@pytest.fixture
def url(databases: Databases) -> str:
    return databases.url()


@pytest.fixture
def engine(url: str) -> Iterator[PostgresEngine]:
    opened = PostgresEngine(url)
    yield opened
    opened.close()


@pytest.fixture
def admin(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def version(versionstamp: bytes) -> int:
    return int.from_bytes(versionstamp[:8], "big")


# Secrets and URLs


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:s3cr3t@127.0.0.1:1/shop",
        "postgresql://app:s3cr3t@x@127.0.0.1:1/shop",
        "postgresql://app:s3cr3t:1@nowhere.invalid:1/shop",
        "postgresql://app@127.0.0.1:1/shop?password=s3cr3t",
        "postgresql://app:s3cr3t@127.0.0.1:port/shop",
        "postgresql://app:s3cr3t@[127.0.0.1/shop",
        "postgresql://app:s3cr3t%zz@127.0.0.1:1/shop",
        "postgresql://app:x@127.0.0.1:1/shop?s3cr3t=1",
    ],
)
def test_a_password_is_in_no_message_trace_or_chained_error(url: str):
    with pytest.raises(KvModelsError) as caught:
        open_engine(url, busy_timeout=0.1)
    error: BaseException | None = caught.value
    text = "".join(traceback.format_exception(caught.value)).replace(url, "") if error else ""
    shown = [repr(error), str(error), str(caught.value.data), repr(error.args) if error else ""]
    assert error is not None
    assert error.__cause__ is None
    assert error.__context__ is None
    assert not any("s3cr3t@" in one or "s3cr3t:" in one or ":s3cr3t" in one for one in [*shown, text])
    assert "password=s3cr3t" not in "".join(shown)


def test_a_missing_database_is_told_apart_from_wrong_credentials(url: str):
    with pytest.raises(EngineError, match="no database of this name") as caught:
        PostgresEngine(urlsplit(url)._replace(path="/absent").geturl(), busy_timeout=5)
    assert "createdb" in str(caught.value)
    assert caught.value.data["reason"] == "absent"


def test_the_url_of_a_store_has_no_password(url: str):
    engine = PostgresEngine(url.replace("postgres@", "postgres:s3cr3t@"))
    assert "s3cr3t" not in engine.url
    assert engine.url.startswith("postgresql://postgres:***@")
    engine.close()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u@db.example.org/shop", {"sslmode": "verify-full"}),
        ("postgresql://u@localhost,db.example.org/shop", {"sslmode": "verify-full"}),
        ("postgresql://u@db.example.org/shop?sslmode=require", {"sslmode": "require"}),
        ("postgresql://u@localhost/shop", {"sslmode": None}),
        ("postgresql://u@/shop?host=/run/postgresql", {"sslmode": None}),
        ("postgresql:///shop?service=shop", {"sslmode": None}),
        ("postgresql://u@h1,h2/shop?target_session_attrs=any", {"target_session_attrs": "read-write"}),
    ],
)
def test_servers_of_other_machines_are_verified_and_take_writes(url, expected, monkeypatch):
    for name in ("PGSSLMODE", "PGHOST", "PGSERVICE", "PGSSLROOTCERT"):
        monkeypatch.delenv(name, raising=False)
    given = conninfo_to_dict(settings.connection_string(url, readonly=False))
    assert {name: given.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("schema", 'x"; DROP'),
        ("schema", "pg_own"),
        ("schema", ""),
        ("pool_size", 0),
        ("pool_size", True),
        ("busy_timeout", -1),
        ("poll_interval", 0),
        ("idle_timeout", 0),
        ("prepare", 1),
        ("create", None),
    ],
)
def test_options_that_make_no_sense_are_refused(url: str, option, value):
    with pytest.raises(InvalidArgumentError) as caught:
        PostgresEngine(url, **{option: value})
    assert caught.value.argument == option


def test_an_option_of_another_engine_is_refused(url: str):
    with pytest.raises(InvalidArgumentError, match="LMDB"):
        open_engine(url, map_size=1)


# Schemas and permissions


def test_two_schemas_are_two_stores(engine: PostgresEngine, url: str):
    other = PostgresEngine(url, schema="other")
    commit(engine, put(b"k", b"1"))
    assert get(other, b"k") is None
    other.close()


def test_a_schema_that_holds_something_else_is_left_alone(url: str, admin: psycopg.Connection):
    admin.execute("CREATE SCHEMA foreign_one; CREATE TABLE foreign_one.kv (id int)")
    with pytest.raises(ForeignFileError):
        PostgresEngine(url, schema="foreign_one")
    assert admin.execute(
        "SELECT count(*) FROM pg_class WHERE relnamespace = 'foreign_one'::regnamespace"
    ).fetchone() == (1,)


@pytest.mark.parametrize("options", [{"create": False}, {"readonly": True}])
def test_a_store_that_does_not_exist_is_not_made(url: str, options):
    with pytest.raises(EngineError, match="no store") as caught:
        PostgresEngine(url, schema="nothing", **options)
    assert "schema='nothing'" in str(caught.value.hint)
    assert exit_code_of(caught.value) == USAGE
    assert in_commands(str(caught.value)).endswith("load, restore and copy create a store.")


def test_a_role_with_few_rights_suffices_and_a_missing_one_names_the_grant(
    engine: PostgresEngine, url: str, admin: psycopg.Connection
):
    commit(engine, put(b"k"))
    admin.execute("DROP ROLE IF EXISTS clerk; CREATE ROLE clerk LOGIN")
    try:
        as_clerk = url.replace("postgres@", "clerk@")
        with pytest.raises(EngineError, match="GRANT USAGE ON SCHEMA"):
            PostgresEngine(as_clerk)
        admin.execute("GRANT USAGE ON SCHEMA kvmodels TO clerk; GRANT SELECT ON ALL TABLES IN SCHEMA kvmodels TO clerk")
        clerk = PostgresEngine(as_clerk)
        assert keys(clerk, EVERYTHING) == [b"k"]
        with pytest.raises(ReadOnlyError, match="GRANT SELECT, INSERT, UPDATE, DELETE"):
            commit(clerk, put(b"l"))
        admin.execute("GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kvmodels TO clerk")
        commit(clerk, put(b"l"))
        clerk.sweep(10)
        clerk.close()
    finally:
        admin.execute("DROP OWNED BY clerk; DROP ROLE clerk")


def test_functions_of_an_earlier_release_are_replaced_and_a_later_format_is_refused(
    engine: PostgresEngine, url: str, admin: psycopg.Connection
):
    engine.close()
    admin.execute("DROP FUNCTION kvmodels.count_1; DROP FUNCTION kvmodels.commit_1")
    admin.execute("UPDATE kvmodels.meta SET functions = %s", (WITHOUT_SEALS - 1,))
    with pytest.raises(UnsupportedError, match="earlier release"):
        PostgresEngine(url, readonly=True)
    again = PostgresEngine(url)
    counted = again.count([EVERYTHING])
    assert isinstance(counted, Counted)
    assert counted.numbers == [0]
    commit(again, Arithmetic("sum", b"n", 1, 2**62), Arithmetic("max", b"n", 5, keeps_deadline=True))
    assert (number(again, b"n"), stored(again, b"n").expire_at) == (5, 2**62)
    again.close()
    admin.execute("UPDATE kvmodels.meta SET format = 2")
    try:
        with pytest.raises(UnsupportedError, match="later release"):
            PostgresEngine(url)
    finally:
        admin.execute("UPDATE kvmodels.meta SET format = 1")


# What a server may be set to


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_another_default_isolation_level_is_refused(url: str, level):
    escaped = level.replace(" ", "\\ ")
    engine = PostgresEngine(f"{url}&options={quote(f'-cdefault_transaction_isolation={escaped}')}")
    with pytest.raises(UnsupportedError, match="ALTER ROLE"):
        commit(engine, put(b"k"))
    assert get(engine, b"k") is None
    engine.close()


def test_a_hostile_search_path_changes_nothing(engine: PostgresEngine, url: str, admin: psycopg.Connection):
    admin.execute(
        "CREATE SCHEMA hostile;"
        "CREATE FUNCTION hostile.cardinality(uuid[]) RETURNS int LANGUAGE sql AS 'SELECT 0';"
        "CREATE FUNCTION hostile.cardinality(bytea[]) RETURNS int LANGUAGE sql AS 'SELECT 0';"
        "CREATE FUNCTION hostile.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS 'SELECT $1';"
        "CREATE FUNCTION hostile.greatest_of(int8) RETURNS int8 LANGUAGE sql AS 'SELECT 0::int8';"
        "CREATE TABLE hostile.kv (key bytea)"
    )
    victim = PostgresEngine(f"{url}&options=-csearch_path%3Dhostile,pg_catalog")
    commit(victim, put(b"k"), put(b"l"))
    assert keys(victim, ReadRange(b"k", b"z")) == [b"k", b"l"]
    assert admin.execute("SELECT count(*) FROM hostile.kv").fetchone() == (0,)
    victim.close()


@pytest.mark.parametrize(("durability", "expected"), [("commit", "on"), ("relaxed", "off")])
def test_durability_is_set_in_each_call(url: str, admin: psycopg.Connection, durability, expected):
    engine = PostgresEngine(url, durability=durability)
    admin.execute(
        "CREATE TABLE public.levels (level text); GRANT ALL ON public.levels TO PUBLIC;"
        "CREATE FUNCTION kvmodels.level() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN INSERT INTO public.levels VALUES (current_setting('synchronous_commit')); RETURN NEW; END$$;"
        "CREATE CONSTRAINT TRIGGER level AFTER INSERT ON kvmodels.commits DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION kvmodels.level()"
    )
    try:
        commit(engine, put(b"k"))
        assert admin.execute("SELECT * FROM public.levels").fetchall() == [(expected,)]
    finally:
        admin.execute("DROP FUNCTION kvmodels.level CASCADE; DROP TABLE public.levels")
        engine.close()


def test_a_lock_that_is_held_for_too_long_is_a_timeout(url: str):
    engine = PostgresEngine(url, busy_timeout=60)
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE kvmodels.gate IN EXCLUSIVE MODE")
        engine.check_open().busy_timeout = 0.05
        with pytest.raises(EngineTimeoutError):
            commit(engine, put(b"k"))
    engine.check_open().busy_timeout = 60.0
    commit(engine, put(b"l"))
    assert keys(engine, EVERYTHING) == [b"l"]
    engine.close()


def test_snapshots_do_not_take_the_connections_of_reads_and_commits(url: str):
    engine = PostgresEngine(url, pool_size=1, busy_timeout=60)
    with engine.snapshot() as snapshot:
        commit(engine, put(b"k"))
        assert keys(engine, EVERYTHING) == [b"k"]
        assert keys(snapshot, EVERYTHING) == []
        engine.check_open().busy_timeout = 0.05
        with pytest.raises(EngineTimeoutError, match="pool_size"):
            engine.snapshot()
    engine.check_open().busy_timeout = 60.0
    engine.snapshot().close()
    engine.close()


def test_a_snapshot_whose_connection_ends_has_expired(engine: PostgresEngine, admin: psycopg.Connection):
    snapshot = engine.snapshot()
    admin.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND state = 'idle in transaction'"
    )
    with pytest.raises(SnapshotLostError):
        snapshot.read([EVERYTHING])
    snapshot.close()
    assert keys(engine, EVERYTHING) == []


# Time and history


def test_a_clock_that_jumped_ahead_runs_on_from_there(engine: PostgresEngine, url: str, admin: psycopg.Connection):
    commit(engine, put(b"a"))
    admin.execute(
        "UPDATE kvmodels.commits SET at = at + 3500000 WHERE version = (SELECT max(version) FROM kvmodels.commits)"
    )
    (mark,) = admin.execute("SELECT max(at) FROM kvmodels.commits").fetchone() or (0,)
    other = PostgresEngine(f"{url}-other")
    commit(other, put(b"b"))
    (offset,) = admin.execute("SELECT clock_offset FROM kvmodels.meta").fetchone() or (0,)
    assert 3_000_000 < offset <= 3_500_000
    assert other.now_ms() >= mark
    commit(other, put(b"c"))
    assert admin.execute("SELECT clock_offset FROM kvmodels.meta").fetchone() == (offset,)
    other.close()


def test_the_clock_of_the_client_does_not_count(engine: PostgresEngine, monkeypatch):
    server = engine.now_ms()
    monkeypatch.setattr("kvmodels.engines.shared.clock.time.time_ns", lambda: 1)
    commit(engine, put(b"k", expire_at=server + 3_600_000))
    assert keys(engine, EVERYTHING) == [b"k"]
    assert engine.now_ms() >= server


def test_a_sweep_after_a_jump_of_the_clock_waits_for_the_clock_of_the_caller(
    engine: PostgresEngine, admin: psycopg.Connection, monkeypatch
):
    commit(engine, put(b"k", expire_at=engine.now_ms() + 60_000))
    admin.execute("UPDATE kvmodels.meta SET clock_offset = 86400000")
    assert engine.sweep(10) == 0
    assert keys(engine, EVERYTHING, include_expired=True) == [b"k"]
    monkeypatch.setattr("kvmodels.engines.postgres.store.system_clock_ms", lambda: engine.now_ms())
    assert engine.sweep(10) == 1


@pytest.mark.parametrize("change", ["timeline = '0000000F'", "system_id = 1"])
def test_after_a_failover_no_versionstamp_of_the_lost_future_is_given_again(
    url: str, admin: psycopg.Connection, change
):
    engine = PostgresEngine(url, change_log=60)
    before = commit(engine, put(b"k"))
    lost = commit(engine, put(b"lost"))
    admin.execute(f"DELETE FROM kvmodels.commits WHERE version = {version(lost)}".encode())
    admin.execute("DELETE FROM kvmodels.kv WHERE key = 'lost'")
    admin.execute(f"UPDATE kvmodels.meta SET {change}".encode())
    after = commit(engine, put(b"k", b"2"))
    assert version(after) >= version(lost) + HOUR_US
    assert version(commit(engine, put(b"k", b"3"))) == version(after) + 1
    assert engine.changes(ReadRange(b"", b"\xff", 10), before).changes
    with pytest.raises(ResumeExpiredError):
        engine.changes(ReadRange(b"", b"\xff", 10), lost)
    engine.close()


def test_two_commits_after_the_same_one_are_impossible(engine: PostgresEngine, admin: psycopg.Connection):
    """The mutant of the lock: what it would let through violates a unique constraint."""
    commit(engine, put(b"k"))
    with pytest.raises(psycopg.errors.UniqueViolation):
        admin.execute(
            "INSERT INTO kvmodels.commits (version, prev, at, id, void)"
            " SELECT version + 1, prev, at, gen_random_uuid(), false FROM kvmodels.commits"
            " ORDER BY version DESC LIMIT 1"
        )


def test_rows_of_commits_are_removed_and_the_last_one_stays(engine: PostgresEngine, admin: psycopg.Connection):
    last = [commit(engine, put(b"k")) for _ in range(5)][-1]
    admin.execute("UPDATE kvmodels.commits SET at = 1")
    store = engine.check_open()
    store.trim_log(None, store.backoff())
    assert admin.execute("SELECT version FROM kvmodels.commits").fetchall() == [(version(last),)]
    commit(engine, put(b"k"))


def test_commits_go_on_beside_a_long_snapshot(engine: PostgresEngine):
    """A counter row that is updated would collect dead versions; the table of commits collects none."""
    with engine.snapshot() as snapshot:
        for at in range(50):
            commit(engine, put(b"k", b"%d" % at))
        assert keys(snapshot, EVERYTHING) == []
    assert stored(engine, b"k").value == b"49"


# What a call costs


class Member(KvModel, collection="members"):
    id: PrimaryKey[int]
    email: Unique[str]
    team: Indexed[str]


def test_round_trips(postgres_server: PostgresServer, url: str):
    with proxy_of(postgres_server.folder) as proxy, Database(proxy.url(url), models=[Member]) as db:
        members = db[Member]
        members.bulk_create(Member(id=n, email=f"{n}@x.org", team="red" if n % 2 else "blue") for n in range(60))
        for _ in range(2):  # the first call of a kind prepares its statement, and learns where values lie
            members.get(3)
            members.get(email="3@x.org")
            list(members.filter(team="red")[:20])
            members.create(id=100 + _, email=f"{100 + _}@x.org", team="red")
            members.patch(3, team="red")
            members.filter(team="red").count()

        def trips(call) -> int:
            before = proxy.round_trips
            call()
            return proxy.round_trips - before

        assert trips(lambda: members.get(3)) == 1
        assert trips(lambda: members.get(email="3@x.org")) == 1
        assert trips(lambda: list(members.filter(team="red")[:20])) == 1
        assert trips(lambda: members.filter(team="red").count()) == 1
        assert trips(lambda: members.create(id=200, email="200@x.org", team="red")) == 1
        assert trips(lambda: members.patch(3, team="blue")) == 2
        assert (
            trips(lambda: members.bulk_create(Member(id=n, email=f"{n}@x.org", team="a") for n in range(300, 400))) == 1
        )


def test_statements_may_go_unprepared(postgres_server: PostgresServer, url: str):
    asked: list[bytes] = []
    with proxy_of(postgres_server.folder) as proxy:
        engine = PostgresEngine(proxy.url(url), prepare=False)
        proxy.plan = lambda request: asked.append(request)
        for _ in range(3):
            assert isinstance(engine.commit(AtomicWrite((), (Set(b"k", b"v", 3),))), Committed)
            engine.read([point(b"k")])
        engine.close()
    assert sum(b"commit_1" in request for request in asked) == 3
    assert not any(b"_pg3_" in request for request in asked)
