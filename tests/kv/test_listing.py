"""Cursors, batch sizes, keys alone and counts."""

from __future__ import annotations

import base64
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodels.api._sync.kv import open_kv
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, Set
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import (
    DecodeError,
    InvalidArgumentError,
    InvalidCursorError,
    InvalidKeyError,
    OperationTooLargeError,
    SnapshotExpiredError,
)
from kvmodels.limits import Limits
from tests.drawing import of_check
from tests.store_codecs import kv_on


def fill(kv, *keys):
    operation = kv.atomic()
    for key in keys:
        operation.set(key, key[-1])
    operation.commit()


def last_parts(entries):
    return [entry.key[-1] for entry in entries]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages_by_cursor_are_the_whole_listing(kv, limit, reverse):
    names = [f"{number:02}" for number in range(10)]
    fill(kv, *[("a", name) for name in names], ("a",), ("b", "x"))
    seen, cursor, pages = [], None, 0
    while cursor != "":
        page = kv.list(("a",), limit=limit, reverse=reverse, cursor=cursor)
        seen += last_parts(page)
        cursor = page.cursor
        pages += 1
        assert pages < 20
    assert seen == sorted(names, reverse=reverse)


def test_the_cursor_is_that_of_deno_after_each_entry_and_empty_behind_the_end(kv):
    fill(kv, ("a", "b"), ("a", "c"))
    listing = kv.list(("a",))
    cursors = [(next(listing).key, listing.cursor) for _ in range(2)]
    assert cursors == [(("a", "b"), "AmIA"), (("a", "c"), "AmMA")]
    assert list(listing) == []
    assert listing.cursor == ""
    assert list(listing) == []


def test_the_cursor_at_the_limit_is_that_of_the_last_entry_even_if_nothing_follows(kv):
    fill(kv, ("a", "b"), ("a", "c"))
    page = kv.list(("a",), limit=2)
    assert last_parts(page) == ["b", "c"]
    assert page.cursor == "AmMA"
    rest = kv.list(("a",), limit=2, cursor=page.cursor)
    assert last_parts(rest) == []
    assert rest.cursor == ""


def test_before_the_first_entry_there_is_only_the_cursor_that_was_given(kv):
    fill(kv, ("a", "b"))
    with pytest.raises(InvalidArgumentError, match="before the first entry"):
        assert kv.list(("a",)).cursor
    with pytest.raises(InvalidArgumentError, match="before the first entry"):
        assert kv.list(("a",), cursor="").cursor
    assert kv.list(("a",), cursor="AmEA").cursor == "AmEA"
    empty = kv.list(("nothing",))
    assert list(empty) == []
    assert empty.cursor == ""


def test_a_cursor_turns_round(kv):
    fill(kv, *[("a", name) for name in "bcdef"])
    forward = kv.list(("a",), limit=3)
    assert last_parts(forward) == ["b", "c", "d"]
    assert last_parts(kv.list(("a",), reverse=True, cursor=forward.cursor)) == ["c", "b"]


def test_a_cursor_of_a_range_leaves_out_what_both_ends_share(kv):
    fill(kv, ("users", "ada"), ("users", "adam"), ("users", "bob"))
    listing = kv.list(start=("users", "ada"), end=("users", "adb"))
    assert next(listing).key == ("users", "ada")
    shared = encode_key(("users", "ad"))[:-1]
    assert base64.urlsafe_b64decode(listing.cursor) == encode_key(("users", "ada"))[len(shared) :]
    assert last_parts(kv.list(start=("users", "ada"), end=("users", "adb"), cursor=listing.cursor)) == ["adam"]


@pytest.mark.parametrize(
    "cursor", ["!!!", "AmI", "+/+/", "AmIA ", "AmIA\n", "AmIA=", "=", "AmJ=", "Ä", b"AmIA", 7, ("a",)], ids=repr
)
def test_what_is_no_cursor_is_refused_when_list_is_called(cursor):
    with open_kv() as kv, pytest.raises(InvalidCursorError) as caught:
        kv.list(("a",), cursor=cursor)
    assert isinstance(caught.value, ValueError)
    assert caught.value.hint


