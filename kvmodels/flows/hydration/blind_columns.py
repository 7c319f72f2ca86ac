"""The blind values that documents hold: those of the indexes that the header lists, whatever the class declares.

So the values of a new index key are stored from the commit that begins its build, and those of a former one are not
stored again after the commit that drops its index; a rotation removes them. Old versions have no computed columns.

Rules of this module: pure. Only names of columns of blind values are removed, of any field and key.
"""

from __future__ import annotations

from typing import Any, cast

from kvmodels.catalog.collection import LiveCollection
from kvmodels.schema.definition.definition import Document
from kvmodels.schema.definition.values import COMPUTED, RESERVED_FIELD, stored_name
from kvmodels.schema.encryption.blind_values import key_id_in


def without_unused(live: LiveCollection, document: Document) -> Document:
    """Return a document without the blind values that no index needs; the same one if it has none of them."""
    reserved = document.get(RESERVED_FIELD)
    held: Any = cast("dict[str, Any]", reserved).get(COMPUTED) if type(reserved) is dict else None
    if type(held) is not dict:
        return document
    columns, needed = cast("dict[str, Any]", held), _needed(live)
    kept = {name: value for name, value in columns.items() if name in needed or key_id_in(name) is None}
    if len(kept) == len(columns):
        return document
    rest = {name: value for name, value in document[RESERVED_FIELD].items() if name != COMPUTED}
    if kept:
        rest[COMPUTED] = kept
    others = {name: value for name, value in document.items() if name != RESERVED_FIELD}
    return {**others, RESERVED_FIELD: rest} if rest else others


def _needed(live: LiveCollection) -> frozenset[str]:
    known = live.compiled.stored_columns
    if known is None:
        columns = [column for index in live.maintained for column in index.definition.needed_columns]
        known = live.compiled.stored_columns = frozenset(name for one in columns if (name := stored_name(one.path)))
    return known
