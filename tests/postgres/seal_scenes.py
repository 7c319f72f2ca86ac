"""Scenes of early commits, each of which shows one rule: who waits for a seal, and what a crash may remove.

A lock on the table of seals shows who waits for one. An orphan is an early commit whose session has died before its
seal. A crash that loses it is played by removing its rows, as the server does that has not flushed them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
import pytest

from kvmodels import Database, ForeignKey, KvModel, PrimaryKey, open_kv
from kvmodels.core.operations import Apply, AtomicWrite, Check, Committed, Conflict, ReadRange, Set, point
from kvmodels.engines.contract import Engine
from kvmodels.engines.postgres.connection import PostgresConnection, connect, int8, uuids
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.engines.postgres.packing import packed, parameters_of
from kvmodels.engines.postgres.reads import NONE
from kvmodels.engines.postgres.store import PostgresStore
from kvmodels.engines.shared.evaluation import from_versionstamp
from kvmodels.errors import EngineTimeoutError, ProtectedError
from kvmodels.flows.kv.watch import BATCH
from tests.postgres.early import AlwaysEarly, NeverEarly, use_mode
from tests.through_loop import EngineThroughLoop

T = TypeVar("T")
T_S = 60.0
EVERYTHING = ReadRange(b"", b"\xff")
_APPLY = b"SELECT answer FROM kvmodels.apply_2(%b, %b, %b)"
_RESOLVE = b"SELECT part, outcome, s FROM kvmodels.resolve_1(%b, %b, %b, %b, %b)"
_BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
_ROWS = ("kv", "log")
_WAITING = "SELECT count(*) FROM pg_locks WHERE relation = 'kvmodels.seals'::regclass AND NOT granted"


def put(key: bytes, value: bytes = b"x") -> AtomicWrite:
    return AtomicWrite((), (Set(key, value, 3),))


def absent(key: bytes) -> AtomicWrite:
    """An insert that is refused if the key is there."""
    return AtomicWrite((Check(key, None),), (Set(key, b"y", 3),))


class SealWorld:
    """One store, with early commits at will.

    Args:
        url: of its database.
        loop: whether the calls go through an event loop.
        options: of the engine.
    """

    def __init__(self, url: str, *, loop: bool = False, **options: Any) -> None:
        self.url = url
        self.options = options
        self._inner = PostgresEngine(url, change_log=3600, busy_timeout=T_S, durable_reads=False, **options)
        self._through = EngineThroughLoop(self._inner) if loop else None
        self.engine: Engine = self._through or self._inner
        self.early()
        self.admin = psycopg.connect(f"{url}-admin", autocommit=True)
        self._link: PostgresConnection = connect(f"{url}-dying", url, prepare=False, backoff=T_S)
        self._threads = ThreadPoolExecutor(4)

    @property
    def store(self) -> PostgresStore:
        """The store of the engine."""
        return self._inner.check_open()

    def settle(self, versionstamp: bytes) -> bool:
        """Wait until a state is durable."""
        through = self._through
        if through is None:
            return self._inner.settle(versionstamp)
        return through._run(lambda form: form.settle(versionstamp))  # type: ignore[attr-defined]

    def early(self) -> None:
        """Have the engine end its commits early."""
        use_mode(self._inner, AlwaysEarly)

    def strict(self) -> None:
        """Have the engine end its commits strictly."""
        use_mode(self._inner, NeverEarly)

    def orphan(self, write: AtomicWrite) -> int:
        """Commit early, and die before the seal; the version."""
        return self._applied(write)[1]

    def orphan_id(self, write: AtomicWrite) -> bytes:
        """Commit early, and die before the seal; the id of the operation."""
        return self._applied(write)[0]

    @contextmanager
    def unfinished(self, write: AtomicWrite) -> Iterator[None]:
        """Commit early in a transaction that ends after the block, without a seal."""
        with self._link.transaction():
            self._applied(write)
            yield

    def somebody_waits(self) -> bool:
        """Whether a session of this database waits for a lock."""
        ((number,),) = self.admin.execute(_BLOCKED).fetchall()
        return int(number) > 0

    def lose(self, version: int) -> None:
        """Remove what a crash removes of the last commit, whose keys are new."""
        self.admin.execute("DELETE FROM kvmodels.kv WHERE version = %s", [version])
        self.admin.execute("DELETE FROM kvmodels.log WHERE version = %s", [version])
        self.admin.execute("DELETE FROM kvmodels.commits WHERE version = %s", [version])

    def keep_rows(self) -> None:
        """Copy what is stored, to put back what a lost commit has replaced."""
        for name in _ROWS:
            self.admin.execute(f"CREATE TEMP TABLE kept_{name} AS SELECT * FROM kvmodels.{name}".encode())

    def put_back_rows(self) -> None:
        """Write the copied rows that are absent."""
        for name in _ROWS:
            self.admin.execute(f"INSERT INTO kvmodels.{name} SELECT * FROM kept_{name} ON CONFLICT DO NOTHING".encode())
            self.admin.execute(f"DROP TABLE kept_{name}".encode())

    def state(self) -> tuple[int, int]:
        """The version of the last commit, and the version up to which everything is durable."""
        query = "SELECT version, kvmodels.sealed_2() FROM kvmodels.commits ORDER BY version DESC LIMIT 1"
        ((version, sealed),) = self.admin.execute(query).fetchall()
        return version, sealed

    def base(self) -> int | None:
        """The base of the last commit; None for a strict one."""
        return self.admin.execute("SELECT base FROM kvmodels.commits ORDER BY version DESC LIMIT 1").fetchall()[0][0]

    @contextmanager
    def no_seals(self) -> Iterator[None]:
        """Let nothing be sealed meanwhile."""
        with self.admin.transaction():
            self.admin.execute("LOCK TABLE kvmodels.seals IN SHARE MODE")
            yield

    def begin(self, call: Callable[[], Any]) -> Future[Any]:
        """Make a call in a thread of its own."""
        return self._threads.submit(call)

    def is_sealing(self) -> bool:
        """Whether a session waits to write a seal."""
        return int(self.admin.execute(_WAITING).fetchall()[0][0]) > 0

    def wait_until_sealing(self, call: Future[Any], sessions: int = 1) -> None:
        """Return when so many sessions wait to write a seal; AssertionError if the call ends without one."""
        deadline = time.monotonic() + T_S
        while self.admin.execute(_WAITING).fetchall()[0][0] < sessions:
            assert not call.done(), f"it has not waited for a seal: {call.result()}"
            assert time.monotonic() < deadline, "nothing waits for a seal"
        assert not call.done()

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Return when something holds."""
        deadline = time.monotonic() + T_S
        while not holds():
            assert time.monotonic() < deadline

    def requires_seal(self, call: Callable[[], Any]) -> Any:
        """Make a call that must wait for a seal; its result."""
        with self.no_seals():
            made = self.begin(call)
            self.wait_until_sealing(made)
        return made.result(T_S)

    def resolve(self, one: bytes) -> int:
        """Find out what became of an operation; 0: it was applied."""
        given = (int8(NONE), int8(0), int8(0), int8(5_000))
        return self._link.call(_RESOLVE, (uuids([one]), *given))[0][1]

    def close(self) -> None:
        """End everything."""
        self._threads.shutdown()
        self._link.close()
        self.admin.close()
        self.engine.close()

    def _applied(self, write: AtomicWrite) -> tuple[bytes, int]:
        one = packed(write, adds_integers=True)
        assert one is not None
        identity = os.urandom(16)
        ((answer,),) = self._link.call(_APPLY, (uuids([identity]), *parameters_of([one], (NONE, NONE, 0, 5_000, 2))))
        *_, outcome, version = answer
        assert outcome == 0
        return identity, version


