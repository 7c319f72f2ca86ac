"""The page of the documentation that shows a run, and its charts.

Rules of this module: everything on the page is computed from the results, the verdicts too. Charts and findings come
first, then the tables, and the method last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from benchmarks import aims, chart, growth, overview
from benchmarks.columns.registry import COLUMNS, PEERS, Column, Family
from benchmarks.ratios import Spread, costs, ratio, spread
from benchmarks.results import Results
from benchmarks.rounds import OPENINGS
from benchmarks.rows import ROWS, Row
from benchmarks.table import NOTHING, number, table, times
from benchmarks.verdicts import comparable, verdicts

CLASSES = {
    "memory": "In memory",
    "relaxed": "Files that survive a killed process",
    "commit": "Files that survive a power loss",
}
COMPARED: tuple[Family, ...] = ("floor", *PEERS)
"""Whom the charts show; what TinyDB and ZODB do is not the same work, they are in the tables."""
INTRODUCTION = Path(__file__).with_name("introduction.md")
METHOD = Path(__file__).with_name("method.md")
OBSERVED_AND_RELATED = Path(__file__).with_name("observed_and_related.md")
"""Measured by programs of their own, whose figures are not in the results."""


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


def concurrency(results: Results) -> str:
    """The table of many tasks beside one."""
    rows = []
    for name in sorted(results.concurrency, key=list(COLUMNS).index):
        rounds = results.concurrency[name]
        for kinds, title in aims.COMMITS.items():
            before, after = (list(rounds.get(kind, [])) for kind in kinds)
            one, many = spread(costs(before)), spread(costs(after))
            if one is not None and many is not None:
                cells = [number(1 / one.middle), number(1 / many.middle), times(ratio(before, after))]
                rows.append([f"{name}, {title}", *cells])
    return table(["", "one task, commits/s", "1,000 tasks, commits/s", "times"], rows)


def microseconds(results: Results, size: str, row: Row, column: Column) -> Spread | None:
    """The cost of one operation in a store of one size."""
    return spread([cost * 1e6 for cost in costs(results.growth[size].get(row.name, {}).get(column.name, []))])


def growth_table(results: Results) -> str:
    """The figures behind the chart, and the largest store in the smallest."""
    sizes = sorted(results.growth, key=int)
    smallest, largest = results.growth[sizes[0]], results.growth[sizes[-1]]
    rows = []
    for row, column in product([row for row in ROWS if row.name in growth.ROWS], COLUMNS.values()):
        cells = [microseconds(results, size, row, column) for size in sizes]
        grown = ratio(*(by_row.get(row.name, {}).get(column.name, []) for by_row in (largest, smallest)))
        if any(cell is not None for cell in cells):
            shown_cells = [NOTHING if cell is None else number(cell.middle) for cell in cells]
            rows.append([f"{row.title}: {column.name}", *shown_cells, times(grown)])
    header = ["µs", *(f"{int(size):,} records" for size in sizes)]
    return table([*header, f"{int(sizes[-1]):,} as a multiple of {int(sizes[0]):,}"], rows)


def imported(results: Results) -> str:
    """The medians of imports."""
    found = {name: spread(taken) for name, taken in results.imports.items()}
    return table(["", "ms"], [[name, number(one.middle)] for name, one in found.items() if one is not None])


def one_durability(results: Results, durability: str) -> str:
    """The tables of one durability."""
    return f"""Measured {results.origin("rows")}. Medians:

{figures(results, durability)}
The cost of each, as a multiple of the cost of kvmodels on the same engine, or on SQLite where kvmodels has no such
engine. Above 1, kvmodels is faster:

{comparisons(results, durability)}"""


def many_tasks(results: Results) -> str:
    """The section of many tasks."""
    turns = max(len(rounds["one"]) for rounds in results.concurrency.values())
    return f"""## Many tasks

Each task changes a record of its own and waits for the answer. `patch` reads the record, validates it, maintains its
index entries and writes it; `kv.set` is a commit and nothing else. One task and many tasks took {turns} turns. The last
column is the median of the ratios of the turns: the commits of many tasks as a multiple of the commits of one.
With `commit`, one task is as fast as the machine syncs a file, which differs from turn to turn.
Measured {results.origin("concurrency")}.

