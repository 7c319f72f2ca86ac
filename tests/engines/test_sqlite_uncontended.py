"""A commit without a group ends as one with a group, whatever others have done since the last one."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest

from kvmodels.core.operations import (
    Arithmetic,
    AtomicWrite,
    Check,
    Committed,
    Conflict,
    Delete,
    Mutation,
    ReadRange,
    Removal,
    Set,
    to_versionstamp,
)
from kvmodels.engines.shared import group_commit
from kvmodels.engines.shared.group_commit import GroupCommitter, UncontendedCommit
from kvmodels.engines.shared.waiting import Backoff
from kvmodels.engines.sqlite import statements
from kvmodels.engines.sqlite import write_transactions as uncontended
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.engines.sqlite.store import SqliteStore
from kvmodels.errors import (
    ClosedError,
    CommitUnknownError,
    EngineError,
    EngineTimeoutError,
    InvalidValueError,
    KvModelsError,
    StorageFullError,
)
from tests.contract.shorthand import commit, counter, put, rows
from tests.engines.interrupting import interrupted_everywhere
from tests.engines.ledger import Bell, Ledger

NOW = 1_700_000_000_000
SEED = 20_261_122
EVERYTHING = ReadRange(b"", b"\xff")
Mutant: TypeAlias = Callable[[pytest.MonkeyPatch], None]

RECORDS = [b"record %d" % number for number in range(8)]
GUARDS = [b"guard 0", b"guard 1"]

CarryOut = Callable[[UncontendedCommit], None]


def entries_of(key: bytes, value: bytes, encoding: int) -> list[bytes] | None:
    """The entries of a record: one for each letter of its value; some values are not understood."""
    return None if value == b"?" else [bytes((letter,)) + key for letter in value]


class Story:
    """A store in a file with other processes, and what was told of it.

    Each operation is drawn with versionstamps as the story has made them, so that the same numbers tell the same.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.time = NOW
        self.logs = 3_600 if seed % 2 else None
        self.engine = SqliteEngine(path, durability="relaxed", clock=lambda: self.time, change_log=self.logs)
        self.told: list[Any] = []
        commit(self.engine, put(GUARDS[0]), put(GUARDS[1]), counter(b"number", 1))
        # The counter begins with the wall clock, which both ways see at different moments.
        self.elsewhere("UPDATE meta SET version = 1000")
        commit(self.engine, put(GUARDS[0]), put(GUARDS[1]))

    def elsewhere(self, *changes: str) -> None:
        """Make a commit of another process, which raises the counter."""
        with closing(sqlite3.connect(self.engine.check_open().path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for change in changes:
                other.execute(change)
            other.execute("COMMIT")

    def version_of(self, key: bytes) -> bytes | None:
        found = rows(self.engine, ReadRange(key), include_expired=True)
        return found[0].versionstamp if found else None

    def guard(self) -> Check:
        """A check of a guard; seldom with a wrong versionstamp, or one that time may change."""
        key = GUARDS[self.chance.random() < 0.1]
        held = self.version_of(key) if self.chance.random() < 0.95 else to_versionstamp(5)
        return Check(key, held, physical=self.chance.random() < 0.8)

    def insert(self) -> AtomicWrite:
        chance, key = self.chance, self.chance.choice(RECORDS)
        value = chance.choice([b"", b"a", b"ab", b"?"])
        checks, mutations = [self.guard(), Check(key, None, physical=True)], [put(key, value)]
        mutations += [put(bytes((letter,)) + key, b"") for letter in value]
        odd = chance.randrange(14)
        if odd == 0:
            checks.append(Check(chance.choice(RECORDS), None, physical=True))
        elif odd == 1:
            mutations[-1] = mutations[-1]._replace(expire_at=self.time + chance.choice([-1, 0, 50]))
        elif odd == 2:
            mutations.append(put(GUARDS[0]))
        elif odd == 3:
            checks.append(Check(GUARDS[1], self.version_of(GUARDS[1])))
        elif odd == 4:
            mutations.append(put(key, b"a"))
        elif odd == 5:
            checks.pop(0)
        chance.shuffle(checks)
        return AtomicWrite(tuple(checks), tuple(mutations))

    def removal(self) -> Removal:
        return Removal(self.guard(), self.chance.choice([*RECORDS, *RECORDS, *GUARDS]), entries_of)

    def change(self) -> AtomicWrite:
        chance, key = self.chance, self.chance.choice(RECORDS)
        checks: tuple[Check, ...] = (self.guard(), Check(key, self.version_of(key), physical=True))
        mutations: tuple[Mutation, ...] = (put(key, chance.choice([b"", b"b", b"abc"])),)
        kind = chance.randrange(12)
        if kind == 0:
            mutations = (Arithmetic("sum", chance.choice([b"number", key]), 1), put(b"x"))
        elif kind == 3:
            checks = (Check(key, None, physical=True), *checks)
        elif kind == 4:
            mutations += (Delete(chance.choice(RECORDS)), put(chance.choice(RECORDS), b"a"))
        elif kind == 5:
            mutations = (put(key, b"a", self.time + 50), put(b"x"))
        elif kind == 6:
            checks = (checks[0], checks[1]._replace(versionstamp=to_versionstamp(5)))
        elif kind == 7:
            checks = (*checks, Check(chance.choice(RECORDS), self.version_of(chance.choice(RECORDS))))
        elif kind == 1:
            mutations = (put(GUARDS[chance.random() < 0.5]),)
        elif kind == 2:
            mutations = (
                (Delete(GUARDS[1]), put(GUARDS[1], b"", self.time + 60)) if chance.random() < 0.3 else (Delete(key),)
            )
        return AtomicWrite(checks, mutations)

    def somebody_else(self) -> None:
        key = self.chance.choice([*RECORDS, *GUARDS, GUARDS[0]])
        kind = self.chance.randrange(4)
        raised = "UPDATE meta SET version = version + 1, clock = clock + 20"
        if kind == 0:
            self.elsewhere(raised, f"DELETE FROM kv WHERE k = X'{key.hex()}'")
        elif kind == 1:
            row = f"(X'{key.hex()}', X'61', 3, (SELECT version FROM meta))"
            self.elsewhere(raised, f"INSERT OR REPLACE INTO kv (k, v, e, s) VALUES {row}")
        elif kind == 2:
            members = [self.engine.submit(one, Bell()) for one in (self.insert(), self.change(), self.removal())]
            self.engine.check_open().commits.lead()
            self.told += [said(one.outcome) for one in members]
        else:
            self.time += 30
            self.told.append(self.engine.sweep(100))

    def step(self) -> None:
        drawn = self.chance.choice([self.insert] * 4 + [self.removal] * 3 + [self.change] * 3 + [self.somebody_else])()
        if drawn is not None:
            try:
                self.told.append(self.engine.remove(drawn) if isinstance(drawn, Removal) else self.engine.commit(drawn))
            except InvalidValueError as error:
                self.told.append(said(error))
        self.told.append(rows(self.engine, EVERYTHING, include_expired=True))
        with closing(sqlite3.connect(self.engine.check_open().path)) as other:
            self.told += other.execute("SELECT version, clock FROM meta").fetchall()
            if self.logs is not None:
                self.told += other.execute("SELECT k, s, t FROM log ORDER BY k").fetchall()


def said(outcome: Any) -> Any:
    return str(outcome) if isinstance(outcome, KvModelsError) else outcome


def told(path: Path, seed: int, steps: int) -> list[Any]:
    story = Story(path, seed)
    for _ in range(steps):
        story.step()
    story.engine.close()
    return story.told


def with_groups(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupCommitter, "commit_uncontended", lambda *_: None)


def stories(folder: Path, number: int) -> tuple[int, int]:
    """Compare both ways; how many operations were committed, and how many were refused."""
    committed = refused = 0
    for at in range(number):
        short = told(folder / f"{at}-short.db", SEED + at, 60)
        with pytest.MonkeyPatch.context() as patch:
            with_groups(patch)
            assert told(folder / f"{at}-full.db", SEED + at, 60) == short
        committed += sum(isinstance(one, Committed) for one in short)
        refused += sum(isinstance(one, Conflict) for one in short)
    return committed, refused


def test_both_ways_end_with_the_same(tmp_path: Path):
    committed, refused = stories(tmp_path, 16)
    print(f"{committed} committed, {refused} refused")
    assert committed > 200
    assert refused > 200


def nobody_else_commits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        uncontended,
        "RAISE",
        uncontended.RAISE.replace("version = ?", "?2 IS NOT ?3").replace("SET ?2 IS NOT ?3", "SET version = ?1"),
    )


def taken_is_replaced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "kvmodels.engines.sqlite.write_transactions.INSERT",
        uncontended.INSERT.replace("INSERT", "INSERT OR REPLACE"),
    )


