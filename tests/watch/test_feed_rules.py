"""The rules of a change feed, each with a mutant without it; what copies of a store do to positions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvmodels import Database, InvalidArgumentError, Position, ResumeExpiredError, UnsupportedError
from kvmodels.core.lineage import LINEAGE_KEY
from kvmodels.core.operations import ReadRange, format_versionstamp
from kvmodels.flows.effects import Read, ReadChanges
from kvmodels.flows.feeds.changed_since import ChangeFeed, RecordFeed
from tests.watch.test_changed_since import MODELS, Copy, Dog, Lamp, Pet, db, stored, write
from tests.watch.test_prefixes import trim

__all__ = ["db"]

Flow = Generator[Any, Any, Any]


def beside(flow: Flow, between: Callable[[], None]) -> Flow:
    """Run a flow, and call a function after each of its requests."""
    request = next(flow)
    while True:
        answer = yield request
        between()
        try:
            request = flow.send(answer)
        except StopIteration as end:
            return end.value


def run_scan(db: Database, kind: type[ChangeFeed], seed: int) -> bool:
    """Pull a copy while other writers commit between the requests of each step; return whether it equals the store."""
    random = Random(seed)
    runner = db[Lamp]._runner
    for _ in range(30):
        write(db, random)
    one = RecordFeed(runner.context, runner.schema)
    one._feed = kind(runner.context, (runner.schema,))

    def step(position: Position | None, limit: int) -> Any:
        return runner.run_part(beside(one.step(position, limit), lambda: write(db, random)), None)

    copy = Copy(step)
    for _ in range(25):
        copy.pull(random.choice([1, 2, 5]))
    copy._step = lambda position, limit: db[Lamp].changed_since(position, limit=limit)
    copy.pull_all()
    return copy.records == stored(db)


class WithoutChangesOfTheScannedKeys(ChangeFeed):
    """A mutant: a step of the scan does not read the changes up to the cursor."""

    def _changes(self, since: bytes, end: bytes | None, size: int) -> Any:
        if end is None:
            return (yield from super()._changes(since, end, size))
        return [], (yield from super()._changes(since, None, size))[1], True


class WithRowsOverChanges(ChangeFeed):
    """A mutant: a record of the step wins over a later change of it."""

    def step(self, position: Position | None, limit: int) -> Any:
        flow, rows = super().step(position, limit), []
        request = next(flow)
        while True:
            answer = yield request
            if isinstance(request, Read) and len(request.ranges) == 2:
                rows = answer.ranges[1]
            try:
                request = flow.send(answer)
            except StopIteration as end:
                step = end.value
                return step._replace(rows=[(0, row) for row in rows])


class WithoutCursor(ChangeFeed):
    """A mutant: the position says that the scan is complete after its first step."""

    def step(self, position: Position | None, limit: int) -> Any:
        step = yield from super().step(position, limit)
        return step._replace(position=dataclasses.replace(step.position, cursor=None))


@pytest.mark.parametrize("mutant", [WithoutChangesOfTheScannedKeys, WithRowsOverChanges, WithoutCursor])
def test_a_feed_without_one_of_its_rules_is_convicted(mutant: type[ChangeFeed]):
    def agrees(seed: int) -> bool:
        with Database("memory://", models=MODELS, change_log=3600) as db:
            return run_scan(db, mutant, seed)

    assert not all(agrees(seed) for seed in range(20))


class WithTheCommitOfTheLastRange(ChangeFeed):
    """A mutant: of several collections, the position is the greatest commit that one of them has reached."""

    def step(self, position: Position | None, limit: int) -> Any:
        flow, greatest = super().step(position, limit), b""
        request = next(flow)
        while True:
            answer = yield request
            if isinstance(request, ReadChanges):
                greatest = max(greatest, answer.through)
            try:
                request = flow.send(answer)
            except StopIteration as end:
                step = end.value
                stamp = format_versionstamp(greatest)
                return step._replace(position=dataclasses.replace(step.position, versionstamp=stamp))


def run_two_collections(db: Database, kind: type[ChangeFeed], seed: int) -> bool:
    """Follow two collections while others write to both between the requests; return whether the copy is equal."""
    random, runner, copy = Random(seed), db[Lamp]._runner, dict[bytes, bytes | None]()
    feed = kind(runner.context, (runner.schema, db[Pet]._runner.schema))
    position = None

    def write_to_both() -> None:
        write(db, random)
        db[Pet].save(Dog(id=random.randrange(9)), force=True)

    def pull(step: Flow) -> bool:
        nonlocal position
        found = runner.run_part(step, None)
        rows = [(change.key, change.row) for _, change in found.changes] + [(row.key, row) for _, row in found.rows]
        copy.update((key, None if row is None else row.versionstamp) for key, row in rows)
        position = found.position
        return found.has_more

    for _ in range(20):
        pull(beside(feed.step(position, random.choice([1, 2, 5])), write_to_both))
    while pull(feed.step(position, 50)):
        pass
    held = {format_versionstamp(stamp) for stamp in copy.values() if stamp is not None}
    return held == {str(one.versionstamp) for model in (Lamp, Pet) for one in db[model].all().allow_scan()}


def test_writes_to_one_collection_while_another_is_read_are_not_missed(db: Database):
    assert all(run_two_collections(db, ChangeFeed, seed) for seed in range(3))


def test_a_feed_of_two_collections_with_the_greater_commit_is_convicted():
    def agrees(seed: int) -> bool:
        with Database("memory://", models=MODELS, change_log=3600) as db:
            return run_two_collections(db, WithTheCommitOfTheLastRange, seed)

    assert not all(agrees(seed) for seed in range(20))


@pytest.mark.parametrize("seed", range(3))
def test_writes_between_the_requests_of_a_step_are_not_missed(db: Database, seed: int):
    assert run_scan(db, ChangeFeed, seed), seed


def test_a_page_takes_two_reads(db: Database):
    db[Lamp].create(id=1)
    position = db[Lamp].changed_since().position
    requests: list[Any] = []

    def seen(flow: Flow) -> Flow:
        request = next(flow)
        while True:
            requests.append(request)
            answer = yield request
            try:
                request = flow.send(answer)
            except StopIteration as end:
                return end.value

    context = db[Lamp]._runner.context
    db[Lamp]._runner.run_part(seen(RecordFeed(context, db[Lamp]._runner.schema).step(position, 10)), None)
    assert [type(one) for one in requests] == [Read, ReadChanges]
    assert requests[0].ranges == [ReadRange(LINEAGE_KEY)]


def test_a_tenant_and_its_copy_in_a_backup_have_lineages_of_their_own(tmp_path: Path):
    path, copy = str(tmp_path / "a.db"), str(tmp_path / "copy.db")
    with Database(path, tenant_models=MODELS, change_log=60) as db:
        for name in ("acme", "initech"):
            db.create_tenant(name)
            db.tenant(name)[Lamp].create(id=1)
        position = db.tenant("acme")[Lamp].changed_since().position
        with pytest.raises(ResumeExpiredError, match="another store"):
            db.tenant("initech")[Lamp].changed_since(position)
        db.kv.backup(copy)
    with Database(copy, tenant_models=MODELS, change_log=60) as db:
        with pytest.raises(ResumeExpiredError, match="another store"):
            db.tenant("acme")[Lamp].changed_since(position)
        assert len(db.tenant("acme")[Lamp].changed_since()) == 1


def test_a_dump_has_no_lineage_and_a_load_makes_a_new_one(db: Database, tmp_path: Path):
    db[Lamp].create(id=1)
    position = db[Lamp].changed_since().position
    file = str(tmp_path / "a.dump")
    db.kv.dump(file)
    assert "lineage" not in Path(file).read_text()
    with Database("memory://", models=MODELS, change_log=60) as other:
        before = other[Lamp].changed_since().position
        other.kv.load(file)
        for one in (position, before):
            with pytest.raises(ResumeExpiredError, match="another store"):
                other[Lamp].changed_since(one)
        assert [one.key for one in other[Lamp].changed_since()] == [1]


def test_a_position_that_the_log_does_not_reach_back_to_is_refused():
    now = 1_700_000_000_000
    with Database("memory://", models=MODELS, change_log=1, clock=lambda: now) as db:
        db[Lamp].create(id=1)
        position = db[Lamp].changed_since().position
        db[Lamp].patch(1, on=True)
        now += 2_000
        db[Lamp].create(id=2)
        trim(db.kv, now - 500)
        with pytest.raises(ResumeExpiredError, match="position=None") as info:
            db[Lamp].changed_since(position)
        assert (info.value.since, info.value.newest) == (position.versionstamp, None)
        assert info.value.oldest is not None


def test_a_store_without_a_log_and_a_transaction_are_refused():
    with Database("memory://", models=MODELS) as db, pytest.raises(UnsupportedError):
        db[Lamp].changed_since()
    with (
        Database("memory://", models=MODELS, change_log=60) as db,
        pytest.raises(InvalidArgumentError, match="transaction"),
        db.transaction() as tx,
    ):
        tx[Lamp].changed_since()


def test_the_position_of_a_store_is_refused_by_its_backup(db: Database, tmp_path: Path):
    db[Lamp].create(id=1)
    position = db[Lamp].changed_since().position
    copy = str(tmp_path / "copy.db")
    db.kv.backup(copy)
    with Database(copy, models=MODELS, change_log=60) as restored:
        with pytest.raises(ResumeExpiredError, match="another store"):
            restored[Lamp].changed_since(position)
        own = restored[Lamp].changed_since()
        assert [one.key for one in own] == [1]
        assert restored[Lamp].changed_since(own.position).changes == []
    assert db[Lamp].changed_since(position).changes == [], "the store itself is as before"
