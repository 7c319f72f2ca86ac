"""The arrangement of the rows of groups: conditions on them, their order and a slice.

Rules of this module: values only; ``group_rows.py`` makes them from the arguments of methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

Row = Mapping[str, Any]

MOST_HELD: Final = 10_000
"""The maximum number of rows that a slice of ordered groups holds without ``sort_in_memory(limit)``."""


class RowTest(NamedTuple):
    """A condition on the rows: the keyword that states it, and whether a row satisfies it."""

    keyword: str
    passes: Callable[[Row], bool]


class Arrangement(NamedTuple):
    """The conditions on the rows of groups, their order and their slice.

    Attributes:
        tests: conditions that rows must satisfy.
        order: keys of the rows, each with "descending"; empty for the order of the groups.
        start, stop: the slice of the rows, counted from 0; ``stop`` None: to the end.
    """

    tests: tuple[RowTest, ...] = ()
    order: tuple[tuple[str, bool], ...] = ()
    start: int = 0
    stop: int | None = None

    @property
    def sliced(self) -> bool:
        """Whether a slice was taken."""
        return self.start > 0 or self.stop is not None

    def most_held(self, limit: int | None) -> int:
        """Return how many rows an order may hold, 0 if it is refused; ``limit``: of ``sort_in_memory``."""
        if self.stop is None:
            return limit or 0
        return self.stop if self.stop <= max(limit or 0, MOST_HELD) else limit or 0

    def lines(self) -> Iterator[str]:
        """Yield lines for ``explain()``."""
        if self.tests:
            yield f"keeps rows  {' and '.join(test.keyword for test in self.tests)}"
        if self.order:
            names = ", ".join(f"{'-' if down else ''}{name}" for name, down in self.order)
            yield f"sorts rows  by {names}{'' if self.stop is None else f', and holds {self.stop:,} of them'}"
        if self.sliced:
            yield f"takes rows  [{self.start or ''}:{'' if self.stop is None else self.stop}]"


AS_GROUPED: Final = Arrangement()
"""All rows in the order of the groups."""