def taken_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "kvmodels.engines.sqlite.write_transactions.INSERT",
        uncontended.INSERT.replace("INSERT", "INSERT OR IGNORE"),
    )


def any_check_stays(patch: pytest.MonkeyPatch) -> None:
    def left(checks: Any, evaluated: Any) -> Any:
        return next((check for check in checks if check[1] is not None and check[2]), None)

    patch.setattr(uncontended, "_unchanged_check", left)


def time_changes_nothing(patch: pytest.MonkeyPatch) -> None:
    original = uncontended._unchanged_check

    def left(checks: Any, evaluated: Any) -> Any:
        held = original([check._replace(physical=True) for check in checks], evaluated)
        return next((check for check in checks if held is not None and check[0] == held[0]), None)

    patch.setattr(uncontended, "_unchanged_check", left)


def only_what_is_set(patch: pytest.MonkeyPatch) -> None:
    """Keys that are checked and not set are taken for free."""

    def kept(write: AtomicWrite) -> AtomicWrite:
        keys = {mutation.key for mutation in write.mutations}
        return write._replace(checks=tuple([one for one in write.checks if one[1] is not None or one[0] in keys]))

    judged_as(patch, kept)


def judged_as(patch: pytest.MonkeyPatch, changed: Callable[[AtomicWrite], AtomicWrite]) -> None:
    """Have an operation judged by its writing as if it were another one."""
    original = uncontended._judged_by_writing
    patch.setattr(
        uncontended, "_judged_by_writing", lambda write, held, version: original(changed(write), held, version)
    )


