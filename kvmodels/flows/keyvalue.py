"""The flows of the key-value API: point reads, and one atomic operation.

Rules of this module: nothing here does I/O; ``kvmodels.kv`` and ``kvmodels.kv_async`` run the same flows. Keys and
values are packed before a flow begins, limits are compared with the packed sizes before anything is sent, and an
operation is sent once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kvmodels.errors import KeyTooLargeError, OperationTooLargeError
from kvmodels.flows.queue import NewMessage
from kvmodels.flows.requests import Flow, commit, now, read
from kvmodels.flows.store_format import StoreFormat
from kvmodels.keys import Key
from kvmodels.limits import Limits
from kvmodels.maintenance.budget import check_budget
from kvmodels.operations import (
    AtomicWrite,
    Check,
    CommitResult,
    Committed,
    Entry,
    Mutation,
    Set,
    format_versionstamp,
    point,
)

__all__ = ["PendingWrite", "check_read_size", "commit_operation", "get_entries", "get_entry"]


def get_entry(form: StoreFormat, limits: Limits, key: Key) -> Flow[Entry]:
    """Read one key; one request."""
    packed = _pack_read_key(form, limits, key)
    found = yield from read([point(packed)])
    rows = found.ranges[0]
    return form.entry(rows[0]) if rows else Entry(form.unpack_key(packed), None, None)


def get_entries(form: StoreFormat, limits: Limits, keys: Iterable[Key]) -> Flow[list[Entry]]:
    """Read keys in one snapshot and return entries in their order; one request, or none for no keys."""
    packed_keys = [_pack_read_key(form, limits, key) for key in keys]
    if not packed_keys:
        return []
    if len(packed_keys) > limits.max_ranges:
        raise OperationTooLargeError(
            "too many keys in one read",
            limit="max_ranges",
            size=len(packed_keys),
            maximum=limits.max_ranges,
            limits=limits.whose("max_ranges"),
            hint="Read them in several calls, and in kv.snapshot() if they must belong together.",
        )
    found = yield from read([point(packed) for packed in packed_keys])
    return [
        form.entry(rows[0]) if rows else Entry(form.unpack_key(packed), None, None)
        for packed, rows in zip(packed_keys, found.ranges, strict=True)
    ]


def _pack_read_key(form: StoreFormat, limits: Limits, key: Key) -> bytes:
    packed = form.pack_key(key)
    # Deno reads one key as the range that ends with the key and a zero byte, and compares that end with a limit
    # that is one byte longer than the one for writes.
    if len(packed) >= limits.max_read_key_bytes:
        check_read_size(len(packed) + 1, limits, form.unpack_key(packed))
    return packed


def check_read_size(size: int, limits: Limits, key: Key | None = None) -> None:
    """Refuse a key, or an end of a range, of so many bytes. Raises KeyTooLargeError."""
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
    """A built operation; ``lifetimes`` holds the milliseconds from the commit on, by position of the Set.

    ``messages`` are put into the queue by the same commit.
    """

    checks: tuple[Check, ...]
    mutations: tuple[Mutation, ...]
    lifetimes: Mapping[int, int]
    messages: tuple[NewMessage, ...] = ()


def commit_operation(form: StoreFormat, limits: Limits, pending: PendingWrite) -> Flow[CommitResult]:
    """Commit a built operation; one request, and one for the time if something expires.

    Deadlines are computed here, when the operation is committed and not when it was built, as in Deno.
    """
    mutations = pending.mutations
    committed_at = 0
    if pending.lifetimes or pending.messages:
        committed_at = yield from now()
        mutations = tuple(
            mutation._replace(expire_at=committed_at + pending.lifetimes[position])
            if position in pending.lifetimes and isinstance(mutation, Set)
            else mutation
            for position, mutation in enumerate(mutations)
        )
    letters = tuple(letter for new in pending.messages for letter in new.dead_letters)
    if limits.max_key_runes is not None:
        for part in (*pending.checks, *mutations, *letters):
            form.check_key_runes(part.key, limits)
    if pending.messages:
        for new in pending.messages:
            # A message that could not be given up in the end would be tried for ever.
            check_budget(AtomicWrite(mutations=new.dead_letters), limits)
        mutations += tuple(new.arrival(form, committed_at) for new in pending.messages)
    write = AtomicWrite(pending.checks, mutations)
    check_budget(write, limits)
    outcome = yield from commit(write)
    if isinstance(outcome, Committed):
        return CommitResult(True, format_versionstamp(outcome.versionstamp))
    failed = tuple(form.unpack_key(write.checks[position].key) for position in outcome.failed_checks)
    return CommitResult(False, None, failed)
