"""Failures of well-known key-value stores that do not occur here."""

from __future__ import annotations


def test_K24_a_deadline_can_be_read_back_and_only_the_caller_decides_whether_it_is_kept(stores):
    kv = stores.open()
    kv.set(("k",), "v", expire_in=60)
    entry = kv.get(("k",))
    assert entry.expires_at == stores.clock.ms + 60_000
    assert [listed.expires_at for listed in kv.list(())] == [entry.expires_at]
    stores.clock.ms += 20_000
    remaining = (entry.expires_at - stores.clock.ms) / 1_000
    assert kv.atomic().check(entry).set(("k",), "changed", expire_in=remaining).commit()
    assert kv.get(("k",)).expires_at == entry.expires_at


def test_M8_half_a_second_is_half_a_second_and_not_for_ever(stores):
    kv = stores.open()
    kv.set(("k",), "v", expire_in=0.5)
    stores.clock.ms += 499
    assert kv.get(("k",)).value == "v"
    stores.clock.ms += 1
    assert kv.get(("k",)).versionstamp is None


def test_M9_a_check_notices_a_value_that_was_changed_and_changed_back(kv):
    kv.set(("k",), "a")
    seen = kv.get(("k",))
    kv.set(("k",), "b")
    kv.set(("k",), "a")
    assert kv.get(("k",)).value == seen.value
    result = kv.atomic().check(seen).set(("k",), "c").commit()
    assert (result.ok, result.failed_checks) == (False, (("k",),))
    assert kv.get(("k",)).value == "a"


def test_M10_a_filter_is_in_the_store_so_that_pages_are_full_and_the_end_can_be_told(kv):
    operation = kv.atomic()
    for number in range(30):
        operation.set(("mine" if number % 3 == 0 else "theirs", number), number)
    operation.commit()
    sizes, cursor = [], None
    while cursor != "":
        page = kv.list(("mine",), limit=4, cursor=cursor)
        sizes.append(len(list(page)))
        cursor = page.cursor
    assert sizes == [4, 4, 2]


def test_M11_an_empty_value_is_present_and_a_missing_key_is_not(kv):
    empty: list[object] = [b"", "", None, 0, False, [], {}]
    for number, value in enumerate(empty):
        kv.set((number,), value)
    found = kv.get_many([(number,) for number in range(len(empty) + 1)])
    assert [entry.versionstamp is not None for entry in found] == [True] * len(empty) + [False]
    assert [entry.value for entry in found] == [*empty, None]
