"""Old and new code through a whole evolution, each release in processes of its own beside the one before."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from kvmodels import Database
from tests.engines.processes import ROOT
from tests.evolution.cast import FIXED, MOVING, Upgraded
from tests.oracle import audit, read_store, spec_of


def test_review_05_five_releases_follow_each_other_beside_writers_and_readers(tmp_path):
    path = str(tmp_path / "app.db")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.evolution.cast", path, "7"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    met = result["met"]
    for name, told in met.items():
        print(f"{name}: {told}")
    assert result["plans"] == [
        ["field_added", "index_added"],
        ["index_changed"],
        ["index_undeclared"],
        ["schema_version_raised", "index_outdated", "records_outdated"],
    ]
    assert all(told for name, told in met.items() if name.endswith("applied"))
    # Nothing too few, ever: what could not be answered raised a typed error.
    faults = {name: told for name, told in met.items() if any(key[:5] in ("WRONG", "LOST ") for key in told_keys(told))}
    assert faults == {}
    assert all(told["right"] > 0 for name, told in met.items() if name.endswith("read"))
    # Old code was stopped by a typed error wherever it could not keep what the new one has.
    for release in ("First", "NewIndex", "DroppedIndex"):
        assert met[f"{release} write"]["refused"] == 1
    assert met["DroppedIndex before"] == met["Upgraded before"] == {"refused": 1}
    assert "refused" not in met["ChangedIndex write"]
    assert met["ChangedIndex read"].get("not ready: color", 0) > 0
    assert met["Upgraded read"].get("not ready: email", 0) > 0
    assert met["DroppedIndex read"].get("not ready: email", 0) > 0
    assert met["DroppedIndex read"].get("of a newer version", 0) > 0

    written = sum(told.get("written", 0) for name, told in met.items() if name.endswith("write"))
    with Database(path, models=[Upgraded], require_current=True) as db:
        members = db[Upgraded].all().to_list()
        assert len(members) == MOVING + len(FIXED)
        # No visit is lost and none is counted twice, and each record was upgraded once.
        assert sum(one.visits for one in members) == written + 1_000 * len(members)
        # A plan that was once given is there, whoever has rewritten the record since.
        given = {key for told in met.values() for key in told_keys(told) if key.startswith("plan-")}
        assert {one.plan for one in members} - {"free"} == given
        assert given
        assert all(one.email == f"m{one.id}@x.org" for one in members)
        assert audit(read_store(db.kv), [spec_of(Upgraded)]) == []
        assert db.check().ok
        assert db.plan().is_current


def told_keys(told: Any) -> list[str]:
    return list(told) if isinstance(told, dict) else []
