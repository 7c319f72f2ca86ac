"""Watching keys: the present state at once, then every change of one of them, coalesced, each delivery a snapshot."""

from __future__ import annotations

import random
import threading
import time

import pytest

from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, Set
from kvmodels.errors import (
    ClosedError,
    DecodeError,
    InvalidArgumentError,
    InvalidKeyError,
    KeyTooLargeError,
    OperationTooLargeError,
)
from kvmodels.limits import Limits

A, B = ("a",), ("b",)


def values(entries):
    return [entry.value for entry in entries]


def test_review_21_every_start_delivers_the_present_state_absent_keys_as_absent(store, kv):
    done = kv.set(A, 1)
    for _ in range(2):
        first = next(store.watch([A, B, A]))
        assert [(entry.key, entry.value, entry.versionstamp) for entry in first] == [
            (A, 1, done.versionstamp),
            (B, None, None),
            (A, 1, done.versionstamp),
        ]


def test_a_change_delivers_all_the_keys_in_one_snapshot(store, kv):
    watch = store.watch([A, B], timeout=0)
    assert values(next(watch)) == [None, None]
    kv.atomic().set(A, 1).set(B, 2).commit()
    assert values(next(watch)) == [1, 2]
    kv.delete(A)
    entries = next(watch)
    assert [(entry.value, entry.versionstamp is None) for entry in entries] == [(None, True), (2, False)]


def test_writing_the_same_value_is_a_change_and_what_changes_nothing_is_none(store, kv):
    kv.set(A, 1)
    watch = store.watch([A, B], timeout=0)
    next(watch)
    kv.set(A, 1)
    assert values(next(watch)) == [1, None]
    kv.set(("unrelated",), 1)
    kv.delete(B)
    kv.atomic().check(A, None).set(A, 2).commit()
    assert list(watch) == []


def test_changes_that_nobody_takes_are_coalesced_to_the_last_state(store, kv):
    watch = store.watch([A], timeout=0)
    next(watch)
    for number in range(50):
        kv.set(A, number)
    assert [values(entries) for entries in watch] == [[49]]


def test_the_versionstamp_is_that_of_the_snapshot(store, kv):
    watch = store.watch([A])
    assert watch.versionstamp is None
    done = kv.set(B, 1)
    next(watch)
    assert watch.versionstamp == done.versionstamp


def test_expiry_is_delivered_at_the_deadline_by_a_timer(store):
    kv = store.open(system_clock=True)
    engine = kv._opening.open()
    not_before = engine.now_ms() + 150
    kv.set(A, 1, expire_in=0.15)
    watch = store.watch([A], timeout=60)
    seen = values(next(watch))
    if seen == [1]:  # else the machine was so slow that it had expired before the first look
        seen = values(next(watch))
    assert seen == [None]
    assert engine.now_ms() >= not_before


def test_a_longer_lifetime_moves_the_timer(store):
    kv = store.open(system_clock=True)
    kv.set(A, "short", expire_in=0.1)
    watch = store.watch([A], timeout=0.5)
    next(watch)
    kv.set(A, "for ever")
    assert [values(entries) for entries in watch] == [["for ever"]]


def test_expiry_by_the_clock_of_the_engine(store, kv):
    kv.set(A, 1, expire_in=10)
    watch = store.watch([A], timeout=0)
    assert values(next(watch)) == [1]
    store.clock.ms += 9_999
    assert list(watch) == []
    watch = store.watch([A], timeout=0)
    assert values(next(watch)) == [1]
    store.clock.ms += 1
    assert values(next(watch)) == [None]
    kv._opening.open().sweep(10)
    assert list(watch) == []


def test_a_timeout_ends_the_iteration_and_each_change_begins_it_anew(store, kv):
    watch = store.watch([A], timeout=0.02)
    assert values(next(watch)) == [None]
    started = time.monotonic()
    assert list(watch) == []
    assert time.monotonic() - started >= 0.02
    kv.set(A, 1)
    assert list(watch) == []


