"""Group commit: writers of one process that wait at the same time share one transaction, and so one fsync.

A writer that finds no other writer leads: it opens a transaction, carries out its own operation and all that wait in
the queue, and commits them together. The other writers wait, each for its own answer.

Rules of this module: it knows no engine. Each decision is a single step of the interpreter (append to a deque,
``setdefault`` on a dict), so that an interrupt leaves nothing half decided. The thread that holds ``_turn`` leads, and
a ``with`` statement releases it in every case.

- Operations are carried out in the order of their arrival. Each is evaluated completely, against the transaction and
  so against the earlier operations, before any of its statements runs. A refused operation has written nothing. (SQLite
  may write a large operation first, if no other is before it, and rolls back and begins again if it is refused.)
- An operation is answered only after the end of the transaction, because its answer may depend on writes that fail.
- If the transaction fails, each of its operations is carried out again in a transaction of its own, so each gets the
  answer that it would have got alone. If it is unknown whether the commit was applied, the operations get that error.
- An interrupted leader puts operations that it has not committed back at the front of the queue, for the next leader.
  Nothing is carried out twice, because these operations were rolled back.
- A single writer never waits: it leads at once, or commits without a group while uncontended.
- A signal handler or finaliser that interrupts a leader must not wait for it, because the leader continues only after
  the handler has returned. So a leader notes its thread, and a commit of the same thread is refused.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from kvmodels._support import switches
from kvmodels.core.operations import AtomicWrite, Committed, Conflict, Removal, Set
from kvmodels.engines.contract import CommitWaiter, QueuedCommit
from kvmodels.engines.shared.waiting import RECHECK_S, Backoff
from kvmodels.errors import CommitUnknownError, EngineError, KvModelsError

MOST_MEMBERS: Final = 512
"""The maximum number of operations in one transaction; with more, other processes would wait longer for the file."""

MOST_BYTES: Final = 1 << 20
"""The maximum bytes of keys and values in one transaction, unless its first operation alone is larger."""

MOST_HAND_OVERS: Final = 3
"""The maximum number of interrupted leaders per operation, so that one that ends its leader cannot end them all."""

_STATE: Final = "state"
_WITHDRAWN: Final = object()


class GroupTransaction(Protocol):
    """A write transaction of an engine, as a group uses it; one operation after the other."""

    def evaluate(self, write: Any, /) -> Any:
        """Return a Conflict, or what ``apply`` is to write; nothing is written.

        An exception refuses the operation; one of the committer's ``fatal`` classes ends the transaction instead.
        """
        ...

    def apply(self, evaluated: Any, /) -> Committed:
        """Write what was evaluated, under the next versionstamp. What it raises ends the transaction."""
        ...


class Member:
    """One operation on its way through the queue.

    Args:
        write: the operation.
        committer: whose queue it is in.
        backoff: its deadline for a busy file.
        waiter: notified of the outcome; None while no caller waits.

    Attributes:
        outcome: the answer, an exception to be raised included; None while there is none.
        verdict: the answer if the transaction is committed.
        alone: a transaction that it shared has failed, so it must not share one again.
        hand_overs: the number of leaders that were interrupted while they carried it out.
    """

    __slots__ = ("_state", "alone", "backoff", "committer", "hand_overs", "outcome", "verdict", "waiter", "write")

    def __init__(
        self,
        write: AtomicWrite | Removal,
        committer: GroupCommitter,
        backoff: Backoff,
        waiter: CommitWaiter | None = None,
    ) -> None:
        self.write = write
        self.committer = committer
        self.backoff = backoff
        self.waiter = waiter
        self.outcome: Committed | Conflict | Exception | None = None
        self.verdict: Committed | Conflict | Exception | None = None
        self.alone = False
        self.hand_overs = 0
        # Whether it is taken or withdrawn: ``setdefault`` of its only item is an atomic compare-and-set.
        self._state: dict[str, object] = {}

    def withdraw(self) -> bool:
        """Withdraw the operation, so that it is not carried out; return False if a leader has taken it."""
        return self._state.setdefault(_STATE, _WITHDRAWN) is _WITHDRAWN

    def take(self) -> bool:
        """Begin to carry it out; false when it was withdrawn, or is in a group already. For leaders."""
        mine = object()
        return self._state.setdefault(_STATE, mine) is mine

    def free(self) -> None:
        """Let it be taken or withdrawn again. For the leader that has taken it."""
        if self.taken:
            self.verdict = None
            self._state.clear()

    @property
    def taken(self) -> bool:
        """Whether a leader has it, or had it."""
        return self._state.get(_STATE, _WITHDRAWN) is not _WITHDRAWN

    @property
    def withdrawn(self) -> bool:
        """Whether its owner took it back."""
        return self._state.get(_STATE) is _WITHDRAWN

    def result(self) -> Committed | Conflict:
        """Return the outcome, or raise it if it is an exception; see ``QueuedCommit``."""
        outcome = self.outcome
        if isinstance(outcome, Exception):
            try:
                raise outcome
            finally:
                # The error holds this frame by its traceback, and nothing of this frame may hold the error.
                self.outcome = self.verdict = None
                del outcome
        assert outcome is not None, "the caller waits until there is an outcome"
        return outcome

    def size(self) -> int:
        """Bytes of keys and values that it writes; of a removal the one key that is known."""
        write = self.write
        if isinstance(write, Removal):
            return len(write.key)
        size = 0
        for mutation in write.mutations:
            if type(mutation) is Set:
                size += len(mutation.key) + len(mutation.value)
            else:
                size += len(mutation.key)
        return size


class UncontendedCommit:
    """One operation that is carried out without a group.

    Attributes:
        write: the operation.
        backoff: its deadline for a busy file.
        verdict: the answer if the transaction is committed; a conflict needs no commit.
        committed: whether it was, when the engine's call has ended, also by an interrupt right behind the commit.
    """

    def __init__(self, write: AtomicWrite | Removal, backoff: Backoff) -> None:
        self.write = write
        self.backoff = backoff
        self.verdict: Committed | Conflict | None = None
        self.committed = False

    @property
    def outcome(self) -> Committed | Conflict | None:
        """The answer; None: nothing was applied, and the operation is left to a group."""
        verdict = self.verdict
        return verdict if self.committed or isinstance(verdict, Conflict) else None

    def run(self, transaction: GroupTransaction) -> bool:
        """Carry out the operation in the engine's transaction; return whether to commit it."""
        evaluated = transaction.evaluate(self.write)
        if isinstance(evaluated, Conflict):
            self.verdict = evaluated
            return False
        self.verdict = transaction.apply(evaluated)
        return True


