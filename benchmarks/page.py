"""The page of the documentation that shows a run, and its charts.

Rules of this module: everything on the page is computed from the results, the verdicts too; nothing is written by hand
behind a run.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from benchmarks import aims, chart
from benchmarks.columns.registry import COLUMNS, PEERS, Column, Family
from benchmarks.ratios import Spread, costs, ratio, spread
from benchmarks.results import Results
from benchmarks.rows import ROWS, Row
from benchmarks.table import NOTHING, number, table, times

CLASSES = {
    "memory": "In memory",
    "relaxed": "Files that survive a killed process",
    "commit": "Files that survive a power loss",
}
COMPARED: tuple[Family, ...] = ("floor", *PEERS)
"""Whom the charts show; what TinyDB and ZODB do is not the same work, they are in the tables."""
INTRODUCTION = Path(__file__).with_name("introduction.md")


def of_class(results: Results, durability: str) -> list[Column]:
    """The columns of one durability."""
    return [column for column in results.columns if column.durability == durability]


def shown(results: Results, row: Row, column: Column) -> str:
    """One cell: the median rate, size or time."""
    found = spread(costs(results.samples(row.name, column)))
    if found is None:
        return NOTHING
    return number(1 / found.middle) if row.is_rate else number(found.middle)


def figures(results: Results, durability: str) -> str:
    """The table of medians."""
    columns = of_class(results, durability)
    rows = []
    for row in ROWS:
        cells = [shown(results, row, column) for column in columns]
        if set(cells) != {NOTHING}:
            rows.append([f"{row.title}, {row.unit}", *cells])
    return table(["", *(column.title for column in columns)], rows)


def comparable(results: Results, column: Column) -> Column | None:
    """The column of kvmodels that another one is compared with: the same engine, or the nearest."""
    if column.family == "kvmodels":
        return None
    same = aims.ours(results, column.engine, column.durability)
    return same or aims.ours(results, "sqlite", column.durability)


def comparisons(results: Results, durability: str) -> str:
    """The table of ratios: how many times the cost of kvmodels each of the others has."""
    columns = [column for column in of_class(results, durability) if comparable(results, column) is not None]
    rows = []
    for row in ROWS:
        cells = []
        for column in columns:
            mine = comparable(results, column)
            assert mine is not None
            cells.append(times(ratio(results.samples(row.name, column), results.samples(row.name, mine))))
        if set(cells) != {NOTHING}:
            rows.append([row.title, *cells])
    return table(["", *(column.title for column in columns)], rows)


def picture(results: Results, durability: str) -> str:
    """The chart of one durability: the speed of the others in that of kvmodels."""
    rows: dict[str, dict[str, Spread]] = {}
    for row in ROWS:
        if not row.is_rate:
            continue
        for column in of_class(results, durability):
            mine = comparable(results, column)
            found = ratio(results.samples(row.name, mine), results.samples(row.name, column)) if mine else None
            if found is not None and column.family in COMPARED:
                rows.setdefault(row.title, {})[column.title] = found
    return chart.beside(f"{CLASSES[durability]}: speed beside kvmodels on the same engine", rows, "kvmodels")


def growth_picture(results: Results) -> str:
    """The chart of costs over the number of records."""
    panels: dict[str, dict[str, dict[int, Spread]]] = {}
    for row, column in product(ROWS, COLUMNS.values()):
        for size, by_row in results.growth.items():
            found = spread([cost * 1e6 for cost in costs(by_row.get(row.name, {}).get(column.name, []))])
            if found is not None:
                panels.setdefault(row.title, {}).setdefault(column.name, {})[int(size)] = found
    return chart.growing("Cost of one operation as the store grows", panels)


WHY = """
Where the microseconds go, piece by piece, what was tried, and what is left: [reads](design/0012-hot-paths.md),
[writes](design/0013-hot-paths-of-writes.md), [imports, opening and memory](design/0014-import-time.md). In short: a
floor has no versions, deadlines, header or checks of what another program may have damaged; kvmodels reads them with
every record, and compares. SQLite's part is larger as well, because records, slots and entries are rows of one table,
with values that SQLite cannot look into.
"""


def verdicts(results: Results) -> str:
    """How many comparisons reach their aim, and every one that does not."""
    found = aims.findings(results)
    lines = []
    for aim in dict.fromkeys(finding.aim for finding in found):
        of_aim = [finding for finding in found if finding.aim == aim]
        missed = [finding for finding in of_aim if not finding.reached]
        lines.append(f"- **{aim}**: {len(of_aim) - len(missed)} of {len(of_aim)} comparisons.")
    missed = [finding for finding in found if not finding.reached]
    text = "\n".join(lines) + "\n"
    if missed:
        rows = [[f"{one.aim}: {one.what}", times(one.found), one.limit, one.remark] for one in missed]
        text += "\nWhat is missed:\n\n" + table(["", "ratio", "aim", ""], rows) + WHY
    excused = [finding for finding in found if finding.reached and finding.remark]
    if excused:
        rows = [[one.what, times(one.found), one.remark] for one in excused]
        text += "\nBehind a peer, where the hand-written floor is behind it as well:\n\n" + table(
            ["", "ratio", ""], rows
        )
    return text


def concurrency(results: Results) -> str:
    """The table of many tasks beside one."""
    rows = []
    for name in sorted(results.concurrency, key=list(COLUMNS).index):
        rounds = results.concurrency[name]
        one, many = (spread(costs(list(rounds[kind]))) for kind in ("one", "many"))
        gain = ratio(list(rounds["one"]), list(rounds["many"]))
        if one is not None and many is not None:
            rows.append([name, number(1 / one.middle), number(1 / many.middle), times(gain)])
    return table(["", "one task, commits/s", "1,000 tasks, commits/s", "times"], rows)


def page(results: Results) -> str:
    """The whole page."""
    machine = "\n".join(f"| {name} | {value} |" for name, value in results.machine.items())
    parts = [INTRODUCTION.read_text("utf-8").format(records=results.records, rounds=results.rounds, machine=machine)]
    parts.append(
        "## What is reached\n\nRatios are medians of the ratios of the rounds, quartiles in brackets.\n\n"
        + verdicts(results)
    )
    for durability, title in CLASSES.items():
        if not of_class(results, durability):
            continue
        parts.append(f"## {title}\n\n![{title}](assets/bench-{durability}.svg)\n")
        parts.append("Medians:\n\n" + figures(results, durability))
        parts.append(
            "How many times the cost of kvmodels on the same engine (on SQLite, where kvmodels has no such engine); "
            "above 1 kvmodels is ahead:\n\n" + comparisons(results, durability)
        )
    if results.concurrency:
        parts.append(
            "## Many tasks\n\nEach task changes a record of its own and waits for its commit.\n\n"
            + concurrency(results)
        )
    if results.growth:
        parts.append("## Growth\n\n![Cost of one operation as the store grows](assets/bench-growth.svg)\n")
    return "\n".join(parts)


def write(results: Results, docs: Path) -> list[Path]:
    """Write the page and its charts; returns what was written."""
    assets = docs / "assets"
    texts = {docs / "benchmarks.md": page(results)}
    for durability in CLASSES:
        if of_class(results, durability):
            texts[assets / f"bench-{durability}.svg"] = picture(results, durability)
    if results.growth:
        texts[assets / "bench-growth.svg"] = growth_picture(results)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return list(texts)
