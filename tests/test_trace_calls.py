"""One call passes through few files: ``python -m tools.trace_calls`` prints the table, and these are its bounds."""

from __future__ import annotations

import pytest

from kvmodels import Database
from tools.trace_calls import User, calls, traced

# Files, and changes from one file to another; a change that needs more explains why in its design note.
BOUNDS = {
    "create": (24, 90),
    "create, value taken": (44, 267),
    "get(key)": (9, 17),
    "get(email=)": (8, 17),
    "list of filter and order": (27, 100),
    "query with |": (39, 470),
    "patch": (24, 90),
    "transaction with a create": (52, 333),
    "kv.atomic().set().commit()": (22, 60),
}


@pytest.fixture
def db(tmp_path):
    with Database(tmp_path / "trace.db", models=[User]) as opened:
        yield opened


@pytest.mark.fast_kinds
def test_no_call_passes_through_more_files_than_its_bound(db: Database):
    found: dict[str, tuple[int, int]] = {}
    for name, call in calls(db).items():
        for _ in range(5):
            call()
        trace = traced(call)
        found[name] = trace.files(), len(trace.changes())
    assert found.keys() == BOUNDS.keys()
    for name, (files, changes) in found.items():
        assert files <= BOUNDS[name][0], name
        assert changes <= BOUNDS[name][1], name


def test_the_trace_counts_files_and_changes_with_returns():
    with Database("memory://", models=[User]) as opened:
        trace = traced(lambda: opened.kv)
    database, core = "api/_sync/database.py", "api/core.py"
    assert [file for file, _ in trace.changes()] == [database, core, database]
    assert trace.files() == 2
