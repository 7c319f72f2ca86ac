"""Pages of index entries with their records, which the server reads in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from kvmodels.core.operations import Guard, GuardFailed, ReadRange, ReadResult, SuffixFollow, row_of, to_versionstamp
from kvmodels.engines.postgres.engine import PostgresEngine
from tests.contract.shorthand import commit, put
from tests.postgres.databases import Databases

pytestmark = pytest.mark.servers

RECORDS = SuffixFollow(b"r", 1)
HOSTILE = """
CREATE SCHEMA evil;
CREATE FUNCTION evil.never(bytea, bytea) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT false';
CREATE OPERATOR evil.= (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = evil.never);
CREATE OPERATOR evil.>= (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = evil.never);
CREATE OPERATOR evil.< (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = evil.never);
CREATE FUNCTION evil.wrong(int8, int8) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT false';
CREATE OPERATOR evil.= (LEFTARG = int8, RIGHTARG = int8, FUNCTION = evil.wrong);
CREATE OPERATOR evil.> (LEFTARG = int8, RIGHTARG = int8, FUNCTION = evil.wrong);
CREATE FUNCTION evil.substr(bytea, int4) RETURNS bytea LANGUAGE sql IMMUTABLE AS 'SELECT ''x''::bytea';
CREATE FUNCTION evil.int8send(int8) RETURNS bytea LANGUAGE sql IMMUTABLE AS 'SELECT ''x''::bytea';
"""


@pytest.fixture(params=[True, False], ids=["prepared", "unprepared"])
def engine(databases: Databases, request: pytest.FixtureRequest) -> Iterator[PostgresEngine]:
    opened = PostgresEngine(databases.url(), clock=lambda: 10, prepare=request.param)
    yield opened
    opened.close()


def records(found: ReadResult | GuardFailed) -> tuple[list[bytes], list[tuple[bytes, bytes, int | None]]]:
    """Return the keys of the entries, and the records behind them."""
    assert isinstance(found, ReadResult)
    rows = [row_of(row) for part in found.followed for row in part]
    return [row[0] for row in found.ranges[0]], [(row.key, row.value, row.expire_at) for row in rows]


def fill(engine: PostgresEngine) -> bytes:
    """Store four entries: one expires, and one has a record that expires."""
    commit(engine, put(b"e3", b"", expire_at=5), put(b"r4", b"4", expire_at=5), put(b"e4", b""), put(b"r3", b"3"))
    return commit(engine, put(b"e1", b""), put(b"e2", b""), put(b"r1", b"1"), put(b"r2", b"2", expire_at=99))


def test_a_page_has_live_entries_and_live_records_in_order(engine: PostgresEngine):
    fill(engine)
    one, two = (b"r1", b"1", None), (b"r2", b"2", 99)
    assert records(engine.read([ReadRange(b"e", b"f", 2)], follow=RECORDS)) == ([b"e1", b"e2"], [one, two])
    assert records(engine.read([ReadRange(b"e", b"f", 9)], follow=RECORDS)) == ([b"e1", b"e2", b"e4"], [one, two])
    backward = engine.read([ReadRange(b"e", b"e3", 9, reverse=True)], follow=RECORDS)
    assert records(backward) == ([b"e2", b"e1"], [two, one])
    assert records(engine.read([ReadRange(b"g", b"h", 9)], follow=RECORDS)) == ([], [])
    assert records(engine.read([ReadRange(b"e", b"f", 0)], follow=RECORDS)) == ([], [])


def test_a_record_that_is_absent_has_no_row(engine: PostgresEngine):
    fill(engine)
    found = engine.read([ReadRange(b"e", b"f", 9)], follow=RECORDS)
    assert isinstance(found, ReadResult)
    assert [len(part) for part in found.followed] == [1, 1, 0]


PAGES = [
    ReadRange(b"e", b"f", 2),
    ReadRange(b"e", b"f", 9),
    ReadRange(b"e", b"e3", 9, reverse=True),
    ReadRange(b"g", b"h", 9),
    ReadRange(b"e", b"f", 0),
    ReadRange(b"e2", b"f", 9, reverse=True),
]


@pytest.mark.parametrize("include_expired", [False, True])
async def test_pages_of_one_turn_of_an_event_loop_are_what_each_is_alone(
    engine: PostgresEngine, *, include_expired: bool
):
    stamp = fill(engine)
    # Entries of another index, whose keys are longer.
    commit(engine, put(b"ix1", b""), put(b"ix2", b""), put(b"ix9", b""))
    reads = [(page, RECORDS) for page in PAGES] + [(ReadRange(b"i", b"j", 9), SuffixFollow(b"r", 2))]
    alone = [records(engine.read([page], follow=follow, include_expired=include_expired)) for page, follow in reads]
    assert alone[-1][0] == [b"ix1", b"ix2", b"ix9"]
    form = engine.native()
    try:
        for guard in (None, Guard(b"r1", stamp)):
            together = await asyncio.gather(
                *(form.read([page], guard, follow=follow, include_expired=include_expired) for page, follow in reads)
            )
            assert [records(found) for found in together] == alone
        refused = await asyncio.gather(*(form.read([page], Guard(b"r1", None), follow=RECORDS) for page in PAGES))
        assert refused == [GuardFailed(stamp)] * len(PAGES)
    finally:
        await form.aclose()


def test_a_page_tells_its_state_and_obeys_its_guard(engine: PostgresEngine):
    stamp = fill(engine)
    page = [ReadRange(b"e", b"f", 2)]
    for guard in (None, Guard(b"r1", stamp), Guard(b"absent", None), Guard(b"e3", None)):
        found = engine.read(page, guard, follow=RECORDS)
        assert isinstance(found, ReadResult)
        assert found.versionstamp == stamp
        assert len(found.ranges[0]) == 2
    assert engine.read(page, Guard(b"r1", to_versionstamp(7)), follow=RECORDS) == GuardFailed(stamp)
    assert engine.read(page, Guard(b"r1", None), follow=RECORDS) == GuardFailed(stamp)
    assert engine.read(page, Guard(b"absent", stamp), follow=RECORDS) == GuardFailed(None)


def test_operators_of_a_tenant_in_the_search_path_are_not_used(databases: Databases):
    url = databases.url()
    with databases.admin() as admin:
        admin.execute(HOSTILE.encode())
    url = f"{url}&options=-csearch_path%3Devil,pg_catalog"
    with psycopg.connect(url) as session:
        assert session.execute("SELECT 'a'::bytea = 'a'::bytea").fetchone() == (False,)
    engine = PostgresEngine(url, clock=lambda: 10)
    fill(engine)
    found = engine.read([ReadRange(b"e", b"f", 2)], Guard(b"absent", None), follow=RECORDS)
    assert records(found) == ([b"e1", b"e2"], [(b"r1", b"1", None), (b"r2", b"2", 99)])
    engine.close()
