"""Batches of a table with bounded memory, and streams of them in the C interface of Arrow.

Rules of this module: a batch is converted as soon as it was read, so that objects of Python are held for one read only.
Small batches are joined, because other tools read few large ones faster.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from kvmodels.frames.layouts import TableLayout
from kvmodels.schema.arrow.packages import arrow

ROWS: Final = 65_536
"""The number of rows from which a batch is complete."""

BYTES: Final = 16 * 1024 * 1024
"""The size from which a batch is complete."""


class TableBatches:
    """Joins the results of reads to batches."""

    def __init__(self, layout: TableLayout) -> None:
        self._layout = layout
        self._parts: list[Any] = []
        self._rows = self._bytes = 0

    def add(self, results: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Add the results of a read; return the batch that is complete by now, if there is one."""
        if not results:
            return []
        part = self._layout.batch(results)
        self._parts.append(part)
        self._rows += part.num_rows
        self._bytes += part.nbytes
        return self.rest() if self._rows >= ROWS or self._bytes >= BYTES else []

    def rest(self) -> list[Any]:
        """Return a batch of the results that no earlier batch has, if there are any."""
        parts, self._parts, self._rows, self._bytes = self._parts, [], 0, 0
        return parts if len(parts) < 2 else [arrow.concat_batches(parts)]


class TableOutput:
    """Collects the batches of a table."""

    def __init__(self, layout: TableLayout) -> None:
        self._layout = layout
        self._batches: list[Any] = []

    def write(self, batch: Any) -> None:
        """Append a batch."""
        self._batches.append(batch)

    def table(self) -> Any:
        """Return the ``pyarrow.Table`` of all batches."""
        return arrow.Table.from_batches(self._batches, schema=self._layout.schema)


def capsule(layout: TableLayout, batches: Generator[Any], requested: object | None) -> object:
    """Return a stream in the C interface of Arrow.

    The first batch is read at once, so that a refused query raises its own error; the C interface has only texts.
    """
    first: list[Any] = []
    for batch in batches:
        first.append(batch)
        break
    rest: Iterator[Any] = chain(first, batches)
    return arrow.RecordBatchReader.from_batches(layout.schema, rest).__arrow_c_stream__(requested)
