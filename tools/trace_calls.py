"""Count the files that one warm call passes through.

Run ``python -m tools.trace_calls``: for each call it prints the number of distinct files of the package that execute
code, the number of calls, and how often execution changes from one file to another, returns included. With
``--path create`` it prints the path of one call, a line for each change of file.

Each call runs several times before it is traced, so that compiled plans and lazy imports are not counted.
``PYTHONPATH`` selects the package that is traced, so that two checkouts can be compared.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

import kvmodels
from kvmodels import Database, Field, Indexed, KvModel, PrimaryKey, Q, Unique, UniqueViolationError

PACKAGE: Final = str(Path(kvmodels.__file__).parent) + "/"
WARM_RUNS: Final = 5


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
                    print(f"{name:28} {trace.files():3} files {trace.calls:5} calls {len(trace.changes()):5} changes")


if __name__ == "__main__":
    main()