def no_other_check(patch: pytest.MonkeyPatch) -> None:
    judged_as(patch, lambda write: write._replace(checks=tuple([one for one in write.checks if one[1] is None])))


def one_check_of_a_key(patch: pytest.MonkeyPatch) -> None:
    judged_as(patch, lambda write: write._replace(checks=tuple({one[0]: one for one in write.checks}.values())))


def without_a_deadline(patch: pytest.MonkeyPatch) -> None:
    def plain(write: AtomicWrite) -> AtomicWrite:
        mutations = [one._replace(expire_at=None) if isinstance(one, Set) else one for one in write.mutations]
        return write._replace(mutations=tuple(mutations))

    judged_as(patch, plain)


def deletions_come_last(patch: pytest.MonkeyPatch) -> None:
    def sorted_and_single(write: AtomicWrite) -> AtomicWrite:
        last = sorted(write.mutations, key=lambda one: isinstance(one, Delete))
        return write._replace(mutations=tuple({one.key: one for one in last}.values()))

    judged_as(patch, sorted_and_single)


def any_version_is_replaced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(uncontended, "UPDATE", uncontended.UPDATE.replace("s = ? AND", "(s = ? OR true) AND"))


def what_expires_is_replaced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(uncontended, "UPDATE", uncontended.UPDATE.replace(" AND x IS NULL", ""))


def what_was_not_found_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    original = uncontended._carried_out

    def carried_out(*arguments: Any) -> bool:
        original(*arguments)
        return True

    patch.setattr(uncontended, "_carried_out", carried_out)


def removed_although_it_expires(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statements, "POINT", "SELECT v, e, s, NULL FROM kv WHERE k = ?")


