"""Interleave the clients of one store request by request, with network faults, and repeat any run exactly.

A client is a coroutine that uses a ``Process`` as application code uses an ``AsyncDatabase``. Every read and commit of
the real flows is one step, and any other client may run between two steps. A seed or a written schedule decides which
client runs next. Time is virtual: it passes when a client sleeps.

``explore_races`` runs one story of clients under many seeds.

Rules of this module: runs are deterministic. The same clients give the same history with the same seed, or with the
lines of an earlier run as the schedule. Only one request of one client runs at a time, so a step is atomic. In an
exploration, each seed has a store of its own, and the first failure ends it.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar, cast

from kvmodels._support.turns import LAPSE_S, Turns
from kvmodels.codecs.sealing.key_ring import KeyRing
from kvmodels.core.operations import AtomicWrite, Committed, Conflict
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import CommitUnknownError, InvalidArgumentError, KvModelsError, RetriesExhaustedError
from kvmodels.flows.arguments import items_of
from kvmodels.flows.effects import Commit, Flow, Request, Sleep, TakeTurn, WaitForCommit
from kvmodels.flows.retry_policy import DEFAULT_RETRY, RetryPolicy
from kvmodels.limits import Limits
from kvmodels.runtime.sync import perform, run
from kvmodels.schema.compile.model import KvModel
from kvmodels.testing.processes import Process, World
from kvmodels.testing.schedules import (
    ADVANCE,
    DELIVER,
    NO_FAULTS,
    STOPPING,
    FaultRates,
    Landing,
    Line,
    Outcome,
    Step,
    StepHistory,
    VirtualTime,
    kind_of,
    parse_line,
)

_DELIVERY_SPEED: Final = 0.2

T = TypeVar("T")


class Interleaving:
    """One run of several clients over one memory store.

    Args:
        seed: chooses the next client and the faults after the end of the schedule. None: the remaining clients run one
            after the other, in the order in which they were added.
        schedule: lines such as ``"ada commit"`` or ``"bob commit lose_answer"``, see ``kvmodels.testing.schedules``.
        faults: the fault rates of a random run.
        retry: the retry policy of every write of every process.
        limits: the limits of the engine.
        errors: exceptions that a client may end with, besides those of the library; the history records them. Any
            other exception ends the run.

    Attributes:
        engine: the store, to inspect after the run.
        time: the virtual time.

    Examples:
        Two processes increment one counter. Bob reads the counter before Ada's commit, so his own commit meets a
        conflict:

        >>> from kvmodels import KvModel, PrimaryKey
        >>> class Counter(KvModel, collection="counters"):
        ...     id: PrimaryKey[str]
        ...     hits: int = 0
        >>> async def increment(process):
        ...     def once_more(counter):
        ...         counter.hits += 1
        ...     return (await process[Counter].mutate("home", once_more)).hits
        >>> test = Interleaving(schedule=["ada read", "bob read", "ada commit", "bob commit", "bob end"])
        >>> ada, bob = test.process(Counter), test.process(Counter)
        >>> home = test.at_once(ada[Counter].create(id="home"))
        >>> test.add("ada", increment(ada))
        >>> test.add("bob", increment(bob))
        >>> history = test.run()
        >>> history.outcomes["ada"].returned, history.outcomes["bob"].returned
        (1, 2)
        >>> history.lines[3], history.steps[3].answer
        ('bob commit', Conflict(failed_checks=(1,)))
    """

    def __init__(
        self,
        seed: int | None = None,
        *,
        schedule: Iterable[str] = (),
        faults: FaultRates = NO_FAULTS,
        retry: RetryPolicy = DEFAULT_RETRY,
        limits: Limits = Limits.EMBEDDED,
        errors: Iterable[type[Exception]] = (),
    ) -> None:
        self.time = VirtualTime()
        self.engine = MemoryEngine(limits, clock=self.time.milliseconds)
        self._seed = seed
        self._schedule = [parse_line(text) for text in schedule]
        self._faults = faults
        self._retry = retry
        self._errors: tuple[type[Exception], ...] = (KvModelsError, *_exception_classes(errors))
        self._chance = random.Random(seed)
        lossy = faults.lose_answers or any(line.lose_answers for line in self._schedule)
        self._traits = dataclasses.replace(self.engine.capabilities.traits, may_lose_answers=lossy)
        self._processes = 0
        self._clients: dict[str, _Client] = {}
        self._under_way: list[tuple[str, AtomicWrite]] = []
        self._steps: list[Step] = []
        self._outcomes: dict[str, Outcome] = {}
        self._landings: list[Landing] = []

    # --- before the run ---------------------------------------------------------------------------------------

    def process(self, *models: type[KvModel], keys: KeyRing | None = None) -> Process:
        """Start a process that declares these models; it opens the store without interruption or faults.

        Args:
            models: the classes that it declares.
            keys: the keys of their encrypted fields.

        Raises:
            ModelDefinitionError, SchemaMismatchError: as for ``Database``.
        """
        self._processes += 1
        name, world = f"process{self._processes}", World(self.engine, self.time)
        process = Process(name, models, self._retry, world, keys)
        run(self.engine, process.core.open(self.engine), sleep=self.time.advance)
        process.context.traits = self._traits
        process.context.turns = Turns(self.time.seconds)
        return process

    def at_once(self, client: Coroutine[Request, Any, T]) -> T:
        """Run a coroutine to its end without interruption or faults, to prepare or inspect a store.

        Raises:
            Exception: any exception of the coroutine.
        """
        # A coroutine has the generator methods that the driver uses, and yields the requests of flows.
        return run(self.engine, cast("Flow[T]", client), sleep=self.time.advance)

    def add(self, name: str, client: Coroutine[Request, Any, Any]) -> None:
        """Add a client; the coroutine starts at its first step.

        Raises:
            InvalidArgumentError: the name is taken, contains a space, or is a reserved word of schedules.
        """
        if name in self._clients or name in self._outcomes or name in (DELIVER, ADVANCE) or len(name.split()) != 1:
            client.close()
            raise InvalidArgumentError(
                "this cannot be the name of a client",
                argument="name",
                value=name,
                hint="Give every client another name: one word, not 'deliver' or 'advance'.",
            )
        self._clients[name] = _Client(name, client, self._errors)

    # --- the run ----------------------------------------------------------------------------------------------

    def run(self, *, max_steps: int = 20_000) -> StepHistory:
        """Run all clients to their ends, and deliver all pending commits.

        An error of the library, or one of ``errors``, ends its client and is recorded in the history. Any other
        exception of a client is raised, with the history as a note.

        Args:
            max_steps: the maximum number of steps of the run.

        Raises:
            RetriesExhaustedError: the run needed more steps.
            InvalidArgumentError: the schedule does not match the requests of the clients.
        """
        try:
            for line in self._schedule:
                self._follow(line, max_steps)
            while self._clients or self._under_way:
                self._step(self._drawn(), max_steps)
        except Exception as error:
            error.add_note(str(self.history))
            raise
        finally:
            for client in self._clients.values():
                client.stop()
        return self.history

    @property
    def history(self) -> StepHistory:
        """The steps and results so far."""
        return StepHistory(self._seed, tuple(self._steps), dict(self._outcomes), tuple(self._landings))

    def _follow(self, line: Line, max_steps: int) -> None:
        if line.kind != "end":
            self._step(line, max_steps)
            return
        self._client(line)
        while line.name in self._clients:
            self._step(Line(line.name), max_steps)

    def _drawn(self) -> Line:
        """Return the next step of a random run; without a seed, that of the first client that has not ended."""
        clients = [one for one in self._clients.values() if not one.waits_for_turn] or [*self._clients.values()]
        names = [client.name for client in clients]
        if self._seed is None:
            return Line(names[0] if names else DELIVER)
        # Clients run at unequal speeds. With equal chances no client falls far behind, and races that need one step of
        # a client amid many steps of another would hardly ever occur.
        chances = [client.speed(self._chance) for client in clients]
        if self._under_way:
            names.append(DELIVER)
            chances.append(_DELIVERY_SPEED)
        name = self._chance.choices(names, chances)[0]
        if name == DELIVER:
            return Line(DELIVER, number=self._chance.randrange(len(self._under_way)))
        request = self._clients[name].pending(self.time)
        return Line(name, fault=None if request is None else self._faults.draw(self._chance, request))

    def _client(self, line: Line) -> _Client:
        client = self._clients.get(line.name)
        if client is None:
            raise InvalidArgumentError(
                "the schedule names a client that has ended or was never added",
                argument="schedule",
                value=line.name,
                expected=tuple(self._clients),
                hint="Name a client that still runs; replay a schedule with the clients it was recorded with.",
            )
        return client

    def _step(self, line: Line, max_steps: int) -> None:
        if len(self._steps) >= max_steps:
            raise RetriesExhaustedError(
                "the clients of an interleaving did not end",
                attempts=max_steps,
                hint="A client never ends, or max_steps is too small.",
            )
        if line.name == ADVANCE:
            self.time.advance(line.number)
            self._steps.append(Step(f"{ADVANCE} {line.number:g}", None, None))
        elif line.name == DELIVER:
            self._deliver(int(line.number))
        else:
            self._serve(self._client(line), line)

    def _deliver(self, position: int) -> None:
        if position >= len(self._under_way):
            raise InvalidArgumentError(
                "the schedule delivers a commit that is not pending",
                argument="schedule",
                value=position,
                expected=len(self._under_way),
                hint="Only what was held or echoed before can be delivered, and once.",
            )
        sender, write = self._under_way.pop(position)
        self._steps.append(Step(f"{DELIVER} {position}", Commit(write), self._landed(sender, write)))

    def _serve(self, client: _Client, line: Line) -> None:
        """Carry out the pending request of a client as the line says, and run the client up to its next request."""
        request = client.pending(self.time)
        _require_fit(line, request)
        if request is None:
            self._steps.append(Step(line.name, None, None))
        elif line.fault in STOPPING:
            answer = self._answered(client, request, None) if line.fault == "abandon" else None
            self._steps.append(Step(f"{line.name} {kind_of(request)} {line.fault}", request, answer))
            client.stop()
        else:
            answer = self._answered(client, request, line.fault)
            words = f"{line.name} {kind_of(request)}" + (f" {line.fault}" if line.fault else "")
            self._steps.append(Step(words, request, answer))
            client.proceed(answer, self.time)
        if client.outcome is not None:
            del self._clients[client.name]
            self._outcomes[client.name] = client.outcome

    # --- requests ---------------------------------------------------------------------------------------------

    def _answered(self, client: _Client, request: Request, fault: str | None) -> Any:
        """Return the answer of the engine, or the error that the client receives."""
        if isinstance(request, Commit):
            return self._committed(client.name, request.write, fault)
        if isinstance(request, Sleep):
            self.time.reach(client.asked_at + request.seconds)
            return None
        if isinstance(request, TakeTurn):
            if not request.ticket.look():
                self.time.reach(client.asked_at + min(request.seconds, LAPSE_S))
            return request.ticket.look()
        if isinstance(request, WaitForCommit):
            stamp = self.engine.wait_for_commit(request.after, 0)
            if stamp <= request.after:
                self.time.reach(client.asked_at + request.seconds)
            return stamp
        try:
            return perform(self.engine, request)
        except KvModelsError as error:
            return error

    def _committed(self, sender: str, write: AtomicWrite, fault: str | None) -> Any:
        outcome = None if fault in ("hold", "lose_request") else self._landed(sender, write)
        if fault == "repeat":
            outcome = self._landed(sender, write)
        if fault == "hold" or (fault == "echo" and isinstance(outcome, Committed)):
            self._under_way.append((sender, write))
        if fault in ("hold", "lose_request", "lose_answer"):
            return CommitUnknownError(
                "the answer to the commit was lost", url=self.engine.url, reason=f"injected fault {fault}"
            )
        return outcome

    def _landed(self, sender: str, write: AtomicWrite) -> Committed | Conflict | KvModelsError:
        outcome: Committed | Conflict | KvModelsError
        try:
            outcome = self.engine.commit(write)
        except KvModelsError as error:
            outcome = error
        self._landings.append(Landing(sender, self.engine.now_ms(), write, outcome))
        return outcome


class _Client:
    """A coroutine with its pending request or its outcome, and its relative speed."""

    def __init__(self, name: str, coroutine: Coroutine[Request, Any, Any], errors: tuple[type[Exception], ...]) -> None:
        self.name = name
        self._errors = errors
        self.asked_at = 0.0
        self.outcome: Outcome | None = None
        self._coroutine = coroutine
        self._request: Request | None = None
        self._speed: float | None = None

    def speed(self, chance: random.Random) -> float:
        """Return the relative probability of running next, between slow and 50 times as fast; drawn once."""
        if self._speed is None:
            self._speed = 0.02 + chance.random() ** 3
        return self._speed

    def pending(self, time: VirtualTime) -> Request | None:
        """Return the pending request, or None if the client has ended; starts the client if necessary."""
        if self._request is None and self.outcome is None:
            self.proceed(None, time)
        return self._request

    @property
    def waits_for_turn(self) -> bool:
        """Return whether the client waits for a turn that another client of its process holds."""
        return isinstance(self._request, TakeTurn) and not self._request.ticket.look()

    def proceed(self, answer: Any, time: VirtualTime) -> None:
        """Send an answer to the client, or throw an error into it, and run it up to its next request or its end."""
        try:
            throws = isinstance(answer, KvModelsError)
            self._request = self._coroutine.throw(answer) if throws else self._coroutine.send(answer)
            self.asked_at = time.seconds()
        except StopIteration as done:
            self._request, self.outcome = None, Outcome(done.value)
        except self._errors as error:
            self._request, self.outcome = None, Outcome(error=error)

    def stop(self) -> None:
        """Stop the client where it is, as a driver does if its thread or task is interrupted."""
        self._coroutine.close()
        self._request, self.outcome = None, self.outcome or Outcome(stopped=True)


def _exception_classes(errors: Iterable[type[Exception]]) -> tuple[type[Exception], ...]:
    classes = tuple(items_of("errors", errors, "Give exception classes in a list: errors=[OutOfStock]."))
    for one in classes:
        given = cast("object", one)
        if not (isinstance(given, type) and issubclass(given, Exception)):
            raise InvalidArgumentError(
                "this is not an exception class",
                argument="errors",
                value=one,
                hint="Give classes that inherit from Exception, such as errors=[OutOfStock].",
            )
    return classes


def _require_fit(line: Line, request: Request | None) -> None:
    kind = "end" if request is None else kind_of(request)
    if line.kind not in (None, kind) or (line.lose_answers and not isinstance(request, Commit)):
        raise InvalidArgumentError(
            "a line of the schedule does not fit the request that the client makes",
            argument="schedule",
            value=" ".join(word for word in line[:3] if word),
            expected=f"{line.name} {kind}",
            hint="Compare with the story in the notes of this error; only a commit can be lost or repeated.",
        )


def explore_races(
    story: Callable[[Interleaving], object],
    *,
    seeds: int | Iterable[int] = 200,
    faults: FaultRates = NO_FAULTS,
    retry: RetryPolicy = DEFAULT_RETRY,
    limits: Limits = Limits.EMBEDDED,
    errors: Iterable[type[Exception]] = (),
) -> None:
    """Run a story under many seeds, and show the seed and the history of the first failure.

    The story gets a new ``Interleaving`` with an empty store. It adds clients, calls ``run()``, and asserts what must
    hold in any order. An exception of the story ends the exploration.

    Args:
        story: a function that fails if the order of the steps leads to a wrong result.
        seeds: the number of seeds, from 0 on, or the seeds themselves.
        faults: the fault rates of every run.
        retry: the retry policy of every write.
        limits: the limits of the engine.
        errors: the exceptions that a client may end with, those of the library included, such as
            ``UniqueViolationError``.

    Raises:
        Exception: the first exception of the story, or the first one of a client that is not in ``errors``, with its
            seed and the history of the run as a note.
        InvalidArgumentError: there are no seeds, the story ran no client, or ``errors`` has something else than
            exception classes.

    Examples:
        A purchase that reads the stock, and stores a new number without a check, sells the last piece twice:

        >>> from kvmodels import KvModel, PrimaryKey
        >>> class Item(KvModel, collection="items"):
        ...     id: PrimaryKey[int]
        ...     stock: int = 1
        >>> class SoldOut(Exception):
        ...     pass
        >>> async def buy(process):
        ...     item = await process[Item].get(1)
        ...     if item.stock == 0:
        ...         raise SoldOut
        ...     await process[Item].patch(1, stock=item.stock - 1)
        >>> def two_buyers(race):
        ...     process = race.process(Item)
        ...     race.at_once(process[Item].create(id=1))
        ...     race.add("ada", buy(process))
        ...     race.add("bob", buy(process))
        ...     outcomes = race.run().outcomes.values()
        ...     assert sum(outcome.error is None for outcome in outcomes) == 1, "one piece, one buyer"
        >>> try:
        ...     explore_races(two_buyers, errors=[SoldOut])
        ... except AssertionError as error:
        ...     print(error.__notes__[0].splitlines()[0])
        seed 2
    """
    allowed = tuple(errors)
    for seed in _each_seed(seeds):
        race = Interleaving(seed, faults=faults, retry=retry, limits=limits, errors=allowed)
        try:
            story(race)
            _require_outcomes(race, allowed)
        except Exception as error:
            history = str(race.history)
            if history not in getattr(error, "__notes__", ()):
                error.add_note(history)
            raise


def _require_outcomes(race: Interleaving, allowed: tuple[type[Exception], ...]) -> None:
    """Raise the unexpected error of a client; a test that ignores it would test nothing."""
    outcomes = race.history.outcomes.values()
    if not outcomes:
        raise InvalidArgumentError(
            "the story has run no client",
            argument="story",
            hint="Add clients by race.add(name, coroutine), and call race.run().",
        )
    for outcome in outcomes:
        if outcome.error is not None and not isinstance(outcome.error, allowed):
            raise outcome.error


def _each_seed(seeds: int | Iterable[int]) -> Sequence[int]:
    chosen = range(seeds) if isinstance(seeds, int) else tuple(seeds)
    if not chosen:
        raise InvalidArgumentError(
            "an exploration needs at least one seed",
            argument="seeds",
            value=seeds,
            hint="Give the number of seeds, or the seeds in a list.",
        )
    return chosen
