"""Walks over unions, intersections and several entries of a record, quiet and beside writers, forward and back.

A record that is not written between the first and the last batch appears exactly once, in order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from threading import Event, Thread
from typing import Any

import pytest

from kvmodels import Database, RetriesExhaustedError
from kvmodels.flows.execution import combination
from kvmodels.flows.execution.join import EntryReader
from tests.query.engines import WatchedEngine, watched
from tests.query.walks import QUERIES, Asked, Spot, backward, forward, spot, spots
from tests.worlds import in_test_servers, in_the_soak

COUNT = 100
NAMES = list(QUERIES)
SOME_NAMES = [*NAMES[::3], *in_the_soak(*(name for at, name in enumerate(NAMES) if at % 3))]
"""For tests that need one query of a few kinds of plans."""


def filled(count: int = COUNT, **options: Any) -> tuple[Database, WatchedEngine]:
    db, engine = watched([Spot], **options)
    db[Spot].bulk_create(spots(count))
    engine.meter.reset()
    return db, engine


@pytest.fixture(scope="module")
def stores() -> Callable[..., tuple[Database, WatchedEngine]]:
    """Stores that no test changes, by the arguments of ``filled``: to fill them takes longer than to ask them."""
    return cache(filled)


@pytest.fixture
def quiet(stores: Callable[..., tuple[Database, WatchedEngine]]) -> tuple[Database, WatchedEngine]:
    return stores()


def ids(found: Any) -> list[int]:
    return [one.id for one in found]


# --- quiet --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_way_to_answer_gives_what_python_gives_in_both_directions(
    quiet: tuple[Database, WatchedEngine], name: str
):
    db, _ = quiet
    case = QUERIES[name]
    asked = case.ask(db[Spot])
    plan = asked.explain()
    assert (plan.combine, any(scan.fans_out for scan in plan.scans)) == (case.combine, case.fans_out)
    wanted = sorted(one.id for one in spots(COUNT) if case.holds(one))
    found = ids(asked)
    assert wanted
    assert sorted(found) == wanted
    assert ids(asked.reverse()) == found[::-1]
    assert asked.count() == len(wanted)
    assert asked.exists()
    assert (asked.first().id, asked.last().id) == (found[0], found[-1])
    assert ids(asked[3:9]) == found[3:9]
    assert asked[3:9].count() == len(found[3:9])
    assert asked[len(found) - 1].id == found[-1]
    for size in (1, 7, 200):
        assert ids(asked.iterator(batch_size=size)) == found


@pytest.mark.parametrize("size", [3, 500, *in_the_soak(1)])
@pytest.mark.parametrize("name", NAMES)
def test_a_walk_forward_and_a_walk_back_give_the_same_pages(
    quiet: tuple[Database, WatchedEngine], name: str, size: int
):
    asked = QUERIES[name].ask(quiet[0][Spot])
    pages = [ids(page) for page in forward(asked, size)]
    assert [one for page in pages for one in page] == ids(asked)
    assert [ids(page) for page in backward(asked, size)] == pages[::-1]


@pytest.mark.parametrize("name", NAMES)
def test_a_cursor_of_one_direction_serves_in_the_other(quiet: tuple[Database, WatchedEngine], name: str):
    asked = QUERIES[name].ask(quiet[0][Spot])
    one = asked.page(size=2)
    two = asked.page(size=2, after=one.next_cursor)
    assert ids(asked.page(size=2, before=two.previous_cursor)) == ids(one)
    assert ids(asked.page(size=2, before=one.next_cursor)) == ids(one)
    assert ids(asked.page(size=2, after=two.previous_cursor)) == ids(two)
    assert ids(asked.page(size=100, before=two.next_cursor)) == [*ids(one), *ids(two)]
    back = asked.page(size=2, before=two.next_cursor)
    assert ids(asked.page(size=2, after=back.next_cursor)) == ids(asked.page(size=2, after=two.next_cursor))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_that_became_empty_still_leads_back(name: str):
    db, _ = filled()
    asked = QUERIES[name].ask(db[Spot])
    first = asked.page(size=3)
    for one in asked[3:]:
        db[Spot].remove(one.id)
    empty = asked.page(size=3, after=first.next_cursor)
    assert (empty.items, empty.next_cursor, empty.has_previous) == ([], None, True)
    assert ids(asked.page(size=3, before=empty.previous_cursor)) == ids(first)
    for one in first:
        db[Spot].remove(one.id)
    before = asked.page(size=3, before=first.next_cursor)
    assert (before.items, before.previous_cursor, before.has_more) == ([], None, True)


@pytest.mark.parametrize(
    "options",
    [
        {"max_ranges": 2},
        {"snapshots": False, "max_ranges": 3},
        *in_test_servers({"snapshots": False}, {"max_ranges": 7}),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_an_engine_without_snapshots_or_with_few_ranges_gives_the_same(
    stores: Callable[..., tuple[Database, WatchedEngine]], name: str, options: dict[str, Any]
):
    db, engine = stores(**options)
    case = QUERIES[name]
    expected = ids(case.ask(stores()[0][Spot]))
    engine.meter.reset()
    asked = case.ask(db[Spot])
    assert ids(asked) == expected
    assert asked.count() == len(expected)
    assert [one.id for page in forward(asked, 7) for one in page] == expected
    if not options.get("snapshots", True):
        assert engine.meter.followed == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_query_streams_in_bounded_memory(stores: Callable[..., tuple[Database, WatchedEngine]], name: str):
    db, engine = stores(800)
    asked = QUERIES[name].ask(db[Spot])
    expected = ids(asked)
    most = 0
    found = []
    engine.meter.reset()
    for one in asked.iterator(batch_size=10):
        most = max(most, engine.meter.rows + engine.meter.followed)
        engine.meter.reset()
        found.append(one.id)
    assert found == expected
    # Ten rows of each scan and their records; empty ranges and rows that do not count lie between two results.
    assert most <= 200, most


@pytest.mark.parametrize("options", [{}, {"snapshots": False}, {"max_ranges": 5}])
@pytest.mark.parametrize("name", NAMES)
def test_an_analysis_counts_what_the_engine_gives(
    stores: Callable[..., tuple[Database, WatchedEngine]], name: str, options: dict[str, Any]
):
    db, engine = stores(**options)
    for asked in (QUERIES[name].ask(db[Spot]), QUERIES[name].ask(db[Spot])[2:30]):
        expected = len(asked.to_list())
        engine.meter.reset()
        analysis = asked.explain(analyze=True).analysis
        meter = engine.meter
        assert (analysis.batches, analysis.reads) == (meter.reads, meter.rows + meter.followed)
        assert analysis.results == expected
        if not options and "intersection" not in name:  # which looks up entries, too
            assert analysis.records == meter.followed


# --- beside writers -----------------------------------------------------------------------------------------------


class Writers:
    """Random writes to some of the records, and to new ones; the others stay as they are."""

    def __init__(self, db: Database, seed: int) -> None:
        print("seed", seed)
        self._db = db
        self._rng = random.Random(seed)
        self._fresh = iter(range(10_000, 99_000))
        self.touched = {number for number in range(COUNT) if self._rng.random() < 0.4}
        self._numbers = sorted(self.touched)

    def write(self, most: int = 3) -> None:
        for _ in range(self._rng.randrange(most + 1)):
            self._one()

    def _one(self) -> None:
        rng, repository = self._rng, self._db[Spot]
        verb = rng.choice(["insert", "update", "update", "remove"])
        number = rng.choice(self._numbers)
        if verb == "insert":
            new = next(self._fresh)
            repository.create(**spot(rng, new if rng.random() < 0.5 else -new))
        elif verb == "remove":
            repository.remove(number)
        elif repository.get_or_none(number) is None:
            repository.create(**{**spot(rng, number), "code": None})
        else:
            changes = spot(rng, number)
            kept = rng.sample(["land", "pop", "zone", "kind", "names"], rng.randrange(1, 5))
            repository.patch(number, **{field: changes[field] for field in kept})


def untouched(found: list[int], touched: set[int]) -> list[int]:
    return [id for id in found if 0 <= id < COUNT and id not in touched]


Walk = Callable[[Any, Callable[[], object]], list[int]]


def page_walk(asked: Any, between: Callable[[], object]) -> list[int]:
    return walked(forward(asked, 4), between)


def page_walk_back(asked: Any, between: Callable[[], object]) -> list[int]:
    return walked((page[::-1] for page in backward(asked, 4)), between)[::-1]


def iteration(asked: Any, between: Callable[[], object]) -> list[int]:
    return walked(([one] for one in asked.iterator(batch_size=5)), between)


def iteration_back(asked: Any, between: Callable[[], object]) -> list[int]:
    return walked(([one] for one in asked.reverse().iterator(batch_size=5)), between)[::-1]


def walked(pages: Iterator[list[Any]], between: Callable[[], object]) -> list[int]:
    found = []
    for page in pages:
        found += ids(page)
        between()
    return found


WALKS: dict[str, Walk] = {
    "pages": page_walk,
    "pages back": page_walk_back,
    "iteration": iteration,
    "iteration back": iteration_back,
}


def walk_beside_writers(case: Asked, walk: Walk, seed: int, **options: Any) -> tuple[list[int], list[int]]:
    """The records that nobody touched, as they were found, and as they must be."""
    db, engine = filled(**options)
    writers = Writers(db, seed)
    asked = case.ask(db[Spot])
    expected = untouched(ids(asked), writers.touched)
    between: Callable[[], object] = writers.write
    if not options.get("snapshots", True):
        # Also between the reads of a batch, which then sees two states of the store.
        def write_before_each_read() -> None:
            engine.before_read = None
            writers.write(1)
            engine.before_read = write_before_each_read

        engine.before_read = write_before_each_read
        between = int
    found = untouched(walk(asked, between), writers.touched)
    engine.before_read = None
    assert db.check().ok
    return found, expected


@pytest.mark.parametrize("walk", ["pages", *in_test_servers("pages back", "iteration", "iteration back")])
@pytest.mark.parametrize("name", NAMES)
def test_a_walk_skips_and_repeats_no_record_that_nobody_writes(name: str, walk: str):
    found, expected = walk_beside_writers(QUERIES[name], WALKS[walk], NAMES.index(name))
    assert expected
    assert found == expected


@pytest.mark.soak
@pytest.mark.parametrize("walk", list(WALKS))
@pytest.mark.parametrize("name", NAMES)
def test_many_walks_skip_and_repeat_no_record_that_nobody_writes(name: str, walk: str):
    for seed in range(100, 200):
        found, expected = walk_beside_writers(QUERIES[name], WALKS[walk], seed)
        assert found == expected


@pytest.mark.parametrize("walk", ["iteration", *in_test_servers("pages", "pages back")])
@pytest.mark.parametrize("name", NAMES)
def test_without_snapshots_a_walk_skips_and_repeats_no_record_that_nobody_writes(name: str, walk: str):
    found, expected = walk_beside_writers(QUERIES[name], WALKS[walk], NAMES.index(name), snapshots=False)
    assert found == expected


@pytest.mark.parametrize("name", SOME_NAMES)
def test_a_walk_beside_threads_skips_and_repeats_no_record_that_nobody_writes(name: str):
    with Database("memory://", models=[Spot]) as db:
        db[Spot].bulk_create(spots(COUNT))
        writers = Writers(db, NAMES.index(name))
        asked = QUERIES[name].ask(db[Spot])
        expected = untouched(ids(asked), writers.touched)
        stop = Event()

        def write() -> None:
            while not stop.is_set():
                try:
                    writers.write()
                except RetriesExhaustedError:
                    continue

        thread = Thread(target=write)
        thread.start()
        try:
            for walk in (page_walk, page_walk_back, iteration):
                assert untouched(walk(asked, int), writers.touched) == expected
        finally:
            stop.set()
            thread.join()
        assert db.check().ok


# --- proofs that these tests can fail -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in NAMES if QUERIES[name].fans_out])
def test_without_the_rule_of_the_first_entry_a_walk_repeats_records(
    quiet: tuple[Database, WatchedEngine], name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(EntryReader, "_is_first", lambda self, hit, row: True)
    db, _ = quiet
    found = ids(QUERIES[name].ask(db[Spot]))
    assert len(found) > len(set(found))


@pytest.mark.parametrize("name", [name for name in NAMES if QUERIES[name].combine == "concatenate"])
def test_without_the_rule_of_the_earlier_scan_a_walk_repeats_records(
    quiet: tuple[Database, WatchedEngine], name: str, monkeypatch: pytest.MonkeyPatch
):
    made = EntryReader.__init__

    def forgetful(self: EntryReader, *args: Any) -> None:
        made(self, *args)
        self._dropped = []

    monkeypatch.setattr(EntryReader, "__init__", forgetful)
    db, _ = quiet
    # By pages: an iteration of several batches also remembers what it has returned.
    found = [one.id for page in forward(QUERIES[name].ask(db[Spot]), 7) for one in page]
    assert len(found) > len(set(found))


@pytest.mark.parametrize("name", [name for name in NAMES if QUERIES[name].combine == "merge"])
def test_a_merge_of_more_scans_than_rows_is_right_and_one_that_believes_every_row_is_not(
    quiet: tuple[Database, WatchedEngine], name: str, monkeypatch: pytest.MonkeyPatch
):
    asked = QUERIES[name].ask(quiet[0][Spot])
    expected = ids(asked)
    monkeypatch.setattr(combination, "SPECULATIVE_ROWS", 4)
    assert ids(asked) == expected
    assert [one.id for page in forward(asked, 7) for one in page] == expected
    assert ids(asked.reverse()) == expected[::-1]
    monkeypatch.setattr(combination.Merge, "_horizon", lambda self, parts: None)
    assert ids(asked) != expected


@pytest.mark.parametrize("name", [name for name in NAMES if QUERIES[name].combine == "intersect"])
def test_an_intersection_that_goes_on_behind_its_furthest_scan_loses_records(
    quiet: tuple[Database, WatchedEngine], name: str, monkeypatch: pytest.MonkeyPatch
):
    asked = QUERIES[name].ask(quiet[0][Spot])
    expected = ids(asked)
    assert [one.id for page in forward(asked, 2) for one in page] == expected
    behind = combination.Intersection._behind

    def behind_the_furthest(self: Any, stretches: Any, edge: bytes | None) -> Any:
        return behind(self, stretches, max((one.edge for one in stretches if one.edge is not None), default=edge))

    monkeypatch.setattr(combination.Intersection, "_behind", behind_the_furthest)
    assert [one.id for page in forward(asked, 2) for one in page] != expected


def slices(asked: Any, between: Callable[[], object]) -> list[int]:
    """Pages that are counted from the beginning instead of read on from a place."""
    found: list[int] = []
    at = 0
    while part := ids(asked[at : at + 2]):
        found += part
        at += 2
        between()
    return found


@pytest.mark.parametrize("name", SOME_NAMES)
def test_pages_that_are_counted_from_the_beginning_skip_or_repeat_records_beside_the_same_writers(name: str):
    for seed in range(40):
        found, expected = walk_beside_writers(QUERIES[name], slices, seed)
        if found != expected:
            return
    raise AssertionError("the writers move nothing that a walk stands on")
