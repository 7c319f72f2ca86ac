"""Progress bars with rich, which the extras ``kvmodels[rich]`` and ``kvmodels[cli]`` install.

Rules of this module: a bar appears at the first report, on stderr, so that a call without batches draws nothing. In a
notebook it is an output of the cell. Labels have names of collections and tenants, in which hidden characters are shown
as escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from kvmodels._support.visible import visible
from kvmodels.api.progress import notebook
from kvmodels.errors import UnsupportedError

try:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "rich":
        raise
    raise UnsupportedError(
        "progress=True needs a package that is not installed",
        reason="rich",
        hint="Install it: pip install 'kvmodels[rich]'. Without it, give a function as progress=.",
    ) from missing

Report: TypeAlias = Callable[[str, int, int | None], None]
"""Moves a bar: the label, how much is done, and how much there is; None if that is not known."""


def drawn(console: Console | None = None, *, transient: bool = False) -> AbstractContextManager[Report]:
    """Return the context of a call with progress bars, one for each label; it yields the function that moves them.

    Args:
        console: where to draw; by default on stderr, or in the output of a cell.
        transient: remove the bars at the end.
    """
    if console is None:
        console = Console(stderr=True)
        if console.is_jupyter:
            return notebook.drawn()
    return _on_console(console, transient=transient)


@contextmanager
def _on_console(console: Console, *, transient: bool) -> Generator[Report]:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=console, transient=transient)
    tasks: dict[str, TaskID] = {}

    def report(label: str, done: int, total: int | None) -> None:
        if not tasks:
            bar.start()
        if label not in tasks:
            tasks[label] = bar.add_task(visible(label, kept=""), total=total)
        bar.update(tasks[label], completed=done, total=total)

    try:
        yield report
        for task in bar.tasks:
            if task.total is None:  # a bar without a total never ends
                bar.update(task.id, total=task.completed)
    finally:
        if tasks:
            bar.stop()
