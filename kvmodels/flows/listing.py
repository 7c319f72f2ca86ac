"""The flows of a listing: selectors and their options, batches, cursors, and counting.

Rules of this module: every batch is one request, and between two batches nothing is open. A cursor is Deno's, byte
for byte, and says nothing but where the last key was; it never leads out of the range it is used with.
"""

from __future__ import annotations

import base64
import binascii
from collections import deque
from typing import Any, Final, NamedTuple

from kvmodels.errors import InvalidArgumentError, InvalidCursorError, OperationTooLargeError
from kvmodels.flows.keyvalue import check_read_size
from kvmodels.flows.requests import Flow, read
from kvmodels.flows.store_format import StoreFormat
from kvmodels.keys import Key, encode_key, key_range, key_successor
from kvmodels.limits import Limits
from kvmodels.operations import Entry, ReadRange, Row

__all__ = ["ListOptions", "Listing", "Selection", "count_entries", "select"]

DEFAULT_BATCH: Final = 100
LARGEST_DEFAULT_BATCH: Final = 500
COUNTED_AT_ONCE: Final = 1_000
CONSISTENCIES: Final = ("strong", "eventual")


class Selection(NamedTuple):
    """A packed range, what every cursor in it leaves out, and the bounds that a cursor may not cross."""

    start: bytes
    end: bytes
    shared: bytes
    bounded_below: bool
    bounded_above: bool


def select(form: StoreFormat, *, prefix: Key | None, start: Key | None, end: Key | None) -> Selection:
    """The range that a selector names.

    Raises:
        InvalidArgumentError: neither a prefix nor both ends, or all three; an end outside the prefix; the start
            after the end.
        InvalidKeyError: a selector that is not a key.
    """
    low, high = key_range(prefix=prefix, start=start, end=end)
    shared = _common_prefix(low, high) if prefix is None else encode_key(prefix)
    root = form.root
    return Selection(root + low, root + high, root + shared, start is not None, end is not None)


def _common_prefix(low: bytes, high: bytes) -> bytes:
    differing = (at for at, (one, other) in enumerate(zip(low, high, strict=False)) if one != other)
    return low[: next(differing, min(len(low), len(high)))]


class ListOptions(NamedTuple):
    """The options of a listing as they were given; ``Listing`` checks them."""

    limit: int | None = None
    reverse: bool = False
    cursor: str | None = None
    batch_size: int | None = None
    consistency: str = "strong"
    keys_only: bool = False


