"""KeyboardInterrupt at each step: a commit is whole or absent, and no lock stays behind."""

from __future__ import annotations

import gc
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sortedcontainers import SortedList

from kvmodels.core.operations import Arithmetic, AtomicWrite, Check, Committed, Delete, ReadRange
from kvmodels.engines.contract import Engine
from kvmodels.engines.memory import store as memory_store
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.shared import evaluation
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.engines.url import open_engine
from tests.contract.shorthand import EVERYTHING, commit, get, keys, number, put, rows
from tests.engines.interrupting import cut_short_at, require_unlocked

BATCH = 5


MEMORY_MODULES = {memory_store.__file__, evaluation.__file__}


def batch(round_: int, value: bytes = b"v") -> AtomicWrite:
    """Replaces one generation of rows by the next, and counts."""
    return AtomicWrite(
        (Check(b"never", None),),
        (
            *(Delete(b"row-%d-%d" % (round_ - 1, n)) for n in range(BATCH)),
            *(put(b"row-%d-%d" % (round_, n), value) for n in range(BATCH)),
            Arithmetic("sum", b"count", 1),
        ),
    )


def state(engine: Engine) -> int:
    """The generation that is stored; fails if it is not whole."""
    generation = number(engine, b"count")
    found = rows(engine, ReadRange(b"row", b"rox"))
    assert [row.key for row in found] == [b"row-%d-%d" % (generation, n) for n in range(BATCH)]
    assert len({row.versionstamp for row in found}) == 1
    return generation


