"""On an engine behind a network a query reads several ranges, and the records behind their entries, at once."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Annotated

import pytest

from kvmodels import Database, Indexed, KvModel, PrimaryKey
from kvmodels.core.operations import MultiRangeFollow
from kvmodels.engines import url as opening
from kvmodels.engines.memory.engine import MemoryEngine
from tests.passing_engine import PassingEngine


class Account(KvModel):
    number: Annotated[int, PrimaryKey()]
    city: Annotated[str, Indexed()]
    score: int


class RemoteEngine(PassingEngine):
    """Notes the reads."""

    def __init__(self, inner):
        super().__init__(inner)
        self.reads = []

    @property
    def traits(self):
        return replace(super().traits, remote=True)

    def read(self, ranges, guard=None, *, include_expired=False, follow=None):
        self.reads.append((len(ranges), follow))
        return self.inner.read(ranges, guard, include_expired=include_expired, follow=follow)


@pytest.fixture
def db(monkeypatch):
    monkeypatch.setattr(
        opening, "memory", SimpleNamespace(MemoryEngine=lambda *a, **o: RemoteEngine(MemoryEngine(*a, **o)))
    )
    drawn = random.Random(5)
    with Database("memory://", models=[Account]) as db:
        db[Account].bulk_create(
            Account(number=n, city=drawn.choice(["Bonn", "Kiel", "Ulm", "Jena", "Gera"]), score=drawn.randrange(9))
            for n in range(300)
        )
        yield db


def reads(db):
    found, db._engine.reads = db._engine.reads, []
    return found


@pytest.mark.fast_kinds
def test_a_page_of_three_values_is_one_read_that_says_what_follows(db):
    db[Account].filter(city="Bonn").first()
    reads(db)
    page = db[Account].filter(city__in=["Bonn", "Kiel", "Ulm"])[:20].to_list()
    ((ranges, follow),) = reads(db)
    assert (len(page), ranges, type(follow)) == (20, 3, MultiRangeFollow)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [1, 2, 59, 60, 61, 120, 300])
def test_pages_of_several_values_are_those_of_an_engine_that_is_near(db, size, reverse):
    cities = ["Gera", "Bonn", "Kiel", "Atlantis", "Jena"]
    query = db[Account].filter(city__in=cities)
    query = query.order_by("-city", "-number") if reverse else query.order_by("city", "number")
    everything = sorted(
        (one for one in db[Account].all() if one.city in cities),
        key=lambda one: (one.city, one.number),
        reverse=reverse,
    )
    assert query[:size].to_list() == everything[:size]
    cursor, found = None, []
    while True:
        page = query.page(size=size, after=cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == everything


def test_one_range_is_asked_for_as_many_rows_as_are_wanted(db):
    assert len(db[Account].filter(city="Bonn")[:300].to_list()) > 30
    reads(db)
    list(db[Account].all()[:250])
    assert [ranges for ranges, _ in reads(db)] == [1]
