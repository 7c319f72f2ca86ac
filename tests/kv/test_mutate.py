"""``mutate``: sums of ints, floats and KvU64 with bounds, and keys that end with the versionstamp of the commit."""

from __future__ import annotations

import enum
import math
import pickle
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodels import COMMIT_VERSIONSTAMP
from kvmodels.api._sync.kv import open_kv
from kvmodels.core.keys import decode_key, encode_key
from kvmodels.core.operations import AtomicWrite, Set
from kvmodels.core.values import UNDEFINED, KvU64
from kvmodels.errors import (
    InvalidArgumentError,
    InvalidKeyError,
    InvalidValueError,
    KeyTooLargeError,
    OperationTooLargeError,
    ReservedKeyError,
    ValueTooLargeError,
)
from kvmodels.limits import Limits
from tests.drawing import of_check

KEY = ("n",)
ABSENT = object()


def summed(kv, *operands, **bounds):
    for operand in operands:
        assert kv.atomic().mutate("sum", KEY, operand, **bounds).commit()
    return kv.get(KEY).value


SUMS = [
    ((1,), 1),
    ((1, -10), -9),
    ((2**70, 2**70, -(2**71) + 1), 1),
    ((1.5,), 1.5),
    ((1.5, 2.25, -4.0), -0.25),
    ((0.1, 0.2), 0.1 + 0.2),
    ((1e308, 1e308), math.inf),
    ((KvU64(5), KvU64(2**64 - 1)), KvU64(4)),
    ((KvU64(5), 7), KvU64(12)),
    ((KvU64(5), 2**64 - 5), KvU64(0)),
]


@pytest.mark.parametrize("codec", ["msgpack", "v8"])
def test_a_sum_keeps_the_type_of_what_is_stored(stores, codec):
    kv = stores.open(codec=codec)
    for operands, expected in SUMS:
        kv.delete(KEY)
        result = summed(kv, *operands)
        assert (type(result), result) == (type(expected), expected)


def test_a_sum_of_floats_knows_minus_zero_and_one_nan(kv):
    assert math.copysign(1, summed(kv, -0.0, -0.0)) == -1
    assert struct.pack(">d", summed(kv, math.inf, -math.inf)) == bytes.fromhex("7ff8000000000000")


BOUNDED: list[tuple[Any, Any, dict[str, Any], Any]] = [
    (5, 3, {"maximum": 8}, 8),
    (5, 3, {"maximum": 7, "clamp": True}, 7),
    (5, -9, {"minimum": 0, "clamp": True}, 0),
    (5, -5, {"minimum": 0, "maximum": 10}, 0),
    (5, 2**80, {"minimum": 0, "maximum": 10, "clamp": True}, 10),
    (0.5, 0.25, {"minimum": 0.0, "maximum": 1.0}, 0.75),
    (0.5, 0.75, {"maximum": 1.0, "clamp": True}, 1.0),
    (0.5, math.inf, {"maximum": 1.0, "clamp": True}, 1.0),
    (ABSENT, 5, {"maximum": 5}, 5),
    (-3, 1, {"minimum": 0, "clamp": True}, 0),
]


def test_bounds_hold_for_the_result(kv):
    for stored, operand, bounds, expected in BOUNDED:
        kv.delete(KEY)
        if stored is not ABSENT:
            kv.set(KEY, stored)
        result = summed(kv, operand, **bounds)
        assert (type(result), result) == (type(expected), expected), (stored, operand, bounds)


IMPOSSIBLE: list[tuple[Any, Any, dict[str, Any]]] = [
    (5, 3, {"maximum": 7}),
    (5, -9, {"minimum": 0}),
    (0.5, 0.75, {"maximum": 1.0}),
    (math.inf, -math.inf, {"minimum": 0.0}),
    (math.inf, -math.inf, {"minimum": 0.0, "clamp": True}),
    (KvU64(1), 1, {"maximum": 7}),
    (KvU64(1), 1, {"maximum": 7, "clamp": True}),
    (KvU64(1), -1, {}),
    (KvU64(1), 2**64, {}),
    (KvU64(1), 1.0, {}),
    (1, KvU64(1), {}),
    (1.0, KvU64(1), {}),
    (1, 1.0, {}),
    (1.0, 1, {}),
    ("text", 1, {}),
    (True, 1, {}),
    (None, 1, {}),
    (UNDEFINED, 1.0, {}),
    ([1], 1, {}),
    (b"12345678", KvU64(1), {}),
]


