"""How the server carries out each statement: with an index, without a sort or a scan of a whole table.

The server reports its plans itself (``auto_explain``), those inside of functions too, with what they have read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from kvmodels.core.operations import (
    VACANT,
    Arithmetic,
    AtomicWrite,
    Check,
    Committed,
    Delete,
    Guard,
    MultiRangeFollow,
    PredictedFollow,
    ReadRange,
    Set,
    SuffixFollow,
    as_plain_rows,
    point,
    to_versionstamp,
)
from kvmodels.engines.postgres import connection
from kvmodels.engines.postgres.engine import PostgresEngine
from tests.postgres.databases import Databases
from tests.postgres.early import AlwaysEarly, use_mode

pytestmark = pytest.mark.servers

ROWS = 20_000
MOST_READ = 150
"""Rows that one statement of these tests may look at."""

FILL = f"""
INSERT INTO kvmodels.kv (key, value, encoding, version, expires_at)
SELECT convert_to('e' || lpad(n::text, 6, '0'), 'UTF8'), convert_to(lpad(n::text, 6, '0'), 'UTF8'), 3, 2, NULL
FROM generate_series(1, {ROWS}) n;
INSERT INTO kvmodels.kv (key, value, encoding, version, expires_at)
SELECT convert_to('r' || lpad(n::text, 6, '0'), 'UTF8'), 'record', 3, 2, CASE WHEN n % 2 = 0 THEN 1 + n END
FROM generate_series(1, {ROWS}) n;
INSERT INTO kvmodels.commits (version, prev, at, id, void)
SELECT n + 1, n, n, gen_random_uuid(), false FROM generate_series(1, {ROWS}) n;
INSERT INTO kvmodels.log (key, version)
SELECT convert_to('e' || lpad(n::text, 6, '0'), 'UTF8'), n + 1 FROM generate_series(1, {ROWS}) n;
INSERT INTO kvmodels.seals (version) SELECT n FROM generate_series(1, {ROWS}) n;
"""
KEYED = ("kv", "log", "commits", "seals")
"""The tables that grow."""

REPORTING = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_format": "json",
    "client_min_messages": "log",
}


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The plans that the server has reported."""
    told: list[dict[str, Any]] = []

    def notice(_: object):
        def note(diagnostic: psycopg.errors.Diagnostic) -> None:
            text = diagnostic.message_primary or ""
            if "plan:" in text:
                told.append(json.loads(text.partition("plan:")[2]))

        return note

    monkeypatch.setattr(connection, "_notice", notice)
    return told


@pytest.fixture(params=["analyzed", "new"])
def url(request: pytest.FixtureRequest, databases_on) -> str:
    """A store of many rows, whose statistics the server has or has not gathered, and which reports its plans."""
    databases: Databases = databases_on("postgres15")
    PostgresEngine(databases.url(), change_log=3_600).close()
    with databases.admin() as admin:
        admin.execute(FILL)
        admin.execute(b"ANALYZE" if request.param == "analyzed" else b"SELECT 1")
    options = quote(" ".join(f"-c{name}={value}" for name, value in REPORTING.items()))
    return f"{databases.url()}&options={options}"


@pytest.fixture
def engine(url: str, plans: list[dict[str, Any]]) -> Iterator[PostgresEngine]:
    opened = PostgresEngine(url, clock=lambda: 10)
    plans.clear()
    yield opened
    opened.close()


@pytest.fixture
def session(url: str, plans: list[dict[str, Any]]) -> Iterator[psycopg.Connection]:
    """A connection without the engine, for statements that it sends after a fault."""
    with psycopg.connect(url, autocommit=True) as opened:
        opened.add_notice_handler(connection._notice(opened))  # type: ignore[arg-type]
        plans.clear()
        yield opened


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The nodes of a plan, each before those below it."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def faults(told: list[dict[str, Any]]) -> list[str]:
    """Return the reads without an index, the sorts, and the rows beyond those that were asked for."""
    found: list[str] = []
    for one in told:
        for node in nodes(one["Plan"]):
            kind, table = node["Node Type"], node.get("Relation Name")
            read = [below for below in nodes(node) if below.get("Relation Name") in KEYED]
            looked_at = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            if table in KEYED and kind not in ("Index Scan", "Index Only Scan", "ModifyTable"):
                found.append(f"{kind} of {table}: {one['Query Text']}")
            if kind in ("Sort", "Hash Join", "Merge Join", "Hash") and read:
                found.append(f"{kind}: {one['Query Text']}")
            if table is not None and looked_at > MOST_READ:
                found.append(f"{looked_at} rows of {table}: {one['Query Text']}")
    return found