class Listing:
    """A position in a range: what was fetched and not yet taken, and what is still to be fetched.

    Every batch is its own snapshot; between two batches nothing is open and nothing is held.

    Args:
        form: packs keys, unpacks rows.
        selection: the range.
        options: as the caller gave them.

    Raises:
        InvalidArgumentError: an option that makes no sense.
        InvalidCursorError: no cursor, or one outside the bounds of the selector.
    """

    __slots__ = (
        "_batch",
        "_batch_was_given",
        "_cursor",
        "_end",
        "_fetched",
        "_form",
        "_keys_only",
        "_last_taken",
        "_remaining",
        "_reverse",
        "_shared",
        "_start",
        "_untouched",
    )

    def __init__(self, form: StoreFormat, selection: Selection, options: ListOptions) -> None:
        _require_positive("limit", "the limit must be a positive integer", options.limit)
        _require_positive("batch_size", "the batch size must be a positive integer", options.batch_size)
        _require_bool("reverse", options.reverse)
        _require_bool("keys_only", options.keys_only)
        require_consistency(options.consistency)
        self._form = form
        self._start, self._end, self._shared = selection[:3]
        self._remaining = options.limit
        self._batch_was_given = options.batch_size is not None
        self._batch = options.batch_size or min(options.limit or DEFAULT_BATCH, LARGEST_DEFAULT_BATCH)
        self._reverse = options.reverse
        self._keys_only = options.keys_only
        self._fetched: deque[Row] = deque()
        self._untouched = True
        self._last_taken: bytes | None = None
        # As in Deno, the empty cursor, which a listing has at its end, begins again.
        self._cursor = options.cursor or None
        if self._cursor is not None:
            self._resume(self._cursor, selection)

    @property
    def cursor(self) -> str:
        """Where the listing is: behind the entry that was taken last; empty behind the end.

        Raises:
            InvalidArgumentError: nothing was taken yet, and the listing did not begin with a cursor.
        """
        if self._last_taken is not None:
            return _encode_cursor(self._last_taken[len(self._shared) :])
        if self._cursor is None:
            raise InvalidArgumentError(
                "there is no cursor before the first entry",
                argument="cursor",
                hint="Take an entry first; to begin at the beginning, leave the cursor out.",
            )
        return self._cursor

    def take(self) -> Entry | None:
        """Unpack the next row of the batch at hand; None when it is used up.

        Raises:
            DecodeError: the row cannot be read; the next call goes on behind it, and the cursor is behind it as well.
        """
        if not self._fetched:
            return None
        row = self._fetched.popleft()
        self._last_taken = row.key
        return self._form.entry_without_value(row) if self._keys_only else self._form.entry(row)

    def fetch(self, limits: Limits) -> Flow[bool]:
        """Fetch the next batch, if there may be one; at most one request. Whether there is something to take."""
        if self._untouched:
            self._check_sizes(limits)
            self._untouched = False
        if self._remaining == 0:
            return False  # the cursor stays at the last entry, so that a page can be continued
        wanted = min(self._batch, limits.max_read_entries)
        if self._remaining is not None:
            wanted = min(wanted, self._remaining)
        rows: list[Row] = []
        if self._start < self._end:
            found = yield from read(
                [ReadRange(self._start, self._end, wanted, self._reverse, keys_only=self._keys_only)]
            )
            rows = found.ranges[0]
        self._advance(rows, wanted)
        return bool(rows)

    def _advance(self, rows: list[Row], wanted: int) -> None:
        self._fetched.extend(rows)
        if self._remaining is not None:
            self._remaining -= len(rows)
        if not rows:
            self._last_taken, self._cursor = None, ""
        if len(rows) < wanted:
            self._start = self._end
        elif self._reverse:
            self._end = rows[-1].key
        else:
            self._start = key_successor(rows[-1].key)

    def _check_sizes(self, limits: Limits) -> None:
        check_read_size(len(self._start), limits)
        check_read_size(len(self._end), limits)
        if self._batch_was_given and self._batch > limits.max_read_entries:
            raise OperationTooLargeError(
                "a batch is too large",
                limit="max_read_entries",
                size=self._batch,
                maximum=limits.max_read_entries,
                limits=limits.whose("max_read_entries"),
                hint="Give a smaller batch_size; the listing goes on with the next batch by itself.",
            )

    def _resume(self, cursor: str, selection: Selection) -> None:
        last = self._shared + _decode_cursor(cursor)
        if self._reverse:
            if selection.bounded_above and last > self._end:
                raise _out_of_bounds()
            # A cursor that was made up could lie behind the range of the prefix, among keys of somebody else.
            self._end = min(last, self._end)
        else:
            first = key_successor(last)
            if selection.bounded_below and first < self._start:
                raise _out_of_bounds()
            self._start = max(first, self._start)


def count_entries(selection: Selection, limits: Limits) -> Flow[int]:
    """Count the entries of a range, reading keys alone; one request for each thousand."""
    start, end = selection.start, selection.end
    check_read_size(len(start), limits)
    check_read_size(len(end), limits)
    wanted = min(COUNTED_AT_ONCE, limits.max_read_entries)
    count = 0
    while start < end:
        found = yield from read([ReadRange(start, end, wanted, keys_only=True)])
        rows = found.ranges[0]
        count += len(rows)
        if len(rows) < wanted:
            break
        start = key_successor(rows[-1].key)
    return count


def require_consistency(consistency: object) -> None:
    """Refuse what is neither ``"strong"`` nor ``"eventual"``. Raises InvalidArgumentError."""
    if consistency not in CONSISTENCIES:
        raise InvalidArgumentError(
            "this consistency does not exist", argument="consistency", value=consistency, expected=CONSISTENCIES
        )


def _require_positive(argument: str, message: str, value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InvalidArgumentError(message, argument=argument, value=value, hint="Leave it out for the default.")


def _require_bool(argument: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidArgumentError(
            "this is neither True nor False", argument=argument, value=value, hint="Give True or False."
        )


def _encode_cursor(suffix: bytes) -> str:
    return base64.urlsafe_b64encode(suffix).decode()


def _decode_cursor(cursor: object) -> bytes:
    if not isinstance(cursor, str):
        raise InvalidCursorError("this is not a cursor", reason=f"a {type(cursor).__name__}", hint=_CURSOR_HINT)
    try:
        suffix = base64.urlsafe_b64decode(cursor)
    except (binascii.Error, ValueError):
        suffix = None
    # The decoder of Python skips what it does not know; only what it would write itself is a cursor.
    if suffix is None or _encode_cursor(suffix) != cursor:
        raise InvalidCursorError("this is not a cursor", reason="not base64url", hint=_CURSOR_HINT)
    return suffix


def _out_of_bounds() -> InvalidCursorError:
    return InvalidCursorError("the cursor lies outside the selector", reason="another selector", hint=_CURSOR_HINT)


_CURSOR_HINT: Final = "Pass the cursor of a listing with the same selector, unchanged; leave it out to start again."