def test_no_keys_end_at_once(store, kv):
    assert kv.get(A).value is None
    assert list(store.watch([])) == []


def test_a_writer_in_another_thread_wakes_the_watch(store, kv):
    watch = store.watch([A])
    next(watch)
    writing = threading.Timer(0.02, kv.set, (A, "woken"))
    writing.start()
    assert values(next(watch)) == ["woken"]
    writing.join()


def test_closing_the_store_ends_the_watch(store, kv):
    watch = store.watch([A])
    next(watch)
    closing = threading.Timer(0.02, kv.close)
    closing.start()
    assert list(watch) == []
    closing.join()
    assert list(watch) == []


def test_a_watch_that_begins_on_a_closed_store_says_so(store, kv):
    watch = store.watch([A])
    kv.close()
    with pytest.raises(ClosedError):
        next(watch)


def test_closing_the_watch_ends_it(store, kv):
    watch = store.watch([A])
    next(watch)
    closing = threading.Timer(0.02, watch.close)
    closing.start()
    assert list(watch) == []
    closing.join()
    kv.set(A, 1)
    assert list(watch) == []


def test_a_value_that_cannot_be_read_is_an_error_and_the_watch_goes_on(store):
    kv = store.open()
    watch = store.watch([A], timeout=0)
    next(watch)
    damage(kv)
    with pytest.raises(DecodeError):
        next(watch)
    kv.set(A, "mended")
    assert [values(entries) for entries in watch] == [["mended"]]


def damage(kv):
    kv._opening.open().commit(AtomicWrite(mutations=(Set(encode_key(A), b"\xc1", 99),)))


@pytest.mark.parametrize("timeout", [-1, True, "1", float("nan")])
def test_a_timeout_is_a_number_of_seconds(store, kv, timeout):
    with pytest.raises(InvalidArgumentError):
        store.watch([A], timeout=timeout)
    kv.close()


def test_arguments_that_make_no_sense_are_refused(store, kv):
    stamp = kv.set(A, 1).versionstamp
    for options in (
        {},
        {"keys": [A], "prefix": ()},
        {"keys": [A], "since": stamp},
        {"prefix": (), "since": "yesterday"},
        {"prefix": (), "since": b"0" * 20},
    ):
        with pytest.raises(InvalidArgumentError):
            store.watch(**options)
    for keys in (("users", 1), [[None]], [("users", None)]):
        with pytest.raises(InvalidKeyError):
            store.watch(keys)


def test_limits_hold_for_watched_keys(store):
    store.open(limits=Limits.DENO)
    with pytest.raises(KeyTooLargeError):
        next(store.watch([("x" * 3_000,)]))
    with pytest.raises(OperationTooLargeError):
        next(store.watch([(number,) for number in range(11)]))


def test_every_delivery_beside_writers_is_one_snapshot_and_the_last_is_the_last_state(store, kv):
    keys = [("pair", side) for side in range(2)]
    writers = 2

    def write(name):
        chance = random.Random(name)
        for _ in range(100):
            number = chance.random()
            kv.atomic().set(keys[0], number).set(keys[1], number).commit()

    def write_the_last() -> None:
        for thread in threads:
            thread.join()
        kv.atomic().set(keys[0], "last").set(keys[1], "last").commit()

    watch = store.watch(keys)
    threads = [threading.Thread(target=write, args=(name,)) for name in range(writers)]
    last = threading.Thread(target=write_the_last)
    for thread in (*threads, last):
        thread.start()
    seen = [next(watch)]
    while seen[-1][0].value != "last":
        seen.append(next(watch))
    last.join()
    watch.close()
    assert all(len({entry.value for entry in entries}) == 1 for entries in seen)
    stamps = [entries[0].versionstamp or "" for entries in seen]
    assert stamps == sorted(set(stamps))
    assert seen[-1] == kv.get_many(keys)