def test_a_cursor_outside_the_bounds_of_the_selector_is_refused(kv):
    fill(kv, *[("a", name) for name in "abcd"])
    inside = kv.list(("a",), start=("a", "b"), end=None)
    assert next(inside).key == ("a", "b")
    assert last_parts(kv.list(("a",), start=("a", "b"), cursor=inside.cursor)) == ["c", "d"]
    with pytest.raises(InvalidCursorError, match="outside"):
        kv.list(("a",), start=("a", "c"), cursor="AmEA")
    with pytest.raises(InvalidCursorError, match="outside"):
        kv.list(("a",), end=("a", "c"), reverse=True, cursor="AmQA")
    with pytest.raises(InvalidCursorError, match="outside"):
        kv.list(start=("a", "c"), end=("a", "d"), cursor="AA==")


def test_a_made_up_cursor_never_leads_out_of_the_prefix(kv):
    inside = [("a", name) for name in "bcd"]
    fill(kv, *inside, ("a\0b", "secret"), ("a\0", 1), ("b",), ("",))
    rng = random.Random(20260729)
    print("seed 20260729")
    suffixes = [b"", b"\xff", b"\xff\x62\x00\xff", b"\xff\xff"] + [rng.randbytes(rng.randrange(6)) for _ in range(60)]
    for suffix in suffixes:
        cursor = base64.urlsafe_b64encode(suffix).decode()
        for reverse in (False, True):
            assert {entry.key for entry in kv.list(("a",), reverse=reverse, cursor=cursor)} <= set(inside)


_PARTS = st.one_of(
    st.integers(-300, 300),
    st.sampled_from(["", "a", "b", "a\0", "\xff"]),
    st.booleans(),
    st.floats(),
    st.binary(max_size=2),
)


@settings(max_examples=of_check(60), deadline=None)
@given(st.lists(st.tuples(_PARTS, _PARTS), max_size=12), st.integers(1, 4), st.booleans(), st.integers(1, 3), st.data())
def test_a_listing_may_be_left_and_resumed_after_any_entry(keys, batch_size, reverse, limit, data):
    with open_kv() as kv:
        fill(kv, *keys)
        prefix = data.draw(st.sampled_from([(), *[key[:1] for key in keys]]))
        expected = [encode_key(entry.key) for entry in kv.list(prefix, reverse=reverse)]
        seen, cursor = [], ""
        while True:
            page = kv.list(prefix, reverse=reverse, cursor=cursor, limit=limit, batch_size=batch_size)
            seen += [encode_key(entry.key) for entry in page]
            cursor = page.cursor
            if not cursor:
                break
        assert seen == expected


def test_M10_keys_that_are_deleted_between_two_pages_make_none_skip(kv):
    fill(kv, *[("k", number) for number in range(20)])
    seen, cursor = [], None
    while cursor != "":
        page = kv.list(("k",), limit=4, cursor=cursor)
        seen += last_parts(page)
        for number in seen:
            kv.delete(("k", number))
        cursor = page.cursor
    assert seen == list(range(20))


class ReadCounter(MemoryEngine):
    """Counts reads and the rows that each asks for."""

    __slots__ = ("wanted",)

    def __init__(self):
        super().__init__()
        self.wanted = []

    def read(self, ranges, guard=None, **options):
        self.wanted += [(one.limit, one.keys_only) for one in ranges]
        return super().read(ranges, guard, **options)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [100, 100, 100]),
        ({"limit": 5}, [5]),
        ({"limit": 150}, [150]),
        ({"limit": 600}, [500]),
        ({"batch_size": 60}, [60] * 5),
        ({"batch_size": 60, "limit": 130}, [60, 60, 10]),
        ({"batch_size": 60, "limit": 10}, [10]),
        ({"batch_size": 1_000}, [1_000]),
    ],
    ids=repr,
)
def test_batches_are_as_large_as_was_asked_for(options, wanted):
    engine = ReadCounter()
    with kv_on(engine) as kv:
        fill(kv, *[("k", number) for number in range(250)])
        assert len(list(kv.list(("k",), **options))) == min(250, options.get("limit", 250))
        assert engine.wanted == [(size, False) for size in wanted]


def test_a_batch_larger_than_the_engine_reads_at_once_is_refused_at_the_first_entry(stores):
    kv = stores.open(limits=Limits.DENO)
    fill(kv, ("k", 1))
    assert last_parts(kv.list(("k",), batch_size=1_000)) == [1]
    listing = kv.list(("k",), batch_size=1_001)
    with pytest.raises(OperationTooLargeError) as caught:
        next(listing)
    assert (caught.value.limit, caught.value.size, caught.value.limits) == ("max_read_entries", 1_001, "DENO")


