"""The events of an interleaving as values: faults, schedule lines, virtual time and the history of a run.

Rules of this module: data and its text form; nothing here runs a client. A line names the client of the next step, the
kind that its request must have, and the fault: ``ada``, ``ada read``, ``ada commit lose_answer``, ``ada end``,
``deliver``, ``deliver 1``, ``advance 30``. The clock of the engine and the stopwatch of the retry loop share one
virtual time, which never goes back; no code waits for it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

from kvmodels._support.naming import short_repr
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import AtomicWrite, Changes, Committed, Conflict, Counted, GuardFailed, ReadResult
from kvmodels.errors import InvalidArgumentError, KvModelsError
from kvmodels.flows.effects import (
    CallOutside,
    Commit,
    CountRows,
    Now,
    Read,
    ReadChanges,
    ReadPresent,
    ReadRow,
    ReadToChange,
    Request,
    ReserveWrites,
    Settle,
    Sleep,
    TakeTurn,
    WaitForCommit,
    WaitForKeys,
)

_START_S = 1_700_000_000.0


class VirtualTime:
    """A clock that only moves when told to.

    Args:
        start_s: the start time in seconds since the epoch.

    Examples:
        >>> time = VirtualTime(start_s=100.0)
        >>> time.advance(0.25)
        >>> time.seconds(), time.milliseconds()
        (100.25, 100250)
    """

    __slots__ = ("_seconds",)

    def __init__(self, start_s: float = _START_S) -> None:
        self._seconds = start_s

    def seconds(self) -> float:
        """Return seconds since the epoch."""
        return self._seconds

    def milliseconds(self) -> int:
        """Return milliseconds since the epoch, the unit of engines."""
        return int(self._seconds * 1_000)

    def advance(self, seconds: float) -> None:
        """Move the time forward by 0 or more seconds."""
        self._seconds += seconds

    def reach(self, instant_s: float) -> None:
        """Move the time forward to an instant, unless it has already passed."""
        self._seconds = max(self._seconds, instant_s)


Fault = Literal["lose_answer", "lose_request", "repeat", "echo", "hold", "cancel", "abandon"]
"""The faults that can affect a request:

- ``lose_answer``: a commit is applied, and CommitUnknownError raised.
- ``lose_request``: a commit never arrives, and CommitUnknownError is raised.
- ``repeat``: a commit arrives twice, and the second outcome is reported.
- ``echo``: a commit is carried out and answered; if it was applied, a second delivery of it is still pending.
- ``hold``: CommitUnknownError is raised now; the commit is still pending and arrives at a later ``deliver``.
- ``cancel``: the client is stopped and its request withdrawn.
- ``abandon``: the client is stopped, but its request is carried out.
"""

Kind = Literal["read", "commit", "now", "sleep", "turn", "wait", "end"]

DELIVER: Final = "deliver"
"""The line that delivers a pending commit: the oldest, or the one with the given number, counted from 0."""

ADVANCE: Final = "advance"
"""The line that moves virtual time forward, in seconds."""

_FAULTS: frozenset[str] = frozenset(get_args(Fault))
_KINDS: frozenset[str] = frozenset(get_args(Kind))
_KIND_OF: Mapping[type[Any], Kind] = {
    Read: "read",
    ReadPresent: "read",
    ReadRow: "read",
    ReadToChange: "read",
    CountRows: "read",
    ReadChanges: "read",
    Commit: "commit",
    Now: "now",
    Sleep: "sleep",
    ReserveWrites: "turn",
    TakeTurn: "turn",
    WaitForCommit: "wait",
    WaitForKeys: "wait",
    Settle: "wait",
    CallOutside: "wait",
}
STOPPING: frozenset[str] = frozenset({"cancel", "abandon"})
_COMMIT_FAULTS: Final[tuple[Fault, ...]] = ("lose_answer", "lose_request", "repeat", "echo", "hold")


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Fault rates of a random run: probabilities from 0 to 1 per commit; ``cancel`` applies to requests of any kind.

    ``cancel`` is split equally between ``cancel`` and ``abandon``.
    """

    lose_answer: float = 0.0
    lose_request: float = 0.0
    repeat: float = 0.0
    echo: float = 0.0
    hold: float = 0.0
    cancel: float = 0.0

    @property
    def lose_answers(self) -> bool:
        """Return whether a client may lose an answer, so that operations need tokens."""
        return any(getattr(self, fault) > 0 for fault in _COMMIT_FAULTS)

    def draw(self, chance: random.Random, request: Request) -> Fault | None:
        """Return the fault of one step, or None."""
        if self.cancel and chance.random() < self.cancel:
            return "cancel" if chance.random() < 0.5 else "abandon"
        if not isinstance(request, Commit) or not self.lose_answers:
            return None
        drawn = chance.random()
        for fault in _COMMIT_FAULTS:
            rate: float = getattr(self, fault)
            if drawn < rate:
                return fault
            drawn -= rate
        return None


