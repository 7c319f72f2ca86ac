"""Early commits and their seals: each rule by a scene, and by a mutant without the rule that its scene convicts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from kvmodels.core.operations import Arithmetic, AtomicWrite, Committed
from kvmodels.engines.postgres import errors, flows, reads
from kvmodels.engines.postgres.connection import Calls
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.engines.postgres.reads import ChangesRead, SettledRead, Statements
from kvmodels.engines.shared.evaluation import from_versionstamp
from kvmodels.errors import StorageFullError
from tests.contract.shorthand import number
from tests.postgres import seal_scenes as scenes
from tests.postgres.databases import Databases
from tests.postgres.mutants import make_mutant, restore
from tests.postgres.seal_scenes import SCENES, SealWorld, put

pytestmark = pytest.mark.servers


@pytest.fixture
def world(databases: Databases) -> Iterator[SealWorld]:
    one = SealWorld(databases.url())
    yield one
    one.close()


@pytest.mark.parametrize("way", ["threads", "loop", "unprepared", "postgres15", "pgbouncer"])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_scene(databases_on: Callable[[str], Databases], scene: Callable[[SealWorld], None], way: str):
    server = way if way in ("postgres15", "pgbouncer") else "postgres"
    options = {"prepare": False} if way in ("unprepared", "pgbouncer") else {}
    world = SealWorld(databases_on(server).url(), loop=way == "loop", **options)
    try:
        scene(world)
    finally:
        world.close()


@pytest.mark.parametrize(
    "scene",
    [
        scenes.who_may_not_write_waits_for_the_next_commit,
        scenes.a_refusal_that_cannot_be_durable_in_time_is_an_error,
        scenes.a_commit_wakes_who_listens,
    ],
    ids=lambda scene: scene.__name__,
)
def test_scene_that_is_the_same_for_all_ways(world: SealWorld, scene: Callable[[SealWorld], None]):
    scene(world)


_LAST_SEAL = 'greatest(c.base, (SELECT x.version FROM "kvmodels".seals x ORDER BY x.version DESC LIMIT 1))'
_LOCK = 'LOCK TABLE "kvmodels".gate IN EXCLUSIVE MODE;'
MUTANTS: dict[str, tuple[Callable[[SealWorld], None], str, str]] = {
    "answered before the seal": (
        scenes.a_commit_is_visible_before_its_seal_and_answered_behind_it,
        'INSERT INTO "kvmodels".seals VALUES (last) ON CONFLICT DO NOTHING;',
        "",
    ),
    "a refusal without a seal": (
        scenes.a_refusal_waits_for_the_state_that_it_rests_on,
        "ELSE answer[2] OPERATOR(pg_catalog.>=) 2 AND numbers[5] OPERATOR(pg_catalog.<>) 0 END)",
        "ELSE false END)",
    ),
    "a strict call beside what is not sealed": (
        scenes.a_strict_refusal_waits_as_well,
        "IF sealed < state THEN\n        -- No",
        "IF false THEN\n        -- No",
    ),
    "a resolution that does not wait": (
        scenes.a_resolution_waits,
        "IF sealed < state THEN\n        -- No",
        "IF false THEN\n        -- No",
    ),
    "a relaxed commit that does not seal": (
        scenes.a_relaxed_commit_seals_the_state_that_it_is_built_on,
        "IF sealed < state THEN\n        -- No",
        "IF false THEN\n        -- No",
    ),
    "durable by seals alone": (
        scenes.a_state_that_is_durable_stays_so,
        _LAST_SEAL,
        'coalesce((SELECT x.version FROM "kvmodels".seals x ORDER BY x.version DESC LIMIT 1), 0)',
    ),
    "strict commits are not durable": (
        scenes.a_state_that_is_durable_stays_so,
        "CASE WHEN c.base IS NULL THEN c.version",
        "CASE WHEN false THEN c.version",
    ),
    "early while the counter is ahead": (
        scenes.commits_are_strict_while_the_counter_is_ahead_of_the_clock,
        " AND state < wall;",
        ";",
    ),
    "no bound": (scenes.what_is_not_sealed_for_a_second_makes_the_next_commit_strict, "<= 1000;", "<= 100000000;"),
    "the lock is not taken": (scenes.a_commit_waits_for_the_one_before_it, _LOCK, ""),
    "the lock is not taken by a strict commit": (scenes.a_strict_commit_waits_for_the_one_before_it, _LOCK, ""),
    "checks are not looked at": (
        scenes.a_refusal_waits_for_the_state_that_it_rests_on,
        "IF cardinality(failed) > 0 THEN\n                outcome := 1;",
        "IF false THEN\n                outcome := 1;",
    ),
    "the setting is not looked at": (
        scenes.the_setting_makes_every_commit_strict,
        "mode = 2 AND NOT durable_reads",
        "mode = 2",
    ),
}
"""By what is missing: the scene that must fail, a part of the functions, and what takes its place."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_functions_without_a_rule_are_convicted(world: SealWorld, mutant: str):
    scene, part, other = MUTANTS[mutant]
    connection = world._link
    try:
        make_mutant(connection, part, other)
        with pytest.raises(AssertionError):
            scene(world)
    finally:
        restore(connection)


