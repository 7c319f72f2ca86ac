"""The key-value API: point reads, atomic operations and listings.

Rules of this module: keys and values are packed before a flow begins, and limits are compared with the packed sizes
before anything is sent. An operation is sent once. Every batch of a listing is one request, and nothing is open between
two batches. A cursor is Deno's, byte for byte, and contains only the last key; it never leaves its range.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from inspect import isawaitable
from typing import Any, Final, NamedTuple

from kvmodels._support.base64url import base64url_bytes
from kvmodels.core.keys import Key, decode_key, encode_key, key_range, key_successor
from kvmodels.core.operations import (
    AtomicWrite,
    Check,
    CommitResult,
    Committed,
    Conflict,
    Delete,
    Entry,
    Mutation,
    ReadRange,
    Row,
    Set,
    format_versionstamp,
    point,
)
from kvmodels.errors import (
    InvalidArgumentError,
    InvalidCursorError,
    InvalidKeyError,
    InvalidValueError,
    KeyTooLargeError,
    OperationTooLargeError,
    RetriesExhaustedError,
)
from kvmodels.flows.arguments import KEYS_HINT, items_of, lifetime_ms, require_callable, require_flag
from kvmodels.flows.effects import Commit, Flow, now, read
from kvmodels.flows.kv.queue import NewMessage
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.flows.writing.changes import Keep
from kvmodels.indexing.budget import check_budget
from kvmodels.limits import Limits

UPDATE_ATTEMPTS: Final = 50
"""The maximum number of attempts of ``update``; each that fails is one that another writer has won."""


def get_entry(form: StoreFormat, limits: Limits, key: Key) -> Flow[Entry]:
    """Read one key; one request."""
    packed = _pack_read_key(form, limits, key)
    found = yield from read([point(packed)])
    return form.entry_at(packed, found.ranges[0])


def get_entries(form: StoreFormat, limits: Limits, keys: Iterable[Key]) -> Flow[list[Entry]]:
    """Read keys in one snapshot and return entries in their order; one request, or none without keys."""
    packed_keys = [_pack_read_key(form, limits, key) for key in items_of("keys", keys, KEYS_HINT)]
    if not packed_keys:
        return []
    if len(packed_keys) > limits.max_ranges:
        raise OperationTooLargeError(
            "too many keys in one read",
            limit="max_ranges",
            size=len(packed_keys),
            maximum=limits.max_ranges,
            limits=limits.whose("max_ranges"),
            hint="Read them in several calls, each of which reads one state. If all must be of one state, read them in "
            "kv.snapshot(), on an engine that has snapshots.",
        )
    found = yield from read([point(packed) for packed in packed_keys])
    return [form.entry_at(packed, rows) for packed, rows in zip(packed_keys, found.ranges, strict=True)]


def _pack_read_key(form: StoreFormat, limits: Limits, key: Key) -> bytes:
    packed = form.pack_key(key)
    # Deno reads one key as the range that ends with the key and a zero byte, and compares this end with a limit that is
    # one byte longer than the limit for writes.
    if len(packed) >= limits.max_read_key_bytes:
        check_read_size(len(packed) + 1, limits, form.unpack_key(packed))
    return packed


def check_read_size(size: int, limits: Limits, key: Key | None = None) -> None:
    """Refuse a key, or an end of a range, of this size. Raises KeyTooLargeError."""
    if size > limits.max_read_key_bytes:
        raise KeyTooLargeError(
            "a key is too large to read",
            limit="max_read_key_bytes",
            size=size,
            maximum=limits.max_read_key_bytes,
            limits=limits.whose("max_read_key_bytes"),
            key=key,
        )


class PendingWrite(NamedTuple):
    """A built operation.

    Attributes:
        lifetimes: milliseconds from the commit on, by position of the mutation, which is not a Delete.
        messages: messages that the same commit puts into the queue.
    """

    checks: tuple[Check, ...] = ()
    mutations: tuple[Mutation, ...] = ()
    lifetimes: Mapping[int, int] = {}
    messages: tuple[NewMessage, ...] = ()


def commit_operation(form: StoreFormat, limits: Limits, pending: PendingWrite) -> Flow[CommitResult]:
    """Commit a built operation; one request, and one for the time if something expires.

    Deadlines are computed here, when the operation is committed, not when it is built, as in Deno.
    """
    mutations = pending.mutations
    committed_at = 0
    if pending.lifetimes or pending.messages:
        committed_at = yield from now()
        mutations = tuple(
            mutation._replace(expire_at=committed_at + pending.lifetimes[position])
            if position in pending.lifetimes and not isinstance(mutation, Delete)
            else mutation
            for position, mutation in enumerate(mutations)
        )
    letters = tuple(letter for new in pending.messages for letter in new.message.dead_letters)
    if limits.max_key_runes is not None:
        for part in (*pending.checks, *mutations, *letters):
            form.check_key_runes(part.key, limits)
    if pending.messages:
        for new in pending.messages:
            # A message that could not be moved to its undelivered keys would be retried without end.
            check_budget(AtomicWrite(mutations=new.message.dead_letters), limits)
        mutations += tuple(new.arrival(form, committed_at) for new in pending.messages)
    write = AtomicWrite(pending.checks, mutations)
    check_budget(write, limits)
    outcome: Committed | Conflict = yield Commit(write)
    if isinstance(outcome, Committed):
        return CommitResult(True, format_versionstamp(outcome.versionstamp))
    failed = tuple(form.unpack_key(write.checks[position].key) for position in outcome.failed_checks)
    return CommitResult(False, None, failed)


DEFAULT_BATCH: Final = 100
LARGEST_DEFAULT_BATCH: Final = 500
COUNTED_AT_ONCE: Final = 1_000
CONSISTENCIES: Final = ("strong", "eventual")


class Selection(NamedTuple):
    """A packed range; ``shared`` is the prefix that cursors omit; and the bounds of cursors."""

    start: bytes
    end: bytes
    shared: bytes
    bounded_below: bool
    bounded_above: bool


class ValueUpdate(NamedTuple):
    """A change of one value by a function.

    Attributes:
        function: returns the new value for the present one; called again after each conflict.
        absent: passed to the function if the key is absent.
        removes: whether None from the function removes the key, instead of being stored.
        expire_in: the lifetime of the new value; ``KEEP`` for the deadline that the key has.
    """

    function: Callable[[Any], Any]
    absent: Any
    removes: bool
    expire_in: object


def update_value(form: StoreFormat, limits: Limits, packed: bytes, update: ValueUpdate) -> Flow[Any]:
    """Replace a value by what a function makes of it, and return the new one. One read and one commit an attempt.

    An equal value is not written, unless it gets a lifetime. Raises RetriesExhaustedError and InvalidValueError.
    """
    require_callable("function", update.function, "Give a function of the present value: update(key, lambda n: n + 1).")
    keeps = isinstance(update.expire_in, Keep)
    lifetimes = {} if keeps or update.expire_in is None else {0: lifetime_ms(update.expire_in)}
    for _ in range(UPDATE_ATTEMPTS):
        found = yield from read([point(packed)])
        row = next(iter(found.ranges[0]), None)
        old = update.absent if row is None else form.entry(row).value
        new = _called(update.function, old)
        mutation = _updating(form, packed, update, row, (old, new))
        if mutation is None:
            return new
        check = Check(packed, None if row is None else row.versionstamp)
        of_set = lifetimes if isinstance(mutation, Set) else {}
        result = yield from commit_operation(form, limits, PendingWrite((check,), (mutation,), of_set))
        if result.ok:
            return new
    raise RetriesExhaustedError(
        "the value was written again and again while it was updated",
        attempts=UPDATE_ATTEMPTS,
        failed_checks=(form.unpack_key(packed),),
        hint="Try again later, or use an operation that cannot conflict, such as a sum.",
    )


def _called(function: Callable[[Any], Any], old: Any) -> Any:
    new = function(old)
    if isawaitable(new):
        close = getattr(new, "close", None)
        if close is not None:
            close()  # or Python warns that it was never awaited
        raise InvalidArgumentError(
            "async functions are not supported here",
            argument="function",
            value=getattr(function, "__name__", type(function).__name__),
            hint="The function is called again after a conflict: give a plain function of the value alone.",
        )
    return new


def _updating(
    form: StoreFormat, packed: bytes, update: ValueUpdate, row: Row | None, values: tuple[Any, Any]
) -> Mutation | None:
    """Return the mutation for the old and the new value; None if nothing is to be written."""
    old, new = values
    stored = None if row is None else (row.value, row.encoding)
    if new is None and update.removes:
        if row is None:
            return None
        if form.codec.encode(old) != stored:
            raise InvalidValueError(
                "the function changed the value and returned None, which removes the key",
                type=type(old).__name__,
                hint="Return the changed value.",
            )
        return Delete(packed)
    # A value that the function changed in place is the new one as well, so the stored bytes decide.
    encoded = form.codec.encode(new)
    if encoded == stored and isinstance(update.expire_in, Keep):
        return None
    keeps = isinstance(update.expire_in, Keep) and row is not None
    return Set(packed, *encoded, expire_at=row.expire_at if keeps and row is not None else None)


def select(form: StoreFormat, *, prefix: Key | None, start: Key | None, end: Key | None) -> Selection:
    """Return the range of a selector. Raises InvalidArgumentError or InvalidKeyError."""
    low, high = key_range(prefix=prefix, start=start, end=end)
    shared = _common_prefix(low, high) if prefix is None else encode_key(prefix)
    root = form.root
    return Selection(root + low, root + high, root + shared, start is not None, end is not None)


def _common_prefix(low: bytes, high: bytes) -> bytes:
    differing = (at for at, (one, other) in enumerate(zip(low, high, strict=False)) if one != other)
    return low[: next(differing, min(len(low), len(high)))]


class ListOptions(NamedTuple):
    """The options of a listing as given; ``Listing`` checks them."""

    limit: int | None = None
    reverse: bool = False
    cursor: str | None = None
    batch_size: int | None = None
    consistency: str = "strong"
    keys_only: bool = False


class Listing:
    """A position in a range: fetched rows that were not taken yet, and the rest of the range.

    Every batch is its own snapshot; between two batches nothing is open and nothing is held. Raises
    InvalidArgumentError for an invalid option; InvalidCursorError if it is not a cursor, or is outside the bounds.
    """

    def __init__(self, form: StoreFormat, selection: Selection, options: ListOptions) -> None:
        _require_positive("limit", "the limit must be a positive integer", options.limit)
        _require_positive("batch_size", "the batch size must be a positive integer", options.batch_size)
        require_flag("reverse", options.reverse)
        require_flag("keys_only", options.keys_only)
        require_consistency(options.consistency)
        self._form = form
        self._given = selection, options
        self._start, self._end, self._shared = selection[:3]
        self._remaining = options.limit
        self._batch_was_given = options.batch_size is not None
        self._batch = options.batch_size or min(options.limit or DEFAULT_BATCH, LARGEST_DEFAULT_BATCH)
        self._reverse = options.reverse
        self._keys_only = options.keys_only
        self._fetched: deque[Row] = deque()
        self._untouched = True
        self._last_taken: bytes | None = None
        # As in Deno, the empty cursor, which a listing has at its end, starts at the beginning.
        self._cursor = None if options.cursor == "" else options.cursor
        if self._cursor is not None:
            self._resume(self._cursor, selection)

    @property
    def cursor(self) -> str:
        """The continuation token after the last taken entry; empty after the end. Raises InvalidArgumentError."""
        if self._last_taken is not None:
            return _encode_cursor(self._last_taken[len(self._shared) :])
        if self._cursor is None:
            raise InvalidArgumentError(
                "there is no cursor before the first entry",
                argument="cursor",
                hint="Take an entry first; to begin at the beginning, leave the cursor out.",
            )
        return self._cursor

    def first(self, number: int) -> Listing:
        """Return a listing of the first entries from the beginning, at most ``number``, in one batch."""
        selection, options = self._given
        most = number if options.limit is None else min(number, options.limit)
        return Listing(self._form, selection, options._replace(limit=most, batch_size=None))

    @property
    def selector(self) -> tuple[Any, ...]:
        """The key parts that all keys of the range begin with, as far as they are whole parts."""
        try:
            return decode_key(self._shared.removeprefix(self._form.root))
        except InvalidKeyError:
            return ()

    def take(self) -> Entry | None:
        """Unpack the next row of the batch; None at its end."""
        if not self._fetched:
            return None
        row = self._fetched.popleft()
        self._last_taken = row.key
        return self._form.entry_without_value(row) if self._keys_only else self._form.entry(row)

    def fetch(self, limits: Limits) -> Flow[bool]:
        """Fetch the next batch with at most one request; return whether there is an entry to take."""
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
                hint="Give a smaller batch_size; the listing continues with the next batch by itself.",
            )

    def _resume(self, cursor: str, selection: Selection) -> None:
        last = self._shared + _decode_cursor(cursor)
        if self._reverse:
            if selection.bounded_above and last > self._end:
                raise _out_of_bounds()
            # An invented cursor could be outside the range of the prefix, among the keys of other parts of a program.
            self._end = min(last, self._end)
        else:
            first = key_successor(last)
            if selection.bounded_below and first < self._start:
                raise _out_of_bounds()
            self._start = max(first, self._start)


def count_entries(selection: Selection, limits: Limits) -> Flow[int]:
    """Count the entries of a range, reading only keys; one request per thousand."""
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
    """Refuse a value other than ``"strong"`` and ``"eventual"``. Raises InvalidArgumentError."""
    if consistency not in CONSISTENCIES:
        raise InvalidArgumentError(
            "this consistency does not exist", argument="consistency", value=consistency, expected=CONSISTENCIES
        )


def _require_positive(argument: str, message: str, value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InvalidArgumentError(message, argument=argument, value=value, hint="Leave it out for the default.")


def _encode_cursor(suffix: bytes) -> str:
    return base64.urlsafe_b64encode(suffix).decode()


def _decode_cursor(cursor: object) -> bytes:
    if not isinstance(cursor, str):
        raise InvalidCursorError("this is not a cursor", reason=f"a {type(cursor).__name__}", hint=_CURSOR_HINT)
    try:
        suffix = base64url_bytes(cursor)
    except ValueError:
        suffix = None
    # Unused bits of the last character may be anything; only text that Python itself would encode is a cursor.
    if suffix is None or _encode_cursor(suffix) != cursor:
        raise InvalidCursorError("this is not a cursor", reason="not base64url", hint=_CURSOR_HINT)
    return suffix


def _out_of_bounds() -> InvalidCursorError:
    return InvalidCursorError("the cursor is outside the selector", reason="another selector", hint=_CURSOR_HINT)


_CURSOR_HINT: Final = "Pass the cursor of a listing with the same selector, unchanged; leave it out to start again."