# Acknowledgements and refusals


def a_commit_is_visible_before_its_seal_and_answered_behind_it(world: SealWorld) -> None:
    with world.no_seals():
        call = world.begin(lambda: world.engine.commit(put(b"k")))
        world.wait_until_sealing(call)
        assert len(world.engine.read([point(b"k")]).ranges[0]) == 1  # type: ignore[union-attr]
    outcome = call.result(T_S)
    assert isinstance(outcome, Committed)
    assert world.state() == (from_versionstamp(outcome.versionstamp),) * 2


def a_refusal_waits_for_the_state_that_it_rests_on(world: SealWorld) -> None:
    version = world.orphan(put(b"k"))
    assert world.requires_seal(lambda: world.engine.commit(absent(b"k"))) == Conflict((0,))
    assert world.state() == (version, version)


def a_strict_refusal_waits_as_well(world: SealWorld) -> None:
    world.strict()
    version = world.orphan(put(b"k"))
    assert world.requires_seal(lambda: world.engine.commit(absent(b"k"))) == Conflict((0,))
    assert world.state() == (version, version)


def a_conflict_that_a_read_has_found_waits(world: SealWorld) -> None:
    world.orphan(put(b"k"))
    write = AtomicWrite((Check(b"k", None),), (Apply(b"m", lambda _: (b"z", 3), 1),))
    assert world.requires_seal(lambda: world.engine.commit(write)) == Conflict((0,))


