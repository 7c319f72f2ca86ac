"""One call passes through few files and executes few instructions, within the bounds below.

``python -m tools.trace_calls`` prints the table.
"""

from __future__ import annotations

import sys

import pytest

from kvmodels import AggregateIndex, Database, Index, KvModel, PrimaryKey, Q, Unique
from kvmodels.schema.declare.declarations import DeclaredIndex
from tests.write_costs import fewest_instructions, instructions_of_writes
from tools.trace_calls import User, calls, instructions, traced

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
    "bulk_create": (30, 143),
    "kv.atomic().set().commit()": (22, 60),
}

# Bytecode instructions on SQLite, in Python 3.11, as pytest counts them: those of November 2026, and three in a hundred
# more. A transaction looks for the frame of its caller, so it executes more below pytest.
MOST_INSTRUCTIONS = {
    "create": 2546,
    "create, value taken": 9060,
    "get(key)": 400,
    "get(email=)": 473,
    "list of filter and order": 2767,
    "query with |": 19990,
    "patch": 2544,
    "transaction with a create": 10680,
    "bulk_create": 11114,
    "kv.atomic().set().commit()": 1531,
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


@pytest.mark.fast_kinds
def test_no_call_executes_more_instructions_than_its_bound(db: Database):
    found: dict[str, int] = {}
    for name, call in calls(db).items():
        for _ in range(5):
            call()
        found[name] = instructions(call)
    assert found.keys() == MOST_INSTRUCTIONS.keys()
    above = {name: count for name, count in found.items() if count > MOST_INSTRUCTIONS[name] * OF_THIS_PYTHON}
    assert not above


# The bounds are those of Python 3.11; later ones compile some calls to a few instructions more.
OF_THIS_PYTHON = 1 if sys.version_info < (3, 12) else 1.05

# Instructions on memory of a create, and of a patch of a field that the index does not need, by those of a plain index.
MOST_OF_KINDS = {
    "partial": (1.3, 1.1),
    "several values": (1.4, 1.1),
    "covering": (1.3, 1.1),
    "aggregate": (1.45, 1.1),
}


def counted_with(index: DeclaredIndex) -> tuple[int, int]:
    """Return the instructions of a create, and of a patch of another field, with one index besides a unique field."""

    class Item(KvModel, collection="items"):
        id: PrimaryKey[int]
        code: Unique[str]
        color: str = "green"
        tags: list[str] = ["a", "b"]
        size: int = 5
        note: str = ""

        class Meta:
            indexes = (index,)

    return instructions_of_writes(Item)


@pytest.mark.fast_kinds
def test_an_index_that_is_not_plain_costs_a_write_little_and_a_patch_of_other_fields_nothing():
    plain = counted_with(Index("color"))
    kinds = {
        "partial": Index("color", where=Q(size__gt=1)),
        "several values": Index("tags"),
        "covering": Index("color", include=("size",)),
        "aggregate": AggregateIndex("color", sums=("size",)),
    }
    for name, index in kinds.items():
        for found, before, most in zip(counted_with(index), plain, MOST_OF_KINDS[name], strict=True):
            assert found <= before * most, name


def test_the_count_of_instructions_grows_with_the_work():
    def work(times: int) -> int:
        return fewest_instructions(lambda: [number + 1 for number in range(times)])

    none, some, twice = work(0), work(1_000), work(2_000)
    assert some - none > 3_000
    assert abs((twice - some) - (some - none)) <= 5


def test_the_trace_counts_files_and_changes_with_returns():
    with Database("memory://", models=[User]) as opened:
        trace = traced(lambda: opened.kv)
    database, core = "api/_sync/database.py", "api/core.py"
    assert [file for file, _ in trace.changes()] == [database, core, database]
    assert trace.files() == 2
