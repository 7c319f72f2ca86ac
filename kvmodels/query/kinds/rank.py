"""Access to an index of ranks: conditions and orders on its columns, and places on the boards of its groups.

Rules of this module: pure. Its counters answer no other query: they count only records with a value.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from kvmodels.query.kinds.boards import KindBoard
from kvmodels.query.kinds.contract import KindAccess
from kvmodels.schema.definition.definition import Column, IndexDefinition
from kvmodels.schema.kinds.rank import Buckets


class RankBoard(KindBoard):
    """The buckets of an index of ranks."""

    def __init__(self, definition: IndexDefinition) -> None:
        super().__init__(definition)
        self._buckets = Buckets(definition)
        self.levels = self._buckets.levels
        self.column = self._buckets.column

    def bucket(self, value: Any) -> int:
        """Return the bucket of a value."""
        return self._buckets.bucket(value)

    def start(self, bucket: int) -> bytes:
        """Return the first bound of a bucket."""
        return self._buckets.start(bucket)


class RankAccess(KindAccess):
    """Access to an index of ranks."""

    shown: ClassVar[str | None] = "ranks"

    def board(self, definition: IndexDefinition) -> KindBoard | None:
        """Return the buckets of the ranked column."""
        return RankBoard(definition)

    def columns(self, definition: IndexDefinition, primary_key: tuple[Column, ...]) -> tuple[Column, ...] | None:
        """Return its columns, and the primary key at the end of each key."""
        return definition.columns + primary_key

    def why_not(self, definition: IndexDefinition) -> str | None:
        """Return None: conditions and orders use it."""
        del definition
        return None


ACCESS: Final = RankAccess()