def a_resolution_waits(world: SealWorld) -> None:
    one = world.orphan_id(put(b"k"))
    assert world.requires_seal(lambda: world.resolve(one)) == 0
    version, sealed = world.state()
    assert version == sealed


def a_relaxed_commit_seals_the_state_that_it_is_built_on(world: SealWorld) -> None:
    relaxed = PostgresEngine(f"{world.url}-relaxed", durability="relaxed", busy_timeout=T_S, **world.options)
    try:
        world.orphan(put(b"k"))
        assert isinstance(world.requires_seal(lambda: relaxed.commit(put(b"m"))), Committed)
        version, sealed = world.state()
        assert version == sealed
    finally:
        relaxed.close()


def a_commit_waits_for_the_one_before_it(world: SealWorld) -> None:
    """Its checks are made in the state that the other one leaves, and not in the one that it has found."""
    with world.unfinished(put(b"k")):
        call = world.begin(lambda: world.engine.commit(absent(b"k")))
        world.wait_until(lambda: call.done() or world.somebody_waits())
    assert call.exception(T_S) is None
    assert call.result() == Conflict((0,))


def a_strict_commit_waits_for_the_one_before_it(world: SealWorld) -> None:
    world.strict()
    a_commit_waits_for_the_one_before_it(world)


# What is durable


def a_state_that_is_durable_stays_so(world: SealWorld) -> None:
    world.strict()
    durable = from_versionstamp(world.engine.commit(put(b"a")).versionstamp)  # type: ignore[union-attr]
    world.orphan(put(b"b"))
    assert world.state()[1] == durable


def commits_are_strict_while_the_counter_is_ahead_of_the_clock(world: SealWorld) -> None:
    world.store.seen = 1 << 60
    world.engine.commit(put(b"a"))
    assert world.base() is None
    world.store.seen = 0
    world.orphan(put(b"b"))
    assert world.base() is None


def what_is_not_sealed_for_a_second_makes_the_next_commit_strict(world: SealWorld) -> None:
    world.orphan(put(b"a"))
    assert world.base() is not None
    world.admin.execute(
        "UPDATE kvmodels.commits SET at = at - 1001 WHERE version = (SELECT max(version) FROM kvmodels.commits)"
    )
    version = world.orphan(put(b"b"))
    assert (world.base(), world.state()) == (None, (version, version))


def the_setting_makes_every_commit_strict(world: SealWorld) -> None:
    world.admin.execute("UPDATE kvmodels.meta SET durable_reads = true")
    world.orphan(put(b"a"))
    assert world.base() is None


# Followers


def changes_are_delivered_when_they_are_durable(world: SealWorld) -> None:
    start = world.engine.commit(put(b"a")).versionstamp  # type: ignore[union-attr]
    world.orphan(put(b"b"))
    found = world.requires_seal(lambda: world.engine.changes(EVERYTHING, start))
    assert [one.key for one in found.changes] == [b"b"]


def a_batch_of_changes_waits_for_the_state_and_not_for_its_end(world: SealWorld) -> None:
    """A key that was changed again is left out of the batch, because of a change that may be lost."""
    start = world.engine.commit(put(b"a")).versionstamp  # type: ignore[union-attr]
    world.engine.commit(put(b"b"))
    world.engine.commit(put(b"c"))
    world.orphan(put(b"d"))
    world.requires_seal(lambda: world.engine.changes(EVERYTHING._replace(limit=1), start))


