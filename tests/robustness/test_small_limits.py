"""Engines that take 10 ranges in a read and 10 checks in a commit: what is split, and what is refused beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import create_model

from kvmodels import (
    CommitUnknownError,
    Database,
    Field,
    Indexed,
    KvModel,
    Limits,
    MultiIndexed,
    OperationTooLargeError,
    PrimaryKey,
    Unique,
    UniqueViolationError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.keys import encode_key, prefix_range
from kvmodels.core.operations import (
    AtomicWrite,
    Committed,
    Conflict,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
    Set,
    point,
)
from kvmodels.engines.contract import Engine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.effects import fits_one_read, read_all, split_ranges
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.runtime.sync import run
from tests.limited_engine import FEW, LimitedEngine
from tests.locks.claims import claim_of

CHECKS = replace(FEW, name="CHECKS", max_checks=1_000)


class Watched(LimitedEngine):
    """Counts commits, and calls back before a read of many ranges."""

    def __init__(self, inner: Engine, limits: Limits = FEW) -> None:
        super().__init__(inner, limits)
        self.commits = 0
        self.before_read: Callable[[Sequence[ReadRange]], object] = bool

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        self.before_read(ranges)
        return super().read(ranges, guard, include_expired=include_expired, follow=follow)

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self.commits += 1
        return super().commit(write)


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int]
    color: Indexed[str] = Field(default="red")
    tags: MultiIndexed[list[str]] = Field(default_factory=list[str])


CODES = [f"code_{number:02}" for number in range(12)]
_columns: Any = dict.fromkeys(CODES, (Unique[str], ...))
Coded: Any = create_model(
    "Coded", __base__=KvModel, __cls_kwargs__={"collection": "coded"}, id=(PrimaryKey[int], ...), **_columns
)


def opened(limits: Limits = FEW) -> tuple[Database, Watched]:
    engine = Watched(MemoryEngine(), limits)
    return Database.from_engine(engine, DatabaseCore([Note, Coded])), engine


def codes(number: int) -> dict[str, Any]:
    return {name: f"{name} of {number}" for name in CODES}


def test_a_check_of_more_entries_than_ranges_reads_them_in_parts():
    db, _ = opened()
    for number in range(60):
        db[Note].create(id=number, tags=["a", "b"])
    report = db.check()
    assert (report.ok, report.scanned, report.unchecked) == (True, 60 + 60 + 120, ())
    db.kv.unsafe().delete(("notes_by_color", "red", 30))
    db.kv.unsafe().set(("notes_by_tags", "c", 31), None)
    report = db.check(repair=True)
    assert ([one.primary_key for one in report.missing], [one.primary_key for one in report.dangling]) == ([30], [31])
    assert db.check().findings == ()


def test_a_record_with_more_unique_values_than_ranges_is_created_changed_and_removed():
    db, _ = opened(CHECKS)
    db[Coded].create(id=1, **codes(1))
    with pytest.raises(UniqueViolationError) as caught:
        db[Coded].create(id=2, **{**codes(2), "code_11": codes(1)["code_11"]})
    assert (caught.value.index, caught.value.existing_key) == ("code_11", 1)
    db[Coded].patch(1, **codes(3))
    assert db[Coded].get(code_11=codes(3)["code_11"]).id == 1
    with db.transaction() as tx:
        tx[Coded].create(id=2, **codes(1))
        assert tx[Coded].get(code_00=codes(1)["code_00"]).id == 2
    assert db.check().ok
    assert db[Coded].remove(1)
    assert db[Coded].count() == 1


def test_an_error_is_not_made_of_keys_that_were_read_at_two_moments():
    """The owner of the first slot gives it up and takes the last one, between the reads of the two."""
    db, engine = opened(CHECKS)
    db[Coded].create(id=1, **codes(1))
    wanted = {**codes(2), "code_00": codes(1)["code_00"]}
    other = Database.from_engine(engine.inner, DatabaseCore([Note, Coded]))

    def free_the_slot(ranges: Sequence[ReadRange]) -> None:
        if len(ranges) > 1 and not any(b"coded_by_code_00" in one.start for one in ranges):
            engine.before_read = bool
            other[Coded].patch(1, code_00="free")

    engine.before_read = free_the_slot
    # A forced save begins with a read; after a conflict the taken slot would be read alone, at one moment.
    assert db[Coded].save(Coded(id=2, **wanted), force=True).code_00 == wanted["code_00"]
    assert db.check().ok


@pytest.mark.parametrize("taken", ["code_00", "code_11"])
def test_a_slot_that_a_commit_found_taken_is_enough_to_refuse_a_write(taken):
    db, engine = opened(CHECKS)
    db[Coded].create(id=1, **codes(1))
    sizes: list[int] = []
    engine.before_read = lambda ranges: sizes.append(len(ranges))
    with pytest.raises(UniqueViolationError):
        db[Coded].create(id=2, **{**codes(2), taken: codes(1)[taken]})
    assert sizes == [2]  # the record, and the slot whose check has failed


def test_a_walk_asks_for_as_many_rows_as_a_read_may_return():
    """Without snapshots records are read after their entries, so a read of entries need not leave room for them."""
    db, engine = opened(CHECKS)
    db[Note].bulk_create([Note(id=number, color="red" if number % 2 else "blue") for number in range(400)])
    db[Note].get(0)
    sizes: list[tuple[int, int]] = []
    engine.before_read = lambda ranges: sizes.append((len(ranges), sum(one.limit or 1 for one in ranges)))
    assert len(list(db[Note].all())) == 400
    assert sizes == [(1, 101), (1, 201), (1, 401)]
    sizes.clear()
    assert [note.id for note in db[Note].filter(color="red")] == list(range(1, 400, 2))
    # Two reads of entries; the records of each, beside the guard 9 at once.
    assert sizes == [(1, 101), *[(9, 9)] * 11, (1, 1), (1, 201), *[(9, 9)] * 11, (1, 1)]
    sizes.clear()
    assert db[Note].filter(color="red", id__lt=301).order_by("id")[:150].to_list()[-1].id == 299
    assert sizes[0] == (1, 150)


def test_a_transaction_sees_more_rows_of_its_own_than_a_read_may_give():
    db, _ = opened(replace(CHECKS, max_read_entries=30))
    db[Note].create(id=500, color="blue")
    with db.transaction() as tx:
        for number in range(40):
            tx[Note].create(id=number)
        for number in range(35):
            tx[Note].remove(number)
        assert [note.id for note in tx[Note].all()] == [*range(35, 40), 500]
    assert [note.id for note in db[Note].filter(color="red")] == [*range(35, 40)]


def refusing(name: str, *arguments: Any) -> Any:
    return pytest.param(*arguments, id=name)


def _transaction_of_many(db: Database) -> None:
    with db.transaction() as tx:
        for number in range(20):
            tx[Note].get_or_none(number)
        tx[Note].create(id=100)


def _checks_of_many(db: Database) -> None:
    operation = db.kv.atomic()
    for number in range(11):
        operation = operation.check(("k", number), None)
    operation.set(("k",), 1).commit()


def _watch_of_many(db: Database) -> None:
    next(iter(db.kv.watch(keys=[("k", number) for number in range(11)], timeout=0)))


@pytest.mark.parametrize(
    ("limit", "call"),
    [
        refusing("an atomic bulk_create", "max_checks", lambda db: db[Note].bulk_create(map(_note, range(11)))),
        refusing("a record of many unique values", "max_checks", lambda db: db[Coded].create(id=1, **codes(1))),
        refusing("a transaction that reads much", "max_checks", _transaction_of_many),
        refusing("an operation of many checks", "max_checks", _checks_of_many),
        refusing("get_many of many keys", "max_ranges", lambda db: db.kv.get_many([("k", n) for n in range(11)])),
        refusing("a watch of many keys", "max_ranges", _watch_of_many),
        refusing("a batch of a list", "max_read_entries", lambda db: list(db.kv.list(prefix=(), batch_size=1_001))),
        refusing(
            "a record of many entries", "max_mutations", lambda db: db[Note].create(id=1, tags=[*map(str, range(999))])
        ),
    ],
)
def test_what_cannot_be_done_within_the_limits_is_refused_before_anything_is_sent(
    limit: str, call: Callable[[Database], object]
):
    db, engine = opened()
    commits = engine.commits
    with pytest.raises(OperationTooLargeError) as caught:
        call(db)
    assert (caught.value.limit, caught.value.limits) == (limit, "FEW")
    assert engine.commits == commits
    assert db[Note].count() == db[Coded].count() == 0


def _note(number: int) -> Note:
    return Note(id=number)


def test_more_indexes_than_ranges_are_built_and_checked():
    names = [f"late_{number}" for number in range(12)]
    fields: Any = {name: (str, name) for name in names}
    plain: Any = create_model(
        "Plain", __base__=KvModel, __cls_kwargs__={"collection": "late"}, id=(PrimaryKey[int], ...), **fields
    )
    declared: Any = {name: (Indexed[str], name) for name in names}
    indexed: Any = create_model("Plain", __base__=plain, __cls_kwargs__={"collection": "late"}, **declared)
    engine = Watched(MemoryEngine(), CHECKS)
    Database.from_engine(engine, DatabaseCore([plain]))[plain].create(id=1)
    db = Database.from_engine(engine, DatabaseCore([indexed]))
    db.build_indexes()
    assert [db[indexed].get(**{name: name}).id for name in names] == [1] * 12
    assert db.check().unchecked == ()


class LosesTickets(LimitedEngine):
    """Applies the commit that draws a ticket of a lock and loses its answer; never waits."""

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        outcome = super().commit(write)
        if any(isinstance(one, Set) and one.versionstamped for one in write.mutations):
            raise CommitUnknownError("the answer was lost")
        return outcome

    def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        return after


def test_a_waiter_finds_its_ticket_in_a_long_line_after_a_lost_answer():
    engine = LosesTickets(MemoryEngine())
    form = StoreFormat(MsgpackCodec(), None)
    holder = claim_of(engine, "holder", 60_000, form=form, name="job")
    assert run(engine, holder.acquire(engine.limits, 0))
    for number in range(250):
        ticket = claim_of(engine, f"waiter {number}", 60_000, form=form, name="job")._new_ticket(engine.now_ms())
        engine.inner.commit(AtomicWrite(mutations=(ticket,)))
    times = iter([0.0, 0.0, 5.0])
    last = claim_of(engine, "last", 60_000, form=form, name="job", monotonic=lambda: next(times))
    assert not run(engine, last.acquire(engine.limits, 1))
    left: Any = engine.inner.read([ReadRange(*prefix_range(encode_key(("__kvmodels__", "lock", "job"))))])
    assert len(left.ranges[0]) == 250, "it has withdrawn its own ticket"


def test_ranges_are_split_by_their_number_and_by_their_rows():
    ranges = [point(b"a"), ReadRange(b"b", b"c", 600), ReadRange(b"d", b"e", 500), ReadRange(b"f", b"g"), point(b"h")]
    parts = [len(part) for part in split_ranges(FEW, ranges, guarded=True)]
    assert parts == [2, 1, 1, 1]
    assert [len(part) for part in split_ranges(FEW, [point(b"k")] * 25, guarded=True)] == [9, 9, 7]
    assert [len(part) for part in split_ranges(FEW, [point(b"k")] * 25, guarded=False)] == [10, 10, 5]
    assert fits_one_read(FEW, ranges[:2], guarded=True)
    assert not fits_one_read(FEW, ranges[:3], guarded=True)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [None, 5, 25, 2_500])
def test_a_range_that_is_too_long_for_one_read_is_read_in_parts(limit: int | None, reverse: bool):
    engine = LimitedEngine(MemoryEngine(), replace(FEW, max_read_entries=10))
    keys = [bytes([number]) for number in range(30)]
    engine.inner.commit(AtomicWrite((), tuple(Set(key, b"", 3) for key in keys)))
    rows = run(engine, read_all(engine.limits, [ReadRange(b"\0", b"\xff", limit, reverse)]))
    assert rows is not None, "there is no guard"
    found = [row.key for row in rows[0]]
    assert found == sorted(keys, reverse=reverse)[:limit]
