"""The notebook of the examples runs, and its outputs are tables, trees, bars and a plot.

Left out on Python 3.15, for which the packages of notebooks have no wheels yet (``.ci/pythons``).
"""

from __future__ import annotations

import base64
import io
from typing import Any

import matplotlib.image
import nbformat
import pytest
from nbclient import NotebookClient

from kvmodels import Database, KvModel, PrimaryKey
from kvmodels.api.progress import bars, notebook
from tests.notebooks.outputs import Output
from tests.source_tree import REPOSITORY

NOTEBOOK = REPOSITORY / "examples" / "notebook.ipynb"


class Lamp(KvModel, collection="lamps"):
    id: PrimaryKey[int]


def executed(path: Any) -> list[Any]:
    """Run a notebook in a new kernel, and return its cells of code."""
    read = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(REPOSITORY)}}
    client = NotebookClient(read, timeout=300, startup_timeout=300, kernel_name="python3", resources=resources)
    client.execute()
    return [cell for cell in read.cells if cell.cell_type == "code"]


def html_of(cell: Any) -> str:
    """The last HTML output of a cell."""
    found = [one.data["text/html"] for one in cell.outputs if "text/html" in one.get("data", {})]
    return str(found[-1])


def test_the_notebook_of_the_examples_shows_data_frames_and_a_plot():
    cells = executed(NOTEBOOK)
    by_source = {cell.source.splitlines()[-1]: cell for cell in cells}
    assert not [one for cell in cells for one in cell.outputs if one.output_type in ("error", "stream")]
    first = cells[0].outputs
    assert 'value="400" max="400"' in first[0].data["text/html"]
    assert "400 of 400 records written in 4 batches" in Output(html_of(cells[0])).text
    query = Output(html_of(by_source['airports.filter(country="CH").order_by("-height")']))
    assert "reads 1 range of index country_height" in query.text
    assert len(query.rows) == 11
    assert "no index serves this query" in Output(html_of(by_source["airports.filter(passengers=7_919)"])).text
    assert Output(html_of(by_source["by_country"])).cells(0) == ["CH", "DE", "FR", "IT"]
    assert "2 scans merged" in Output(html_of(next(cell for cell in cells if "analyze=True" in cell.source))).text
    for source in ("frame.describe()", 'to_polars().group_by("country")', "duckdb.sql"):
        assert "<table" in html_of(next(cell for cell in cells if source in cell.source))
    assert "ok: " in Output(html_of(by_source["db.check(progress=True)"])).text
    assert Output(html_of(by_source["db.stats()"])).columns[:2] == ["part", "rows"]
    picture = next(one for one in by_source["plt.show()"].outputs if "image/png" in one.data)
    pixels = matplotlib.image.imread(io.BytesIO(base64.b64decode(picture.data["image/png"])), format="png")
    assert min(pixels.shape[:2]) > 100
    assert len({tuple(one) for one in pixels.reshape(-1, pixels.shape[2]).tolist()}) > 10


class Handle:
    """Stands for the output of a cell."""

    shown: list[str] = []

    def display(self, output: Any) -> None:
        self.shown.append(f"new {output.data}")

    def update(self, output: Any) -> None:
        self.shown.append(output.data)


def test_in_a_notebook_a_bar_is_an_output_that_is_replaced(monkeypatch: pytest.MonkeyPatch):
    seconds = iter([0, 0.0, 0.05, 0.2, 0.2, 0.2, 0.25, 75, 75, 75])
    monkeypatch.setattr(notebook, "DisplayHandle", Handle)
    Handle.shown = []
    with notebook.drawn(lambda: next(seconds)) as report:
        report("update <b>", 1, 4)  # 0.05 seconds after the output: not drawn
        report("update <b>", 2, 4)
        report("update <b>", 3, 4)
    first, second, last = (one.partition("</style>")[2] for one in Handle.shown)
    assert first.startswith("update &lt;b&gt;<progress></progress>")
    assert '<progress value="2" max="4"></progress><span class="kv-dim">2 of 4, 0:00' in second
    assert '<progress value="3" max="4"></progress><span class="kv-dim">3 of 4, 1:15' in last


def test_a_cell_gets_the_bar_of_notebooks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(notebook, "DisplayHandle", Handle)
    monkeypatch.setattr(bars, "Console", lambda **_: type("Cell", (), {"is_jupyter": True})())
    Handle.shown = []
    with Database("memory://", models=[Lamp]) as db:
        db[Lamp].bulk_create([Lamp(id=number) for number in range(30)], progress=True)
    assert Handle.shown[0].startswith("new <div")
    assert 'value="30" max="30"' in Handle.shown[-1]
