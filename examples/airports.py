"""Every airport of the world in one file: load, query, refuse, fight, check. This is ``make demo``.

Rules of this module: a number that is printed was computed from the reopened file; what is wrong is collected in
``Demo.problems``, shown at the end, and makes the program end with 1. The source of truth is the package
``airportsdata``, which knows nothing of this library.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import airportsdata
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kvmodels import (
    Database,
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
VISITS_EACH = 100
CONTESTED = ("LSZH", "EGLL", "KJFK", "RJTT", "SBGR", "FAOR")


class Airport(KvModel, collection="airports"):
    """One airport; 20,414 of 28,298 have no IATA code, and None collides with nothing."""

    icao: PrimaryKey[str]
    iata: Unique[str | None] = None
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


def visit_many(path: str, seed: int, visits: int) -> int:
    """One process: visit the contested airports in a random order; returns how many attempts met a conflict."""
    chance, attempts = random.Random(seed), 0

    def counted(airport: Airport) -> None:
        nonlocal attempts
        attempts += 1
        visit(airport)

    with Database(path, models=[Airport]) as db:
        for _ in range(visits):
            db[Airport].mutate(chance.choice(CONTESTED), counted)
    return attempts - visits


class Demo:
    """The steps of the demo on one file, in their order; ``problems`` says what is wrong."""

    def __init__(self, path: Path, source: Source, console: Console, writer: Writer = visit_many) -> None:
        self.path = path
        self.source = source
        self.console = console
        self.writer = writer
        self.problems: list[str] = []
        self.costs: list[tuple[str, str, float]] = []

    def run(self, visits_each: int = VISITS_EACH) -> int:
        """Every step; 0 if everything is right, else 1."""
        self.load()
        with self.opened() as db:
            self.compare(db)
            self.show_code(db, "ZRH")
            self.show_highest(db, "CH")
            self.walk_pages(db, "Europe/Zurich")
            self.refuse_duplicate(db)
            self.refuse_stale(db)
        self.fight(visits_each)
        with self.opened() as db:
            self.check(db)
        self.show_costs()
        return self.verdict()

    @contextmanager
    def opened(self) -> Iterator[Database]:
        """The file, opened again, as another program would."""
        with Database(self.path, models=[Airport]) as db:
            yield db

    @contextmanager
    def measured(self, what: str, amount: str) -> Iterator[None]:
        """Note how long a step takes."""
        started = time.perf_counter()
        yield
        self.costs.append((what, amount, time.perf_counter() - started))

    def expect(self, what: str, found: object, expected: object) -> None:
        """Note a problem if the file does not hold what it should."""
        if found != expected:
            self.problems.append(f"{what}: {found!r} in the file, {expected!r} expected")

    def load(self) -> None:
        """Write every airport that is not there yet: all of them in the first run, none in the second."""
        with self.opened() as db:
            airports = db[Airport]
            there = airports.all().count()
            if there == len(self.source):
                self.console.print(f"[bold]{self.path}[/] holds {there:,} airports: opened again, nothing to load\n")
                return
            rows = [airport_of(row) for row in self.source.values()]
            columns = (TextColumn("loading"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            with (
                self.measured("load", f"{len(rows):,} records in batches of {BATCH}"),
                Progress(*columns, console=self.console) as progress,
            ):
                task = progress.add_task("load", total=len(rows))
                for start in range(0, len(rows), BATCH):
                    batch = rows[start : start + BATCH]
                    airports.bulk_create(batch, on_conflict="ignore")
                    progress.advance(task, len(batch))

    def compare(self, db: Database) -> None:
        """Compare every record with its source, and every count by an index with a count of the source."""
        airports = db[Airport]
        with self.measured("read and validate", "all records"):
            stored = {airport.icao: airport for airport in airports.all()}
        self.expect("records", len(stored), len(self.source))
        for icao, row in self.source.items():
            expected = airport_of(row)
            if (found := stored.get(icao)) is not None:
                expected.visits = found.visits
                expected.city = city_after(expected.city, found.visits)
            self.expect(f"record {icao}", found, expected)
        with self.measured("count by index", "every country and every time zone"):
            for field, column in (("country", "country"), ("time_zone", "tz")):
                for value, amount in Counter(row[column] for row in self.source.values()).items():
                    self.expect(f"{field} {value}", airports.filter(**{field: value}).count(), amount)
        missing = airports.filter(iata=None).count()
        self.expect("airports without an IATA code", missing, sum(not row["iata"] for row in self.source.values()))
        countries = len({airport.country for airport in stored.values()})
        self.console.print(
            f"{len(stored):,} airports in {countries} countries, {missing:,} of them without an IATA code\n"
        )

    def show_code(self, db: Database, code: str) -> None:
        """Find one airport by its unique IATA code."""
        airport = db[Airport].get(iata=code)
        self.expect(
            f"IATA code {code}", airport.icao, next(r["icao"] for r in self.source.values() if r["iata"] == code)
        )
        table = Table(title=f"get(iata={code!r})", title_justify="left", show_header=False)
        for field, value in airport.model_dump().items():
            table.add_row(field.replace("_", " "), str(value))
        self.console.print(table, "")

    def show_highest(self, db: Database, country: str) -> None:
        """The highest airports of a country, read in this order from the compound index."""
        query = db[Airport].filter(country=country).order_by("-elevation")
        rows = query[:8].to_list()
        heights = sorted((r["elevation"] for r in self.source.values() if r["country"] == country), reverse=True)
        self.expect(f"highest airports of {country}", [airport.elevation for airport in rows], heights[:8])
        title = f"filter(country={country!r}).order_by('-elevation')[:8], by index {query.explain().index}"
        table = Table(title=title, title_justify="left")
        for heading in ("airport", "city", "ICAO", "IATA"):
            table.add_column(heading)
        table.add_column("feet", justify="right")
        for airport in rows:
            table.add_row(airport.name, airport.city, airport.icao, airport.iata or "", f"{airport.elevation:,.0f}")
        self.console.print(table, "")

    def walk_pages(self, db: Database, zone: str, size: int = 20) -> None:
        """Walk over a time zone page by page; each cursor could come back from a web client."""
        table = Table(title=f"filter(time_zone={zone!r}).page(size={size}, after=cursor)", title_justify="left")
        for heading in ("page", "airports", "first", "last"):
            table.add_column(heading, justify="right" if heading in {"page", "airports"} else "left")
        seen: list[str] = []
        after: str | None = None
        number = 0
        while number == 0 or after is not None:
            page = db[Airport].filter(time_zone=zone).page(size=size, after=after)
            number += 1
            codes = [airport.icao for airport in page.items]
            table.add_row(str(number), str(len(codes)), *([codes[0], codes[-1]] if codes else ["", ""]))
            seen += codes
            after = page.next_cursor
        self.expect(f"pages of {zone}", seen, sorted(r["icao"] for r in self.source.values() if r["tz"] == zone))
        self.console.print(table, f"{len(seen)} airports on {number} pages\n")

    def refuse_duplicate(self, db: Database) -> None:
        """A second owner of an IATA code is refused, and nothing of it is stored."""
        airports = db[Airport]
        row = {**self.source["LSZH"], "icao": "ZZZZ", "name": "Another Zurich"}
        try:
            airports.insert(airport_of(row))
        except UniqueViolationError as error:
            self.show_error("a second airport with the IATA code ZRH", error)
            self.expect("owner of ZRH", error.existing_key, airports.get(iata="ZRH").icao)
        else:
            self.problems.append("a duplicate IATA code was accepted")
        self.expect("the refused airport", airports.get_or_none("ZZZZ"), None)

    def refuse_stale(self, db: Database) -> None:
        """Saving an object that somebody else has changed meanwhile is refused."""
        airports = db[Airport]
        mine, theirs = airports.get("LSZB"), airports.get("LSZB")
        name = theirs.name
        theirs.name = "Bern, renamed"
        airports.save(theirs)
        mine.name = "Bern, renamed too late"
        try:
            airports.save(mine)
        except StaleObjectError as error:
            self.show_error("saving what somebody else has changed meanwhile", error)
        else:
            self.problems.append("a stale save was accepted")
        self.expect("the name after both", airports.get("LSZB").name, "Bern, renamed")
        airports.patch("LSZB", name=name)

    def fight(self, visits_each: int) -> None:
        """Several processes update the same few records, and an indexed field of them, at the same time."""
        before = self.visits()
        total = PROCESSES * visits_each
        processes = ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn"))
        with (
            self.measured("fight", f"{total:,} updates of {len(CONTESTED)} records by {PROCESSES} processes"),
            processes,
        ):
            started = [processes.submit(self.writer, str(self.path), seed, visits_each) for seed in range(PROCESSES)]
            conflicts = sum(process.result() for process in started)
        after = self.visits()
        table = Table(title=f"{PROCESSES} processes, {visits_each} updates each", title_justify="left")
        for heading in ("airport", "visits before", "visits now"):
            table.add_column(heading, justify="left" if heading == "airport" else "right")
        for icao in CONTESTED:
            table.add_row(icao, f"{before[icao]:,}", f"{after[icao]:,}")
        table.add_section()
        table.add_row("sum", f"{sum(before.values()):,}", f"{sum(after.values()):,}")
        self.console.print(table, f"{conflicts:,} attempts met another writer and were made again\n")
        self.expect("sum of the visits", sum(after.values()), sum(before.values()) + total)

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
        with self.measured("check", "every record and every index entry"):
            report = db.check()
        self.expect("the check", report.ok, True)
        self.expect("records checked", report.scanned, db[Airport].all().count())
        self.console.print(f"db.check(): {report}\n")

    def show_error(self, what: str, error: KvModelsError) -> None:
        """An error as a user meets it."""
        self.console.print(Panel(str(error), title=f"refused: {what}", title_align="left", border_style="yellow"), "")

    def show_costs(self) -> None:
        """How long each step took, and how large the file is."""
        table = Table(title="what it cost", title_justify="left")
        table.add_column("step")
        table.add_column("of what")
        table.add_column("seconds", justify="right")
        for what, amount, seconds in self.costs:
            table.add_row(what, amount, f"{seconds:.2f}")
        size = self.path.stat().st_size
        table.add_section()
        table.add_row("file", f"{size / 1_000_000:,.1f} MB, {size / len(self.source):,.0f} bytes per airport", "")
        self.console.print(table)

    def verdict(self) -> int:
        """Say what is wrong, if anything."""
        for problem in self.problems[:20]:
            self.console.print(f"[bold red]wrong:[/] {problem}")
        if self.problems:
            self.console.print(f"[bold red]{len(self.problems)} things are wrong[/]")
            return 1
        self.console.print("[bold green]everything is as it should be[/]; run it again to open the same file")
        return 0


def main() -> int:
    """Run the demo on a file that stays, so that the next run opens it again."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--path", type=Path, default=Path("airports.db"), help="the file (default: airports.db)")
    parser.add_argument("--visits", type=int, default=VISITS_EACH, help="updates of each process")
    options = parser.parse_args()
    demo = Demo(options.path, airportsdata.load("ICAO"), Console())
    return demo.run(options.visits)


if __name__ == "__main__":
    sys.exit(main())
