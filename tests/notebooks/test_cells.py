"""Progress bars are outputs of a cell in a notebook.

Left out on Python 3.15, for which the packages of notebooks have no wheels yet (``.ci/pythons``).
"""

from __future__ import annotations

from typing import Any

import pytest

from kvmodels import Database, KvModel, PrimaryKey
from kvmodels.api.progress import bars, notebook


class Lamp(KvModel, collection="lamps"):
    id: PrimaryKey[int]


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
