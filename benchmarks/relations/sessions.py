"""The operations of one column in the comparison of related records.

Rules of this module: types and numbers only. Every method that writes is one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

AUTHORS: Final = 500
"""Each has books, so that none of them can be removed."""
BOOKS_EACH: Final = 20
ALBUMS: Final = 300
"""Each has tracks, which are removed with it."""
TRACKS_EACH: Final = 100
PAGE: Final = 20


class RelatedSession(Protocol):
    """An open store. Its records are numbered from 0, and the owner of record ``n`` is ``n`` modulo the owners."""

    def fill(self) -> None:
        """Store the authors with their books, and the albums with their tracks."""
        ...

    def insert_child(self, number: int) -> object:
        """Store a book with a new number."""
        ...

    def page_with_related(self, number: int) -> Sequence[tuple[str, str]]:
        """Return titles and names for 20 books and their authors, from this number on."""
        ...

    def remove_protected(self, number: int) -> bool:
        """Remove an author who has books; return whether that was refused."""
        ...

    def remove_cascade(self, number: int) -> object:
        """Remove an album with its tracks."""
        ...

    def tracks(self) -> int:
        """Return how many tracks there are."""
        ...

    def close(self) -> None:
        """Close the store."""
        ...