def changes_that_are_lost_are_read_again(world: SealWorld) -> None:
    start = world.engine.commit(put(b"a")).versionstamp  # type: ignore[union-attr]
    with world.no_seals():
        version = world.orphan(put(b"b"))
        call = world.begin(lambda: world.engine.changes(EVERYTHING, start))
        world.wait_until_sealing(call)
        world.lose(version)
    found = call.result(T_S)
    assert (found.changes, found.through) == ([], start)


def changes_after_a_position_that_is_not_durable_wait(world: SealWorld) -> None:
    world.engine.commit(put(b"a"))
    start = world.orphan(put(b"b")).to_bytes(8, "big") + b"\0\0"
    world.orphan(put(b"c"))
    found = world.requires_seal(lambda: world.engine.changes(EVERYTHING, start))
    assert [one.key for one in found.changes] == [b"c"]


def a_change_is_delivered_although_the_one_that_follows_it_is_lost(world: SealWorld) -> None:
    """The log has the last change of a key, which may be one that a crash removes."""
    start = world.engine.commit(put(b"a")).versionstamp  # type: ignore[union-attr]
    first = world.engine.commit(put(b"k", b"1")).versionstamp  # type: ignore[union-attr]
    world.keep_rows()
    with world.no_seals():
        version = world.orphan(put(b"k", b"2"))
        call = world.begin(lambda: world.engine.changes(EVERYTHING, start))
        world.wait_until(lambda: call.done() or world.is_sealing())
        world.lose(version)
        world.put_back_rows()
    assert [(one.key, one.versionstamp) for one in call.result(T_S).changes] == [(b"k", first)]


def who_waits_for_a_commit_learns_of_it_when_it_is_durable(world: SealWorld) -> None:
    start = world.engine.commit(put(b"a")).versionstamp  # type: ignore[union-attr]
    with world.no_seals():
        world.orphan(put(b"b"))
        assert world.engine.wait_for_commit(start, 0) == start
    world.engine.commit(put(b"c"))
    assert world.engine.wait_for_commit(start, 0) > start


def a_state_that_is_gone_is_not_durable(world: SealWorld) -> None:
    version = world.orphan(put(b"a"))
    stamp = version.to_bytes(8, "big") + b"\0\0"
    world.lose(version)
    assert isinstance(world.engine.commit(put(b"b")), Committed)
    assert not world.settle(stamp)


def who_may_not_write_waits_for_the_next_commit(world: SealWorld) -> None:
    """A follower seals a state whose session has died; a role without the right leaves that to a commit."""
    start = world.engine.commit(put(b"a")).versionstamp  # type: ignore[union-attr]
    world.admin.execute(
        "DROP ROLE IF EXISTS follower; CREATE ROLE follower LOGIN; GRANT USAGE ON SCHEMA kvmodels TO follower;"
        " GRANT SELECT ON ALL TABLES IN SCHEMA kvmodels TO follower"
    )
    follower = PostgresEngine(world.url.replace("postgres@", "follower@"), create=False, **world.options)
    store = follower.check_open()
    try:
        world.orphan(put(b"b"))
        call = world.begin(lambda: follower.changes(EVERYTHING, start))
        world.wait_until(lambda: not store.settling.may_seal)
        assert not call.done()
        world.engine.commit(put(b"c"))
        assert [one.key for one in call.result(T_S).changes] in ([b"b"], [b"b", b"c"])
    finally:
        follower.close()
        world.admin.execute("DROP OWNED BY follower; DROP ROLE follower")


def a_refusal_that_cannot_be_durable_in_time_is_an_error(world: SealWorld) -> None:
    """And a follower in the same state waits on, and seals it when the disk answers again."""
    impatient = PostgresEngine(f"{world.url}-impatient", busy_timeout=0.1, **world.options)
    start = world.engine.commit(put(b"a")).versionstamp  # type: ignore[union-attr]
    write = AtomicWrite((Check(b"k", None),), (Apply(b"m", lambda _: (b"z", 3), 1),))
    try:
        with world.no_seals():
            world.orphan(put(b"k"))
            follows = world.begin(lambda: impatient.changes(EVERYTHING, start))
            with pytest.raises(EngineTimeoutError):
                impatient.commit(write)
            assert not follows.done()
            assert impatient.check_open().settling.may_seal
        assert [one.key for one in follows.result(T_S).changes] == [b"k"]
        assert impatient.commit(write) == Conflict((0,))
    finally:
        impatient.close()