def tables(told: list[dict[str, Any]]) -> set[str]:
    return {node["Relation Name"] for one in told for node in nodes(one["Plan"]) if "Relation Name" in node}


READS: dict[str, tuple[list[ReadRange], dict[str, Any]]] = {
    "one key": ([point(b"e000007")], {}),
    "one key, if another is as it was": ([point(b"e000007")], {"guard": Guard(b"e000008", to_versionstamp(2))}),
    "many keys": ([point(b"e%06d" % n) for n in range(1, 60)], {}),
    "a page": ([ReadRange(b"e000100", b"f", 20)], {}),
    "a page of plain rows": ([ReadRange(b"e000100", b"f", 20)], {"follow": as_plain_rows}),
    "a page backwards": ([ReadRange(b"e", b"e000100", 20, reverse=True)], {}),
    "a page of keys": ([ReadRange(b"e", b"f", 20, keys_only=True)], {}),
    "a page of keys backwards": ([ReadRange(b"e", b"f", 20, reverse=True, keys_only=True)], {}),
    "several ranges and keys": ([ReadRange(b"e", b"f", 20), point(b"r000001"), ReadRange(b"r", b"s", 5)], {}),
    "a page of entries and their records": ([ReadRange(b"e", b"f", 20)], {"follow": SuffixFollow(b"r", 1)}),
    "the same backwards": ([ReadRange(b"e", b"f", 20, reverse=True)], {"follow": SuffixFollow(b"r", 1)}),
    "entries of ranges and their records": (
        [ReadRange(b"e0001", b"e0002", 20), ReadRange(b"e0005", b"e0006", 20)],
        {"follow": MultiRangeFollow(b"r", (1, 1), 30)},
    ),
    "the same of ranges backwards": (
        [ReadRange(b"e0001", b"e0002", 20, reverse=True), ReadRange(b"e0005", b"e0006", 20, reverse=True)],
        {"follow": MultiRangeFollow(b"r", (1, 1), 30)},
    ),
    "a slot and its record": (
        [point(b"e000007")],
        {"follow": PredictedFollow(lambda ranges: [point(b"r" + row[1]) for row in ranges[0]], (b"r", 0, b""))},
    ),
    "expired rows too": ([ReadRange(b"r", b"s", 20)], {"include_expired": True}),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_goes_through_an_index(engine: PostgresEngine, plans: list[dict[str, Any]], name: str):
    ranges, options = READS[name]
    engine.read(ranges, **options)
    assert faults(plans) == []
    assert {"kv", "commits"} <= tables(plans)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_page_without_prepared_statements_goes_through_an_index(
    url: str, plans: list[dict[str, Any]], *, reverse: bool
):
    engine = PostgresEngine(url, clock=lambda: 10, prepare=False)
    plans.clear()
    engine.read([ReadRange(b"e", b"f", 20, reverse=reverse)], follow=SuffixFollow(b"r", 1))
    engine.close()
    assert any("read_1" in one["Query Text"] for one in plans)
    assert faults(plans) == []


def test_a_read_of_a_snapshot_goes_through_an_index(engine: PostgresEngine, plans: list[dict[str, Any]]):
    with engine.snapshot() as snapshot:
        snapshot.read([ReadRange(b"e", b"f", 20)], follow=SuffixFollow(b"r", 1))
    assert faults(plans) == []
    assert {"kv", "commits"} <= tables(plans)


def test_a_count_goes_through_an_index(engine: PostgresEngine, plans: list[dict[str, Any]]):
    engine.count([ReadRange(b"e0001", b"e0002", 50), point(b"e000007")], Guard(b"e000008", to_versionstamp(2)))
    assert faults(plans) == []
    assert {"kv", "commits"} <= tables(plans)


WRITE = AtomicWrite(
    (
        *(Check(b"e%06d" % n, to_versionstamp(2)) for n in range(1, 30)),
        Check(b"r000002", to_versionstamp(2), physical=True),
        Check(b"x", VACANT),
    ),
    (
        *(Set(b"e%06d" % n, b"new", 3) for n in range(1, 30)),
        *(Set(b"n%06d" % n, b"new", 3, expire_at=9_999) for n in range(1, 30)),
        *(Delete(b"e%06d" % n) for n in range(100, 130)),
        Arithmetic("sum", b"number", 1),
    ),
)


def test_a_commit_goes_through_an_index(engine: PostgresEngine, plans: list[dict[str, Any]]):
    assert isinstance(engine.commit(WRITE), Committed)
    assert faults(plans) == []
    assert {"kv", "commits", "log", "meta"} <= tables(plans)


def test_an_early_commit_and_its_seal_go_through_an_index(url: str, plans: list[dict[str, Any]]):
    engine = PostgresEngine(url, clock=lambda: 2 * ROWS // 1_000, durable_reads=False)
    use_mode(engine, AlwaysEarly)
    plans.clear()
    assert isinstance(engine.commit(WRITE), Committed)
    assert faults(plans) == []
    assert {"kv", "commits", "log", "meta", "seals"} <= tables(plans)
    assert any("INSERT INTO" in one["Query Text"] and ".seals" in one["Query Text"] for one in plans)
    plans.clear()
    assert isinstance(engine.commit(AtomicWrite((), (Set(b"after", b"new", 3),))), Committed)
    assert faults(plans) == []
    engine.close()


def test_the_question_whether_a_state_is_durable_goes_through_an_index(
    url: str, plans: list[dict[str, Any]], session: psycopg.Connection
):
    # An early commit without a seal, so that the seals are looked at.
    session.execute(
        "INSERT INTO kvmodels.commits (version, prev, at, id, void, base)"
        " VALUES (%s, %s, %s, gen_random_uuid(), false, 2)",
        (ROWS + 2, ROWS + 1, ROWS),
    )
    engine = PostgresEngine(url, clock=lambda: 2 * ROWS // 1_000)
    plans.clear()
    assert engine.settle(to_versionstamp(ROWS))
    assert any("sealed_2" in one["Query Text"] for one in plans)
    assert faults(plans) == []
    assert {"commits", "seals"} <= tables(plans)
    plans.clear()
    assert engine.settle(to_versionstamp(ROWS + 2)), "this process seals it"
    assert any("seal_2" in one["Query Text"] for one in plans)
    assert faults(plans) == []
    engine.close()


def test_the_resolution_of_a_lost_answer_goes_through_an_index(
    session: psycopg.Connection, plans: list[dict[str, Any]]
):
    none = -(1 << 63)
    session.execute(
        "SELECT * FROM kvmodels.resolve_1(ARRAY[gen_random_uuid()], %s::int8, %s::int8, %s::int8, 9)",
        (none, none, ROWS),
    )
    assert faults(plans) == []
    assert "commits" in tables(plans)


def test_sweeps_go_through_an_index(engine: PostgresEngine, plans: list[dict[str, Any]], session: psycopg.Connection):
    # A trim removes all seals but the last one; it reads no other rows, so a few show it.
    session.execute("DELETE FROM kvmodels.seals WHERE version < %s", (ROWS - 20,))
    plans.clear()
    store = engine.check_open()
    assert engine.sweep(50) == 50
    store.due()
    store.trim_log(50, store.backoff())
    assert faults(plans) == []
    assert {"kv", "commits", "log", "meta"} <= tables(plans)


def test_changes_are_read_through_an_index(engine: PostgresEngine, plans: list[dict[str, Any]]):
    found = engine.changes(ReadRange(b"e", b"f", 20), to_versionstamp(ROWS - 60))
    assert len(found.changes) == 20
    assert faults(plans) == []
    assert {"kv", "commits", "log", "meta"} <= tables(plans)


def test_a_scan_of_a_whole_table_is_found(session: psycopg.Connection, plans: list[dict[str, Any]]):
    """The mutant: a statement without an index."""
    session.execute("SELECT max(encoding) FROM kvmodels.kv")
    assert faults(plans)
