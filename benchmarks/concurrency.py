"""How many commits a second many tasks reach together, beside one task alone.

Rules of this module: every task changes a record of its own, so they compete for the store and not for a record; the
whole is checked afterwards. One task and many take turns several times in a round, each turn a pair of its own: a
commit waits for the disk, and with one long part of each a few slow syncs would fall on one side and decide the ratio.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.columns.registry import Column
from benchmarks.processes import WorkerProcess
from benchmarks.results import Sample
from benchmarks.rounds import Contestant, dumped
from benchmarks.workload import Operations, Truth, Workload, drawn

TASKS = 1_000
PAIRS = 3
"""How often one task and many take turns in a round."""
ALONE = 100
"""Updates of the one task in each turn; one after another they are slow."""


def measure(
    columns: Sequence[Column], rounds: int, tasks: int = TASKS, progress: Callable[[str], None] = print
) -> dict[str, dict[str, list[Sample]]]:
    """One task, then many, in turns; seconds and commits of each pair."""
    workload = drawn(
        tasks, Operations(get=10, lists=1, page=1, scan=1, count=1, update=ALONE, insert=1, delete=1), parts=PAIRS
    )
    taken: dict[str, dict[str, list[Sample]]] = {column.name: {"one": [], "many": []} for column in columns}
    with tempfile.TemporaryDirectory(prefix="kvmodels-bench-") as name:
        path = dumped(workload, Path(name) / "main.json")
        for number in range(rounds):
            progress(f"concurrency {number + 1} of {rounds}")
            for column in columns:
                folder = Path(name) / f"{number}-{column.name}"
                folder.mkdir()
                with WorkerProcess(column) as process:
                    contestant = Contestant(column, process, folder, Truth(workload.users))
                    for one, many in compare(contestant, path, workload, number):
                        taken[column.name]["one"].append(one)
                        taken[column.name]["many"].append(many)
    return taken


def compare(contestant: Contestant, path: Path, workload: Workload, number: int) -> list[tuple[Sample, Sample]]:
    """The pairs of one column in one round."""
    process, truth = contestant.process, contestant.truth
    process.ask("load", path=str(path))
    contestant.open(contestant.folder)
    process.ask("bulk")
    keys = [user.id for user in workload.users]
    pairs: list[tuple[Sample, Sample]] = []
    for part, updates in enumerate(workload.arguments["update_plain"]):
        alone = process.ask("row", row="update_plain", seconds=float("inf"), part=part)
        truth.apply("update_plain", updates)
        names = [f"Task {key} of turn {part} of round {number}" for key in keys]
        together = process.ask("together", keys=keys, names=names)
        truth.apply("update_plain", list(zip(keys, names, strict=True)))
        pairs.append(([alone["seconds"], alone["done"]], [together["seconds"], len(keys)]))
    everything = process.ask("row", row="scan", seconds=60.0)
    contestant.expect("all records", everything["digest"], truth.answer("scan", [[]]))
    process.ask("close")
    return pairs
