"""get, get_many and list: what they return, in which order, and from which snapshot."""

from __future__ import annotations

import pytest

from kvmodels.api._sync.kv import open_kv
from kvmodels.core.operations import Entry
from kvmodels.errors import DecodeError, InvalidArgumentError, InvalidKeyError
from tests.worlds import in_the_soak


def keys(entries):
    return [entry.key for entry in entries]


def fill(kv, *names):
    operation = kv.atomic()
    for position, name in enumerate(names):
        operation.set(name, position)
    assert operation.commit()


def test_an_absent_key_has_neither_value_nor_versionstamp(kv):
    assert kv.get(("nobody",)) == Entry(("nobody",), None, None, None)


def test_a_stored_none_is_present(kv):
    result = kv.set(("k",), None)
    assert kv.get(("k",)) == Entry(("k",), None, result.versionstamp, None)


def test_the_empty_key_can_be_read_and_is_absent(kv):
    assert kv.get(()) == Entry((), None, None)
    assert kv.get_many([()]) == [Entry((), None, None)]


def test_a_list_of_parts_and_bytes_like_parts_are_read_back_as_the_canonical_key(kv):
    kv.set(["a", bytearray(b"x"), memoryview(b"y")], 1)
    assert kv.get(("a", b"x", b"y")).key == ("a", b"x", b"y")
    absent = kv.get(["b", bytearray(b"x")])
    assert absent.key == ("b", b"x")
    assert [type(part) for part in absent.key] == [str, bytes]


def test_true_one_and_one_point_zero_are_three_keys(kv):
    fill(kv, ("k", True), ("k", 1), ("k", 1.0))
    assert [kv.get(("k", part)).value for part in (True, 1, 1.0)] == [0, 1, 2]
    assert [repr(entry.key[1]) for entry in kv.list(("k",))] == ["1", "1.0", "True"]


def test_get_many_keeps_the_order_of_the_request_and_repeats(kv):
    fill(kv, ("a",), ("b",), ("c",))
    entries = kv.get_many([("c",), ("missing",), ("a",), ("c",)])
    assert [(entry.key, entry.value) for entry in entries] == [
        (("c",), 2),
        (("missing",), None),
        (("a",), 0),
        (("c",), 2),
    ]


def test_get_many_takes_any_iterable_and_nothing_gives_nothing(kv):
    assert kv.get_many([]) == []
    assert keys(kv.get_many(("k", number) for number in range(3))) == [("k", 0), ("k", 1), ("k", 2)]


def test_P5_rows_of_one_commit_are_all_returned_by_a_read_of_several_keys(kv):
    wanted = [("row", number) for number in range(50)]
    fill(kv, *wanted)
    entries = kv.get_many(wanted)
    assert [entry.value for entry in entries] == list(range(50))
    assert len({entry.versionstamp for entry in entries}) == 1
    assert len(list(kv.list(("row",)))) == 50


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"prefix": ("a",)}, [("a", "a"), ("a", "b"), ("a", "b", "x"), ("a", "c")]),
        ({"prefix": ("a", "b")}, [("a", "b", "x")]),
        ({"prefix": ("a",), "start": ("a", "b")}, [("a", "b"), ("a", "b", "x"), ("a", "c")]),
        ({"prefix": ("a",), "start": ("a", "aa")}, [("a", "b"), ("a", "b", "x"), ("a", "c")]),
        ({"prefix": ("a",), "end": ("a", "b", "x")}, [("a", "a"), ("a", "b")]),
        ({"prefix": ("a",), "end": ("a", "zzz")}, [("a", "a"), ("a", "b"), ("a", "b", "x"), ("a", "c")]),
        ({"start": ("a", "b", "x"), "end": ("b", "a")}, [("a", "b", "x"), ("a", "c"), ("a\0",), ("ab",), ("b",)]),
        ({"start": ("a",), "end": ("a",)}, []),
        ({"start": (), "end": ("a", "b")}, [("a",), ("a", "a")]),
        ({"prefix": ("nothing",)}, []),
    ],
    ids=repr,
)
def test_a_selector_names_a_range_in_key_order_and_reverse_gives_it_backwards(kv, selector, expected):
    everything = [("a",), ("a", "a"), ("a", "b"), ("a", "b", "x"), ("a", "c"), ("ab",), ("a\0",), ("b",), ("b", "a")]
    fill(kv, *everything)
    assert keys(kv.list(**selector)) == expected
    assert keys(kv.list(**selector, reverse=True)) == expected[::-1]
    for limit in (1, 2, 3, 100):
        assert keys(kv.list(**selector, limit=limit)) == expected[:limit]
        assert keys(kv.list(**selector, limit=limit, reverse=True)) == expected[::-1][:limit]


