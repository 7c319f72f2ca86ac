"""Ranked queries beside writers and schema changes, on engines with and without snapshots; and broken ones.

A record that is not written between the first and the last read is returned exactly once, in order.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from math import nextafter
from typing import Any

import pytest

from kvmodels import Database, IndexChangedError, TransactionConflictError
from kvmodels.flows.execution import places, rings
from kvmodels.flows.execution.rings import RankedReader
from kvmodels.flows.reading import ranked as flows
from kvmodels.query.planning import ranked as planning
from tests.kinds.lines import lines
from tests.kinds.ranked import pairs, ranked, stall_model, stalls
from tests.kinds.test_ranked_queries import check_drawn
from tests.query.engines import WatchedEngine, watched
from tests.worlds import in_the_soak


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with lines():
        yield


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_drawn_queries_return_what_python_sorts(seed: int):
    db, _, records = filled(200)
    check_drawn(db, records, seed, 2_000)


SNAPSHOTS = pytest.mark.parametrize("snapshots", [True, False])


def filled(count: int = 60, **options: Any) -> tuple[Database, WatchedEngine, list[Any]]:
    db, engine = watched([stall_model()], **options)
    records = stalls(count)
    db[stall_model()].bulk_create(records)
    return db, engine, records


def other(engine: WatchedEngine) -> Database:
    """Another process on the same store, as far as this one can tell."""
    return watched([stall_model()], engine=engine.inner)[0]


class Writers:
    """Moves, removes and adds records with high keys, and leaves the others alone."""

    def __init__(self, db: Database, seed: int) -> None:
        self._stalls = db[stall_model()]
        self._chance = random.Random(seed)

    def write(self) -> None:
        """Write a few records."""
        chance = self._chance
        for _ in range(chance.randint(1, 4)):
            key = chance.randrange(1_000, 1_030)
            if chance.random() < 0.3:
                self._stalls.filter(id=key).delete()
            else:
                row = stall_model()(id=key, at=chance.randint(-70, 70), kind=chance.choice("abc"))
                self._stalls.bulk_create([row], on_conflict="update")


def stable(hits: Any) -> list[tuple[int, float]]:
    """Return the hits that nobody writes."""
    return [pair for pair in pairs(hits) if pair[0] < 1_000]


@SNAPSHOTS
@pytest.mark.parametrize("seed", [1, 2, *in_the_soak(*range(3, 40))])
def test_pages_beside_writers_have_each_record_that_is_not_written_once_in_order(snapshots: bool, seed: int):
    db, engine, records = filled(snapshots=snapshots)
    writers = Writers(other(engine), seed)
    for narrow, holds in (
        (lambda query: query, lambda one: True),
        (lambda query: query.filter(kind__in=["a", "b"], id__ne=7), lambda one: one.kind in ("a", "b") and one.id != 7),
    ):
        query = narrow(db[stall_model()].nearest("at", 3))
        found: list[tuple[int, float]] = []
        cursor = None
        while True:
            engine.before_read = writers.write
            page = query.page(7, after=cursor)
            found += stable(page)
            assert pairs(page) == sorted(pairs(page), key=lambda pair: (pair[1], pair[0]))
            if page.next_cursor is None:
                break
            assert len(page) == 7
            cursor = page.next_cursor
        assert found == ranked(records, 3, holds)


@SNAPSHOTS
def test_an_iteration_beside_writers_returns_no_record_twice(snapshots: bool):
    db, engine, records = filled(400, snapshots=snapshots)
    moved = other(engine)[stall_model()]
    found: list[Any] = []
    for hit in db[stall_model()].nearest("at", 0):
        found.append(hit)
        if len(found) == 50:
            for earlier in found[:20]:
                moved.patch(earlier.record.id, at=900)
    keys = [hit.record.id for hit in found]
    assert len(keys) == len(set(keys))
    assert pairs(found[:50]) == ranked(records, 0)[:50]
    assert pairs(found) == ranked(records, 0)


@SNAPSHOTS
@pytest.mark.parametrize("place", [13, 900, None], ids=["in its ten", "far away", "nowhere"])
def test_a_record_that_moves_between_two_reads_has_the_distance_of_its_place(snapshots: bool, place: int | None):
    model = stall_model()
    for number in range(1, 6):
        db, engine = watched([model], snapshots=snapshots)
        db[model].bulk_create([model(id=key, at=10 + key) for key in range(4)])
        reads = itertools.count(1)
        elsewhere = other(engine)[model]

        def move(number: int = number, db: Any = elsewhere, engine: Any = engine, reads: Any = reads) -> None:
            if next(reads) == number:
                db.patch(1, at=place)
            else:
                engine.before_read = move

        engine.before_read = move
        hits = db[model].nearest("at", 10)[:4].to_list()
        assert all(hit.distance == abs(hit.record.at - 10) for hit in hits)
        assert [pair for pair in pairs(hits) if pair[0] != 1] == [(0, 0.0), (2, 2.0), (3, 3.0)]


def test_a_damaged_value_of_an_entry_is_not_believed():
    model = stall_model()
    with Database("memory://", models=[model]) as db:
        db[model].bulk_create([model(id=1, at=5), model(id=2, at=7)])
        (wrong,) = [one.value for one in db.kv.list(prefix=("stalls_by_at_line",)) if one.key[-1] == 2]
        db.kv.unsafe().set(("stalls_by_at_line", 0, 1), wrong)
        assert pairs(db[model].nearest("at", 7)) == [(2, 0.0)]
        db.kv.unsafe().set(("stalls_by_at_line", 0, 9), wrong)  # without a record
        assert pairs(db[model].nearest("at", 7)) == [(2, 0.0)]
        db.check(repair=True)
        assert pairs(db[model].nearest("at", 7)) == [(2, 0.0), (1, 2.0)]


@SNAPSHOTS
def test_an_index_that_is_built_anew_ends_pages_and_not_queries(snapshots: bool):
    db, engine, records = filled(400, snapshots=snapshots)
    elsewhere = other(engine)
    query = db[stall_model()].nearest("at", 0)
    cursor = query.page(5).next_cursor

    def rebuild() -> None:
        elsewhere.drop_index(stall_model(), "at_line")
        elsewhere.build_indexes(stall_model())

    engine.before_read = rebuild
    assert pairs(query[:9]) == ranked(records, 0)[:9]
    with pytest.raises(IndexChangedError):
        query.page(5, after=cursor)
    reading = iter(query)
    next(reading)
    rebuild()
    with pytest.raises(IndexChangedError):
        list(reading)
    engine.before_read = rebuild
    assert query.count() == len(ranked(records, 0))


@SNAPSHOTS
@pytest.mark.parametrize("within", [None, 30], ids=["anywhere", "near"])
def test_a_query_whose_index_is_dropped_before_it_reads_tests_what_that_has_answered(
    snapshots: bool, within: float | None
):
    for ask in (
        lambda query: pairs(query[3:9]),
        lambda query: query[3:9].count(),
        lambda query: query.count(),
        lambda query: pairs(query.page(4)),
        lambda query: pairs(query),
    ):
        db, engine, records = filled(snapshots=snapshots)
        query = db[stall_model()].nearest("at", 0, within_m=within).filter(kind="a", open=True)
        assert query.explain().index == "by_both"
        expected = ask(query)
        assert expected
        elsewhere = other(engine)
        for name in ("by_both", "open_ones", "by_kind"):
            engine.before_read = partial(elsewhere.drop_index, stall_model(), name)
            assert ask(query) == expected
        wanted = ranked(records, 0, lambda one: one.kind == "a" and one.open, within)
        assert (query.explain().index, pairs(query)) == ("at_line", wanted)


def test_another_schema_change_is_no_matter():
    db, engine, records = filled()
    elsewhere = other(engine)
    query = db[stall_model()].nearest("at", 0)
    first = query.page(5)
    elsewhere.drop_index(stall_model(), "by_tag")
    assert pairs([*first, *query.page(100, after=first.next_cursor)]) == ranked(records, 0)


def test_a_transaction_conflicts_with_a_change_of_what_it_has_ranked():
    model = stall_model()
    with Database("memory://", models=[model]) as db:
        db[model].bulk_create([model(id=key, at=key) for key in range(9)])
        with pytest.raises(TransactionConflictError), db.transaction() as tx:
            tx[model].nearest("at", 0)[:2].to_list()
            db[model].patch(1, at=100)
            tx[model].patch(8, kind="y")
        with db.transaction() as tx:
            with tx.unchecked():
                tx[model].nearest("at", 0)[:2].to_list()
            db[model].patch(0, at=200)
            tx[model].patch(8, kind="z")
        assert db[model].get(8).kind == "z"


# --- broken on purpose --------------------------------------------------------------------------------------------

Break = Callable[[pytest.MonkeyPatch], None]


def the_filter_is_tested_after_the_limit(patch: pytest.MonkeyPatch) -> None:
    read = flows.RankedScan.next_records

    def ends(self: Any) -> Any:
        found = yield from read(self)
        self.done = self.done or self._remaining is not None
        return found

    patch.setattr(flows.RankedScan, "next_records", ends)


def a_page_is_not_filled(patch: pytest.MonkeyPatch) -> None:
    ended = RankedReader.ended
    assert isinstance(ended, property)
    read = RankedReader.next_records

    def once(self: Any, size: int) -> Any:
        found = yield from read(self, size)
        if self._bounds.after is not None:
            self._exhausted = True
            self._ready.clear()
        return found

    patch.setattr(RankedReader, "next_records", once)


def the_greatest_distance_does_not_count(patch: pytest.MonkeyPatch) -> None:
    made = places.RingRows.__init__

    def narrow(self: Any, index: Any, step: Any, within: float | None, bounds: Any) -> None:
        made(self, index, step, None if within is None else nextafter(within, -1), bounds)

    patch.setattr(places.RingRows, "__init__", narrow)


def ties_are_in_the_order_of_their_entries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rings, "in_order", lambda found: sorted(found, key=lambda one: one.place.distance))


def ties_are_in_the_opposite_order(patch: pytest.MonkeyPatch) -> None:
    in_order = places.in_order

    def turned(found: Any) -> Any:
        return sorted(sorted(in_order(found), reverse=True), key=lambda one: one.place.distance)

    patch.setattr(rings, "in_order", turned)


def _bounds_change(patch: pytest.MonkeyPatch, changed: Callable[[Any], Any]) -> None:
    at = flows._bound_at

    def turned(*arguments: Any) -> Any:
        bound, frozen = at(*arguments)
        return changed(bound), frozen

    patch.setattr(flows, "_bound_at", turned)


def a_page_begins_after_all_records_at_the_distance(patch: pytest.MonkeyPatch) -> None:
    _bounds_change(patch, lambda bound: (bound[0], b"\xff"))


def a_page_begins_with_all_records_at_the_distance(patch: pytest.MonkeyPatch) -> None:
    _bounds_change(patch, lambda bound: (bound[0], b""))


def a_cursor_stands_before_its_record(patch: pytest.MonkeyPatch) -> None:
    _bounds_change(patch, lambda bound: bound[:2])


def only_one_group_is_read(patch: pytest.MonkeyPatch) -> None:
    ranges = RankedReader._ranges
    patch.setattr(RankedReader, "_ranges", lambda self, span: ranges(self, span)[:1])


def every_filter_fixes_the_group(patch: pytest.MonkeyPatch) -> None:
    group = planning._group

    def careless(stem: Any, definition: Any, guaranteed: Any) -> Any:
        found = group(stem, definition, guaranteed)
        return found and found._replace(served=frozenset(range(len(stem.parts))))

    patch.setattr(planning, "_group", careless)


def a_record_counts_in_each_of_its_groups(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rings, "in_order", sorted)


def only_the_first_ring_is_read(patch: pytest.MonkeyPatch) -> None:
    ring = RankedReader._ring

    def once(self: Any, *args: Any) -> Any:
        found = yield from ring(self, *args)
        self._exhausted = True
        return found

    patch.setattr(RankedReader, "_ring", once)


BROKEN: dict[str, Break] = {
    one.__name__.replace("_", " "): one
    for one in (
        the_filter_is_tested_after_the_limit,
        a_page_is_not_filled,
        the_greatest_distance_does_not_count,
        ties_are_in_the_order_of_their_entries,
        ties_are_in_the_opposite_order,
        a_page_begins_after_all_records_at_the_distance,
        a_page_begins_with_all_records_at_the_distance,
        a_cursor_stands_before_its_record,
        only_one_group_is_read,
        every_filter_fixes_the_group,
        a_record_counts_in_each_of_its_groups,
        only_the_first_ring_is_read,
    )
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_reader_is_convicted_by_the_drawn_queries(broken: str, monkeypatch: pytest.MonkeyPatch):
    db, _, records = filled(50)
    BROKEN[broken](monkeypatch)
    with pytest.raises(AssertionError):
        check_drawn(db, records, seed=1, queries=400)


def test_a_reader_that_believes_entries_is_convicted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rings, "holds_entry", lambda context, index, found, row: True)
    with pytest.raises(AssertionError):
        test_a_damaged_value_of_an_entry_is_not_believed()
