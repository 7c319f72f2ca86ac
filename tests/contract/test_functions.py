"""Functions that a commit applies, keys that end with its versionstamp, and reads of keys alone, on every engine."""

from __future__ import annotations

import pytest

from kvmodels.core.operations import Apply, Arithmetic, AtomicWrite, Check, Committed, Delete, ReadRange, Set
from kvmodels.engines.faults import FaultEngine
from kvmodels.errors import CommitUnknownError, DecodeError, InvalidValueError
from tests.contract.shorthand import BYTES, EVERYTHING, U64, commit, counter, get, keys, number, put, rows, stored, told


def append(key, suffix):
    """Append to stored bytes; an absent key is empty."""
    return Apply(key, lambda present: ((present[0] if present else b"") + suffix, BYTES), len(suffix))


def refuse(key, error):
    def function(present):
        raise error

    return Apply(key, function, 0)


def test_a_function_is_given_what_is_stored_and_what_it_returns_is_stored(engine):
    given = []

    def function(present):
        given.append(present)
        return b"made", 77

    commit(engine, Set(b"k", b"old", 12))
    stamp = commit(engine, Apply(b"k", function, 1), Apply(b"absent", function, 1))
    assert set(given) == {(b"old", 12), None}
    assert get(engine, b"k") == (b"k", b"made", 77, stamp, None)
    assert get(engine, b"absent") == (b"absent", b"made", 77, stamp, None)


def test_functions_are_applied_in_order_and_see_the_mutations_before_them(engine):
    commit(engine, put(b"k", b"a"))
    commit(engine, append(b"k", b"b"), append(b"k", b"c"), append(b"new", b"1"), append(b"new", b"2"))
    assert (stored(engine, b"k").value, stored(engine, b"new").value) == (b"abc", b"12")
    commit(engine, Delete(b"k"), append(b"k", b"d"), put(b"new", b"x"), append(b"new", b"y"))
    assert (stored(engine, b"k").value, stored(engine, b"new").value) == (b"d", b"xy")
    commit(engine, counter(b"k", 1), Arithmetic("sum", b"k", 2), Apply(b"k", lambda row: row or (b"", BYTES), 8))
    assert number(engine, b"k") == 3


def test_a_function_clears_the_deadline_and_takes_an_expired_row_as_absent(engine, clock):
    commit(engine, put(b"k", b"a", clock.now + 100), put(b"gone", b"a", clock.now + 1))
    clock.now += 1
    commit(engine, append(b"k", b"b"), append(b"gone", b"b"))
    assert [(row.value, row.expire_at) for row in rows(engine, EVERYTHING)] == [(b"b", None), (b"ab", None)]


@pytest.mark.parametrize(
    "error", [InvalidValueError("refused"), DecodeError("unreadable"), KeyboardInterrupt()], ids=repr
)
def test_what_a_function_raises_the_commit_raises_and_nothing_is_applied(engine, error):
    before = commit(engine, put(b"k"), put(b"old"))
    with pytest.raises(type(error)) as caught:
        engine.commit(AtomicWrite((), (put(b"new"), Delete(b"old"), refuse(b"k", error), put(b"later"))))
    assert caught.value is error
    assert keys(engine, EVERYTHING) == [b"k", b"old"]
    assert engine.read([EVERYTHING]).versionstamp == told(engine, before)
    assert commit(engine, put(b"k")) > before


def test_a_function_is_not_called_when_a_check_fails(engine):
    outcome = engine.commit(AtomicWrite((Check(b"k", b"\0" * 10),), (refuse(b"k", InvalidValueError("called")),)))
    assert not isinstance(outcome, Committed)


def test_a_repeated_or_late_delivery_applies_a_function_to_what_is_stored_then(engine):
    with pytest.raises(CommitUnknownError):
        FaultEngine(engine, plan=["lose_answer"]).commit(AtomicWrite((), (append(b"k", b"a"),)))
    FaultEngine(engine, plan=["repeat"]).commit(AtomicWrite((), (append(b"k", b"b"),)))
    assert stored(engine, b"k").value == b"abb"
    late = FaultEngine(engine, plan=["hold"])
    with pytest.raises(CommitUnknownError):
        late.commit(AtomicWrite((), (append(b"k", b"!"),)))
    commit(engine, put(b"k", b"new"))
    late.deliver_late()
    assert stored(engine, b"k").value == b"new!"


def test_a_key_ends_with_the_versionstamp_of_its_commit(engine):
    first = commit(engine, Set(b"\x02log\x00", b"1", BYTES, versionstamped=True))
    second = commit(
        engine,
        Set(b"\x02log\x00", b"2", BYTES, versionstamped=True),
        Set(b"\x02log\x00", b"3", BYTES, versionstamped=True),
        Set(b"\x02other\x00", b"4", BYTES, versionstamped=True),
    )
    found = [(row.key, row.value, row.versionstamp) for row in rows(engine, EVERYTHING)]
    assert found == [
        (b"\x02log\x00\x02" + first.hex().encode() + b"\x00", b"1", first),
        (b"\x02log\x00\x02" + second.hex().encode() + b"\x00", b"3", second),
        (b"\x02other\x00\x02" + second.hex().encode() + b"\x00", b"4", second),
    ]


def test_a_key_with_a_versionstamp_may_expire(engine, clock):
    commit(engine, Set(b"\x02log\x00", b"1", BYTES, clock.now + 5, versionstamped=True))
    assert len(keys(engine, EVERYTHING)) == 1
    clock.now += 5
    assert keys(engine, EVERYTHING) == []


@pytest.mark.parametrize("reverse", [False, True])
def test_a_read_of_keys_alone_has_everything_but_the_values(engine, clock, reverse):
    commit(
        engine, put(b"a", b"x" * 10_000), counter(b"b", 7), put(b"c", b"", clock.now + 100), put(b"d", b"", clock.now)
    )
    whole = ReadRange(b"", b"\xff", 10, reverse)
    plain = [(row.key, row.versionstamp, row.expire_at, row.encoding) for row in rows(engine, whole)]
    alone = whole._replace(keys_only=True)
    assert [row[:1] + row[3:] + row[2:3] for row in rows(engine, alone)] == plain
    assert len(plain) == 3
    assert plain[1][3] == U64
    with engine.snapshot() as state:
        assert keys(state, alone) == keys(engine, alone) == keys(engine, alone, ReadRange(b"nothing"))
    assert len(rows(engine, alone, include_expired=True)) == 4
    assert keys(engine, alone._replace(limit=1)) == [b"c" if reverse else b"a"]
