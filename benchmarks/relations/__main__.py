"""Related records beside Django and SQLModel: ``python -m benchmarks.relations [ROUNDS]``.

Each library runs in a process of its own, and the processes take turns row by row. The median of the rounds is shown.
Each answer is checked.
"""

from __future__ import annotations

import importlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.relations.sessions import ALBUMS, AUTHORS, BOOKS_EACH, PAGE, TRACKS_EACH, RelatedSession

LIBRARIES: Final = ("kvmodels", "django", "sqlmodel")
ROWS: Final = {
    "insert_child": "insert a child",
    "page_with_related": "page of 20 with related",
    "remove_protected": "protected removal",
    "remove_cascade": "cascade of 100",
}
CALLS: Final = {"insert_child": 400, "page_with_related": 200, "remove_protected": 200, "remove_cascade": 20}
ROUNDS: Final = 5


def called(session: RelatedSession, row: str, start: int) -> float:
    """Run the calls of a row; return how many a second were completed."""
    call: Callable[[int], object] = getattr(session, row)
    first = start + (AUTHORS * BOOKS_EACH if row == "insert_child" else 0)
    numbers = range(first, first + CALLS[row])
    tracks = session.tracks()
    begun = time.perf_counter()
    answers = [call(number) for number in numbers]
    seconds = time.perf_counter() - begun
    if row == "page_with_related":
        assert answers[0] == [(f"book {n}", f"author {n % AUTHORS}") for n in range(first, first + PAGE)]
    elif row == "remove_protected":
        assert all(answer is True for answer in answers)
    removed = TRACKS_EACH * CALLS[row] if row == "remove_cascade" else 0
    assert session.tracks() == tracks - removed
    return CALLS[row] / seconds


def serve(library: str, folder: Path) -> None:
    """Fill a store, and run the rows that standard input names; print the rate of each."""
    session: RelatedSession = importlib.import_module(f"benchmarks.relations.{library}_relations").opened(folder)
    session.fill()
    starts = dict.fromkeys(ROWS, 0)
    for line in sys.stdin:
        row = line.strip()
        if row in ("insert_child", "remove_cascade"):
            start, starts[row] = starts[row], starts[row] + CALLS[row]
        else:
            start = 0
        print(called(session, row, start), flush=True)
    session.close()


class _Side:
    """The process of one library."""

    def __init__(self, library: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.relations", library, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def rate(self, row: str) -> float:
        """Run a row in the process; return its rate."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{row}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def end(self) -> None:
        """End the process."""
        self._process.communicate()


def compare(rounds: int) -> None:
    """Print the rates of all libraries."""
    assert rounds * CALLS["remove_cascade"] <= ALBUMS, "there are not so many albums"
    with tempfile.TemporaryDirectory() as folder:
        sides: dict[str, _Side] = {}
        for library in LIBRARIES:
            (place := Path(folder) / library).mkdir()
            sides[library] = _Side(library, place)
        for row, title in ROWS.items():
            rates: dict[str, list[float]] = {library: [] for library in LIBRARIES}
            for _ in range(rounds):
                for library, side in sides.items():
                    rates[library].append(side.rate(row))
            medians = {library: statistics.median(found) for library, found in rates.items()}
            shown = "  ".join(f"{library} {rate:9,.0f}/s" for library, rate in medians.items())
            ratios = ", ".join(
                f"{medians['kvmodels'] / rate:.2f} x {library}"
                for library, rate in medians.items()
                if library != "kvmodels"
            )
            print(f"{title:24} {shown}   kvmodels is {ratios}")
        for side in sides.values():
            side.end()


if __name__ == "__main__":
    match sys.argv[1:]:
        case [library, folder]:
            serve(library, Path(folder))
        case [rounds]:
            compare(int(rounds))
        case _:
            compare(ROUNDS)
