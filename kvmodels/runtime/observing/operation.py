"""A finished operation, as observers see it.

Rules of this module: values only. No key and no value of a record is part of an operation; conditions of its query are
reached only through ``plan()``.
"""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple, Protocol

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import INTERNAL, dataclass
from kvmodels._support.visible import visible
from kvmodels.flows.context import Context
from kvmodels.flows.reading import queries
from kvmodels.query.plans import QueryPlan
from kvmodels.query.query import Query


class ObservedQuery(NamedTuple):
    """The query of an operation, and the context in which it is planned."""

    context: Context
    query: Query


@dataclass(frozen=True, slots=True)
class Retry:
    """A further attempt of an operation, after a conflict.

    Attributes:
        started: seconds from the start of the operation to the start of the attempt.
        duration: seconds that the attempt took.
    """

    started: float
    duration: float


@dataclass(frozen=True, slots=True)
class FinishedOperation:
    """One finished call of a method that used the store; observers receive it.

    Attributes:
        verb: the name of the method, such as ``"get"``. ``create`` reports its ``"insert"``, an iteration
            ``"iterate"``, and a transaction ``"transaction"``.
        collection: the collection of the repository or query; None for keys, queues, locks, and whole stores.
        indexes: the indexes that were read to find records, as ``"users.email"``, without repetitions.
        reads: the number of requests that read.
        rows: the number of rows that they returned: records, index entries and counters.
        commits: the number of commits that were applied. A method in a transaction has none.
        conflicts: the number of commits that were refused because of a failed check. It includes first attempts that
            only assumed that a record is absent, or that it is present; but not the one that ended an insert with an
            IntegrityError.
        retries: the attempts after the first one.
        waited: seconds of ``duration`` in which the operation waited for others: before a retry, for its turn on
            contended keys, or, in a watch or a lock, for a change.
        started: when it started, in seconds since the epoch by the system clock.
        duration: how long it took, in seconds. Of an iteration, only the time of its reads.
        error: the class name of the exception that ended it; None after a success.
        code: the code of that exception if it comes from the library, such as ``"KV302"``.
        batch_size: the number of objects that ``bulk_create`` was given; None for other methods.
        in_transaction: whether it was part of a transaction.
        tenant: the name of the tenant whose database was used; None for the store itself.
    """

    verb: str
    collection: str | None = None
    indexes: tuple[str, ...] = ()
    reads: int = 0
    rows: int = 0
    commits: int = 0
    conflicts: int = 0
    retries: tuple[Retry, ...] = ()
    waited: float = 0.0
    started: float = 0.0
    duration: float = 0.0
    error: str | None = None
    code: str | None = None
    batch_size: int | None = None
    in_transaction: bool = False
    tenant: str | None = None
    _query: ObservedQuery | None = field(default=None, repr=False, compare=False, metadata=INTERNAL)

    @property
    def attempts(self) -> int:
        """The number of attempts, 1 or more."""
        return 1 + len(self.retries)

    def plan(self) -> QueryPlan | None:
        """Return the plan of the query as ``explain()`` would now, without reading anything.

        Returns:
            The plan; None if the operation was not a query, or if planning it would need a read. It contains the
            operands of the conditions. Cost: that of planning.
        """
        if self._query is None:
            return None
        planning = queries.explain(self._query.context, self._query.query, analyze=False)
        try:
            next(planning)
        except StopIteration as planned:
            plan: QueryPlan = planned.value
            return plan
        planning.close()
        return None

    def __str__(self) -> str:
        shown = [f"{self.duration * 1000:.3f} ms"]
        if self.reads:
            through = f" through {', '.join(self.indexes)}" if self.indexes else ""
            shown.append(f"{_counted(self.reads, 'read')} of {_counted(self.rows, 'row')}{through}")
        for number, name in ((self.commits, "commit"), (self.conflicts, "conflict")):
            if number:
                shown.append(_counted(number, name))
        if self.retries:
            shown.append(f"{self.attempts} attempts")
        if self.waited:
            shown.append(f"waited {self.waited * 1000:.3f} ms")
        if self.error is not None:
            shown.append(f"failed with {self.error}" + (f" [{self.code}]" if self.code else ""))
        name = self.verb if self.collection is None else f"{self.verb} {self.collection}"
        name += f" of tenant {self.tenant}" if self.tenant is not None else ""
        return visible(f"{name}: {', '.join(shown)}", kept="")  # one line of a log


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


class Observer(Protocol):
    """A function, or an object like one, that receives every finished operation of a store.

    It is called in the thread or task of the operation, before the method returns, and possibly in several threads at
    once. So it must be quick, and must not use the store that it observes. Its exceptions do not reach the caller of
    the method: the first one is logged by the logger ``kvmodels.observer``.
    """

    def __call__(self, operation: FinishedOperation, /) -> object:
        """Receive an operation.

        Args:
            operation: the finished operation.
        """
        ...


show_public_path(FinishedOperation, Observer)
