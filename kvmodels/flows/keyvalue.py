"""The flows of the key-value API: point reads, batches of a listing, and one atomic operation.

Rules of this module: nothing here does I/O; ``kvmodels.kv`` and ``kvmodels.kv_async`` run the same flows. Keys and
values are packed before a flow begins, limits are compared with the packed sizes before anything is sent, and an
operation is sent once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kvmodels.encoding.values import ValueCodec
from kvmodels.errors import (
    DecodeError,
    InvalidArgumentError,
    InvalidKeyError,
    KeyTooLargeError,
    OperationTooLargeError,
    ReservedKeyError,
)
from kvmodels.flows.requests import Flow, commit, now, read
from kvmodels.keys import Key, decode_key, encode_key, key_range, key_successor
from kvmodels.limits import Limits
from kvmodels.maintenance.budget import check_budget
from kvmodels.operations import (
    AtomicWrite,
    Check,
    CommitResult,
    Committed,
    Entry,
    Mutation,
    ReadRange,
    Row,
    Set,
    format_versionstamp,
    point,
)

__all__ = [
    "Listing",
    "PendingWrite",
    "StoreFormat",
    "commit_operation",
    "get_entries",
    "get_entry",
    "listing",
]

LIBRARY_PART = "__kvmodels__"

DEFAULT_BATCH = 100
LARGEST_BATCH = 500


@dataclass(frozen=True, slots=True)
class StoreFormat:
    """How keys and values become bytes, and which first parts raw writes may not use.

    Attributes:
        codec: packs and unpacks values.
        reserved: first key parts that belong to models, with the owner that the error names; it is read at every
            write, so its owner may change it. None lifts every reservation, the library's own included.
    """

    codec: ValueCodec
    reserved: Mapping[str, str] | None

    def unreserved(self) -> StoreFormat:
        """The same format without reservations."""
        return replace(self, reserved=None)

    def pack_written_key(self, key: Key) -> bytes:
        """Pack a key that is to be written.

        Raises:
            InvalidKeyError: not a key, or the empty key.
            ReservedKeyError: the first part belongs to a model or to the library.
        """
        packed = pack_checked_key(key)
        if self.reserved is not None:
            name = _leading_text(packed)
            owner = "kvmodels" if name == LIBRARY_PART else self.reserved.get(name) if name is not None else None
            if owner is not None:
                raise ReservedKeyError("the key is reserved", key=decode_key(packed), owner=owner)
        return packed

    def entry(self, row: Row) -> Entry:
        """Unpack a stored row.

        Raises:
            DecodeError: the key or the value cannot be read.
        """
        try:
            key = decode_key(row.key)
        except InvalidKeyError as error:
            raise DecodeError(
                "a stored key cannot be read",
                key=row.key,
                reason=str(error),
                hint="The store is damaged, or another program wrote the key.",
            ) from error
        value = self.codec.decode(row.value, row.encoding, row.key)
        return Entry(key, value, format_versionstamp(row.versionstamp), row.expire_at)


def pack_checked_key(key: Key) -> bytes:
    """Pack a key that is to be checked or written. Raises InvalidKeyError: not a key, or the empty key."""
    packed = encode_key(key)
    if not packed:
        raise InvalidKeyError("the key is empty", key=(), hint="The empty key can be read and listed, never written.")
    return packed


def _leading_text(packed: bytes) -> str | None:
    # Decided on the packed form, so that whatever the application passes as text (a subclass with its own equality,
    # a lone surrogate that becomes U+FFFD) is judged as what will be stored.
    if packed[0] != 2:
        return None
    end = packed.index(b"\x00")
    if packed[end + 1 : end + 2] == b"\xff":  # an escaped zero byte: no collection has one in its name
        return None
    return packed[1:end].decode()


def get_entry(form: StoreFormat, limits: Limits, key: Key) -> Flow[Entry]:
    """Read one key; one request."""
    packed = _pack_read_key(key, limits)
    found = yield from read([point(packed)])
    rows = found.ranges[0]
    return form.entry(rows[0]) if rows else Entry(decode_key(packed), None, None)


def get_entries(form: StoreFormat, limits: Limits, keys: Iterable[Key]) -> Flow[list[Entry]]:
    """Read keys in one snapshot and return entries in their order; one request, or none for no keys."""
    packed_keys = [_pack_read_key(key, limits) for key in keys]
    if not packed_keys:
        return []
    if len(packed_keys) > limits.max_ranges:
        raise OperationTooLargeError(
            "too many keys in one read",
            limit="max_ranges",
            size=len(packed_keys),
            maximum=limits.max_ranges,
            limits=limits.name,
            hint="Read them in several calls; each of them is its own snapshot.",
        )
    found = yield from read([point(packed) for packed in packed_keys])
    return [
        form.entry(rows[0]) if rows else Entry(decode_key(packed), None, None)
        for packed, rows in zip(packed_keys, found.ranges, strict=True)
    ]


def _pack_read_key(key: Key, limits: Limits) -> bytes:
    packed = encode_key(key)
    # Deno reads one key as the range that ends with the key and a zero byte, and compares that end with a limit
    # that is one byte longer than the one for writes.
    _check_read_size(len(packed) + 1, packed, limits)
    return packed


def _check_read_size(size: int, packed: bytes | None, limits: Limits) -> None:
    if size > limits.max_read_key_bytes:
        raise KeyTooLargeError(
            "a key is too large to read",
            limit="max_read_key_bytes",
            size=size,
            maximum=limits.max_read_key_bytes,
            limits=limits.name,
            key=None if packed is None else decode_key(packed),
        )


class PendingWrite(NamedTuple):
    """A built operation; ``lifetimes`` holds the milliseconds from the commit on, by position of the Set."""

    checks: tuple[Check, ...]
    mutations: tuple[Mutation, ...]
    lifetimes: Mapping[int, int]


def commit_operation(limits: Limits, pending: PendingWrite) -> Flow[CommitResult]:
    """Commit a built operation; one request, and one for the time if something expires.

    Deadlines are computed here, when the operation is committed and not when it was built, as in Deno.
    """
    mutations = pending.mutations
    if pending.lifetimes:
        committed_at = yield from now()
        mutations = tuple(
            mutation._replace(expire_at=committed_at + pending.lifetimes[position])
            if position in pending.lifetimes and isinstance(mutation, Set)
            else mutation
            for position, mutation in enumerate(mutations)
        )
    write = AtomicWrite(pending.checks, mutations)
    check_budget(write, limits)
    outcome = yield from commit(write)
    if isinstance(outcome, Committed):
        return CommitResult(True, format_versionstamp(outcome.versionstamp))
    failed = tuple(decode_key(write.checks[position].key) for position in outcome.failed_checks)
    return CommitResult(False, None, failed)


def listing(
    form: StoreFormat, *, prefix: Key | None, start: Key | None, end: Key | None, limit: Any, reverse: Any
) -> Listing:
    """Check a selector and its options, as Deno does, and return the listing at its beginning.

    Raises:
        InvalidArgumentError: neither a prefix nor both ends, or all three; an end outside the prefix; the start
            after the end; a limit that is no positive integer.
        InvalidKeyError: a selector that is not a key.
    """
    packed_start, packed_end = key_range(prefix=prefix, start=start, end=end)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise InvalidArgumentError(
            "the limit must be a positive integer",
            argument="limit",
            value=limit,
            hint="Leave it out to list everything.",
        )
    if not isinstance(reverse, bool):
        raise InvalidArgumentError(
            "reverse must be True or False",
            argument="reverse",
            value=reverse,
            hint="Write reverse=True to go backwards.",
        )
    return Listing(form, packed_start, packed_end, limit, reverse)


class Listing:
    """A position in a range: what was fetched and not yet taken, and what is still to be fetched.

    Every batch is its own snapshot; between two batches nothing is open and nothing is held.
    """

    __slots__ = ("_batch", "_end", "_fetched", "_form", "_remaining", "_reverse", "_start", "_untouched")

    def __init__(self, form: StoreFormat, start: bytes, end: bytes, limit: int | None, reverse: bool) -> None:
        self._form = form
        self._start = start
        self._end = end
        self._remaining = limit
        self._batch = min(limit or DEFAULT_BATCH, LARGEST_BATCH)
        self._reverse = reverse
        self._fetched: deque[Row] = deque()
        self._untouched = True

    def take(self) -> Entry | None:
        """Unpack the next row of the batch at hand; None when it is used up.

        Raises:
            DecodeError: the row cannot be read; the next call goes on behind it.
        """
        return self._form.entry(self._fetched.popleft()) if self._fetched else None

    def fetch(self, limits: Limits) -> Flow[None]:
        """Fetch the next batch, if there may be one; at most one request."""
        if self._untouched:
            _check_read_size(len(self._start), None, limits)
            _check_read_size(len(self._end), None, limits)
            self._untouched = False
        wanted = min(self._batch, limits.max_read_entries)
        if self._remaining is not None:
            wanted = min(wanted, self._remaining)
        if wanted == 0 or self._start >= self._end:
            return
        found = yield from read([ReadRange(self._start, self._end, wanted, self._reverse)])
        rows = found.ranges[0]
        self._fetched.extend(rows)
        if self._remaining is not None:
            self._remaining -= len(rows)
        if len(rows) < wanted:
            self._start = self._end
        elif self._reverse:
            self._end = rows[-1].key
        else:
            self._start = key_successor(rows[-1].key)
