"""A synchronous standby that does not answer: what is visible meanwhile, who waits, and which locks are held."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from kvmodels.core.operations import Committed, Conflict, ReadRange
from kvmodels.engines.postgres.engine import PostgresEngine
from tests.contract.shorthand import keys
from tests.crowd import until
from tests.postgres.early import AlwaysEarly, use_mode
from tests.postgres.mutants import replace_functions
from tests.postgres.seal_scenes import T_S, SealWorld, absent, put
from tests.postgres.server import own_server

pytestmark = pytest.mark.servers

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
_NOTIFYING = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND classid = 'pg_database'::regclass"
    " AND mode = 'AccessExclusiveLock'"
)
"""The lock of transactions that notify, which only one of the server has at a time."""

_SEALS = 'INSERT INTO "kvmodels".seals VALUES (last) ON CONFLICT DO NOTHING;'
_NOTIFIES = """
        PERFORM pg_catalog.pg_notify('kvmodels_' OPERATOR(pg_catalog.||)
            ('"kvmodels".gate'::pg_catalog.regclass::pg_catalog.oid)::pg_catalog.text, last::pg_catalog.text);
"""


@pytest.fixture
def world() -> Iterator[SealWorld]:
    with own_server("postgres15", fsync="off") as server:
        one = SealWorld(f"{server.url}&application_name=absent")
        yield one
        await_nothing(one)
        one.close()


def await_standby(world: SealWorld) -> None:
    """Have commits wait for a standby that does not exist."""
    world.admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'absent'")
    world.admin.execute("SELECT pg_reload_conf()")
    with psycopg.connect(world.url, autocommit=True) as probe:
        while not _waits(world, probe):
            pass  # the server takes the setting over a moment later


def _waits(world: SealWorld, probe: psycopg.Connection) -> bool:
    call = world.begin(lambda: probe.execute("UPDATE kvmodels.meta SET resolutions = resolutions"))
    until(lambda: call.done() or number(world, _WAITING) == 1)
    waits = not call.done()
    probe.cancel()
    call.result(T_S)
    return waits


def await_nothing(world: SealWorld) -> None:
    """Let commits wait for their own disk alone again."""
    world.admin.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
    world.admin.execute("SELECT pg_reload_conf()")


def number(world: SealWorld, query: str) -> int:
    return int(world.admin.execute(query.encode()).fetchall()[0][0])


def test_a_commit_is_visible_and_neither_it_nor_a_refusal_by_it_is_answered(world: SealWorld):
    other = PostgresEngine(f"{world.url}-other", busy_timeout=T_S)
    use_mode(other, AlwaysEarly)
    await_standby(world)
    made = world.begin(lambda: world.engine.commit(put(b"k")))
    until(lambda: number(world, _WAITING) == 1)
    refused = world.begin(lambda: other.commit(absent(b"k")))
    until(lambda: world.somebody_waits())
    assert keys(other, ReadRange(b"", b"\xff")) == [b"k"]
    assert not made.done()
    assert not refused.done()
    await_nothing(world)
    assert isinstance(made.result(T_S), Committed)
    assert refused.result(T_S) == Conflict((0,))
    other.close()


def a_seal_that_waits_keeps_others_from_notifying(world: SealWorld) -> bool:
    """Return whether a commit that listeners are to learn of holds the lock of notifications while its seal waits."""
    listening = PostgresEngine(f"{world.url}-listening", poll_interval=1e6)
    try:
        start = world.engine.commit(put(b"a")).versionstamp  # type: ignore[union-attr]
        told = world.begin(lambda: listening.wait_for_commit(start, T_S))
        until(lambda: listening.check_open().listener.active)
        await_standby(world)
        made = world.begin(lambda: world.engine.commit(put(b"b")))
        until(lambda: number(world, _WAITING) == 1)
        held = number(world, _NOTIFYING) > 0
        await_nothing(world)
        assert told.result(T_S) == made.result(T_S).versionstamp
    finally:
        listening.close()
    return held


def test_a_seal_that_waits_keeps_no_other_transaction_from_notifying(world: SealWorld):
    assert not a_seal_that_waits_keeps_others_from_notifying(world)


def test_a_notification_inside_of_the_seal_is_convicted(world: SealWorld):
    """With it, the seals of all processes wait for each other, one flush after the other."""
    replace_functions(world.url, _SEALS, f"{_SEALS}{_NOTIFIES}")
    assert a_seal_that_waits_keeps_others_from_notifying(world)
