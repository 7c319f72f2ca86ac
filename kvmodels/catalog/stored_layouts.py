"""The key layouts of a collection from the catalogue alone, for collections that no class of the program declares.

Rules of this module: pure. Columns use stored values, because the catalogue does not know Python types.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvmodels.catalog.catalogue import StoredCollection, StoredIndex, index_definition, primary_key_columns
from kvmodels.catalog.keyspace import EntryLayout, RecordLayout
from kvmodels.errors import SchemaMismatchError


def stored_record_layout(stored: StoredCollection) -> RecordLayout:
    """Return the layout of the records. Raises SchemaMismatchError for a column type that this release lacks."""
    return RecordLayout(stored.name, primary_key_columns(stored))


def stored_entry_layouts(stored: StoredCollection) -> Iterator[tuple[StoredIndex, EntryLayout]]:
    """Yield every generation of every index with its layout, except those with a column type that is unknown here."""
    for index in stored.indexes:
        try:
            definition = index_definition(index)
        except SchemaMismatchError:
            continue
        yield index, EntryLayout(stored.name, definition, index.generation)
