"""Atomicity, checks, versionstamps, mutation order and arithmetic, on every engine."""

from __future__ import annotations

import random
import shutil
import time
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodels.core.operations import (
    VACANT,
    Apply,
    Arithmetic,
    AtomicWrite,
    Check,
    Committed,
    Conflict,
    Delete,
    Mutation,
    ReadRange,
    Set,
)
from kvmodels.engines.contract import Engine
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.errors import InvalidValueError, KvModelsError, ReadOnlyError
from tests.contract.shorthand import BYTES, EVERYTHING, commit, counter, get, keys, number, put, rows, stored, told
from tests.drawing import of_check


def test_a_committed_row_comes_back_as_it_was_written(engine):
    stamp = commit(engine, Set(b"k", b"\x00\xff value", 77))
    row = get(engine, b"k")
    assert row == (b"k", b"\x00\xff value", 77, stamp, None)


def test_empty_values_and_keys_with_zero_bytes_are_kept(engine):
    commit(engine, put(b"\x00", b""), put(b"a\x00b", b"1"), put(b"a", b"2"), put(b"a\x00", b"3"))
    assert [(row.key, row.value) for row in rows(engine, EVERYTHING)] == [
        (b"\x00", b""),
        (b"a", b"2"),
        (b"a\x00", b"3"),
        (b"a\x00b", b"1"),
    ]


def test_all_rows_of_one_commit_share_its_versionstamp(engine):
    stamp = commit(engine, put(b"a"), put(b"b"), counter(b"c", 1), Arithmetic("sum", b"c", 2))
    assert {row.versionstamp for row in rows(engine, EVERYTHING)} == {stamp}
    assert len(stamp) == 10
    assert stamp.endswith(b"\0\0")


def test_versionstamps_rise_strictly_also_for_commits_without_effect(engine):
    stamps = [
        commit(engine),
        commit(engine, put(b"a")),
        commit(engine, Delete(b"absent")),
        commit(engine),
        commit(engine, put(b"a")),
    ]
    checked = engine.commit(AtomicWrite((Check(b"absent", None),), ()))
    assert isinstance(checked, Committed)
    stamps.append(checked.versionstamp)
    assert stamps == sorted(set(stamps))


def test_a_read_reports_the_versionstamp_of_the_last_commit(engine):
    for mutations in ((put(b"a"),), (), (Delete(b"a"),)):
        stamp = commit(engine, *mutations)
        for ranges in ([ReadRange(b"a")], [EVERYTHING], [], [ReadRange(b"a"), EVERYTHING]):
            assert engine.read(ranges).versionstamp == told(engine, stamp)


def test_versionstamps_start_at_the_wall_clock_in_microseconds(engine, clock):
    first = int.from_bytes(commit(engine)[:8], "big")
    assert clock.now * 1_000 < first < clock.now * 1_000 + 10


def test_without_an_injected_clock_versionstamps_start_at_the_present_time(open_engine):
    before = time.time_ns() // 1_000
    engine = open_engine(clock=None)
    first = int.from_bytes(commit(engine)[:8], "big")  # raised when it was opened, or by this commit
    assert before < first <= time.time_ns() // 1_000 + 1
    engine.close()


def test_a_check_that_holds_lets_the_commit_through(engine):
    stamp = commit(engine, put(b"a", b"1"))
    outcome = engine.commit(AtomicWrite((Check(b"a", stamp), Check(b"b", None)), (put(b"a", b"2"),)))
    assert isinstance(outcome, Committed)
    assert stored(engine, b"a").value == b"2"


def test_checks_that_fail_are_reported_by_position_and_nothing_is_applied(engine):
    stamp = commit(engine, put(b"a", b"1"), put(b"b", b"1"))
    checks = (Check(b"a", stamp), Check(b"b", None), Check(b"c", None), Check(b"d", stamp), Check(b"a", None))
    outcome = engine.commit(AtomicWrite(checks, (put(b"a", b"2"), Delete(b"b"), put(b"new"))))
    assert outcome == Conflict((1, 3, 4))
    assert [(row.key, row.value, row.versionstamp) for row in rows(engine, EVERYTHING)] == [
        (b"a", b"1", stamp),
        (b"b", b"1", stamp),
    ]


def test_many_checks_are_all_evaluated(engine):
    stamp = commit(engine, *(put(b"k%04d" % i) for i in range(0, 300, 2)))
    checks = tuple(Check(b"k%04d" % i, stamp if i % 2 == 0 else None) for i in range(300))
    assert isinstance(engine.commit(AtomicWrite(checks, ())), Committed)
    broken = list(checks)
    for position in (0, 63, 64, 130, 299):
        broken[position] = Check(checks[position].key, b"\0" * 10)
    assert engine.commit(AtomicWrite(tuple(broken), ())) == Conflict((0, 63, 64, 130, 299))