@pytest.fixture
def alarm() -> Iterator[Callable[[float], None]]:
    """Raises KeyboardInterrupt in this thread after some seconds, where the interpreter takes signals."""

    def interrupt(signum, frame):
        raise KeyboardInterrupt

    # Python swallows an interrupt inside a finalizer, so what earlier tests left must not be collected meanwhile.
    gc.collect()
    gc.disable()
    before = signal.signal(signal.SIGALRM, interrupt)

    def arm(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    yield arm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    gc.enable()


@pytest.mark.parametrize("kind", ["memory", "sqlite", "lmdb"])
def test_review_22_interrupts_that_sweep_over_a_commit_leave_it_whole_or_absent(
    kind: str, url_of: Callable[..., str], alarm
):
    """The timer goes off a little later in each round, from before the commit to after it."""
    options: dict[str, Any] = {} if kind == "memory" else {"busy_timeout": 5}
    engine = open_engine(url_of(kind), durability="relaxed", **options)
    assert isinstance(engine.commit(batch(1)), Committed)
    generation, interrupted, applied = 1, 0, 0
    for step in range(400):
        snapshot = engine.snapshot() if step % 4 == 0 else None
        acknowledged = False
        try:
            alarm(1e-6 + step * {"memory": 0.15e-6, "sqlite": 1e-6, "lmdb": 0.5e-6}[kind])
            outcome = engine.commit(batch(generation + 1))
            acknowledged = isinstance(outcome, Committed)
            alarm(0)
        except KeyboardInterrupt:
            alarm(0)
            interrupted += 1
        before, generation = generation, state(engine)
        assert generation in ((before + 1,) if acknowledged else (before, before + 1))
        applied += generation - before
        if snapshot is not None:
            assert rows(snapshot, ReadRange(b"row", b"rox"))[0].key == b"row-%d-0" % before
            snapshot.close()
        if step % 20 == 0:
            require_unlocked(engine)
    print(f"{kind}: {interrupted} of 400 commits interrupted, {applied} applied")
    assert interrupted >= 40
    others = threading.Thread(target=lambda: commit(engine, put(b"from another thread")))
    others.start()
    others.join(60)
    assert get(engine, b"from another thread") is not None
    engine.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite", "lmdb"])
def test_interrupts_that_sweep_over_reads_and_snapshots_leave_the_engine_usable(
    kind: str, url_of: Callable[..., str], alarm
):
    engine = open_engine(url_of(kind))
    commit(engine, *(put(b"k%03d" % n) for n in range(100)))
    interrupted = 0

    def follow(found):
        return [ReadRange(row.key) for row in found[0][:5]]

    for step in range(300):
        # An interrupt inside a finalizer is swallowed by the interpreter, so none may run while the alarm is set.
        snapshot = None
        try:
            alarm(1e-6 + step * 0.7e-6)
            engine.read([EVERYTHING, ReadRange(b"k001")], follow=follow)
            snapshot = engine.snapshot()
            snapshot.read([EVERYTHING])
            snapshot.close()
            alarm(0)
        except KeyboardInterrupt as interrupt:
            alarm(0)
            interrupted += 1
            kept = interrupt
        assert len(keys(engine, EVERYTHING)) == 100
    assert interrupted >= 30
    # The traceback keeps the frames of the interrupted call alive; closing must not wait for them.
    assert kept.__traceback__ is not None
    engine.close()


class InterruptingConnection:
    """A connection whose n-th call is interrupted, before it is made or when it is done."""

    def __init__(self, inner: sqlite3.Connection, position: int, *, done: bool) -> None:
        self.inner = inner
        self.left = position
        self.done = done

    @property
    def in_transaction(self) -> bool:
        return self.inner.in_transaction

    def rollback(self) -> None:
        self.inner.rollback()

    def execute(self, *arguments):
        return self._call(self.inner.execute, arguments)

    def executemany(self, *arguments):
        return self._call(self.inner.executemany, arguments)

    def _call(self, method, arguments):
        self.left -= 1
        if self.left == 0 and not self.done:
            raise KeyboardInterrupt
        result = method(*arguments)
        if self.left == 0:
            raise KeyboardInterrupt
        return result


@pytest.mark.parametrize("done", [False, True])
def test_review_22_each_statement_of_a_commit_can_be_interrupted(tmp_path: Path, done: bool):
    path = tmp_path / "store.db"
    engine = SqliteEngine(path)
    engine.commit(batch(1))
    store = engine.check_open()
    connection = store.writer
    assert connection is not None
    generation, position, outcomes = 1, 0, []
    while True:
        position += 1
        wrapper = InterruptingConnection(connection, position, done=done)
        store.writer = wrapper  # type: ignore[assignment]
        try:
            engine.commit(batch(generation + 1))
        except KeyboardInterrupt:
            assert not connection.in_transaction
            store.writer = connection
        else:
            break
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            other.rollback()
        before, generation = generation, state(engine)
        outcomes.append(generation - before)
    store.writer = connection
    # BEGIN, the counter, one check, one sum, the rows, the deletions, COMMIT: only after COMMIT it is there.
    assert outcomes == [0, 0, 0, 0, 0, 0, int(done)]
    engine.close()


class InterruptingList(SortedList):
    """An ordered list whose n-th change is interrupted, in the middle of it or when it is done."""

    left = 0
    done = False

    def add(self, value):
        self._change(super().add, value)

    def remove(self, value):
        self._change(super().remove, value)

    def _change(self, method, value):
        type(self).left -= 1
        if self.left == 0 and not self.done:
            # As an interrupt inside: the list of the smallest keys is already changed, the counts are not.
            sorted_lists = vars(self)["_lists"]
            if sorted_lists:
                sorted_lists[0].insert(0, value)
            raise KeyboardInterrupt
        method(value)
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("value", [b"v", b"v" * 40], ids=["small", "large"])
@pytest.mark.parametrize("done", [False, True])
def test_review_22_each_change_of_the_memory_engine_can_be_interrupted(done: bool, value: bytes):
    engine = MemoryEngine()
    store = engine.check_open()
    engine.commit(batch(1, value))
    generation = 1
    changes = 2 * BATCH
    for position in range(1, changes + 2):
        snapshot = engine.snapshot()
        InterruptingList.left = 0
        order = InterruptingList(store.rows)
        InterruptingList.left, InterruptingList.done = position, done
        store._order = order
        interrupted = False
        try:
            engine.commit(batch(generation + 1, value))
        except KeyboardInterrupt:
            interrupted = True
        assert interrupted == (position <= changes)
        # Once it is published, the next call makes it whole, whichever call that is.
        if position % 2:
            assert get(engine, b"row-%d-0" % (generation + 1)) is not None
        assert state(engine) == generation + 1
        assert rows(snapshot, ReadRange(b"row", b"rox"))[0].key == b"row-%d-0" % generation
        snapshot.close()
        generation += 1
        assert commit(engine) < commit(engine)
    engine.close()


MOVED = ((b"v", b"v" * 40, None), (b"v" * 40, b"v", None), (b"v", b"v", 1 << 50), (b"v" * 40, None, None))


@pytest.mark.parametrize(("before", "after", "deadline"), MOVED)
def test_an_interrupt_at_any_line_of_a_commit_in_memory_leaves_it_whole_or_absent(
    before: bytes, after: bytes | None, deadline: int | None
):
    """Rows change their size and their deadline, and go."""
    changes = [Delete(key) if after is None else put(key, after, deadline) for key in (b"a", b"b", b"b\0c", b"new")]
    line, interrupted, seen = 0, True, set()
    while interrupted:
        line += 1
        engine = MemoryEngine()
        commit(engine, put(b"a", before), put(b"b", before), put(b"b\0c", before), put(b"stays", before))
        old = rows(engine, EVERYTHING)
        interrupted = cut_short_at(line, MEMORY_MODULES, partial(engine.commit, AtomicWrite((), (*changes,))))
        values = {row.key: row.value for row in rows(engine, EVERYTHING)}
        expected = {b"a": after, b"b": after, b"b\0c": after, b"new": after, b"stays": before}
        is_new = values == {key: value for key, value in expected.items() if value is not None}
        assert is_new or (interrupted and rows(engine, EVERYTHING) == old)
        for key in expected:
            found = get(engine, key)
            assert (None if found is None else found.value) == values.get(key)
        seen.add(is_new)
        engine.close()
    print(f"{line} lines")
    assert seen == {False, True}
    assert line > 50


def test_an_interrupt_while_the_memory_engine_prepares_snapshots_leaves_the_commit_absent():
    engine = MemoryEngine()
    engine.commit(batch(1))
    snapshot = engine.snapshot()
    (view,) = engine.check_open()._views.values()
    InterruptingList.left, InterruptingList.done = 3, False
    view.order = InterruptingList()
    with pytest.raises(KeyboardInterrupt):
        engine.commit(batch(2))
    assert state(engine) == 1
    engine.commit(batch(2))
    assert state(engine) == 2
    assert keys(snapshot, ReadRange(b"row", b"rox")) == [b"row-1-%d" % n for n in range(BATCH)]
    snapshot.close()
    engine.close()


def test_connections_that_were_dropped_or_died_do_not_hold_up_closing(tmp_path: Path):
    """An interrupt drops a connection between the pool and a call: a traceback keeps it, or it is collected."""
    engine = SqliteEngine(tmp_path / "store.db")
    store = engine.check_open()
    kept = store.borrow()
    kept.execute("BEGIN")
    dropped = store.borrow()
    assert store.open_readers() == [kept, dropped]
    del dropped
    gc.collect()
    assert store.open_readers() == [kept]
    engine.close()
    assert kept.discarded
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        kept.execute("SELECT 1")
