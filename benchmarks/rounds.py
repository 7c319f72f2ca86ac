"""The rounds: in each, every column starts anew in a process and a folder of its own, and the columns take turns.

Rules of this module: row by row, all columns one after another, so that a machine which slows down slows all of them;
only one process works at a time. Every answer is checked, and a wrong one ends the run: a fast wrong answer is worth
nothing.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.columns.registry import Column
from benchmarks.measuring import folder_bytes
from benchmarks.processes import WorkerProcess
from benchmarks.results import Figures, Sample
from benchmarks.rows import CALLED, READS, ROWS
from benchmarks.workload import BATCH, COLOURS, CONTENDERS, PAGE, Operations, Truth, User, Workload, drawn

WARM = drawn(300, Operations(get=300, lists=1, page=50, count=200, scan=1, update=100, insert=50, delete=50), seed=1)
WARM_SECONDS = 0.1
ROOM_BATCHES = 5
OPENINGS = 25
TURNS = 5
"""Turns of a row of single writes in a round: a disk has better and worse seconds."""


class WrongAnswerError(AssertionError):
    """A column returned something else than what is stored."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    columns: tuple[Column, ...]
    workload: Workload
    rounds: int = 5
    rounds_of_processes: int = 3
    """Four further processes for each column take long to start, so only the first rounds have them."""
    row_seconds: float = 0.5
    increments: int = 200_000
    """More than fit into the time of a row, so that the contenders are busy at the same time from first to last."""
    progress: Callable[[str], None] = print


class Asked(Protocol):
    """The process that answers requests about a column."""

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        ...


@dataclass(slots=True)
class Contestant:
    """A column in one round."""

    column: Column
    process: Asked
    folder: Path
    truth: Truth
    figures: dict[str, Sample | None] = field(default_factory=dict)

    def expect(self, what: str, got: object, expected: object) -> None:
        """Refuse a wrong answer."""
        if got != expected:
            raise WrongAnswerError(f"{self.column.name}: {what}: {got!r} instead of {expected!r}")

    def open(self, folder: Path, key: int | None = None) -> float:
        """Open the store of a folder."""
        request = {"folder": str(folder), "durability": self.column.durability, "key": key}
        return float(self.process.ask("open", **request)["seconds"])


def dumped(workload: Workload, path: Path) -> Path:
    """The workload as a file that workers load."""
    text = json.dumps({"users": workload.users, "arguments": workload.arguments, "batch": BATCH, "page": PAGE})
    path.write_text(text, encoding="utf-8")
    return path


def measure(plan: Plan) -> Figures:
    """All rounds; row, column, round."""
    figures: Figures = {row.name: {column.name: [] for column in plan.columns} for row in ROWS if row.name != "import"}
    with tempfile.TemporaryDirectory(prefix="kvmodels-bench-") as name:
        folder = Path(name)
        warm, main = dumped(WARM, folder / "warm.json"), dumped(plan.workload, folder / "main.json")
        for number in range(plan.rounds):
            plan.progress(f"round {number + 1} of {plan.rounds}")
            for contestant in one_round(plan, number, folder, (warm, main)):
                for row, by_column in figures.items():
                    by_column[contestant.column.name].append(contestant.figures.get(row))
    return figures


def one_round(plan: Plan, number: int, folder: Path, workloads: tuple[Path, Path]) -> Sequence[Contestant]:
    """Every column through every row once."""
    # Turned about, so that nobody always follows the same neighbour.
    turned = number % len(plan.columns)
    columns = (*plan.columns[turned:], *plan.columns[:turned])
    with ExitStack() as stack:
        contestants = []
        for column in columns:
            place = folder / f"{number}-{column.name}"
            place.mkdir()
            stack.callback(shutil.rmtree, place)
            process = stack.enter_context(WorkerProcess(column))
            contestants.append(Contestant(column, process, place, Truth(plan.workload.users)))
        run_rows(contestants, workloads, plan, number)
    return contestants


def run_rows(contestants: Sequence[Contestant], workloads: tuple[Path, Path], plan: Plan, number: int = 0) -> None:
    """All rows of one round, the columns taking turns."""
    for contestant in contestants:
        warm_up(contestant, workloads[0])
    plan.progress("  bulk")
    for contestant in contestants:
        fill(contestant, workloads[1], plan)
    for row in CALLED:
        if row == "delete":
            plan.progress("  contended updates")
            contend(contestants, plan, number)
        plan.progress(f"  {row}")
        run_in_turns(contestants, row, plan)
    for contestant in contestants:
        finish(contestant, plan)


def warm_up(contestant: Contestant, path: Path) -> None:
    """Every kind of call on a small store, so that nothing is measured that happens once in a process."""
    place = contestant.folder / "warm"
    place.mkdir()
    contestant.process.ask("load", path=str(path))
    contestant.open(place)
    contestant.process.ask("bulk")
    for row in CALLED:
        contestant.process.ask("row", row=row, seconds=WARM_SECONDS)
    contestant.process.ask("close")