NO_FAULTS: Final = FaultRates()


class Line(NamedTuple):
    """One line of a schedule: a client (or DELIVER, ADVANCE), the required kind of request, a fault, a number."""

    name: str
    kind: str | None = None
    fault: str | None = None
    number: float = 0.0

    @property
    def lose_answers(self) -> bool:
        """Return whether this line loses an answer or delivers a commit twice."""
        return self.fault is not None and self.fault not in STOPPING


def parse_line(text: str) -> Line:
    """Parse one line of a schedule.

    Raises:
        InvalidArgumentError: a word is neither a kind of request nor a fault, or a required number is missing.

    Examples:
        >>> parse_line("ada commit lose_answer")
        Line(name='ada', kind='commit', fault='lose_answer', number=0.0)
    """
    words = text.split()
    if not words or len(words) > 3:
        raise _unreadable(text)
    if words[0] in (DELIVER, ADVANCE):
        number = words[1] if len(words) == 2 else "0"
        if len(words) > 2 or not number.replace(".", "", words[0] == ADVANCE).isdecimal():
            raise _unreadable(text)
        return Line(words[0], number=float(number))
    kind = fault = None
    for word in words[1:]:
        if word in _KINDS and kind is None and fault is None:
            kind = word
        elif word in _FAULTS and fault is None and kind != "end":
            fault = word
        else:
            raise _unreadable(text)
    return Line(words[0], kind, fault)


def _unreadable(text: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "a line of a schedule cannot be read",
        argument="schedule",
        value=text,
        expected="client [read|commit|now|sleep|wait|end] [fault]; deliver [number]; advance seconds",
        hint="Write for example 'ada commit', 'ada commit lose_answer', 'deliver' or 'advance 30'.",
    )


def kind_of(request: Request) -> Kind:
    """Return the word for a request in a schedule."""
    return _KIND_OF[type(request)]


class Landing(NamedTuple):
    """The arrival of one commit at the engine, including second deliveries.

    Attributes:
        client: the sender.
        now_ms: the virtual time of the arrival.
        write: the commit.
        outcome: the outcome, or the error if the engine refused the commit.
    """

    client: str
    now_ms: int
    write: AtomicWrite
    outcome: Committed | Conflict | KvModelsError


class Outcome(NamedTuple):
    """How a client ended: with a return value, with an expected error, or stopped midway."""

    returned: Any = None
    error: Exception | None = None
    stopped: bool = False


class Step(NamedTuple):
    """One step of a run: the line that repeats it, the request, and the answer or error."""

    line: str
    request: Request | None
    answer: Any


@dataclass(frozen=True, slots=True)
class StepHistory:
    """The steps and results of one run; ``str()`` shows one line per step.

    Attributes:
        seed: the seed of the run, or None.
        steps: the steps in order; ``lines`` repeats the run.
        outcomes: the outcome of each client.
        landings: every commit that arrived, in order.
    """

    seed: int | None
    steps: tuple[Step, ...]
    outcomes: Mapping[str, Outcome]
    landings: tuple[Landing, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """The schedule that repeats this run exactly, given the same clients and the same other arguments."""
        return tuple(step.line for step in self.steps)

    def __str__(self) -> str:
        told = [f"seed {self.seed}"]
        told += [f"{number:4} {step.line:32} {_answer(step)}" for number, step in enumerate(self.steps, 1)]
        told += [f"     {name} {_ending(outcome)}" for name, outcome in self.outcomes.items()]
        return "\n".join(told)


def _answer(step: Step) -> str:
    answer = step.answer
    if isinstance(answer, ReadResult):
        return _rows([row[0] for rows in (*answer.ranges, *answer.followed) for row in rows])  # plain tuples, too
    if isinstance(answer, Counted):
        return f"counted {', '.join(map(str, answer.numbers))}"
    if isinstance(answer, Changes):
        return f"{len(answer.changes)} changes"
    if isinstance(answer, GuardFailed):
        return "guard failed"
    if isinstance(answer, Committed):
        return f"committed {answer.versionstamp.hex()}"
    if isinstance(answer, Conflict) and isinstance(step.request, Commit):
        checks = step.request.write.checks
        return "conflict on " + ", ".join(repr(decode_key(checks[position].key)) for position in answer.failed_checks)
    return repr(answer)


def _rows(keys: Sequence[bytes]) -> str:
    """Tell of the rows of a read: the key of a single one, the first part of the keys of several."""
    if len(keys) == 1:
        return f"1 row of {short_repr(decode_key(keys[0]))}"
    firsts = dict.fromkeys(f"({short_repr(decode_key(key)[0])}, …)" for key in keys)
    return f"{len(keys)} rows" + (f" of {', '.join(firsts)}" if firsts else "")


def _ending(outcome: Outcome) -> str:
    if outcome.stopped:
        return "was stopped"
    return f"returned {outcome.returned!r}" if outcome.error is None else f"raised {outcome.error!r}"
