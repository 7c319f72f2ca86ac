"""The command: measure everything, or a part, and write the page.

Rules of this module: arguments in, calls out. What is not measured in a run is kept from the last one, so that growth,
which takes long, need not be repeated with the rest. What the documentation shows is never written by a run that lacks
columns, nor made of other figures than those kept beside it.
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
from benchmarks.results import Results, machine, origin_now
from benchmarks.rounds import TURNS, Plan, measure
from benchmarks.rows import WRITES
from benchmarks.workload import drawn, in_turns

RESULTS = ROOT / "benchmarks" / "results.json"
DOCS = ROOT / "docs"
STARTED = time.monotonic()
USUAL = ("rows", "imports", "concurrency", "page")
DESCRIPTION = """Measure kvmodels beside hand-written code and other libraries, check every answer, and write the page
of the documentation. Parts that are not measured keep the figures of the last run."""
EPILOG = """A run with --columns needs --results and --docs (or only --results, if it writes no page), for example:
python -m benchmarks rows --columns kvmodels-memory floor-memory --rounds 3 --results /tmp/r.json"""


def say(text: str) -> None:
    """Progress, with the seconds since the beginning."""
    print(f"{time.monotonic() - STARTED:7.1f} s  {text}", flush=True)


def positive(text: str) -> int:
    """A number of records or rounds."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 is needed, not {text!r}")
    return int(text)


def part_of_a_name(text: str) -> str:
    """A word that chooses at least one column."""
    if not any(text in name for name in COLUMNS):
        raise argparse.ArgumentTypeError(f"no column has {text!r} in its name; the columns are {', '.join(COLUMNS)}")
    return text


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=DESCRIPTION, epilog=EPILOG)
    made.add_argument(
        "part",
        nargs="*",
        default="usual",  # Python 3.11 compares a default with the choices, an empty list as well
        choices=["usual", "rows", "imports", "concurrency", "growth", "page"],
        help="usual, which is the default, is all but growth; page measures nothing",
    )
    made.add_argument("--records", type=positive, default=20_000, help="in each store of the rows (20000)")
    made.add_argument("--rounds", type=positive, default=5, help="of each part (5)")
    words = "only columns whose names contain one of these"
    made.add_argument("--columns", type=part_of_a_name, nargs="+", default=[], help=words)
    sizes = list(growth.SIZES)
    made.add_argument("--sizes", type=positive, nargs="+", default=sizes, help="numbers of records of growth")
    made.add_argument("--results", type=Path, default=RESULTS, help="the file of figures, kept between runs")
    made.add_argument("--docs", type=Path, default=DOCS, help="the folder of the page and its assets")
    return made


def arguments(said: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, refused where it would spoil what the documentation shows."""
    asked = parser()
    given = asked.parse_args(said)
    parts = parts_of(given)
    own_results = given.results.resolve() == RESULTS.resolve()
    own_page = "page" in parts and given.docs.resolve() == DOCS.resolve()
    if given.columns and own_results and set(parts) != {"page"}:
        asked.error("a run with --columns would drop the figures of the other columns: name another file by --results")
    if given.columns and own_page:
        asked.error("the page of the documentation shows all columns: name another folder by --docs")
    if own_page and not own_results:
        asked.error("the page of the documentation shows the figures kept beside it: name another folder by --docs")
    if "growth" in parts and min(given.sizes) < given.rounds:
        asked.error("growth changes other records in each round: a size is smaller than the number of rounds")
    return given


def parts_of(given: argparse.Namespace) -> Sequence[str]:
    """Return the parts to run."""
    said = [given.part] if isinstance(given.part, str) else given.part
    return [*dict.fromkeys(part for word in said for part in (USUAL if word == "usual" else (word,)))]


def chosen(words: Sequence[str]) -> tuple[Column, ...]:
    """The columns that are meant."""
    return tuple(column for column in COLUMNS.values() if not words or any(word in column.name for word in words))


def installed(columns: Sequence[Column]) -> Sequence[Column]:
    """The same columns; a peer that is not installed is an error, not a gap in the table."""
    missing = [column.name for column in columns if not column.installed]
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)}\nInstall the extra `bench`, or choose with --columns.")
    return columns


def measure_parts(results: Results, given: argparse.Namespace, parts: Sequence[str]) -> None:
    """Measure, each part into its place."""
    columns = installed(chosen(given.columns))
    for part in parts:
        origin = origin_now(ROOT)
        if part == "rows":
            results.machine, results.records, results.rounds = machine(), given.records, given.rounds
            workload = in_turns(drawn(given.records), WRITES, TURNS)
            results.figures = measure(Plan(tuple(columns), workload, rounds=given.rounds, progress=say))
        elif part == "imports":
            say("imports")
            results.imports = imports.measure(imports.needed_by(columns), 2 * given.rounds + 1)
        elif part == "concurrency":
            tasks = [column for column in columns if column.family == "kvmodels async"]
            results.concurrency = concurrency.measure(tasks, given.rounds, progress=say)
        else:
            stores = [column for column in columns if growth.grows(column)]
            results.growth = growth.measure(stores, given.sizes, given.rounds, progress=say)
        results.measured[part] = origin


def main(said: Sequence[str] | None = None) -> None:
    """Measure and write."""
    given = arguments(said)
    parts = parts_of(given)
    measured = [part for part in ("rows", "imports", "concurrency", "growth") if part in parts]
    if not measured and not given.results.exists():
        raise SystemExit(f"there are no figures in {given.results}: measure first, or name them by --results")
    results = Results.load(given.results) if given.results.exists() else Results()
    if measured:
        with cores_awake():
            measure_parts(results, given, measured)
        results.save(given.results)
        results = Results.load(given.results)  # the page is made of what is kept, by this run and by every later one
        say(f"wrote {given.results}")
    if "page" in parts:
        for path in page.write(results.of_columns(chosen(given.columns)), given.docs):
            say(f"wrote {path}")
    else:
        print(page.summary(results, measured))
        say(f"for ratios and charts: python -m benchmarks page --results {given.results} --docs FOLDER")


if __name__ == "__main__":
    main()
