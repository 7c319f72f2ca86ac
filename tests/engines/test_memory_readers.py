"""Readers of the memory engine beside a commit that comes at the worst moment; mutants that read without care fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvmodels.core.operations import AtomicWrite, Delete, ReadRange, ReadResult, Set, point
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.memory.store import MemoryStore
from tests.contract.shorthand import commit, get, rows

ALL = ReadRange(b"k", b"l")


def done_by_another_thread(store: MemoryStore, write: Callable[[], object]) -> threading.Thread:
    """It has come to its end, or could not: this thread has the lock."""
    thread = threading.Thread(target=write)
    is_held = store.lock.locked()
    thread.start()
    thread.join(0.2 if is_held else 60)
    assert is_held or not thread.is_alive()
    return thread


class CommitInTheMiddle:
    """The keys of a store in order; while a scan has reached the second one, another thread commits."""

    def __init__(self, store: MemoryStore, write: Callable[[], object]) -> None:
        self.store = store
        self.inner: Any = store._order
        self.write = write
        self.threads: list[threading.Thread] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def irange(self, *arguments: Any) -> Iterator[bytes]:
        for position, key in enumerate(list(self.inner.irange(*arguments))):
            if position == 1 and not self.threads:
                self.threads.append(done_by_another_thread(self.store, self.write))
            yield key


class NoLock:
    """Broken: lets everybody in."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def locked(self) -> bool:
        return False


def account(key: bytes, number: int, size: int) -> Set:
    return Set(key, number.to_bytes(8, "little").ljust(size), 2)


def scanned_beside_a_commit(engine: MemoryEngine, break_store: Callable[[MemoryStore], None], size: int) -> int:
    """The sum that a scan sees; each commit moves one unit from the last key to the first, and removes a key of 0."""
    store = engine.check_open()
    commit(engine, *(account(b"k%d" % n, 100, size) for n in range(5)), account(b"k3-empty", 0, size))
    break_store(store)

    def write() -> None:
        commit(engine, account(b"k0", 101, size), account(b"k4", 99, size), Delete(b"k3-empty"))

    store._order = order = CommitInTheMiddle(store, write)  # type: ignore[assignment]
    try:
        found = rows(engine, ALL)
        assert order.threads
        return sum(int.from_bytes(row.value[:8], "little") for row in found)
    finally:
        for thread in order.threads:
            thread.join(60)


SIZES = pytest.mark.parametrize("size", [8, 40], ids=["small", "large"])


@SIZES
def test_review_28_a_scan_beside_a_commit_sees_one_state(size: int):
    assert scanned_beside_a_commit(MemoryEngine(), lambda store: None, size) == 500


@SIZES
def test_a_scan_without_the_lock_is_convicted(size: int):
    def unlock(store: MemoryStore) -> None:
        store.lock = NoLock()  # type: ignore[assignment]

    with pytest.raises((AssertionError, KeyError)):  # a sum that never was, or a key that is gone
        assert scanned_beside_a_commit(MemoryEngine(), unlock, size) == 500


class CommitBehindARow(dict[bytes, Any]):
    """The rows of a store; right behind the first look at a key, another thread commits."""

    write: Callable[[], object] | None = None
    threads: tuple[threading.Thread, ...] = ()

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store.rows)
        self.store = store

    def get(self, key: bytes, default: Any = None) -> Any:
        found = super().get(key, default)
        write, self.write = self.write, None
        if write is not None:
            self.threads = (done_by_another_thread(self.store, write),)
        return found


def seen_beside_a_commit(engine: MemoryEngine, size: int, *ranges: ReadRange, **options: Any) -> ReadResult:
    """Both keys hold the number of the commit that wrote them."""
    store = engine.check_open()
    commit(engine, Set(b"a", b"1" * size, 3), Set(b"b", b"1" * size, 3))
    store.rows = looked_at = CommitBehindARow(store)
    looked_at.write = lambda: commit(engine, Set(b"a", b"2" * size, 3), Set(b"b", b"2" * size, 3))
    result = engine.read(ranges, **options)
    assert looked_at.threads
    for thread in looked_at.threads:
        thread.join(60)
    assert isinstance(result, ReadResult)
    return result


def is_one_state(result: ReadResult) -> bool:
    """Whether all rows are of one commit, and the result has its versionstamp."""
    found = [row for one in (*result.ranges, *result.followed) for row in one]
    return {row.versionstamp for row in found} == {result.versionstamp} and len({row.value for row in found}) == 1