def a_commit_wakes_who_listens(world: SealWorld) -> None:
    """The notification has a transaction of its own, behind the seal."""
    other = PostgresEngine(f"{world.url}-other", poll_interval=1e6, **world.options)
    try:
        start = world.engine.commit(put(b"a")).versionstamp  # type: ignore[union-attr]
        call = world.begin(lambda: other.wait_for_commit(start, T_S))
        world.wait_until(lambda: other.check_open().listener.active or call.done())
        with world.no_seals():
            made = world.begin(lambda: world.engine.commit(put(b"b")))
            world.wait_until_sealing(made)
            assert not call.done()
        outcome = made.result(T_S)
        assert isinstance(outcome, Committed)
        assert call.result(T_S) == outcome.versionstamp
    finally:
        other.close()


class Team(KvModel, collection="teams"):
    name: PrimaryKey[str]


class Member(KvModel, collection="members"):
    id: PrimaryKey[int]
    team: ForeignKey[str, Team]


def _raw(world: SealWorld) -> tuple[bytes, bytes]:
    """Write the entry ``("a",)``, and return its stored key and value."""
    with open_kv(f"{world.url}-raw", busy_timeout=T_S, **world.options) as kv:
        kv.set(("a",), 1)
    row = world.engine.read([EVERYTHING]).ranges[0][-1]  # type: ignore[union-attr]
    return row.key, row.value


def a_watch_of_keys_delivers_what_is_durable(world: SealWorld) -> None:
    key, value = _raw(world)
    world.orphan(put(key.replace(b"a", b"b"), value))
    with open_kv(f"{world.url}-watch", busy_timeout=T_S, **world.options) as kv:
        (entry,) = world.requires_seal(lambda: next(iter(kv.watch([("b",)]))))
    assert entry.versionstamp is not None


def a_watch_of_keys_reads_again_what_is_lost(world: SealWorld) -> None:
    key, value = _raw(world)
    with open_kv(f"{world.url}-watch", busy_timeout=T_S, **world.options) as kv:
        with world.no_seals():
            version = world.orphan(put(key.replace(b"a", b"b"), value))
            call = world.begin(lambda: next(iter(kv.watch([("b",)]))))
            world.wait_until_sealing(call)
            world.lose(version)
        (entry,) = call.result(T_S)
    assert entry.versionstamp is None


def a_watch_of_a_prefix_lists_what_is_durable(world: SealWorld) -> None:
    """If a listed change were lost, no later change would correct the follower."""
    key, value = _raw(world)
    with open_kv(f"{world.url}-watch", busy_timeout=T_S, change_log=3600, **world.options) as kv:
        entries = kv.atomic()
        for number in range(BATCH):
            entries.set(("a", number), 1)
        entries.commit()
        watch = iter(kv.watch(prefix=()))
        assert len(next(watch)) == BATCH
        with world.no_seals():
            version = world.orphan(put(key.replace(b"a", b"b"), value))
            call = world.begin(lambda: next(watch))
            world.wait_until_sealing(call)
            world.lose(version)
        assert [entry.key for entry in call.result(T_S)] == [("a", BATCH - 1)]


def a_watch_of_records_lists_what_is_durable(world: SealWorld) -> None:
    with (
        Database(f"{world.url}-models", models=[Team], busy_timeout=T_S, **world.options) as db,
        Database(f"{world.url}-other", models=[Team], busy_timeout=T_S, **world.options) as other,
    ):
        db[Team].bulk_create([Team(name=f"{number:06}") for number in range(BATCH)])
        engine = db._engine
        assert isinstance(engine, PostgresEngine)
        use_mode(engine, AlwaysEarly)
        watch = iter(other[Team].watch())
        assert len(next(watch)) == BATCH
        with world.no_seals():
            made = world.begin(lambda: db[Team].create(name="blue"))
            world.wait_until_sealing(made)
            listed = world.begin(lambda: next(watch))
            world.wait_until_sealing(listed, sessions=2)
        assert [change.key for change in listed.result(T_S)] == ["blue"]
        made.result(T_S)


