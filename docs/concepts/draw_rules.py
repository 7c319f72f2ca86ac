"""Draws the race that each of the five rules closes, from the tables below; prints nothing, writes the SVG files.

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
    "read": "#1565c0",
    "ok": "#2e7d32",
    "refused": "#c62828",
    "fault": "#6a1b9a",
}


class Step(NamedTuple):
    """One thing that happens: in which lane (0, 1), what, of which kind, and what the store holds afterwards."""

    lane: int
    text: str
    kind: str
    store: str


class Race(NamedTuple):
    """Two processes and the store, and how the story ends with and without the rule."""

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
        "Both commit: user 1 is green, but the entry (blue, 1) stays for ever.",
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
        "There is no other way to write: the job's commit is compiled like every one, with the entry.",
    ),
    "r5": Race(
        ("set the name to Ada L.", "set the name to Ada King"),
        (
            Step(0, "commit on version 1; answer lost", "fault", "Ada L., version 2"),
            Step(1, "read version 2, commit", "ok", "Ada King, version 3"),
            Step(0, "network delivers the commit again", "refused", "Ada King, version 3"),
        ),
        "The old commit is applied a second time and takes back what the other writer was told is stored.",
        "Every commit checks a key that it writes, so a second delivery refuses itself: version 1 is gone.",
    ),
}


def text(x: float, y: float, content: str, *, colour: str = "#212121", bold: bool = False, size: int = 13) -> str:
    """One line of text."""
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}" fill="{colour}" font-size="{size}"{weight}>{escape(content)}</text>'


def draw(rule: str, race: Race) -> str:
    """The picture of one race as SVG: two lanes, the store beside them, time running down, two endings."""
    width = 3 * LANE_WIDTH + 2 * MARGIN
    bottom = 56 + ROW_HEIGHT * len(race.steps)
    label = escape(f"{rule.upper()}: {race.within}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 72}" role="img" aria-label="{label}">',
        f'<rect width="{width}" height="{bottom + 72}" rx="8" fill="#fafafa"/>',
        '<g font-family="system-ui, sans-serif">',
    ]
    for column, title in enumerate((*race.lanes, "the store holds")):
        x = MARGIN + column * LANE_WIDTH
        parts.append(text(x + 8, 30, title, bold=True, size=14))
        parts.append(f'<path d="M{x} 42V{bottom}" stroke="#bdbdbd"/>')
    for number, step in enumerate(race.steps):
        y = 50 + number * ROW_HEIGHT
        x = MARGIN + step.lane * LANE_WIDTH + 8
        colour = COLOURS[step.kind]
        parts.append(
            f'<rect x="{x}" y="{y}" width="{LANE_WIDTH - 20}" height="30" rx="5" fill="#fff" stroke="{colour}"/>'
        )
        mark = " ✗" if step.kind == "refused" else ""
        parts.append(text(x + 10, y + 20, step.text + mark, colour=colour))
        parts.append(text(MARGIN + 2 * LANE_WIDTH + 12, y + 20, step.store, colour="#424242"))
    for line, (which, ending, colour) in enumerate(
        (("without the rule: ", race.without, "#c62828"), ("with it: ", race.within, "#2e7d32"))
    ):
        parts.append(text(MARGIN + 8, bottom + 26 + 26 * line, which + ending, colour=colour))
    return "\n".join([*parts, "</g>", "</svg>", ""])


def main() -> None:
    """Write every picture beside this module."""
    for rule, race in RACES.items():
        Path(__file__).with_name(f"{rule}.svg").write_text(draw(rule, race), encoding="utf-8")


if __name__ == "__main__":
    main()
