"""The blob fields of a collection as the header lists them.

A release without blobs does not know the section, so that it only reads: it would remove a record and leave its
content behind without an owner. A field stays listed when no class declares it any more, because records may have it.

Rules of this module: pure. A section with an item that is not listed here is that of a newer release, and unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

BLOBS_SECTION: Final = "blobs"
"""The name of the section."""


def blobs_value(fields: Iterable[str]) -> dict[str, Any]:
    """Return the section for the names of blob fields."""
    return {"fields": list(fields)}


def blob_fields_in(section: object) -> tuple[str, ...] | None:
    """Return the fields that a section lists; None for one that this release does not know."""
    if not isinstance(section, Mapping):
        return None
    items = cast("Mapping[str, Any]", section)
    fields: object = items.get("fields")
    if set(items) != {"fields"} or not isinstance(fields, list):
        return None
    names = cast("Sequence[Any]", fields)
    return tuple(names) if all(isinstance(name, str) for name in names) else None
