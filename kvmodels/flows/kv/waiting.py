"""List the messages of the queue and the locks of a store, for operators.

Rules of this module: it only reads, in batches, each the present state. It knows rows only through
``kvmodels/flows/kv/queue.py`` and the layout that ``kvmodels/flows/kv/lock.py`` describes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final, cast

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.keys import Key, decode_key, encode_key, key_successor, prefix_range
from kvmodels.core.operations import ReadRange, Row
from kvmodels.core.truth import without_truth
from kvmodels.core.values import StoredAsJson
from kvmodels.flows.arguments import require_limit
from kvmodels.flows.effects import Flow, read
from kvmodels.flows.kv.queue import Message, message_parts, queue_prefix
from kvmodels.flows.kv.store_format import LIBRARY_PART, StoreFormat
from kvmodels.limits import Limits

AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message in the queue of a store.

    Attributes:
        id: identifies the message, also after a redelivery.
        value: the message.
        ready_at: when it may be delivered, or delivered again if its handler dies; milliseconds since the epoch.
        taken: whether a listener has it.
        redeliveries: how many deliveries are left after the next or present one.
        keys_if_undelivered: the keys that store it if every delivery fails.
    """

    id: str
    value: Annotated[Any, StoredAsJson]
    ready_at: int
    taken: bool
    redeliveries: int
    keys_if_undelivered: Annotated[tuple[Key, ...], StoredAsJson]


@without_truth("lock.held")
@dataclass(frozen=True, slots=True)
class HeldLock:
    """A lock that is held or waited for.

    Attributes:
        name: the name of the lock.
        held: whether it has a holder; otherwise the first waiter is about to take it.
        expires_at: the end of the lease unless it is renewed, in milliseconds since the epoch; None if the engine does
            not end leases.
        waiting: how many wait for it.
    """

    name: str
    held: bool
    expires_at: int | None
    waiting: int


def list_messages(form: StoreFormat, limits: Limits, limit: int) -> Flow[list[QueuedMessage]]:
    """Return the first messages of the queue in the order of their delivery; one read per 500."""
    require_limit(limit, "Give the maximum number of messages to list.")
    rows = yield from _rows_below(queue_prefix(form), limits, limit)
    return [_message(form, row) for row in rows]


def list_locks(form: StoreFormat, limits: Limits) -> Flow[list[HeldLock]]:
    """Return the locks that are held or waited for, by name; one read per 500 holders and waiters."""
    prefix = form.root + encode_key((LIBRARY_PART, "lock"))
    rows = yield from _rows_below(prefix, limits, None)
    return _locks(rows, len(prefix))


def _rows_below(prefix: bytes, limits: Limits, limit: int | None) -> Flow[list[Row]]:
    start, end = prefix_range(prefix)
    rows: list[Row] = []
    while limit is None or len(rows) < limit:
        size = min(AT_ONCE, limits.max_read_entries, AT_ONCE if limit is None else limit - len(rows))
        found = yield from read([ReadRange(start, end, size)])
        rows += found.ranges[0]
        if len(found.ranges[0]) < size:
            break
        start = key_successor(rows[-1].key)
    return rows


def _message(form: StoreFormat, row: Row) -> QueuedMessage:
    ready_ms, message_id = message_parts(form, row.key)
    message = Message.unpack(form.codec, row)
    value = form.codec.decode(message.value, message.encoding, row.key)
    keys = tuple(form.unpack_key(key) for key in message.undelivered)
    return QueuedMessage(message_id, value, ready_ms, message.owner is not None, len(message.backoff), keys)


def _locks(rows: list[Row], prefix_length: int) -> list[HeldLock]:
    """Return a lock for each name; the row of the holder comes before the tickets of those who wait."""
    found: dict[str, HeldLock] = {}
    for row in rows:
        name, *ticket = cast("tuple[str, ...]", decode_key(row.key[prefix_length:]))
        if not ticket:
            found[name] = HeldLock(name, True, row.expire_at, 0)
        else:
            known = found.get(name, HeldLock(name, False, None, 0))
            found[name] = replace(known, waiting=known.waiting + 1)
    return list(found.values())


show_public_path(HeldLock, QueuedMessage)
