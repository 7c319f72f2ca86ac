"""Every airport of the world in one file: load, query, refuse, fight, check. This is ``make demo``.

Rules of this module: a number that is printed was computed from the reopened file; what is wrong is collected in
``Demo.problems``, shown at the end, and makes the program end with 1. The source of truth is the package
``airportsdata``, which knows nothing of this library.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import airportsdata
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from kvmodels import (
    Database,
    Field,
    Index,
    Indexed,
    KvModel,
    KvModelsError,
    PrimaryKey,
    StaleObjectError,
    Unique,
    UniqueViolationError,
)

BATCH = 500
PROCESSES = 4
ROUNDS = 60
CONTESTED = ("LSZH", "EGLL", "KJFK", "RJTT")
ROWS_EACH = 6
"""A record and its entries in five indexes; an airport without an IATA code has an entry under None."""
INTERRUPTED = 130
"""The exit status that a shell reports for a program that Ctrl-C has ended."""


class Airport(KvModel, collection="airports"):
    """One airport; 20,414 of 28,298 have no IATA code, and None collides with nothing."""

    icao: PrimaryKey[str]
    iata: Unique[str | None] = Field(default=None)
    name: str
    city: Indexed[str]
    region: str
    country: Indexed[str]
    elevation: float
    latitude: float
    longitude: float
    time_zone: Indexed[str]
    visits: int = 0

    class Meta:
        indexes = (Index("country", "-elevation"),)


Writer = Callable[[str, int, int], int]
Source = Mapping[str, Mapping[str, Any]]


class Cost(NamedTuple):
    """How long one step took."""

    what: str
    amount: int
    unit: str
    seconds: float


def airport_of(row: Mapping[str, Any]) -> Airport:
    """The model of one row of airportsdata, in which an absent IATA code is an empty text."""
    return Airport(
        icao=row["icao"],
        iata=row["iata"] or None,
        name=row["name"],
        city=row["city"],
        region=row["subd"],
        country=row["country"],
        elevation=row["elevation"],
        latitude=row["lat"],
        longitude=row["lon"],
        time_zone=row["tz"],
    )


def city_after(city: str, visits: int) -> str:
    """Each visit turns the name of the city round, so that its index entry has to move every time."""
    return city[::-1] if visits % 2 else city


def visit(airport: Airport) -> None:
    """One update: a counter, and a field with an index on it."""
    airport.visits += 1
    airport.city = airport.city[::-1]


def visit_all(path: str, seed: int, rounds: int) -> int:
    """One process: visit each contested airport ``rounds`` times, in random order; returns how often it retried."""
    order = list(CONTESTED) * rounds
    random.Random(seed).shuffle(order)
    attempts = 0

    def counted(airport: Airport) -> None:
        nonlocal attempts
        attempts += 1
        visit(airport)

    with Database(path, models=[Airport]) as db:
        for icao in order:
            db[Airport].mutate(icao, counted)
    return attempts - len(order)


def table_of(*headings: str, numbers: int = 0) -> Table:
    """An empty table whose last ``numbers`` columns are aligned to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, heading in enumerate(headings):
        table.add_column(heading, justify="right" if position >= len(headings) - numbers else "left")
    return table


