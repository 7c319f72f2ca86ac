"""The command: measure everything, or a part, and write the page.

Rules of this module: arguments in, calls out. What is not measured in a run is kept from the last one, so that growth,
which takes long, need not be repeated with the rest.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import concurrency, growth, imports, page
from benchmarks.columns.registry import COLUMNS, Column
from benchmarks.measuring import cores_awake
from benchmarks.processes import ROOT
from benchmarks.results import Results, machine
from benchmarks.rounds import Plan, measure
from benchmarks.workload import drawn

RESULTS = ROOT / "benchmarks" / "results.json"
STARTED = time.monotonic()


def say(text: str) -> None:
    """Progress, with the seconds since the beginning."""
    print(f"{time.monotonic() - STARTED:7.1f} s  {text}", flush=True)


def arguments(said: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "part",
        nargs="*",
        default="usual",  # Python 3.11 compares a default with the choices, an empty list as well
        choices=["usual", "rows", "imports", "concurrency", "growth", "page"],
        help="usual, which is the default, is all but growth",
    )
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--columns", nargs="*", default=[], help="only columns whose names contain one of these")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(growth.SIZES), help="of growth")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of figures")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where the page is written")
    return parser.parse_args(said)


def chosen(words: Sequence[str]) -> tuple[Column, ...]:
    """The columns of a run; a peer that is not installed is an error, not a gap in the table."""
    columns = [column for column in COLUMNS.values() if not words or any(word in column.name for word in words)]
    missing = [column.name for column in columns if not column.installed]
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)}\nInstall the extra `bench`, or choose with --columns.")
    return tuple(columns)


def main() -> None:
    """Measure and write."""
    given = arguments()
    parts = ["rows", "imports", "concurrency", "page"] if "usual" in given.part else given.part
    results = Results.load(given.results) if given.results.exists() else Results()
    columns = chosen(given.columns)
    with cores_awake():
        if "rows" in parts:
            results.machine, results.records, results.rounds = machine(), given.records, given.rounds
            results.figures = measure(Plan(columns, drawn(given.records), rounds=given.rounds, progress=say))
        if "imports" in parts:
            say("imports")
            results.imports = imports.measure(imports.EVERYTHING, 2 * given.rounds + 1)
        if "concurrency" in parts:
            tasks = [column for column in columns if column.family == "kvmodels async"]
            results.concurrency = concurrency.measure(tasks, given.rounds, progress=say)
        if "growth" in parts:
            stores = [column for column in columns if column.family == "kvmodels" and column.durability != "commit"]
            results.growth = growth.measure(stores, given.sizes, given.rounds, progress=say)
    results.save(given.results)
    if "page" in parts:
        for path in page.write(results, given.docs):
            say(f"wrote {path}")


if __name__ == "__main__":
    main()
