"""Charts as SVG: the speed of others beside kvmodels, and what operations cost as stores grow.

Rules of this module: a chart is a function of numbers; it knows nothing of columns or rows. Comparisons of everything
have logarithmic scales, because the figures span four orders of magnitude, and every mark carries its value as a
tooltip. Bars begin at zero and show their values. Colours are classes of one style sheet, which has a dark form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from benchmarks.ratios import Spread

LIGHT = ("#1565c0", "#c62828", "#2e7d32", "#ef6c00", "#6a1b9a", "#00838f", "#827717", "#5d4037", "#455a64")
DARK = ("#64b5f6", "#ff8a80", "#81c784", "#ffb74d", "#ce93d8", "#4dd0e1", "#dce775", "#bcaaa4", "#b0bec5")
"""Of the series, in their order."""
INK = {"ink": ("#212121", "#e6e9f0"), "soft": ("#616161", "#a7b0c4"), "line": ("#dddddd", "#3a4252")}
MARKED = {"own": ("#24407a", "#8fb0ff"), "other": ("#b0b8c9", "#56617a")}
GROUND = ("#fafafa", "#1c2029")
SHAPES = ("circle", "square", "diamond")
LEFT, RIGHT, TOP, LINE = 226, 24, 92, 30
IN_A_LINE = 4
WIDTH = 900
PANEL_WIDTH, PANEL_HEIGHT, PANEL_GAP = 244, 170, 40
BAR_PANEL, BAR_NAME, BAR, BAR_LENGTH = 350, 108, 22, 150


def style() -> str:
    """The colours of every class, for light and for dark pages."""
    named = {f"s{index}": pair for index, pair in enumerate(zip(LIGHT, DARK, strict=True))} | INK | MARKED
    light, dark = ("".join(f".{name}{{color:{pair[mode]}}}" for name, pair in named.items()) for mode in (0, 1))
    return (
        f"<style>.ground{{color:{GROUND[0]}}}{light}"
        f"@media (prefers-color-scheme: dark){{.ground{{color:{GROUND[1]}}}{dark}}}</style>"
    )


def text(x: float, y: float, content: str, *, size: int = 13, anchor: str = "start", colour: str = "ink") -> str:
    """One line of text."""
    look = f'font-size="{size}" text-anchor="{anchor}" class="{colour}" fill="currentColor"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(content)}</text>'


def series_class(index: int) -> str:
    """The class that has the colour of a series."""
    return f"s{index % len(LIGHT)}"


def mark(x: float, y: float, series: int, tip: str) -> str:
    """The point of a series, told apart by colour and by shape."""
    look, shape = f'class="{series_class(series)}" fill="currentColor"', SHAPES[series % len(SHAPES)]
    title = f"<title>{escape(tip)}</title>"
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {look}>{title}</circle>'
    turn = f' transform="rotate(45 {x:.1f} {y:.1f})"' if shape == "diamond" else ""
    return f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" {look}{turn}>{title}</rect>'


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
    ground = f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" class="ground" fill="currentColor"/>'
    return "\n".join(
        [opening, style(), ground, '<g font-family="system-ui, sans-serif">', *parts, "</g>", "</svg>", ""]
    )


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
        colour, label = ("ink", f"{base} = 1") if tick == 1 else ("line", short(tick))
        parts.append(f'<path d="M{place(tick):.1f} {TOP - 6}V{bottom}" class="{colour}" stroke="currentColor"/>')
        parts.append(text(place(tick), bottom + 18, label, anchor="middle"))
    for line, (row, by_series) in enumerate(rows.items()):
        y = TOP + LINE * line + LINE / 2
        parts.append(text(LEFT - 12, y + 4, row, anchor="end"))
        for name, found in by_series.items():
            index = series.index(name)
            reach = f'd="M{place(found.low):.1f} {y}H{place(found.high):.1f}" class="{series_class(index)}"'
            parts.append(f'<path {reach} stroke="currentColor" stroke-width="2" opacity="0.5"/>')
            parts.append(mark(place(found.middle), y, index, f"{row}, {name}: {found.middle:.3g}"))
    parts.append(text(LEFT, bottom + 38, "← slower", colour="soft"))
    parts.append(text(WIDTH - RIGHT, bottom + 38, "faster →", anchor="end", colour="soft"))
    return frame(WIDTH, bottom + 50, title, parts)


def bars(title: str, panels: Mapping[str, Mapping[str, tuple[float, str]]], own: str) -> str:
    """A panel a row, two beside each other, a bar a series: longer is faster, and one series stands out.

    Args:
        title: what the chart shows.
        panels: row, series, the length of the bar and its label; each row has a scale of its own.
        own: the series that stands out.
    """
    step = 34 + BAR * max(len(panel) for panel in panels.values()) + 18
    parts = [text(16, 28, title, size=16)]
    for number, (row, values) in enumerate(panels.items()):
        left, top = 16 + number % 2 * (BAR_PANEL + 8), 66 + number // 2 * step
        longest = max(length for length, _ in values.values())
        parts.append(text(left, top, row, size=15))
        for line, (name, (length, label)) in enumerate(values.items()):
            y, wide = top + 12 + BAR * line, max(length / longest * BAR_LENGTH, 1.5)
            colour = "own" if name == own else "other"
            box = f'x="{left + BAR_NAME}" y="{y}" width="{wide:.1f}" height="{BAR - 6}" rx="2"'
            parts.append(f'<rect {box} class="{colour}" fill="currentColor"/>')
            ink = "ink" if name == own else "soft"
            parts.append(text(left + BAR_NAME - 8, y + 12, name, anchor="end", colour=ink))
            parts.append(text(left + BAR_NAME + wide + 6, y + 12, label, colour=ink))
    return frame(2 * BAR_PANEL + 24, 66 + math.ceil(len(panels) / 2) * step, title, parts)


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
        parts.append(f'<path d="M{left} {down(tick):.1f}h{PANEL_WIDTH}" class="line" stroke="currentColor"/>')
        parts.append(text(left - 6, down(tick) + 4, short(tick), size=11, anchor="end"))
    parts += [text(across(size), top + PANEL_HEIGHT + 16, short(size), size=11, anchor="middle") for size in sizes]
    for name, points in lines.items():
        index = series.index(name)
        path = "L".join(f"{across(size):.1f} {down(point.middle):.1f}" for size, point in sorted(points.items()))
        look = f'class="{series_class(index)}" fill="none" stroke="currentColor" stroke-width="2"'
        parts.append(f'<path d="M{path}" {look}/>')
        parts += [
            mark(across(size), down(point.middle), index, f"{row}, {name}, {size:,} records: {point.middle:.3g} µs")
            for size, point in sorted(points.items())
        ]
    return parts