def what_was_removed_still_holds(patch: pytest.MonkeyPatch) -> None:
    original = uncontended._removed

    def removed(connection: Any, version: int, removal: Removal) -> Any:
        written = original(connection, version, removal)
        return written if isinstance(written, Conflict) else (*written[:2], removal.check)

    patch.setattr(uncontended, "_removed", removed)


STORIES = (
    nobody_else_commits,
    taken_is_replaced,
    taken_is_ignored,
    no_other_check,
    one_check_of_a_key,
    without_a_deadline,
    any_version_is_replaced,
    what_expires_is_replaced,
    what_was_not_found_is_passed_over,
)


@pytest.mark.fast_kinds
@pytest.mark.parametrize("mutant", STORIES, ids=lambda mutant: str(mutant.__name__))
def test_the_stories_convict(mutant: Mutant, tmp_path: Path):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError):
        mutant(patch)
        stories(tmp_path, 16)


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Iterator[SqliteEngine]:
    opened = SqliteEngine(tmp_path / "store.db", durability="relaxed", clock=clock, busy_timeout=20)
    commit(opened, put(b"z"))
    yield opened
    opened.close()


def stored(engine: SqliteEngine) -> list[bytes]:
    return [row.key for row in rows(engine, EVERYTHING, include_expired=True)]


def new(key: bytes, *checks: Check) -> AtomicWrite:
    return AtomicWrite((*checks, Check(key, None, physical=True)), (put(key),))


def guarded(engine: SqliteEngine, *, physical: bool = True, expire_at: int | None = None) -> Check:
    """A check that is known to hold, because an operation has made it."""
    check = Check(b"guard", commit(engine, put(b"guard", b"", expire_at)), physical)
    assert isinstance(engine.commit(new(b"first", check)), Committed)
    return check


def a_check_ends_with_the_row_that_it_is_of(engine: SqliteEngine, _: Clock) -> None:
    check = guarded(engine)
    assert isinstance(engine.commit(AtomicWrite((check,), (put(b"guard"),))), Committed)
    assert engine.commit(new(b"a", check)) == Conflict((0,))
    assert stored(engine) == [b"first", b"guard", b"z"]


def a_check_ends_with_the_removal_of_its_row(engine: SqliteEngine, _: Clock) -> None:
    check = guarded(engine)
    commit(engine, put(b"row", b"guard"))
    assert isinstance(engine.remove(Removal(check, b"guard", lambda *_: [])), Committed)
    assert engine.commit(new(b"a", check)) == Conflict((0,))
    check = guarded_again(engine)
    assert isinstance(engine.remove(Removal(check, b"row", lambda *_: [b"guard"])), Committed)
    assert engine.commit(new(b"a", check)) == Conflict((0,))


def guarded_again(engine: SqliteEngine) -> Check:
    check = Check(b"guard", commit(engine, put(b"guard")), physical=True)
    assert isinstance(engine.commit(new(b"second", check)), Committed)
    return check


def a_check_ends_when_its_row_expires(engine: SqliteEngine, clock: Clock) -> None:
    check = guarded(engine, physical=False, expire_at=NOW + 10)
    assert isinstance(engine.commit(new(b"a", check)), Committed)
    clock.now = NOW + 20
    assert engine.commit(new(b"b", check)) == Conflict((0,))


def what_is_checked_and_not_set_is_looked_at(engine: SqliteEngine, _: Clock) -> None:
    check = guarded(engine)
    write = AtomicWrite((check, Check(b"a", None), Check(b"z", None)), (put(b"a"), put(b"b")))
    assert engine.commit(write) == Conflict((2,))
    assert isinstance(engine.commit(write._replace(checks=(check, Check(b"a", None), Check(b"c", None)))), Committed)


def a_row_with_a_deadline_is_not_removed(engine: SqliteEngine, _: Clock) -> None:
    check = guarded(engine)
    for deadline in (NOW - 1, NOW + 1):
        commit(engine, put(b"row", b"", deadline))
        assert isinstance(engine.commit(new(b"%d" % deadline, check)), Committed)
        assert engine.remove(Removal(check, b"row", lambda *_: [])) == Conflict(())
        assert b"row" in stored(engine)


