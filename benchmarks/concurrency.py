"""How many commits a second many tasks reach together, beside one task alone.

A commit is measured in two ways: the patch of a record, which reads it, validates it and writes it, and ``kv.set`` of
one key, which is a commit and nothing else.

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
from benchmarks.workload import Operations, Truth, Workload, digest, drawn

TASKS = 1_000
PAIRS = 3
"""How often one task and many take turns in a round."""
KINDS = ("one", "many", "one set", "many sets")
"""The samples of a turn: patches by one task and by many, and the same of ``kv.set``."""
ALONE = 100
"""Updates of the one task in each turn; one after another they are slow."""


def measure(
    columns: Sequence[Column], rounds: int, tasks: int = TASKS, progress: Callable[[str], None] = print
) -> dict[str, dict[str, list[Sample]]]:
    """One task, then many, in turns; seconds and commits of each pair."""
    workload = drawn(
        tasks, Operations(get=10, lists=1, page=1, scan=1, count=1, update=ALONE, insert=1, delete=1), parts=PAIRS
    )
    taken: dict[str, dict[str, list[Sample]]] = {column.name: {kind: [] for kind in KINDS} for column in columns}
    with tempfile.TemporaryDirectory(prefix="kvmodels-bench-") as name:
        path = dumped(workload, Path(name) / "main.json")
        for number in range(rounds):
            progress(f"concurrency {number + 1} of {rounds}")
            for column in columns:
                folder = Path(name) / f"{number}-{column.name}"
                folder.mkdir()
                with WorkerProcess(column) as process:
                    contestant = Contestant(column, process, folder, Truth(workload.users))
                    for samples in compare(contestant, path, workload, number):
                        for kind, sample in zip(KINDS, samples, strict=True):
                            taken[column.name][kind].append(sample)
    return taken


def compare(contestant: Contestant, path: Path, workload: Workload, number: int) -> list[tuple[Sample, ...]]:
    """The turns of one column in one round, each with a sample of every kind."""
    process, truth = contestant.process, contestant.truth
    process.ask("load", path=str(path))
    contestant.open(contestant.folder)
    process.ask("bulk")
    keys = [user.id for user in workload.users]
    turns: list[tuple[Sample, ...]] = []
    for part, updates in enumerate(workload.arguments["update_plain"]):
        alone = process.ask("row", row="update_plain", seconds=float("inf"), part=part)
        truth.apply("update_plain", updates)
        names = [f"Task {key} of turn {part} of round {number}" for key in keys]
        together = process.ask("together", keys=keys, names=names)
        truth.apply("update_plain", list(zip(keys, names, strict=True)))
        patches: tuple[Sample, Sample] = [alone["seconds"], alone["done"]], [together["seconds"], len(keys)]
        turns.append((*patches, *compare_sets(contestant, keys, names)))
    everything = process.ask("row", row="scan", seconds=60.0)
    contestant.expect("all records", everything["digest"], truth.answer("scan", [[]]))
    process.ask("close")
    return turns


def compare_sets(contestant: Contestant, keys: Sequence[int], names: Sequence[str]) -> tuple[Sample, Sample]:
    """One task, then many, with ``kv.set`` in the place of a patch."""
    process = contestant.process
    alone = process.ask("alone", keys=keys[:ALONE], names=names[:ALONE], call="put")
    together = process.ask("together", keys=keys, names=names, call="put")
    contestant.expect("all keys", process.ask("got", keys=keys)["digest"], digest(names))
    return [alone["seconds"], alone["done"]], [together["seconds"], len(keys)]