def test_a_refused_commit_uses_no_versionstamp(engine):
    stamp = commit(engine)
    assert engine.commit(AtomicWrite((Check(b"a", stamp),), (put(b"a"),))) == Conflict((0,))
    assert engine.read([EVERYTHING]).versionstamp == told(engine, stamp)
    assert int.from_bytes(commit(engine)[:8], "big") == int.from_bytes(stamp[:8], "big") + 1


def test_a_key_that_was_deleted_and_written_again_fails_an_old_check(engine):
    first = commit(engine, put(b"a", b"same"))
    commit(engine, Delete(b"a"))
    second = commit(engine, put(b"a", b"same"))
    assert engine.commit(AtomicWrite((Check(b"a", first),), ())) == Conflict((0,))
    assert isinstance(engine.commit(AtomicWrite((Check(b"a", second),), ())), Committed)


def test_checks_see_the_state_before_the_operation(engine):
    outcome = engine.commit(AtomicWrite((Check(b"a", None), Check(b"a", None)), (put(b"a"), put(b"a", b"w"))))
    assert isinstance(outcome, Committed)
    assert stored(engine, b"a").value == b"w"


def test_mutations_apply_in_order(engine):
    commit(
        engine, put(b"gone"), Delete(b"gone"), Delete(b"there"), put(b"there"), put(b"last", b"1"), put(b"last", b"2")
    )
    assert [(row.key, row.value) for row in rows(engine, EVERYTHING)] == [(b"last", b"2"), (b"there", b"v")]
    commit(engine, Delete(b"last"), Arithmetic("sum", b"last", 5), Arithmetic("sum", b"last", 5))
    assert number(engine, b"last") == 10


@pytest.mark.parametrize(
    ("kind", "present", "operand", "expected"),
    [
        ("sum", None, 7, 7),
        ("sum", 1, 2, 3),
        ("sum", 2**64 - 1, 1, 0),
        ("sum", 2**64 - 1, 2**64 - 1, 2**64 - 2),
        ("min", None, 7, 7),
        ("min", 5, 7, 5),
        ("min", 2**63, 2**63 - 1, 2**63 - 1),
        ("max", None, 0, 0),
        ("max", 5, 7, 7),
        ("max", 2**63, 2**63 - 1, 2**63),
    ],
)
def test_arithmetic_is_unsigned_64_bit_and_sum_wraps(engine, kind, present, operand, expected):
    if present is not None:
        commit(engine, counter(b"n", present))
    stamp = commit(engine, Arithmetic(kind, b"n", operand))
    assert number(engine, b"n") == expected
    assert stored(engine, b"n").versionstamp == stamp


def test_arithmetic_clears_the_deadline_of_the_row(engine, clock):
    commit(engine, counter(b"n", 1)._replace(expire_at=clock.now + 100))
    commit(engine, Arithmetic("sum", b"n", 1))
    assert (number(engine, b"n"), stored(engine, b"n").expire_at) == (2, None)


@pytest.mark.parametrize("kind", ["sum", "min", "max"])
def test_arithmetic_with_a_deadline_leaves_a_row_until_then(engine, clock, kind):
    commit(engine, Arithmetic(kind, b"n", 5, clock.now + 50))
    commit(engine, Arithmetic(kind, b"n", 5, clock.now + 100), Arithmetic("sum", b"other", 1))
    clock.now += 99
    assert number(engine, b"n") == (10 if kind == "sum" else 5)
    clock.now += 1
    assert keys(engine, EVERYTHING) == [b"other"]
    commit(engine, Arithmetic(kind, b"n", 7))
    assert number(engine, b"n") == 7


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("given", [None, 200])
@pytest.mark.parametrize("before", ["absent", "expired", None, 100])
def test_arithmetic_keeps_the_deadline_of_a_live_row_or_sets_its_own(engine, clock, before, given, keeps):
    start = clock.now
    if before != "absent":
        deadline = start + 1 if before == "expired" else before and start + before
        commit(engine, counter(b"n", 40)._replace(expire_at=deadline))
    clock.now += 1
    live = before not in ("absent", "expired")
    commit(engine, Arithmetic("sum", b"n", 2, given and start + given, keeps))
    expected = before if live and keeps else given
    assert number(engine, b"n") == (42 if live else 2)
    assert stored(engine, b"n").expire_at == (expected and start + expected)


