"""The results of a run: what was measured, where, and how it is kept between measuring and reporting.

Rules of this module: only figures as they were measured; whatever can be computed from them is computed elsewhere.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sqlite3
import subprocess
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.columns.registry import COLUMNS, Column

Sample = list[float]
"""Seconds and units; of sizes and times the value and 1."""
Figures = dict[str, dict[str, list[Sample | None]]]
"""Row, column, round; None where a column has no such row."""
DISTRIBUTIONS = (
    "pydantic",
    "msgpack",
    "sortedcontainers",
    "lmdb",
    "sqlmodel",
    "SQLAlchemy",
    "Django",
    "peewee",
    "tinydb",
    "ZODB",
    "deno",
)


@dataclass(slots=True)
class Results:
    """All measurements; each part from a run of its own, or all from one."""

    machine: dict[str, str] = field(default_factory=dict)
    records: int = 0
    rounds: int = 0
    figures: Figures = field(default_factory=dict)
    imports: dict[str, list[float]] = field(default_factory=dict)
    """The imported names, and the milliseconds of each fresh process."""
    concurrency: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)
    """Column, ``one`` or ``many`` tasks, round: seconds and commits."""
    growth: dict[str, dict[str, dict[str, list[Sample | None]]]] = field(default_factory=dict)
    """Number of records, row, column, round."""
    measured: dict[str, dict[str, str]] = field(default_factory=dict)
    """Part, ``on`` or ``commit``: when it was measured, and of which code; nothing of an earlier run is known."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that were measured, in the order of the registry."""
        measured = {name for by_column in self.figures.values() for name in by_column}
        return tuple(column for column in COLUMNS.values() if column.name in measured)

    def samples(self, row: str, column: Column) -> list[Sample | None]:
        """The rounds of one cell."""
        if row == "import":
            return [[value, 1] for value in self.imports.get(imported_by(column), [])]
        return self.figures.get(row, {}).get(column.name, [])

    def of_columns(self, columns: Iterable[Column]) -> Results:
        """The same without the figures of other columns."""
        names = {column.name for column in columns}
        growth = {size: _of_names(by_row, names) for size, by_row in self.growth.items()}
        has_growth = any(by_column for by_row in growth.values() for by_column in by_row.values())
        return replace(
            self,
            figures=_of_names(self.figures, names),
            concurrency={name: rounds for name, rounds in self.concurrency.items() if name in names},
            growth=growth if has_growth else {},
        )

    def origin(self, part: str) -> str:
        """When a part was measured, and of which commit."""
        known = self.measured.get(part)
        return f"on {known['on']}, of commit {known['commit']}" if known else "in an earlier run"

    def save(self, path: Path) -> None:
        """Write the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(rounded(asdict(self)), indent=1, sort_keys=True) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read the file."""
        return cls(**json.loads(path.read_text("utf-8")))


def _of_names(figures: Figures, names: set[str]) -> Figures:
    return {
        row: {name: samples for name, samples in by_column.items() if name in names}
        for row, by_column in figures.items()
    }


def origin_now(root: Path) -> dict[str, str]:
    """The time, and the commit of the code that lies in a folder."""
    try:
        commit = _git(root, ["rev-parse", "--short=10", "HEAD"])
        changed = _git(root, ["status", "--porcelain", "--", "kvmodels", "benchmarks/*.py", "benchmarks/*.ts"])
    except (OSError, subprocess.CalledProcessError):
        commit, changed = "unknown", ""  # an unpacked archive has no history
    return {
        "on": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": f"{commit} with changes" if changed else commit,
    }


def _git(root: Path, words: Sequence[str]) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def rounded(value: Any) -> Any:
    """Six digits are more than a measurement has."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list) else value


def imported_by(column: Column) -> str:
    """Under which name the import of a column's library was measured."""
    if column.family == "floor":
        return f"floor {column.engine}"
    if column.family == "kvmodels async":
        return "kvmodels"
    return column.family


def machine(distributions: Iterable[str] = DISTRIBUTIONS) -> dict[str, str]:
    """Return the conditions of the figures."""
    found = {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_version()}, {build_of_python()}",
        "SQLite": sqlite3.sqlite_version,
    }
    for name in distributions:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def build_of_python() -> str:
    """Describe how the interpreter was compiled, by the options of its ``configure``."""
    options = str(sysconfig.get_config_var("CONFIG_ARGS"))
    profile = "with" if "--enable-optimizations" in options else "without"
    links = "with" if "--with-lto" in options else "without"
    return f"{platform.python_implementation()} {profile} profile-guided and {links} link-time optimisation"


def processor() -> str:
    """The model of the processor."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for text in info.read_text("utf-8").splitlines():
            if text.startswith("model name"):
                return text.partition(":")[2].strip()
    return platform.processor() or platform.machine()