@pytest.mark.parametrize("codec", ["msgpack", "v8"])
def test_K25_a_sum_that_cannot_be_is_a_typed_error_and_nothing_is_applied(stores, codec):
    kv = stores.open(codec=codec)
    for stored, operand, bounds in IMPOSSIBLE:
        kv.atomic().set(("old",), 1).delete(KEY).commit()
        if stored is not ABSENT:
            kv.set(KEY, stored)
        before = list(kv.list(()))
        operation = kv.atomic().set(("new",), 1).delete(("old",)).mutate("sum", KEY, operand, **bounds)
        with pytest.raises(InvalidValueError) as caught:
            operation.set(("later",), 1).commit()
        assert caught.value.hint
        assert list(kv.list(())) == before, (stored, operand, bounds)


def test_an_absent_key_gets_the_operand_whatever_the_bounds_as_in_deno(kv):
    """Recorded from denokv: bounds are looked at when two numbers are added, and never before."""
    cases: list[tuple[Any, dict[str, Any]]] = [
        (5, {"minimum": 10, "clamp": True}),
        (5, {"minimum": 10}),
        (6.0, {"maximum": 5.0}),
    ]
    for operand, bounds in cases:
        kv.delete(KEY)
        assert summed(kv, operand, **bounds) == operand
    kv.delete(KEY)
    with pytest.raises(InvalidValueError):
        kv.atomic().mutate("sum", KEY, 5, minimum=10).mutate("sum", KEY, 1, minimum=10).commit()
    kv.atomic().mutate("sum", KEY, 5, minimum=10).mutate("sum", KEY, 1, minimum=10, clamp=True).commit()
    assert kv.get(KEY).value == 10


@pytest.mark.parametrize(("boxed", "operand"), [("6e0000000000000840", 1.0), ("7a100300000000000000", 1)])
def test_a_sum_refuses_a_number_that_javascript_has_wrapped_in_an_object(boxed, operand):
    """``new Number(3)`` and ``Object(3n)``: Deno answers "unsupported value type"."""
    kv = open_kv(codec="v8")
    kv._opening.open().commit(AtomicWrite((), (Set(encode_key(KEY), bytes.fromhex("ff10" + boxed), 1),)))
    assert kv.get(KEY).value == 3
    with pytest.raises(InvalidValueError, match="another type"):
        summed(kv, operand)
    with pytest.raises(InvalidValueError, match="another type"):
        summed(kv, operand, minimum=operand)


def test_sums_of_one_operation_add_up_and_see_what_it_wrote(kv):
    kv.atomic().set(KEY, 1).mutate("sum", KEY, 2).mutate("sum", KEY, 3).commit()
    assert kv.get(KEY).value == 6
    kv.atomic().delete(KEY).mutate("sum", KEY, 7.5).commit()
    assert kv.get(KEY).value == 7.5


def test_sums_min_and_max_clear_the_deadline_and_an_expired_number_counts_as_absent(stores):
    kv = stores.open()
    for name, value, kind in [("a", 1, "sum"), ("b", 1.0, "sum"), ("c", KvU64(1), "min"), ("d", KvU64(1), "max")]:
        kv.set((name,), value, expire_in=10)
        kv.atomic().mutate(kind, (name,), value).commit()
        assert kv.get((name,)).expires_at is None
    kv.set(KEY, 40, expire_in=1)
    stores.clock.ms += 1_000
    assert summed(kv, 2) == 2


