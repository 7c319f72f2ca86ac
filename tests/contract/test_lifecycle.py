"""Snapshots beside writers, closing, forks and threads, on every engine."""

from __future__ import annotations

import os
import threading
import time

import pytest

from kvmodels.core.operations import Arithmetic, AtomicWrite, Check, Committed, Conflict, Delete, ReadRange
from kvmodels.errors import ClosedError, SnapshotExpiredError
from tests.contract.shorthand import EVERYTHING, commit, counter, get, keys, number, put, rows, stored


def test_a_snapshot_keeps_the_state_while_others_write(engine):
    stamp = commit(engine, put(b"a", b"1"), put(b"b", b"1"), put(b"c", b"1"))
    before = rows(engine, EVERYTHING)
    snapshot = engine.snapshot()
    commit(engine, put(b"a", b"2"), Delete(b"b"), put(b"d", b"2"))
    commit(engine, put(b"b", b"3"), Delete(b"d"), Delete(b"c"))
    assert snapshot.versionstamp == stamp
    for _ in range(2):
        result = snapshot.read([EVERYTHING, ReadRange(b"b"), ReadRange(b"d")])
        assert result.ranges == [before, [before[1]], []]
        assert result.versionstamp == stamp
    assert keys(engine, EVERYTHING) == [b"a", b"b"]
    snapshot.close()


def test_a_snapshot_takes_limits_directions_and_followed_ranges(engine):
    commit(engine, *(put(b"k%d" % i, b"k%d" % (9 - i)) for i in range(10)))
    with engine.snapshot() as snapshot:
        commit(engine, *(Delete(b"k%d" % i) for i in range(0, 10, 2)), put(b"k10"))
        assert keys(snapshot, ReadRange(b"k2", b"k8", 3)) == [b"k2", b"k3", b"k4"]
        assert keys(snapshot, ReadRange(b"k2", b"k8", 3, True)) == [b"k7", b"k6", b"k5"]
        result = snapshot.read([ReadRange(b"k0", b"k2")], follow=lambda found: [ReadRange(r.value) for r in found[0]])
        assert [[row.key for row in one] for one in result.followed] == [[b"k9"], [b"k8"]]


def test_two_snapshots_keep_two_states(engine):
    first = commit(engine, put(b"a", b"1"))
    one = engine.snapshot()
    second = commit(engine, put(b"a", b"2"))
    two = engine.snapshot()
    commit(engine, Delete(b"a"))
    assert (stored(one, b"a").value, stored(two, b"a").value, get(engine, b"a")) == (b"1", b"2", None)
    assert (one.versionstamp, two.versionstamp) == (first, second)
    one.close()
    assert stored(two, b"a").value == b"2"
    two.close()


def test_a_snapshot_sees_deadlines_as_of_its_opening(engine, clock):
    commit(engine, put(b"k", expire_at=clock.now + 10), put(b"gone", expire_at=clock.now))
    with engine.snapshot() as snapshot:
        clock.now += 100
        assert keys(snapshot, EVERYTHING) == [b"k"]
        assert keys(snapshot, EVERYTHING, include_expired=True) == [b"gone", b"k"]
        assert keys(engine, EVERYTHING) == []


def test_a_snapshot_of_an_empty_store_is_empty(engine):
    with engine.snapshot() as snapshot:
        commit(engine, put(b"a"))
        assert keys(snapshot, EVERYTHING) == []


def test_review_16_a_snapshot_past_its_maximum_age_expires(open_engine, clock):
    engine = open_engine(snapshot_max_age=2.0)
    snapshot, other = engine.snapshot(), engine.snapshot()
    clock.now += 1_999
    assert keys(snapshot, EVERYTHING) == []
    clock.now += 1
    commit(engine, put(b"a"))
    for expired in (snapshot, other):
        with pytest.raises(SnapshotExpiredError) as caught:
            expired.read([EVERYTHING])
        assert "new snapshot" in str(caught.value.hint)
    assert keys(engine.snapshot(), EVERYTHING) == [b"a"]
    snapshot.close()
    engine.close()


def test_a_snapshot_for_a_read_of_the_library_has_no_maximum_age(open_engine, clock):
    engine = open_engine(snapshot_max_age=2.0)
    commit(engine, put(b"a"))
    with engine.snapshot() as snapshot:
        snapshot.keep()
        clock.now += 1_000_000
        commit(engine, put(b"b"))
        assert keys(snapshot, EVERYTHING) == [b"a"]
        assert snapshot.count([EVERYTHING]).numbers == [1]
    engine.close()


def test_a_closed_snapshot_cannot_be_read(engine):
    snapshot = engine.snapshot()
    snapshot.close()
    snapshot.close()
    with pytest.raises(ClosedError):
        snapshot.read([EVERYTHING])
    commit(engine, put(b"a"))


def test_a_forgotten_snapshot_costs_nothing_more(engine):
    for _ in range(50):
        engine.snapshot()
    commit(engine, put(b"a"))
    assert keys(engine, EVERYTHING) == [b"a"]