class Demo:
    """The steps of the demo on one store, in their order; ``problems`` says what is wrong."""

    def __init__(self, path: str | Path, source: Source, console: Console, writer: Writer = visit_all) -> None:
        self.path = path
        self.source = source
        self.console = console
        self.writer = writer
        self.problems: list[str] = []
        self.costs: list[Cost] = []

    def run(self, rounds: int = ROUNDS) -> int:
        """Every step; 0 if everything is right, else 1."""
        self.load()
        with self.opened() as db:
            self.compare(db)
            self.show_code(db, "ZRH")
            self.show_highest(db, "CH")
            self.walk_pages(db, "Europe/Zurich")
            self.refuse_duplicate(db)
            self.refuse_stale(db)
        self.fight(rounds)
        with self.opened() as db:
            self.check(db)
        self.show_costs()
        return self.verdict()

    # --- what the steps share ---------------------------------------------------------------------------------

    @contextmanager
    def opened(self) -> Iterator[Database]:
        """The file, opened again, as another program would."""
        with Database(self.path, models=[Airport]) as db:
            yield db

    @contextmanager
    def measured(self, what: str, amount: int, unit: str) -> Iterator[None]:
        """Note how long a step takes."""
        started = time.perf_counter()
        yield
        self.costs.append(Cost(what, amount, unit, time.perf_counter() - started))

    def expect(self, what: str, found: object, expected: object) -> None:
        """Note a problem if the file does not hold what it should."""
        if found != expected:
            self.problems.append(f"{what}: {found!r} in the file, {expected!r} expected")

    def say(self, title: str, code: str = "") -> None:
        """The heading of a step, and the call that answers it."""
        self.console.print()
        self.console.print(Text(title, style="bold"))
        if code:
            self.console.print(Text(f"  {code}", style="cyan"))

    def show(self, table: Table, remark: str = "") -> None:
        """A table, and a remark below it."""
        self.console.print(Padding(table, (0, 0, 0, 2)))
        if remark:
            self.console.print(Text(f"  {remark}"))

    def show_error(self, error: KvModelsError) -> None:
        """An error as a user meets it."""
        panel = Panel(Text(str(error)), title=type(error).__name__, title_align="left", border_style="yellow")
        self.console.print(Padding(panel, (1, 2, 0, 2)))

    # --- the steps --------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Write every airport that is not there yet: all of them in the first run, none in the second."""
        with self.opened() as db:
            airports = db[Airport]
            there = airports.count()
            # A URL may contain a password.
            self.say("The store on the server" if "://" in str(self.path) else f"The file {self.path}")
            if there == len(self.source):
                self.console.print(f"  opened again: it holds {there:,} airports, there is nothing to load")
                return
            rows = [airport_of(row) for row in self.source.values()]
            columns = (TextColumn("  loading"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            with self.measured("load", len(rows), "airports"), Progress(*columns, console=self.console) as progress:
                task = progress.add_task("load", total=len(rows))
                for start in range(0, len(rows), BATCH):
                    batch = rows[start : start + BATCH]
                    airports.bulk_create(batch, on_conflict="ignore")
                    progress.advance(task, len(batch))

    def compare(self, db: Database) -> None:
        """Compare every record, and what each index finds for every value, with the source."""
        airports = db[Airport]
        with self.measured("read and validate", len(self.source), "airports"):
            stored = {airport.icao: airport for airport in airports.all()}
        for icao, row in self.source.items():
            expected = airport_of(row)
            if (found := stored.get(icao)) is not None:
                expected.visits = found.visits
                expected.city = city_after(expected.city, found.visits)
            self.expect(f"record {icao}", found, expected)
        self.say("Its contents, compared record by record with their source")
        table = table_of("", "in the file", "in the source", numbers=2)
        for what, count, expected_count in (
            ("airports", len(stored), len(self.source)),
            ("with an IATA code", *self.find_codes(db)),
            ("without one", airports.filter(iata=None).count(), sum(not row["iata"] for row in self.source.values())),
            ("countries", *self.count_values(db, "country", "country")),
            ("time zones", *self.count_values(db, "time_zone", "tz")),
        ):
            self.expect(what, count, expected_count)
            table.add_row(what, f"{count:,}", f"{expected_count:,}")
        self.show(table)

    def find_codes(self, db: Database) -> tuple[int, int]:
        """Find every airport that has an IATA code by it; how many were found, and how many there are."""
        airports, found = db[Airport], 0
        codes = {row["iata"]: row["icao"] for row in self.source.values() if row["iata"]}
        with self.measured("find by IATA code", len(codes), "airports"):
            for code, icao in codes.items():
                airport = airports.get_or_none(iata=code)
                self.expect(f"IATA code {code}", airport and airport.icao, icao)
                found += airport is not None
        return found, len(codes)

    def count_values(self, db: Database, field: str, column: str) -> tuple[int, int]:
        """Count each value of a field by its index; how many values were found, and how many there are."""
        found = 0
        values = Counter(row[column] for row in self.source.values())
        with self.measured(f"count by {field.replace('_', ' ')}", sum(values.values()), "index entries"):
            for value, expected in values.items():
                count = db[Airport].filter(**{field: value}).count()
                self.expect(f"{field} {value}", count, expected)
                found += count > 0
        return found, len(values)

    def show_code(self, db: Database, code: str) -> None:
        """Find one airport by its unique IATA code."""
        airport = db[Airport].get(iata=code)
        expected = next(row["icao"] for row in self.source.values() if row["iata"] == code)
        self.expect(f"IATA code {code}", airport.icao, expected)
        self.say(f"The airport with the IATA code {code}", f"airports.get(iata={code!r})")
        table = table_of("field", "value")
        for field, value in airport.model_dump().items():
            table.add_row(field.replace("_", " "), str(value))
        self.show(table)

    def show_highest(self, db: Database, country: str) -> None:
        """The highest airports of a country, read in this order from the compound index."""
        query = db[Airport].filter(country=country).order_by("-elevation")[:8]
        rows, plan = query.to_list(), query.explain()
        heights = sorted((r["elevation"] for r in self.source.values() if r["country"] == country), reverse=True)
        self.expect(f"highest airports of {country}", [airport.elevation for airport in rows], heights[:8])
        self.say(
            f"The highest airports of {country}", f"airports.filter(country={country!r}).order_by('-elevation')[:8]"
        )
        table = table_of("airport", "city", "ICAO", "IATA", "feet", numbers=1)
        for airport in rows:
            table.add_row(airport.name, airport.city, airport.icao, airport.iata or "", f"{airport.elevation:,.0f}")
        self.show(table, f"read from the index {plan.index}: at most {plan.estimated_reads} rows, entries and records")

    def walk_pages(self, db: Database, zone: str, size: int = 20) -> None:
        """Walk over a time zone page by page; each cursor could come back from a web client."""
        self.say(
            f"The time zone {zone}, page by page", f"airports.filter(time_zone={zone!r}).page(size={size}, after=…)"
        )
        table = table_of("page", "first", "last", "airports", numbers=1)
        seen: list[str] = []
        after: str | None = None
        number = 0
        while number == 0 or after is not None:
            page = db[Airport].filter(time_zone=zone).page(size=size, after=after)
            number += 1
            codes = [airport.icao for airport in page.items]
            table.add_row(str(number), *([codes[0], codes[-1]] if codes else ["", ""]), str(len(codes)))
            seen += codes
            after = page.next_cursor
        self.expect(f"pages of {zone}", seen, sorted(r["icao"] for r in self.source.values() if r["tz"] == zone))
        self.show(table, f"{len(seen)} airports on {number} pages, each exactly once")

    def refuse_duplicate(self, db: Database) -> None:
        """A second owner of an IATA code is refused, and nothing of it is stored."""
        airports = db[Airport]
        row = {**self.source["LSZH"], "icao": "ZZZZ", "name": "Another Zurich"}
        self.say("A second airport with the IATA code ZRH is refused", "airports.insert(another)")
        try:
            airports.insert(airport_of(row))
        except UniqueViolationError as error:
            self.show_error(error)
            self.expect("owner of ZRH", error.existing_key, airports.get(iata="ZRH").icao)
        else:
            self.problems.append("a duplicate IATA code was accepted")
        self.expect("the refused airport", airports.get_or_none("ZZZZ"), None)

    def refuse_stale(self, db: Database) -> None:
        """Saving an object that somebody else has changed meanwhile is refused."""
        airports = db[Airport]
        mine, theirs = airports.get("LSZB"), airports.get("LSZB")
        name = mine.name
        self.say("Saving what somebody else has changed meanwhile is refused", "airports.save(mine)")
        theirs.name = "Bern, renamed"
        airports.save(theirs)
        try:
            mine.name = "Bern, renamed too late"
            airports.save(mine)
        except StaleObjectError as error:
            self.show_error(error)
        else:
            self.problems.append("a stale save was accepted")
        finally:
            self.expect("the name after both", airports.get("LSZB").name, "Bern, renamed")
            airports.patch("LSZB", name=name)

    def fight(self, rounds: int) -> None:
        """Several processes update the same few records, and an indexed field of them, at the same time."""
        before = self.visits()
        total = PROCESSES * rounds * len(CONTESTED)
        processes = ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn"))
        with self.measured("update in 4 processes", total, "updates"), processes:
            started = [processes.submit(self.writer, str(self.path), seed, rounds) for seed in range(PROCESSES)]
            conflicts = sum(process.result() for process in started)
        after = self.visits()
        self.say(
            f"{PROCESSES} processes update the same {len(CONTESTED)} airports, {total:,} times in all",
            "airports.mutate(icao, visit)    # a counter, and a city that moves in its index",
        )
        table = table_of("airport", "visits before", "visits now", "added", numbers=3)
        for icao in CONTESTED:
            added = after[icao] - before[icao]
            self.expect(f"visits added to {icao}", added, PROCESSES * rounds)
            table.add_row(icao, f"{before[icao]:,}", f"{after[icao]:,}", f"{added:,}")
        sums = sum(before.values()), sum(after.values())
        self.expect("sum of the visits added", sums[1] - sums[0], total)
        table.add_section()
        table.add_row("sum", f"{sums[0]:,}", f"{sums[1]:,}", f"{sums[1] - sums[0]:,}")
        self.show(
            table, f"{conflicts:,} times another process was faster, and the update was made again on the new state"
        )

    def visits(self) -> dict[str, int]:
        """The counters of the contested airports; their cities must be where the index says."""
        with self.opened() as db:
            airports = db[Airport]
            found = airports.in_bulk(CONTESTED)
            for icao, airport in found.items():
                expected = city_after(self.source[icao]["city"], airport.visits)
                self.expect(f"city of {icao}", airport.city, expected)
                by_city = {other.icao for other in airports.filter(city=expected)}
                self.expect(f"{icao} by its city", icao in by_city, True)
            return {icao: airport.visits for icao, airport in found.items()}

    def check(self, db: Database) -> None:
        """Compare every index entry with the records."""
        rows = ROWS_EACH * db[Airport].count()
        with self.measured("check", rows, "rows"):
            report = db.check()
        self.expect("the check", report.ok, True)
        self.expect("rows checked", report.scanned, rows)
        self.say("Every index entry compared with its record", "db.check()")
        table = table_of("rows", "dangling", "missing", "foreign", "undecodable", "result", numbers=6)
        found = (report.dangling, report.missing, report.foreign, report.undecodable)
        result = "[green]ok[/]" if report.ok else "[red]not ok[/]"
        table.add_row(f"{report.scanned:,}", *(f"{len(findings):,}" for findings in found), result)
        self.show(table)

    def show_costs(self) -> None:
        """How long each step took, and how large a file is."""
        self.say("What it cost")
        table = table_of("step", "", "seconds", "per second", numbers=2)
        for what, amount, unit, seconds in self.costs:
            table.add_row(what, f"{amount:,} {unit}", f"{seconds:.2f}", f"{amount / seconds:,.0f}")
        remark = ""
        if Path(self.path).is_file():
            size = Path(self.path).stat().st_size
            each = size / len(self.source)
            remark = f"the file: {size / 1_000_000:,.1f} MB, {each:,.0f} bytes for an airport and its index entries"
        self.show(table, remark)

    def verdict(self) -> int:
        """Say what is wrong, if anything."""
        self.console.print()
        for problem in self.problems[:20]:
            self.console.print(Text.assemble(("wrong: ", "bold red"), problem))
        if self.problems:
            count = len(self.problems)
            self.console.print(f"[bold red]{count} {'thing is' if count == 1 else 'things are'} wrong[/]")
            return 1
        self.console.print("[bold green]Everything is as it should be.[/] Run it again to open the same file.")
        return 0


def main() -> int:
    """Run the demo on a store that stays, so that the next run opens it again."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--path",
        default=os.environ.get("DATABASE") or "airports.db",
        help="a file or the URL of a store (default: the variable DATABASE, else airports.db)",
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each process visits each airport")
    options = parser.parse_args()
    console = Console(highlight=False)
    try:
        return Demo(options.path, airportsdata.load("ICAO"), console).run(options.rounds)
    except KeyboardInterrupt:
        console.print(
            "\ninterrupted; every batch that was committed is in the file, and the next run goes on from there"
        )
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
