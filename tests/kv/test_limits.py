"""Limits as data: of each number the smaller one holds, and an error says whose it is."""

from __future__ import annotations

import dataclasses

import pytest

from kvmodels.api._sync.kv import open_kv
from kvmodels.errors import KeyTooLargeError, LimitExceededError, OperationTooLargeError, ValueTooLargeError
from kvmodels.limits import Limits


def refused(use):
    with pytest.raises(LimitExceededError) as caught:
        use()
    return caught.value.limit, caught.value.size, caught.value.maximum, caught.value.limits


def test_the_smaller_of_two_limits_holds_and_the_error_names_whose_it_is(stores):
    roomy = dataclasses.replace(Limits.EMBEDDED, name="ROOMY", max_value_bytes=2**40, max_key_bytes=10, max_checks=2)
    kv = stores.open(limits=roomy)
    assert refused(lambda: kv.set(("k" * 9,), 1)) == ("max_key_bytes", 11, 10, "ROOMY")
    assert refused(lambda: kv.set(("k",), bytes(16 * 2**20 + 1))) == (
        "max_value_bytes",
        16 * 2**20 + 1,
        16 * 2**20,
        "LMDB" if stores.engine == "lmdb" else "EMBEDDED",
    )
    operation = kv.atomic()
    for number in range(3):
        operation.check((number,), None)
    assert refused(operation.commit) == ("max_checks", 3, 2, "ROOMY")


def test_limits_within_limits_remember_whose_each_number_is():
    inner = dataclasses.replace(Limits.MATTERMOST, name="PLUGIN", max_key_runes=None, max_value_bytes=10)
    combined = inner.within(Limits.MATTERMOST.within(Limits.DENO))
    assert (combined.name, combined.max_value_bytes, combined.max_key_runes, combined.max_checks) == (
        "PLUGIN",
        10,
        50,
        100,
    )
    assert [combined.whose(limit) for limit in ("max_value_bytes", "max_key_runes", "max_checks")] == [
        "PLUGIN",
        "MATTERMOST",
        "DENO",
    ]


@pytest.mark.parametrize("limits", [Limits.DENO, Limits.DENOKV_SERVER, Limits.MATTERMOST], ids=lambda one: one.name)
def test_limits_within_wider_ones_are_themselves(limits):
    assert limits.within(Limits.EMBEDDED) == limits
    assert limits.within(limits) == limits


def test_mattermost_takes_keys_of_fifty_characters_and_values_of_four_megabytes(stores):
    kv = stores.open(limits=Limits.MATTERMOST)
    assert kv.set(("🔑" * 50,), bytes(4_194_304))
    assert kv.get(("🔑" * 50,)).versionstamp
    for use in (
        lambda: kv.set(("🔑" * 51,), 1),
        lambda: kv.set(("a" * 25, 7, "b" * 26), 1),
        lambda: kv.delete(("k" * 51,)),
        lambda: kv.atomic().check(("k" * 51,), None).commit(),
        lambda: kv.atomic().sum(("k" * 51,), 1).commit(),
        lambda: kv.atomic().mutate("sum", ("k" * 51,), 1).commit(),
    ):
        assert refused(use) == ("max_key_runes", 51, 50, "MATTERMOST")
    assert refused(lambda: kv.set(("k",), bytes(4_194_305))) == (
        "max_value_bytes",
        4_194_305,
        4_194_304,
        "MATTERMOST",
    )
    assert kv.set((7, b"x" * 100, "k" * 50), 1), "bytes and numbers are no characters"
    assert kv.count(()) == 2


def test_every_kind_of_refusal_is_one_of_the_tree():
    with open_kv(limits=Limits.DENO) as kv:
        with pytest.raises(KeyTooLargeError):
            kv.set(("k" * 3_000,), 1)
        with pytest.raises(ValueTooLargeError):
            kv.set(("k",), bytes(70_000))
        with pytest.raises(OperationTooLargeError):
            kv.get_many([("k", number) for number in range(11)])
