"""The aims of kvmodels, and whether a run has reached them.

Rules of this module: an aim is judged on the median of the paired ratios; every row that misses is listed with its
figure, none is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.columns.registry import COLUMNS, PEERS, Column, Family
from benchmarks.imports import BESIDE_PYDANTIC
from benchmarks.ratios import Spread, ratio, spread
from benchmarks.results import Results
from benchmarks.rows import ROWS, Row
from benchmarks.table import times

FAR_AHEAD = ("get", "get_by_email")
FAR_AHEAD_OF: tuple[Family, ...] = ("SQLModel", "Django", "Peewee")
FAR = 8.0
BESIDE_A_SLOW_FLOOR = 1.2
READS_OF_FLOOR = 1.5
WRITES_OF_FLOOR = 2.0
TOGETHER = 10.0
GROWTH_ON_FILES = 2.0
FLOOR_IN_MEMORY = "floor-memory"
GROWTH_ABOVE_FLOOR = 0.1
"""How much more a get in memory may grow than that of the hand-written dict in the same run."""
IMPORT = 1.3
TOGETHER_ON = "kvmodels-async-sqlite-commit"
SHOWN_ONLY = "shown"
COMMITS = {("one", "many"): "patch", ("one set", "many sets"): "kv.set"}
"""Kinds of commits of many tasks, by their samples."""
FASTER = "kvmodels is {} times as fast as the peer"
PEER_TAKES = {
    "memory": "the peer takes {} times the memory of kvmodels",
    "disk": "the peer takes {} times the disk of kvmodels",
}
PEER_LASTS = "the peer takes {} times as long as kvmodels"


@dataclass(frozen=True, slots=True)
class Finding:
    """One comparison: what was asked, what was found, and whether that is enough."""

    aim: str
    what: str
    found: Spread
    limit: str
    reached: bool
    remark: str = ""
    words: str = "{}"
    """The two sides of the ratio, in order."""

    @property
    def has_aim(self) -> bool:
        """Whether there is something to reach."""
        return self.limit != SHOWN_ONLY

    @property
    def allowed(self) -> bool:
        """Whether it is behind, and only so much as it may."""
        return self.reached and bool(self.remark)

    @property
    def sentence(self) -> str:
        """The figure in words."""
        return self.words.format(times(self.found))


def ours(results: Results, engine: str, durability: str, family: Family = "kvmodels") -> Column | None:
    """The column of kvmodels on an engine."""
    for column in results.columns:
        if (column.family, column.engine, column.durability) == (family, engine, durability):
            return column
    return None


def findings(results: Results) -> list[Finding]:
    """Every comparison of a run."""
    return [
        *beside_peers(results),
        *beside_floors(results),
        *of_concurrency(results),
        *of_growth(results),
        *of_imports(results),
    ]


def beside_peers(results: Results) -> Iterator[Finding]:
    """Each peer against kvmodels on the same kind of store: how many times its cost is ours."""
    for peer in results.columns:
        if peer.family not in PEERS:
            continue
        mine = ours(results, peer.engine, peer.durability)
        floor = ours(results, peer.engine, peer.durability, "floor")
        if mine is None:
            continue
        for row in ROWS:
            if not row.judged or (row.name == "import" and peer.durability != "memory"):
                continue  # a library is imported once, whatever it stores
            found = ratio(results.samples(row.name, peer), results.samples(row.name, mine))
            if found is not None:
                yield judged_beside_peer(results, (peer, mine, floor), row, found)


def judged_beside_peer(
    results: Results, columns: tuple[Column, Column, Column | None], row: Row, found: Spread
) -> Finding:
    """One row: ahead; or close to a floor that is behind as well."""
    peer, mine, floor = columns
    what = f"{row.title}: {peer.family}, {peer.place}"
    far = row.name in FAR_AHEAD and peer.family in FAR_AHEAD_OF
    limit = FAR if far else 1.0
    words = FASTER if row.is_rate else PEER_TAKES.get(row.name, PEER_LASTS)
    if found.middle >= limit or floor is None or far:
        return Finding("ahead of peers", what, found, f"≥ {limit:g}", found.middle >= limit, words=words)
    floor_ahead = ratio(results.samples(row.name, peer), results.samples(row.name, floor))
    of_floor = ratio(results.samples(row.name, mine), results.samples(row.name, floor))
    if floor_ahead is None or of_floor is None or floor_ahead.middle >= 1:
        return Finding("ahead of peers", what, found, "≥ 1", False, words=words)
    near = of_floor.middle <= BESIDE_A_SLOW_FLOOR
    remark = (
        f"the floor is behind as well (the peer costs {floor_ahead.middle:.2f} of it); "
        f"kvmodels costs {of_floor.middle:.2f} times the floor, allowed {BESIDE_A_SLOW_FLOOR:g}"
    )
    return Finding("ahead of peers", what, found, "≥ 1", near, remark, words)


def beside_floors(results: Results) -> Iterator[Finding]:
    """How many times the cost of the hand-written code kvmodels has."""
    for floor in results.columns:
        mine = ours(results, floor.engine, floor.durability) if floor.family == "floor" else None
        for row in ROWS if mine is not None else ():
            limit = READS_OF_FLOOR if row.kind == "read" else WRITES_OF_FLOOR
            found = ratio(results.samples(row.name, mine), results.samples(row.name, floor)) if mine else None
            if found is not None and row.is_rate:
                what = f"{row.title}: {floor.place}"
                near = found.middle <= limit
                yield Finding("near the floor", what, found, f"≤ {limit:g}", near, words="costs {} times the floor")


def of_concurrency(results: Results) -> Iterator[Finding]:
    """Commits a second of many tasks, in those of one."""
    for name, rounds in results.concurrency.items():
        for (one, many), title in COMMITS.items():
            found = ratio(list(rounds.get(one, [])), list(rounds.get(many, [])))
            if found is not None:
                aimed = name == TOGETHER_ON
                limit = f"≥ {TOGETHER:g}" if aimed else SHOWN_ONLY
                reached, words = not aimed or found.middle >= TOGETHER, "{} times the commits of one task"
                yield Finding("many tasks", f"{name}, {title}", found, limit, reached, words=words)


def of_growth(results: Results) -> Iterator[Finding]:
    """The cost of a get in the largest store as a multiple of its cost in the smallest store."""
    sizes = sorted(results.growth, key=int)
    if len(sizes) < 2:
        return
    small, large = results.growth[sizes[0]], results.growth[sizes[-1]]
    for row in ("get", "get_by_email"):
        grown = {name: ratio(samples, small[row][name]) for name, samples in large.get(row, {}).items()}
        for name, found in grown.items():
            if found is not None:
                limit, remark = limit_of_growth(name, grown) if row == "get" else (None, "")
                what = f"{row}: {name}, {int(sizes[-1]):,} against {int(sizes[0]):,} records"
                asked = SHOWN_ONLY if limit is None else f"≤ {limit:.3g}"
                missed = limit is not None and found.middle > limit
                words = "costs {} times as much in the larger store"
                yield Finding("growth", what, found, asked, not missed, remark if missed else "", words)


def limit_of_growth(name: str, grown: Mapping[str, Spread | None]) -> tuple[float | None, str]:
    """Return how much a get of a column may grow, None if the column has no aim, and a remark for a miss.

    In memory the limit comes from the floor of the same run, because a dict of many records slows down by itself, by
    more on some machines than on others; a run without that floor shows the growth and judges nothing.
    """
    column = COLUMNS[name]
    if column.family != "kvmodels":
        return None, ""
    if column.engine != "memory":
        return GROWTH_ON_FILES, ""
    floor = grown.get(FLOOR_IN_MEMORY)
    if floor is None:
        return None, ""
    return floor.middle + GROWTH_ABOVE_FLOOR, f"the floor costs {floor.middle:.3g} times as much"


def of_imports(results: Results) -> Iterator[Finding]:
    """The import of kvmodels, in that of pydantic: of the names that a program needs, and as ``imports`` has it."""
    for what in ("", *(f", {what}" for what in BESIDE_PYDANTIC)):
        mine, theirs = results.imports.get(f"kvmodels{what}"), results.imports.get(f"pydantic{what}")
        if mine is None or theirs is None:
            continue
        found = spread([one / other for one, other in zip(mine, theirs, strict=True)])
        if found is not None:
            reached, words = found.middle <= IMPORT, "takes {} times as long as that of pydantic"
            yield Finding("import", f"kvmodels against pydantic{what}", found, f"≤ {IMPORT:g}", reached, words=words)