@pytest.mark.parametrize(
    "scene",
    [
        scenes.a_watch_of_keys_delivers_what_is_durable,
        scenes.a_watch_of_keys_reads_again_what_is_lost,
        scenes.a_watch_of_a_prefix_lists_what_is_durable,
        scenes.a_watch_of_records_lists_what_is_durable,
        scenes.a_refusal_by_what_a_call_has_read_waits,
        scenes.a_change_of_a_record_that_is_gone_waits,
        scenes.a_removal_of_a_record_that_is_gone_waits,
    ],
    ids=lambda scene: scene.__name__,
)
def test_a_layer_above_that_does_not_settle_is_convicted(
    world: SealWorld, monkeypatch: pytest.MonkeyPatch, scene: Callable[[SealWorld], None]
):
    monkeypatch.setattr(PostgresEngine, "settle", lambda self, versionstamp: True)
    with pytest.raises(AssertionError):
        scene(world)


def _never_waits(*_: Any, bounded: bool = False) -> Generator[Any, Any, bool]:
    del bounded
    yield from ()
    return True


@pytest.mark.parametrize(
    "scene",
    [
        scenes.changes_are_delivered_when_they_are_durable,
        scenes.a_batch_of_changes_waits_for_the_state_and_not_for_its_end,
        scenes.changes_that_are_lost_are_read_again,
        scenes.changes_after_a_position_that_is_not_durable_wait,
        scenes.a_conflict_that_a_read_has_found_waits,
    ],
    ids=lambda scene: scene.__name__,
)
def test_a_follower_that_does_not_settle_is_convicted(
    world: SealWorld, monkeypatch: pytest.MonkeyPatch, scene: Callable[[SealWorld], None]
):
    monkeypatch.setattr(flows, "settle_flow", _never_waits)
    with pytest.raises(AssertionError):
        scene(world)


def test_a_follower_that_does_not_look_for_the_commit_itself_is_convicted(
    world: SealWorld, monkeypatch: pytest.MonkeyPatch
):
    """A later seal is above the version of a commit that a crash has removed."""
    once = reads.settled_once

    def blind(texts: Statements, version: int) -> Calls[SettledRead]:
        found = yield from once(texts, version)
        return found._replace(there=True)

    monkeypatch.setattr(flows, "settled_once", blind)
    with pytest.raises(AssertionError):
        scenes.a_state_that_is_gone_is_not_durable(world)


