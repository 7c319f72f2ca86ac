"""Indexes built beside writers, by builders that are killed; and what becomes of records that an index cannot hold."""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from kvmodels import (
    Database,
    Indexed,
    IndexNotReadyError,
    KeyTooLargeError,
    KvModel,
    Limits,
    PrimaryKey,
    SchemaProgress,
    UniqueViolationError,
    UnknownFieldError,
)
from kvmodels.flows.context import reload_header
from kvmodels.runtime.sync import run
from tests.engines.processes import ROOT
from tests.evolution.releases import Compound, First, UniqueName, WithPlan, user

crowd: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def nobody_is_left_behind() -> Iterator[None]:
    """Ends the processes of a test that failed half-way."""
    yield
    while crowd:
        process = crowd.pop()
        if process.poll() is None:
            process.kill()
        process.communicate()


def start(*arguments: object) -> subprocess.Popen[str]:
    """A process of the crowd; ``ready`` waits until it has opened the store."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.evolution.crowd", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    crowd.append(process)
    return process


def line(process: subprocess.Popen[str]) -> str:
    """The next line that it prints. Not communicate(): that does not see what readline() has read ahead."""
    assert process.stdout is not None
    text = process.stdout.readline()
    assert text, process.communicate()[1]
    return text


def ready(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    assert line(process) == "ready\n"
    return process


def answer(process: subprocess.Popen[str]) -> Any:
    output = json.loads(line(process))
    assert process.communicate(timeout=60)[1] == ""
    crowd.remove(process)
    assert process.returncode == 0
    return output


def fill(path: Path | str, records: int) -> None:
    with Database(path, models=[First], durability="relaxed") as db:
        users = [First(**user(n, name=f"name-{n % (records * 9 // 10)}")) for n in range(records)]
        few = 4 if db._engine.limits.max_checks <= 100 else None  # over KV Connect
        db[First].bulk_create(users, batch_size=few)


BUILDERS = ("build",)
LIBRARIES = ("build", "full")
"""Builders of this release of the library, and of one that compiles each record, in turns."""


def build_beside_writers(
    path: Path | str, release: str, seed: int, *, writers: int, kills: int, keys: int, builders: Sequence[str]
) -> dict[str, Any]:
    """Writers, 2 builders that are killed in turn and followed by another one, until the last two end the build."""
    moments = random.Random(seed)
    left, kinds = iter(range(kills)), cycle(builders)

    def next_builder() -> subprocess.Popen[str]:
        return start(next(kinds), path, release, *([moments.uniform(0, 0.03)] if next(left, None) is not None else []))

    writing = [start("write", path, release, seed * 10 + n, keys) for n in range(writers)]
    building = [next_builder(), next_builder()]
    for writer in writing:
        ready(writer)
    killed = 0
    for n in range(kills):
        victim = building[n % 2]
        victim.communicate(timeout=120)
        crowd.remove(victim)
        killed += victim.returncode == -signal.SIGPROF
        building[n % 2] = next_builder()
    for builder in building:
        answer(ready(builder))
    for writer in writing:
        writer.send_signal(signal.SIGTERM)
    counts = [answer(writer) for writer in writing]
    return {
        "killed": killed,
        "written": sum(c["written"] for c in counts),
        "refused": sum(c["refused"] for c in counts),
    }


def plan_and_copies(
    path: Path | str, seed: int, *, records: int, writers: int, kills: int, builders: Sequence[str] = BUILDERS
) -> None:
    fill(path, records)
    counts = build_beside_writers(path, "plan", seed, writers=writers, kills=kills, keys=records, builders=builders)
    print(f"seed {seed}: {counts}")
    assert counts["killed"] > 0
    assert counts["written"] > 0
    with Database(path, models=[WithPlan], durability="relaxed", require_current=True) as db:
        users = db[WithPlan]
        assert db.build_indexes() == ()
        everybody = users.all().to_list()
        assert sorted(found.id for found in users.filter(plan="free")) == [found.id for found in everybody]
        assert sorted(found.id for found in users.order_by("name")) == [found.id for found in everybody]
        for found in everybody[::10]:
            assert found.id in [copy.id for copy in users.filter(name=found.name)]
        assert db.check().ok


def unique_with_duplicates(
    path: Path | str, seed: int, *, records: int, writers: int, kills: int, builders: Sequence[str] = BUILDERS
) -> None:
    fill(path, records)
    counts = build_beside_writers(path, "name", seed, writers=writers, kills=kills, keys=records, builders=builders)
    with Database(path, models=[UniqueName], durability="relaxed") as db:
        users = db[UniqueName]
        assert db.check().ok
        reports = db.build_indexes()
        print(f"seed {seed}: {counts}, violations left: {[len(report.violations) for report in reports]}")
        for report in reports:
            # Writers may have settled all duplicates themselves.
            assert (report.index, report.state) == ("name", "pending" if report.violations else "readable")
            for violation in report.violations:
                assert violation.kind == "duplicate"
                users.patch(violation.key, name=f"settled-{violation.key}")
        assert all(report.state == "readable" for report in db.build_indexes())
        names = [found.name for found in users.all()]
        assert len(set(names)) == len(names)
        for found in users.all()[:20]:
            assert users.get(name=found.name).id == found.id
        assert db.check().ok


@pytest.mark.servers
def test_review_24_an_index_and_copies_are_built_beside_writers_by_builders_that_are_killed(tmp_path):
    plan_and_copies(tmp_path / "app.db", 7, records=300, writers=2, kills=3)


@pytest.mark.servers
def test_a_unique_index_over_duplicates_is_built_beside_writers_by_builders_that_are_killed(tmp_path):
    unique_with_duplicates(tmp_path / "app.db", 11, records=300, writers=2, kills=3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_builds_of_large_collections_beside_writers(tmp_path, seed):
    plan_and_copies(tmp_path / "plan.db", seed, records=10_000, writers=4, kills=20)
    unique_with_duplicates(tmp_path / "name.db", seed, records=10_000, writers=4, kills=20)


def old_process_beside_a_build(path: Path | str) -> None:
    """An old process writes until the build begins, and then only reads."""
    fill(path, 300)
    old = ready(start("old", path, 5, 300))
    (built,) = [state for index, state, _ in answer(ready(start("build", path, "plan"))) if index == "plan"]
    told = answer(old)
    print(f"old code: {told}")
    assert built == "readable"
    assert told["written"] > 0
    assert told["reads"] > 50
    with Database(path, models=[WithPlan], require_current=True) as db:
        assert db[WithPlan].filter(plan="free").count() == db[WithPlan].count()
        assert db.check().ok


def test_review_05_an_old_process_writes_until_the_build_begins_and_then_only_reads(tmp_path):
    old_process_beside_a_build(tmp_path / "app.db")


# --- one process, step by step --------------------------------------------------------------------------------------


def test_duplicates_keep_an_index_pending_until_a_record_is_changed(opened):
    opened(First)[First].bulk_create([First(**user(n, name=name)) for n, name in enumerate("aabbc")])
    db = opened(UniqueName)
    users = db[UniqueName]
    (report,) = db.build_indexes()
    assert (report.index, report.state, report.scanned) == ("name", "pending", 5)
    assert {(violation.key, violation.kind) for violation in report.violations} == {(1, "duplicate"), (3, "duplicate")}
    with pytest.raises(IndexNotReadyError) as caught:
        users.get(name="c")
    assert caught.value.state == "pending"
    with pytest.raises(UniqueViolationError):
        users.create(**user(9, name="c"))
    with pytest.raises(UniqueViolationError):
        users.patch(4, name="a")
    # What does not touch the name of a duplicate is still allowed, and it stays one.
    users.patch(1, color="green")
    (report,) = db.build_indexes()
    assert [violation.key for violation in report.violations] == [1, 3]
    assert db.check().ok
    users.patch(1, name="settled")
    users.remove(2)  # the owner of "b" goes, so its duplicate gets the slot
    (report,) = db.build_indexes()
    assert (report.state, report.violations) == ("readable", ())
    assert users.get(name="b").id == 3
    assert users.get(name="settled").id == 1
    assert db.check().ok


def test_review_24_what_an_index_cannot_hold_is_listed_and_does_not_stop_the_build(opened):
    old = opened(First)
    old[First].bulk_create([First(**user(n)) for n in range(6)])
    old[First].patch(2, name="x" * 3_000)
    old[First].patch(1, name="y" * 3_000)
    raw = old.kv.unsafe()
    raw.set(("users", 3), "not a document")
    document = old.kv.get(("users", 4)).value
    raw.set(("users", 4), {**document, "name": 17})
    db = opened(Compound)
    (report,) = db.build_indexes()
    assert (report.index, report.state) == ("color_name", "pending")
    found = {violation.key: violation.kind for violation in report.violations}
    assert found.keys() == {1, 2, 3, 4}
    assert (found[1], found[2], found[3]) == ("too_long", "too_long", "not_decodable")
    assert found[4] in ("not_encodable", "not_decodable")
    with pytest.raises(KeyTooLargeError) as caught:
        db[Compound].patch(2, color="green")
    assert caught.value.index == "users.color_name"
    assert len(str(caught.value)) < 600
    db[Compound].patch(2, name="short")
    assert db[Compound].remove(1) is True
    raw.delete(("users", 3))
    raw.set(("users", 4), document)
    (report,) = db.build_indexes()
    assert (report.state, report.violations) == ("readable", ())
    assert [found.id for found in db[Compound].filter(color="red").order_by("-name")] == [2, 4, 0]
    assert {finding.primary_key for finding in db.check().findings} == {3}  # removed behind the back of its entries
    assert db.check(repair=True).ok
    assert db.check().ok


class Reading(KvModel, collection="readings"):
    id: PrimaryKey[int]
    value: float


class IndexedReading(KvModel, collection="readings"):
    id: PrimaryKey[int]
    value: Indexed[float]


def test_review_24_a_number_that_an_index_cannot_hold_is_mended_or_removed_like_any_record(opened):
    old = opened(Reading)
    old[Reading].bulk_create([Reading(id=n, value=math.nan if n < 2 else n) for n in range(5)])
    db = opened(IndexedReading)
    (report,) = db.build_indexes()
    assert report.state == "pending"
    assert [tuple(found) for found in report.violations] == [(0, "not_encodable", None), (1, "not_encodable", None)]
    assert db[IndexedReading].patch(0, value=0.5).value == 0.5
    assert db[IndexedReading].remove(1) is True
    (report,) = db.build_indexes()
    assert report.state == "readable"
    assert [found.id for found in db[IndexedReading].filter(value__gte=0.0)] == [0, 2, 3, 4]
    assert db.check().ok


def test_duplicates_of_a_value_that_just_fits_a_key_are_listed_and_settled(opened):
    first = opened(First)
    value = "v" * (first._engine.limits.max_key_bytes - 58)
    first[First].bulk_create([First(**user(n, name=value)) for n in range(3)])
    db = opened(UniqueName)
    (report,) = db.build_indexes()
    assert [(violation.key, violation.kind) for violation in report.violations] == [(1, "duplicate"), (2, "duplicate")]
    db[UniqueName].patch(1, color="green")
    db[UniqueName].remove(0)
    (report,) = db.build_indexes()
    assert [violation.key for violation in report.violations] == [2]
    db[UniqueName].patch(2, name="another")
    (report,) = db.build_indexes()
    assert (report.state, db[UniqueName].get(name=value).id) == ("readable", 1)
    assert list(db.kv.list(prefix=("__kvmodels__", "violation"))) == []
    assert db.check().ok


def test_a_new_field_gets_its_default_in_every_record_when_its_index_is_built(opened):
    old = opened(First)
    old[First].bulk_create([First(**user(n)) for n in range(250)])
    db = opened(WithPlan)
    reports = {report.index: report for report in db.build_indexes()}
    assert {name: (report.state, report.scanned) for name, report in reports.items()} == {
        "name": ("readable", 250),
        "plan": ("readable", 250),
    }
    assert all(db.kv.get(("users", n)).value["plan"] == "free" for n in (0, 100, 249))
    for n in (0, 249):
        record, copy = db.kv.get(("users", n)), db.kv.get(("users_by_name", f"name-{n}", n))
        assert record.versionstamp == copy.versionstamp
        assert record.value == copy.value
        loaded = db[WithPlan].filter(name=f"name-{n}").first()
        loaded.color = "green"
        db[WithPlan].save(loaded)
    assert db[WithPlan].filter(plan="free").count() == 250
    assert db.check().ok


def test_a_build_keeps_the_limits_of_the_engine(opened):
    old = opened(First, limits=Limits.DENO)
    for n in range(0, 120, 20):
        old[First].bulk_create([First(**user(k)) for k in range(n, n + 20)])
    db = opened(WithPlan, limits=Limits.DENO)
    assert all(report.state == "readable" for report in db.build_indexes())
    assert db[WithPlan].filter(plan="free").count() == 120
    assert db.check().ok


def test_building_again_and_again_changes_nothing(opened):
    old = opened(First)
    old[First].bulk_create([First(**user(n)) for n in range(30)])
    db = opened(WithPlan)
    db.build_indexes()
    before = [(entry.key, entry.versionstamp) for entry in db.kv.list(prefix=())]
    for _ in range(3):
        assert db.build_indexes() == ()
    assert [(entry.key, entry.versionstamp) for entry in db.kv.list(prefix=())] == before


def test_the_fence_and_the_progress_of_a_finished_build_are_gone(opened):
    old = opened(First)
    old[First].create(**user(1))
    db = opened(WithPlan)
    db.build_indexes()
    kinds = {entry.key[1] for entry in db.kv.list(prefix=("__kvmodels__",))}
    assert kinds == {"header"}


class TwoIndexes(KvModel, collection="members"):
    id: PrimaryKey[int]
    name: Indexed[str]
    city: Indexed[str]


def test_one_index_is_built_and_dropped_without_the_others(url_of):
    url = url_of("sqlite", "members")
    seen: list[SchemaProgress] = []
    with Database(url, models=[TwoIndexes]) as db:
        db[TwoIndexes].bulk_create([TwoIndexes(id=n, name=str(n), city="Bern") for n in range(600)])
        assert db.drop_index(TwoIndexes, "name")
        assert db.drop_index("members", "city", progress=seen.append)
        assert [(one.step, one.index, one.scanned) for one in seen] == [("drop", "city", 400), ("drop", "city", 600)]
        assert not db.drop_index("members", "city")
        assert not db.drop_index("strangers", "city")

        report = db.build_index(TwoIndexes, "city", progress=seen.append)
        assert (report.index, report.scanned) == ("city", 600)
        assert {(one.step, one.index) for one in seen[2:]} == {("build", "city")}
        assert {one.total for one in seen} == {600}
        assert db.build_index(TwoIndexes, "city").scanned == 0
        assert db[TwoIndexes].filter(city="Bern").count() == 600
        with pytest.raises(IndexNotReadyError):
            db[TwoIndexes].filter(name="7").count()
        with pytest.raises(UnknownFieldError):
            db.build_index(TwoIndexes, "nothing")
    with Database(url) as other:  # declares no model
        assert other.drop_index("members", "city")
        assert other.indexes() == ()


def test_an_unchanged_header_is_combined_with_the_declarations_once_during_a_build(url_of: Callable[..., str]):
    """A build and everybody beside it read the header again and again."""
    url = url_of("memory")
    with Database(url, models=[First]) as old:
        for number in range(2):
            old[First].create(id=number, email=f"{number}@x", color="red", name="same")
        with Database(url, models=[UniqueName]) as db:
            assert [report.state for report in db.build_indexes()] == ["pending"]
            context = db._core.context
            known = run(db._engine, reload_header(context))
            assert known.fences
            assert run(db._engine, reload_header(context)) is known
            db[UniqueName].patch(1, name="other")
            assert [report.state for report in db.build_indexes()] == ["readable"]
            ready = run(db._engine, reload_header(context))
            assert ready is not known
            assert not ready.fences
