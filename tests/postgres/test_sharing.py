"""Users of one server: snapshots beside many commits, forked processes, programs of two releases, several stores."""

from __future__ import annotations

import os

import psycopg
import pytest

from kvmodels import Database, Indexed, KvModel, PrimaryKey
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.engines.postgres.schema import FUNCTIONS
from kvmodels.errors import ClosedError
from tests.contract.shorthand import EVERYTHING, commit, counter, get, keys, number, put, stored
from tests.postgres.databases import Databases

COMMITS = 20_000
BLOCKS = 12
"""Pages of 8 KB that the search for the last commit may touch, however many commits there are."""

MANY = f"""
DO $$
BEGIN
    FOR n IN 1 .. {COMMITS} LOOP
        PERFORM kvmodels.commit_1(
            ARRAY[gen_random_uuid()], ARRAY[convert_to('k' || n, 'UTF8'), 'v'],
            ARRAY[-9223372036854775808, 0, 1, 5000, 0] || ARRAY[0, 1, 0, 0, 0]::int8[] || ARRAY[3, NULL]::int8[]
        );
        COMMIT;
    END LOOP;
END
$$
"""

pytestmark = pytest.mark.servers


class Page(KvModel, collection="pages"):
    id: PrimaryKey[int]
    text: Indexed[str]


def blocks_of_the_last_commit(admin: psycopg.Connection) -> int:
    """How many pages the server reads to find the present version."""
    (plan,) = admin.execute(
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT version, at FROM kvmodels.commits ORDER BY version DESC LIMIT 1"
    ).fetchone() or ([],)
    node = plan[0]["Plan"]
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


def test_a_long_snapshot_makes_commits_no_dearer(databases: Databases):
    """An updated counter row would keep a dead version of each commit in the way of the next one."""
    engine = PostgresEngine(databases.url(), snapshot_max_age=3_600)
    commit(engine, put(b"before"))
    with databases.admin() as admin, engine.snapshot() as snapshot:
        admin.execute(MANY.encode())
        assert blocks_of_the_last_commit(admin) <= BLOCKS
        commit(engine, put(b"after"))
        assert keys(snapshot, EVERYTHING) == [b"before"]
        assert len(keys(engine, EVERYTHING)) == COMMITS + 2
    engine.close()


def test_a_forked_child_leaves_the_store_of_its_parent_alone(databases: Databases):
    url = databases.url()
    with Database(url, models=[Page]) as db:
        db[Page].create(id=1, text="parent")
        child = os.fork()
        if not child:
            told = 1
            try:
                try:
                    db[Page].get(1)
                except ClosedError:
                    with Database(url, models=[Page]) as own:
                        own[Page].create(id=2, text="child")
                    told = 0
            finally:
                os._exit(told)
        assert os.waitpid(child, 0)[1] == 0
        assert [page.text for page in db[Page].all()] == ["parent", "child"]
        db[Page].patch(1, text="still open")
        assert db.check().ok


SERVER_TIME = -(2**63)
LATER = 2**62


def test_one_call_applies_sums_with_deadlines_and_those_of_an_earlier_release(databases: Databases):
    """The numbers of an operation whose sums have no deadline are those that every release sends."""
    engine = PostgresEngine(databases.url())
    commit(engine, counter(b"a", 40)._replace(expire_at=LATER))
    plain = [0, 0, 0, 0, 1, 0]  # no checks, sets or deletes; one sum, of the kind 0
    timed = [0, 0, 0, 0, 2, 4 + 8, 2 + 8, LATER + 1, LATER + 2]
    refused = [1, 0, 0, 0, 1, 77, 0, 8, LATER]
    numbers = [SERVER_TIME, 0, 1, 5_000, 0, *timed, *plain, *refused, *plain]
    one, n = b"\1" + bytes(7), b"n"
    blobs = [b"a", b"b", one, one, n, one, n, n, one, n, one]
    with databases.admin() as admin:
        rows = admin.execute(
            "SELECT part, outcome FROM kvmodels.commit_1(ARRAY(SELECT gen_random_uuid() FROM generate_series(1, 4)), "
            "%s::bytea[], %s::int8[]) WHERE part >= 0",
            (blobs, numbers),
        ).fetchall()
    assert rows == [(0, 0), (1, 0), (2, 1), (3, 0)]
    found = [(key, number(engine, key), stored(engine, key).expire_at) for key in keys(engine, EVERYTHING)]
    assert found == [(b"a", 41, LATER), (b"b", 1, LATER + 2), (n, 2, None)]
    engine.close()


def test_a_program_with_older_functions_works_beside_a_newer_one(databases: Databases):
    """A later release adds functions under new names, and leaves those of this one where they are."""
    older = PostgresEngine(databases.url())
    commit(older, put(b"older"))
    with databases.admin() as admin:
        try:
            admin.execute(
                "UPDATE kvmodels.meta SET functions = 1000;"
                "CREATE FUNCTION kvmodels.commit_1000() RETURNS int LANGUAGE sql AS 'SELECT 1'"
            )
            commit(older, put(b"older still"))
            again = PostgresEngine(f"{databases.url()}-again")
            assert keys(again, EVERYTHING) == [b"older", b"older still"]
            commit(again, put(b"again"))
            again.close()
            assert admin.execute("SELECT functions FROM kvmodels.meta").fetchone() == (1000,)
        finally:
            admin.execute("DROP FUNCTION IF EXISTS kvmodels.commit_1000")
            admin.execute("UPDATE kvmodels.meta SET functions = %s", (FUNCTIONS,))
    older.close()


def test_stores_in_one_server_do_not_see_each_other(databases: Databases):
    stores = [PostgresEngine(databases.url(), schema=name) for name in ("one", "two")]
    stores.append(PostgresEngine(databases.url("other")))
    for position, store in enumerate(stores):
        commit(store, put(b"k", b"%d" % position))
    assert [row.value for store in stores if (row := get(store, b"k"))] == [b"0", b"1", b"2"]
    with Database(databases.url(), models=[Page], schema="one") as db:
        db[Page].create(id=1, text="one")
        assert db.check().ok
    assert keys(stores[1], EVERYTHING) == keys(stores[2], EVERYTHING) == [b"k"]
    for store in stores:
        store.close()