def second_key(found: list[list[Any]]) -> list[ReadRange]:
    return [point(b"b") for row in found[0]]


@pytest.mark.parametrize(
    ("ranges", "options"),
    [((point(b"a"),), {}), ((point(b"a"), point(b"b")), {}), ((point(b"a"),), {"follow": second_key})],
    ids=["one key", "two keys", "a key that follows"],
)
@SIZES
def test_review_28_a_read_of_keys_beside_a_commit_sees_one_state(
    size: int, ranges: tuple[ReadRange, ...], options: dict[str, Any]
):
    assert is_one_state(seen_beside_a_commit(MemoryEngine(), size, *ranges, **options))


class WithoutALook(MemoryEngine):
    """Broken: reads keys without the lock, and does not look whether a commit came meanwhile."""

    def read(self, ranges, guard=None, *, include_expired=False, follow=None):
        store = self.check_open()
        found = [[row] if (row := store.rows.get(one.start)) else [] for one in ranges]
        followed = (
            [] if follow is None else [[row] if (row := store.rows.get(one.start)) else [] for one in follow(found)]
        )
        return ReadResult(found, followed, store.stamp or b"")


@pytest.mark.parametrize("follow", [None, second_key])
@SIZES
def test_a_read_of_keys_that_does_not_look_for_commits_is_convicted(size: int, follow: Any):
    assert not is_one_state(seen_beside_a_commit(WithoutALook(), size, point(b"a"), follow=follow))


def read_in_a_snapshot(engine: MemoryEngine) -> bool:
    """Whether a snapshot sees what it was opened on, beside changed, removed and new rows."""
    commit(engine, Set(b"k1", b"old", 3), Set(b"k2", b"old", 3))
    with engine.snapshot() as snapshot:
        before = rows(snapshot, ALL)
        engine.commit(AtomicWrite((), (Set(b"k1", b"new", 3), Delete(b"k2"), Set(b"k3", b"new", 3))))
        engine.commit(AtomicWrite((), (Set(b"k2", b"newer", 3),)))
        after = rows(snapshot, ALL), get(snapshot, b"k2"), get(snapshot, b"k3")
    return after == (before, before[1], None)


def test_review_28_commits_keep_for_a_snapshot_what_they_change():
    assert read_in_a_snapshot(MemoryEngine())


def kept_too_late(store: MemoryStore, changes: Any, stamp: bytes) -> None:
    original_apply(store, changes, stamp)
    original_keep(store, changes)


original_apply, original_keep = MemoryStore.apply, MemoryStore._keep_for_views


@pytest.mark.parametrize("late", [False, True])
def test_commits_that_keep_nothing_or_too_late_are_convicted(monkeypatch: pytest.MonkeyPatch, late: bool):
    monkeypatch.setattr(MemoryStore, "_keep_for_views", lambda self, changes: None)
    if late:
        monkeypatch.setattr(MemoryStore, "apply", kept_too_late)
    assert not read_in_a_snapshot(MemoryEngine())


@pytest.mark.parametrize("blind", [False, True])
def test_a_row_without_a_read_is_not_told_when_a_commit_comes_behind_it(blind: bool):
    """The last row belongs to the state before the commit; told all the same if nobody looks for commits."""
    engine = MemoryEngine()
    store = engine.check_open()
    stamp = commit(engine, Set(b"a", b"1", 3))
    store.rows = looked_at = CommitBehindARow(store)

    def write() -> None:
        commit(engine, Set(b"a", b"2", 3))
        if blind:
            store.stamp = before

    before = store.stamp
    looked_at.write = write
    row = engine.row_at_key(b"a", None, None)
    assert (row and row[3]) == (stamp if blind else None)
    for thread in looked_at.threads:
        thread.join(60)


def test_what_stays_is_found_beside_a_thread_that_adds_and_removes():
    engine = MemoryEngine()
    commit(engine, *(Set(b"k%02d" % n, b"v", 3) for n in range(0, 60, 3)))
    ended = threading.Event()

    def write() -> None:
        for n in range(3_000):
            key = b"k%02d" % (n * 7 % 60)
            if n * 7 % 3:
                commit(engine, Set(key, b"v", 3) if n // 60 % 2 else Delete(key))
        ended.set()

    thread = threading.Thread(target=write)
    thread.start()
    looks = 0
    while not ended.is_set():
        key = b"k%02d" % (looks * 3 % 60)
        assert get(engine, key) is not None
        assert engine.row_at_key(key, None, None) != ()
        looks += 1
    thread.join(60)
    engine.close()