def test_everything_raises_after_closing_and_closing_again_does_nothing(open_engine):
    engine = open_engine()
    commit(engine, put(b"a"))
    snapshot = engine.snapshot()
    engine.close()
    engine.close()
    calls = (
        lambda: engine.read([EVERYTHING]),
        lambda: engine.read([ReadRange(b"a")]),
        lambda: engine.commit(AtomicWrite()),
        engine.snapshot,
        engine.now_ms,
        lambda: snapshot.read([EVERYTHING]),
    )
    for call in calls:
        with pytest.raises(ClosedError) as caught:
            call()
        assert caught.value.hint
    snapshot.close()


def test_closing_waits_for_running_calls(open_engine):
    engine = open_engine()
    commit(engine, put(b"a"))
    inside, release, finished = threading.Event(), threading.Event(), []

    def follow(found):
        inside.set()
        release.wait(60)
        return [ReadRange(b"a")]

    def read():
        finished.append(engine.read([EVERYTHING], follow=follow).followed)

    def close():
        engine.close()
        finished.append("closed")

    reader, closer = threading.Thread(target=read), threading.Thread(target=close)
    reader.start()
    inside.wait(60)
    closer.start()
    closer.join(0.1)
    assert closer.is_alive()
    release.set()
    for thread in (reader, closer):
        thread.join(60)
    (followed,) = [one for one in finished if one != "closed"]
    assert [[row.key for row in one] for one in followed] == [[b"a"]]
    assert "closed" in finished


def test_closing_beside_busy_threads_ends_them_with_a_typed_error(open_engine):
    for _ in range(4):
        engine = open_engine()
        commit(engine, put(b"a"))
        seen: list[BaseException] = []

        def work(engine=engine, seen=seen):
            try:
                while True:
                    keys(engine, EVERYTHING)
                    commit(engine, put(b"a"))
                    engine.snapshot().close()
            except ClosedError:
                return
            except BaseException as error:  # noqa: BLE001 - whatever it is, the test shows it
                seen.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        engine.close()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert seen == []


def test_review_29_a_forked_child_gets_an_error_and_the_parent_goes_on(engine):
    commit(engine, put(b"a"))
    snapshot = engine.snapshot()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answers = []
        for call in (
            lambda: engine.read([EVERYTHING]),
            lambda: engine.commit(AtomicWrite()),
            engine.snapshot,
            lambda: snapshot.read([EVERYTHING]),
        ):
            try:
                call()
                answers.append("no error")
            except ClosedError as error:
                answers.append(f"{error.reason}: {error.hint}")
            except BaseException as error:  # noqa: BLE001 - whatever it is, the test shows it
                answers.append(repr(error))
        engine.close()
        os.write(writing, "\n".join(answers).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answers = pipe.read().split("\n")
    os.waitpid(child, 0)
    assert len(answers) == 4
    for answer in answers:
        assert answer.startswith("forked: ")
        assert "in the child" in answer
    commit(engine, put(b"b"))
    assert keys(engine, EVERYTHING) == [b"a", b"b"]
    snapshot.close()


def test_increments_of_many_threads_are_all_there(engine):
    def add():
        for _ in range(40):
            commit(engine, Arithmetic("sum", b"n", 1))

    run_all(add for _ in range(8))
    assert number(engine, b"n") == 320


def test_one_of_many_threads_wins_a_key_that_must_be_absent(engine):
    outcomes: list[tuple[int, Committed | Conflict]] = []
    barrier = threading.Barrier(8)

    def claim(who: int):
        barrier.wait()
        outcomes.append((who, engine.commit(AtomicWrite((Check(b"slot", None),), (put(b"slot", b"%d" % who),)))))

    run_all(lambda who=who: claim(who) for who in range(8))
    winners = [who for who, outcome in outcomes if isinstance(outcome, Committed)]
    assert len(winners) == 1
    assert stored(engine, b"slot").value == b"%d" % winners[0]


def test_review_28_ranges_beside_writers_are_never_torn(engine):
    """Every commit moves one unit from one key to another, adds a key and removes one; the sum is constant."""
    commit(engine, *(counter(b"k%02d" % i, 100) for i in range(20)))
    stop = threading.Event()
    wrong: list[object] = []

    def write(seed: int):
        at = seed
        while not stop.is_set():
            at = (at * 7 + 3) % 20
            source, target = b"k%02d" % at, b"k%02d" % ((at + 5) % 20)
            commit(engine, Arithmetic("sum", source, 2**64 - 1), Arithmetic("sum", target, 1))
            commit(engine, counter(b"k%02d-extra" % at, 0), Delete(b"k%02d-extra" % ((at + 1) % 20)))

    def scan(reverse: bool):
        for _ in range(60):
            found = rows(engine, ReadRange(b"k", b"l", None, reverse))
            total = sum(int.from_bytes(row.value, "little", signed=True) for row in found)
            order = [row.key for row in found]
            if total != 2_000 or order != sorted(order, reverse=reverse):
                wrong.append((total, order))

    writers = [threading.Thread(target=write, args=(seed,)) for seed in (1, 2)]
    for writer in writers:
        writer.start()
    try:
        run_all([lambda: scan(False), lambda: scan(True)])
    finally:
        stop.set()
        for writer in writers:
            writer.join(60)
    assert wrong == []


def run_all(calls):
    """Run the calls in threads of their own and pass on what they raise."""
    errors: list[BaseException] = []

    def guarded(call):
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test shows it
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]
