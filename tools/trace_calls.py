"""Count the files that one warm call passes through, and the bytecode instructions that it executes.

Run ``python -m tools.trace_calls``: for each call it prints the number of distinct files of the package that execute
code, the number of calls, how often execution changes from one file to another, returns included, and the number of
bytecode instructions. With ``--path create`` it prints the path of one call, a line for each change of file.

Instructions are those of every Python function that the call executes in its own thread, of other packages too. On a
shared machine the time of a call differs by a tenth from run to run; its instructions do not differ at all.

Each call runs several times before it is traced, so that compiled plans and lazy imports are not counted.
``PYTHONPATH`` selects the package that is traced, so that two checkouts can be compared.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import kvmodels
from kvmodels import Database, Field, Indexed, KvModel, PrimaryKey, Q, Unique, UniqueViolationError

PACKAGE: Final = str(Path(kvmodels.__file__).parent) + "/"
WARM_RUNS: Final = 5

BULK: Final = 20
"""The number of records of the traced bulk write."""


class User(KvModel, collection="users"):
    """The model of the traced calls: a key, a unique field, an index and a plain field."""

    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    name: str = Field(default="")


class Trace:
    """The files and functions of one call, in order of execution."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []
        self.calls = 0

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call or a return; for ``sys.setprofile``."""
        if event == "call":
            self._enter(frame, called=True)
        elif event == "return" and frame.f_back is not None:
            self._enter(frame.f_back, called=False)

    def _enter(self, frame: FrameType, *, called: bool) -> None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            self.calls += called
            self.steps.append((code.co_filename.removeprefix(PACKAGE), code.co_qualname))

    def files(self) -> int:
        """Return the number of distinct files."""
        return len({file for file, _ in self.steps})

    def changes(self) -> list[tuple[str, str]]:
        """Return the first step in each run of steps in one file."""
        changes: list[tuple[str, str]] = []
        for step in self.steps:
            if not changes or changes[-1][0] != step[0]:
                changes.append(step)
        return changes


def traced(call: Callable[[], object]) -> Trace:
    """Run a call and return its trace."""
    trace = Trace()
    sys.setprofile(trace.note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return trace


class _Instructions:
    """The number of bytecode instructions that a call executes."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, call: Callable[[], object]) -> None:
        """Run a call and count; from Python 3.12 on a trace misses the first run of a function."""
        before = sys.gettrace()
        sys.settrace(self.enter)
        try:
            call()
        finally:
            sys.settrace(before)

    if sys.version_info >= (3, 12):

        def monitor(self, call: Callable[[], object]) -> None:
            """Run a call and count."""
            tool, events = sys.monitoring, sys.monitoring.events
            tool.use_tool_id(tool.PROFILER_ID, "instructions")
            tool.register_callback(tool.PROFILER_ID, events.INSTRUCTION, self._executed)
            tool.set_events(tool.PROFILER_ID, events.INSTRUCTION)
            try:
                call()
            finally:
                tool.set_events(tool.PROFILER_ID, 0)
                tool.free_tool_id(tool.PROFILER_ID)

        def _executed(self, code: CodeType, offset: int) -> None:
            del code, offset
            self.count += 1

    def enter(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        """Count the instructions of a function that is called; for ``sys.settrace``."""
        if event != "call":
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        del frame
        self.count += event == "opcode"
        return self._step


def instructions(call: Callable[[], object]) -> int:
    """Run a call and return the number of bytecode instructions that it executes."""
    counted = _Instructions()
    collecting = gc.isenabled()
    gc.disable()  # a finaliser of other objects would be counted
    try:
        if sys.version_info >= (3, 12):
            counted.monitor(call)
        else:
            counted.trace(call)
    finally:
        if collecting:
            gc.enable()
    return counted.count


def calls(db: Database) -> dict[str, Callable[[], object]]:
    """Return the traced calls by name, over a store with 20 users."""
    users = db[User]
    keys = iter(range(1000, 10_000))
    users.bulk_create([User(id=n, email=f"{n}@x", color="red" if n % 2 else "blue", name="n") for n in range(20)])

    def create() -> object:
        key = next(keys)
        return users.create(id=key, email=f"{key}@x", color="green", name="n")

    def taken() -> None:
        try:
            users.create(id=next(keys), email="1@x", color="green", name="n")
        except UniqueViolationError:
            return
        raise AssertionError("the value is taken")

    def transaction() -> None:
        with db.transaction() as tx:
            key = next(keys)
            tx[User].create(id=key, email=f"{key}@x", color="green", name="n")

    def bulk() -> object:
        some = [next(keys) for _ in range(BULK)]
        return users.bulk_create([User(id=key, email=f"{key}@x", color="green", name="n") for key in some])

    names: Iterator[int] = iter(range(10_000))
    return {
        "create": create,
        "create, value taken": taken,
        "get(key)": lambda: users.get(3),
        "get(email=)": lambda: users.get(email="3@x"),
        "list of filter and order": lambda: list(users.filter(color="red").order_by("id")),
        "query with |": lambda: list(users.filter(Q(color="red") | Q(email="2@x"))),
        "patch": lambda: users.patch(3, name=f"name {next(names)}"),
        "transaction with a create": transaction,
        "bulk_create": bulk,
        "kv.atomic().set().commit()": lambda: db.kv.atomic().set(("counter", 1), 1).commit(),
    }


def main(arguments: list[str] | None = None) -> None:
    """Print the table, or the path of one call."""
    parser = argparse.ArgumentParser(description="Count the files that one call passes through.")
    parser.add_argument("--engine", choices=("sqlite", "memory"), default="sqlite")
    parser.add_argument("--path", metavar="CALL", help="print the path of this call")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/trace.db" if options.engine == "sqlite" else "memory://"
        with Database(store, models=[User]) as db:
            for name, call in calls(db).items():
                if options.path not in {None, name}:
                    continue
                for _ in range(WARM_RUNS):
                    call()
                trace = traced(call)
                if options.path:
                    print("\n".join(f"{file}: {function}" for file, function in trace.changes()))
                else:
                    print(
                        f"{name:28} {trace.files():3} files {trace.calls:5} calls {len(trace.changes()):5} changes "
                        f"{instructions(call):6} instructions"
                    )


if __name__ == "__main__":
    main()
