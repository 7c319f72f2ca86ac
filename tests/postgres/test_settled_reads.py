"""Every caller above the engine whose read becomes a delivery, a position or a refusal, and how it is durable.

A read of PostgreSQL may show a commit that a crash can still remove. A new caller of these functions fails this test
until its line says why nothing that can be lost leaves it as if it were final.
"""

from __future__ import annotations

import ast
from pathlib import Path

FLOWS = Path(__file__).parent.parent.parent / "kvmodels" / "flows"

CALLERS = {
    "wait_for_commit": {
        # The engine reports the newest durable version.
        "kv/leases.py:wait",
        "kv/watch.py:_begin_listing",
        "kv/watch.py:_wait_for_commit",
    },
    "read_changes": {
        # The engine waits until the state that it has read is durable.
        "feeds/changed_since.py:_changes",
        "kv/record_watch.py:_look",
        "kv/watch.py:_begin_listing",
        "kv/watch.py:_look",
    },
    "Settle": {
        # What a watch or a feed delivers of a plain read, and what a flow refuses by one.
        "feeds/changed_since.py:_read",
        "kv/watch.py:_is_durable",
        "settling.py:require_durable_reads",
        "settling.py:with_durable_refusals",
    },
    "require_durable_reads": {
        # A write that is refused by what it has read, or that has nothing to do.
        "history/restoring.py:restore",
        "writing/attempt.py:_attempts",
    },
    "_is_durable": {
        # The watch of keys, and the listing at the beginning of a watch of a range.
        "kv/watch.py:_durable",
        "kv/watch.py:_look",
    },
}


def callers() -> dict[str, set[str]]:
    """Return the functions that call each function of ``CALLERS``, with their modules."""
    found = {name: set[str]() for name in CALLERS}
    for path in FLOWS.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(function, ast.FunctionDef):
                for one in ast.walk(function):
                    if isinstance(one, ast.Call):
                        name = one.func.id if isinstance(one.func, ast.Name) else getattr(one.func, "attr", "")
                        if name in found:
                            found[name].add(f"{path.relative_to(FLOWS)}:{function.name}")
    return found


def test_each_caller_whose_read_may_become_final_is_known():
    assert callers() == CALLERS
