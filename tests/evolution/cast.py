"""A whole evolution with five releases in processes of their own, for ``test_side_by_side.py``; run as ``python -m``.

Arguments: path, seed, and what the library is to lack, which all processes of the cast then lack.

Each release changes one thing, is started beside the one before, and is applied while both write and read.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from kvmodels import (
    Database,
    DecodeError,
    Field,
    IndexChangedError,
    Indexed,
    IndexNotReadyError,
    KvModel,
    PrimaryKey,
    RetriesExhaustedError,
    SchemaMismatchError,
    SchemaProgress,
    Unique,
    upgrade,
)
from tests.evolution.mutants_of_releases import MUTANTS

MOVING = 60
"""Records that writers change; the first ones by number."""

FIXED = range(1_000, 1_040)
"""Records that nobody changes, so that every answer must have all of them."""

PHASE_S = 0.3
PATIENCE_OF_ROUNDS_S = 60
ROUNDS_UNTIL_REFUSED = 20
"""Who may not write any more learns it with the first write; some writes end in another way."""


processes = multiprocessing.get_context("fork")


class Fields(KvModel, abstract=True):
    id: PrimaryKey[int]
    email: Unique[str]
    visits: int = 0


class First(Fields, collection="members"):
    color: Indexed[str]


class MoreFields(Fields, abstract=True):
    """New fields with defaults: one in a new index, and one that counts what only newer code writes."""

    plan: Indexed[str] = Field(default="free")
    notes: int = 0


class NewIndex(MoreFields, collection="members"):
    """New fields, and an index of one of them."""

    color: Indexed[str]


class ChangedIndex(MoreFields, collection="members"):
    """Another definition of an index."""

    color: Annotated[str, Indexed(descending=True)]


class DroppedIndex(MoreFields, collection="members"):
    """An index less."""

    color: str


class Upgraded(MoreFields, collection="members"):
    """An upgrade of a field that is in a unique index, and of a counter."""

    color: str

    class Meta:
        schema_version: ClassVar = 2

    @upgrade(to=2, touches=("email", "visits"))
    @staticmethod
    def folded(document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "email": document["email"].casefold(), "visits": document["visits"] + 1_000}


RELEASES: tuple[Any, ...] = (First, NewIndex, ChangedIndex, DroppedIndex, Upgraded)


def member(n: int) -> dict[str, Any]:
    return {"id": n, "email": f"M{n}@X.org", "color": "fixed" if n in FIXED else "red"}


def email_of(model: Any, n: int) -> str:
    return f"m{n}@x.org" if model is Upgraded else f"M{n}@X.org"


def write(db: Any, model: Any, told: Counter[str], rng: random.Random) -> bool:
    """Add a visit to a record, and give it a plan where there are plans; False when nothing may be written any more."""
    n = rng.randrange(MOVING)

    def once_more(found: Any) -> None:
        found.visits += 1
        found.color = rng.choice(["red", "blue"])
        if model is not First:
            found.plan = f"plan-{n}"
            found.notes += 1

    try:
        db[model].mutate(n, once_more)
        told["written"] += 1
        if model is not First:
            told[f"plan-{n}"] += 1
    except SchemaMismatchError:
        told["refused"] += 1
        return False
    except DecodeError:
        told["of a newer version"] += 1
    except RetriesExhaustedError:
        told["contended"] += 1
    time.sleep(0.002)
    return True


def all_pages(query: Any) -> list[int]:
    """The keys that a walk over pages meets, read with a request for each."""
    page = query.page(size=15)
    found = [one.id for one in page.items]
    while page.has_more:
        page = query.page(size=15, after=page.next_cursor)
        found += [one.id for one in page.items]
    return found


def read(db: Any, model: Any, told: Counter[str], rng: random.Random) -> bool:
    """Ask for the records that nobody changes, through every index of the release."""
    fixed = rng.choice(FIXED)
    questions: dict[str, Callable[[], bool]] = {
        "email": lambda: db[model].get(email=email_of(model, fixed)).id == fixed,
        "page": lambda: len(db[model].filter(id__gte=1_000).page(size=100).items) == len(FIXED),
    }
    if "color" in model.__kv_schema__.indexes:
        questions["color"] = lambda: sorted(one.id for one in db[model].filter(color="fixed")) == list(FIXED)
        questions["pages"] = lambda: sorted(all_pages(db[model].filter(color="fixed"))) == list(FIXED)
        questions["count"] = lambda: db[model].filter(color="fixed").count() == len(FIXED)
    if model is not First:
        questions["plan"] = lambda: {*FIXED} <= {one.id for one in db[model].filter(plan="free")}
    for name, ask in questions.items():
        phase = applied_now()
        try:
            told["right" if ask() else f"WRONG {name}"] += 1
            if phase and applied_now() == phase:
                told[f"while {phase} is applied: {name}"] += 1
        except (IndexNotReadyError, IndexChangedError):
            told[f"not ready: {name}"] += 1
        except DecodeError:
            told["of a newer version"] += 1
        except model.DoesNotExist:
            told[f"LOST {name}"] += 1
    return True


applying = processes.Value("i", 0)
"""The number of the release of which a part is applied, for every process of the cast; 0 for none."""


def applied_now() -> str:
    return RELEASES[applying.value].__name__ if applying.value else ""


class Actor:
    """A process of one release that writes or reads until it is told to stop, or may not go on."""

    def __init__(self, path: str, model: Any, act: Callable[..., bool], seed: int) -> None:
        self.name = f"{model.__name__} {act.__name__}"
        self._stop = processes.Event()
        self._rounds = processes.Value("i", 0)
        self._answers, self._answer = processes.Pipe(duplex=False)
        self._process = processes.Process(target=self._run, args=(path, model, act, seed))
        self._process.start()
        self._answer.close()  # so that a process that dies without an answer is an end of file

    def _run(self, path: str, model: Any, act: Callable[..., bool], seed: int) -> None:
        told: Counter[str] = Counter()
        rng = random.Random(seed)
        try:
            with Database(path, models=[model], durability="relaxed", busy_timeout=60) as db:
                while not self._stop.is_set() and act(db, model, told, rng):
                    self._rounds.value += 1  # nobody else adds to it
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            told[f"WRONG {error!r}"] += 1
        finally:
            self._answer.send(dict(told))

    def awaited(self, rounds: int = 1) -> None:
        """Wait until it has done all it does in rounds that begin from now on, however slow the machine is."""
        begun = self._rounds.value
        deadline = time.monotonic() + PATIENCE_OF_ROUNDS_S
        # One round may be under way, so that the second one is the first that has begun later.
        while self._rounds.value < begun + 1 + rounds and self._process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.002)

    def stopped(self, *, told: bool) -> dict[str, int]:
        """Return the errors that it has met; ``told``: it runs until it is stopped, else an error stops it."""
        if not told:
            self.awaited(ROUNDS_UNTIL_REFUSED)
        self._stop.set()
        answer: dict[str, int] = self._answers.recv()
        self._process.join()
        return answer


def evolve(path: str, seed: int) -> dict[str, Any]:
    """Every release in turn; what each process has met."""
    with Database(path, models=[First], durability="relaxed") as db:
        db[First].bulk_create([First(**member(n)) for n in (*range(MOVING), *FIXED)])
    met: dict[str, Any] = {}
    plans: list[list[str]] = []
    writer, reader = Actor(path, First, write, seed), Actor(path, First, read, seed)
    for number, model in enumerate(RELEASES[1:], 1):
        new_writer = Actor(path, model, write, seed + number)
        new_reader = Actor(path, model, read, seed + number)
        time.sleep(PHASE_S)
        for actor in (writer, reader, new_writer, new_reader):
            actor.awaited()
        # One may not write while the store keeps an index that it does not declare, the other while older ones write.
        waits = model in (DroppedIndex, Upgraded)
        if waits:
            met[f"{model.__name__} before"] = new_writer.stopped(told=False)
        with Database(path, models=[model], durability="relaxed", busy_timeout=60) as db:
            plans.append([step.rule for step in db.plan().steps])
            waiting = [reader, new_reader]

            def told(_: SchemaProgress, number: int = number, waiting: list[Actor] = waiting) -> None:
                # In the middle of the change, after its first batch, each reader asks all that it asks.
                applying.value = number
                while waiting:
                    waiting.pop().awaited()

            met[f"{model.__name__} applied"] = db.apply(allow=("drop_index",), throttle=250, progress=told).complete
            applying.value = 0
            # Beside everybody else: entry by entry, in both directions.
            met[f"{model.__name__} checked"] = [str(finding) for finding in db.check().findings]
        if waits:
            new_writer = Actor(path, model, write, seed + number)
        time.sleep(PHASE_S)
        for actor in (writer, reader, new_writer, new_reader):
            actor.awaited()
        # Where an index was only dropped, the release that declares it may write on.
        met[writer.name] = writer.stopped(told=model is DroppedIndex)
        met[reader.name] = reader.stopped(told=True)
        writer, reader = new_writer, new_reader
    met[writer.name], met[reader.name] = writer.stopped(told=True), reader.stopped(told=True)
    return {"met": met, "plans": plans}


if __name__ == "__main__":
    for mutant in sys.argv[3:]:
        MUTANTS[mutant]()
    print(json.dumps(evolve(sys.argv[1], int(sys.argv[2]))))
