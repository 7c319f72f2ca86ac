"""Ranges, limits, directions, guards and followed ranges, on every engine."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels.core.operations import (
    Delete,
    Follow,
    Guard,
    GuardFailed,
    MultiRangeFollow,
    PredictedFollow,
    ReadRange,
    ReadResult,
    SuffixFollow,
    as_plain_rows,
    row_of,
)
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.sqlite.engine import SqliteEngine
from tests.contract.shorthand import EVERYTHING, commit, get, keys, put, rows, told
from tests.worlds import in_the_soak


def test_a_range_is_in_byte_order_and_without_its_end(engine):
    commit(engine, *(put(key) for key in (b"\xff", b"b", b"a", b"a\xff", b"a\x00", b"Z", b"\x80")))
    assert keys(engine, ReadRange(b"a", b"\xff")) == [b"a", b"a\x00", b"a\xff", b"b", b"\x80"]


def test_reverse_begins_at_the_end_and_a_limit_counts_from_there(engine):
    commit(engine, *(put(b"k%d" % i) for i in range(6)))
    assert keys(engine, ReadRange(b"k1", b"k5", None, True)) == [b"k4", b"k3", b"k2", b"k1"]
    assert keys(engine, ReadRange(b"k1", b"k5", 2, True)) == [b"k4", b"k3"]
    assert keys(engine, ReadRange(b"k1", b"k5", 2)) == [b"k1", b"k2"]
    assert keys(engine, ReadRange(b"k1", b"k5", 99)) == [b"k1", b"k2", b"k3", b"k4"]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("start", "end"), [(b"k3", b"k3"), (b"k5", b"k1"), (b"x", b"z"), (b"a", b"b")])
def test_empty_and_reversed_bounds_hold_nothing(engine, start, end, reverse):
    commit(engine, *(put(b"k%d" % i) for i in range(6)))
    result = engine.read([ReadRange(start, end, None, reverse)])
    assert (result.ranges, result.followed) == ([[]], [])


def test_a_limit_of_zero_reads_nothing_but_the_versionstamp(engine):
    stamp = commit(engine, put(b"k"))
    for ranges in ([ReadRange(b"a", b"z", 0)], [ReadRange(b"a", b"z", 0), ReadRange(b"k", None, 0)]):
        assert engine.read(ranges) == ReadResult([[]] * len(ranges), [], told(engine, stamp))


def test_results_come_in_request_order_and_ranges_may_overlap(engine):
    commit(engine, put(b"a", b"1"), put(b"b", b"2"), put(b"c", b"3"))
    result = engine.read(
        [ReadRange(b"c"), ReadRange(b"a", b"c"), ReadRange(b"nothing"), ReadRange(b"b"), ReadRange(b"b")]
    )
    assert [[row.key for row in found] for found in result.ranges] == [[b"c"], [b"a", b"b"], [], [b"b"], [b"b"]]


def test_no_ranges_read_nothing(engine):
    stamp = commit(engine)
    assert engine.read([]) == ReadResult([], [], told(engine, stamp))


def test_a_guard_that_holds_lets_the_read_through(engine):
    stamp = commit(engine, put(b"header"), put(b"a"))
    for guard in (Guard(b"header", stamp), Guard(b"absent", None)):
        result = engine.read([ReadRange(b"a")], guard)
        assert isinstance(result, ReadResult)
        assert [row.key for row in result.ranges[0]] == [b"a"]


def test_a_guard_that_fails_says_what_the_key_has(engine):
    old = commit(engine, put(b"header"))
    new = commit(engine, put(b"header"))
    assert engine.read([EVERYTHING], Guard(b"header", old)) == GuardFailed(new)
    assert engine.read([EVERYTHING], Guard(b"header", None)) == GuardFailed(new)
    commit(engine, Delete(b"header"))
    assert engine.read([EVERYTHING], Guard(b"header", new)) == GuardFailed(None)


def test_a_guard_on_an_expired_row_finds_it_absent_unless_expired_rows_are_asked_for(engine, clock):
    stamp = commit(engine, put(b"header", expire_at=clock.now + 1))
    clock.now += 1
    assert engine.read([], Guard(b"header", stamp)) == GuardFailed(None)
    assert isinstance(engine.read([], Guard(b"header", None)), ReadResult)
    assert isinstance(engine.read([], Guard(b"header", stamp), include_expired=True), ReadResult)


def test_followed_ranges_are_read_from_what_the_first_ranges_held(engine):
    commit(
        engine,
        put(b"by/red/1", b"user1"),
        put(b"by/red/3", b"user3"),
        *(put(b"user%d" % i, b"U%d" % i) for i in range(4)),
    )
    result = engine.read(
        [ReadRange(b"by/red/", b"by/red0")], follow=lambda found: [ReadRange(row.value) for row in found[0]]
    )
    assert [row.value for row in result.ranges[0]] == [b"user1", b"user3"]
    assert [[row.value for row in one] for one in result.followed] == [[b"U1"], [b"U3"]]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [None, 3, *in_the_soak(0, 1, 50)])
@pytest.mark.parametrize(
    ("start", "end"),
    [(b"by/red/", b"by/red0"), (b"by/red/", b"by/red/\xff"), (b"by/red/a", b"by/red/b"), (b"by", b"c")],
)
def test_the_ends_of_keys_lead_to_what_the_function_that_they_stand_for_asks_for(
    engine, clock, start, end, reverse, limit
):
    tails = [b"", b"\0", b"\0\xff", b"a", b"a\0b", b"caf\xc3\xa9", b"\xc3", b"\xff\xff", b"absent", b"late", b"later"]
    commit(engine, *(put(b"by/red/" + tail, b"entry", expire_at=clock.now + 5) for tail in tails))
    commit(engine, *(put(b"user/" + tail, tail) for tail in tails if tail not in (b"absent", b"late", b"later")))
    commit(
        engine, put(b"user/late", b"gone", expire_at=clock.now + 1), put(b"user/later", b"U", expire_at=clock.now + 9)
    )
    clock.now += 1
    one, tail = ReadRange(start, end, limit, reverse), SuffixFollow(b"user/", len(b"by/red/"))
    for expired in (False, True):
        native = engine.read([one], follow=tail, include_expired=expired)
        called = engine.read([one], follow=lambda found: tail(found), include_expired=expired)
        entries = [row.key for row in called.ranges[0]]
        assert [row[0] for row in native.ranges[0]] == entries
        assert [row[0] for row in native.ranges[0][1:-1]] == entries[1:-1]
        assert [row[0] for row in native.ranges[0][-1:]] == entries[-1:]
        assert len(native.ranges[0]) == len(entries)
        assert native.versionstamp == called.versionstamp
        one_list = [[row for rows in called.followed for row in rows]] if all(called.followed) else None
        assert [[row_of(row) for row in rows] for rows in native.followed] in (called.followed, one_list)
        with engine.snapshot() as snapshot:
            pinned = snapshot.read([one], follow=tail, include_expired=expired).followed
            assert [[row_of(row) for row in rows] for rows in pinned] in (called.followed, one_list)
    clock.now += 4
    assert engine.read([one], follow=tail).followed in ([], [[]])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [None, 0, 31, 32, 33, 100, *in_the_soak(1, 95, 96, 97, 101, 400)])
def test_many_rows_without_deadlines_are_those_that_are_read_one_by_one(engine, limit, reverse):
    numbers = {b"by/a/": 40, b"by/b/": 100, b"by/c/": 300, b"by/d/": 1}
    commit(engine, *(put(head + b"%03d" % at) for head, number in numbers.items() for at in range(number)))
    commit(engine, *(put(b"user/%03d" % at, b"U%d" % at) for at in range(300)))
    for removed in (None, b"user/000", b"user/050"):
        if removed is not None:
            commit(engine, Delete(removed))
        for head in (*numbers, b"by/", b"by/e/", b"by/b/09"):
            one, tail = ReadRange(head, head + b"\xff", limit, reverse), SuffixFollow(b"user/", 5)
            native, called = engine.read([one], follow=tail), engine.read([one], follow=lambda found: tail(found))  # noqa: B023
            assert [row[0] for row in native.ranges[0]] == [row.key for row in called.ranges[0]]
            behind = [[row_of(row) for row in rows] for rows in native.followed]
            assert behind in (called.followed, [[row for rows in called.followed for row in rows]])
            assert made_rows(engine.read([one], follow=as_plain_rows)).ranges == called.ranges


@pytest.mark.parametrize("others", [{}, {2: (b"user/", 1, b""), 3: (b"user/", 0, b""), 5: (b"user/", 4, b"")}])
@pytest.mark.parametrize("guess", [(b"user/", 1, b""), (b"user/", 0, b""), (b"", 9, b"nowhere"), (b"user/", 0, b"\0")])
def test_what_follows_is_asked_for_or_the_row_that_a_guess_leads_to(engine, clock, guess, others):
    stamp = commit(engine, put(b"header"))
    values = [b"\x911", b"\x91\0\xff", b"caf\xc3\xa9", b"\xc3", b"\x91", b""]
    commit(engine, *(put(b"slot/%d" % number, value) for number, value in enumerate(values)))
    commit(engine, *(put(b"user/" + value, value, expire_at=clock.now + 1) for value in values))
    commit(engine, *(put(b"user/" + value[1:], b"cut" + value) for value in values if len(value) > 1))
    followers: tuple[Follow, ...] = (
        lambda found: [ReadRange(b"user/" + row.value[1:]) for row in found[0]],
        lambda found: [ReadRange(b"user/" + row.value) for row in found[0]],
        lambda found: [ReadRange(b"header")],
        lambda found: [],
    )
    for later in (0, 1):
        clock.now += later
        for number in range(len(values) + 1):
            for follow in followers:
                for guard in (Guard(b"header", stamp), Guard(b"header", None), None):
                    one = [ReadRange(b"slot/%d" % number)]
                    result, exact = (
                        engine.read(one, guard, follow=PredictedFollow(follow, guess, others=others)),
                        engine.read(one, guard, follow=follow),
                    )
                    if result != exact:
                        assert isinstance(result, ReadResult)
                        value = result.ranges[0][0].value
                        ways = {guess, others.get(len(value), guess)}  # an engine need not know of the others
                        predicted = [ReadRange(head + value[start:] + end) for head, start, end in ways]
                        assert result.followed in [engine.read([way]).ranges for way in predicted]
                        assert result.followed != [[]]
                        assert result._replace(followed=exact.followed) == exact


def test_the_ends_of_single_keys_and_of_several_ranges_are_followed_as_well(engine):
    commit(engine, put(b"by/red/1"), put(b"by/red/2"), put(b"user/1", b"U1"), put(b"user/2", b"U2"))
    tail = SuffixFollow(b"user/", len(b"by/red/"))
    for ranges in (
        [ReadRange(b"by/red/1")],
        [ReadRange(b"by/red/1"), EVERYTHING],
        [ReadRange(b"by/red/1", b"by/red/2"), EVERYTHING],
    ):
        followed = engine.read(ranges, follow=tail).followed
        assert [[row.value for row in rows] for rows in followed] == [[b"U1"]]
    stamp = commit(engine, put(b"header"))
    commit(engine, put(b"header"))
    assert isinstance(engine.read([EVERYTHING], Guard(b"header", stamp), follow=tail), GuardFailed)


@pytest.mark.parametrize("most", [0, 1, 3, 4, 50])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_records_behind_the_entries_of_several_ranges_are_those_that_the_function_asks_for(
    engine, clock, reverse, most
):
    commit(
        engine, *(put(b"by/%s/%d" % (color, n)) for color, n in ((b"red", 1), (b"red", 2), (b"blue", 3), (b"red", 4)))
    )
    commit(engine, put(b"by/blue/5", expire_at=clock.now + 1), put(b"user/5", b"U5"))
    commit(engine, *(put(b"user/%d" % n, b"U%d" % n) for n in (1, 3, 4)), put(b"user/9", b"U9"))
    clock.now += 1
    ranges = [ReadRange(head, head + b"\xff", 2, reverse) for head in (b"by/red/", b"by/green/", b"by/blue/")]
    tails = MultiRangeFollow(b"user/", (len(b"by/red/"), len(b"by/green/"), len(b"by/blue/")), most)
    declared, called = engine.read(ranges, follow=tails), engine.read(ranges, follow=lambda found: tails(found))
    assert [[row[0] for row in rows] for rows in declared.ranges] == [
        [row.key for row in rows] for rows in called.ranges
    ]
    assert (declared.followed, declared.versionstamp) == (called.followed, called.versionstamp)
    expected = [[b"U4"], [], [b"U3"]] if reverse else [[b"U1"], [], [b"U3"]]
    assert [[row.value for row in rows] for rows in declared.followed] == expected[:most]
    if engine.capabilities.traits.snapshots:
        with engine.snapshot() as snapshot:
            assert snapshot.read(ranges, follow=tails).followed == called.followed


def test_following_nothing_and_following_ranges_with_limits(engine):
    commit(engine, *(put(b"k%d" % i) for i in range(5)))
    assert engine.read([ReadRange(b"k0")], follow=lambda found: []).followed == []
    followed = engine.read([], follow=lambda found: [ReadRange(b"k0", b"k9", 2, True), ReadRange(b"x")]).followed
    assert [[row.key for row in one] for one in followed] == [[b"k4", b"k3"], []]


def test_follow_is_not_called_when_the_guard_fails(engine):
    called = []

    def follow(found):
        called.append(found)
        return []

    engine.read([EVERYTHING], Guard(b"header", b"\1" * 10), follow=follow)
    assert called == []


def test_an_error_in_follow_reaches_the_caller_and_leaves_the_engine_usable(engine):
    def fail(found):
        raise LookupError("from follow")

    for _ in range(20):
        with pytest.raises(LookupError, match="from follow"):
            engine.read([EVERYTHING], follow=fail)
    commit(engine, put(b"a"))
    assert keys(engine, EVERYTHING) == [b"a"]


def test_many_keys_are_read_in_one_call(engine):
    commit(engine, *(put(b"k%04d" % i, b"%d" % i) for i in range(0, 2_000, 2)))
    result = engine.read([ReadRange(b"k%04d" % i) for i in range(2_000)])
    assert [len(found) for found in result.ranges] == [1, 0] * 1_000
    assert sum(int(found[0].value) for found in result.ranges if found) == sum(range(0, 2_000, 2))


_KEYS = st.binary(min_size=1, max_size=3)


@given(
    st.sets(_KEYS, max_size=25),
    st.sets(_KEYS, max_size=10),
    st.lists(
        st.builds(ReadRange, _KEYS, st.none() | _KEYS, st.none() | st.integers(0, 5), st.booleans()),
        min_size=1,
        max_size=3,
    ),
)
def test_any_range_equals_a_filtered_sorted_list(quick_folder, present, removed, ranges):
    shutil.rmtree(quick_folder / "store.lmdb", ignore_errors=True)
    for engine in (
        MemoryEngine(),
        SqliteEngine(":memory:"),
        LmdbEngine(quick_folder / "store.lmdb", durability="relaxed"),
    ):
        commit(engine, *(put(key) for key in present))
        with engine.snapshot() as snapshot:
            commit(engine, *(Delete(key) for key in removed))
            for source, expected in ((engine, present - removed), (snapshot, present)):
                result = source.read(ranges)
                assert isinstance(result, ReadResult)
                for one, found in zip(ranges, result.ranges, strict=True):
                    end = one.start + b"\0" if one.end is None else one.end
                    inside = sorted(key for key in expected if one.start <= key < end)
                    if one.reverse:
                        inside.reverse()
                    assert [row.key for row in found] == inside[: one.limit]
        engine.close()


def test_a_point_and_a_range_of_one_key_agree(engine):
    commit(engine, put(b"k", b"1"), put(b"k\0", b"2"))
    assert rows(engine, ReadRange(b"k")) == rows(engine, ReadRange(b"k", b"k\0")) == [get(engine, b"k")]


@pytest.mark.parametrize("number", [1, 2, 9])
def test_what_is_behind_a_single_row_is_a_row(engine, number):
    commit(engine, *(put(b"by/red/%d" % at) for at in range(number)), *(put(b"user/%d" % at) for at in range(number)))
    read = engine.read([ReadRange(b"by/red/", b"by/red0")], follow=SuffixFollow(b"user/", len(b"by/red/")))
    one_list = read.followed if len(read.followed) == number else [[row] for row in read.followed[0]]
    assert [[row_of(row).key for row in rows] for rows in one_list] == [[b"user/%d" % at] for at in range(number)]


def made_rows(found: ReadResult) -> ReadResult:
    return found._replace(ranges=[[row_of(row) for row in rows] for rows in found.ranges])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [None, 0, 1, 3, 50])
def test_rows_for_a_reader_of_plain_tuples_hold_the_same(engine, clock, limit, reverse):
    for number in range(3):
        commit(
            engine,
            *(
                put(b"k%d%d" % (number, at), b"v%d" % at, expire_at=clock.now + at if at % 3 else None)
                for at in range(9)
            ),
        )
    clock.now += 4
    for ranges in ([ReadRange(b"k", b"l", limit, reverse)], [EVERYTHING, ReadRange(b"k14"), ReadRange(b"k18")]):
        for expired in (False, True):
            rows = engine.read(ranges, include_expired=expired)
            assert made_rows(engine.read(ranges, include_expired=expired, follow=as_plain_rows)) == rows
            with engine.snapshot() as snapshot:
                assert made_rows(snapshot.read(ranges, include_expired=expired, follow=as_plain_rows)) == rows