@pytest.mark.parametrize("argument", ["limit", "batch_size"])
@pytest.mark.parametrize("value", [0, -1, 1.0, "3", True, float("inf")], ids=repr)
def test_a_number_that_is_no_positive_integer_is_refused(argument, value):
    with open_kv() as kv, pytest.raises(InvalidArgumentError) as caught:
        kv.list(("k",), **{argument: value})
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    ("argument", "value"), [("keys_only", 1), ("reverse", None), ("consistency", "weak"), ("consistency", None)]
)
def test_an_option_that_makes_no_sense_is_refused(argument, value):
    with open_kv() as kv, pytest.raises(InvalidArgumentError) as caught:
        kv.list(("k",), **{argument: value})
    assert caught.value.argument == argument


def test_both_consistencies_read_the_last_commit_where_there_are_no_replicas(kv):
    kv.set(("k", 1), "new")
    assert [list(kv.list(("k",), consistency=kind)) for kind in ("strong", "eventual")] == [[kv.get(("k", 1))]] * 2


def test_keys_alone_come_without_values_and_are_listed_where_a_value_cannot_be_decoded(kv):
    result = kv.atomic().set(("k", 1), "value").set(("k", 2), [1], expire_in=5).commit()
    whole = list(kv.list(("k",)))
    alone = kv.list(("k",), keys_only=True, reverse=True)
    assert list(alone) == [entry._replace(value=None) for entry in reversed(whole)]
    assert {entry.versionstamp for entry in whole} == {result.versionstamp}


def test_keys_of_damaged_values_are_listed_and_counted():
    engine = MemoryEngine()
    engine.commit(AtomicWrite((), (Set(encode_key(("k", 1)), b"\xc1", 4),)))
    with kv_on(engine) as kv:
        with pytest.raises(DecodeError):
            list(kv.list(("k",)))
        assert last_parts(kv.list(("k",), keys_only=True)) == [1]
        assert kv.count(("k",)) == 1


def test_count_agrees_with_list(stores):
    kv = stores.open()
    assert kv.count(()) == 0
    fill(kv, *[("k", number) for number in range(1_500)], ("k",), ("l", 1))
    kv.set(("k", "soon"), 1, expire_in=1)
    assert kv.count(("k",)) == 1_501
    assert kv.count(()) == 1_503
    assert kv.count(("k",), start=("k", 1_000)) == len(list(kv.list(("k",), start=("k", 1_000))))
    assert kv.count(("k",), end=("k", 1_000)) == 1_001  # a str comes before every int
    assert kv.count(start=("k", 10), end=("k", 20)) == 10
    assert kv.count(start=("k", 10), end=("k", 10)) == 0
    stores.clock.ms += 1_000
    assert kv.count(("k",)) == 1_500


@pytest.mark.parametrize(
    ("selector", "error"),
    [({}, InvalidArgumentError), ({"start": ("a",)}, InvalidArgumentError), ({"prefix": "text"}, InvalidKeyError)],
    ids=repr,
)
def test_count_refuses_what_list_refuses(kv, selector, error):
    with pytest.raises(error):
        kv.count(**selector)


def test_a_count_over_several_batches_is_of_one_state():
    class OnlySnapshots(MemoryEngine):
        """Has no state that two reads in succession could agree on, but in a snapshot."""

        __slots__ = ()

        def read(self, ranges, guard=None, **options):
            raise AssertionError("a count of several batches reads in a snapshot")

    engine = OnlySnapshots()
    with kv_on(engine) as kv:
        fill(kv, *[("k", number) for number in range(2_500)])
        assert kv.count(("k",)) == 2_500


def test_a_count_in_a_snapshot_that_is_too_old_is_a_typed_error(stores):
    kv = stores.open(snapshot_max_age=5.0)
    fill(kv, ("k", 1))
    with kv.snapshot() as state:
        assert state.count(("k",)) == 1
        stores.clock.ms += 5_000
        with pytest.raises(SnapshotExpiredError):
            state.count(("k",))
    assert kv.count(("k",)) == 1
