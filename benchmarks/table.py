"""Markdown tables of figures.

Rules of this module: text only; which figures are shown is decided elsewhere. Three digits are shown, because no
measurement here has more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.ratios import Spread

NOTHING = "–"


def number(value: float) -> str:
    """Three digits, thousands set apart: 0.0123, 1.23, 12.3, 123, 1,230, 12,300."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    shown = round(value, digits)
    return f"{shown:,.{max(0, 2 - math.floor(math.log10(abs(shown))))}f}"


def times(spread: Spread | None) -> str:
    """A ratio with its quartiles."""
    if spread is None:
        return NOTHING
    return f"{number(spread.middle)} ({number(spread.low)}–{number(spread.high)})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column to the left, the others to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"
