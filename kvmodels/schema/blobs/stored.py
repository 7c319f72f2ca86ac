"""The description of stored content in a document, and the error for damaged content.

Rules of this module: pure.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

from kvmodels.errors import DecodeError

_ITEMS: Final = frozenset({"size", "sha256", "type", "chunk", "id"})


class StoredBlob(NamedTuple):
    """The description of stored content.

    Attributes:
        chunk: the size of each chunk but the last one.
        id: the part of the keys of the chunks that no other blob has.
    """

    size: int
    sha256: bytes
    content_type: str
    chunk: int
    id: bytes

    @property
    def chunks(self) -> int:
        """The number of chunks; that of no bytes is 1."""
        return max(1, -(-self.size // self.chunk))

    def to_value(self) -> dict[str, Any]:
        """Return the value in a document."""
        return {"size": self.size, "sha256": self.sha256, "type": self.content_type, "chunk": self.chunk, "id": self.id}


def stored_blob(value: Any) -> StoredBlob | None:
    """Return the description that a document holds; None for any other value."""
    if type(value) is not dict:
        return None
    items = cast("dict[str, Any]", value)
    if items.keys() != _ITEMS:
        return None
    found = StoredBlob(items["size"], items["sha256"], items["type"], items["chunk"], items["id"])
    numbers = type(found.size) is int and type(found.chunk) is int and found.size >= 0 and found.chunk > 0
    texts = type(found.sha256) is bytes and type(found.id) is bytes and type(found.content_type) is str
    return found if numbers and texts else None


def damaged(blob: StoredBlob, reason: str) -> DecodeError:
    """Return the error for content that is not what was stored."""
    return DecodeError(
        "the stored content of a blob is damaged",
        key=("__kvmodels__", "blob", blob.id),
        reason=reason,
        hint="Restore the store from a backup, or write the record again with the file.",
    )