def test_mutate_sets_deletes_and_takes_min_and_max_of_kvu64(stores):
    kv = stores.open()
    kv.atomic().mutate("set", ("a",), [1], expire_in=2).mutate("set", ("b",), None).mutate("set", ("c",), 1).commit()
    assert kv.get(("a",)).value == [1]
    assert kv.get(("a",)).expires_at == stores.clock.ms + 2_000
    assert kv.get(("b",)).versionstamp is not None
    kv.atomic().mutate("delete", ("b",)).mutate("delete", ("c",), 0).commit()
    assert kv.count(()) == 1
    kv.atomic().mutate("max", KEY, KvU64(5)).mutate("min", KEY, KvU64(3)).commit()
    assert kv.get(KEY).value == KvU64(3)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "blamed"),
    [
        (("add", KEY, 1), {}, InvalidArgumentError, "kind"),
        ((["sum"], KEY, 1), {}, InvalidArgumentError, "kind"),
        (("set", KEY), {}, InvalidArgumentError, "value"),
        (("sum", KEY), {}, InvalidArgumentError, "value"),
        (("min", KEY), {}, InvalidArgumentError, "value"),
        (("delete", KEY, 1), {}, InvalidArgumentError, "value"),
        (("min", KEY, 1), {}, InvalidValueError, "min"),
        (("max", KEY, 1.0), {}, InvalidValueError, "max"),
        (("sum", KEY, "1"), {}, InvalidValueError, "sum"),
        (("sum", KEY, True), {}, InvalidValueError, "sum"),
        (("sum", KEY, None), {}, InvalidValueError, "sum"),
        (("sum", KEY, b"1"), {}, InvalidValueError, "sum"),
        (("sum", KEY, 1), {"minimum": 0.0}, InvalidValueError, "minimum"),
        (("sum", KEY, 1.0), {"maximum": 3}, InvalidValueError, "maximum"),
        (("sum", KEY, 1), {"maximum": True}, InvalidValueError, "maximum"),
        (("sum", KEY, 1.0), {"maximum": math.nan}, InvalidArgumentError, "maximum"),
        (("sum", KEY, 1), {"minimum": 2, "maximum": 1}, InvalidArgumentError, "minimum"),
        (("sum", KEY, 1), {"clamp": True}, InvalidArgumentError, "clamp"),
        (("sum", KEY, KvU64(1)), {"minimum": 1}, InvalidArgumentError, "minimum"),
        (("sum", KEY, KvU64(1)), {"maximum": KvU64(1)}, InvalidArgumentError, "maximum"),
        (("sum", KEY, KvU64(1)), {"clamp": True}, InvalidArgumentError, "clamp"),
        (("min", KEY, KvU64(1)), {"maximum": 1}, InvalidArgumentError, "maximum"),
        (("set", KEY, 1), {"clamp": True}, InvalidArgumentError, "clamp"),
        (("sum", KEY, 1), {"expire_in": -1}, InvalidArgumentError, "expire_in"),
        (("max", KEY, KvU64(1)), {"expire_in": "60"}, InvalidValueError, "expire_in"),
        (("sum", KEY, 1), {"keep_deadline": 1}, InvalidArgumentError, "keep_deadline"),
        (("min", KEY, KvU64(1)), {"keep_deadline": None}, InvalidArgumentError, "keep_deadline"),
        (("set", KEY, 1), {"keep_deadline": True}, InvalidArgumentError, "keep_deadline"),
        (("delete", KEY), {"keep_deadline": True}, InvalidArgumentError, "keep_deadline"),
        (("delete", KEY), {"expire_in": 1}, InvalidArgumentError, "expire_in"),
        (("set", KEY, 1), {"expire_in": -1}, InvalidArgumentError, "expire_in"),
        (("sum", (), 1), {}, InvalidKeyError, None),
        (("sum", "n", 1), {}, InvalidKeyError, None),
        (("sum", ("__kvmodels__", 1), 1), {}, ReservedKeyError, None),
    ],
    ids=repr,
)
def test_a_mutation_that_makes_no_sense_is_refused_and_leaves_the_operation_as_it_was(
    arguments, options, error, blamed
):
    with open_kv() as kv:  # what is refused before the commit is refused on every engine
        operation = kv.atomic().set(("a",), 1)
        with pytest.raises(error) as caught:
            operation.mutate(*arguments, **options)
        assert blamed in {None, getattr(caught.value, "argument", None), getattr(caught.value, "path", None)}
        assert operation.commit()
        assert [entry.key for entry in kv.list(())] == [("a",)]


def test_an_operand_of_a_subclass_counts_as_its_number(kv):
    class Points(enum.IntEnum):
        GOAL = 3

    assert summed(kv, Points.GOAL, Points.GOAL, maximum=6) == 6


def test_the_operand_of_a_sum_counts_as_bytes_of_the_operation(stores):
    kv = stores.open(limits=Limits.DENO)
    with pytest.raises(ValueTooLargeError):
        kv.atomic().mutate("sum", KEY, 1 << (8 * 70_000)).commit()
    operation = kv.atomic()
    for number in range(20):
        operation.mutate("sum", ("n", number), 1 << (8 * 50_000))
    with pytest.raises(OperationTooLargeError):
        operation.commit()
    assert kv.count(()) == 0


