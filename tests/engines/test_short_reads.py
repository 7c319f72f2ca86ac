"""A key with a guard, and the key that follows from it, are read in one state without a lock or a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvmodels.core.operations import (
    Follow,
    Guard,
    GuardFailed,
    PlainRow,
    PredictedFollow,
    ReadRange,
    ReadResult,
    Row,
    point,
    row_of,
)
from kvmodels.engines.contract import Engine, ImmediateReads
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.memory import engine as memory_engine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.sqlite import statements as sqlite_statements
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.engines.sqlite.store import SqliteStore
from kvmodels.errors import ClosedError
from kvmodels.flows.effects import Flow, read_row
from kvmodels.runtime.sync import run
from tests.contract.shorthand import commit, put
from tests.passing_engine import PassingEngine

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
    return PredictedFollow(follow, guess)


def found_alone(key: bytes) -> Flow[tuple[bytes, int, bytes, int | None] | None]:
    row = yield from read_row(key)
    assert row is None or row.key == key
    return None if row is None else (row.value, row.encoding, row.versionstamp, row.expire_at)


@pytest.mark.parametrize("value", [b"small", b"larger" * 100], ids=["small", "large"])
def test_a_row_asked_for_alone_is_the_row_of_a_read(engine: Engine, value: bytes):
    stamp = commit(
        engine, put(b"plain", value), put(b"due", value, expire_at=NOW + 1), put(b"over", value, expire_at=NOW)
    )
    assert run(engine, found_alone(b"plain")) == (value, 3, stamp, None)
    assert run(engine, found_alone(b"due")) == (value, 3, stamp, NOW + 1)
    assert run(engine, found_alone(b"over")) is None
    assert run(engine, found_alone(b"absent")) is None
    with closing(engine.snapshot()) as before:
        commit(engine, put(b"plain", b"later"))
        assert run(engine, found_alone(b"plain"), snapshot=before) == (value, 3, stamp, None)
    assert (
        run(PassingEngine(engine), found_alone(b"plain"))
        == run(engine, found_alone(b"plain"))
        != (value, 3, stamp, None)
    )


def test_a_row_that_cannot_be_told_alone_is_read(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    stamp = commit(engine, put(b"k", b"v"))
    silent = ImmediateReads(row=lambda *_: None)
    monkeypatch.setattr(engine, "capabilities", replace(engine.capabilities, immediate=silent))
    assert run(engine, found_alone(b"k")) == (b"v", 3, stamp, None)
    engine.close()
    with pytest.raises(ClosedError):
        run(engine, found_alone(b"k"))


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


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SqliteEngine]:
    with closing(SqliteEngine(tmp_path / "store.db", durability="relaxed", clock=lambda: NOW)) as opened:
        yield opened


def store_of(engine: SqliteEngine) -> SqliteStore:
    store = engine._store
    assert store is not None
    return store


def rows_seen(engine: SqliteEngine, guard: Guard | None, follow: Follow | None) -> list[bytes] | None:
    row = engine.row_at_key(b"a", guard, follow)
    return None if row is None else [row[1]] if row else []


def in_a_list(row: PlainRow | tuple[()] | None) -> list[Row] | None:
    return None if row is None else [row_of(row)] if row else []


ONE_ROW = [(None, None), (NOW + 1, None), (NOW, None), (None, NOW + 1), (None, NOW)]


@pytest.mark.parametrize("suffix", [b"", b"-end"])
@pytest.mark.parametrize(("first", "second"), ONE_ROW)
def test_rows_at_a_key_are_those_that_a_read_gives(
    file: SqliteEngine, first: int | None, second: int | None, suffix: bytes
):
    stamp = commit(file, put(b"guard"))
    commit(file, put(b"a", b"1b", first), put(b"b" + suffix, b"behind", second))
    held, follow = Guard(b"guard", stamp), guessing(asking((point(b"b" + suffix),)), (b"", 1, suffix))
    plain = file.read((point(b"a"),))
    assert isinstance(plain, ReadResult)
    assert in_a_list(file.row_at_key(b"a", None, None)) == plain.ranges[0]
    assert file.row_at_key(b"nothing", None, None) == ()
    both = file.read((point(b"a"),), held, follow=follow)
    assert isinstance(both, ReadResult)
    short = in_a_list(file.row_at_key(b"a", held, follow))
    assert short == (both.followed[0] if first is None and second is None else None)
    assert (short or []) in ([], both.followed[0])


@pytest.mark.parametrize("size", [2, 32], ids=["small", "large"])
@pytest.mark.parametrize("suffix", [b"", b"-end"])
@pytest.mark.parametrize(("first", "second"), ONE_ROW)
def test_rows_at_a_key_in_memory_are_those_that_a_read_gives(
    first: int | None, second: int | None, suffix: bytes, size: int
):
    with closing(MemoryEngine(clock=lambda: NOW)) as engine:
        stamp = commit(engine, put(b"guard"))
        value, behind = b"1".ljust(size, b"b"), b"behind".ljust(32)
        record = b"b" + value[1:] + suffix
        commit(engine, put(b"a", value, first), put(record, behind, second))
        held, follow = Guard(b"guard", stamp), guessing(asking((point(record),)), (b"b", 1, suffix))
        plain = engine.read((point(b"a"),))
        assert isinstance(plain, ReadResult)
        assert in_a_list(engine.row_at_key(b"a", None, None)) == (plain.ranges[0] if first is None else None)
        assert engine.row_at_key(b"nothing", None, None) == ()
        both = engine.read((point(b"a"),), held, follow=follow)
        assert isinstance(both, ReadResult)
        short = in_a_list(engine.row_at_key(b"a", held, follow))
        assert short == (both.followed[0] if first is None and second is None else None)


def test_what_is_not_one_row_behind_a_guard_that_holds_is_left_to_a_read_in_memory():
    engine = MemoryEngine(clock=lambda: NOW)
    stamp = commit(engine, put(b"guard"))
    large = b"behind".ljust(32)
    commit(engine, put(b"a", b"1b"), put(b"b", large))
    held, right = Guard(b"guard", stamp), PredictedFollow(asking((point(b"b"),)), (b"", 1, b""), misses=1)
    assert in_a_list(engine.row_at_key(b"a", held, right)) == rows_of(engine, b"b")
    assert right.misses == 0
    for guard, follow in (
        (held, None),
        (None, right),
        (held, asking((point(b"b"),))),
        (held, guessing(asking((point(b"b"),)), (b"no", 1, b""))),
        (Guard(b"guard", None), right),
        (Guard(b"other", stamp), right),
        (Guard(b"other", None), right),
    ):
        assert engine.row_at_key(b"a", guard, follow) is None
    assert engine.row_at_key(b"nothing", held, right) is None
    commit(engine, put(b"guard", b"", NOW + 1))
    (guard_row,) = rows_of(engine, b"guard")
    assert engine.row_at_key(b"a", Guard(b"guard", guard_row.versionstamp), right) is None
    engine.close()
    assert engine.row_at_key(b"a", None, None) is None


@pytest.mark.parametrize("size", [2, 32], ids=["small", "large"])
@pytest.mark.parametrize("blind", [False, True])
def test_a_commit_between_slot_and_record_in_memory_is_left_to_a_read(size: int, blind: bool):
    class Suffix(bytes):
        """The end of the likely key; while it is added, behind the look at the slot, somebody commits."""

        def __radd__(self, head: bytes) -> bytes:
            stamp = store.stamp
            commit(engine, put(b"a", b"2".ljust(size, b"b")), put(b"b" * size, b"2" * 40))
            if blind:
                store.stamp = stamp  # as if nobody had looked
            return head

    with closing(MemoryEngine(clock=lambda: NOW)) as engine:
        store = engine.check_open()
        stamp = commit(engine, put(b"guard"))
        commit(engine, put(b"a", b"1".ljust(size, b"b")), put(b"b" * size, b"1" * 40))
        row = engine.row_at_key(b"a", Guard(b"guard", stamp), PredictedFollow(asking(()), (b"b", 1, Suffix())))
        if blind:
            assert row
            assert row.value == b"2" * 40  # of a slot that said 1
        else:
            assert row is None


def rows_of(engine: MemoryEngine, key: bytes) -> list[Row]:
    result = engine.read((point(key),))
    assert isinstance(result, ReadResult)
    return result.ranges[0]


def test_what_is_not_one_row_behind_a_guard_that_holds_is_left_to_a_read(file: SqliteEngine):
    stamp = commit(file, put(b"guard"))
    commit(file, put(b"a", b"1b"), put(b"b", b"behind"))
    held, right = Guard(b"guard", stamp), guessing(asking((point(b"b"),)), (b"", 1, b""))
    assert rows_seen(file, held, right) == [b"behind"]
    assert rows_seen(file, held, None) is None
    assert rows_seen(file, held, asking((point(b"b"),))) is None
    assert rows_seen(file, None, right) is None
    assert rows_seen(file, held, guessing(asking((point(b"b"),)), (b"no", 1, b""))) is None
    assert rows_seen(file, Guard(b"guard", None), right) is None
    assert rows_seen(file, Guard(b"other", stamp), right) is None
    commit(file, put(b"guard"))
    assert rows_seen(file, held, right) is None
    file.close()
    assert rows_seen(file, held, right) is None


def beside_each_statement(file: SqliteEngine, stamp: bytes) -> tuple[bytes, ...] | None:
    """Return the answer to a lookup while guard, slot and record change before each statement."""
    connections = store_of(file).open_readers()
    rounds: list[int] = []

    def move(_: str) -> None:
        rounds.append(1)
        number = b"%d" % len(rounds)
        if len(rounds) == 2:
            commit(file, put(b"guard"))
        commit(file, put(b"a", b"1" + number), put(b"b" + number, b"behind " + number), put(b"b1", number))

    for connection in connections:
        connection.set_trace_callback(move)
    row = file.row_at_key(b"a", Guard(b"guard", stamp), guessing(asking(()), (b"b", 1, b"")))
    for connection in connections:
        connection.set_trace_callback(None)
    return row[:2] if row else None


def test_guard_slot_and_record_are_read_in_one_state(file: SqliteEngine):
    stamp = commit(file, put(b"guard"))
    commit(file, put(b"a", b"10"), put(b"b0", b"behind 0"))
    file.read((point(b"a"),), Guard(b"guard", stamp))  # opens a connection
    assert beside_each_statement(file, stamp) == (b"b1", b"1")


def test_a_lookup_in_two_statements_would_mix_two_states(file: SqliteEngine, monkeypatch: pytest.MonkeyPatch):
    def mixing(engine: SqliteEngine, key: bytes, guard: Guard, follow: PredictedFollow) -> tuple[Any, ...]:
        store = store_of(engine)
        connection = store.borrow()
        (value, *_), *_ = connection.execute(sqlite_statements.POINT, (key,)).fetchall()
        behind = follow.guess[0] + value[follow.guess[1] :]
        (found, *_), *_ = connection.execute(sqlite_statements.POINT, (behind,)).fetchall()
        store.give_back(connection)
        return behind, found, 0, b"", None

    monkeypatch.setattr(SqliteEngine, "row_at_key", mixing)
    stamp = commit(file, put(b"guard"))
    commit(file, put(b"a", b"10"), put(b"b0", b"behind 0"))
    file.read((point(b"a"),), Guard(b"guard", stamp))
    assert beside_each_statement(file, stamp) == (b"b1", b"2")  # of a slot that names b2 by then


@pytest.mark.parametrize("versionstamp", [None, b"\xff" * 10, bytes(9) + b"\1", b"\x80" + bytes(9)])
def test_a_guard_that_no_row_can_have_makes_no_statement(file: SqliteEngine, versionstamp: bytes | None):
    commit(file, put(b"guard"), put(b"a", b"1b"), put(b"b", b"behind"))
    assert rows_seen(file, Guard(b"guard", versionstamp), guessing(asking(()), (b"", 1, b""))) is None


def test_another_guess_or_guard_is_asked_for_by_another_statement(file: SqliteEngine):
    stamp = commit(file, put(b"guard"))
    commit(file, put(b"a", b"1b"), put(b"b", b"behind"), put(b"c", b"other"), put(b"b'", b"quoted"))
    likely, held = PredictedFollow(asking(()), (b"", 1, b"")), Guard(b"guard", stamp)
    assert rows_seen(file, held, likely) == [b"behind"]
    likely.guess = (b"c", 2, b"")
    assert rows_seen(file, held, likely) == [b"other"]
    likely.guess = (b"", 1, b"'")
    assert rows_seen(file, held, likely) == [b"quoted"]
    likely.others, likely.guess = {2: (b"c", 2, b""), 3: (b"b", 3, b"")}, (b"no", 1, b"")
    assert rows_seen(file, held, likely) == [b"other"]
    likely.others, likely.guess = {1: (b"c", 2, b""), 3: (b"b", 3, b"")}, (b"", 1, b"'")
    assert rows_seen(file, held, likely) == [b"quoted"]
    assert rows_seen(file, Guard(b"a", stamp), likely) is None
    moved = commit(file, put(b"guard"))
    assert rows_seen(file, held, likely) is None
    assert rows_seen(file, Guard(b"guard", moved), likely) == [b"quoted"]
