"""Releases that are drawn, one after the other, on one store: indexes come, change and go, and builds are cut off.

After every step the oracle judges the whole store.
"""

from __future__ import annotations

import io
import random
from collections import Counter
from itertools import count
from typing import Any

import pytest

from kvmodels import (
    Database,
    IntegrityError,
    InvalidValueError,
    OperationTooLargeError,
    SchemaMismatchError,
    open_kv,
)
from kvmodels.flows.effects import Commit
from kvmodels.flows.evolution import build, record_pass
from kvmodels.runtime.sync import perform
from tests.evolution.shapes import INDEXES, NEEDS, SPEC, release, values
from tests.oracle import audit, read_store

REFUSED = (IntegrityError, InvalidValueError, OperationTooLargeError, SchemaMismatchError)
KEYS = 6
numbers = count(1)


class Story:
    """One store, the release that runs, and what it did."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.url = f"memory://random-releases-{seed}-{next(numbers)}"
        self.names = set(self.rng.sample(sorted(INDEXES), 6))
        self.changed: set[str] = set()
        self.done: Counter[str] = Counter()
        self.handles: list[Database] = []
        self.open()

    def open(self) -> None:
        """The next release; the old one is closed later, as in a rolling deployment."""
        for name in tuple(self.names):
            self.names.update(NEEDS.get(name, ()))
        self.model = release(self.names, self.changed)
        self.db = Database(self.url, models=[self.model])
        self.handles.append(self.db)
        self.records = self.db[self.model]

    def key(self) -> tuple[tuple[int, str], int]:
        n = self.rng.randrange(KEYS)
        return (n % 2, f"k{n}"), n

    def create(self) -> None:
        (park, name), n = self.key()
        self.records.create(park=park, name=name, **values(self.rng, n))

    def patch(self) -> None:
        key, n = self.key()
        drawn = values(self.rng, n)
        self.records.patch(
            key, **{name: drawn[name] for name in self.rng.sample(sorted(drawn), self.rng.randint(1, 4))}
        )

    def save(self) -> None:
        key, n = self.key()
        self.records.save(self.records.get(key).model_copy(update=values(self.rng, n)))

    def remove(self) -> None:
        self.records.remove(self.key()[0])

    def bulk(self) -> None:
        keys = [self.key() for _ in range(3)]
        objects = [self.model(park=park, name=name, **values(self.rng, n)) for (park, name), n in keys]
        self.records.bulk_create(objects, on_conflict=self.rng.choice(["ignore", "error"]))

    def deploy(self) -> None:
        """Some indexes go, some come, some are defined anew."""
        needed = {name for index in self.names for name in NEEDS.get(index, ())}
        for name in self.rng.sample(sorted(self.names - needed), min(2, len(self.names - needed))):
            self.names.discard(name)
            self.db.drop_index(self.model, name)
        self.names.update(self.rng.sample(sorted(INDEXES), 3))
        self.changed.update(self.rng.sample(sorted(self.names), 1))
        self.open()

    def cut_off(self) -> None:
        """A build that stops before or behind one of its commits."""
        core = self.db._core
        flow = build.build_index(core.context, core.schema_for(self.model), self.rng.choice(sorted(self.names)))
        commits = self.rng.randrange(5)
        try:
            request = next(flow)
            while commits or not isinstance(request, Commit):
                commits -= isinstance(request, Commit)
                request = flow.send(perform(self.db._engine, request))
        except StopIteration:
            return
        if self.rng.random() < 0.5:
            perform(self.db._engine, request)
        flow.close()

    def build(self) -> None:
        self.db.build_indexes()

    def check(self) -> None:
        assert self.db.check().findings == ()

    def judge(self, db: Database, when: object) -> None:
        assert audit(read_store(db.kv), [SPEC]) == [], when

    def run(self, steps: int) -> None:
        verbs: list[Any] = [
            *[self.create] * 3, *[self.patch] * 5, self.save, self.remove, self.bulk, self.deploy,
            *[self.cut_off] * 3, self.build, self.check,
        ]  # fmt: skip
        for step in range(steps):
            verb = self.rng.choice(verbs)
            try:
                verb()
                self.done[verb.__name__] += 1
            except (*REFUSED, self.model.DoesNotExist) as error:
                self.done[type(error).__name__] += 1
            self.judge(self.db, (step, verb.__name__))
        self.db.build_indexes()
        self.judge(self.db, "built")
        self.check()

    def moved(self, codec: Any) -> None:
        """The store of a dump holds the same, and nothing is left when all records are gone."""
        file = io.StringIO()
        self.db.kv.dump(file)
        file.seek(0)
        url = f"{self.url}-{codec}"
        with open_kv(url, codec=codec) as kv:
            kv.load(file)
            with Database(url, models=[self.model], codec=codec) as db:
                assert db.check().findings == ()
                db.build_indexes()
                for record in self.records.all().to_list():
                    assert db[self.model].get(record.pk) == record
                    db[self.model].remove(record.pk)
                assert db.check().findings == ()
                left = [entry for entry in kv.list(prefix=()) if entry.key[0] != "__kvmodels__"]
                assert left == []
                counters = [int(entry.value) for entry in kv.list(prefix=("__kvmodels__", "counter"))]
                assert set(counters) <= {0}

    def close(self) -> None:
        for handle in self.handles:
            handle.close()


def told(seed: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    monkeypatch.setattr(record_pass, "FIRST_BATCH", 2)
    monkeypatch.setattr(record_pass, "LARGEST_BATCH", 3)
    print("seed", seed)
    story = Story(seed)
    story.run(steps)
    for codec in ("msgpack", "v8"):
        story.moved(codec)
    story.close()
    return story.done


def test_indexes_of_every_kind_are_exact_whatever_releases_come_and_wherever_builds_stop(monkeypatch):
    done: Counter[str] = Counter()
    for seed in range(4):
        done += told(seed, 80, monkeypatch)
    assert set(done) >= {"create", "patch", "save", "remove", "bulk", "deploy", "cut_off", "build", "check"}
    assert set(done) >= {"DoesNotExist", "AlreadyExistsError", "UniqueViolationError", "InvalidValueError"}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1_000, 1_060))
def test_many_more_releases(seed, monkeypatch):
    print(told(seed, 200, monkeypatch))