@settings(max_examples=of_check(60), deadline=None)
@given(st.lists(st.integers(-(2**70), 2**70), max_size=8), st.integers(-(2**70), 2**70), st.integers(0, 2**70))
def test_clamped_sums_are_those_of_python(operands, low, width):
    with open_kv() as kv:
        expected = None
        for operand in operands:
            kv.atomic().mutate("sum", KEY, operand, minimum=low, maximum=low + width, clamp=True).commit()
            expected = operand if expected is None else min(max(expected + operand, low), low + width)
        assert kv.get(KEY).value == expected


# Keys that end with the versionstamp of the commit


def test_a_key_ends_with_the_versionstamp_of_the_commit(stores):
    kv = stores.open()
    results = [kv.set(("log", COMMIT_VERSIONSTAMP), number) for number in range(5)]
    entries = list(kv.list(("log",)))
    assert [(entry.key, entry.value) for entry in entries] == [
        (("log", result.versionstamp), number) for number, result in enumerate(results)
    ]
    assert [entry.versionstamp for entry in entries] == [result.versionstamp for result in results]
    assert kv.get(("log", results[2].versionstamp)).value == 2


def test_two_versionstamped_sets_of_one_prefix_in_one_operation_are_one_key(kv):
    result = (
        kv.atomic()
        .set(("log", COMMIT_VERSIONSTAMP), "first")
        .mutate("set", ("other", 1, COMMIT_VERSIONSTAMP), "kept", expire_in=60)
        .set(("log", COMMIT_VERSIONSTAMP), "last")
        .commit()
    )
    assert [(entry.key, entry.value) for entry in kv.list(())] == [
        (("log", result.versionstamp), "last"),
        (("other", 1, result.versionstamp), "kept"),
    ]


@pytest.mark.parametrize(
    "use",
    [
        lambda kv: kv.set((COMMIT_VERSIONSTAMP,), 1),
        lambda kv: kv.set(("a", COMMIT_VERSIONSTAMP, "b"), 1),
        lambda kv: kv.set((COMMIT_VERSIONSTAMP, COMMIT_VERSIONSTAMP), 1),
        lambda kv: kv.get(("a", COMMIT_VERSIONSTAMP)),
        lambda kv: kv.delete(("a", COMMIT_VERSIONSTAMP)),
        lambda kv: kv.atomic().sum(("a", COMMIT_VERSIONSTAMP), 1),
        lambda kv: kv.atomic().mutate("sum", ("a", COMMIT_VERSIONSTAMP), 1),
        lambda kv: kv.atomic().check(("a", COMMIT_VERSIONSTAMP), None),
        lambda kv: kv.list(("a", COMMIT_VERSIONSTAMP)),
    ],
)
def test_the_versionstamp_stands_nowhere_but_at_the_end_of_the_key_of_a_set(kv, use):
    with pytest.raises(InvalidKeyError):
        use(kv)
    assert kv.count(()) == 0


def test_a_versionstamped_key_of_the_library_is_reserved(kv):
    with pytest.raises(ReservedKeyError):
        kv.set(("__kvmodels__", COMMIT_VERSIONSTAMP), 1)


def test_the_versionstamp_does_not_count_for_the_size_of_the_key(stores):
    """On LMDB it does: no key that is stored may be longer than 511 bytes, and the versionstamp takes 22 of them."""
    kv = stores.open(limits=Limits.DENO)
    fits = "k" * (511 - 2 - 22 if stores.engine == "lmdb" else 2_046)
    result = kv.set((fits, COMMIT_VERSIONSTAMP), 1)
    assert [entry.key for entry in kv.list(())] == [(fits, result.versionstamp)]
    with pytest.raises(KeyTooLargeError) as caught:
        kv.atomic().set(("other",), 1).set((fits + "k", COMMIT_VERSIONSTAMP), 1).commit()
    assert caught.value.limits == ("LMDB" if stores.engine == "lmdb" else "DENO")
    assert kv.count(()) == 1


def test_the_marker_is_one_object_with_a_plain_repr():
    assert pickle.loads(pickle.dumps(COMMIT_VERSIONSTAMP)) is COMMIT_VERSIONSTAMP
    assert repr(COMMIT_VERSIONSTAMP) == "COMMIT_VERSIONSTAMP"
    assert decode_key(encode_key(("a",))) == ("a",)
    assert COMMIT_VERSIONSTAMP is type(COMMIT_VERSIONSTAMP)()