def test_the_empty_prefix_lists_everything_in_order_of_types(kv):
    ordered = [(b"z",), ("a",), (-1,), (10,), (-0.5,), (9.0,), (False,), (True,)]
    fill(kv, *reversed(ordered))
    assert [repr(key) for key in keys(kv.list(()))] == [repr(key) for key in ordered]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [None, 1, 100, 500, 501, *in_the_soak(99, 101, 499, 700, 2000)])
def test_a_listing_longer_than_a_batch_is_complete(stores, limit, reverse):
    kv = stores.open()
    fill(kv, *[("n", number) for number in range(700)])
    expected = list(range(700))[:: -1 if reverse else 1][:limit]
    assert [entry.value for entry in kv.list(("n",), limit=limit, reverse=reverse)] == expected


def test_a_listing_goes_on_behind_a_nan_key_in_both_directions(kv):
    negative_nan = float("-nan")
    parts = [negative_nan, float("-inf"), -0.0, 0.0, float("inf"), float("nan")]
    fill(kv, *[("n", part) for part in parts])
    assert [entry.value for entry in kv.list(("n",), limit=6)] == [0, 1, 2, 3, 4, 5]
    # Deno recomputes its position from the decoded key, loses the sign of a NaN, and never ends here.
    iterator = kv.list(("n",), limit=1, reverse=True)
    assert [entry.value for entry in iterator] == [5]
    assert [entry.value for entry in kv.list(("n",), reverse=True)] == [5, 4, 3, 2, 1, 0]


def test_each_batch_is_its_own_snapshot_and_nothing_is_read_before_the_first_item(kv):
    fill(kv, *[("n", number) for number in range(150)])
    iterator = kv.list(("n",))
    kv.set(("n", 0), "changed before the first item")
    first = next(iterator)
    assert first.value == "changed before the first item"
    kv.set(("n", 50), "in the batch that was read")
    kv.set(("n", 120), "in a later batch")
    kv.delete(("n", 121))
    values = {entry.key[1]: entry.value for entry in iterator}
    assert values[50] == 50
    assert values[120] == "in a later batch"
    assert 121 not in values
    assert len(values) == 148


def test_a_listing_that_is_left_early_holds_nothing(kv):
    fill(kv, *[("n", number) for number in range(150)])
    iterator = kv.list(("n",))
    next(iterator)
    kv.set(("n", 0), "written while the iterator is alive")
    kv.close()


def test_an_exhausted_listing_stays_exhausted(kv):
    fill(kv, ("n", 1))
    iterator = kv.list(("n",))
    assert len(list(iterator)) == 1
    kv.set(("n", 2), 2)
    assert list(iterator) == []


