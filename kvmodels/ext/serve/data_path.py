"""The requests of the data path as flows, whose answers are messages of the protocol.

Rules of this module: pure. A write of a client without the right to write models checks the catalogue in the same
commit, so that a collection that appears meanwhile is protected too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.api.reserved_parts import ReservedParts
from kvmodels.catalog.catalogue import Header
from kvmodels.catalog.keyspace import HEADER_KEY
from kvmodels.core.keys import decode_key, key_parts
from kvmodels.core.operations import Arithmetic, AtomicWrite, Check, Committed, Conflict, Row
from kvmodels.engines.connect.wire.messages import (
    AtomicWriteMessage,
    AtomicWriteOutput,
    KvEntry,
    ReadRangeOutput,
    ReadStatus,
    SnapshotRead,
    SnapshotReadOutput,
    WriteStatus,
)
from kvmodels.errors import InvalidValueError, KvModelsError
from kvmodels.ext.serve import refusals
from kvmodels.ext.serve.refusals import RequestRefusedError
from kvmodels.ext.serve.requests import KNOWN_ENCODINGS, RequestedWrite, WriteReader, requested_ranges
from kvmodels.ext.serve.sums import NOT_U64_STORED
from kvmodels.flows.effects import Flow, commit, now, read, read_row
from kvmodels.flows.kv.store_format import LIBRARY_PART, StoreFormat
from kvmodels.limits import Limits

ATTEMPTS: Final = 5
"""The maximum number of commits of one write while the catalogue keeps changing."""


@dataclass(frozen=True, slots=True)
class _Catalogue:
    """The first parts of keys that belong to models, and the versionstamp of the header that lists them."""

    versionstamp: bytes | None
    reserved: ReservedParts


class DataPath:
    """The flows of one store.

    Args:
        form: the format of the store.
        limits: the limits of Deno, within those of the engine.
        new_id: returns the id of a message of the queue.
    """

    __slots__ = ("_catalogue", "_form", "_new_id", "limits")

    def __init__(self, form: StoreFormat, limits: Limits, new_id: Callable[[], str]) -> None:
        self._form = form
        self._new_id = new_id
        self._catalogue: _Catalogue | None = None
        self.limits = limits

    def snapshot_read(self, message: SnapshotRead) -> Flow[SnapshotReadOutput]:
        """Read the ranges in one snapshot. Raises RequestRefusedError."""
        wanted = requested_ranges(message, self.limits)
        found = yield from read(wanted)
        outputs = [ReadRangeOutput(tuple(map(entry_of, rows))) for rows in found.ranges]
        return SnapshotReadOutput(tuple(outputs), read_is_strongly_consistent=True, status=ReadStatus.SUCCESS)

    def atomic_write(self, message: AtomicWriteMessage, *, model_writes: bool) -> Flow[AtomicWriteOutput]:
        """Commit the write. Raises RequestRefusedError."""
        now_ms = yield from now()
        write = WriteReader(self._form, self.limits, now_ms, self._new_id).read(message)
        if model_writes or not write.mutations:
            return _output((yield from _commit(AtomicWrite(write.checks, write.mutations))))
        for _ in range(ATTEMPTS):
            outcome = yield from self._commit_beside_models(write)
            if outcome is not None:
                return _output(outcome)
        raise RequestRefusedError(503, refusals.UNAVAILABLE)

    def _commit_beside_models(self, write: RequestedWrite) -> Flow[Committed | Conflict | None]:
        """Commit a write that changes no key of a model; None if the catalogue has changed meanwhile."""
        catalogue = self._catalogue
        if catalogue is None:
            catalogue = self._catalogue = yield from self._read_catalogue()
        taken = catalogue.reserved
        if any(isinstance(part, str) and (part == LIBRARY_PART or part in taken) for part in write.written):
            raise RequestRefusedError(400, refusals.RESERVED)
        guard = Check(HEADER_KEY, catalogue.versionstamp, physical=True)
        outcome = yield from _commit(AtomicWrite((*write.checks, guard), write.mutations))
        if isinstance(outcome, Conflict) and len(write.checks) in outcome.failed_checks:
            self._catalogue = None
            return None
        return outcome

    def _read_catalogue(self) -> Flow[_Catalogue]:
        row = yield from read_row(HEADER_KEY)
        reserved = ReservedParts({})
        if row is None:
            return _Catalogue(None, reserved)
        try:
            value = self._form.codec.decode(row.value, row.encoding, HEADER_KEY)
            prefixes = Header.from_value(value, decode_key(HEADER_KEY)).prefixes()
        except KvModelsError:
            raise RequestRefusedError(400, refusals.UNREADABLE_CATALOGUE) from None
        for part, owner in prefixes.items():
            reserved.add(part, owner)
        return _Catalogue(row.versionstamp, reserved)


def entry_of(row: Row) -> KvEntry:
    """Return a row as an entry of an answer. Raises RequestRefusedError if Deno knows no such encoding."""
    if row.encoding not in KNOWN_ENCODINGS:
        raise RequestRefusedError(400, refusals.OTHER_ENCODING)
    return KvEntry(row.key, row.value, row.encoding, row.versionstamp)


def _commit(write: AtomicWrite) -> Flow[Committed | Conflict]:
    """Commit; a stored value that is not a 64-bit integer becomes a refusal with Deno's text."""
    try:
        return (yield from commit(write))
    except InvalidValueError as error:
        kinds = [one.kind for one in write.mutations if isinstance(one, Arithmetic) and key_parts(one.key) == error.key]
        raise RequestRefusedError(400, NOT_U64_STORED.format(kinds[0] if kinds else "sum")) from None


def _output(outcome: Committed | Conflict) -> AtomicWriteOutput:
    if isinstance(outcome, Committed):
        return AtomicWriteOutput(WriteStatus.SUCCESS, outcome.versionstamp)
    return AtomicWriteOutput(WriteStatus.CHECK_FAILURE, failed_checks=outcome.failed_checks)
