"""The shared state of all calls on a store: its keys, its record and its clock.

Rules of this module: every transaction reads the record and the marker of the store, so that what it returns is
computed with the record of the same state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from kvmodels.core.operations import to_versionstamp
from kvmodels.engines.etcd.errors import restored, went_back
from kvmodels.engines.etcd.layout import FORMAT, Keys, StoreRecord, decode_clock, decode_record, format_of
from kvmodels.engines.etcd.protocol.parts import Part, read_range
from kvmodels.engines.etcd.protocol.rpc_pb2 import KeyValue, ResponseHeader, TxnResponse
from kvmodels.engines.etcd.protocol.session import EtcdAttempts, EtcdSession
from kvmodels.engines.etcd.settings import EtcdOptions
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.shared.evaluation import from_versionstamp
from kvmodels.engines.shared.server_errors import GONE, LOST_ANSWER
from kvmodels.errors import ForeignFileError, UnsupportedError

NO_REVISION: Final = -1
"""A revision that no key has."""


class KnownRecord(NamedTuple):
    """The record of the store and the revision that wrote it."""

    record: StoreRecord
    revision: int


class Pin(NamedTuple):
    """One state of the store.

    Attributes:
        base: of its versionstamps.
        revision: of the cluster.
        version: the number in the versionstamp of the last commit in this state.
        now_ms: the time that decides which of its rows are expired.
        marker_ms: the clock of the store, which ``now_ms`` is never behind.
    """

    base: int
    revision: int
    version: int
    now_ms: int
    marker_ms: int = 0

    @property
    def versionstamp(self) -> bytes:
        """The versionstamp of the last commit in this state."""
        return to_versionstamp(self.version)

    def revision_of(self, versionstamp: bytes) -> int:
        """Return the revision of a commit with this versionstamp; ``NO_REVISION`` if there can be none."""
        revision = from_versionstamp(versionstamp) - self.base
        return revision if 0 < revision < 1 << 63 and versionstamp[8:] == b"\0\0" else NO_REVISION


class EtcdStore:
    """A store in a cluster, as the flows see it.

    Attributes:
        keys: where things lie.
        system_range: the operation that reads the record and the marker, the first of every transaction.
        session: the endpoints of the cluster.
        options: of the engine.
        clock: decides on deadlines; never behind the marker that this process has seen.
        max_ops: the most operations that one list of a transaction may have.
        first_key: was the first one that the last snapshot has read; the next one reads it while it begins.
        last_version: the number in the versionstamp of the last commit that this process has seen.
        committed: is called with the number and the earliest deadline of each commit of this process.
    """

    def __init__(
        self,
        keys: Keys,
        session: EtcdSession,
        options: EtcdOptions,
        clock: EngineClock,
    ) -> None:
        self.keys = keys
        self.system_range: Part = read_range(keys.store, keys.rows)
        self.session = session
        self.options = options
        self.clock = clock
        self.max_ops = options.max_txn_ops
        self.committed: Callable[[int, int | None], object] = lambda _version, _earliest: None
        self.first_key: bytes | None = None
        self.known: KnownRecord | None = None
        self.last_version = 0
        self._cluster_id = 0

    @property
    def url(self) -> str:
        """The URL for messages."""
        return self.session.url

    def attempts(self) -> EtcdAttempts:
        """Return the deadline of a new call."""
        return EtcdAttempts(self.options.busy_timeout, self.session.endpoints)

    def take(self, answer: TxnResponse) -> Pin:
        """Take over what a transaction that began with ``system_range`` says about the store.

        Raises:
            EngineError: the store was removed.
            ForeignFileError, UnsupportedError: it holds something else, or a later release has made it.
        """
        found = answer.responses[0].response_range.kvs
        known = self.take_record(answer.header, list(found))
        if known is None:
            raise GONE.of(self.url, "removed")
        marker = found[-1]
        if marker.key != self.keys.marker:
            raise GONE.of(self.url, "removed")
        base, marker_ms = known.record.base, decode_clock(marker.value)
        now_ms = self.clock.not_before(marker_ms)
        self.last_version = max(self.last_version, base + marker.mod_revision)
        return Pin(base, answer.header.revision, base + marker.mod_revision, now_ms, marker_ms)

    def take_record(self, header: ResponseHeader, found: list[KeyValue]) -> KnownRecord | None:
        """Take over the record of the store; None if there is none."""
        self._cluster_id = header.cluster_id
        if not found or found[0].key != self.keys.store:
            return None
        stored = found[0]
        known = self.known
        if known is None or known.revision != stored.mod_revision:
            self._require_format(stored.value)
            known = self.known = KnownRecord(decode_record(stored.value), stored.mod_revision)
            self.session.begin_history()
        return known

    @property
    def is_restored(self) -> bool:
        """True if the last answer came from another cluster than that of the record, or from an earlier state."""
        return self.session.went_back or self._is_of_another_cluster

    def require_own_cluster(self) -> None:
        """Refuse writes to a store that was restored into another cluster. Raises EngineError."""
        known = self.known
        if known is not None and self._is_of_another_cluster:
            raise restored(self.url, self._cluster_id, known.record.cluster_id)
        if self.session.went_back:
            raise went_back(self.url)

    def require_answer_of_own_cluster(self, header: ResponseHeader) -> None:
        """Report a commit as unknown that another cluster, or an earlier state, has answered.

        Raises CommitUnknownError.
        """
        self._cluster_id = header.cluster_id
        known = self.known
        if known is not None and header.cluster_id != known.record.cluster_id:
            raise LOST_ANSWER.of(self.url, "the cluster was replaced while the store is open")
        if self.session.went_back:
            raise LOST_ANSWER.of(self.url, "the cluster has lost commits while the store is open")

    @property
    def _is_of_another_cluster(self) -> bool:
        return self.known is not None and self._cluster_id not in (0, self.known.record.cluster_id)

    def _require_format(self, data: bytes) -> None:
        number = format_of(data)
        if number is None:
            raise ForeignFileError(
                "the prefix contains keys of another program", url=self.url, hint="Use another prefix."
            )
        if number > FORMAT:
            raise UnsupportedError(
                "a later release of kvmodels has made this store",
                url=self.url,
                reason=f"format {number}",
                hint="Upgrade kvmodels.",
            )