def test_random_mutations_with_deadlines_leave_what_a_mapping_has(engine, clock):
    chance = random.Random(7)
    model: dict[bytes, tuple[int, int | None]] = {}

    def present(key: bytes) -> tuple[int | None, int | None]:
        number, deadline = model.get(key, (None, None))
        return (None, None) if deadline is not None and deadline <= clock.now else (number, deadline)

    def drawn() -> Mutation:
        key, operand = chance.choice((b"a", b"b")), chance.randrange(5)
        deadline = chance.choice((None, clock.now, clock.now + chance.randrange(1, 40)))
        kind = chance.choice(("set", "delete", "apply", "sum", "sum", "sum", "max"))
        keeps = chance.random() < 0.6
        number, before = present(key)
        if kind == "delete":
            model.pop(key, None)
            return Delete(key)
        if kind == "set":
            model[key] = operand, deadline
            return counter(key, operand)._replace(expire_at=deadline)
        after = operand if number is None else max(number, operand) if kind == "max" else number + operand
        model[key] = after, before if keeps and number is not None else deadline
        if kind == "apply":
            return Apply(key, partial(_added, operand), 8, deadline, keeps)
        return Arithmetic("max" if kind == "max" else "sum", key, operand, deadline, keeps)

    for _ in range(60):
        commit(engine, *(drawn() for _ in range(chance.randrange(1, 4))))
        found = {row.key: (int.from_bytes(row.value, "little"), row.expire_at) for row in rows(engine, EVERYTHING)}
        assert found == {key: present(key) for key in model if present(key)[0] is not None}
        clock.now += chance.choice((0, 5, 15))


def _added(operand: int, stored: tuple[bytes, int] | None) -> tuple[bytes, int]:
    number = 0 if stored is None else int.from_bytes(stored[0], "little")
    return (number + operand).to_bytes(8, "little"), 2


def test_arithmetic_takes_an_expired_row_as_absent(engine, clock):
    commit(engine, counter(b"n", 40)._replace(expire_at=clock.now + 100))
    clock.now += 100
    commit(engine, Arithmetic("sum", b"n", 2))
    assert number(engine, b"n") == 2


@pytest.mark.parametrize("wrong", [Set(b"n", b"12345678", BYTES), Set(b"n", b"1234567", 2), Set(b"n", b"", 2)])
@pytest.mark.parametrize("kind", ["sum", "min", "max"])
def test_K25_arithmetic_on_another_type_raises_and_applies_nothing(engine, wrong, kind):
    before = commit(engine, wrong, put(b"old"))
    with pytest.raises(InvalidValueError) as caught:
        engine.commit(AtomicWrite((), (put(b"new"), Delete(b"old"), Arithmetic(kind, b"n", 1), put(b"later"))))
    assert caught.value.hint
    assert keys(engine, EVERYTHING) == [b"n", b"old"]
    assert engine.read([EVERYTHING]).versionstamp == told(engine, before)
    assert commit(engine) > before


def test_arithmetic_sees_what_the_operation_wrote_before_it(engine):
    with pytest.raises(InvalidValueError):
        engine.commit(AtomicWrite((), (put(b"n"), Arithmetic("sum", b"n", 1))))
    assert keys(engine, EVERYTHING) == []


@pytest.mark.parametrize("operand", [-1, 2**64])
@pytest.mark.parametrize("kind", ["sum", "min", "max"])
def test_an_operand_outside_64_bits_is_refused(engine, kind, operand):
    commit(engine, counter(b"n", 3))
    with pytest.raises(InvalidValueError):
        engine.commit(AtomicWrite((), (put(b"a"), Arithmetic(kind, b"n", operand))))
    assert keys(engine, EVERYTHING) == [b"n"]


@pytest.mark.parametrize("deadline", [2**63, -(2**63) - 1])
def test_a_deadline_outside_64_bits_is_refused(engine, deadline):
    with pytest.raises(InvalidValueError):
        engine.commit(AtomicWrite((), (put(b"a"), put(b"b", expire_at=deadline))))
    with pytest.raises(InvalidValueError):
        engine.commit(AtomicWrite((), (put(b"a"), Arithmetic("sum", b"n", 1, deadline))))
    assert keys(engine, EVERYTHING) == []


def test_a_store_for_reading_only_refuses_commits(open_engine):
    made = open_engine()
    commit(made, put(b"k"))
    made.close()
    engine = open_engine(readonly=True)
    with pytest.raises(ReadOnlyError) as caught:
        engine.commit(AtomicWrite((), (put(b"a"),)))
    assert "readonly=False" in str(caught.value.hint)
    assert keys(engine, EVERYTHING) == ([b"k"] if made.capabilities.traits.persistent else [])
    engine.close()