class Group:
    """The operations that one leader carries out in one transaction.

    Attributes:
        members: in the order in which they came; those that the transaction has not reached are still in the queue.
        backoff: for the beginning and the end of the transaction; that of the first member, who waits longest.
        committed: the engine sets it as soon as it knows, also when an interrupt comes right behind the commit.
        failure: what the transaction raised, until its members have been dealt with.
    """

    def __init__(self, queue: deque[Member], fatal: type[Exception]) -> None:
        self._queue = queue
        self._fatal = fatal
        self._bytes = 0
        self.members: list[Member] = []
        self.committed = False
        self.failure: Exception | None = None

    @property
    def backoff(self) -> Backoff:
        """The deadline of the first member."""
        return self.members[0].backoff

    def take(self) -> Member | None:
        """Return the next member of the group; None if none waits or the group is large enough."""
        queue, members = self._queue, self.members
        while queue:
            member = queue[0]
            if members and self._is_full(member):
                return None
            # First here, then away from there: between the two it is in both, and not lost if an interrupt comes.
            members.append(member)
            queue.popleft()
            if member.take():
                return member
            members.pop()
        return None

    def run(self, transaction: GroupTransaction) -> bool:
        """Carry out the first member and those that wait, in the engine's transaction; returns whether to commit it."""
        applied = False
        member: Member | None = self.members[0]
        while member is not None:
            verdict: Committed | Conflict | Exception
            try:
                evaluated = transaction.evaluate(member.write)
            except self._fatal:
                raise
            except Exception as refusal:  # noqa: BLE001 - raised where the operation came from
                verdict = refusal
            else:
                if isinstance(evaluated, Conflict):
                    verdict = evaluated
                else:
                    verdict = transaction.apply(evaluated)
                    applied = True
            member.verdict = verdict
            del verdict  # an error would hold this frame, and the frame the error
            member = self.take()
        return applied

    def answer(self) -> None:
        """Make every verdict an outcome; again after an interrupt, if need be."""
        for member in self.members:
            if member.outcome is None and member.verdict is not None:
                self.settle(member, member.verdict)

    def settle(self, member: Member, outcome: Committed | Conflict | Exception) -> None:
        """Give one member its outcome."""
        member.outcome = outcome
        if member.waiter is not None:
            member.waiter.answered(member)

    def call(self) -> None:
        """Tell everybody who was answered, each waiter once."""
        called: set[int] = set()
        for member in self.members:
            waiter = member.waiter
            if waiter is not None and member.outcome is not None and id(waiter) not in called:
                called.add(id(waiter))
                waiter.call()

    def _is_full(self, candidate: Member) -> bool:
        first = self.members[0]
        if len(self.members) >= MOST_MEMBERS or candidate.alone or first.alone:
            return True
        if self._bytes == 0:
            self._bytes = first.size()
        self._bytes += candidate.size()
        return self._bytes > MOST_BYTES


