"""Figures as text and as pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from benchmarks.chart import bars, beside, decades, growing, short
from benchmarks.ratios import Spread
from benchmarks.table import number, table, times

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.012345, "0.0123"),
        (0.9996, "1.00"),
        (1.2345, "1.23"),
        (12.345, "12.3"),
        (123.45, "123"),
        (999.6, "1,000"),
        (12345.0, "12,300"),
        (1234567.0, "1,230,000"),
    ],
)
def test_numbers_have_three_digits(value, shown):
    assert number(value) == shown


def test_a_table_is_markdown_with_numbers_to_the_right():
    assert table(["", "a"], [["x", "1"], ["y", times(Spread(1.0, 2.0, 4.0))], ["z", times(None)]]) == (
        "|  | a |\n| --- | ---: |\n| x | 1 |\n| y | 2.00 (1.00–4.00) |\n| z | – |\n"
    )


def tips(svg: str) -> dict[str, float]:
    """Tooltip and horizontal place of every mark that carries a value."""
    found = {}
    for element in ET.fromstring(svg).iter():
        title = element.find(f"{SVG}title")
        if title is not None and title.text is not None and ":" in title.text:
            x = element.get("cx") or str(float(element.get("x", "nan")) + 4.5)
            found[title.text] = float(x)
    return found


def test_in_the_chart_of_speeds_faster_is_to_the_right_of_the_line_at_one():
    rows = {
        "get": {"slow & old": Spread(0.05, 0.1, 0.2), "fast": Spread(1.5, 2.0, 3.0)},
        "insert": {"fast": Spread(1, 1, 1)},
    }
    svg = beside("Speed <now>", rows, "ours")
    places = tips(svg)
    assert len(places) == 3
    at_one = places["insert, fast: 1"]
    assert places["get, slow & old: 0.1"] < at_one < places["get, fast: 2"]
    # Logarithmic: ten times slower is further away than twice as fast.
    assert at_one - places["get, slow & old: 0.1"] > 3 * (places["get, fast: 2"] - at_one)
    root = ET.fromstring(svg)
    width, height = (float(part) for part in root.attrib["viewBox"].split()[2:])
    for element in root.iter(f"{SVG}text"):
        assert 0 <= float(element.attrib["x"]) <= width
        assert 0 <= float(element.attrib["y"]) <= height


def test_in_the_chart_of_growth_each_row_has_a_panel_and_each_size_a_mark():
    points = {10_000: Spread(1, 2, 3), 1_000_000: Spread(3, 4, 5)}
    svg = growing("Growth", {"get": {"memory": points, "sqlite": points}, "insert": {"memory": points}})
    places = tips(svg)
    assert len(places) == 6
    assert places["get, memory, 10,000 records: 2 µs"] < places["get, memory, 1,000,000 records: 4 µs"]
    assert [element.text for element in ET.fromstring(svg).iter(f"{SVG}text")][:3] == ["Growth", "memory", "sqlite"]


def test_in_the_chart_of_bars_each_row_has_its_own_scale_and_one_series_stands_out():
    rows = {
        "get": {"ours": (50.0, "50"), "slow": (25.0, "25")},
        "insert": {"ours": (2.0, "2"), "fast & small": (4.0, "4")},
    }
    root = ET.fromstring(bars("Speed", rows, "ours"))
    ground, *boxes = root.iter(f"{SVG}rect")
    widths = [float(box.attrib["width"]) for box in boxes]
    assert widths[0] == widths[3] == 2 * widths[1] == 2 * widths[2]
    assert [box.attrib["class"] for box in boxes] == ["own", "other", "own", "other"]
    texts = {element.text: float(element.attrib["x"]) for element in root.iter(f"{SVG}text")}
    assert {"Speed", "get", "insert", "ours", "slow", "fast & small", "50", "25", "2", "4"} == set(texts)
    assert max(texts.values()) < float(ground.attrib["width"])


def test_every_colour_has_a_dark_form():
    names, dark = beside("Speed", {"get": {"slow": Spread(1, 1, 1)}}, "ours").split(
        "@media (prefers-color-scheme: dark)"
    )
    used = {name for name in ("ground", "ink", "soft", "line", "s0") if f'class="{name}"' in dark}
    assert used == {"ground", "ink", "soft", "line", "s0"}
    assert all(f".{name}{{color:" in names and f".{name}{{color:" in dark for name in used)


def test_axes_are_marked_at_powers_of_ten():
    assert decades(0.05, 20) == [0.01, 0.1, 1.0, 10.0, 100.0]
    assert decades(10, 10) == [10.0, 100.0]
    assert [short(value) for value in (0.01, 1, 1e3, 1e5, 1e6)] == ["0.01", "1", "1k", "100k", "1M"]
