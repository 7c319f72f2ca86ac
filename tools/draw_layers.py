"""Draw the layers of the package: ``docs/assets/layers.svg``, which ``docs/architecture.md`` shows.

Run ``python -m tools.draw_layers`` after a change of the layers. ``tests/docs/test_pictures.py`` compares the picture
with this table, and the table with the layers that ``tests/test_layering.py`` enforces.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

PICTURE: Final = Path(__file__).resolve().parent.parent / "docs" / "assets" / "layers.svg"

# Highest first: each row is a layer, each entry a package with what it holds.
ROWS: Final[tuple[dict[str, str], ...]] = (
    {"__main__": "python -m kvmodels"},
    {"cli": "the command kvmodels"},
    {"ext": "Rich trees", "keys": "key encoding", "testing": "race tester"},
    {"api": "facades: Database, Repository, Transaction, Kv"},
    {"frames": "tables of Arrow, data frames, Parquet files"},
    {"runtime": "drivers: run a flow with threads or an event loop"},
    {"flows": "reads, writes, transactions, schema changes"},
    {"indexing": "index entries", "query": "query plans"},
    {"catalog": "key layout, header, states of indexes"},
    {"schema": "models, declared indexes, storage forms, filters"},
    {"codecs": "values as bytes", "engines": "stores, one contract"},
    {"core": "keys, values, operations"},
    {"errors": "codes and hints", "limits": "sizes"},
    {"_support": "helpers without knowledge of the library"},
)
PURE: Final = frozenset({"core", "codecs", "schema", "catalog", "indexing", "query", "flows"})
"""Packages that know no time, thread, file or chance."""

WIDTH: Final = 400
EDGE: Final = 14
GAP: Final = 8
ROW_HEIGHT: Final = 50
TOP: Final = 44

_STYLE: Final = """\
.ground { fill: #fafafa } .box { fill: #ffffff; stroke: #90a4c8; stroke-width: 1.5 }
.pure { fill: #e6f0e7; stroke: #5f9a64 }
text { font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 14px; fill: #37415c }
.name { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-weight: 600; fill: #16213d }
.down { stroke: #5b6b8f; stroke-width: 2; fill: none } .tip { fill: #5b6b8f }
@media (prefers-color-scheme: dark) {
.ground { fill: #1c2029 } .box { fill: #262b36; stroke: #5b6b8f } .pure { fill: #22352a; stroke: #6aa870 }
text { fill: #ccd4e6 } .name { fill: #f1f4fb } .down { stroke: #8d9abb } .tip { fill: #8d9abb }
}"""


def draw() -> str:
    """Return the picture as SVG."""
    bottom = TOP + len(ROWS) * (ROW_HEIGHT + GAP)
    height = bottom + 64
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{description()}">',
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height}" rx="10"/>',
        f'<path class="down" d="M{EDGE + 5} 14v16"/><path class="tip" d="M{EDGE - 1} 28h12l-6 9z"/>',
        f'<text x="{EDGE + 20}" y="30">A package imports only from layers below it.</text>',
    ]
    for number, row in enumerate(ROWS):
        parts += _row(row, TOP + number * (ROW_HEIGHT + GAP))
    for line, (kind, text) in enumerate((("box pure", "no time, threads, files or chance"), ("box", "may use them"))):
        y = bottom + 6 + 26 * line
        parts.append(f'<rect class="{kind}" x="{EDGE}" y="{y}" width="18" height="18" rx="4"/>')
        parts.append(f'<text x="{EDGE + 28}" y="{y + 14}">{text}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _row(row: dict[str, str], y: int) -> list[str]:
    width = (WIDTH - 2 * EDGE - GAP * (len(row) - 1)) / len(row)
    parts = []
    for position, (name, text) in enumerate(row.items()):
        x = EDGE + position * (width + GAP)
        kind = "box pure" if name in PURE else "box"
        parts.append(f'<rect class="{kind}" x="{x:g}" y="{y}" width="{width:g}" height="{ROW_HEIGHT}" rx="7"/>')
        parts.append(f'<text class="name" x="{x + 12:g}" y="{y + 21}">{name}</text>')
        parts.append(f'<text x="{x + 12:g}" y="{y + 40}">{text}</text>')
    return parts


def description() -> str:
    """Return the layers as a sentence, for readers who do not see the picture."""
    return "Layers of the package, highest first: " + "; ".join(" and ".join(row) for row in ROWS) + "."


if __name__ == "__main__":
    PICTURE.write_text(draw(), "utf-8")
