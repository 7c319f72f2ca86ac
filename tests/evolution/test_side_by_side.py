"""Old and new code through a whole evolution, each release in processes of its own beside the one before."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kvmodels import Database
from tests.engines.processes import ROOT
from tests.evolution.cast import FIXED, MOVING, RELEASES, Upgraded
from tests.evolution.mutants_of_releases import MUTANTS
from tests.oracle import audit, read_store, spec_of

pytestmark = pytest.mark.servers

SEED = 7
NAMES = [release.__name__ for release in RELEASES]

PLANS = [
    ["field_added", "field_added", "index_added"],
    ["index_changed"],
    ["index_undeclared"],
    ["schema_version_raised", "index_outdated", "records_outdated"],
]

STOPPED = [
    "First write",
    "NewIndex write",
    "DroppedIndex write",
    "DroppedIndex before",
    "Upgraded before",
]
"""Who was stopped by a typed error, because it could not keep what the store had, or had not yet."""

NOT_READY = [
    ("ChangedIndex read", "not ready: color"),
    ("DroppedIndex read", "not ready: email"),
    ("DroppedIndex read", "of a newer version"),
    ("Upgraded read", "not ready: email"),
]
"""Whose questions were refused by a typed error for a while, or from then on."""

ANSWERED = [
    ("First read", "while NewIndex is applied: color"),
    ("NewIndex read", "while ChangedIndex is applied: color"),
    ("NewIndex read", "while ChangedIndex is applied: count"),
    ("NewIndex read", "while ChangedIndex is applied: plan"),
    ("ChangedIndex read", "while DroppedIndex is applied: plan"),
    ("ChangedIndex read", "while DroppedIndex is applied: email"),
    ("DroppedIndex read", "while DroppedIndex is applied: plan"),
    ("Upgraded read", "while Upgraded is applied: plan"),
]
"""Which questions went on being answered during a build, a rebuild, a drop and a migration."""


def evolved(path: str, *mutant: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.evolution.cast", path, str(SEED), *mutant],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def faults_of(path: str, met: dict[str, Any]) -> Iterator[str]:
    """Everything that is not as it has to be, in what the processes met and in what is left of their work."""
    for name, told in met.items():
        if name.endswith("applied"):
            yield from () if told is True else (f"{name}: {told}",)
        elif name.endswith("checked"):
            yield from told
        else:
            # Nothing too few, ever: what could not be answered raised a typed error.
            yield from (f"{name}: {key}" for key in told if key[:5] in ("WRONG", "LOST "))
            if name.endswith("read") and not told.get("right"):
                yield f"{name}: nothing"
    refused = [name for name, told in met.items() if isinstance(told, dict) and told.get("refused")]
    if sorted(refused) != sorted(STOPPED):
        yield f"stopped: {refused}"
    yield from (f"{name}: never {key}" for name, key in (*NOT_READY, *ANSWERED) if not met[name].get(key))

    written = {name: met[f"{name} write"].get("written", 0) for name in NAMES}
    with Database(path, models=[Upgraded], require_current=True) as db:
        members = db[Upgraded].all().to_list()
        if len(members) != MOVING + len(FIXED):
            yield "records"
        # No visit is lost and none is counted twice, and each record was upgraded once.
        if sum(one.visits for one in members) != sum(written.values()) + 1_000 * len(members):
            yield "visits"
        # The release that does not know the field carried every value of it, while both wrote.
        if sum(one.notes for one in members) != sum(written.values()) - written["First"]:
            yield "notes"
        given = {key for told in met.values() if isinstance(told, dict) for key in told if key.startswith("plan-")}
        if not given or {one.plan for one in members} - {"free"} != given:
            yield "plans"
        if any(one.email != f"m{one.id}@x.org" for one in members):
            yield "emails"
        yield from map(str, audit(read_store(db.kv), [spec_of(Upgraded)]))
        yield from map(str, db.check().findings)
        if not db.plan().is_current:
            yield str(db.plan())


def test_review_05_five_releases_follow_each_other_beside_writers_and_readers(tmp_path):
    path = str(tmp_path / "app.db")
    done = evolved(path)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    for name, told in result["met"].items():
        print(f"{name}: {told}")
    assert result["plans"] == PLANS
    assert list(faults_of(path, result["met"])) == []


@pytest.mark.soak
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_library_without_one_of_its_rules_does_not_get_through_the_evolution(tmp_path, mutant):
    path = str(tmp_path / "app.db")
    done = evolved(path, mutant)
    if done.returncode:
        print(done.stderr)
        return  # a process has met what no release may meet
    found = list(faults_of(path, json.loads(done.stdout)["met"]))
    print(*found, sep="\n")
    assert found