def test_a_batch_that_settles_its_own_end_is_convicted(world: SealWorld, monkeypatch: pytest.MonkeyPatch):
    """The state that was read is later than the end of a batch, and what is left out of it depends on that state."""
    once = reads.changes_once

    def at_its_end(*given: Any) -> Calls[ChangesRead]:
        found = yield from once(*given)
        through = from_versionstamp(found.changes.through)
        return found._replace(state=found.state._replace(version=through))

    monkeypatch.setattr(flows, "changes_once", at_its_end)
    monkeypatch.setattr(world.store.settling, "durable", 0)
    with pytest.raises(AssertionError):
        scenes.a_batch_of_changes_waits_for_the_state_and_not_for_its_end(world)


def test_a_feed_that_ends_at_what_is_durable_is_convicted(world: SealWorld, monkeypatch: pytest.MonkeyPatch):
    """Of a key that is changed again, the log keeps the later change alone, so the earlier one would be passed over."""
    once = reads.changes_once

    def durable_ones(*given: Any) -> Calls[ChangesRead]:
        found = yield from once(*given)
        sealed = world.state()[1].to_bytes(8, "big") + b"\0\0"
        changes = [one for one in found.changes.changes if one.versionstamp <= sealed]
        durable = found.changes._replace(changes=changes, through=sealed)
        return found._replace(changes=durable, state=found.state._replace(version=from_versionstamp(sealed)))

    monkeypatch.setattr(flows, "changes_once", durable_ones)
    with pytest.raises(AssertionError):
        scenes.a_change_is_delivered_although_the_one_that_follows_it_is_lost(world)


_REFUSING_ONE_SEAL = """
CREATE SEQUENCE kvmodels.refusals;
CREATE FUNCTION kvmodels.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('kvmodels.refusals') = 1 THEN
        RAISE EXCEPTION 'no room' USING ERRCODE = '53100';
    END IF;
    RETURN NEW;
END$$;
CREATE TRIGGER refused BEFORE INSERT ON kvmodels.seals FOR EACH ROW EXECUTE FUNCTION kvmodels.refuse()
"""


@pytest.fixture
def refused_seal(world: SealWorld) -> Iterator[SealWorld]:
    """A store that refuses to write the first seal."""
    world.admin.execute(_REFUSING_ONE_SEAL)
    yield world
    world.admin.execute("DROP FUNCTION kvmodels.refuse CASCADE; DROP SEQUENCE kvmodels.refusals")


def test_a_seal_that_fails_leaves_the_commit_applied_once(refused_seal: SealWorld):
    """The error comes behind the operations, so it says nothing of them: they are resolved, and not sent again."""
    assert isinstance(refused_seal.engine.commit(AtomicWrite((), (Arithmetic("sum", b"n", 1),))), Committed)
    assert number(refused_seal.engine, b"n") == 1


def test_who_takes_the_error_of_a_seal_as_certain_is_convicted(
    refused_seal: SealWorld, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(errors, "is_certain", lambda error: True)
    with pytest.raises(StorageFullError):
        refused_seal.engine.commit(AtomicWrite((), (Arithmetic("sum", b"n", 1),)))
    assert number(refused_seal.engine, b"n") == 1, "it was applied, and reported as refused"


def test_a_process_that_writes_alone_seals_nothing_and_two_do(databases: Databases):
    one, other = (PostgresEngine(f"{databases.url()}-{name}", busy_timeout=60) for name in "ab")
    with databases.admin() as admin:

        def kinds() -> tuple[int, int]:
            """How many commits were strict, and how many early."""
            return admin.execute(
                "SELECT count(*) FILTER (WHERE base IS NULL), count(base) FROM kvmodels.commits WHERE NOT void"
            ).fetchall()[0]

        for _ in range(5):
            one.commit(put(b"k"))
        assert kinds() == (5, 0)
        for _ in range(3):
            other.commit(put(b"k"))
            one.commit(put(b"k"))
        assert kinds() == (5 + 3, 3), "a process learns of the other one by its own next commit"
    one.close()
    other.close()
