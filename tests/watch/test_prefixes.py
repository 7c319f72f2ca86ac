"""Watching a prefix: what is there, then what changes, in commit order; and going on where an earlier watch ended."""

from __future__ import annotations

import random

import pytest

from kvmodels.errors import ResumeExpiredError, UnsupportedError

USERS = ("users",)


def told(entries):
    return [(entry.key[-1], entry.value) for entry in entries]


def user(name):
    return (*USERS, name)


def test_without_since_the_present_state_comes_first(store):
    kv = store.open(change_log=60)
    kv.set(("other",), 1)
    for name in ("a", "b"):
        kv.set(user(name), name)
    watch = store.watch(prefix=USERS, timeout=0)
    assert told(next(watch)) == [("a", "a"), ("b", "b")]
    assert list(watch) == []


def test_an_empty_prefix_is_delivered_as_nothing_so_that_a_reader_knows_it(store):
    store.open(change_log=60)
    assert list(store.watch(prefix=USERS, timeout=0)) == [[]]


def test_changed_keys_come_with_what_they_hold_in_commit_order(store):
    kv = store.open(change_log=60)
    watch = store.watch(prefix=USERS, timeout=0)
    next(watch)
    kv.set(user("a"), 1)
    kv.atomic().set(user("b"), 2).set(("other",), 1).commit()
    kv.set(user("a"), 3)
    kv.delete(user("b"))
    assert told(next(watch)) == [("a", 3), ("b", None)]
    kv.set(("other",), 2)
    assert list(watch) == []


def test_review_21_a_watch_goes_on_where_an_earlier_one_ended_deletions_included(store):
    kv = store.open(change_log=60)
    kv.set(user("a"), 1)
    kv.set(user("b"), 1)
    watch = store.watch(prefix=USERS, timeout=0)
    next(watch)
    position = watch.versionstamp
    kv.delete(user("a"))
    kv.set(user("c"), 1)
    again = store.watch(prefix=USERS, since=position, timeout=0)
    assert again.versionstamp == position
    assert [told(entries) for entries in again] == [[("a", None), ("c", 1)]]
    assert list(store.watch(prefix=USERS, since=again.versionstamp, timeout=0)) == []


def test_review_21_a_versionstamp_of_a_commit_is_a_position(store):
    kv = store.open(change_log=60)
    done = kv.set(user("a"), 1)
    kv.set(user("b"), 2)
    assert [told(entries) for entries in store.watch(prefix=USERS, since=done.versionstamp, timeout=0)] == [[("b", 2)]]


def test_review_21_older_than_the_log_is_an_error_and_a_start_from_the_beginning_works(store):
    kv = store.open(change_log=1)
    first = kv.set(user("a"), 1).versionstamp
    kv.set(user("b"), 1)
    store.clock.ms += 2_000
    trim(kv, store.clock.ms - 1_000)
    with pytest.raises(ResumeExpiredError) as caught:
        next(store.watch(prefix=USERS, since=first))
    assert caught.value.since == first
    assert told(next(store.watch(prefix=USERS))) == [("a", 1), ("b", 1)]


def trim(kv, before_ms):
    """As the background does, which does not run on a clock that was passed in."""
    kv._opening.open().sweep(1)
    store = kv._opening.open().check_open()
    if hasattr(store, "trim_log"):
        store.trim_log(before_ms, store.backoff())


def test_a_watch_that_fell_behind_the_log_is_told(store):
    kv = store.open(change_log=1)
    watch = store.watch(prefix=USERS, timeout=0)
    next(watch)
    kv.set(user("a"), 1)
    store.clock.ms += 2_000
    trim(kv, store.clock.ms - 1_000)
    with pytest.raises(ResumeExpiredError):
        next(watch)


def test_a_store_without_a_change_log_says_so_at_the_first_item(store):
    kv = store.open()
    stamp = kv.set(user("a"), 1).versionstamp
    for options in ({}, {"since": stamp}):
        with pytest.raises(UnsupportedError, match="change_log"):
            next(store.watch(prefix=USERS, **options))


