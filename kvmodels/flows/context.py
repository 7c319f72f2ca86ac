"""Shared state of the flows of one database: codec, limits, retry policy, injected clocks, and the cached header.

Rules of this module: the header is cached with its versionstamp, and used until a guard or a check shows that it has
changed; nothing here makes decisions about writes. Clock, randomness and tokens are values of the context, so tests can
replace them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from functools import partial
from math import inf
from typing import Any, Final, Protocol, TypeVar

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels._support.turns import Turns
from kvmodels.catalog.catalogue import Header, IndexState
from kvmodels.catalog.collection import REMEMBERED_HEADERS, LiveCollection, join, rejoin
from kvmodels.catalog.encryption import blind_keys
from kvmodels.catalog.keyspace import HEADER_KEY, RecordLayout, fence_key
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Guard, ReadRange, Row
from kvmodels.errors import IndexNotReadyError, SchemaMismatchError
from kvmodels.flows.effects import Flow, call_outside, read_all, read_row, sleep
from kvmodels.flows.retry_policy import RetryPolicy
from kvmodels.flows.scans import ScanPolicy
from kvmodels.flows.signals import Signals, TenantSignals
from kvmodels.limits import Limits, Traits
from kvmodels.schema.blobs.blob import BlobHome
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.encryption.documents import sealing_ids

LARGEST_RANGE: Final = 1_000
"""The most keys that are reserved ahead; a process that ends leaves at most so many unused."""


class KeyPool:
    """Reserved keys of one collection.

    Ranges double from one key on: a short program leaves no gap, and a busy one reserves once for a thousand records.
    """

    def __init__(self) -> None:
        self._keys: deque[int] = deque()
        self.size = 1
        """How many keys to reserve next."""

    def take(self, count: int) -> list[int]:
        """Return the next keys, at most ``count``."""
        found: list[int] = []
        while len(found) < count:
            try:
                found.append(self._keys.popleft())
            except IndexError:
                break
        return found

    def put(self, keys: Iterable[int]) -> None:
        """Add a range of keys that was reserved."""
        self._keys.extend(keys)
        self.size = min(2 * self.size, LARGEST_RANGE)


T = TypeVar("T")

_headers: dict[tuple[type[ValueCodec], int, bytes], Header] = {}


@dataclass(frozen=True, slots=True)
class HeaderView:
    """The header that this process last read, with its declarations by collection name.

    Every read through an index checks ``guard`` (rule R3).
    """

    versionstamp: bytes | None
    header: Header
    live: Mapping[str, LiveCollection]
    guard: Guard
    fences: Mapping[tuple[str, str, int], bytes]


class Joining(Protocol):
    """A transaction that collects writes, to commit them together."""

    def take(self, operation: Any) -> Flow[Any]:
        """Carry out a ``LogicalWrite`` as part of the transaction; return its result."""
        ...

    def wrote(self, key: bytes) -> bool:
        """Return whether the transaction has stored the record with this key."""
        ...


@dataclass(slots=True)
class Context:
    """Values shared by the flows of one database handle; only ``view`` changes, and it is replaced as a whole.

    Attributes:
        monotonic: returns seconds and never goes back.
        random: returns a number in [0, 1).
        new_token: returns a new str at each call.
        transaction: set in the copy that a transaction makes for its own flows.
        signals: the signals of the handle.
        removes: whether the engine reads the row that it removes; see ``Remove``.
        turns: the turns of the store, shared by its handles in this process.
        release_writes: ends a reservation of writes, without blocking an event loop; None if the engine does not answer
            ``ReserveWrites``.
        key_pools: reserved primary keys by collection, shared with the transactions of the handle.
        scans: the treatment of queries that no index serves, shared with the transactions and tenants of the handle.
        blob_home: opens blobs that were loaded with this context.
    """

    codec: ValueCodec
    limits: Limits
    traits: Traits
    retry: RetryPolicy
    monotonic: Callable[[], float]
    random: Callable[[], float]
    new_token: Callable[[], str]
    schemas: Mapping[str, ModelSchema]
    layouts: Mapping[str, RecordLayout]
    view: HeaderView | None = None
    transaction: Joining | None = None
    signals: Signals | TenantSignals = field(default_factory=Signals)
    removes: bool = False
    turns: Turns = field(default_factory=Turns)
    release_writes: Callable[[], object] | None = None
    key_pools: dict[str, KeyPool] = field(default_factory=dict[str, KeyPool])
    scans: ScanPolicy = field(default_factory=ScanPolicy)
    blob_home: BlobHome | None = None

    def noticed(self, header: Header) -> None:
        """Use a header that was just read; a context of a whole store does nothing with it."""

    def listed(self, view: HeaderView, name: str) -> Flow[HeaderView]:  # noqa: ARG002 - of the collection
        """List the declared collections if this one is not in the header, where opening a handle does not do so."""
        yield from ()
        return view

    def empty_unlisted(self, header: Header, guard: Guard) -> Flow[Collection[str] | None]:  # noqa: ARG002 - the whole
        """Return the declared collections without records that a header does not list; None if the guard fails.

        Only where opening a handle does not list them. Their indexes answer queries.
        """
        yield from ()
        return ()


def pause_before(context: Context, attempt: int, most_s: float = inf) -> Flow[None]:
    """Wait before an attempt as the retry policy says, at most ``most_s`` seconds."""
    seconds = min(context.retry.pause(attempt, context.random()), most_s)
    if seconds > 0:
        yield from sleep(seconds)


def header_view(context: Context) -> Flow[HeaderView]:
    """Return the cached header; read it first if there is none."""
    return context.view or (yield from reload_header(context))


def live_collection(context: Context, schema: ModelSchema) -> Flow[tuple[HeaderView, LiveCollection]]:
    """Return the header, and one collection under it. Raises SchemaMismatchError."""
    view = context.view or (yield from reload_header(context))
    live = view.live[schema.collection]
    if live.refused is not None:
        raise live.refused
    return view, live


def planned(context: Context, schema: ModelSchema, plan: Callable[[LiveCollection], T]) -> Flow[tuple[HeaderView, T]]:
    """Return a plan for a collection, with the header that it was made for.

    ``plan`` is pure; it is called again under the present header if the cached one lists an index that is not ready.
    Raises SchemaMismatchError like ``live_collection``, and the errors of ``plan``.
    """
    view, live = yield from live_collection(context, schema)
    try:
        return view, plan(live)
    except (IndexNotReadyError, SchemaMismatchError):
        view = yield from reload_header(context)  # another process may have built it meanwhile
        return view, plan(view.live[schema.collection])


def writable_collection(context: Context, schema: ModelSchema) -> Flow[tuple[HeaderView, LiveCollection]]:
    """Return the same for a write; called for every commit, because another process may have begun a build.

    Raises SchemaMismatchError if this process must not write to the collection.
    """
    view = yield from header_view(context)
    live = view.live[schema.collection]
    if live.refused or live.read_only:
        view = yield from reload_header(context)
        view = yield from context.listed(view, schema.collection)
        live = view.live[schema.collection]
    obstacle = live.refused or live.read_only
    if obstacle is not None:
        raise obstacle
    return view, live


def reload_header(context: Context) -> Flow[HeaderView]:
    """Read the header and cache it; see ``read_header``."""
    context.view = yield from read_header(context)
    return context.view


def read_header(context: Context) -> Flow[HeaderView]:
    """Read the header, and the fences of the indexes under construction in the same snapshot.

    It is not cached, so a flow may read the header of an older snapshot. If nothing has changed, the answer is the
    cached view: an index build reads the header for each of its steps, and combines it with the declarations once.

    Cost: one read, a second one while an index is being built.
    """
    while True:
        row = yield from read_row(HEADER_KEY)
        header, versionstamp = (Header({}), None) if row is None else (_decoded(context.codec, row), row.versionstamp)
        wanted = list(_building(header, context.schemas))
        fences: dict[tuple[str, str, int], bytes] = {}
        if wanted:
            ranges = [ReadRange(fence_key(*name)) for name in wanted]
            found = yield from read_all(context.limits, ranges, Guard(HEADER_KEY, versionstamp))
            if found is None:
                continue
            fences = {name: fence[0].versionstamp for name, fence in zip(wanted, found, strict=True) if fence}
        known = context.view
        if known is not None and known.versionstamp == versionstamp and known.fences == fences:
            return known  # compiled for the same header and the same builds
        context.noticed(header)
        yield from ask_for_keys(context.schemas.values(), header)
        guard = Guard(HEADER_KEY, versionstamp)
        empty = yield from context.empty_unlisted(header, guard)
        if empty is None:
            continue
        live = {
            name: join(one, header, fences)
            if wanted and name in header.collections
            else rejoin(one, header, empty=name in empty)
            for name, one in context.schemas.items()
        }
        for one in live.values():
            if one.schema.blobs:
                one.compiled.blob_home = context.blob_home
        return HeaderView(versionstamp, header, live, guard, fences)


def ask_for_keys(schemas: Iterable[ModelSchema], header: Header) -> Flow[None]:
    """Ask for the keys that encrypted fields of the declared collections have, or begin with, and are not known yet."""
    for schema in schemas:
        sealer = schema.sealer
        if sealer is None:
            continue
        stored = header.collections.get(schema.collection)
        section = None if stored is None else stored.encryption
        if section is not None:
            sealer.last, sealer.checks = section.current, section.keys
        first = [sealer.keys.first] if schema.encrypted and section is None else []
        yield from ask_for_ids(schema, [*first, *blind_keys(schema), *(() if section is None else section.keys)])


def ask_for_ids(schema: ModelSchema, ids: Iterable[int]) -> Flow[None]:
    """Ask the source of the keys of a database for some of them, unless they are known."""
    keys = None if schema.sealer is None else schema.sealer.keys
    wanted = () if keys is None else keys.unknown(ids)
    if keys is not None and wanted:
        yield from call_outside(partial(keys.ask, wanted))


def ask_for_keys_of(schema: ModelSchema, document: Mapping[str, Any]) -> Flow[None]:
    """Ask for the keys of a document, such as one of a dump, which may have others than the header lists."""
    yield from ask_for_ids(schema, sealing_ids(document))


def _decoded(codec: ValueCodec, row: Row) -> Header:
    """Return the header in a row. The last headers are cached by their bytes, for all stores."""
    stored = type(codec), row.encoding, row.value
    known = _headers.get(stored)
    if known is None:
        value = codec.decode(row.value, row.encoding, HEADER_KEY)
        known = Header.from_value(value, decode_key(HEADER_KEY))
        for oldest in list(_headers)[: 1 - REMEMBERED_HEADERS]:
            _headers.pop(oldest, None)
        _headers[stored] = known
    return known


def _building(header: Header, schemas: Iterable[str]) -> Iterable[tuple[str, str, int]]:
    for name in schemas:
        collection = header.collections.get(name)
        for index in collection.maintained if collection else ():
            if index.state is not IndexState.READABLE:
                yield name, index.name, index.generation
