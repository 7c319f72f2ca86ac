"""Dump a store with its tenants, and load such a dump into an empty store; copy one tenant.

    {"kvmodels_dump": 3, "codec": "msgpack", "versionstamp": "…"}       the first line
    {"key": ["accounts", 1], "document": {…}}                           the keys of the store itself, catalogue first
    {"tenant": "acme"}                                                  what follows is of this tenant
    {"key": ["users", 1], "document": {…}}                              a key as the tenant sees it, catalogue first
    {"end": {"keys": 4}}                                                the last line; each tenant counts as a key too

A dump without tenants has the format of ``kvmodels.flows.kv.dump``.

Rules of this module: those of ``kvmodels.flows.kv.dump``. Each tenant is dumped and loaded by the same code as a store.
The row of a tenant is in the state ``loading`` until the whole load is done, so every use of it is refused. The last
commit of the load writes the catalogue of the store; then the rows are activated in batches. If that is interrupted,
``create_tenant`` activates the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kvmodels.catalog.catalogue import Header
from kvmodels.catalog.keyspace import (
    ANNOUNCED,
    HEADER_KEY,
    QUEUE,
    TENANT_ROWS,
    tenant_prefix,
    tenant_row_key,
)
from kvmodels.core.keys import decode_key, encode_key, key_successor
from kvmodels.core.lineage import TENANT_PARTS
from kvmodels.core.operations import (
    AtomicWrite,
    Check,
    Committed,
    Conflict,
    Delete,
    ReadRange,
    Row,
    Set,
    after_prefix,
    format_versionstamp,
    point,
)
from kvmodels.errors import CommitUnknownError, TenantError, UnsupportedError
from kvmodels.flows.effects import Flow, commit, read, read_all
from kvmodels.flows.kv import deno_dump
from kvmodels.flows.kv.dump import DAMAGED, Dumping, Loading
from kvmodels.flows.kv.dump_frame import DUMP_FORMAT, DUMP_MARK, STORE_FORMAT, DumpFrame, dump_line
from kvmodels.flows.kv.formats import DumpFormat, Progress, require_dump_options
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.flows.references import ReferenceScan, dangling_dump
from kvmodels.flows.tenants import ACTIVE, LOADED, read_state, require_name
from kvmodels.limits import Limits

ROWS_AT_ONCE: Final = 100


def confined(form: StoreFormat, name: str) -> StoreFormat:
    """Return the format of the keys of a tenant, for the engine of the store."""
    return replace(form, root=form.root + tenant_prefix(name))


class StoreDumping(Dumping):
    """One dump of a store, and of its tenants one after the other."""

    def __init__(self, form: StoreFormat) -> None:
        super().__init__(form)
        self._tenants: list[Row] = []
        self._after: bytes | None = None
        self._part: Dumping | None = None

    def begin(self) -> Flow[list[str]]:
        """Return the first lines: the format, and the catalogue if there is one."""
        root = self._form.root
        found = yield from read([point(self.header_key), self._range_of_tenants(1)])
        if found.ranges[1]:
            self._after = root + TENANT_ROWS
            apart = [root + prefix for prefix in (ANNOUNCED, TENANT_PARTS, TENANT_ROWS)]
            starts = [key_successor(root), *(after_prefix(prefix) for prefix in sorted(apart))]
            self._ranges = list(zip(starts, [*sorted(apart), after_prefix(root)], strict=True))
        mark = {
            DUMP_MARK: DUMP_FORMAT if self._after is None else STORE_FORMAT,
            "codec": self._form.codec.name,
            "versionstamp": format_versionstamp(found.versionstamp),
        }
        return [dump_line(mark), *self.head(found.ranges[0])]

    def rows(self, limits: Limits) -> Flow[Sequence[Row]]:
        """Return the next rows: of the store, then of each tenant its own row with its catalogue, and its keys."""
        found: Sequence[Row] = yield from super().rows(limits)
        while not found:
            if self._part is not None:
                found = yield from self._part.rows(limits)
                if found:
                    break
                self._part = None
            row = yield from self._next_tenant()
            if row is None:
                break
            if read_state(self._form.codec, row) == ACTIVE:
                self._part = Dumping(confined(self._form, _name_of(row)), self._batch)
                found = [row, *(yield from self._header_of(self._part))]
        return found

    def lines(self, rows: Sequence[Row]) -> Iterator[str]:
        """Yield the lines for rows. Raises DecodeError."""
        part = self._part
        if part is None:
            yield from super().lines(rows)
        elif rows[0].key.startswith(self._form.root + TENANT_ROWS):
            self.keys += len(rows)
            yield dump_line({"tenant": _name_of(rows[0])})
            yield from part.head(rows[1:])
        else:
            before = part.keys
            for line in part.lines(rows):
                self.keys += part.keys - before
                before = part.keys
                yield line

    def _header_of(self, part: Dumping) -> Flow[list[Row]]:
        found = yield from read([point(part.header_key)])
        return found.ranges[0]

    def _range_of_tenants(self, limit: int) -> ReadRange:
        prefix = self._form.root + TENANT_ROWS
        start = prefix if self._after is None else key_successor(self._after)
        return ReadRange(start, after_prefix(prefix), limit)

    def _next_tenant(self) -> Flow[Row | None]:
        if not self._tenants and self._after is not None:
            found = yield from read([self._range_of_tenants(ROWS_AT_ONCE)])
            self._tenants = found.ranges[0][::-1]
            self._after = self._tenants[0].key if self._tenants else None
        return self._tenants.pop() if self._tenants else None


def _name_of(row: Row) -> str:
    return str(decode_key(row.key)[-1])


class TenantLoading(Loading):
    """One load of the lines of a tenant, on the engine of the store; the tenant must not exist."""

    def __init__(self, form: StoreFormat, limits: Limits, token: str, name: str) -> None:
        super().__init__(confined(form, name), limits, token)
        self.name = name
        self._store = form
        self._row_key = form.root + tenant_row_key(name)
        self._messages = self._form.root + QUEUE
        self._announced: tuple[bytes, int] = form.codec.encode(True)

    def begin(self, *, restart: bool = False) -> Flow[None]:  # noqa: ARG002 - a tenant begins from nothing
        """Write the row of the tenant, and the token. Raises TenantError if the tenant exists, or is being loaded."""
        store_key = self._store.root + HEADER_KEY
        found = yield from read([point(store_key), point(self._row_key), point(self._header_key)])
        header = found.ranges[0]
        if header:
            Header.from_value(self._store.entry(header[0]).value, decode_key(HEADER_KEY))  # refuses one of a load
        if found.ranges[1] or found.ranges[2]:
            raise TenantError(
                "the store has a tenant of this name",
                tenant=self.name,
                hint="Copy to another name, or remove the tenant first.",
            )
        checks = (
            Check(store_key, header[0].versionstamp if header else None, physical=True),
            Check(self._row_key, None, physical=True),
            Check(self._header_key, None, physical=True),
        )
        outcome = yield from commit(AtomicWrite(checks, (self.row(), self._token_mutation())))
        if isinstance(outcome, Conflict):
            raise self._overtaken()
        self._guard = Check(self._header_key, outcome.versionstamp, physical=True)

    def row(self) -> Set:
        """Return the mutation that writes the row of the tenant in the state of a load."""
        return Set(self._row_key, *self._store.codec.encode({"state": LOADED, "id": self._token}))

    def finish(self) -> Flow[int]:
        """Write the catalogue, and activate the tenant."""
        number = yield from super().finish()
        yield from activate(self._store, self._limits, self._token, [self.name])
        return number

    def abandon(self) -> Flow[None]:
        """Remove the keys of this load, and the row of the tenant."""
        yield from super().abandon()
        found = yield from read([point(self._row_key), point(self._header_key)])
        rows, header = found.ranges
        if (
            rows
            and not header
            and self._store.codec.decode(rows[0].value, rows[0].encoding, self._row_key)
            == {
                "state": LOADED,
                "id": self._token,
            }
        ):
            check = Check(self._row_key, rows[0].versionstamp, physical=True)
            yield from commit(AtomicWrite((check,), (Delete(self._row_key),)))

    def section(self, frame: DumpFrame) -> TenantLoading:
        """Read the lines that follow in a dump of a whole store."""
        self._frame = frame
        self._first_key = frame.keys + 1
        return self

    def sets_of(self, content: Mapping[str, Any]) -> list[Set]:
        """Return the keys that one line of a section sets. Raises ValueError."""
        was_absent = self._header is None
        found = self._sets(content)
        if was_absent and self._header is not None:
            found.append(self._header_set(self._header.to_value()))
        return found

    @property
    def header(self) -> Header | None:
        """The catalogue that was read."""
        return self._header

    def _sets(self, content: Mapping[str, Any]) -> list[Set]:
        found = super()._sets(content)
        for one in [one for one in found if one.key.startswith(self._messages)]:
            found.append(Set(self._announcement(one.key), *self._announced))
            self.written -= 1
        return found

    def _announcement(self, key: bytes) -> bytes:
        return self._store.root + ANNOUNCED + key[len(self._messages) :] + encode_key((self.name,))

    def _removals(self, keys: Sequence[bytes]) -> list[Delete]:
        announced = [self._announcement(key) for key in keys if key.startswith(self._messages)]
        return [*super()._removals(keys), *map(Delete, announced)]


class StoreLoading(Loading):
    """One load of a store with its tenants.

    ``whole``: whether the store may have tenants; a namespace and a tenant have none.
    """

    def __init__(self, form: StoreFormat, limits: Limits, token: str, *, whole: bool) -> None:
        super().__init__(form, limits, token)
        self._frame = DumpFrame((DUMP_FORMAT, STORE_FORMAT), DAMAGED)
        self._whole = whole
        self._part: TenantLoading | None = None
        self._headers: dict[str, Header | None] = {}

    def finish(self) -> Flow[int]:
        """Replace the token with the catalogue of the dump, activate the tenants; return the number of keys."""
        self._frame.end()
        self._note_part()
        for name, header in self._headers.items():
            if header is not None:
                root = confined(self._form, name).root
                found = yield from ReferenceScan(self._form.codec, header, self._limits, root=root).dangling()
                if found:
                    raise dangling_dump(found)
        number = yield from super().finish()
        yield from activate(self._form, self._limits, self._token, [*self._headers])
        return number

    def _sets(self, content: Mapping[str, Any]) -> list[Set]:
        if "tenant" in content and self._frame.first.get(DUMP_MARK) == STORE_FORMAT:
            return self._begin_tenant(content["tenant"])
        if self._part is None:
            return super()._sets(content)
        before = self._part.written
        found = self._part.sets_of(content)
        self.written += self._part.written - before
        return found

    def _begin_tenant(self, name: object) -> list[Set]:
        if not self._whole:
            raise UnsupportedError(
                "a dump of a store with tenants cannot be loaded into a part of a store",
                reason="tenants",
                hint="Load it into a store of its own with db.kv.load, and copy a tenant with copy_tenant.",
            )
        self._note_part()
        given = require_name(name)
        if given in self._headers:
            raise ValueError("a tenant for the second time")
        self._headers[given] = None
        self._part = TenantLoading(self._form, self._limits, self._token, given).section(self._frame)
        return [self._part.row()]

    def _note_part(self) -> None:
        if self._part is not None:
            self._headers[self._part.name] = self._part.header


def activate(form: StoreFormat, limits: Limits, token: str, names: Sequence[str]) -> Flow[None]:
    """Activate the rows of tenants that a load has written; their number does not matter."""
    size = max(1, min(ROWS_AT_ONCE, limits.max_checks, limits.max_mutations))
    loaded = {"state": LOADED, "id": token}
    value = form.codec.encode({"state": ACTIVE, "id": token})
    for at in range(0, len(names), size):
        while True:
            ranges = [point(form.root + tenant_row_key(name)) for name in names[at : at + size]]
            found = yield from read_all(limits, ranges)
            rows = [row for rows in found or () for row in rows]
            rows = [row for row in rows if form.codec.decode(row.value, row.encoding, row.key) == loaded]
            checks = tuple(Check(row.key, row.versionstamp, physical=True) for row in rows)
            write = AtomicWrite(checks, tuple(Set(row.key, *value) for row in rows))
            if not rows or (yield from _is_committed(write)):
                break


def _is_committed(write: AtomicWrite) -> Flow[bool]:
    """Commit; False after a conflict and if the answer is lost, because the rows show what was applied."""
    try:
        return isinstance((yield from commit(write)), Committed)
    except CommitUnknownError:
        return False


def dumping_in(format: DumpFormat, form: StoreFormat, progress: Progress) -> Dumping:
    """Return a new dump in a format. Raises InvalidArgumentError."""
    require_dump_options(format, progress)
    return deno_dump.DenoDumping(form) if format == "deno" else StoreDumping(form)


def loading_in(
    format: DumpFormat, form: StoreFormat, limits: Limits, *, token: str, progress: Progress, whole: bool
) -> Loading:
    """Return a new load of a format. Raises InvalidArgumentError."""
    require_dump_options(format, progress)
    if format == "deno":
        return deno_dump.DenoLoading(form, limits, token)
    return StoreLoading(form, limits, token, whole=whole and not form.root)


def loading_as(name: str | None, form: StoreFormat, limits: Limits, token: str) -> Loading:
    """Return a load of a tenant into a new tenant; None: into the own part of a store. Raises InvalidArgumentError."""
    if name is None:
        return StoreLoading(form, limits, token, whole=False)
    return TenantLoading(form, limits, token, require_name(name))