def the_last_mutation_of_a_key_counts(engine: SqliteEngine, _: Clock) -> None:
    check = guarded(engine)
    assert isinstance(engine.commit(AtomicWrite((check,), (put(b"a", b"1"), Delete(b"a"), put(b"a", b"2")))), Committed)
    assert [row.value for row in rows(engine, ReadRange(b"a"))] == [b"2"]


RULES: dict[Mutant, Callable[[SqliteEngine, Clock], None]] = {
    any_check_stays: a_check_ends_with_the_row_that_it_is_of,
    what_was_removed_still_holds: a_check_ends_with_the_removal_of_its_row,
    time_changes_nothing: a_check_ends_when_its_row_expires,
    only_what_is_set: what_is_checked_and_not_set_is_looked_at,
    deletions_come_last: the_last_mutation_of_a_key_counts,
    removed_although_it_expires: a_row_with_a_deadline_is_not_removed,
}


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: str(rule.__name__))
def test_rule(rule: Callable[[SqliteEngine, Clock], None], engine: SqliteEngine, clock: Clock):
    rule(engine, clock)


@pytest.mark.fast_kinds
@pytest.mark.parametrize("mutant", RULES, ids=lambda mutant: str(mutant.__name__))
def test_a_mutant_is_convicted(mutant: Mutant, engine: SqliteEngine, clock: Clock):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError):
        mutant(patch)
        RULES[mutant](engine, clock)


# --- statements, errors and interrupts ------------------------------------------------------------------------------


Run = Callable[..., Any]


def noting(
    engine: SqliteEngine, patch: pytest.MonkeyPatch, failing: dict[str, BaseException] | None = None
) -> list[str]:
    """The statements of the writing connection from now on; some raise once, by how they begin."""
    begun: list[str] = []
    left = failing or {}
    writer = engine.check_open().writer
    assert writer is not None

    def watched(real: Run) -> Run:
        def call(sql: str, *arguments: Any) -> Any:
            begun.append(sql.split()[0])
            if begun[-1] in left:
                raise left.pop(begun[-1])
            return real(sql, *arguments)

        return call

    for name in ("execute", "executemany"):
        patch.setitem(vars(writer), name, watched(getattr(writer, name)))
    return begun


@pytest.mark.fast_kinds
def test_what_the_last_commit_has_left_is_not_asked_again(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch):
    check = guarded(engine)
    stamp = commit(engine, put(b"row", b"ab"), put(b"a"))
    with closing(sqlite3.connect(engine.check_open().path, isolation_level=None)) as other:
        other.execute("UPDATE meta SET version = version + 1")
    begun = noting(engine, monkeypatch)
    assert isinstance(engine.commit(new(b"b", check)), Committed)
    assert begun == ["BEGIN", "UPDATE", "SELECT", "UPDATE", "INSERT", "COMMIT"]
    begun.clear()
    assert isinstance(engine.commit(new(b"c", check)), Committed)
    assert begun == ["BEGIN", "UPDATE", "INSERT", "COMMIT"]
    begun.clear()
    change = AtomicWrite((check, Check(b"row", stamp, physical=True)), (put(b"row", b"bd"), Delete(b"a"), put(b"d")))
    assert isinstance(engine.commit(change), Committed)
    assert begun == ["BEGIN", "UPDATE", "UPDATE", "INSERT", "DELETE", "COMMIT"]
    begun.clear()
    assert engine.commit(change) == Conflict((1,))
    assert begun[:4] == ["BEGIN", "UPDATE", "UPDATE", "BEGIN"]
    begun.clear()
    removal = Removal(check, b"row", lambda _, value, __: [bytes((letter,)) for letter in value])
    assert isinstance(engine.remove(removal), Committed)
    assert begun == ["BEGIN", "UPDATE", "SELECT", "DELETE", "COMMIT"]
    assert stored(engine) == [b"c", b"first", b"guard", b"z"]


