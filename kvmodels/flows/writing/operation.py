"""One logical write as data: the keys that it reads, and the changes that it proposes in each attempt.

Rules of this module: pure. ``propose`` is called again with the rows that a later attempt has read; an
exception that it raises ends the operation with nothing written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from kvmodels.catalog.collection import LiveCollection
from kvmodels.core.operations import AtomicWrite, Conflict, Removal, Row
from kvmodels.errors import KvModelsError, ReadOnlyError
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.references import NOTHING_FOUND, FoundRanges
from kvmodels.indexing.cascades import RefusedCascade
from kvmodels.indexing.compiler import WriteRefusal, compile_write
from kvmodels.indexing.entries import NeedRows, RecordChange, StaleRow
from kvmodels.indexing.simple import RecordWriter
from kvmodels.indexing.versions import CommitMoment
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.instances import ObjectState

R = TypeVar("R")

NO_ROOTS: Final[Mapping[bytes, RecordChange]] = {}


class AttemptState(NamedTuple):
    """The header and the physical rows that one attempt goes by; ``rows`` is None when nothing was read.

    ``now_ms`` is the clock of the engine when any of the rows has a deadline or the operation sets one, else 0.
    """

    view: HeaderView
    rows: Mapping[bytes, Row | None] | None
    now_ms: int

    def row(self, key: bytes) -> Row | None:
        """Return the physical row of a key that the operation asked for."""
        return self.rows[key] if self.rows is not None else None

    def live_row(self, key: bytes) -> Row | None:
        """Return the same, None when it has expired."""
        row = None if self.rows is None else self.rows[key]
        return None if row is None or (row.expire_at is not None and row.expire_at <= self.now_ms) else row


class Proposal(NamedTuple, Generic[R]):
    """The record changes of one attempt and what to return once they are committed at a versionstamp.

    No changes, and no extra writes: nothing is written, ``done`` is called at once with an empty versionstamp.

    Attributes:
        changes: one per record.
        done: called once, after the commit, with its versionstamp; gives objects of the caller what was stored.
        result: what the verb returns in a transaction, before the commit; called with the versionstamp that stands
            for it, and leaves objects of the caller as they are. None: the write cannot be part of a transaction.
        states: at a versionstamp, the object of the caller that each of the changes stores, with the state that it
            has once that is committed; None for the state of one that is removed. Not given: there are no objects.
        after: hooks to run once after the commit, see ``run_after``.
        extra: checks and mutations of keys of the library that are committed in the same operation, as the progress
            of a bulk write; they are committed without changes as well. Never in a transaction.
    """

    changes: tuple[RecordChange, ...]
    done: Callable[[bytes], R]
    result: Callable[[bytes], R] | None = None
    states: Callable[[bytes], Sequence[tuple[Any, ObjectState | None]]] | None = None
    after: tuple[Callable[[], object], ...] = ()
    extra: AtomicWrite | None = None


CompiledWrite: TypeAlias = tuple[Proposal[R], AtomicWrite | Removal]
"""A proposal without changes, and the write that was compiled for it."""


class LogicalWrite(ABC, Generic[R]):
    """Base of logical writes: each reads rows and proposes changes, in each of its attempts.

    Attributes:
        schema: the model whose collection it writes.
        reads: whether its first attempt must read, because it makes assumptions that no check of the commit covers.
        guesses: whether the first attempt may read its only key without the guard of the header, and take slots for
            free. The commit checks both. An error under such assumptions is not raised: the next attempt makes none.
        timed: whether it sets a deadline, so that it needs the clock.
        attempts: the maximum number of attempts; None: that of the policy of the database.
        finds_keys: whether ``further_keys`` may return any.
        targets: versionstamps by key of records that the caller has loaded, to which a first attempt may refer unread.
    """

    __slots__ = ()

    schema: ModelSchema
    reads: bool = True
    guesses: bool = False
    timed: bool = False
    attempts: int | None = None
    finds_keys: bool = False
    targets: Mapping[bytes, bytes] | None = None

    @abstractmethod
    def keys(self, view: HeaderView, /) -> Sequence[bytes]:
        """Return the keys whose rows ``propose`` uses, under a header."""

    def further_keys(self, _: AttemptState, /) -> Iterable[bytes]:
        """Return keys that were found in the rows of ``keys``; ``propose`` uses their rows of the same snapshot too."""
        return ()

    @abstractmethod
    def propose(self, seen: AttemptState, /) -> Proposal[R]:
        """Return the changes for what was read. Raises typed errors."""

    @abstractmethod
    def refused(self, refusal: WriteRefusal, /) -> KvModelsError:
        """Return the error for a unique slot that another record holds, or for a foreign key without a target."""

    def cascade_failed(self, removal: RecordChange, error: Exception, /) -> None:
        """Take a removal of this write, and the error of a hook or validator of a record that changes with it."""

    def compiled(self, _: HeaderView, /) -> CompiledWrite[R] | None:
        """Return the write of a first attempt that needs no ``propose``; None where it needs one."""
        return None


def may_guess(context: Context, operation: LogicalWrite[R], live: LiveCollection, writer: RecordWriter | None) -> bool:
    """Return whether the first attempt can rest on assumptions that its commit checks."""
    if context.traits.may_lose_answers or live.refused is not None or live.read_only is not None or live.references:
        return False  # a new record refers to others, which must be read before
    # Without a writer, the compiler needs more rows than that of the record.
    return not operation.reads or (operation.guesses and writer is not None)


def failed_keys(write: AtomicWrite | Removal, outcome: Conflict) -> tuple[bytes, ...] | None:
    """Return the keys of the checks that failed; None where a removal met no record that it can remove."""
    if isinstance(write, AtomicWrite):
        return tuple([write.checks[position].key for position in outcome.failed_checks])
    return (write.check.key,) if outcome.failed_checks else None


def refused_by_store(write: AtomicWrite | Removal, error: ReadOnlyError) -> Conflict:
    """Return the outcome of a removal, because no store must be writable to lack a record. Raises the error else."""
    if not isinstance(write, Removal):
        raise error
    return Conflict(())


def always(result: R) -> Callable[[bytes], R]:
    """Return a ``Proposal.done`` that does not look at the versionstamp."""

    def done(_: bytes) -> R:
        return result

    return done


def run_after(functions: Iterable[Callable[[], object]]) -> None:
    """Run all functions that follow a commit; the first error is raised when all have run."""
    first: Exception | None = None
    for function in functions:
        try:
            function()
        except Exception as error:  # noqa: BLE001 - functions of the user raise anything; it is raised below
            if first is None:
                first = error
                first.add_note("kvmodels: the write was committed before this was raised")
            else:
                first.add_note(f"kvmodels: after the commit this was raised too: {error!r}")
    if first is not None:
        raise first


def compiled_proposal(
    context: Context,
    operation: LogicalWrite[R],
    proposal: Proposal[R],
    seen: AttemptState,
    *,
    found: FoundRanges = NOTHING_FOUND,
    roots: Mapping[bytes, RecordChange] = NO_ROOTS,
    time_ms: int = 0,
) -> AtomicWrite | NeedRows | StaleRow | None:
    """Compile what an attempt proposes; return None when there is nothing to write. Raises KvModelsError."""
    changes, extra = proposal.changes, proposal.extra
    if not changes and extra is None:
        return None
    compiled = compile_write(
        changes,
        seen.rows,
        header=seen.view.guard,
        codec=context.codec,
        now_ms=seen.now_ms,
        max_key_bytes=context.limits.max_key_bytes,
        found=found.entries,
        neighbours=found.neighbours,
        loaded=operation.targets if seen.rows is None else None,
        moment=CommitMoment(time_ms, context.limits, roots) if time_ms else None,
    )
    if isinstance(compiled, (NeedRows, StaleRow)):
        return compiled
    if not isinstance(compiled, AtomicWrite):
        root = roots.get(compiled.change.key)
        raise operation.refused(compiled if root is None else RefusedCascade(root, compiled))
    if extra is None:
        return compiled
    return AtomicWrite((*compiled.checks, *extra.checks), (*compiled.mutations, *extra.mutations))