def a_refusal_by_what_a_call_has_read_waits(world: SealWorld) -> None:
    def early(db: Database) -> object:
        return db[Member].create(id=2, team="red")

    assert _waits_for_what_it_has_read(world, early, lambda other: _is_protected(other))


def a_write_that_has_nothing_to_change_waits(world: SealWorld) -> None:
    """Its values are there already, but may be lost."""

    def early(db: Database) -> object:
        return db[Member].patch(1, team="blue")

    assert _waits_for_what_it_has_read(world, early, lambda other: other[Member].patch(1, team="blue").team) == "blue"


def a_change_of_a_record_that_is_gone_waits(world: SealWorld) -> None:
    """Its removal may be lost, and then there was something to change."""

    def late(other: Database) -> bool:
        with suppress(Member.DoesNotExist):
            other[Member].patch(1, team="blue")
            return False
        return True

    assert _waits_for_what_it_has_read(world, lambda db: db[Member].remove(1), late)


def a_removal_of_a_record_that_is_gone_waits(world: SealWorld) -> None:
    assert not _waits_for_what_it_has_read(
        world, lambda db: db[Member].remove(1), lambda other: other[Member].remove(1)
    )


def _waits_for_what_it_has_read(
    world: SealWorld, early: Callable[[Database], object], late: Callable[[Database], T]
) -> T:
    """Return what a call returns beside one that has committed and waits for its seal; it must wait for one, too."""
    with (
        Database(f"{world.url}-models", models=[Team, Member], busy_timeout=T_S, **world.options) as db,
        Database(f"{world.url}-other", models=[Team, Member], busy_timeout=T_S, **world.options) as other,
    ):
        db[Team].bulk_create([Team(name="red"), Team(name="blue")])
        db[Member].create(id=1, team="red")
        db[Member].patch(1, team="blue")
        db[Member].patch(1, team="red")
        engine = db._engine
        assert isinstance(engine, PostgresEngine)
        use_mode(engine, AlwaysEarly)
        with world.no_seals():
            made = world.begin(lambda: early(db))
            world.wait_until_sealing(made)
            called = world.begin(lambda: late(other))
            world.wait_until_sealing(called, sessions=2)
        made.result(T_S)
        result: T = called.result(T_S)
        return result


def _is_protected(db: Database) -> bool:
    with suppress(ProtectedError):
        db[Team].remove("red")
        return False
    return True


SCENES = (
    a_watch_of_keys_delivers_what_is_durable,
    a_watch_of_keys_reads_again_what_is_lost,
    a_watch_of_a_prefix_lists_what_is_durable,
    a_watch_of_records_lists_what_is_durable,
    a_refusal_by_what_a_call_has_read_waits,
    a_write_that_has_nothing_to_change_waits,
    a_change_of_a_record_that_is_gone_waits,
    a_removal_of_a_record_that_is_gone_waits,
    a_commit_is_visible_before_its_seal_and_answered_behind_it,
    a_refusal_waits_for_the_state_that_it_rests_on,
    a_strict_refusal_waits_as_well,
    a_conflict_that_a_read_has_found_waits,
    a_resolution_waits,
    a_commit_waits_for_the_one_before_it,
    a_strict_commit_waits_for_the_one_before_it,
    a_relaxed_commit_seals_the_state_that_it_is_built_on,
    a_state_that_is_durable_stays_so,
    commits_are_strict_while_the_counter_is_ahead_of_the_clock,
    what_is_not_sealed_for_a_second_makes_the_next_commit_strict,
    the_setting_makes_every_commit_strict,
    changes_are_delivered_when_they_are_durable,
    a_batch_of_changes_waits_for_the_state_and_not_for_its_end,
    changes_that_are_lost_are_read_again,
    changes_after_a_position_that_is_not_durable_wait,
    a_change_is_delivered_although_the_one_that_follows_it_is_lost,
    who_waits_for_a_commit_learns_of_it_when_it_is_durable,
    a_state_that_is_gone_is_not_durable,
)
