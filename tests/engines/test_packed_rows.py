"""Packed rows against a dict: any bytes as keys, small blocks, and an interrupt at every line of every change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels.engines import packed_rows
from kvmodels.engines.packed_rows import LONGEST_VALUE, PackedRows
from kvmodels.operations import ReadRange, Row, Tail, to_versionstamp
from tests.engines.interrupting import cut_short_at

STAMP = to_versionstamp(7 << 40)

# Few different bytes, so that keys begin with one another, and those that decide: zero, what may come behind a zero
# inside of a part, and some between.
KEYS = st.lists(st.sampled_from([0, 0, 1, 2, 255]), max_size=5).map(bytes) | st.binary(max_size=3)
VALUES = st.binary(max_size=4) | st.sampled_from([b"", b"\0", b"\0\0\0\0\0\0\0", b"\xff" * LONGEST_VALUE])
ENCODINGS = st.integers(0, 7)
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.tuples(VALUES, ENCODINGS, st.integers(0, 2**40 - 1))), max_size=60)


def changed(rows: PackedRows, oracle: dict[bytes, Row], key: bytes, given: tuple[bytes, int, int] | None) -> bool:
    """Store or remove a row in both; False: the key was refused."""
    if given is None:
        assert rows.remove(key) == (oracle.pop(key, None) is not None)
        return True
    value, encoding, number = given
    stamp = to_versionstamp((7 << 40) + number)
    payload = rows.payload(value, encoding, stamp)
    assert payload is not None
    row = Row(key, value, encoding, stamp, None)
    assert rows.row_of(key, payload) == row
    if not rows.put(key, payload):
        return False
    oracle[key] = row
    return True


def is_pair(key: bytes, other: bytes) -> bool:
    """Whether one is the other, a zero byte and something more or nothing."""
    return key != other and (key.startswith(other + b"\0") or other.startswith(key + b"\0"))


def require_equal(rows: PackedRows, oracle: dict[bytes, Row], bounds: list[bytes]) -> None:
    """Each way to read gives what the dict has."""
    assert len(rows) == len(oracle)
    for key in {*oracle, *bounds}:
        assert rows.get(key) == oracle.get(key)
    for start in bounds:
        for end in bounds:
            expected = [oracle[key] for key in sorted(oracle) if start <= key < end]
            assert rows.count(start, end) == len(expected)
            for reverse in (False, True):
                there = expected[::-1] if reverse else expected
                assert rows.rows(start, end, None, reverse) == there
                assert rows.rows(start, end, 2, reverse) == there[:2]
                assert rows.rows(start, end, 0, reverse) == []
                assert list(rows.keys(start, end, reverse)) == [row.key for row in there]
                keys, behind = rows.with_tails(ReadRange(start, end, None, reverse), Tail(b"p", 1))
                assert keys == [(row.key,) for row in there]
                assert behind == [b"p" + row.key[1:] for row in there]
                assert rows.with_tails(ReadRange(start, end, 3, reverse), Tail(b"p", 1)) == (keys[:3], behind[:3])


@given(CHANGES, st.lists(KEYS, max_size=3), st.sampled_from([4, 5, 8, 1_024]))
def test_packed_rows_are_those_of_a_dict(changes: list[Any], bounds: list[bytes], most: int):
    rows, oracle = PackedRows(STAMP, most), dict[bytes, Row]()
    for key, given_row in changes:
        if not changed(rows, oracle, key, given_row):
            assert key not in oracle
            assert any(is_pair(key, other) for other in oracle)
    touched = [key for key, _ in changes[:3]]
    require_equal(rows, oracle, [b"", b"\xff" * 9, *bounds, *touched, *(key + b"\0" for key in touched)])
    for key in list(oracle):
        assert rows.remove(key)
        assert not rows.remove(key)
    assert len(rows) == 0


@pytest.mark.parametrize("most", [4, 16])
def test_blocks_are_split_and_joined_and_keep_what_is_common_once(most: int):
    rows, oracle = PackedRows(STAMP, most), dict[bytes, Row]()
    for number in range(300):
        assert changed(rows, oracle, b"common/%03d" % (number * 7 % 300), (b"v" * (number % 3), 1, number))
    blocks = rows._state[1]
    assert len(blocks) >= 300 / most
    assert all(prefix.startswith(b"common/") for _, prefix, _ in blocks[1:-1])
    assert max(len(items) for _, _, items in blocks) <= most
    require_equal(rows, oracle, [b"", b"common/1", b"common/150", b"common/299", b"d"])
    for number in range(300):
        if number % 50:
            assert changed(rows, oracle, b"common/%03d" % number, None)
    assert len(rows._state[1]) <= len(blocks) / 4
    require_equal(rows, oracle, [b"", b"common/1", b"common/150", b"common/299", b"d"])


def test_a_key_that_could_not_stand_in_order_is_refused_whichever_comes_first():
    for first, second in ((b"a", b"a\0b"), (b"a\0b", b"a"), (b"", b"\0"), (b"a\0b", b"a\0b\0")):
        rows = PackedRows(STAMP)
        payload = rows.payload(b"", 0, STAMP)
        assert payload is not None
        assert rows.put(first, payload)
        assert not rows.put(second, payload)
        assert rows.get(second) is None
        assert rows.remove(first)
        assert rows.put(second, payload)


def test_only_small_rows_of_one_run_of_versionstamps_are_packed():
    rows = PackedRows(STAMP)
    assert rows.payload(b"v" * LONGEST_VALUE, 7, STAMP) is not None
    assert rows.payload(b"v" * (LONGEST_VALUE + 1), 7, STAMP) is None
    assert rows.payload(b"v", 8, STAMP) is None
    assert rows.payload(b"v", -1, STAMP) is None
    assert rows.payload(b"v", 1, to_versionstamp((8 << 40) - 1)) is not None
    assert rows.payload(b"v", 1, to_versionstamp(8 << 40)) is None
    assert rows.payload(b"v", 1, STAMP[:8] + b"\0\1") is None


class Interrupted(BaseException):
    """Raised instead of KeyboardInterrupt, which would end the run if it went astray."""


def at_each_line(change: Callable[[], object]) -> Iterator[None]:
    """Carries out a change, interrupted at its first line of the module, then at its second and so on, to its end."""
    for line in count(1):
        if not cut_short_at(line, {packed_rows.__file__}, change, Interrupted):
            return
        yield


@pytest.mark.parametrize("number", [0, 3, 9])
def test_an_interrupt_at_any_line_of_a_split_loses_no_row(number: int):
    """The row that is put is there or not, every other one is, and to do it again makes it whole."""
    new = b"common/%d5" % number

    def filled() -> tuple[PackedRows, dict[bytes, Row]]:
        rows, oracle = PackedRows(STAMP, 8), dict[bytes, Row]()
        for at in range(20):
            assert changed(rows, oracle, b"common/%d" % (at % 10) + b"x" * (at // 10), (b"v", 1, at))
        return rows, oracle

    def full() -> tuple[PackedRows, dict[bytes, Row]]:
        rows, oracle = filled()
        for at in range(8 - len(block_of(rows, new))):
            assert changed(rows, oracle, new + b"x%d" % at, (b"v", 1, at))
        assert len(block_of(rows, new)) == 8
        return rows, oracle

    kept = [full()]
    row = Row(new, b"new", 2, STAMP, None)
    payload = kept[0][0].payload(b"new", 2, STAMP)
    assert payload is not None
    lines = 0
    bounds = [b"", b"common/3", b"common/5x", b"d"]
    for _ in at_each_line(lambda: kept[-1][0].put(new, payload)):
        lines += 1
        rows, oracle = kept[-1]
        there = {**oracle, new: row} if rows.get(new) is not None else oracle
        require_equal(rows, there, bounds)
        assert rows.put(new, payload)
        require_equal(rows, {**oracle, new: row}, bounds)
        kept.append(full())
    rows, oracle = kept[-1]
    require_equal(rows, {**oracle, new: row}, bounds)
    print(f"{lines} lines")
    assert lines > 15


def test_an_interrupt_at_any_line_of_a_removal_that_joins_blocks_loses_no_other_row():
    def filled(gone: int) -> tuple[PackedRows, dict[bytes, Row]]:
        rows, oracle = PackedRows(STAMP, 8), dict[bytes, Row]()
        for at in range(20):
            assert changed(rows, oracle, b"common/%02d" % at, (b"v", 1, at))
        for at in range(gone):
            assert changed(rows, oracle, b"common/%02d" % at, None)
        return rows, oracle

    number = next(at for at in range(20) if would_join(filled(at)[0], b"common/%02d" % at))
    gone = b"common/%02d" % number
    kept = [filled(number)]
    oracle = kept[0][1]
    rest = {key: row for key, row in oracle.items() if key != gone}
    lines = 0
    bounds = [b"", b"common/03", b"common/15", b"d"]
    for _ in at_each_line(lambda: kept[-1][0].remove(gone)):
        lines += 1
        rows = kept[-1][0]
        require_equal(rows, oracle if rows.get(gone) is not None else rest, bounds)
        rows.remove(gone)
        require_equal(rows, rest, bounds)
        kept.append(filled(number))
    require_equal(kept[-1][0], rest, bounds)
    print(f"{lines} lines")
    assert lines > 20


def block_of(rows: PackedRows, key: bytes) -> list[bytes]:
    """The items of the block that a key belongs in."""
    fences, blocks = rows._state
    return blocks[sum(fence <= key for fence in fences) - 1][2]


def would_join(rows: PackedRows, key: bytes) -> bool:
    """Whether to remove a key makes one block of two."""
    before = len(rows._state[1])
    rows.remove(key)
    return len(rows._state[1]) < before


def test_blocks_that_keep_a_pair_apart_are_not_joined():
    rows, oracle = PackedRows(STAMP, 4), dict[bytes, Row]()
    for key in (b"a0", b"a1", b"b\0x", b"b\0y", b"b\0z"):
        assert changed(rows, oracle, key, (b"", 0, 1))
    assert rows._state[0] == [b"", b"b\0x"]
    assert changed(rows, oracle, b"b", (b"\xff", 0, 1))  # in another block than those behind it
    for key in (b"a0", b"b\0z", b"a1", b"b\0y"):
        assert changed(rows, oracle, key, None)
        require_equal(rows, oracle, [b"", b"b", b"b\0", b"b\0x", b"c"])
    assert len(rows._state[1]) == 2
    assert changed(rows, oracle, b"b", None)
    assert len(rows._state[1]) == 1
    require_equal(rows, oracle, [b"", b"b", b"b\0", b"b\0x", b"c"])
