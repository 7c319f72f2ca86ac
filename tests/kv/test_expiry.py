"""Expiry: absent from the deadline on, to the millisecond, for every kind of read and for checks."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal

import pytest

from kvmodels.core.values import KvU64
from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.flows.arguments import lifetime_ms


@pytest.mark.parametrize(
    ("expire_in", "milliseconds"),
    [
        (0.5, 500),
        (1, 1_000),
        (30, 30_000),
        (0.001, 1),
        (0.0001, 1),
        (1.0005, 1_000),
        (0.1 + 0.2, 300),
        (timedelta(milliseconds=1), 1),
        (timedelta(microseconds=1), 1),
        (timedelta(days=365_000), 365_000 * 86_400_000),
        (0, 0),
        (0.0, 0),
        (-0.0, 0),
        (timedelta(0), 0),
    ],
    ids=repr,
)
def test_a_lifetime_is_exact_to_the_millisecond(stores, expire_in, milliseconds):
    assert lifetime_ms(expire_in) == milliseconds
    kv = stores.open()
    start = stores.clock.ms
    kv.set(("k",), "v", expire_in=expire_in)
    if milliseconds:
        assert kv.get(("k",)).expires_at == start + milliseconds
        stores.clock.ms = start + milliseconds - 1
        assert kv.get(("k",)).value == "v"
    stores.clock.ms = start + milliseconds
    assert kv.get(("k",)).value is None


@pytest.mark.parametrize(
    ("expire_in", "error"),
    [
        (-1, InvalidArgumentError),
        (-0.001, InvalidArgumentError),
        (timedelta(microseconds=-1), InvalidArgumentError),
        (math.nan, InvalidArgumentError),
        (math.inf, InvalidArgumentError),
        (-math.inf, InvalidArgumentError),
        (1e300, InvalidArgumentError),
        (10**400, InvalidArgumentError),
        (2**53, InvalidArgumentError),
        (timedelta.max, InvalidArgumentError),
        (True, InvalidValueError),
        (False, InvalidValueError),
        ("30", InvalidValueError),
        (Decimal(1), InvalidValueError),
        (1j, InvalidValueError),
        ([1], InvalidValueError),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_lifetime_that_makes_no_sense_is_refused(kv, expire_in, error):
    with pytest.raises(error):
        kv.set(("k",), 1, expire_in=expire_in)
    with pytest.raises(error):
        kv.atomic().set(("k",), 1, expire_in=expire_in)
    assert kv.get(("k",)).versionstamp is None


def test_an_expired_key_is_absent_everywhere(stores):
    kv = stores.open()
    kv.atomic().set(("n", 1), 1, expire_in=10).set(("n", 2), 2).set(("n", 3), 3, expire_in=20).commit()
    stamp = kv.get(("n", 1)).versionstamp
    stores.clock.ms += 10_000
    assert kv.get(("n", 1)).versionstamp is None
    assert [entry.value for entry in kv.get_many([("n", 1), ("n", 2)])] == [None, 2]
    assert [entry.value for entry in kv.list(("n",))] == [2, 3]
    assert [entry.value for entry in kv.list(("n",), reverse=True, limit=2)] == [3, 2]
    assert kv.atomic().check(("n", 1), stamp).commit().failed_checks == (("n", 1),)
    assert kv.atomic().check(("n", 1), None).set(("n", 1), "again").commit()
    assert kv.get(("n", 1)).value == "again"


def test_limits_of_a_listing_count_what_is_visible(stores):
    kv = stores.open()
    operation = kv.atomic()
    for number in range(300):
        operation.set(("n", number), number, expire_in=None if number % 3 == 0 else 1)
    operation.commit()
    stores.clock.ms += 1_000
    assert [entry.value for entry in kv.list(("n",))] == list(range(0, 300, 3))
    assert [entry.value for entry in kv.list(("n",), limit=7)] == list(range(0, 21, 3))


def test_the_deadline_is_counted_from_the_commit_and_not_from_building_the_operation(stores):
    kv = stores.open()
    operation = kv.atomic().set(("k",), 1, expire_in=10)
    stores.clock.ms += 60_000
    operation.commit()
    assert kv.get(("k",)).expires_at == stores.clock.ms + 10_000


def test_each_mutation_keeps_its_own_deadline(stores):
    kv = stores.open()
    start = stores.clock.ms
    kv.atomic().set(("a",), 1).set(("b",), 2, expire_in=1).delete(("x",)).set(("c",), 3, expire_in=2).commit()
    assert [entry.expires_at for entry in kv.list(())] == [None, start + 1_000, start + 2_000]


def test_a_set_without_a_lifetime_and_arithmetic_clear_the_deadline(stores):
    kv = stores.open()
    kv.set(("k",), 1, expire_in=10)
    kv.set(("k",), 2)
    kv.set(("n",), KvU64(1), expire_in=10)
    kv.atomic().sum(("n",), 1).commit()
    stores.clock.ms += 60_000
    assert kv.get(("k",)).value == 2
    assert kv.get(("n",)) == kv.get(("n",))._replace(value=KvU64(2), expires_at=None)


def _counted(kv, operand, **deadline):
    """Add to a counter, as a KvU64 or as a number of Python."""
    if isinstance(operand, KvU64):
        kv.atomic().sum(("n",), operand, **deadline).commit()
    else:
        kv.atomic().mutate("sum", ("n",), operand, **deadline).commit()


@pytest.mark.parametrize("one", [KvU64(1), 1, 1.0], ids=repr)
def test_a_sum_sets_the_deadline_or_keeps_it_or_sets_it_only_for_a_new_key(stores, one):
    kv, start = stores.open(), stores.clock.ms
    _counted(kv, one, expire_in=60, keep_deadline=True)
    stores.clock.ms += 10_000
    _counted(kv, one, expire_in=60, keep_deadline=True)
    assert kv.get(("n",)).expires_at == start + 60_000
    _counted(kv, one, keep_deadline=True)
    assert kv.get(("n",)).expires_at == start + 60_000
    _counted(kv, one, expire_in=60)
    assert kv.get(("n",)).expires_at == start + 70_000
    stores.clock.ms = start + 70_000
    assert kv.get(("n",)).value is None
    _counted(kv, one, keep_deadline=True)
    _counted(kv, one, expire_in=60, keep_deadline=True)
    assert kv.get(("n",)).expires_at is None
    assert kv.get(("n",)).value in (KvU64(2), 2, 2.0)


def test_arithmetic_on_an_expired_number_begins_anew(stores):
    kv = stores.open()
    kv.set(("n",), KvU64(100), expire_in=10)
    stores.clock.ms += 10_000
    kv.atomic().sum(("n",), 1).commit()
    assert kv.get(("n",)).value == KvU64(1)


def test_a_clock_that_steps_back_brings_nothing_back(stores):
    kv = stores.open()
    kv.set(("k",), 1, expire_in=10)
    stores.clock.ms += 10_000
    assert kv.get(("k",)).value is None
    stores.clock.ms -= 60_000
    assert kv.get(("k",)).value is None
