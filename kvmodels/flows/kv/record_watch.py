"""Watches of the records of a model: the present objects first, then each record that has changed or was removed.

Rules of this module: positions, batches and waiting are those of ``kvmodels.flows.kv.watch``. Objects are made of the
rows that the watch has read, with the header of that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kvmodels._support.naming import show_public_path
from kvmodels.catalog.collection import Loader
from kvmodels.catalog.keyspace import HEADER_KEY, TENANT_ROWS, tenant_prefix
from kvmodels.core.keys import decode_key, encode_key, key_range, key_successor, skip_parts
from kvmodels.core.lineage import TENANT_PARTS
from kvmodels.core.operations import Change, ReadRange, Row, after_prefix, format_versionstamp
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import Flow, read_changes
from kvmodels.flows.hydration.loader import loader_of
from kvmodels.flows.hydration.rows import row_of_class, shown_key
from kvmodels.flows.kv.watch import BATCH, RangeWatch, Watch, position_of, timeout_of
from kvmodels.limits import Limits
from kvmodels.schema.definition.definition import ModelSchema

M = TypeVar("M")

OUTER_PARTS: Final = 3
"""The number of parts before those of a tenant in each of its stored keys; the last of them is its name."""


class ChangedRecord(NamedTuple, Generic[M]):
    """A record that a watch delivers, in its latest version, or its removal.

    Attributes:
        key: the primary key, a tuple if it is composite.
        record: the object; None if the record was removed or has expired.
        versionstamp: the version of the record; None if it was removed.
    """

    key: Any
    record: M | None
    versionstamp: str | None


class RecordWatch(RangeWatch[ChangedRecord[Any]]):
    """Delivers the records of a model, unless it resumes after a commit, and then the records that change.

    ``since`` and ``timeout`` are the arguments of ``watch``. Raises InvalidArgumentError if one is invalid.
    """

    def __init__(
        self,
        context: Context,
        schema: ModelSchema,
        monotonic: Callable[[], float],
        *,
        since: str | None,
        timeout: float | None,
    ) -> None:
        ends = key_range(prefix=(schema.collection,), start=None, end=None)
        super().__init__(ends, position_of(since), lambda limits: limits, (timeout_of(timeout), monotonic))
        self._context = context
        self._schema = schema

    def _listed(self, rows: Sequence[Row]) -> Flow[list[ChangedRecord[Any]]]:
        return (yield from present_records(self._context, self._schema, rows))

    def _changed(self, changes: Sequence[tuple[bytes, Row | None]]) -> Flow[list[ChangedRecord[Any]]]:
        return (yield from changed_records(self._context, self._schema, changes))


def present_records(context: Context, schema: ModelSchema, rows: Sequence[Row]) -> Flow[list[ChangedRecord[Any]]]:
    """Return the records in the rows of a collection; records of other classes are left out."""
    load = yield from _loader(context, schema)
    return [_of(context, schema, row, load) for row in rows if row_of_class(context, schema, row) is not None]


def changed_records(
    context: Context, schema: ModelSchema, changes: Sequence[tuple[bytes, Row | None]]
) -> Flow[list[ChangedRecord[Any]]]:
    """Return the records of changed keys of a collection, and the removals; reads nothing if there are only removals.

    A record of another class may have been one of this class before, so it is reported as removed.
    """
    load = (yield from _loader(context, schema)) if any(row is not None for _, row in changes) else None
    items: list[ChangedRecord[Any]] = []
    for key, row in changes:
        own = row_of_class(context, schema, row)
        if own is None or load is None:
            items.append(removed_record(context, schema, key))
        else:
            items.append(_of(context, schema, own, load))
    return items


def removed_record(context: Context, schema: ModelSchema, key: bytes) -> ChangedRecord[Any]:
    """Return the removal of a record."""
    return ChangedRecord(shown_key(context.layouts[schema.collection].unpack_key(key)), None, None)


def _of(context: Context, schema: ModelSchema, row: Row, load: Loader) -> ChangedRecord[Any]:
    return removed_record(context, schema, row.key)._replace(
        record=load(row), versionstamp=format_versionstamp(row.versionstamp)
    )


def _loader(context: Context, schema: ModelSchema) -> Flow[Loader]:
    _, live = yield from live_collection(context, schema)
    return loader_of(context, live, checks=True)


class TenantRows(NamedTuple):
    """Rows of a collection of one tenant, with keys as the tenant sees them.

    Attributes:
        tenant: the name of the tenant.
        changes: keys with their rows; None for a removed one.
        is_present: whether these are rows of the present state, and not changes.
    """

    tenant: str
    changes: list[tuple[bytes, Row | None]]
    is_present: bool


def records_of(context: Context, schema: ModelSchema, rows: TenantRows) -> Flow[list[ChangedRecord[Any]]]:
    """Return the records in the rows of a tenant; a flow in the context of the tenant."""
    if rows.is_present:
        return (yield from present_records(context, schema, [row for _, row in rows.changes if row is not None]))
    return (yield from changed_records(context, schema, rows.changes))


def removed_records(context: Context, schema: ModelSchema, rows: TenantRows) -> list[ChangedRecord[Any]]:
    """Return the removals of the records of a tenant that is gone; none of records that were not delivered."""
    return [] if rows.is_present else [removed_record(context, schema, key) for key, _ in rows.changes]


class TenantChanges(NamedTuple):
    """Changes of a collection of one tenant, with keys as the tenant sees them.

    Attributes:
        tenant: the name of the tenant.
        changes: the last change of each key.
        of_catalogue: whether the catalogue of the tenant has changed too, as at its removal.
    """

    tenant: str
    changes: list[Change]
    of_catalogue: bool


def after_position(changes: Sequence[Change], position: str) -> list[tuple[bytes, Row | None]]:
    """Return the keys, with their rows, that have changed after a versionstamp."""
    after = bytes.fromhex(position)
    return [(change.key, change.row) for change in changes if change.versionstamp > after]


class TenantsWatch(RangeWatch[TenantRows]):
    """Delivers the rows of a collection in all tenants, from one walk of the log; the caller makes records of them.

    ``back`` takes back the last delivery, so that its changes are delivered again.
    """

    def __init__(
        self, schema: ModelSchema, monotonic: Callable[[], float], *, since: str | None, timeout: float | None
    ) -> None:
        ends = TENANT_PARTS, after_prefix(TENANT_PARTS)
        super().__init__(ends, position_of(since), lambda limits: limits, (timeout_of(timeout), monotonic))
        self._collection = encode_key((schema.collection,))
        self._tenants: list[str] = []
        self._last = TENANT_ROWS
        self._before = self._position()

    def back(self) -> None:
        """Take back the last delivery."""
        self._seen, self._listed_to, self._last, tenants = self._before
        self._tenants = list(tenants)

    def _position(self) -> tuple[bytes, bytes | None, bytes, tuple[str, ...]]:
        return self._seen, self._listed_to, self._last, tuple(self._tenants)

    def _look(self, limits: Limits) -> Flow[list[TenantRows] | None]:
        self._before = self._position()
        lists = self._listed_to is not None
        found = yield from super()._look(limits)
        return found if found or lists else None

    def _list(self, start: bytes, batch: int) -> Flow[list[TenantRows]]:
        """Return the rows of as many tenants as fill a batch; ``start`` is a place in the first one, or before it."""
        yield from self._begin_listing()
        found: list[TenantRows] = []
        left = batch
        while left > 0:
            if not self._tenants:
                rows = yield from self._durable(ReadRange(key_successor(self._last), after_prefix(TENANT_ROWS), batch))
                if not rows:
                    self._listed_to = None
                    break
                self._tenants = [str(decode_key(row.key)[2]) for row in rows]
                self._last = rows[-1].key
            name = self._tenants[0]
            low = tenant_prefix(name) + self._collection
            rows = yield from self._durable(ReadRange(max(start, key_successor(low)), after_prefix(low), left))
            found += yield from self._listed(rows)
            start = self._start
            if len(rows) == left:
                self._listed_to = key_successor(rows[-1].key)
                break
            left -= len(rows)
            self._tenants.pop(0)
            self._listed_to = self._start
        return found

    def _listed(self, rows: Sequence[Row]) -> Flow[list[TenantRows]]:
        yield from ()
        return self._by_tenant([(row.key, row) for row in rows], is_present=True)

    def _changed(self, changes: Sequence[tuple[bytes, Row | None]]) -> Flow[list[TenantRows]]:
        yield from ()
        return self._by_tenant(changes, is_present=False)

    def _by_tenant(self, rows: Sequence[tuple[bytes, Row | None]], *, is_present: bool) -> list[TenantRows]:
        found: dict[str, list[tuple[bytes, Row | None]]] = {}
        for key, row in rows:
            place = place_of(key, self._collection)
            if place is not None:
                name, own = place
                found.setdefault(name, []).append((own, None if row is None else row._replace(key=own)))
        return [TenantRows(name, own, is_present) for name, own in found.items()]


class TenantChangesWatch(Watch[TenantChanges]):
    """Delivers the changes of a collection in all tenants after a commit, from one walk of the log.

    Raises InvalidArgumentError if ``since`` is no versionstamp.
    """

    def __init__(self, schema: ModelSchema, monotonic: Callable[[], float], since: str) -> None:
        super().__init__(lambda limits: limits, (timeout_of(None), monotonic))
        self._collection = encode_key((schema.collection,))
        self._seen = position_of(since) or b""

    @property
    def versionstamp(self) -> str:
        """The commit up to which every change was delivered."""
        return format_versionstamp(self._seen)

    def _look(self, limits: Limits) -> Flow[list[TenantChanges] | None]:
        wanted = ReadRange(TENANT_PARTS, after_prefix(TENANT_PARTS), min(BATCH, limits.max_read_entries))
        found = yield from read_changes(wanted, self._seen)
        self._seen = found.through
        by_tenant: dict[str, list[Change]] = {}
        catalogues: set[str] = set()
        for key, versionstamp, row in found.changes:
            place = place_of(key, self._collection)
            if place is not None:
                name, own = place
                change = Change(own, versionstamp, None if row is None else row._replace(key=own))
                by_tenant.setdefault(name, []).append(change)
            elif (catalogue := place_of(key, HEADER_KEY)) is not None:
                catalogues.add(catalogue[0])
                by_tenant.setdefault(catalogue[0], [])
        if not by_tenant:
            return None
        return [TenantChanges(name, changes, name in catalogues) for name, changes in by_tenant.items()]


def place_of(key: bytes, collection: bytes) -> tuple[str, bytes] | None:
    """Return the name of the tenant of a stored key, and the key as the tenant sees it; None outside a collection."""
    at = skip_parts(key, OUTER_PARTS)
    if not key.startswith(collection, at):
        return None
    return str(decode_key(key[len(TENANT_PARTS) : at])[0]), key[at:]


show_public_path(ChangedRecord)
