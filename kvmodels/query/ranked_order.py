"""The order of a ranked query, as a part of queries and of their plans.

Rules of this module: pure data.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

RANK_VALUE: Final = ""
"""The name of the distance or score among the values of a result; no field has it."""


class RankedOrder(NamedTuple):
    """An order by the distance from an origin, which a kind of index supplies.

    Attributes:
        method: the name of the order, such as ``nearest``.
        field: the indexed field, or the name of an index.
        origin: the origin, checked and converted by the kind.
        within: the greatest distance of a result, which counts; None: any distance.
        digest: the origin as plain data that is the same in every process.
        verified: whether the records decide if they are results, besides their entries.
        scored: whether results have scores, the greatest first.
        most: the maximum number of results, of which a query must take a slice; it has no pages. None: any number.
        found: in a plan, the ``FoundKeys`` of the records whose entries are read; None: all entries of the groups.
    """

    method: str
    field: str
    origin: Any
    within: float | None
    digest: Any
    verified: bool = False
    scored: bool = False
    most: int | None = None
    found: Any = None

    @property
    def label(self) -> str:
        """The name of the distance or score of a result."""
        return "score" if self.scored else "distance"
