"""Rows of histories in a copy of a store, where the versionstamps of the other store mean nothing.

They may be higher than those that follow, so a load puts ``-`` before each begin. It sorts before every digit, so the
order of versions stays right, also after several loads. Times find such versions, versionstamps do not.

Rules of this module: pure.
"""

from __future__ import annotations

from typing import Any, Final, cast

from kvmodels.catalog.keyspace import RESERVED
from kvmodels.core.keys import Key
from kvmodels.indexing.versions import note_of
from kvmodels.schema.definition.values import RESERVED_FIELD, VERSION_NOTE

OF_OTHERS: Final = "-"
"""The letter before a begin that another store has given."""

_KINDS: Final = frozenset({"history", "trash", "also"})


def history_of(key: Key) -> str | None:
    """Return the collection of a row of a history; None for any other key."""
    if key[:1] != (RESERVED,) or len(key) < 4 or key[1] not in _KINDS or not isinstance(key[2], str):
        return None
    return key[2]


def loaded_row(key: Key, value: Any) -> tuple[Key, Any]:
    """Return the key and the value of a row of a history as a load writes them."""
    if type(value) is not dict:
        return key, value
    row = cast("dict[str, Any]", value)
    if key[1] == "trash":
        return key, {**row, "begin": _foreign(row.get("begin"))}
    if key[1] == "also":
        *start, begin, number = key
        listed = [[collection, pk, _foreign(of), what] for collection, pk, of, what in row.get("also", ())]
        return (*start, _foreign(begin), number), {**row, "also": listed}
    *start, begin = key
    kept = {name: item for name, item in row.items() if name != "s"}
    return (*start, _foreign(begin)), {**kept, "doc": loaded_document(row.get("doc"))}


def loaded_document(document: Any) -> Any:
    """Return a document as a load writes it: without ``b``, and with the begin before it marked."""
    note = note_of(document)
    if not note:
        return document
    kept = {name: _foreign(item) if name == "p" else item for name, item in note.items() if name != "b"}
    return {**document, RESERVED_FIELD: {**document[RESERVED_FIELD], VERSION_NOTE: kept}}


def _foreign(begin: Any) -> Any:
    return OF_OTHERS + begin if isinstance(begin, str) else begin
