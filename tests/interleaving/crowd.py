"""A crowd of clients of every kind over one collection, drawn from a seed, and the judgement of its run.

Eight writers (two of them of an older release), two builders of three late indexes, one that drops an index and
builds it again, readers through every index, a checker, and time that passes. To see one run step by step:

    python -m tests.interleaving.crowd SEED
"""

from __future__ import annotations

import random
import sys
import types
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable
from hashlib import sha256
from typing import Any

from kvmodels import (
    CommitUnknownError,
    IndexChangedError,
    IndexNotReadyError,
    KvModelsError,
    RetryPolicy,
    SchemaMismatchError,
    UniqueViolationError,
)
from kvmodels.core.keys import decode_key, encode_key
from kvmodels.core.operations import Conflict, GuardFailed, ReadRange, after_prefix
from kvmodels.flows.effects import CountRows, Read, Request
from kvmodels.flows.evolution.build import build_index
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import FaultRates, StepHistory
from tests.interleaving.exchange import exchange
from tests.interleaving.models import OldPerson, Person
from tests.interleaving.verdict import (
    CODEC,
    SPEC,
    Deed,
    counter_faults,
    history_faults,
    outcome_faults,
    records_of,
    store_faults,
)

KEYS = ("a", "b", "c", "d", "e", "f")
MORE_KEYS = ("g", "h", "i", "j")
COUNTERS = ("m", "n")
EMAILS = (None, None, "e1", "e2", "e3", "e4")
PHONES = (None, None, "p1", "p2", "p3")
PEOPLE = ReadRange(encode_key(("people",)), after_prefix(encode_key(("people",))))
PATIENT = RetryPolicy(deadline_s=1e6)
CALM = FaultRates(cancel=0.002)
STORM = FaultRates(lose_answer=0.06, lose_request=0.04, repeat=0.1, echo=0.12, hold=0.08, cancel=0.002)


Matches = Callable[[dict[str, Any]], bool]
"""Whether a stored document is one of those that were asked for."""


def equal_to(wanted: dict[str, Any]) -> Matches:
    """The documents that store these values."""
    return lambda value: all(value.get(field) == content for field, content in wanted.items())


@types.coroutine
def observed(client: Coroutine[Request, Any, Any], look: Any) -> Generator[Request, Any, Any]:
    """Pass on what a client asks for, and look at the store right behind each read, in the same step."""
    answer: Any = None
    step: Any = client.send
    while True:
        try:
            request = step(answer)
        except StopIteration as done:
            return done.value
        try:
            answer = yield request
            step = client.send
            if isinstance(request, Read | CountRows):
                look()
        except KvModelsError as error:
            step, answer = client.throw, error
        except GeneratorExit:
            client.close()
            raise