def test_deleting_while_listing_visits_every_key_once(kv):
    fill(kv, *[("n", number) for number in range(230)])
    seen = []
    for entry in kv.list(("n",)):
        seen.append(entry.value)
        kv.delete(entry.key)
    assert seen == list(range(230))
    assert list(kv.list(("n",))) == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, InvalidArgumentError),
        ({"start": ("a",)}, InvalidArgumentError),
        ({"end": ("a",)}, InvalidArgumentError),
        ({"prefix": ("a",), "start": ("a", "a"), "end": ("a", "b")}, InvalidArgumentError),
        ({"prefix": ("a",), "start": ("b", "a")}, InvalidArgumentError),
        ({"prefix": ("a",), "start": ("a",)}, InvalidArgumentError),
        ({"prefix": ("a",), "end": ("a",)}, InvalidArgumentError),
        ({"prefix": ("a",), "end": ("ab", "c")}, InvalidArgumentError),
        ({"start": ("b",), "end": ("a",)}, InvalidArgumentError),
        ({"prefix": "users"}, InvalidKeyError),
        ({"prefix": b"users"}, InvalidKeyError),
        ({"prefix": (None,)}, InvalidKeyError),
        ({"start": 5, "end": ("a",)}, InvalidKeyError),
        ({"prefix": (), "limit": 0}, InvalidArgumentError),
        ({"prefix": (), "limit": -1}, InvalidArgumentError),
        ({"prefix": (), "limit": True}, InvalidArgumentError),
        ({"prefix": (), "limit": 1.0}, InvalidArgumentError),
        ({"prefix": (), "limit": "3"}, InvalidArgumentError),
        ({"prefix": (), "limit": float("inf")}, InvalidArgumentError),
        ({"prefix": (), "reverse": 1}, InvalidArgumentError),
        ({"prefix": (), "reverse": None}, InvalidArgumentError),
    ],
    ids=repr,
)
def test_a_selector_that_makes_no_sense_is_refused_when_list_is_called(kv, arguments, error):
    with pytest.raises(error) as caught:
        kv.list(**arguments)
    assert isinstance(caught.value, ValueError | TypeError)


@pytest.mark.parametrize(
    "key", ["users", b"users", None, 7, {"a": 1}, ("a", None), ("a", ("b",)), ("a", 1j), (object(),)]
)
def test_what_is_no_key_is_refused(kv, key):
    with pytest.raises(InvalidKeyError):
        kv.get(key)
    with pytest.raises(InvalidKeyError):
        kv.get_many([("fine",), key])
    with pytest.raises(InvalidKeyError):
        kv.set(key, 1)
    with pytest.raises(InvalidKeyError):
        kv.delete(key)
    with pytest.raises(InvalidKeyError):
        kv.atomic().check(key, None)
    assert list(kv.list(())) == []


def test_an_entry_is_not_taken_for_a_key(kv):
    entry = kv.get(("a",))
    with pytest.raises(InvalidKeyError):
        kv.get(entry)


def test_a_row_that_cannot_be_read_raises_with_its_key_and_the_listing_goes_on_behind_it(stores):
    url = stores.url()
    kv = stores.open(url)
    fill(kv, ("n", 1), ("n", 2), ("n", 3))
    damage(url, ("n", 2), stores)
    with pytest.raises(DecodeError) as caught:
        kv.get(("n", 2))
    assert caught.value.key == ("n", 2)
    if stores.world == "sync":
        iterator = kv.list(("n",))
        assert next(iterator).value == 0
        with pytest.raises(DecodeError):
            next(iterator)
        assert next(iterator).value == 2


def damage(url, key, stores):
    """Store bytes that no codec reads, as another program might."""
    from kvmodels.core.keys import encode_key
    from kvmodels.core.operations import AtomicWrite, Set
    from kvmodels.engines.url import open_engine
    from kvmodels.limits import Limits

    engine = open_engine(
        url,
        limits=Limits.EMBEDDED,
        durability="commit" if stores.engine == "memory" else "relaxed",
        clock=stores.clock,
        readonly=False,
    )
    engine.commit(AtomicWrite((), (Set(encode_key(key), b"\xc1 not a value", 4),)))
    engine.close()


def test_a_snapshot_of_get_many_never_mixes_two_commits_beside_a_writer(tmp_path):
    import threading

    with open_kv(tmp_path / "pair.db", durability="relaxed") as kv:
        kv.atomic().set(("a",), 0).set(("b",), 0).commit()
        stop = threading.Event()

        def write():
            number = 0
            while not stop.is_set():
                number += 1
                kv.atomic().set(("a",), number).set(("b",), number).commit()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            pairs: list[tuple[int, int]] = []
            # On a busy machine the writer may get its first turn late.
            while writer.is_alive() and (len(pairs) < 300 or pairs[-1][0] == 0):
                first, second = (entry.value for entry in kv.get_many([("a",), ("b",)]))
                pairs.append((first, second))
        finally:
            stop.set()
            writer.join()
        assert all(first == second for first, second in pairs)
        assert pairs[-1][0] > 0
