"""Numbers of the rows of one index that its kind gives a meaning: the buckets of a board, the lists of a text.

Rules of this module: pure; the rows of an index come in the order of their keys, in batches.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvmodels.catalog.keyspace import IndexLayout
from kvmodels.core.operations import U64_ENCODING, Row
from kvmodels.errors import InvalidKeyError
from kvmodels.indexing.entries import number_in
from kvmodels.query.kinds.registry import ACCESS


class IndexTally:
    """Counts buckets and lists of an index.

    Attributes:
        largest_bucket: the largest number of records in a bucket; None without one.
        lists: the number of lists, such as words in each group; None for a kind without lists.
        longest_list: the text with the longest list, and the number of its entries; None without one.
    """

    def __init__(self, layout: IndexLayout) -> None:
        self._layout = layout
        self.largest_bucket: int | None = None
        self.lists: int | None = None
        self.longest_list: tuple[str, int] | None = None
        self._head, self._text, self._length = b"", "", 0

    def take(self, rows: Sequence[Row]) -> None:
        """Count some rows of the index, the next ones in order."""
        layout = self._layout
        has_lists = ACCESS[layout.definition.kind].lists
        for row in rows:
            if row.encoding == U64_ENCODING and row.key.startswith(layout.counters):
                self._take_counter(row)
            elif has_lists and row.key.startswith(layout.prefix):
                self._take_entry(row.key)

    def _take_counter(self, row: Row) -> None:
        options = self._layout.definition.options
        try:
            if options is not None and options.is_bucket(self._layout.group_in(row.key)[1]):
                self.largest_bucket = max(number_in(row), self.largest_bucket or 0)
        except (InvalidKeyError, LookupError):
            return

    def _take_entry(self, key: bytes) -> None:
        if not self._head or not key.startswith(self._head):
            try:
                self._head, self._text = self._layout.list_in(key)
            except InvalidKeyError:  # a foreign row
                return
            self._length = 0
            self.lists = (self.lists or 0) + 1
        self._length += 1
        if self.longest_list is None or self._length > self.longest_list[1]:
            self.longest_list = self._text, self._length