def test_a_versionstamp_of_another_store_is_expired(store):
    store.open(change_log=60)
    with pytest.raises(ResumeExpiredError):
        next(store.watch(prefix=USERS, since="f" * 20))


def test_a_store_without_a_change_log_says_so_for_any_position(store):
    store.open()
    with pytest.raises(UnsupportedError, match="change_log"):
        next(store.watch(prefix=USERS, since="f" * 20))


def test_the_state_comes_in_bounded_batches_and_changes_meanwhile_come_afterwards(store):
    kv = store.open(change_log=60)
    operation = kv.atomic()
    for number in range(1_100):
        operation.set(user(number), 0)
    operation.commit()
    watch = store.watch(prefix=USERS, timeout=0)
    first = next(watch)
    assert len(first) == 500
    assert watch.versionstamp is None
    kv.set(user(0), "changed")
    kv.delete(user(1_099))
    rest = list(watch)
    assert [len(entries) for entries in rest[:2]] == [500, 99]
    assert told(rest[-1]) == [(0, "changed"), (1_099, None)]


def test_a_commit_is_never_cut_in_two(store):
    kv = store.open(change_log=60)
    watch = store.watch(prefix=USERS, timeout=0)
    next(watch)
    operation = kv.atomic()
    for number in range(700):
        operation.set(user(number), 0)
    done = operation.commit()
    kv.set(user("after"), 1)
    entries = next(watch)
    assert len(entries) == 700
    assert watch.versionstamp == done.versionstamp
    assert [told(entries) for entries in watch] == [[("after", 1)]]


def test_expiry_is_told_when_it_is_swept(store):
    kv = store.open(system_clock=True, change_log=60)
    kv.set(user("b"), 1)
    watch = store.watch(prefix=USERS, timeout=60)
    assert told(next(watch)) == [("b", 1)]
    kv.set(user("a"), 1, expire_in=0.1)
    seen = told(next(watch))
    if seen == [("a", 1)]:  # else the machine was so slow that it had been swept before this look
        seen = told(next(watch))
    assert seen == [("a", None)]


def test_a_namespace_sees_its_own_keys_alone(store):
    kv = store.open(change_log=60)
    inside = type(kv)(kv._opening, kv._form.confined(("__kvmodels__", "ns", "n"), {}))
    watch = inside.watch(prefix=(), timeout=0)
    assert next(watch) == []
    kv.set(("outside",), 1)
    inside.set(("k",), 2)
    assert [[(entry.key, entry.value) for entry in entries] for entries in watch] == [[(("k",), 2)]]


def test_following_a_prefix_gives_its_last_state_for_random_histories(store):
    kv = store.open(change_log=3_600)
    chance = random.Random(99)
    copy = {}
    watch = store.watch(prefix=USERS, timeout=0)
    position = None
    last = ""
    for step in range(150):
        operation = kv.atomic()
        for _ in range(chance.randrange(3)):
            key = (chance.choice(["users", "other"]), chance.randrange(9))
            if chance.random() < 0.3:
                operation.delete(key)
            else:
                operation.set(key, step, expire_in=chance.choice([None, None, 0.005]))
        operation.commit()
        store.clock.ms += chance.randrange(4)
        if chance.random() < 0.3:
            kv._opening.open().sweep(3)
        if chance.random() < 0.2:
            for entries in watch:
                copy.update({entry.key: entry.value for entry in entries})
                stamps = [entry.versionstamp for entry in entries if entry.versionstamp is not None]
                if position is not None:
                    assert stamps == sorted(stamps)
                    assert all(stamp > last for stamp in stamps)
                position = last = watch.versionstamp
            watch = store.watch(prefix=USERS, since=position, timeout=0)
    kv._opening.open().sweep(1_000)
    for entries in store.watch(prefix=USERS, since=position, timeout=0):
        copy.update({entry.key: entry.value for entry in entries})
    assert {key: value for key, value in copy.items() if value is not None} == {
        entry.key: entry.value for entry in kv.list(USERS)
    }