def test_what_is_in_the_way_costs_no_version(engine: SqliteEngine):
    check = guarded(engine)
    stamp = commit(engine, put(b"taken"))
    assert isinstance(engine.commit(new(b"b", check)), Committed)
    assert engine.commit(new(b"taken", check)) == Conflict((1,))
    after = int.from_bytes(stamp[:8], "big") + 2
    assert engine.commit(new(b"c", check)) == Committed(to_versionstamp(after))


def of_sqlite(code: int, name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("as if")
    error.sqlite_errorcode, error.sqlite_errorname = code, name
    return error


def test_a_row_without_a_check_beside_a_new_one_may_be_there_already(engine: SqliteEngine):
    check = guarded(engine)
    commit(engine, put(b"there", b"old"))
    checks = (check, Check(b"new", None, physical=True))
    assert isinstance(engine.commit(AtomicWrite(checks, (put(b"new"), put(b"there", b"changed")))), Committed)
    assert [row.value for row in rows(engine, ReadRange(b"there"))] == [b"changed"]
    assert b"new" in stored(engine)


def test_a_disk_that_fails_in_commit_leaves_the_outcome_open(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch):
    check = guarded(engine)
    noting(engine, monkeypatch, {"COMMIT": of_sqlite(sqlite3.SQLITE_IOERR_FSYNC, "SQLITE_IOERR_FSYNC")})
    with pytest.raises(CommitUnknownError):
        engine.commit(new(b"b", check))
    with pytest.raises(ClosedError):
        engine.commit(new(b"c", check))


@pytest.mark.parametrize("statement", ["BEGIN", "UPDATE", "INSERT", "COMMIT"])
def test_a_full_disk_leaves_nothing(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch, statement: str):
    check = guarded(engine)
    before = stored(engine)
    begun = noting(engine, monkeypatch, {statement: of_sqlite(sqlite3.SQLITE_FULL, "SQLITE_FULL")})
    with pytest.raises(StorageFullError):
        engine.commit(new(b"b", check))
    assert begun[-1] == statement
    assert stored(engine) == before
    assert isinstance(engine.commit(new(b"b", check)), Committed)


def test_a_busy_file_is_waited_for(engine: SqliteEngine):
    check = guarded(engine)
    with closing(sqlite3.connect(engine.check_open().path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.1, other.rollback).start()
        assert isinstance(engine.commit(new(b"b", check)), Committed)


def test_a_file_that_stays_busy_is_not_waited_for_longer_than_allowed(tmp_path: Path):
    engine = SqliteEngine(tmp_path / "store.db", durability="relaxed", busy_timeout=0.05)
    check = guarded(engine)
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(EngineTimeoutError):
            engine.commit(new(b"b", check))
        other.rollback()
    assert isinstance(engine.commit(new(b"b", check)), Committed)
    engine.close()


CODES = {
    SqliteStore._carry_out_alone.__code__,
    uncontended.written.__code__,
    GroupCommitter.commit_uncontended.__code__,
}


@pytest.mark.fast_kinds
def test_an_interrupt_before_any_line_leaves_it_whole_or_absent_and_says_which(engine: SqliteEngine):
    check = guarded(engine)
    applied = interrupted_everywhere(engine, CODES, lambda key: new(key, check))
    print(f"{applied} applied")
    assert applied >= 4


# --- beside other writers -------------------------------------------------------------------------------------------


NO_WAIT = Backoff(0, lambda error: EngineTimeoutError(str(error)))


def carried_out(ledger: Ledger, write: AtomicWrite, meanwhile: Callable[[], object] = lambda: None) -> Any:
    """Have an operation carried out alone; others come before it ends."""

    def carry_out(commit: UncontendedCommit) -> None:
        meanwhile()
        commit.verdict, commit.committed = Committed(b""), True

    return ledger.commits.commit_uncontended(write, NO_WAIT, carry_out)


WRITE = AtomicWrite((), (put(b"a"),))


def who_waits_is_told(ledger: Ledger) -> None:
    bell = Bell()
    assert carried_out(ledger, WRITE, lambda: ledger.submit(WRITE, bell)) is not None
    assert bell.calls == 1


def who_has_come_goes_first(ledger: Ledger) -> None:
    ledger.submit(WRITE)
    assert carried_out(ledger, WRITE) is None


def who_meets_others_shares_with_them(ledger: Ledger) -> None:
    assert carried_out(ledger, WRITE, lambda: ledger.submit(WRITE)) is not None
    ledger.submit(WRITE)
    ledger.commits.lead()
    assert ledger.transactions == [2]
    assert carried_out(ledger, WRITE) is None
    ledger.commit(WRITE)
    assert carried_out(ledger, WRITE) is not None


def who_interrupts_it_in_its_thread_is_refused(ledger: Ledger) -> None:
    def interrupt() -> None:
        with pytest.raises(EngineError, match="inside another write of the same thread"):
            ledger.commit(WRITE)

    assert carried_out(ledger, WRITE, interrupt) is not None
    assert isinstance(ledger.commit(WRITE), Committed)


class Turn:
    """The turn of a ledger; somebody comes who finds it taken, at the last moment before it is given back."""

    def __init__(self, come: Callable[[], object]) -> None:
        self._lock = threading.Lock()
        self._come = come

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._come()
        self._lock.release()


def who_comes_at_the_last_moment_is_told(ledger: Ledger) -> None:
    bell = Bell()
    ledger.commits._turn = cast("threading.Lock", Turn(lambda: ledger.submit(WRITE, bell)))
    assert carried_out(ledger, WRITE) is not None
    assert bell.calls == 1


def looked_for_within_the_turn(patch: pytest.MonkeyPatch) -> None:
    def commit_uncontended(
        self: GroupCommitter, write: AtomicWrite, backoff: Backoff, carry_out: Callable[[UncontendedCommit], None]
    ) -> Any:
        commit = UncontendedCommit(write, backoff)
        with self._turn:
            carry_out(commit)
            if self._queue:
                self._call_next()
        return commit.outcome

    patch.setattr(GroupCommitter, "commit_uncontended", commit_uncontended)


def never_called(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupCommitter, "_call_next", lambda self: None)


def first_although_others_wait(patch: pytest.MonkeyPatch) -> None:
    def commit_uncontended(
        self: GroupCommitter, write: AtomicWrite, backoff: Backoff, carry_out: Callable[[UncontendedCommit], None]
    ) -> Any:
        commit = UncontendedCommit(write, backoff)
        carry_out(commit)
        return commit.outcome

    patch.setattr(GroupCommitter, "commit_uncontended", commit_uncontended)


def never_crowded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupCommitter, "_crowded", property(lambda self: False, lambda self, value: None))


def waits_for_its_own_thread(patch: pytest.MonkeyPatch) -> None:
    def wait(_: object) -> None:
        raise AssertionError("it would wait forever")

    patch.setattr(GroupCommitter, "_leader", property(lambda _: None, lambda _, thread: None))
    patch.setattr(group_commit._ThreadWaiter, "wait", wait)


COMPANY: dict[Mutant, Callable[[Ledger], None]] = {
    never_called: who_waits_is_told,
    looked_for_within_the_turn: who_comes_at_the_last_moment_is_told,
    first_although_others_wait: who_has_come_goes_first,
    never_crowded: who_meets_others_shares_with_them,
    waits_for_its_own_thread: who_interrupts_it_in_its_thread_is_refused,
}


@pytest.mark.fast_kinds
@pytest.mark.parametrize("rule", COMPANY.values(), ids=lambda rule: str(rule.__name__))
def test_rule_beside_others(rule: Callable[[Ledger], None]):
    rule(Ledger())


@pytest.mark.parametrize("mutant", COMPANY, ids=lambda mutant: str(mutant.__name__))
def test_a_mutant_beside_others_is_convicted(mutant: Mutant):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError):
        mutant(patch)
        COMPANY[mutant](Ledger())
