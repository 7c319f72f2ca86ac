"""The beginning of the page: one chart, and the findings in sentences that can be quoted.

Rules of this module: every number is computed from the results, so that a new run corrects the sentences; a sentence
whose figures were not measured is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from benchmarks import aims, chart
from benchmarks.columns.registry import PEERS, Column, Family
from benchmarks.ratios import costs, ratio, spread
from benchmarks.results import Results
from benchmarks.rows import ROWS, Row
from benchmarks.table import number

ENGINE, DURABILITY = "sqlite", "commit"
"""The settings of a program that chooses nothing."""
IN_CHART = ("get", "get_by_email", "list_colour", "page", "insert", "update_indexed")
LISTS = ("list_colour", "page", "scan")
SINGLE_WRITES = ("insert", "update_plain", "update_indexed", "update_unique", "delete")
TITLE = "SQLite file that survives a power loss: operations per second"
BY_HAND = "by hand"


def default(results: Results, family: Family = "kvmodels") -> Column | None:
    """The column of a family on the default engine and durability."""
    return aims.ours(results, ENGINE, DURABILITY, family)


def named(names: Sequence[str]) -> list[Row]:
    """Rows by their names, in the order of the tables."""
    return [row for row in ROWS if row.name in names]


def picture(results: Results) -> str | None:
    """The chart of six operations; None if kvmodels was not measured with its defaults."""
    panels: dict[str, dict[str, tuple[float, str]]] = {}
    families: tuple[Family, ...] = ("kvmodels", "floor", *PEERS)
    for row in named(IN_CHART):
        for family in families:
            column = default(results, family)
            found = spread(costs(results.samples(row.name, column))) if column else None
            if found is not None:
                rate = 1 / found.middle
                panel = panels.setdefault(f"{row.title}, {row.unit}", {})
                panel[BY_HAND if family == "floor" else family] = (rate, number(rate))
    has_own = all("kvmodels" in panel for panel in panels.values())
    return chart.bars(TITLE, panels, "kvmodels") if panels and has_own else None


def rounded(value: float) -> str:
    """A ratio as people say it: 18, 1.4."""
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


def between(values: Sequence[float]) -> str:
    """The smallest and the largest of some ratios."""
    low, high = rounded(min(values)), rounded(max(values))
    return low if low == high else f"{low} to {high}"


def beside(results: Results, rows: Iterable[Row], family: Family) -> list[float]:
    """How many times the cost of kvmodels a family has, for each row that both have."""
    mine, other = default(results), default(results, family)
    if mine is None or other is None:
        return []
    found = [ratio(results.samples(row.name, other), results.samples(row.name, mine)) for row in rows]
    return [one.middle for one in found if one is not None]


def of_peers(results: Results, names: Sequence[str]) -> str:
    """How many times as fast as each peer: "18 times as fast as with SQLModel, 19 with Django"."""
    by_peer = {peer: beside(results, named(names), peer) for peer in PEERS}
    faster = [f"{between(values)} times as fast as with {peer}" for peer, values in by_peer.items() if values]
    return ", ".join([*faster[:1], *(one.replace("times as fast as with", "with") for one in faster[1:])])


def sentences(results: Results) -> Iterator[str]:
    """The findings, one a line."""
    for title, names in (
        ("**Get by key** is", ("get",)),
        ("**Get by unique index** is", ("get_by_email",)),
        ("**Lists, pages and scans** are", LISTS),
        ("**Single writes** are", SINGLE_WRITES),
    ):
        peers = of_peers(results, names)
        if peers:
            yield f"{title} {peers}."
    reads = [1 / value for value in beside(results, [row for row in ROWS if row.kind == "read"], "floor")]
    writes = [1 / value for value in beside(results, named(SINGLE_WRITES), "floor")]
    if reads and writes:
        yield (
            f"**Code written by hand** for this one model, on the same file, is faster: reads of kvmodels cost "
            f"{between(reads)} times as much, single writes {between(writes)} times."
        )
    many = [one for one in aims.of_concurrency(results) if one.has_aim]
    if many:
        yield (
            f"**Many tasks**: 1,000 tasks of one event loop reach {between([one.found.middle for one in many])} "
            "times the commits of one task, because they share each wait for the disk."
        )
    disk = {peer: 1 / value for peer in PEERS for value in beside(results, named(("disk",)), peer) if value < 1}
    if disk:
        yield f"**Disk**: the file is {between(list(disk.values()))} times as large as with {', '.join(disk)}."


def counted(results: Results) -> str:
    """How many of all comparisons with peers are won, and where the others are."""
    found = [one for one in aims.beside_peers(results) if one.has_aim]
    if not found:
        return ""
    ahead = sum(one.reached and not one.allowed for one in found)
    return (
        f"Over all engines and durabilities, kvmodels reaches its aim in {ahead} of {len(found)} comparisons with "
        f"{', '.join(PEERS)}. [Aims](#aims) lists every one of the others.\n\n"
    )


def overview(results: Results) -> str:
    """The chart and the sentences."""
    lines = "".join(f"- {sentence}\n" for sentence in sentences(results))
    image = f"![{TITLE}](assets/bench-summary.svg)\n\n" if picture(results) else ""
    return f"{image}{lines}\n{counted(results)}" if lines else image
