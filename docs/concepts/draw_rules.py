"""Draw the race that each of the five rules prevents, from the tables below, and write the SVG files.

Rules of this module: a picture is data (``RACES``); a test draws every picture again and compares it with the file.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

LANE_WIDTH = 292
ROW_HEIGHT = 40
MARGIN = 16
COLOURS = {
    "read": ("#1565c0", "#64b5f6"),
    "ok": ("#2e7d32", "#81c784"),
    "refused": ("#c62828", "#ff8a80"),
    "fault": ("#6a1b9a", "#ce93d8"),
    "ink": ("#212121", "#e6e9f0"),
    "soft": ("#424242", "#a7b0c4"),
    "line": ("#bdbdbd", "#3a4252"),
    "ground": ("#fafafa", "#1c2029"),
    "box": ("#ffffff", "#262b36"),
}
"""Each class on light and on dark pages."""


class Step(NamedTuple):
    """One event: its lane (0, 1), its text, its kind, and the contents of the store afterwards."""

    lane: int
    text: str
    kind: str
    store: str


class Race(NamedTuple):
    """Two processes and the store, and the outcome with and without the rule."""

    lanes: tuple[str, str]
    steps: tuple[Step, ...]
    without: str
    within: str


RACES: dict[str, Race] = {
    "r1": Race(
        ("insert Ada, a@x.org", "insert Bob, a@x.org"),
        (
            Step(0, "read slot a@x.org: absent", "read", ""),
            Step(1, "read slot a@x.org: absent", "read", ""),
            Step(0, "commit, checks: slot absent", "ok", "slot a@x.org -> Ada"),
            Step(1, "commit, checks: slot absent", "refused", "slot a@x.org -> Ada"),
        ),
        "Bob overwrites the slot: two users with one address, and Ada can no longer be found by hers.",
        "Bob's commit is refused; he reads again, sees Ada, and gets UniqueViolationError.",
    ),
    "r2": Race(
        ("patch: red to blue", "patch: red to green"),
        (
            Step(0, "read user 1: red, version 1", "read", "entry (red, 1)"),
            Step(1, "read user 1: red, version 1", "read", "entry (red, 1)"),
            Step(0, "commit: - (red, 1) + (blue, 1)", "ok", "entry (blue, 1)"),
            Step(1, "commit: - (red, 1) + (green, 1)", "refused", "entry (blue, 1)"),
        ),
        "Both commit: user 1 is green, but the entry (blue, 1) is never removed.",
        "The second checks version 1, is refused, reads version 2, and moves (blue, 1) to (green, 1).",
    ),
    "r3": Race(
        ("writer, old header", "build of the index on city"),
        (
            Step(0, "read header 1: no such index", "read", "header 1"),
            Step(1, "commit header 2: index WRITE_ONLY", "ok", "header 2"),
            Step(1, "scan all records, write entries", "ok", "entries of all users"),
            Step(0, "insert user 7 without an entry", "refused", "entries of all users"),
            Step(1, "commit header 3: index READABLE", "ok", "header 3"),
        ),
        "User 7 is stored, the index says READABLE, and no query by city ever finds the user.",
        "The insert checks header 1, is refused, reads header 2, and writes the entry of user 7 itself.",
    ),
    "r4": Race(
        ("job that writes records itself", "build of the index on city"),
        (
            Step(1, "commit fence: later writers do it", "ok", "fence 5"),
            Step(0, "rewrite user 7, no entries", "ok", "user 7, version 6"),
            Step(1, "user 7 is newer than the fence: skip", "read", "user 7, version 6"),
            Step(1, "commit header: index READABLE", "ok", "no entry of user 7"),
        ),
        "The build trusts every writer after the fence. This one wrote no entry, and user 7 is missing.",
        "The job must use the compiler like every writer, so its commit contains the entry.",
    ),
    "r5": Race(
        ("set the name to Ada L.", "set the name to Ada King"),
        (
            Step(0, "commit on version 1; answer lost", "fault", "Ada L., version 2"),
            Step(1, "read version 2, commit", "ok", "Ada King, version 3"),
            Step(0, "network delivers the commit again", "refused", "Ada King, version 3"),
        ),
        "The old commit is applied a second time and undoes an acknowledged write of the other writer.",
        "Every commit checks a key that it writes, so the second delivery is refused: version 1 is gone.",
    ),
}


def style() -> str:
    """The colours of every class."""
    light, dark = ("".join(f".{name}{{color:{pair[mode]}}}" for name, pair in COLOURS.items()) for mode in (0, 1))
    return f"<style>{light}@media (prefers-color-scheme: dark){{{dark}}}</style>"


def text(x: float, y: float, content: str, *, colour: str = "ink", bold: bool = False, size: int = 13) -> str:
    """Return one line of text as SVG."""
    weight = ' font-weight="600"' if bold else ""
    look = f'class="{colour}" fill="currentColor" font-size="{size}"{weight}'
    return f'<text x="{x}" y="{y}" {look}>{escape(content)}</text>'


def draw(rule: str, race: Race) -> str:
    """Return the picture of one race as SVG: two lanes, the store beside them, time running down, two outcomes."""
    width = 3 * LANE_WIDTH + 2 * MARGIN
    bottom = 56 + ROW_HEIGHT * len(race.steps)
    label = escape(f"{rule.upper()}: {race.within}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 72}" role="img" aria-label="{label}">',
        style(),
        f'<rect width="{width}" height="{bottom + 72}" rx="8" class="ground" fill="currentColor"/>',
        '<g font-family="system-ui, sans-serif">',
    ]
    for column, title in enumerate((*race.lanes, "the store holds")):
        x = MARGIN + column * LANE_WIDTH
        parts.append(text(x + 8, 30, title, bold=True, size=14))
        parts.append(f'<path d="M{x} 42V{bottom}" class="line" stroke="currentColor"/>')
    for number, step in enumerate(race.steps):
        y = 50 + number * ROW_HEIGHT
        x = MARGIN + step.lane * LANE_WIDTH + 8
        box = f'x="{x}" y="{y}" width="{LANE_WIDTH - 20}" height="30" rx="5"'
        parts.append(f'<rect {box} class="box" fill="currentColor"/>')
        parts.append(f'<rect {box} class="{step.kind}" fill="none" stroke="currentColor"/>')
        mark = " ✗" if step.kind == "refused" else ""
        parts.append(text(x + 10, y + 20, step.text + mark, colour=step.kind))
        parts.append(text(MARGIN + 2 * LANE_WIDTH + 12, y + 20, step.store, colour="soft"))
    for line, (which, ending, colour) in enumerate(
        (("without the rule: ", race.without, "refused"), ("with it: ", race.within, "ok"))
    ):
        parts.append(text(MARGIN + 8, bottom + 26 + 26 * line, which + ending, colour=colour))
    return "\n".join([*parts, "</g>", "</svg>", ""])


def main() -> None:
    """Write every picture beside this module."""
    for rule, race in RACES.items():
        Path(__file__).with_name(f"{rule}.svg").write_text(draw(rule, race), encoding="utf-8")


if __name__ == "__main__":
    main()
