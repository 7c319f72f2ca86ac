"""Counters of operations in memory, and the form in which ``db.metrics()`` returns them.

Rules of this module: counters are kept per method, collection and index, never per key, so their number is bounded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.runtime.observing.operation import FinishedOperation


@dataclass(frozen=True, slots=True)
class VerbMetrics:
    """The operations of one method on one collection.

    Attributes:
        collection: the collection; None for keys, queues, locks, transactions and whole stores.
        verb: the name of the method, as in ``FinishedOperation.verb``.
        count: the number of operations, including failed ones.
        failed: the number of operations that ended with an exception.
        seconds: their durations together.
        longest: the longest duration, in seconds.
    """

    collection: str | None
    verb: str
    count: int
    failed: int
    seconds: float
    longest: float


@dataclass(frozen=True, slots=True)
class CollectionMetrics:
    """Reads and commits of the operations on one collection.

    Attributes:
        collection: the collection; None for keys, queues, locks, transactions and whole stores.
        reads: the number of requests that read.
        rows: the number of rows that they returned.
        commits: the number of applied commits.
        conflicts: the number of refused commits.
        retries: the number of attempts after first ones.
        waited: seconds spent on waiting for others.
    """

    collection: str | None
    reads: int
    rows: int
    commits: int
    conflicts: int
    retries: int
    waited: float


@dataclass(frozen=True, slots=True)
class IndexMetrics:
    """How often one index was used.

    Attributes:
        collection: the collection.
        index: the name of the index.
        uses: the number of operations that read it to find records; 0 for a declared index that none has read.
    """

    collection: str
    index: str
    uses: int


@dataclass(frozen=True, slots=True)
class Metrics:
    """The result of ``db.metrics()``.

    Attributes:
        since: when counting began, in seconds since the epoch.
        verbs: the operations by collection and method, in this order.
        collections: reads, commits and conflicts by collection.
        indexes: the declared indexes, and others that were read, by collection and name.
    """

    since: float
    verbs: tuple[VerbMetrics, ...]
    collections: tuple[CollectionMetrics, ...]
    indexes: tuple[IndexMetrics, ...]

    def __str__(self) -> str:
        operations, failed = sum(one.count for one in self.verbs), sum(one.failed for one in self.verbs)
        reads, commits = sum(one.reads for one in self.collections), sum(one.commits for one in self.collections)
        conflicts = sum(one.conflicts for one in self.collections)
        used = sum(one.uses > 0 for one in self.indexes)
        return (
            f"{operations} operations, {failed} failed; {reads} reads, {commits} commits, {conflicts} conflicts; "
            f"{used} of {len(self.indexes)} indexes used"
        )


class OperationCounters:
    """An observer that counts operations in memory, for ``db.metrics()``.

    Counting begins when the object is made. One object may observe several databases, and then counts for all of them.

    Examples:
        >>> from kvmodels import Database, Indexed, KvModel, PrimaryKey
        >>> class Ship(KvModel, collection="ships"):
        ...     id: PrimaryKey[int]
        ...     port: Indexed[str]
        ...     flag: Indexed[str]
        >>> db = Database("memory://", models=[Ship], observer=OperationCounters())
        >>> _ = db[Ship].create(id=1, port="Oslo", flag="NO")
        >>> db[Ship].filter(port="Oslo").count()
        1
        >>> [(one.index, one.uses) for one in db.metrics().indexes]
        [('flag', 0), ('port', 1)]
    """

    __slots__ = ("_collections", "_indexes", "_lock", "_since", "_verbs")

    def __init__(self) -> None:
        # Reentrant: the garbage collector may end an abandoned iteration, which is then reported, inside of the lock.
        self._lock = threading.RLock()
        self._since = time.time()
        self._verbs: dict[tuple[str | None, str], VerbMetrics] = {}
        self._collections: dict[str | None, CollectionMetrics] = {}
        self._indexes: dict[str, int] = {}

    def __call__(self, operation: FinishedOperation, /) -> None:
        """Count an operation.

        Args:
            operation: the finished operation.
        """
        collection, verb, duration = operation.collection, operation.verb, operation.duration
        with self._lock:
            old = self._verbs.get((collection, verb)) or VerbMetrics(collection, verb, 0, 0, 0.0, 0.0)
            self._verbs[collection, verb] = VerbMetrics(
                collection,
                verb,
                old.count + 1,
                old.failed + (operation.error is not None),
                old.seconds + duration,
                max(old.longest, duration),
            )
            so_far = self._collections.get(collection) or CollectionMetrics(collection, 0, 0, 0, 0, 0, 0.0)
            self._collections[collection] = CollectionMetrics(
                collection,
                so_far.reads + operation.reads,
                so_far.rows + operation.rows,
                so_far.commits + operation.commits,
                so_far.conflicts + operation.conflicts,
                so_far.retries + len(operation.retries),
                so_far.waited + operation.waited,
            )
            for index in operation.indexes:
                self._indexes[index] = self._indexes.get(index, 0) + 1

    def metrics(self, declared: Iterable[tuple[str, str]] = ()) -> Metrics:
        """Return the counters. ``db.metrics()`` does it with all indexes of its models.

        Args:
            declared: collection and name of indexes to list even if nothing has read them.

        Returns:
            The present values; they do not change with later operations. Cost: no read of the store.
        """
        with self._lock:
            names = {f"{collection}.{index}": (collection, index) for collection, index in declared}
            uses = dict.fromkeys(names, 0) | self._indexes
            verbs = sorted(self._verbs.values(), key=lambda one: (one.collection or "", one.verb))
            collections = sorted(self._collections.values(), key=lambda one: one.collection or "")
        indexes: list[IndexMetrics] = []
        for name in sorted(uses):
            collection, index = names.get(name) or (name.rpartition(".")[0], name.rpartition(".")[2])
            indexes.append(IndexMetrics(collection, index, uses[name]))
        return Metrics(self._since, tuple(verbs), tuple(collections), tuple(indexes))


show_public_path(Metrics, OperationCounters)
