"""Encrypted fields in queries: a blind index finds equal values, and everything else is refused.

Rules of this module: pure. A field without a blind index can only be compared with None.
"""

from __future__ import annotations

from typing import Final

from kvmodels.errors import UnknownLookupError
from kvmodels.schema.definition.definition import ColumnSource, ModelSchema

_NONE: Final = frozenset({"isnull"})
_ONE: Final = frozenset({"exact", "ne", "in", "not_in", "isnull"})
_SEVERAL: Final = frozenset({"contains", "contains_any", "contains_all", "isnull"})


def lookups_of_blind(source: ColumnSource | None) -> frozenset[str]:
    """Return the lookups of an encrypted field; ``source``: that of its blind values, None without an index."""
    if source is None:
        return _NONE
    return _SEVERAL if source.many else _ONE


def require_plain(schema: ModelSchema, name: str, use: str) -> str:
    """Return a field whose order or plain value is needed. Raises UnknownLookupError if it is encrypted."""
    if schema.encrypted and name.partition(".")[0] in schema.encrypted:
        raise UnknownLookupError(
            "an encrypted field cannot be used here",
            model=schema.name,
            field=name,
            lookup=use,
            suggestion=None,
            hint="A blind index finds equal values alone: read the records, and compare them in Python.",
        )
    return name
