"""Random steps of several releases on one store, with lost answers, processes that die, and upgrades meanwhile.

A step that is killed or not answered may have happened, in whole or in part: the ledger looks at what is stored after
it, when all that was on its way has arrived, and the history must say the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import count
from typing import Any, NamedTuple

from kvmodels import (
    CommitUnknownError,
    ConcurrencyError,
    Database,
    DecodeError,
    EngineError,
    IndexNotReadyError,
    RetryPolicy,
    SchemaMismatchError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import AtomicWrite, Committed, Conflict
from kvmodels.engines.contract import Engine
from kvmodels.engines.faults import CommitFault, FaultEngine
from tests.history.ledger import Ledger
from tests.history.machine import STEPS, Known, Machine, Team
from tests.history.releases import NEWEST, PLAIN, full, shown
from tests.kv.stores import Clock

KEEPS = (None, 2_000, 6_000)
"""Lifetimes of rows, in ms; 100 steps take about 2,500."""

FAULTS: tuple[CommitFault, ...] = (
    "lose_answer",
    "lose_request",
    "repeat",
    "land_before_next",
    "land_after_next",
    "hold",
    "refuse",
)

QUICK = RetryPolicy(attempts=20, deadline_s=1.0, initial_s=0.0, cap_s=0.0)


class Killed(BaseException):
    """The process is no more."""


class Storm(FaultEngine):
    """An engine that draws faults for commits, and kills its process before or behind one of them; calm if not told.

    Attributes:
        rate: the share of commits with a fault.
        left: the commits until the process dies; 0: it does not.
        applied: whether the last one of them is carried out.
    """

    def __init__(self, inner: Engine, chance: random.Random) -> None:
        super().__init__(inner, plan=lambda _: chance.choice(FAULTS) if chance.random() < self.rate else None)
        self.rate = 0.0
        self.left = 0
        self.applied = False

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self.left -= 1
        if self.left == 0 and not self.applied:
            raise Killed
        try:
            return super().commit(write)
        finally:
            if self.left == 0:
                raise Killed

    def close(self) -> None:
        """The store outlives its processes."""


class Process(NamedTuple):
    """A process with a release of a schema version."""

    version: int
    kind: Any
    db: Database


class FaultyMachine(Machine):
    """Makes random steps in processes of several releases, with lost answers, kills, upgrades and passing lifetimes.

    ``names``: the steps to choose from; by default all.
    """

    refusals = (
        *Machine.refusals,
        CommitUnknownError,
        ConcurrencyError,
        DecodeError,
        EngineError,
        IndexNotReadyError,
        SchemaMismatchError,
    )

    def __init__(self, inner: Engine, clock: Clock, seed: int, names: Sequence[str] = ()) -> None:
        chance = random.Random(seed)
        self.storm, self.judged = Storm(inner, chance), Storm(inner, chance)
        self.processes: list[Process] = []
        self.keep: int | None = None
        self._start(1, full(1, None))
        super().__init__(self.newest.db, clock, seed, self.newest.kind)
        self.chance = chance
        self.names = names or ALL_STEPS
        self.ledger = Ledger(clock.ms)
        self.unfinished: tuple[int, str] | None = None
        self._start(1, PLAIN[0])
        self.judge = opened(self.judged, full(1, None))

    # --- the processes --------------------------------------------------------------------------------------------

    def _start(self, version: int, kind: Any) -> None:
        opened(self.judged, kind)  # which brings up a store without records, so the start below has no commit
        self.processes.append(Process(version, kind, opened(self.storm, kind)))

    @property
    def newest(self) -> Process:
        """The process that brings the store up to its release."""
        return next(one for one in reversed(self.processes) if one.kind not in PLAIN)

    def _choose(self, process: Process) -> None:
        self.kind, self.db = process.kind, process.db
        self.cards, self.teams = self.db[self.kind], self.db[Team]

    def step(self) -> None:
        """Make one random step, with or without faults and a kill."""
        self.clock.ms += self.chance.randrange(1, 50)
        name = self.chance.choice(self.names)
        actor = self.chance.choice([None, "ada", "bob"])
        self._choose(self.chance.choice(self.processes))
        self.storm.rate = self.chance.choice([0.0, 0.3])
        self.storm.left = self.chance.choice([0, 0, 0, 0, self.chance.randrange(1, 6)])
        self.storm.applied = self.chance.random() < 0.5
        with nullcontext() if actor is None else self.db.acting(actor, reason=name):
            try:
                getattr(self, name)()
                self.done[name] += 1
            except self.refusals as error:
                self.done[type(error).__name__] += 1
            except Killed:
                self.done["killed"] += 1
                self.processes = [Process(*one[:2], opened(self.storm, one.kind)) for one in self.processes]
                self.held.clear()
        self.storm.rate, self.storm.left = 0.0, 0
        self.storm.deliver_late()
        self.ledger.note(self.judge, self.newest.kind, name, actor, self.clock.ms)

    # --- the steps ------------------------------------------------------------------------------------------------

    def values(self) -> dict[str, Any]:
        """Return values of a card of the release."""
        further = {"tag": "st", "mark": "uv", "size": range(3), "grade": range(3)}
        drawn = {name: self.chance.choice(some) for name, some in further.items() if name in self.kind.model_fields}
        return {**super().values(), **drawn}

    def former(self, key: int) -> Known:
        """Return the last version of a card that is removed."""
        entries = self.ledger.versions["cards", key]
        return shown(self.kind, key, next(one.document for one in reversed(entries) if one.document is not None))

    def revert(self) -> None:
        """Make a step as the machine does; an older release cannot read all versions."""
        if any(one.kind is self.kind and one.version == self.newest.version for one in self.processes):
            super().revert()

    def remove_cascade(self) -> None:
        """Remove a team in many commits, or what is left after a kill."""
        team, name = self.unfinished or (self.chance.randrange(1, 4), f"team-{self.clock.ms}")
        cards = self.cards.all().allow_scan()
        if not any(one.team == one.lead == team for one in cards):  # which would be changed, and then removed
            self.unfinished = team, name
            self.teams.remove_cascade(team, resume_id=name)
            self.unfinished = None

    def wait(self) -> None:
        """Let lifetimes pass."""
        self.clock.ms += self.chance.randrange(6_000)

    def deploy(self) -> None:
        """Start a release with another lifetime, perhaps of the next schema version, beside those that run."""
        version = self.newest.version
        if version < NEWEST and self.chance.random() < 0.4:
            version += 1
            self._start(version, PLAIN[version - 1])
        self._start(version, full(version, self.chance.choice(KEEPS)))
        self.processes = self.processes[-4:]
        self.judge = opened(self.judged, self.newest.kind)
        if self.chance.random() < 0.7:
            self.apply()

    def apply(self) -> None:
        """Bring the store up to the newest release."""
        self.newest.db.apply(allow=("drop_index",))

    def migrate(self) -> None:
        """Rewrite the records of older schema versions, and forget a field that the newest one has not."""
        forgets = ("tag",) if self.newest.version == NEWEST else ()
        self.newest.db.migrate(self.newest.kind, forget=forgets)

    # --- the comparison -------------------------------------------------------------------------------------------

    def compare(self) -> None:
        """Compare what the newest release reads with the ledger."""
        self.ledger.compare(self.judge, self.newest.kind, self.clock.ms, self.chance)

    def finish(self) -> None:
        """Bring the store up to the newest release without faults, and require that it is whole."""
        self.apply()
        self.ledger.note(self.judge, self.newest.kind, "apply", None, self.clock.ms)
        self.compare()
        assert self.newest.db.plan().is_current
        report = self.judge.check()
        assert report.ok, report


def opened(engine: Engine, kind: Any) -> Database:
    """Return a process over a store, whose deadlines do not depend on the machine."""
    looks = count()
    core = DatabaseCore(
        [kind, Team], retry=QUICK, readonly=False, must_be_current=False, monotonic=lambda: next(looks) * 0.001
    )
    return Database.from_engine(engine, core)


ALL_STEPS = (*STEPS, *STEPS, *STEPS, "wait", "wait", "deploy", "apply", "migrate")
"""The steps of the machine, and more seldom those of releases."""
