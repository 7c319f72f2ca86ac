"""The verdicts of the page: what kvmodels is meant to reach, how often it does, and every comparison that misses.

Rules of this module: a ratio is never shown without the words that say of what it is one, and which way round.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import aims
from benchmarks.aims import Finding
from benchmarks.columns.registry import PEERS, SHOWN, Column
from benchmarks.imports import BESIDE_PYDANTIC
from benchmarks.ratios import ratio
from benchmarks.results import Results
from benchmarks.rows import ROWS
from benchmarks.table import table, times

WHY = """
Design notes show where the time goes, what was tried, and what is left: [reads](design/0012-hot-paths.md),
[writes](design/0013-hot-paths-of-writes.md), [imports, opening and memory](design/0014-import-time.md). In short: the
floor has no versions, deadlines, schema header, or checks against damage by other programs; kvmodels reads and compares
these with every record. On SQLite, its records, slots and entries are rows of one table, with values that SQLite cannot
look into.
"""
MISSED = {
    "ahead of peers": "Slower or larger than a peer",
    "near the floor": "Farther from the floor than aimed at",
    "many tasks": "Fewer commits of many tasks than aimed at",
    "growth": "More growth than aimed at",
    "import": "Slower imports than aimed at",
}


def in_words() -> str:
    """The table of aims."""
    far_ahead_of = ", ".join(aims.FAR_AHEAD_OF)
    pairs = 1 + len(BESIDE_PYDANTIC)
    rows = [
        (
            "ahead of peers",
            (
                f"costs at most as much as each of {', '.join(PEERS)}, on every row, at the same durability; "
                f"get by key and by unique index: at least {aims.FAR:g} times as fast as {far_ahead_of}; "
                f"where the floor is behind that peer itself: at most {aims.BESIDE_A_SLOW_FLOOR:g} times the floor"
            ),
        ),
        (
            "near the floor",
            (
                f"on the same engine, reads cost at most {aims.READS_OF_FLOOR:g} times the floor, "
                f"writes {aims.WRITES_OF_FLOOR:g} times"
            ),
        ),
        (
            "many tasks",
            (
                f"on SQLite with `commit`, 1,000 tasks reach at least {aims.TOGETHER:g} times the commits of one, "
                "by `patch` and by `kv.set`; other stores are shown"
            ),
        ),
        (
            "growth",
            (
                "in memory, a get by key costs more in the largest store than in the smallest by at most the growth "
                f"of the floor, a dict, plus {aims.GROWTH_ABOVE_FLOOR:g}; on files, it is at most "
                f"{aims.GROWTH_ON_FILES:g} times as much in the largest store; get by unique index is shown"
            ),
        ),
        ("import", f"takes at most {aims.IMPORT:g} times as long as pydantic, for each of {pairs} pairs"),
    ]
    lines = ["| Aim | kvmodels |", "| --- | --- |", *(f"| {aim} | {words} |" for aim, words in rows)]
    return "\n".join(lines) + "\n"


def counted(aim: str, of_aim: Sequence[Finding]) -> str:
    """How often an aim is reached; what only is shown does not count."""
    aimed = [one for one in of_aim if one.has_aim]
    allowed = sum(one.allowed for one in aimed)
    missed = sum(not one.reached for one in aimed)
    ahead = len(aimed) - allowed - missed
    if aim == "ahead of peers":
        parts = f"ahead {ahead}, allowed {allowed} because the floor itself is behind, missed {missed}"
        return f"- **{aim}** ({', '.join(PEERS)}): {parts}; {len(aimed)} comparisons."
    also = len(of_aim) - len(aimed)
    shown = f"; {also} more are shown and have no aim" if also else ""
    return f"- **{aim}**: reached {ahead}, missed {missed}{shown}."


def misses(aim: str, missed: Sequence[Finding]) -> str:
    """The table of what misses one aim."""
    remarked = any(one.remark for one in missed)
    header = ["", "median, quartiles", "aim", *(["the floor"] if remarked else [])]
    rows = [[one.what, one.sentence, one.limit, *([one.remark] if remarked else [])] for one in missed]
    return f"\n### {MISSED[aim]}\n\n" + table(header, rows)


def verdicts(results: Results) -> str:
    """The aims, how many comparisons reach them, and every one that does not."""
    found = aims.findings(results)
    by_aim = {aim: [one for one in found if one.aim == aim] for aim in dict.fromkeys(one.aim for one in found)}
    text = in_words() + "\n" + "\n".join(counted(aim, of_aim) for aim, of_aim in by_aim.items()) + "\n"
    for aim, of_aim in by_aim.items():
        missed = [one for one in of_aim if not one.reached]
        text += misses(aim, missed) if missed else ""
    text += WHY if any(not one.reached for one in found) else ""
    excused = [one for one in found if one.allowed]
    if excused:
        rows = [[one.what, one.sentence, one.remark] for one in excused]
        text += "\n### Allowed: the floor is behind the peer as well\n\n"
        text += table(["", "median, quartiles", "the floor"], rows)
    return text + other_work(results)


def comparable(results: Results, column: Column) -> Column | None:
    """The column of kvmodels that another one is compared with: the same engine, or the nearest."""
    if column.family == "kvmodels":
        return None
    same = aims.ours(results, column.engine, column.durability)
    return same or aims.ours(results, "sqlite", column.durability)


def other_work(results: Results) -> str:
    """Where TinyDB and ZODB, which are no part of the aims, are better."""
    rows = []
    for column in results.columns:
        mine = comparable(results, column) if column.family in SHOWN else None
        for row in ROWS if mine is not None else ():
            if row.name == "import" and column.durability != "memory":
                continue  # a library is imported once, whatever it stores
            found = ratio(results.samples(row.name, column), results.samples(row.name, mine)) if mine else None
            if found is not None and found.middle < 1:
                words = aims.FASTER if row.is_rate else aims.PEER_TAKES.get(row.name, aims.PEER_LASTS)
                rows.append([f"{row.title}: {column.family}, {column.place}", words.format(times(found))])
    if not rows:
        return ""
    return (
        f"\n### Where {' or '.join(SHOWN)} is better\n\n"
        "They are shown and no part of the aims, because they do other work: TinyDB has neither indexes nor unique "
        "fields and, in memory, returns shallow copies of the dicts that it holds; ZODB returns the live object from "
        "its cache. Neither decodes or validates what it returns there.\n\n" + table(["", "median, quartiles"], rows)
    )
