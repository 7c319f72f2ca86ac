"""Progress bars in the output of a cell, without an extension of the notebook.

Rules of this module: a bar is HTML that is replaced, at most ten times a second. ``rich`` was not used for it: it needs
``ipywidgets``, and warns at every step without it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final

from IPython.display import HTML, DisplayHandle

from kvmodels._support.notebooks import html

_SHORTEST_PAUSE_S: Final = 0.1


@contextmanager
def drawn(time: Callable[[], float] = monotonic) -> Generator[Callable[[str, int, int | None], None]]:
    """Yield a function that moves the bar of a label; it is called with the amount that is done, and the whole."""
    bars: dict[str, _Bar] = {}

    def report(label: str, done: int, total: int | None) -> None:
        if label not in bars:
            bars[label] = _Bar(label, time)
        bars[label].move(done, total)

    try:
        yield report
        for bar in bars.values():
            bar.finish()
    finally:
        for bar in bars.values():
            bar.draw()


class _Bar:
    """The output of one label."""

    def __init__(self, label: str, time: Callable[[], float]) -> None:
        self._label = label
        self._time = time
        self._began = self._drawn_at = time()
        self._done = 0
        self._total: int | None = None
        self._handle: Any = DisplayHandle()  # type: ignore[no-untyped-call]
        self._handle.display(HTML(self._html()))  # type: ignore[no-untyped-call]

    def move(self, done: int, total: int | None) -> None:
        """Note the progress, and draw it unless that was done a moment ago."""
        self._done, self._total = done, total
        if self._time() - self._drawn_at >= _SHORTEST_PAUSE_S:
            self.draw()

    def finish(self) -> None:
        """Fill a bar whose total was not known."""
        if self._total is None:
            self._total = self._done

    def draw(self) -> None:
        """Replace the output."""
        self._drawn_at = self._time()
        self._handle.update(HTML(self._html()))  # type: ignore[no-untyped-call]

    def _html(self) -> str:
        seconds = round(self._time() - self._began)
        whole = "" if self._total is None else f" of {self._total:,}"
        note = f"{self._done:,}{whole}, {seconds // 60}:{seconds % 60:02}"
        return html.bar(self._label, self._done, self._total, note)
