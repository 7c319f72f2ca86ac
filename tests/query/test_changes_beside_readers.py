"""Readers beside schema changes and writers: guards, two reads without snapshots, entries without their record."""

from __future__ import annotations

from typing import Any

import pytest

from kvmodels import (
    Database,
    DecodeError,
    DoesNotExist,
    Field,
    IndexChangedError,
    Indexed,
    IndexNotReadyError,
    KvModel,
    PrimaryKey,
    RetriesExhaustedError,
    Unique,
)
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, Delete, ReadResult, Set, point
from tests.query.engines import WatchedEngine, watched


class Ship(KvModel, collection="ships"):
    id: PrimaryKey[int]
    name: Unique[str]
    port: Indexed[str]
    size: Indexed[int] = Field(default=0)


def fleet(count: int = 10, **options: Any) -> tuple[Database, WatchedEngine]:
    db, engine = watched([Ship], **options)
    db[Ship].bulk_create([Ship(id=n, name=f"s{n}", port="ab"[n % 2], size=n % 3) for n in range(count)])
    engine.meter.reset()
    return db, engine


def other(engine: WatchedEngine, model: Any = Ship) -> Database:
    """Another process on the same store, as far as this one can tell."""
    return watched([model], engine=engine.inner)[0]


def test_review_03_a_read_through_a_dropped_index_is_refused_in_its_own_snapshot():
    db, engine = fleet()
    assert db[Ship].filter(port="a").count() == 5
    elsewhere = other(engine)
    engine.meter.reset()
    engine.before_read = lambda: elsewhere.drop_index(Ship, "port")
    with pytest.raises(IndexNotReadyError):
        db[Ship].filter(port="a").to_list()
    assert engine.meter.guards_failed >= 1
    assert db[Ship].filter(port="a").allow_scan().count() == 5


def test_a_count_through_a_dropped_index_is_refused_in_its_own_snapshot():
    db, engine = fleet()
    elsewhere = other(engine)
    for ask in (lambda query: query.count(), lambda query: query.exists()):
        assert db[Ship].filter(port="a").count() == 5
        engine.meter.reset()
        engine.before_read = lambda: elsewhere.drop_index(Ship, "port")
        with pytest.raises(IndexNotReadyError):
            ask(db[Ship].filter(port="a"))
        assert engine.meter.guards_failed >= 1
        elsewhere.build_indexes()
    assert db[Ship].filter(port="a").count() == 5
    engine.before_read = lambda: elsewhere.drop_index(Ship, "port")
    assert db[Ship].filter(port="a").allow_scan().count() == 5


def test_a_scan_that_has_read_nothing_is_planned_again_under_the_new_header():
    db, engine = fleet()
    elsewhere = other(engine)
    elsewhere.drop_index(Ship, "size")
    with pytest.raises(IndexNotReadyError):
        db[Ship].filter(size=1).to_list()
    asked = db[Ship].filter(port="a", size=1).allow_scan()
    engine.before_read = lambda: elsewhere.drop_index(Ship, "port")
    assert [ship.id for ship in asked] == [4]
    assert asked.explain().full_scan
    engine.before_read = lambda: elsewhere.build_indexes()
    assert [ship.id for ship in asked[:1]] == [4]


def test_review_03_a_rebuilt_index_ends_the_iteration_over_its_old_entries():
    db, engine = fleet(400)
    iterator = iter(db[Ship].order_by("port"))
    next(iterator)
    elsewhere = other(engine)
    elsewhere.drop_index(Ship, "port")
    elsewhere.build_indexes()
    with pytest.raises(IndexChangedError) as changed:
        list(iterator)
    assert (changed.value.model, changed.value.index) == ("Ship", "port")
    assert len(db[Ship].order_by("port").to_list()) == 400


def test_a_schema_change_elsewhere_does_not_disturb_an_iteration():
    db, engine = fleet(400)
    iterator = iter(db[Ship].order_by("port"))
    first = next(iterator)
    elsewhere = other(engine)
    elsewhere.drop_index(Ship, "size")
    elsewhere.build_indexes()
    engine.meter.reset()
    assert [first.id, *(ship.id for ship in iterator)] == [*range(0, 400, 2), *range(1, 400, 2)]
    assert engine.meter.guards_failed >= 1


def test_a_scan_by_primary_key_needs_no_index_and_no_guard():
    db, engine = fleet(400)
    iterator = iter(db[Ship].all())
    next(iterator)
    other(engine).drop_index(Ship, "port")
    engine.meter.reset()
    assert len(list(iterator)) == 399
    assert engine.meter.guards_failed == 0


def raw_delete(engine: WatchedEngine, *key: Any) -> None:
    engine.inner.commit(AtomicWrite(mutations=(Delete(encode_key(key)),)))


def raw_set(engine: WatchedEngine, *key: Any, value: bytes = b"", encoding: int = 3) -> None:
    engine.inner.commit(AtomicWrite(mutations=(Set(encode_key(key), value, encoding),)))


