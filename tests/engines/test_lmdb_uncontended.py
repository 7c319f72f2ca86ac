"""A commit of LMDB without a group ends as one with a group, and an interrupt says what became of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lmdb
import pytest

from kvmodels.core.operations import Arithmetic, AtomicWrite, Check, Committed, Conflict, Delete
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.lmdb.store import LmdbStore
from kvmodels.engines.shared.group_commit import GroupCommitter, UncontendedCommit
from kvmodels.engines.shared.waiting import Backoff
from kvmodels.errors import EngineError, KeyTooLargeError, KvModelsError
from tests.contract.shorthand import EVERYTHING, commit, counter, get, put, rows
from tests.engines.interrupting import interrupted_everywhere, require_unlocked

NOW = 1_700_000_000_000
SEED = 20_261_128
KEYS = [b"key %d" % number for number in range(6)]

CODES = {
    LmdbStore._carry_out_alone.__code__,
    LmdbStore._write.__code__,
    LmdbStore._transact.__code__,
    LmdbStore._end.__code__,
    UncontendedCommit.run.__code__,
    GroupCommitter.commit_uncontended.__code__,
}

FINALLY = ("self._writes_reserved = False", "self._writer_lock.release()")
"""Lines of a ``finally`` between which the interpreter does not look for signals; a trace function is called there."""


def opened(folder: Path) -> LmdbEngine:
    return LmdbEngine(folder / "store.lmdb", durability="relaxed", clock=lambda: NOW)


def new(key: bytes) -> AtomicWrite:
    return AtomicWrite((Check(key, None),), (put(key),))


@pytest.mark.fast_kinds
def test_an_interrupt_before_any_line_leaves_it_whole_or_absent_and_says_which(quick_folder: Path):
    engine = opened(quick_folder)
    applied = interrupted_everywhere(engine, CODES, new, FINALLY)
    print(f"{applied} applied")
    assert applied >= 4
    engine.close()


def note_behind_the_commit(engine: LmdbEngine, patch: pytest.MonkeyPatch) -> list[str]:
    """Return the notes of an interrupt that comes as soon as LMDB has committed."""
    end = LmdbStore._end

    def interrupted(*arguments: Any) -> None:
        end(*arguments)
        raise KeyboardInterrupt

    with patch.context() as one, pytest.raises(KeyboardInterrupt) as interrupt:
        one.setattr(LmdbStore, "_end", interrupted)
        engine.commit(AtomicWrite((), (put(b"a"),)))
    assert get(engine, b"a") is not None
    return interrupt.value.__notes__


def test_an_interrupt_behind_the_commit_says_that_it_was_applied(quick_folder: Path, monkeypatch: pytest.MonkeyPatch):
    engine = opened(quick_folder)
    assert note_behind_the_commit(engine, monkeypatch) == ["the commit was applied"]
    engine.close()


@pytest.mark.fast_kinds
def test_without_a_look_at_the_file_the_interrupt_says_the_wrong_thing(
    quick_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(LmdbStore, "_contains", lambda *_: False)
    engine = opened(quick_folder)
    assert note_behind_the_commit(engine, monkeypatch) == ["the commit was not applied"]
    engine.close()


def drawn(chance: random.Random, stamps: dict[bytes, bytes]) -> AtomicWrite:
    """An operation that may be refused: by a check, by a key that is too long, or by a sum of something else."""
    key = chance.choice(KEYS)
    expected = stamps.get(key) if chance.random() < 0.8 else None
    kind = chance.randrange(10)
    if kind == 0:
        return AtomicWrite((), (put(b"k" * 600), put(key)))
    if kind == 1:
        return AtomicWrite((), (put(key), Arithmetic("sum", chance.choice([b"number", key]), 1)))
    return AtomicWrite((Check(key, expected),), (Delete(key) if kind < 4 else put(key, b"%d" % kind),))


def told(engine: LmdbEngine, seed: int) -> list[Any]:
    """Return the answers to the same operations, and the rows that they leave."""
    chance = random.Random(seed)
    commit(engine, counter(b"number", 1))
    stamps: dict[bytes, bytes] = {}
    answers: list[Any] = []
    for _ in range(300):
        write = drawn(chance, stamps)
        try:
            answers.append(engine.commit(write))
        except KvModelsError as error:
            answers.append((type(error), str(error)))
        stamps = {row.key: row.versionstamp for row in rows(engine, EVERYTHING)}
    return [*answers, rows(engine, EVERYTHING)]


@pytest.mark.fast_kinds
def test_both_ways_end_with_the_same(quick_folder: Path, monkeypatch: pytest.MonkeyPatch):
    print(f"seed {SEED}")
    answers = []
    alone: list[UncontendedCommit] = []
    carry_out = LmdbStore._carry_out_alone

    def counted(store: LmdbStore, one: UncontendedCommit) -> None:
        alone.append(one)
        carry_out(store, one)

    monkeypatch.setattr(LmdbStore, "_carry_out_alone", counted)
    for name in ("alone", "in a group"):
        (quick_folder / name).mkdir()
        engine = opened(quick_folder / name)
        answers.append(told(engine, SEED))
        engine.close()
        monkeypatch.setattr(GroupCommitter, "commit_uncontended", lambda *_: None)
    assert answers[0] == answers[1]
    assert len(alone) > 300
    kinds = {type(answer) for answer in answers[0]}
    assert {Committed, Conflict, tuple} <= kinds
    assert KeyTooLargeError in {answer[0] for answer in answers[0] if type(answer) is tuple}


@pytest.mark.fast_kinds
def test_a_commit_that_fails_is_reported_and_leaves_nothing(quick_folder: Path, monkeypatch: pytest.MonkeyPatch):
    engine = opened(quick_folder)
    commit(engine, put(b"a"))

    def fail(*_: object) -> None:
        raise lmdb.DiskError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(LmdbStore, "_end", fail)
        patch.setattr(GroupCommitter, "commit", lambda *_: pytest.fail("it was not carried out alone"))
        with pytest.raises(EngineError):
            engine.commit(AtomicWrite((), (put(b"b"),)))
    require_unlocked(engine)
    assert [row.key for row in rows(engine, EVERYTHING)] == [b"a"]
    commit(engine, put(b"b"))
    engine.close()


def test_an_operation_that_is_left_to_a_group_keeps_its_deadline(quick_folder: Path, monkeypatch: pytest.MonkeyPatch):
    engine = opened(quick_folder)
    made: list[Backoff] = []
    kept: list[Backoff] = []
    backoff, in_group = LmdbStore.backoff, GroupCommitter.commit

    def noted(store: LmdbStore) -> Backoff:
        made.append(backoff(store))
        return made[-1]

    def grouped(committer: GroupCommitter, write: AtomicWrite, one: Backoff) -> Committed | Conflict:
        kept.append(one)
        return in_group(committer, write, one)

    monkeypatch.setattr(LmdbStore, "backoff", noted)
    monkeypatch.setattr(GroupCommitter, "commit", grouped)
    monkeypatch.setattr(GroupCommitter, "commit_uncontended", lambda *_: None)
    commit(engine, put(b"a"))
    assert kept == made
    assert len(kept) == 1
    engine.close()