def fill(contestant: Contestant, path: Path, plan: Plan) -> None:
    """Open an empty store and insert all records; what memory they take."""
    place, room = contestant.folder / "store", contestant.folder / "room"
    place.mkdir()
    room.mkdir()
    process = contestant.process
    process.ask("load", path=str(path))
    # The room that batches need on their way is not memory for the records: it is taken before.
    contestant.open(room)
    process.ask("bulk", batches=ROOM_BATCHES)
    process.ask("close")
    before = process.ask("memory")["bytes"]
    contestant.open(place)
    done = process.ask("bulk")
    contestant.figures["bulk"] = [done["seconds"], len(plan.workload.users)]
    contestant.figures["memory"] = [max(0.0, (process.ask("memory")["bytes"] - before) / 1e6), 1]


def run_in_turns(contestants: Sequence[Contestant], row: str, plan: Plan) -> None:
    """All parts of a row, the columns taking turns with each; what they took together."""
    turns = len(plan.workload.arguments[row])
    sums = [[0.0, 0] for _ in contestants]
    for part in range(turns):
        for contestant, total in zip(contestants, sums, strict=True):
            run_row(contestant, row, plan, part, turns=turns)
            seconds, units = contestant.figures[row] or (0.0, 0)
            total[0] += seconds
            total[1] += units
    for contestant, total in zip(contestants, sums, strict=True):
        contestant.figures[row] = total


def run_row(contestant: Contestant, row: str, plan: Plan, part: int = 0, *, turns: int = 1) -> None:
    """One part of a row of one column, checked."""
    done = contestant.process.ask("row", row=row, seconds=plan.row_seconds / turns, part=part)
    arguments = plan.workload.arguments[row][part][: done["done"]]
    if row in READS:
        contestant.expect(row, done["digest"], contestant.truth.answer(row, arguments))
    else:
        contestant.truth.apply(row, arguments)
    units = done["objects"] if row in ("list_colour", "scan") else done["done"]
    contestant.figures[row] = [done["seconds"], units]


def contend(contestants: Iterable[Contestant], plan: Plan, number: int) -> None:
    """Four threads, then four processes, increment the age of one user; no increment may be lost."""
    for contestant in contestants:
        if contestant.column.threads:
            request = {"key": 1, "seconds": plan.row_seconds, "loops": CONTENDERS, "most": plan.increments}
            done = contestant.process.ask("contend", **request)
            judge(contestant, "contend_threads", done["seconds"], done["done"])
        if contestant.column.processes and number < plan.rounds_of_processes:
            contend_in_processes(contestant, plan)


def contend_in_processes(contestant: Contestant, plan: Plan) -> None:
    """Four further processes of the column on its store."""
    request = {"key": 1, "seconds": plan.row_seconds, "loops": 1, "most": plan.increments}
    with ExitStack() as stack:
        others = [stack.enter_context(WorkerProcess(contestant.column)) for _ in range(CONTENDERS)]
        store = {"folder": str(contestant.folder / "store"), "durability": contestant.column.durability, "key": 1}
        for other in others:
            other.tell("open", **store)
        for other in others:
            other.answer()
        for other in others:
            other.tell("contend", **request)
        answers = [other.answer() for other in others]
        for other in others:
            other.ask("close")
    judge(
        contestant, "contend_processes", max(done["seconds"] for done in answers), sum(done["done"] for done in answers)
    )


def judge(contestant: Contestant, row: str, seconds: float, increments: int) -> None:
    """Record a contended row whose sum is exact."""
    contestant.truth.add_years(1, increments)
    contestant.expect(row, contestant.process.ask("age", key=1)["age"], contestant.truth.age(1))
    contestant.figures[row] = [seconds, increments]


def finish(contestant: Contestant, plan: Plan) -> None:
    """Compare the whole store with what must be in it, close it, and open it again."""
    truth, process = contestant.truth, contestant.process
    survivor = next(users[0] for users in truth.by_colour().values() if users)
    if contestant.column.unique:
        taken = User(len(plan.workload.users) * 10, "Impostor", survivor.email, COLOURS[0], 30, "")
    else:
        taken = survivor
    owners = truth.owners(plan.workload)
    found = process.ask("verify", taken=taken, colours=COLOURS, emails=list(owners))
    everything = truth.answer("scan", [[]])
    contestant.expect("all records", found["scan"], everything)
    contestant.expect("records by index", found["colours"], everything)
    contestant.expect("counts", found["counts"], truth.answer("count", [[colour] for colour in COLOURS]))
    contestant.expect("records by unique index", found["keys"], list(owners.values()))
    contestant.expect("a taken address is refused", found["refused"], True)
    process.ask("close")
    if contestant.column.durability == "memory":
        return
    place = contestant.folder / "store"
    contestant.figures["disk"] = [folder_bytes(place) / 1e6, 1]
    request = {"folder": str(place), "durability": contestant.column.durability, "key": survivor.id}
    opened = [seconds * 1000 for seconds in process.ask("reopen", times=OPENINGS, **request)["seconds"]]
    contestant.figures["first_open"] = [opened[0], 1]
    contestant.figures["open"] = [statistics.median(opened), 1]