{concurrency(results)}"""


def of_growth(results: Results) -> str:
    """The section of growth."""
    return f"""## Growth

Measured {results.origin("growth")}. An insert is followed by a delete, so that each store keeps its size. The floor in
memory is shown beside kvmodels, because a large dict is slower by itself: its records are in no cache of the processor.

Medians of the rounds in microseconds. The last column is the median of the ratios of the rounds, with quartiles in
brackets, so with few rounds it can differ from the ratio of the medians:

{growth_table(results)}"""


def lmdb_durabilities(results: Results) -> str:
    """How much faster single writes to LMDB are where only a killed process is survived."""
    relaxed, commit = aims.ours(results, "lmdb", "relaxed"), aims.ours(results, "lmdb", "commit")
    if relaxed is None or commit is None:
        return ""
    found = [
        ratio(results.samples(row.name, commit), results.samples(row.name, relaxed))
        for row in ROWS
        if row.kind == "write" and row.name != "bulk"
    ]
    gains = [one.middle for one in found if one is not None]
    if not gains:
        return ""
    return f" Here a single write of kvmodels is {min(gains):.2f} to {max(gains):.2f} times as fast without that sync."


def origins(results: Results) -> str:
    """When each part was measured."""
    titles = {"rows": "the tables of rows", "imports": "imports", "concurrency": "many tasks", "growth": "growth"}
    return "\n".join(f"| {title} | measured {results.origin(part)} |" for part, title in titles.items())


def introduction(results: Results) -> str:
    """The charts, the findings, and the command that measures them again."""
    charts = "".join(
        f"### {CLASSES[durability]}\n\n![{CLASSES[durability]}](assets/bench-{durability}.svg)\n\n"
        for durability in measured_durabilities(results)
    )
    if results.growth:
        charts += "### As the store grows\n\n![Cost of one operation](assets/bench-growth.svg)\n\n"
    return INTRODUCTION.read_text("utf-8").format(
        records=results.records, overview=overview.overview(results), charts=charts
    )


def method(results: Results) -> str:
    """Return the description of the measurement: subject, method, machine and date."""
    return METHOD.read_text("utf-8").format(
        records=results.records,
        rounds=results.rounds,
        machine="\n".join(f"| {name} | {value} |" for name, value in results.machine.items()),
        origins=origins(results),
        lmdb=lmdb_durabilities(results),
        openings=OPENINGS,
    )


def measured_durabilities(results: Results) -> list[str]:
    """The durabilities that some column was measured at."""
    return [durability for durability in CLASSES if of_class(results, durability)]


def page(results: Results) -> str:
    """The whole page."""
    parts = [introduction(results), "## Aims\n\n" + verdicts(results), "## Tables\n"]
    for durability in measured_durabilities(results):
        parts.append(f"### {CLASSES[durability]}: figures\n")
        parts.append(one_durability(results, durability))
    if results.concurrency:
        parts.append(many_tasks(results))
    if results.growth:
        parts.append(of_growth(results))
    parts.append(OBSERVED_AND_RELATED.read_text("utf-8"))
    parts.append(method(results))
    return "\n".join(parts)


def summary(results: Results, measured: Sequence[str]) -> str:
    """The figures of some parts, for a run that writes no page."""
    parts = []
    if "rows" in measured:
        durabilities = measured_durabilities(results)
        parts += [f"{CLASSES[durability]}\n\n{one_durability(results, durability)}" for durability in durabilities]
    if "imports" in measured:
        parts.append("Imports\n\n" + imported(results))
    if "concurrency" in measured and results.concurrency:
        parts.append("Many tasks\n\n" + concurrency(results))
    if "growth" in measured and results.growth:
        parts.append("Growth\n\n" + growth_table(results))
    return "\n".join(parts)


def write(results: Results, docs: Path) -> list[Path]:
    """Write the page and its charts, and make the folders; returns what was written."""
    assets = docs / "assets"
    assets.mkdir(parents=True, exist_ok=True)
    texts = {docs / "benchmarks.md": page(results)}
    for durability in measured_durabilities(results):
        texts[assets / f"bench-{durability}.svg"] = picture(results, durability)
    first = overview.picture(results)
    if first is not None:
        texts[assets / "bench-summary.svg"] = first
    if results.growth:
        texts[assets / "bench-growth.svg"] = growth_picture(results)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return list(texts)
