"""The cost of an operation as a store grows: the same rows at 10,000, 100,000 and 1,000,000 records.

Rules of this module: the stores of all sizes are filled first and then take turns, row by row; a part deletes what it
has inserted, so they keep their size.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.columns.registry import Column
from benchmarks.processes import WorkerProcess
from benchmarks.results import Figures, Sample
from benchmarks.rounds import WARM, Contestant, Plan, dumped, fill, run_row, warm_up
from benchmarks.workload import Operations, Truth, drawn

SIZES = (10_000, 100_000, 1_000_000)
ROWS = ("get", "get_by_email", "page", "update_indexed", "insert", "delete")
"""Rows whose work does not grow with the store."""
OPERATIONS = Operations(get=20_000, lists=0, page=100, scan=0, count=0, update=300, insert=300)
Growth = dict[str, Figures]
"""Number of records, row, column, round."""


def grows(column: Column) -> bool:
    """Whether a column is measured: kvmodels on each engine, and beside its memory engine what a dict itself does."""
    if column.family == "floor":
        return column.engine == "memory"
    return column.family == "kvmodels" and column.durability != "commit"


def measure(
    columns: Sequence[Column],
    sizes: Sequence[int] = SIZES,
    rounds: int = 5,
    progress: Callable[[str], None] = print,
) -> Growth:
    """All sizes of one column after another; one column at a time, because of the memory that they take."""
    grown: Growth = {str(size): {row: {} for row in ROWS} for size in sizes}
    workloads = {size: drawn(size, OPERATIONS, parts=rounds, returning=True) for size in sizes}
    with tempfile.TemporaryDirectory(prefix="kvmodels-bench-") as name:
        folder = Path(name)
        warm = dumped(WARM, folder / "warm.json")
        paths = {size: dumped(workload, folder / f"{size}.json") for size, workload in workloads.items()}
        for column in columns:
            plans = {size: Plan((column,), workload, row_seconds=5.0) for size, workload in workloads.items()}
            with ExitStack() as stack:
                contestants: dict[int, Contestant] = {}
                for size, plan in plans.items():
                    progress(f"growth: {column.name}, {size:,} records")
                    place = folder / f"{size}-{column.name}"
                    place.mkdir()
                    process = stack.enter_context(WorkerProcess(column))
                    contestants[size] = Contestant(column, process, place, Truth(plan.workload.users))
                    warm_up(contestants[size], warm)
                    fill(contestants[size], paths[size], plan)
                for part in range(rounds):
                    for row in ROWS:
                        for size, contestant in contestants.items():
                            run_row(contestant, row, plans[size], part)
                            taken: list[Sample | None] = grown[str(size)][row].setdefault(column.name, [])
                            taken.append(contestant.figures[row])
    return grown
