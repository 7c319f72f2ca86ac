"""A key with a guard, and the key that follows from it, are read in one state without a lock or a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kvmodels.engines import memory as memory_engine
from kvmodels.engines.base import Engine
from kvmodels.engines.lmdb import LmdbEngine
from kvmodels.engines.memory import MemoryEngine
from kvmodels.engines.sqlite import SqliteEngine
from kvmodels.operations import Follow, Guard, GuardFailed, Likely, ReadRange, ReadResult, Row, point
from tests.contract.shorthand import commit, put

NOW = 1_700_000_000_000


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    opened: Engine
    if request.param == "memory":
        opened = MemoryEngine(clock=lambda: NOW)
    elif request.param == "sqlite":
        opened = SqliteEngine(tmp_path / "store.db", durability="relaxed", clock=lambda: NOW)
    else:
        opened = LmdbEngine(tmp_path / "store.lmdb", durability="relaxed", clock=lambda: NOW)
    yield opened
    opened.close()


def following(key: bytes, once: Callable[[], object] = lambda: None) -> Follow:
    """Asks for a key, and lets somebody commit the first time."""
    calls: list[int] = []

    def follow(_: list[list[Row]]) -> Sequence[ReadRange]:
        calls.append(1)
        if len(calls) == 1:
            once()
        return (point(key),)

    return follow


def guessing(follow: Follow, guess: tuple[bytes, int, bytes]) -> Follow:
    return Likely(follow, guess)


RIGHT_OR_WRONG = pytest.mark.parametrize("guess", [(b"b", 1, b""), (b"nowhere", 1, b"")], ids=str)


@RIGHT_OR_WRONG
def test_a_commit_beside_a_guess_is_seen_in_both_keys_or_in_none(engine: Engine, guess: tuple[bytes, int, bytes]):
    stamp = commit(engine, put(b"guard"))
    commit(engine, put(b"a", b"1"), put(b"b", b"1"))
    follow = following(b"b", lambda: commit(engine, put(b"a", b"2"), put(b"b", b"2")))
    result = engine.read((point(b"a"),), Guard(b"guard", stamp), follow=guessing(follow, guess))
    assert values(result) in ([b"1"] * 2, [b"2"] * 2)
    follow = following(b"b", lambda: commit(engine, put(b"guard"), put(b"b", b"3")))
    result = engine.read((point(b"a"),), Guard(b"guard", stamp), follow=guessing(follow, guess))
    assert isinstance(result, GuardFailed) or values(result) in ([b"1"] * 2, [b"2"] * 2)


@RIGHT_OR_WRONG
@pytest.mark.parametrize("which", [b"a", b"b", b"guard"])
def test_a_guess_does_not_see_what_has_expired(engine: Engine, which: bytes, guess: tuple[bytes, int, bytes]):
    stamp = commit(engine, *(put(key, key, NOW if key == which else None) for key in (b"guard", b"a", b"b")))
    result = engine.read((point(b"a"),), Guard(b"guard", stamp), follow=guessing(following(b"b"), guess))
    if which == b"guard":
        assert result == GuardFailed(None)
    else:
        assert values(result) == [key for key in (b"a", b"b") if key != which]


def asking(more: Sequence[ReadRange]) -> Follow:
    return lambda _: more


def values(result: ReadResult | GuardFailed) -> list[bytes]:
    assert isinstance(result, ReadResult)
    assert len(result.ranges) == 1
    return [row.value for found in (*result.ranges, *result.followed) for row in found]


def test_a_commit_between_two_keys_is_seen_in_both_or_in_none(engine: Engine):
    stamp = commit(engine, put(b"guard"))
    commit(engine, put(b"a", b"1"), put(b"b", b"1"))
    follow = following(b"b", lambda: commit(engine, put(b"a", b"2"), put(b"b", b"2")))
    assert values(engine.read((point(b"a"),), Guard(b"guard", stamp), follow=follow)) in ([b"1"] * 2, [b"2"] * 2)
    assert values(engine.read((point(b"a"),), Guard(b"guard", stamp), follow=following(b"b"))) == [b"2", b"2"]


def test_the_versionstamp_is_that_of_the_state_that_was_read(engine: Engine):
    stamp = commit(engine, put(b"guard"), put(b"a"))
    later: list[bytes] = []
    follow = following(b"b", lambda: later.append(commit(engine, put(b"b"))))
    result = engine.read((point(b"a"),), Guard(b"guard", stamp), follow=follow)
    assert isinstance(result, ReadResult)
    assert result.versionstamp == (later[0] if result.followed[0] else stamp)


def test_a_guard_that_is_written_between_two_keys_fails_or_held_in_the_state_that_was_read(engine: Engine):
    stamp = commit(engine, put(b"guard"))
    commit(engine, put(b"a", b"1"), put(b"b", b"1"))
    follow = following(b"b", lambda: commit(engine, put(b"guard"), put(b"b", b"2")))
    result = engine.read((point(b"a"),), Guard(b"guard", stamp), follow=follow)
    assert isinstance(result, GuardFailed) or values(result) == [b"1", b"1"]
    again = engine.read((point(b"a"),), Guard(b"guard", stamp), follow=following(b"b"))
    assert isinstance(again, GuardFailed)
    assert again.versionstamp not in (None, stamp)


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "expired"])
@pytest.mark.parametrize("which", [b"a", b"b", b"guard"])
def test_deadlines_hold_for_the_guard_and_for_both_keys(engine: Engine, which: bytes, kept: bool):
    until = {which: NOW + 1 if kept else NOW}
    stamp = commit(engine, *(put(key, key, until.get(key)) for key in (b"guard", b"a", b"b")))
    result = engine.read((point(b"a"),), Guard(b"guard", stamp), follow=following(b"b"))
    if kept:
        assert values(result) == [b"a", b"b"]
    elif which == b"guard":
        assert result == GuardFailed(None)
    else:
        assert values(result) == [key for key in (b"a", b"b") if key != which]
    seen = engine.read((point(b"a"),), Guard(b"guard", stamp), include_expired=True, follow=following(b"b"))
    assert values(seen) == [b"a", b"b"]


def test_what_follows_may_be_nothing_several_keys_or_a_range(engine: Engine):
    stamp = commit(engine, put(b"guard"), put(b"a", b"a"), put(b"b", b"b"), put(b"c", b"c"))
    guard = Guard(b"guard", stamp)
    asked: dict[tuple[ReadRange, ...], list[bytes]] = {
        (): [b"a"],
        (point(b"x"),): [b"a"],
        (point(b"b"), point(b"c")): [b"a", b"b", b"c"],
        (ReadRange(b"b", b"d"),): [b"a", b"b", b"c"],
        (ReadRange(b"b", None, 0),): [b"a"],
    }
    for more, expected in asked.items():
        result = engine.read((point(b"a"),), guard, follow=asking(more))
        assert values(result) == expected
        assert isinstance(result, ReadResult)
        assert len(result.followed) == len(more)


def test_a_memory_store_that_did_not_look_at_its_stamp_again_would_mix_two_states(monkeypatch: pytest.MonkeyPatch):
    class Blind:
        """A store whose stamp never seems to change."""

        def __init__(self, store: Any, stamp: bytes) -> None:
            self._store, self.stamp = store, stamp

        def __getattr__(self, name: str) -> object:
            return getattr(self._store, name)

    short: Any = memory_engine._without_lock

    def blind(store: Any, *rest: Any) -> Any:
        return short(Blind(store, store.stamp), *rest)

    monkeypatch.setattr(memory_engine, "_without_lock", blind)
    with closing(MemoryEngine(clock=lambda: NOW)) as engine:
        stamp = commit(engine, put(b"guard"))
        commit(engine, put(b"a", b"1"), put(b"b", b"1"))
        follow = following(b"b", lambda: commit(engine, put(b"a", b"2"), put(b"b", b"2")))
        assert values(engine.read((point(b"a"),), Guard(b"guard", stamp), follow=follow)) == [b"1", b"2"]
