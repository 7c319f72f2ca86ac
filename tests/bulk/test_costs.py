"""Bulk writes make requests by batches, never by records."""

from __future__ import annotations

from kvmodels import Database, F
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from tests.bulk.jobs import A_FEW_JOBS, JOBS
from tests.bulk.models import Thing, filled, things
from tests.docs.measured_engine import MeasuredEngine


def measured(count: int) -> tuple[Database, MeasuredEngine]:
    """A database of so many things, and its engine, which counts from now on."""
    engine = MeasuredEngine(MemoryEngine())
    db = filled(Database.from_engine(engine, DatabaseCore([Thing])), count)
    engine.take()
    return db, engine


def test_P7_no_verb_asks_for_each_record_by_itself():
    """Whoever reads the records of another model, or writes many, does so by one request for all of them."""
    costs: set[tuple[tuple[int, int], ...]] = set()
    for count in (10, 100, 400):
        db, engine = measured(count)
        loaded = db[Thing].to_list()
        engine.take()
        asked: list[tuple[int, int]] = []
        for call in (
            lambda: db[Thing].in_bulk(range(count)),  # noqa: B023 - called at once
            lambda: db[Thing].bulk_update(loaded),  # noqa: B023
            lambda: db[Thing].filter(n__gte=0).update(label="x"),  # noqa: B023
            lambda: db[Thing].filter(n__gte=0).update(n=F("n") + 1),  # noqa: B023
            lambda: db[Thing].bulk_create(things(count), on_conflict="update"),  # noqa: B023
            lambda: db[Thing].all().delete(),  # noqa: B023
        ):
            call()
            cost = engine.take()
            asked.append((cost.reads, cost.commits))
        costs.add(tuple(asked))
    # Two unique values change in the fourth and the fifth, so their slots are read as well.
    assert costs == {((1, 0), (0, 1), (2, 1), (3, 1), (2, 1), (2, 1))}


@A_FEW_JOBS
def test_a_resumable_write_adds_a_few_requests(name: str):
    plain, counting = measured(400)
    JOBS[name].run(plain, None)
    alone = counting.take()
    named, counting = measured(400)
    JOBS[name].run(named)
    cost = counting.take()
    assert cost.commits - alone.commits == (2 if "walked" in name else 3)
    assert cost.reads - alone.reads <= 4
    assert JOBS[name].run(named).resumed
    assert counting.take()[:3] == (1, 1, 0)


def test_a_slice_reads_no_more_than_it_needs():
    db, engine = measured(400)
    db[Thing].order_by("pk")[:3].delete()
    assert engine.take()[:3] == (2, 6, 1)
    db[Thing].filter(kind="a").order_by("pk")[10:13].update(label="x")
    assert engine.take()[:3] == (2, 16, 1)