def test_many_commits_keep_values_of_one_megabyte(engine):
    commit(engine, *(put(b"k%d" % i, bytes([i]) * 1_000_000) for i in range(3)))
    assert [(len(row.value), row.value[0]) for row in rows(engine, EVERYTHING)] == [(1_000_000, i) for i in range(3)]


def reversed_value(stored: tuple[bytes, int] | None) -> tuple[bytes, int]:
    """Return the stored value backwards; refuse an odd number of bytes."""
    if stored is not None and len(stored[0]) % 2:
        raise InvalidValueError("odd")
    return (b"", 3) if stored is None else (stored[0][::-1], stored[1])


_KEYS = st.sampled_from([b"a", b"ab", b"b", b"b\x00", b"\xfe"])
_MUTATIONS = st.one_of(
    st.builds(Set, _KEYS, st.binary(max_size=8), st.sampled_from([2, 3]), st.sampled_from([None, 1_000, 1_001])),
    st.builds(Delete, _KEYS),
    st.builds(Arithmetic, st.sampled_from(["sum", "min", "max"]), _KEYS, st.integers(0, 2**64 - 1)),
    st.builds(Set, _KEYS, st.binary(max_size=8), st.just(3), st.none(), st.just(True)),
    st.builds(Apply, _KEYS, st.just(reversed_value), st.just(8), addition=st.none()),
)
_OPERATIONS = st.lists(
    st.tuples(st.lists(st.tuples(_KEYS, st.booleans()), max_size=3), st.lists(_MUTATIONS, max_size=5)), max_size=12
)


@settings(max_examples=of_check(60))
@given(_OPERATIONS)
def test_all_engines_agree_on_every_operation(quick_folder, operations):
    """They are written separately; what one says and holds after each step, the others do too."""
    source = 1_000
    shutil.rmtree(quick_folder / "store.lmdb", ignore_errors=True)
    all_: list[Engine] = [
        MemoryEngine(clock=lambda: source),
        SqliteEngine(":memory:", clock=lambda: source),
        LmdbEngine(quick_folder / "store.lmdb", durability="relaxed", clock=lambda: source),
    ]
    for checks, mutations in operations:
        outcomes: list[object] = []
        for engine in all_:
            current = {row.key: row.versionstamp for row in rows(engine, EVERYTHING)}
            write = AtomicWrite(
                tuple(Check(key, current.get(key) if right else b"\1" * 10) for key, right in checks), tuple(mutations)
            )
            try:
                outcomes.append(engine.commit(write))
            except KvModelsError as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1] == outcomes[2]
        held = [rows(engine, EVERYTHING) for engine in all_]
        assert held[0] == held[1] == held[2]
    for engine in all_:
        engine.close()


def test_a_check_for_a_vacant_prefix_sees_every_live_key_below_it(engine):
    def vacant(prefix: bytes) -> bool:
        outcome = engine.commit(AtomicWrite((Check(b"free", None), Check(prefix, VACANT)), (put(b"seen"),)))
        assert isinstance(outcome, Committed) or outcome.failed_checks == (1,)
        return isinstance(outcome, Committed)

    assert vacant(b"\x02a\x00")
    commit(engine, put(b"\x02a\x00"), put(b"\x02a\x00\xff"), put(b"\x02ab\x00\x02x\x00"), put(b"\x01z"))
    assert vacant(b"\x02a\x00"), "the key of the prefix itself, its neighbours"
    commit(engine, put(b"\x02a\x00\x02x\x00", expire_at=1))
    assert vacant(b"\x02a\x00"), "a row past its deadline"
    commit(engine, put(b"\x02a\x00\x02x\x00"))
    assert not vacant(b"\x02a\x00")
    commit(engine, Delete(b"\x02a\x00\x02x\x00"))
    assert vacant(b"\x02a\x00")


def test_a_check_for_a_vacant_prefix_among_many_checks_holds_for_itself(engine):
    commit(engine, put(b"\x02b\x00\x02x\x00"))
    absent = tuple(Check(b"\x02c\x00%d" % n, None) for n in range(600))
    vacant, used = Check(b"\x02a\x00", VACANT), Check(b"\x02b\x00", VACANT)
    assert engine.commit(AtomicWrite((*absent, used, vacant), (put(b"k"),))) == Conflict((600,))
    assert isinstance(engine.commit(AtomicWrite((*absent, vacant), (put(b"k"),))), Committed)
