"""Tenants: parts of a store with collections of their own; create, list and remove them.

A tenant exists if its row does. The row has a state and an id, which is another one for each life of the name. It is
written in one commit with the header of the tenant. A removal first writes both again, in one commit that marks the
row; every commit of a tenant checks one of the two, so nothing is written after the mark. Then the keys are removed in
batches, and the row with the header last.

Rules of this module: the flows run on the engine of the store, with stored keys. Every step can be lost, repeated or
interrupted. A removal is resumed by removing the tenant again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, cast

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.catalogue import LOADING, Header, stored_collection
from kvmodels.catalog.keyspace import ANNOUNCED, HEADER_KEY, QUEUE, TENANT_ROWS, tenant_prefix, tenant_row_key
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import decode_key, encode_key, encode_part, escape, key_successor
from kvmodels.core.operations import (
    AtomicWrite,
    Check,
    Committed,
    Delete,
    Guard,
    ReadRange,
    Row,
    Set,
    after_prefix,
    point,
    vacant_range,
)
from kvmodels.errors import (
    CommitUnknownError,
    DecodeError,
    InvalidArgumentError,
    RetriesExhaustedError,
    TenantNotFoundError,
    TenantRemovedError,
)
from kvmodels.flows.context import Context, HeaderView, pause_before, reload_header
from kvmodels.flows.effects import Flow, commit, read, read_all, rows_at_once
from kvmodels.flows.evolution.drop_index import rows_removed_at_once
from kvmodels.flows.evolution.header import list_collections
from kvmodels.flows.evolution.throttle import UNPACED, Pace, SchemaProgress
from kvmodels.indexing.budget import check_budget
from kvmodels.limits import Limits
from kvmodels.schema.definition.definition import ModelSchema

ACTIVE: Final = "active"
REMOVING: Final = "removing"

LOADED: Final = "loading"
"""The state of a tenant whose keys a load writes; every use of it is refused."""

LONGEST_NAME: Final = 64
"""Bytes of a name, so that every row of the library in a tenant fits the 511 bytes of a key that LMDB allows."""

NAMES_AT_ONCE: Final = 1_000

NO_VERSION: Final = bytes(10)
"""The versionstamp of the header of a tenant that does not exist yet; no stored row has it."""


class TenantStatus(NamedTuple):
    """One tenant of a store.

    Attributes:
        name: the name of the tenant.
        state: ``"active"``; ``"removing"`` while a removal runs or after one was interrupted; ``"loading"`` while a
            dump is loaded or the tenant is a copy that is being made, or after that was interrupted.
    """

    name: str
    state: Literal["active", "removing", "loading"]


def require_name(name: object) -> str:
    """Return a name of a tenant. Raises InvalidArgumentError for any other value."""
    text = name if isinstance(name, str) else ""
    lone = any("\ud800" <= character <= "\udfff" for character in text)
    if not text or lone or len(encode_part(text)) - 2 > LONGEST_NAME:
        raise InvalidArgumentError(
            "this cannot be the name of a tenant",
            argument="name",
            value=name,
            hint=f"Give a text of 1 to {LONGEST_NAME} bytes in UTF-8, without lone surrogates.",
        )
    return str(text)


class TenantLife:
    """The life of a tenant that one handle has seen; the handle is refused in a later life of the same name.

    Attributes:
        creates: whether the first write creates the tenant.
        ended: whether the life that this handle has seen is over; then every use is refused.
        close: called when it has ended; the engine of the handle then asks ``admit`` before each call.
    """

    def __init__(self, name: str, codec: ValueCodec, *, creates: bool) -> None:
        self.name = name
        self.ended = False
        self.close: Callable[[], object] = lambda: None
        self._codec = codec
        self.creates = creates
        self._id: str | None = None

    def end(self, life: str, *, unread: bool) -> None:
        """End the use of the handle if it has seen a life that was removed; ``unread``: or if it has seen none yet."""
        if self._id == life or (unread and self._id is None):
            self._end()

    def _end(self) -> None:
        self.ended = True
        self.close()

    def admit(self, row: Row | None) -> bool:
        """Return whether the tenant exists, by its row. Raises TenantNotFoundError or TenantRemovedError."""
        if self.ended:
            raise TenantRemovedError("the tenant was removed", tenant=self.name)
        if row is None and self._id is None:
            if self.creates:
                return False
            raise TenantNotFoundError("the store has no tenant of this name", tenant=self.name)
        state, life = (REMOVING, self._id) if row is None else _read_row(self._codec, row)
        if state == LOADED and self._id is None:
            raise TenantNotFoundError(
                "the tenant is being loaded",
                tenant=self.name,
                hint="Wait for the load. If it was interrupted: db.create_tenant(name) opens a tenant whose keys are "
                "complete, and db.remove_tenant(name) removes one that is not.",
            )
        if state != ACTIVE or life != (self._id or life):
            self._end()
            raise TenantRemovedError("the tenant was removed", tenant=self.name)
        self._id = life
        return True


def read_state(codec: ValueCodec, row: Row) -> str:
    """Return the state in the row of a tenant. Raises DecodeError."""
    return _read_row(codec, row)[0]


def _read_row(codec: ValueCodec, row: Row) -> tuple[str, str]:
    """Return state and id. Raises DecodeError."""
    value: Any = codec.decode(row.value, row.encoding, row.key)
    match value:
        case {"state": "active" | "removing" | "loading" as state, "id": str() as life}:
            return state, life
        case _:
            raise DecodeError("the row of a tenant is damaged", key=decode_key(row.key), reason="no state and id")


@dataclass(slots=True)
class TenantContext(Context):
    """The context of the flows in one tenant.

    Attributes:
        reserve: called with each header, whose collections raw writes must not touch.
        lists: whether a write lists collections that are new in this release; not if the store is read-only.
    """

    reserve: Callable[[Header], None] = lambda _: None
    lists: bool = True

    def noticed(self, header: Header) -> None:
        """Reserve the keys of the collections in a header."""
        self.reserve(header)

    def listed(self, view: HeaderView, name: str) -> Flow[HeaderView]:
        """List the declared collections if this one is not in the header."""
        return (yield from list_collections(self)) if self.lists and name not in view.header.collections else view

    def empty_unlisted(self, header: Header, guard: Guard) -> Flow[Collection[str] | None]:
        """Return the declared collections without records that a header does not list; None if the guard fails."""
        names = [name for name in self.schemas if name not in header.collections]
        ranges = [vacant_range(self.layouts[name].prefix) for name in names]
        found = yield from read_all(self.limits, ranges, guard)
        return None if found is None else [name for name, rows in zip(names, found, strict=True) if not rows]


def first_header(codec: ValueCodec, schemas: Mapping[str, ModelSchema]) -> tuple[bytes, int]:
    """Return the stored header of a new tenant, in which all indexes of its collections are readable."""
    return codec.encode(Header({name: stored_collection(schema) for name, schema in schemas.items()}).to_value())


def create_tenant(context: Context, name: str, schemas: Mapping[str, ModelSchema]) -> Flow[bool]:
    """Create a tenant with its header in one commit; return False if it exists.

    ``context`` is that of the store, whose header the commit checks: no tenant appears while a dump is loaded. Raises
    TenantRemovedError while a tenant of this name is being removed.
    """
    life = TenantLife(name, context.codec, creates=True)
    row_key, header_key = tenant_row_key(name), tenant_prefix(name) + HEADER_KEY
    header = first_header(context.codec, schemas)
    row = context.codec.encode({"state": ACTIVE, "id": context.new_token()})

    def attempt() -> Flow[bool | None]:
        found = yield from read((point(row_key),))
        rows = found.ranges[0]
        if rows and read_state(context.codec, rows[0]) == LOADED:
            return (yield from _opened(context, name, rows[0]))
        if life.admit(rows[0] if rows else None):
            return False
        view = yield from reload_header(context)
        checks = Check(HEADER_KEY, view.versionstamp, physical=True), Check(row_key, None), Check(header_key, None)
        write = AtomicWrite(checks, (Set(row_key, *row), Set(header_key, *header)))
        check_budget(write, context.limits)
        return True if isinstance((yield from commit(write)), Committed) else None

    return (yield from _repeated(context, name, attempt))


def _opened(context: Context, name: str, row: Row) -> Flow[bool | None]:
    """Activate a tenant whose keys a load has written completely; return False, or None after a conflict.

    Raises TenantNotFoundError if its own load, and SchemaMismatchError if one of the store, has not ended.
    """
    view = yield from reload_header(context)
    found = yield from read((point(tenant_prefix(name) + HEADER_KEY),))
    headers = found.ranges[0]
    value: Any = context.codec.decode(headers[0].value, headers[0].encoding, HEADER_KEY) if headers else {}
    if LOADING in value:
        TenantLife(name, context.codec, creates=False).admit(row)
    active = context.codec.encode({"state": ACTIVE, "id": _read_row(context.codec, row)[1]})
    checks = Check(HEADER_KEY, view.versionstamp, physical=True), Check(row.key, row.versionstamp, physical=True)
    return False if isinstance((yield from commit(AtomicWrite(checks, (Set(row.key, *active),)))), Committed) else None


def remove_tenant(
    context: Context, name: str, pace: Pace = UNPACED, marked: Callable[[str], object] = lambda _: None
) -> Flow[bool]:
    """Remove a tenant with all its keys; return False if there is none. A removal that was interrupted is resumed.

    ``marked`` is called with the id of the life once the tenant is marked, before any key is removed.
    """
    row_key, header_key = tenant_row_key(name), tenant_prefix(name) + HEADER_KEY
    first: str | None = None

    def attempt() -> Flow[bool | None]:
        nonlocal first
        found = yield from read((point(row_key), point(header_key)), include_expired=True)
        (rows, headers) = found.ranges
        if not rows:
            return first is not None
        row, state, life = rows[0], *_read_row(context.codec, rows[0])
        first = first or life
        if life != first:
            return True  # it was removed, and created again since
        if state == LOADED:
            yield from reload_header(context)  # raises while a dump is loaded into the store
        if state != REMOVING:
            return (yield from attempt()) if (yield from _mark(context, row, headers, life)) else None
        marked(life)
        if not (yield from _emptied(context, name, Check(row_key, row.versionstamp, physical=True), pace)):
            return None
        check = Check(row_key, row.versionstamp, physical=True)
        ended = yield from commit(AtomicWrite((check,), (Delete(header_key), Delete(row_key))))
        return True if isinstance(ended, Committed) else None

    return (yield from _repeated(context, name, attempt))


def _mark(context: Context, row: Row, headers: list[Row], life: str) -> Flow[bool]:
    """Mark the row, and write the header again, so that every commit that checks one of them is refused.

    Returns False after a conflict.
    """
    value = context.codec.encode({"state": REMOVING, "id": life})
    checks = [Check(one.key, one.versionstamp, physical=True) for one in (row, *headers)]
    again = [Set(one.key, one.value, one.encoding) for one in headers]
    outcome = yield from commit(AtomicWrite(tuple(checks), (Set(row.key, *value), *again)))
    return isinstance(outcome, Committed)


def _emptied(context: Context, name: str, check: Check, pace: Pace) -> Flow[bool]:
    """Remove all keys but the header; return False after a conflict."""
    prefix = tenant_prefix(name)
    header_key, removed = prefix + HEADER_KEY, 0
    for start, end in ((prefix, header_key), (key_successor(header_key), after_prefix(prefix))):
        left = ReadRange(start, end)
        while True:
            size = rows_at_once(context.limits, rows_removed_at_once(context.limits, pace))
            found = yield from read((left._replace(limit=size, keys_only=True),), include_expired=True)
            rows, removals = _removals(context, name, found.ranges[0])
            if not rows:
                break
            outcome = yield from commit(AtomicWrite((check,), removals))
            if not isinstance(outcome, Committed):
                return False
            removed += len(rows)
            yield from pace.after(SchemaProgress("drop", name, None, removed), len(rows), left)
    return True


def _removals(context: Context, name: str, rows: list[Row]) -> tuple[list[Row], tuple[Delete, ...]]:
    """Return as many of the rows as one commit removes, with the removals; messages with their announcements."""
    messages, suffix = tenant_prefix(name) + QUEUE, encode_key((name,))
    removals: list[Delete] = []
    for number, row in enumerate(rows):
        announced = row.key.startswith(messages)
        if len(removals) + 1 + announced > max(2, context.limits.max_mutations):
            return rows[:number], tuple(removals)
        removals.append(Delete(row.key))
        if announced:
            removals.append(Delete(ANNOUNCED + row.key[len(messages) :] + suffix))
    return rows, tuple(removals)


def _repeated(context: Context, name: str, attempt: Callable[[], Flow[bool | None]]) -> Flow[bool]:
    """Return the result of an attempt, which is None after a conflict; a lost answer is looked for by the next one."""
    policy, started, number = context.retry, context.monotonic(), 1
    while True:
        lost: CommitUnknownError | None = None
        try:
            done = yield from attempt()
        except CommitUnknownError as error:
            done, lost = None, error
        if done is not None:
            return done
        number += 1
        left = policy.deadline_s - (context.monotonic() - started)
        if number > policy.attempts or left <= 0:
            raise lost or RetriesExhaustedError(
                "other writers have changed the row of the tenant in every attempt",
                attempts=number - 1,
                failed_checks=(decode_key(tenant_row_key(name)),),
                hint="Try again; a removal goes on where it has stopped.",
            )
        yield from pause_before(context, number, left)


def require_tenants(codec: ValueCodec, limits: Limits, names: Sequence[str]) -> Flow[None]:
    """Read the rows of tenants. Raises TenantNotFoundError or TenantRemovedError."""
    found = yield from read_all(limits, [point(tenant_row_key(name)) for name in names])
    for name, rows in zip(names, found or (), strict=True):
        TenantLife(name, codec, creates=False).admit(rows[0] if rows else None)


def list_tenants(context: Context, prefix: object, after: object, limit: object) -> Flow[tuple[TenantStatus, ...]]:
    """Return tenants in the order of their names; reads their rows only. Raises InvalidArgumentError."""
    if type(limit) is not int or limit < 1:
        raise InvalidArgumentError(
            "a limit is not a positive whole number", argument="limit", value=limit, hint="Give a number from 1 on."
        )
    if not isinstance(prefix, str) or any("\ud800" <= character <= "\udfff" for character in prefix):
        raise InvalidArgumentError(
            "a prefix of names must be a str", argument="prefix", value=prefix, hint='Give a str: prefix="eu-".'
        )
    start = TENANT_ROWS + encode_key(("",))[:-1] + escape(prefix.encode())
    end = start + b"\xff"
    if after is not None:
        start = max(start, key_successor(tenant_row_key(require_name(after))))
    found: list[TenantStatus] = []
    while len(found) < limit and start < end:
        size = rows_at_once(context.limits, limit - len(found))
        rows = (yield from read((ReadRange(start, end, size),))).ranges[0]
        for row in rows:
            state = _read_row(context.codec, row)[0]
            found.append(
                TenantStatus(str(decode_key(row.key)[2]), cast("Literal['active', 'removing', 'loading']", state))
            )
        if len(rows) < size:
            break
        start = key_successor(rows[-1].key)
    return tuple(found)


def active_tenants(context: Context, prefix: str) -> Flow[list[str]]:
    """Return the names of all tenants that are not being removed. Raises InvalidArgumentError."""
    names: list[str] = []
    after: str | None = None
    while True:
        found = yield from list_tenants(context, prefix, after, NAMES_AT_ONCE)
        names += [one.name for one in found if one.state == ACTIVE]
        if len(found) < NAMES_AT_ONCE:
            return names
        after = found[-1].name


show_public_path(TenantStatus)
