"""An engine that loses, delays and repeats what another engine answers, as a network does.

Rules of this module: every fault is one that a real transport can cause; nothing is changed behind the back of the
inner engine. A plan decides, so that a test can direct a schedule or draw one from a seed.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeVar, get_args

from kvmodels.core.operations import (
    AtomicWrite,
    Changes,
    Committed,
    Conflict,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
)
from kvmodels.engines.contract import Capabilities, Engine, Snapshot
from kvmodels.errors import CommitUnknownError, EngineError, InvalidArgumentError, KvModelsError
from kvmodels.limits import Limits

CommitFault = Literal[
    "lose_answer", "lose_request", "repeat", "land_before_next", "land_after_next", "hold", "delay", "refuse"
]
"""The faults of a commit:

- ``lose_answer``: it is applied, and CommitUnknownError raised.
- ``lose_request``: it never arrives, and CommitUnknownError is raised.
- ``repeat``: it arrives twice, and the second outcome is reported.
- ``land_before_next``, ``land_after_next``: CommitUnknownError now; it arrives around the next commit.
- ``hold``: CommitUnknownError now; it arrives when ``deliver_late`` is called.
- ``delay``: ``delay()`` is called first, then it is carried out as usual.
- ``refuse``: EngineError, and it certainly was not applied.
"""

ReadFault = Literal["refuse", "delay"]
"""The faults of a read: EngineError, or ``delay()`` first."""

CommitPlan = Callable[[AtomicWrite], CommitFault | None] | Iterable[CommitFault | None]
ReadPlan = Callable[[Sequence[ReadRange]], ReadFault | None] | Iterable[ReadFault | None]

COMMIT_FAULTS: frozenset[str] = frozenset(get_args(CommitFault))
READ_FAULTS: frozenset[str] = frozenset(get_args(ReadFault))

_REFUSAL_HINT = "The plan of the FaultEngine asked for it; a program may try again."

FaultT = TypeVar("FaultT")


class FaultEngine:
    """An engine around another one, whose answers may be lost, as its trait ``may_lose_answers`` says.

    Args:
        inner: carries out what arrives; closed with this engine.
        plan: for each commit a fault or None: a function of the operation, or names in order, None after the last.
        read_plan: the same for reads and counts outside snapshots.
        delay: called for the fault ``delay``; a test passes what waits for another thread.

    Examples:
        >>> from kvmodels.engines.memory.engine import MemoryEngine
        >>> from kvmodels.core.operations import Set
        >>> engine = FaultEngine(MemoryEngine(), plan=["lose_answer"])
        >>> engine.commit(AtomicWrite((), (Set(b"k", b"v", 3),)))
        Traceback (most recent call last):
        ...
        kvmodels.CommitUnknownError: [KV901] the answer to the commit was lost (...
        >>> len(engine.read([ReadRange(b"k")]).ranges[0])
        1
    """

    def __init__(
        self,
        inner: Engine,
        *,
        plan: CommitPlan = (),
        read_plan: ReadPlan = (),
        delay: Callable[[], None] = lambda: None,
    ) -> None:
        self.inner = inner
        self.injected: Counter[str] = Counter()
        self.capabilities = Capabilities(dataclasses.replace(inner.capabilities.traits, may_lose_answers=True))
        self._commit_fault: Callable[[AtomicWrite], CommitFault | None] = (
            plan if callable(plan) else _in_order(iter(plan))
        )
        self._read_fault: Callable[[Sequence[ReadRange]], ReadFault | None] = (
            read_plan if callable(read_plan) else _in_order(iter(read_plan))
        )
        self._delay = delay
        self._lock = threading.Lock()
        self._before_next: list[AtomicWrite] = []
        self._after_next: list[AtomicWrite] = []
        self._held: list[AtomicWrite] = []

    @property
    def limits(self) -> Limits:
        """The limits of the inner engine."""
        return self.inner.limits

    @property
    def url(self) -> str:
        """Return the URL that the inner engine opened, for messages."""
        return self.inner.url

    def now_ms(self) -> int:
        """The clock of the inner engine."""
        return self.inner.now_ms()

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        """Read from the inner engine, unless the plan says otherwise."""
        self._before_read(ranges)
        return self.inner.read(ranges, guard, include_expired=include_expired, follow=follow)

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        """Count in the inner engine, unless the plan for reads says otherwise."""
        self._before_read(ranges)
        return self.inner.count(ranges, guard)

    def snapshot(self) -> Snapshot:
        """A snapshot of the inner engine, without faults."""
        return self.inner.snapshot()

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Commit to the inner engine, as the plan says.

        Raises:
            CommitUnknownError: the operation was applied, was not, or still will be.
            EngineError: the fault ``refuse``; and what the inner engine raises.
        """
        with self._lock:
            fault = self._chosen(self._commit_fault(write), COMMIT_FAULTS)
            before, self._before_next = self._before_next, []
            after, self._after_next = self._after_next, []
        for late in before:
            self._deliver(late)
        try:
            return self._carry_out(write, fault)
        finally:
            for late in after:
                self._deliver(late)

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called after each commit that reaches the inner engine."""
        return self.inner.subscribe(wake)

    def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        """Wait for a commit that reaches the inner engine, without faults."""
        return self.inner.wait_for_commit(after, timeout_s)

    def sweep(self, limit: int) -> int:
        """Sweep the inner engine, without faults."""
        return self.inner.sweep(limit)

    def changes(self, one: ReadRange, after: bytes) -> Changes:
        """The changes of the inner engine, without faults."""
        return self.inner.changes(one, after)

    def backup(self, path: str) -> None:
        """Back up the inner engine, without faults."""
        self.inner.backup(path)

    def deliver_late(self) -> list[Committed | Conflict | KvModelsError]:
        """Let everything arrive that is still on its way, in the order it was sent; what became of each."""
        with self._lock:
            late = [*self._before_next, *self._after_next, *self._held]
            self._before_next, self._after_next, self._held = [], [], []
        return [self._deliver(write) for write in late]

    def close(self) -> None:
        """Close the inner engine; what is still on its way never arrives."""
        self.inner.close()

    def _before_read(self, ranges: Sequence[ReadRange]) -> None:
        with self._lock:
            fault = self._chosen(self._read_fault(ranges), READ_FAULTS)
        if fault == "delay":
            self._delay()
        elif fault == "refuse":
            raise EngineError("the read was refused", url=self.url, reason="injected fault", hint=_REFUSAL_HINT)

    def _carry_out(self, write: AtomicWrite, fault: str | None) -> Committed | Conflict:
        if fault == "refuse":
            raise EngineError("the commit was refused", url=self.url, reason="injected fault", hint=_REFUSAL_HINT)
        if fault == "delay":
            self._delay()
        if fault in (None, "delay"):
            return self.inner.commit(write)
        if fault == "repeat":
            self.inner.commit(write)
            return self.inner.commit(write)
        if fault == "lose_answer":
            self.inner.commit(write)
        elif fault != "lose_request":
            with self._lock:
                waiting = {"land_before_next": self._before_next, "land_after_next": self._after_next}
                waiting.get(fault or "", self._held).append(write)
        raise CommitUnknownError("the answer to the commit was lost", url=self.url, reason=f"injected fault {fault}")

    def _deliver(self, write: AtomicWrite) -> Committed | Conflict | KvModelsError:
        # The sender no longer waits, so an error can only be returned to the caller of deliver_late.
        try:
            return self.inner.commit(write)
        except KvModelsError as error:
            return error

    def _chosen(self, fault: str | None, known: frozenset[str]) -> str | None:
        if fault is not None:
            if fault not in known:
                raise InvalidArgumentError(
                    "this fault does not exist", argument="plan", value=fault, expected=tuple(sorted(known))
                )
            self.injected[fault] += 1
        return fault


def _in_order(faults: Iterator[FaultT | None]) -> Callable[[object], FaultT | None]:
    return lambda _: next(faults, None)
