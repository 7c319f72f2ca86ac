"""Charts as SVG, drawn by hand: what others reach beside kvmodels, and what operations cost as stores grow.

Rules of this module: a chart is a function of numbers; it knows nothing of columns or rows. Logarithmic scales, because
the figures span four orders of magnitude; every mark carries its value as a tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from benchmarks.ratios import Spread

COLOURS = ("#1565c0", "#c62828", "#2e7d32", "#ef6c00", "#6a1b9a", "#00838f", "#9e9d24", "#5d4037", "#455a64")
SHAPES = ("circle", "square", "diamond")
LEFT, RIGHT, TOP, LINE = 210, 24, 92, 30
IN_A_LINE = 4
WIDTH = 900
PANEL_WIDTH, PANEL_HEIGHT, PANEL_GAP = 244, 170, 40


def text(x: float, y: float, content: str, *, size: int = 12, anchor: str = "start", colour: str = "#212121") -> str:
    """One line of text."""
    look = f'font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(content)}</text>'


def mark(x: float, y: float, series: int, tip: str) -> str:
    """The point of a series, told apart by colour and by shape."""
    colour, shape = COLOURS[series % len(COLOURS)], SHAPES[series % len(SHAPES)]
    title = f"<title>{escape(tip)}</title>"
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}">{title}</circle>'
    turn = f' transform="rotate(45 {x:.1f} {y:.1f})"' if shape == "diamond" else ""
    return f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" fill="{colour}"{turn}>{title}</rect>'


def legend(series: Sequence[str]) -> list[str]:
    """The names of the series below the title, four in a line."""
    step = (WIDTH - 32) / IN_A_LINE
    parts = []
    for index, name in enumerate(series):
        x, y = 22 + index % IN_A_LINE * step, 48 + index // IN_A_LINE * 20
        parts += [mark(x, y, index, name), text(x + 10, y + 4, name)]
    return parts


def frame(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    """The picture around its parts."""
    box = f'viewBox="0 0 {width:.0f} {height:.0f}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" aria-label="{escape(label)}">'
    ground = f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#fafafa"/>'
    return "\n".join([opening, ground, '<g font-family="system-ui, sans-serif">', *parts, "</g>", "</svg>", ""])


def decades(low: float, high: float) -> list[float]:
    """The powers of ten from below the lowest to above the highest, two at least."""
    first = math.floor(math.log10(low))
    last = max(math.ceil(math.log10(high)), first + 1)
    return [10.0**power for power in range(first, last + 1)]


def short(value: float) -> str:
    """A power of ten as an axis shows it."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


def beside(title: str, rows: Mapping[str, Mapping[str, Spread]], base: str) -> str:
    """One line a row, one mark a series: the series' speed in that of the base, which is the line at 1.

    Args:
        title: what the chart shows.
        rows: row, series, ratio; 0.1 is ten times slower than the base.
        base: what stands at 1.
    """
    series = list(dict.fromkeys(name for by_series in rows.values() for name in by_series))
    values = [part for by_series in rows.values() for found in by_series.values() for part in (found.low, found.high)]
    ticks = decades(min([*values, 0.5]), max([*values, 2.0]))
    first, last = math.log10(ticks[0]), math.log10(ticks[-1])
    scale = (WIDTH - LEFT - RIGHT) / (last - first)

    def place(value: float) -> float:
        return LEFT + (math.log10(value) - first) * scale

    bottom = TOP + LINE * len(rows)
    parts = [text(16, 26, title, size=15)]
    parts += legend(series)
    for tick in ticks:
        colour, label = ("#212121", f"{base} = 1") if tick == 1 else ("#e0e0e0", short(tick))
        parts.append(f'<path d="M{place(tick):.1f} {TOP - 6}V{bottom}" stroke="{colour}"/>')
        parts.append(text(place(tick), bottom + 18, label, anchor="middle"))
    for line, (row, by_series) in enumerate(rows.items()):
        y = TOP + LINE * line + LINE / 2
        parts.append(text(LEFT - 12, y + 4, row, anchor="end"))
        for name, found in by_series.items():
            index = series.index(name)
            colour = COLOURS[index % len(COLOURS)]
            reach = f"M{place(found.low):.1f} {y}H{place(found.high):.1f}"
            parts.append(f'<path d="{reach}" stroke="{colour}" stroke-width="2" opacity="0.5"/>')
            parts.append(mark(place(found.middle), y, index, f"{row}, {name}: {found.middle:.3g}"))
    parts.append(text(LEFT, bottom + 38, "← slower", colour="#616161"))
    parts.append(text(WIDTH - RIGHT, bottom + 38, "faster →", anchor="end", colour="#616161"))
    return frame(WIDTH, bottom + 50, title, parts)


def growing(title: str, panels: Mapping[str, Mapping[str, Mapping[int, Spread]]]) -> str:
    """A panel a row, a line a series: microseconds of one operation over the number of records.

    Args:
        title: what the chart shows.
        panels: row, series, records, microseconds.
    """
    found = [point for lines in panels.values() for points in lines.values() for point in points.values()]
    sizes = sorted({size for lines in panels.values() for points in lines.values() for size in points})
    series = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    ticks = decades(min(point.low for point in found), max(point.high for point in found))
    across = 3
    parts = [text(16, 26, title, size=15)]
    parts += legend(series)
    for index, (row, lines) in enumerate(panels.items()):
        left = 58 + (index % across) * (PANEL_WIDTH + PANEL_GAP)
        top = 110 + (index // across) * (PANEL_HEIGHT + PANEL_GAP + 14)
        parts += panel((left, top), row, lines, sizes, (series, ticks))
    height = 110 + math.ceil(len(panels) / across) * (PANEL_HEIGHT + PANEL_GAP + 14)
    return frame(WIDTH, height, title, parts)


def panel(
    corner: tuple[float, float],
    row: str,
    lines: Mapping[str, Mapping[int, Spread]],
    sizes: Sequence[int],
    shared: tuple[Sequence[str], Sequence[float]],
) -> list[str]:
    """One panel with its upper left corner."""
    (left, top), (series, ticks) = corner, shared
    low, high = math.log10(ticks[0]), math.log10(ticks[-1])
    first, last = math.log10(sizes[0]), math.log10(sizes[-1])

    def across(size: float) -> float:
        return left + 14 + (math.log10(size) - first) / max(last - first, 1e-9) * (PANEL_WIDTH - 28)

    def down(value: float) -> float:
        return top + PANEL_HEIGHT - (math.log10(value) - low) / (high - low) * PANEL_HEIGHT

    parts = [text(left, top - 8, f"{row}, µs", size=13)]
    for tick in ticks:
        parts.append(f'<path d="M{left} {down(tick):.1f}h{PANEL_WIDTH}" stroke="#e0e0e0"/>')
        parts.append(text(left - 6, down(tick) + 4, short(tick), size=11, anchor="end"))
    parts += [text(across(size), top + PANEL_HEIGHT + 16, short(size), size=11, anchor="middle") for size in sizes]
    for name, points in lines.items():
        index = series.index(name)
        colour = COLOURS[index % len(COLOURS)]
        path = "L".join(f"{across(size):.1f} {down(point.middle):.1f}" for size, point in sorted(points.items()))
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            mark(across(size), down(point.middle), index, f"{row}, {name}, {size:,} records: {point.middle:.3g} µs")
            for size, point in sorted(points.items())
        ]
    return parts
