"""Access to entries of columns: conditions and orders on the columns, from the left.

Rules of this module: pure.
"""

from __future__ import annotations

from typing import Final

from kvmodels.query.kinds.contract import KindAccess
from kvmodels.schema.definition.definition import Column, IndexDefinition


class EntryAccess(KindAccess):
    """Access to an index with entries."""

    def columns(self, definition: IndexDefinition, primary_key: tuple[Column, ...]) -> tuple[Column, ...] | None:
        """Return its columns, and the primary key at the end of each key that is no unique slot."""
        return definition.columns + (() if definition.unique else primary_key)

    def why_not(self, definition: IndexDefinition) -> str | None:
        """Return None: conditions and orders use it."""
        del definition
        return None


ACCESS: Final = EntryAccess()