class _ThreadWaiter:
    """The lock at which a thread waits for its answer, or for the turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def answered(self, member: QueuedCommit) -> None:
        """Nothing to note: the thread looks at its member."""

    def call(self) -> None:
        with suppress(RuntimeError):  # it is open already
            self._lock.release()

    def wait(self) -> None:
        # With a timeout: an interrupt may swallow the call, and then the waiter checks by itself.
        self._lock.acquire(timeout=RECHECK_S)


class GroupCommitter:
    """The queue of operations of one store, which one thread at a time carries out.

    Args:
        carry_out: begins a write transaction, calls ``group.run`` in it, commits if that is true or else rolls back,
            and sets ``group.committed`` when it has committed, at the latest when it raises. After an exception nothing
            is left open. Called by one thread at a time.
        fatal: what the engine's library raises; see ``GroupTransaction.evaluate``.
    """

    __slots__ = ("_carry_out", "_crowded", "_fatal", "_leader", "_queue", "_turn")

    def __init__(self, carry_out: Callable[[Group], None], fatal: type[Exception]) -> None:
        self._carry_out = carry_out
        self._fatal = fatal
        self._queue: deque[Member] = deque()
        self._turn = threading.Lock()
        self._leader: int | None = None
        """The thread that holds the turn. Set and reset inside of it, where no signal handler runs in between."""
        self._crowded = False

    @property
    def waiting(self) -> bool:
        """Whether there is anything in the queue."""
        return bool(self._queue)

    def commit(self, write: AtomicWrite | Removal, backoff: Backoff) -> Committed | Conflict:
        """Have an operation carried out, by this thread or by another one, and wait for the answer."""
        member = Member(write, self, backoff)
        try:
            self._queue.append(member)
            while member.outcome is None:
                self._proceed(member)
        except BaseException as interruption:
            self._leave(member, interruption)
            raise
        return member.result()

    def commit_uncontended(
        self, write: AtomicWrite | Removal, backoff: Backoff, carry_out: Callable[[UncontendedCommit], None]
    ) -> Committed | Conflict | None:
        """Carry out an operation without a group while uncontended; return None if ``commit`` must be called instead.

        Uncontended: no writer is active or waits, and the last transaction had one writer and none waited for it.
        Otherwise writers that come at the same time would take turns, and each would wait for the disk by itself.
        ``carry_out`` does it in a transaction of its own, and sets verdict and ``committed``. After an exception, or
        without an outcome, nothing is left open and nothing was applied.
        """
        if self._crowded or self._queue or self._turn.locked() or not switches.fast_kinds:
            return None
        commit = UncontendedCommit(write, backoff)
        thread = threading.get_ident()
        try:
            # A blocking "with", as in ``_lead``. Who has come to the queue before the turn was taken goes first.
            with self._turn:
                self._leader = thread
                try:
                    if not self._queue:
                        carry_out(commit)
                finally:
                    self._leader = None
        except BaseException as interruption:
            if not isinstance(interruption, Exception):
                interruption.add_note(outcome_note(commit.outcome))
            raise
        finally:
            if self._queue:
                self._crowded = True
                self._call_next()
        return commit.outcome

    def submit(self, write: AtomicWrite | Removal, backoff: Backoff, waiter: CommitWaiter) -> Member:
        """Put an operation into the queue and return at once; the caller ensures that ``lead`` is called."""
        member = Member(write, self, backoff, waiter)
        self._queue.append(member)
        return member

    def lead(self) -> None:
        """Carry out everything in the queue, in as many transactions as it takes."""
        while self._queue:
            self._lead(None)

    def _proceed(self, member: Member) -> None:
        """Lead if no thread does, or wait; the caller then checks its member, and calls again if it has no answer."""
        if not self._turn.locked():
            self._lead(member)
            return
        if self._leader == threading.get_ident():
            raise _nested()
        gate = member.waiter
        if not isinstance(gate, _ThreadWaiter):
            gate = member.waiter = _ThreadWaiter()
        # Looked at after the gate is there: a leader that gives the turn back later than this finds the gate.
        if self._turn.locked() and member.outcome is None:
            gate.wait()

    def _lead(self, own: Member | None) -> None:
        """Carry out one group; ``own`` is the operation of this thread, wherever it is."""
        group = Group(self._queue, self._fatal)
        thread = threading.get_ident()
        try:
            # A blocking "with", although it was just looked whether the turn is free: of everything that takes a lock
            # it is what an interrupt cannot come between.
            with self._turn:
                self._leader = thread
                try:
                    if own is None or own.outcome is None:
                        if own is not None and own.taken:
                            group.settle(own, _lost())
                        else:
                            self._carry(group)
                            self._crowded = len(group.members) > 1 or bool(self._queue)
                finally:
                    self._leader = None
        finally:
            try:
                self._call_next()
            finally:
                group.call()

    def _carry(self, group: Group) -> None:
        try:
            if group.take() is not None:
                self._transact(group)
                self._settle(group)
        except BaseException:
            try:
                self._recover(group)
            except BaseException:
                self._recover(group)  # a second interrupt, which came while the first one was dealt with
                raise
            raise

    def _transact(self, group: Group) -> None:
        try:
            self._carry_out(group)
        except Exception as error:
            group.failure = error
            if group.committed:  # whatever it is, it came after the commit
                raise

    def _settle(self, group: Group) -> None:
        """Answer the members of a transaction that is over, or put them back; may be called again."""
        error = group.failure
        if error is None or group.committed:
            group.answer()
        else:
            self._fail(group, error)
        group.failure = None  # the error holds the frames in which it was raised, and they hold the group

    def _fail(self, group: Group, error: Exception) -> None:
        """Answer what the failure of the transaction is the answer for, and have the rest carried out one by one."""
        unknown = isinstance(error, CommitUnknownError)
        rest: list[Member] = []
        for member in group.members:
            if member.outcome is not None:
                continue
            if len(group.members) == 1:
                group.settle(member, error)
            elif unknown and isinstance(member.verdict, Committed):
                group.settle(member, _another(error))
            else:
                member.alone = True
                rest.append(member)
        self._put_back(rest)

    def _recover(self, group: Group) -> None:
        """Do what an interrupt has left undone: settle a transaction that was over, else leave it to the next leader.

        The interrupted thread's own operation is left as well, and its thread withdraws it.
        """
        if group.committed or group.failure is not None:
            self._settle(group)
            return
        rest: list[Member] = []
        for member in group.members:
            if member.outcome is None:
                member.hand_overs += 1
                if member.hand_overs > MOST_HAND_OVERS:
                    group.settle(member, _given_up())
                else:
                    rest.append(member)
        self._put_back(rest)

    def _put_back(self, members: list[Member]) -> None:
        # In the queue first: one that is there twice is carried out once, one that is nowhere never.
        self._queue.extendleft(reversed(members))
        for member in members:
            member.free()

    def _call_next(self) -> None:
        """Tell the first that waits that the turn is free. Without this it would find out after ``RECHECK_S``."""
        for member in self._queue.copy():
            if not member.withdrawn:
                # A member without a waiter is on its way to look at the turn by itself.
                if member.waiter is not None:
                    member.waiter.call()
                return

    def _leave(self, member: Member, interruption: BaseException) -> None:
        """Withdraw the operation of a thread that is interrupted, or wait for its outcome if it has been started."""
        try:
            while member.outcome is None and not member.withdraw():
                self._proceed(member)
        finally:
            self._call_next()
        if not isinstance(interruption, Exception):
            interruption.add_note(outcome_note(member.outcome))


def outcome_note(outcome: Committed | Conflict | BaseException | None) -> str:
    """Return the outcome of a commit that was interrupted; None: it was withdrawn."""
    if outcome is None:
        return "the commit was not applied"
    if isinstance(outcome, Committed):
        return "the commit was applied"
    if isinstance(outcome, Conflict):
        return "the commit was not applied: a check failed"
    if isinstance(outcome, KvModelsError) and not isinstance(outcome, CommitUnknownError):
        return f"the commit was not applied: {outcome}"
    return f"the outcome of the commit is unknown: {outcome!r}"


def _another(error: Exception) -> Exception:
    """The same error for another thread: two must not add their tracebacks to one object."""
    one = copy.copy(error)
    one.__cause__ = error.__cause__
    return one


def _lost() -> CommitUnknownError:
    return CommitUnknownError(
        "the thread that wrote the commit was interrupted again and again",
        hint="Read the record to see whether it was applied.",
    )


def _nested() -> EngineError:
    return EngineError(
        "a write was begun inside another write of the same thread, which cannot end before it",
        hint="Nothing was written. A signal handler or __del__ that interrupts a write must not write: let it set a "
        "flag or put work into a queue.SimpleQueue, and write after the interrupted call has returned.",
    )


def _given_up() -> EngineError:
    return EngineError(
        "every thread that began to write the commit was interrupted", hint="Nothing was written; try again."
    )