class Crowd:
    """The clients of one run, what they did and what they saw."""

    old_model: type[Any] = OldPerson
    model: type[Any] = Person
    spec: Any = SPEC
    builds: tuple[tuple[str, ...], ...] = (("score", "ranking"), ("phone", "ranking"))
    dropped: tuple[str, ...] = ("zone",)
    first_lifetimes: tuple[float | None, ...] = (None, None, None, 30)
    lifetimes: tuple[float | None, ...] = (None, None, 10)
    swapped: tuple[str, ...] = ("email", "city")
    asked: tuple[str, ...] = ("city", "zone", "team", "score", "email", "phone", "ranking", "pages")
    verbs_drawn: tuple[str, ...] = (
        "create",
        "create",
        "bulk",
        "patch",
        "patch",
        "hit",
        "hit",
        "save",
        "remove",
        "renew",
        "find",
        "swap",
        "visit",
    )

    def __init__(self, seed: int, *, schedule: Iterable[str] = (), judge_tokens: bool = True) -> None:
        self.chance = random.Random(f"{type(self).__name__.lower()} {seed}")
        self.stormy = self.chance.random() < 0.6
        self.test = Interleaving(seed, schedule=schedule, faults=STORM if self.stormy else CALM, retry=PATIENT)
        self.seed = seed
        self.tokens = self.stormy and judge_tokens
        self.deeds: list[Deed] = []
        self.faults: list[str] = []
        self.verbs: Counter[str] = Counter()
        self.processes: dict[str, Process] = {}
        self.abandoned: list[str] = []
        self.answers: dict[str, bool] = {}
        self._prepare()
        self._add_clients()

    # --- the crowd --------------------------------------------------------------------------------------------

    def _values(self, chance: random.Random, model: type[Any] | None = None) -> dict[str, Any]:
        values = {
            "email": chance.choice(EMAILS),
            "city": chance.choice("xyz"),
            "zone": chance.choice("ns"),
            "team": chance.choice(("red", "blue")),
            "phone": chance.choice(PHONES),
        }
        return values | ({} if model is self.old_model else {"score": chance.randint(0, 3)})

    def _prepare(self) -> None:
        old = self.test.process(self.old_model)
        for key in (*KEYS[: self.chance.randint(2, 6)], *COUNTERS):
            lifetime = self.chance.choice(self.first_lifetimes)
            person = self.old_model(id=key, **self._values(self.chance, self.old_model))
            try:
                lasting = None if key in COUNTERS else lifetime
                self.test.at_once(old[self.old_model].insert(person, expire_in=lasting))
            except UniqueViolationError:
                self._give_way(person)
                self.test.at_once(old[self.old_model].insert(person))
        self.old = [self.test.process(self.old_model) for _ in range(2)]
        self.hits = dict.fromkeys(COUNTERS, 0)

    def _give_way(self, person: Any) -> None:
        """Take the unique values from a person of the beginning that somebody else has already."""
        person.email = None

    def _add_clients(self) -> None:
        for number, process in enumerate(self.old, 1):
            self.test.add(f"old{number}", self._writer(f"old{number}", process, self.old_model, 3))
        new = [self.test.process(self.model) for _ in range(6)]
        if not self.stormy:
            new[5] = new[4]  # two clients that share a cached header; with tokens, each deed must know its own
        for number, process in enumerate(new, 1):
            self.test.add(f"new{number}", self._writer(f"new{number}", process, self.model, 3))
        for number, names in enumerate(self.builds, 1):
            self.test.add(f"build{number}", self._builder(self.test.process(self.model), names))
        if self.chance.random() < 0.5:
            self.test.add("drop", self._dropper(self.test.process(self.model)))
        for number in (1, 2):
            self.test.add(f"read{number}", self._reader(f"read{number}", self.test.process(self.model), 5))
        self.test.add("check", self._checker(self.test.process(self.model)))
        self.test.add("ask", self._asker(self.test.process(self.model)))
        self.test.add("time", self._sleeper(self.test.process(self.model)))

    async def _builder(self, process: Process, names: Iterable[str]) -> None:
        for name in names:
            await process.run(build_index(process.context, process.schema(self.model), name))

    async def _dropper(self, process: Process) -> None:
        name = self.chance.choice(self.dropped)
        await process.drop_index(self.model, name)
        await process.run(build_index(process.context, process.schema(self.model), name))

    async def _checker(self, process: Process) -> None:
        report = await process.check()
        self.faults += [f"the check reports {finding}" for finding in report.findings]

    async def _asker(self, process: Process) -> None:
        """Find out what became of the writes of stopped clients; the answer must stay true."""
        for _ in range(4):
            await process.sleep(10)
            while self.abandoned:
                token = self.abandoned.pop()
                self.answers[token] = await process.outcome(token)
                self.verbs["outcome"] += 1

    async def _sleeper(self, process: Process) -> None:
        for _ in range(3):
            await process.sleep(15)

    # --- writers ----------------------------------------------------------------------------------------------

    async def _writer(self, name: str, process: Process, model: type[Any], deeds: int) -> None:
        self.processes[name] = process
        chance = random.Random(f"{self.seed} {name}")
        for _ in range(deeds):
            verb = chance.choice(self.verbs_drawn)
            deed = Deed(name, verb)
            self.deeds.append(deed)
            drawn = len(process.tokens)
            try:
                await getattr(self, f"_{verb}")(deed, process[model], model, chance)
                deed.state = "done"
                deed.acknowledged += deed.writes
                self.verbs[verb] += 1
            except CommitUnknownError as error:
                deed.error = error
            except SchemaMismatchError as error:
                deed.state, deed.error = "failed", error
                if model is self.model:
                    self.faults.append(f"{name} cannot write: {error}")
                return
            except KvModelsError as error:
                deed.state, deed.error = "failed", error
            except GeneratorExit:
                self.abandoned += process.tokens[drawn:]
                raise
            finally:
                deed.tokens = process.tokens[drawn:]

    async def _create(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        person = model(id=chance.choice(KEYS), **self._values(chance, model))
        await people.insert(person, expire_in=chance.choice(self.lifetimes))
        deed.wrote[person.versionstamp, person.id] = None

    async def _visit(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        """Come and go: what is delivered again afterwards must not bring the record back."""
        person = model(id=chance.choice(MORE_KEYS), **self._values(chance, model))
        await people.insert(person)
        deed.wrote[person.versionstamp, person.id] = None
        deed.acknowledged += 1
        deed.writes = False
        deed.writes = await people.remove(person.id)

    async def _bulk(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        keys = chance.sample(KEYS + MORE_KEYS, 3)
        persons = [model(id=key, **self._values(chance, model)) for key in keys]
        items = await people.bulk_create(persons, on_conflict=chance.choice(("error", "ignore", "ignore")))
        deed.writes = any(item.created for item in items)
        for item in items:
            if item.created:
                deed.wrote[item.obj.versionstamp, item.obj.id] = None

    async def _patch(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        values = self._values(chance, model)
        some = {name: values[name] for name in chance.sample(sorted(values), chance.randint(1, 3))}
        await people.patch(chance.choice(KEYS + COUNTERS), **some)

    async def _hit(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        key, more = chance.choice(COUNTERS), chance.randint(1, 9)

        def raise_hits(person: Any) -> None:
            person.hits += more

        deed.hits = key, more
        await people.mutate(key, raise_hits)

    async def _save(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        deed.writes = False
        person = await people.get_or_none(chance.choice(KEYS))
        if person is None:
            return
        loaded = person.versionstamp
        for name, value in self._values(chance, model).items():
            setattr(person, name, value)
        deed.writes = True
        await people.save(person)
        deed.wrote[person.versionstamp, person.id] = loaded

    async def _remove(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        deed.writes = False
        deed.writes = await people.remove(chance.choice(KEYS))

    async def _renew(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        await people.patch(chance.choice(KEYS), expire_in=chance.choice((None, 10, 100)))

    async def _find(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        values = self._values(chance, model) | {"id": chance.choice(KEYS)}
        email = values.pop("email") or "e5"
        _, deed.writes = await people.get_or_create(email=email, defaults=values)

    async def _swap(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        one, other = deed.exchanged = tuple(chance.sample(KEYS, 2))
        field = chance.choice(self.swapped)
        process = self.processes[deed.client]
        deed.writes = False
        deed.writes = await process.run(exchange(process.context, process.schema(model), one, other, field))

    # --- readers ----------------------------------------------------------------------------------------------

    def _look(self) -> dict[str, tuple[dict[str, Any], str]]:
        """The visible records, each with its versionstamp."""
        result = self.test.engine.read([PEOPLE])
        assert not isinstance(result, GuardFailed)
        return {
            str(decode_key(row.key)[1]): (CODEC.decode(row.value, row.encoding), row.versionstamp.hex())
            for row in result.ranges[0]
        }

    async def _reader(self, name: str, process: Process, reads: int) -> None:
        chance = random.Random(f"{self.seed} {name}")
        people = process[self.model]
        for _ in range(reads):
            field = chance.choice(self.asked)
            try:
                await self._ask(name, people, field, chance)
                self.verbs[f"read {field}"] += 1
            except (IndexNotReadyError, IndexChangedError) as error:
                self.verbs[type(error).__name__] += 1

    async def _ask(self, name: str, people: Any, field: str, chance: random.Random) -> None:
        if field == "pages":
            column = chance.choice(("city", "zone"))
            await self._walk(name, people, {column: self._values(chance)[column]})
        else:
            values = self._values(chance)
            wanted = {field: values[field]} if field in values else {"city": values["city"]}
            await self._query(name, people, wanted, ranked=field == "ranking")

    async def _query(
        self, name: str, people: Any, wanted: dict[str, Any], *, ranked: bool = False, matches: Matches | None = None
    ) -> None:
        seen: list[dict[str, tuple[dict[str, Any], str]]] = []
        matches = matches or equal_to(wanted)
        query = people.filter(**wanted)
        query = query.order_by("-score") if ranked else query
        found = await observed(query.to_list(), lambda: seen.append(self._look()))
        matching = [key for key, (value, _) in seen[-1].items() if matches(value)]
        if sorted(person.id for person in found) != sorted(matching):
            self.faults.append(f"{name} asked for {wanted} and got {[one.id for one in found]} of {sorted(matching)}")
        if ranked and [one.score for one in found] != sorted((one.score for one in found), reverse=True):
            self.faults.append(f"{name} got {[one.score for one in found]} in a wrong order")

    async def _walk(self, name: str, people: Any, wanted: dict[str, Any], matches: Matches | None = None) -> None:
        """Page by page: what nobody wrote meanwhile is there exactly once."""
        seen: list[dict[str, tuple[dict[str, Any], str]]] = []
        found: list[str] = []
        cursor: str | None = None
        matches = matches or equal_to(wanted)
        while True:
            page = await observed(people.filter(**wanted).page(size=2, after=cursor), lambda: seen.append(self._look()))
            found += [person.id for person in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        for key, (value, stamp) in seen[0].items():
            untouched = all(look.get(key, (None, ""))[1] == stamp for look in seen)
            if untouched and found.count(key) != matches(value):
                self.faults.append(f"{name} walked {wanted} and met {key!r} {found.count(key)} times: {found}")

    # --- the judgement ----------------------------------------------------------------------------------------

    def run(self) -> StepHistory:
        """Run everybody, judge the store as it is left, let a new process finish what was interrupted, judge again."""
        history = self.test.run()
        self.faults += [f"store: {fault}" for fault in store_faults(self.test.engine, self.spec)]
        self.faults += history_faults(history, self.deeds, tokens=self.tokens)
        self.faults += outcome_faults(history, self.answers)
        after = {key: value["hits"] for key, value in records_of(self.test.engine).items()}
        self.faults += counter_faults(history, self.deeds, self.hits, after, tokens=self.tokens)
        last = self.test.process(self.model)
        self.test.at_once(last.build_indexes())
        self.faults += [f"store when built: {fault}" for fault in store_faults(self.test.engine, self.spec)]
        return history


class Tally:
    """The sums of many runs."""

    def __init__(self) -> None:
        self.runs = 0
        self.steps = 0
        self.conflicts = 0
        self.schedules: set[bytes] = set()
        self.injected: Counter[str] = Counter()
        self.verbs: Counter[str] = Counter()
        self.faults: dict[int, list[str]] = {}

    def add(self, crowd: Crowd, history: StepHistory) -> None:
        """Count one run."""
        self.runs += 1
        self.steps += len(history.steps)
        self.conflicts += sum(isinstance(landing.outcome, Conflict) for landing in history.landings)
        self.schedules.add(sha256("\n".join(history.lines).encode()).digest())
        self.injected.update(line.split()[2] for line in history.lines if line.count(" ") == 2)
        self.injected["deliver"] += sum(line.startswith("deliver") for line in history.lines)
        self.verbs.update(crowd.verbs)
        if crowd.faults:
            self.faults[crowd.seed] = crowd.faults

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {len(self.schedules)} distinct schedules, {self.steps} steps, "
            f"{self.conflicts} commits that met a conflict and were tried again, injected {dict(self.injected)}, "
            f"finished {dict(self.verbs)}, {len(self.faults)} runs with violations"
        )


def run_seeds(seeds: Iterable[int], kind: type[Crowd] = Crowd) -> Tally:
    """Run one crowd per seed."""
    tally = Tally()
    for seed in seeds:
        crowd = kind(seed)
        tally.add(crowd, crowd.run())
    return tally


def replay(seed: int, kind: type[Crowd] = Crowd) -> None:
    """Print the story of one seed and what is wrong."""
    crowd = kind(seed)
    print(crowd.run())
    print(*(crowd.faults or ["no violation"]), sep="\n")


if __name__ == "__main__":
    replay(int(sys.argv[1]))