@pytest.mark.parametrize("snapshots", [True, False])
def test_an_entry_whose_record_does_not_reproduce_it_is_passed_over(snapshots: bool):
    db, engine = fleet(snapshots=snapshots)
    found = engine.inner.read([point(encode_key(("ships", 1)))])
    assert isinstance(found, ReadResult)
    row = found.ranges[0][0]
    raw_set(engine, "ships_by_port", "a", 1)  # ship 1 lies in port b
    raw_set(engine, "ships_by_port", "a", 99)  # there is no ship 99
    raw_set(engine, "ships_by_port", "a")  # not an entry at all
    raw_set(engine, "ships_by_port", "a", "x", "y", True)
    assert [ship.id for ship in db[Ship].filter(port="a")] == [0, 2, 4, 6, 8]
    assert [ship.id for ship in db[Ship].filter(port="a").page(size=3)] == [0, 2, 4]
    assert db[Ship].get(1).versionstamp == row.versionstamp.hex()


def test_a_record_that_cannot_be_read_is_an_error_and_never_left_out():
    db, engine = fleet()
    raw_set(engine, "ships", 2, value=b"\xc1", encoding=4)
    for ask in (db[Ship].filter(port="a").to_list, db[Ship].to_list, lambda: db[Ship].get(2)):
        with pytest.raises(DecodeError) as damaged:
            ask()
        assert damaged.value.key == ("ships", 2)
    assert db[Ship].filter(port="b").count() == 5


def test_a_foreign_key_among_the_records_is_an_error_that_names_it():
    db, engine = fleet()
    found = engine.inner.read([point(encode_key(("ships", 1)))])
    assert isinstance(found, ReadResult)
    row = found.ranges[0][0]
    raw_set(engine, "ships", 3, "extra", value=row.value, encoding=row.encoding)
    with pytest.raises(DecodeError) as foreign:
        db[Ship].to_list()
    assert foreign.value.key == ("ships", 3, "extra")
    assert "check" in (foreign.value.hint or "")


# --- engines without snapshots ------------------------------------------------------------------------------------


def test_without_snapshots_the_answers_are_the_same():
    with_snapshots, _ = fleet(60)
    without, engine = fleet(60, snapshots=False)
    for ask in (
        lambda q: q.filter(port="a").to_list(),
        lambda q: q.order_by("-size").to_list(),
        lambda q: q.filter(name__in=["s1", "s7"]).to_list(),
        lambda q: [ship.id for page in (q.filter(port="b").page(size=7),) for ship in page],
        lambda q: q.filter(port="b", size__gt=0).count(),
        lambda q: [q.get(name="s9")],
    ):
        assert ask(without[Ship]) == ask(with_snapshots[Ship])
    assert engine.meter.followed == 0


def test_review_16_without_snapshots_a_unique_value_that_moves_is_found_at_its_new_owner():
    db, engine = fleet(snapshots=False)
    elsewhere = other(engine)
    moved = iter([1])

    def move_between_the_two_reads() -> None:
        def move() -> None:
            if next(moved, None):
                elsewhere[Ship].patch(3, name="was s3")
                elsewhere[Ship].patch(4, name="s3")

        engine.before_read = move

    engine.before_read = move_between_the_two_reads
    assert db[Ship].get(name="s3").id == 4


def test_without_snapshots_a_unique_value_that_never_settles_ends_in_a_typed_error():
    db, engine = fleet(snapshots=False)
    raw_delete(engine, "ships", 3)
    with pytest.raises(RetriesExhaustedError) as exhausted:
        db[Ship].get(name="s3")
    assert exhausted.value.attempts == 5
    assert exhausted.value.failed_checks == (("ships_by_name", "s3"),)


def test_without_snapshots_a_record_that_moves_between_the_reads_is_left_out_of_a_list():
    db, engine = fleet(snapshots=False)
    elsewhere = other(engine)

    def move_between_the_two_reads() -> None:
        engine.before_read = lambda: elsewhere[Ship].patch(2, port="b")

    engine.before_read = move_between_the_two_reads
    assert [ship.id for ship in db[Ship].filter(port="a")] == [0, 4, 6, 8]


def test_without_snapshots_the_guard_holds_for_both_reads():
    db, engine = fleet(snapshots=False)
    elsewhere = other(engine)

    def drop_between_the_two_reads() -> None:
        engine.before_read = lambda: elsewhere.drop_index(Ship, "port")

    engine.before_read = drop_between_the_two_reads
    with pytest.raises(IndexNotReadyError):
        db[Ship].filter(port="a").to_list()
    assert engine.meter.guards_failed == 1


def test_expired_records_are_in_no_answer():
    now = [1_000_000]
    db = Database("memory://", models=[Ship], clock=lambda: now[0])
    db[Ship].create(id=1, name="a", port="x", expire_in=10)
    db[Ship].create(id=2, name="b", port="x")
    now[0] += 10_000
    assert [ship.id for ship in db[Ship].filter(port="x")] == [2]
    assert db[Ship].filter(port="x").count() == db[Ship].count() == 1
    with pytest.raises(DoesNotExist):
        db[Ship].get(name="a")


def test_review_16_a_batch_reads_entries_and_records_in_one_snapshot():
    db, engine = fleet(40)
    elsewhere = other(engine)
    swaps = iter(range(100))

    def swap() -> None:
        number = next(swaps)
        one, two = elsewhere[Ship].get(0), elsewhere[Ship].get(1)
        elsewhere[Ship].patch(one.id, name=f"tmp{number}")
        elsewhere[Ship].patch(two.id, name=one.name)
        elsewhere[Ship].patch(one.id, name=two.name)
        engine.before_read = swap

    engine.before_read = swap
    for _ in range(20):
        assert db[Ship].get(name="s0").id in (0, 1)
        assert len(db[Ship].filter(name__in=["s0", "s1"]).to_list()) == 2
    engine.before_read = None
