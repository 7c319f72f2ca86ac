"""set, delete and atomic operations: all or nothing, checks before mutations, limits before anything is sent."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kvmodels.core.keys import encode_key
from kvmodels.core.operations import CommitResult, Entry
from kvmodels.core.values import UNDEFINED, KvU64
from kvmodels.errors import (
    InvalidArgumentError,
    InvalidKeyError,
    InvalidValueError,
    KeyTooLargeError,
    OperationTooLargeError,
    ReadOnlyError,
    ValueTooLargeError,
)
from kvmodels.limits import Limits


def contents(kv):
    return [(entry.key, entry.value) for entry in kv.list(())]


def test_set_and_delete(kv):
    first = kv.set(("k",), "one")
    assert first == CommitResult(True, first.versionstamp)
    assert first
    assert kv.get(("k",)) == Entry(("k",), "one", first.versionstamp)
    second = kv.set(("k",), "two")
    assert second.versionstamp > first.versionstamp
    assert kv.delete(("k",)) is None
    assert kv.get(("k",)).versionstamp is None
    assert kv.delete(("k",)) is None, "deleting what is absent is no error"


def test_a_versionstamp_is_twenty_lowercase_hexadecimal_digits(kv):
    stamps = [kv.set(("k",), number).versionstamp for number in range(20)]
    assert all(len(stamp) == 20 and set(stamp) <= set("0123456789abcdef") for stamp in stamps)
    assert stamps == sorted(set(stamps))


def test_all_rows_of_a_commit_share_its_versionstamp(kv):
    result = kv.atomic().set(("a",), 1).set(("b",), 2).sum(("n",), 1).commit()
    assert {entry.versionstamp for entry in kv.list(())} == {result.versionstamp}


def test_empty_and_check_only_operations_succeed_with_a_new_versionstamp(kv):
    before = kv.set(("k",), 1).versionstamp
    empty = kv.atomic().commit()
    checked = kv.atomic().check(("k",), before).commit()
    assert before < empty.versionstamp < checked.versionstamp
    assert kv.get(("k",)).versionstamp == before


@pytest.mark.parametrize(
    "value",
    [
        None,
        UNDEFINED,
        True,
        0,
        -(2**70),
        1.5,
        "text",
        b"bytes",
        [1, [2, {"a": None}]],
        {"a": {"b": [1]}},
        {1: "int", True + 1: "two"},
        {1, 2},
        KvU64(7),
    ],
    ids=repr,
)
def test_a_value_comes_back_equal_and_of_its_type(kv, value):
    kv.set(("k",), value)
    stored = kv.get(("k",)).value
    assert stored == value
    assert type(stored) is type(value)


def test_a_value_is_packed_when_it_is_given_so_that_later_changes_do_not_matter(kv):
    value = ["as it was"]
    operation = kv.atomic().set(("k",), value)
    value.append("later")
    operation.commit()
    assert kv.get(("k",)).value == ["as it was"]


def test_checks_see_the_state_before_the_operation_wherever_they_are_called(kv):
    assert kv.atomic().set(("k",), 1).check(("k",), None).commit()
    stamp = kv.get(("k",)).versionstamp
    assert kv.atomic().delete(("k",)).set(("k",), 2).check(("k",), stamp).commit()
    assert kv.get(("k",)).value == 2


def test_a_check_by_entry_and_by_key_and_in_capitals(kv):
    absent = kv.get(("k",))
    assert kv.atomic().check(absent).set(("k",), 1).commit()
    assert not kv.atomic().check(absent).set(("k",), 2).commit()
    present = kv.get(("k",))
    assert kv.atomic().check(present).check(("k",), present.versionstamp.upper()).set(("k",), 3).commit()
    assert kv.get(("k",)).value == 3


def test_a_failed_check_applies_nothing_and_names_the_keys_that_failed(kv):
    kv.set(("taken", 1), "x")
    before = contents(kv)
    result = (
        kv.atomic()
        .check(("free",), None)
        .check(("taken", 1), None)
        .check(("missing", True), "0" * 20)
        .set(("new",), 1)
        .delete(("taken", 1))
        .commit()
    )
    assert result == CommitResult(False, None, (("taken", 1), ("missing", True)))
    assert not result
    assert result.failed_checks[1][1] is True
    assert contents(kv) == before


def test_T1_a_failing_check_protects_everything(kv):
    operation = kv.atomic()
    for number in range(1_500):
        operation.set(("batch", number), number)
    operation.check(("batch", 0), "0" * 20)
    result = operation.commit()
    assert result == CommitResult(False, None, (("batch", 0),))
    assert contents(kv) == []


def test_an_absent_key_that_came_and_went_passes_a_check_for_absence(kv):
    absent = kv.get(("k",))
    kv.set(("k",), 1)
    kv.delete(("k",))
    assert kv.atomic().check(absent).set(("k",), 2).commit()


def test_mutations_apply_in_call_order(kv):
    kv.atomic().set(("a",), 1).delete(("a",)).delete(("b",)).set(("b",), 2).set(("b",), 3).commit()
    assert contents(kv) == [(("b",), 3)]
    kv.atomic().sum(("n",), 5).sum(("n",), 6).max(("n",), 3).min(("n",), 10).commit()
    assert kv.get(("n",)).value == KvU64(10)


def test_sum_min_and_max(kv):
    cases: list[tuple[str, list[Any], int]] = [
        ("sum", [5, 7, KvU64(30)], 42),
        ("sum", [2**64 - 1, 3], 2),
        ("min", [5, 7, 3], 3),
        ("max", [5, 7, 3], 7),
        ("min", [0], 0),
        ("max", [2**64 - 1], 2**64 - 1),
    ]
    for kind, operands, expected in cases:
        kv.delete(("n",))
        for operand in operands:
            assert getattr(kv.atomic(), kind)(("n",), operand).commit()
        assert kv.get(("n",)).value == KvU64(expected)


@pytest.mark.parametrize("kind", ["sum", "min", "max"])
@pytest.mark.parametrize(
    ("operand", "error"),
    [
        (-1, InvalidArgumentError),
        (2**64, InvalidArgumentError),
        (1.0, InvalidValueError),
        (True, InvalidValueError),
        ("1", InvalidValueError),
        (None, InvalidValueError),
    ],
    ids=repr,
)
def test_an_operand_that_is_no_unsigned_64_bit_integer_is_refused_at_once(kv, kind, operand, error):
    with pytest.raises(error):
        getattr(kv.atomic(), kind)(("n",), operand)


@pytest.mark.parametrize("kind", ["sum", "min", "max"])
@pytest.mark.parametrize("stored", [1, 1.0, "1", None, b"\x01" + bytes(7), [1]], ids=repr)
def test_K25_arithmetic_on_another_value_is_an_error_and_nothing_is_applied(kv, kind, stored):
    kv.set(("n",), stored)
    kv.set(("other",), "before")
    before = contents(kv)
    operation = kv.atomic().set(("other",), "after").delete(("other",)).set(("new",), 1)
    getattr(operation, kind)(("n",), 1).set(("last",), 1)
    with pytest.raises(InvalidValueError):
        operation.commit()
    assert contents(kv) == before
    assert kv.set(("other",), "still works")


def test_K25_versionstamps_rise_in_commit_order_and_ranges_need_no_existing_ends(kv):
    stamps = [kv.set((name,), name).versionstamp for name in ("e", "c", "a")]
    assert stamps == sorted(stamps)
    assert [entry.key for entry in kv.list(start=("b",), end=("d",))] == [("c",)]


def test_an_operation_object_is_used_once(kv):
    operation = kv.atomic().set(("k",), 1)
    assert operation.commit()
    for use in (
        operation.commit,
        lambda: operation.set(("k",), 2),
        lambda: operation.delete(("k",)),
        lambda: operation.sum(("k",), 1),
        lambda: operation.check(("k",), None),
    ):
        with pytest.raises(InvalidArgumentError, match="was committed already"):
            use()
    assert kv.get(("k",)).value == 1


def test_an_operation_that_failed_is_used_as_well(kv):
    operation = kv.atomic().check(("k",), "0" * 20).set(("k",), 1)
    assert not operation.commit()
    with pytest.raises(InvalidArgumentError, match="was committed already"):
        operation.commit()


def test_a_refused_part_leaves_the_operation_as_it_was(kv):
    operation = kv.atomic().set(("a",), 1)
    with pytest.raises(InvalidKeyError):
        operation.set((), 2)
    with pytest.raises(InvalidValueError):
        operation.set(("b",), object())
    with pytest.raises(InvalidArgumentError):
        operation.set(("c",), 1, expire_in=-1)
    operation.set(("d",), 4, expire_in=None).commit()
    assert contents(kv) == [(("a",), 1), (("d",), 4)]


def test_the_empty_key_is_never_written_or_checked(kv):
    for use in (
        lambda: kv.set((), 1),
        lambda: kv.delete(()),
        lambda: kv.atomic().set((), 1),
        lambda: kv.atomic().delete(()),
        lambda: kv.atomic().sum((), 1),
        lambda: kv.atomic().check((), None),
        lambda: kv.atomic().check(kv.get(())),
    ):
        with pytest.raises(InvalidKeyError, match="empty"):
            use()


@pytest.mark.parametrize(
    "versionstamp",
    [
        "",
        "0",
        "0" * 19,
        "0" * 21,
        "g" * 20,
        "00 00 00 00 00 00 00",
        "٠" * 20,
        b"0" * 20,
        bytes(10),
        0,
        1.5,
        True,
        ("0",),
    ],
    ids=repr,
)
def test_what_is_no_versionstamp_is_refused(kv, versionstamp):
    with pytest.raises(InvalidArgumentError, match="not a versionstamp"):
        kv.atomic().check(("k",), versionstamp)


def test_a_check_of_a_key_needs_a_versionstamp_and_an_entry_takes_none(kv):
    with pytest.raises(InvalidArgumentError, match="needs a versionstamp"):
        kv.atomic().check(("k",))
    with pytest.raises(InvalidArgumentError, match="its own"):
        kv.atomic().check(kv.get(("k",)), None)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "$"),
        ((1, 2), "$"),
        ([1, {"a": {"b": KvU64(1)}}], "$[1].a.b"),
        ({"a": [KvU64(1)]}, "$.a[0]"),
        (lambda: None, "$"),
        ({"f": print}, "$.f"),
        ("\ud800", "$"),
    ],
    ids=["object", "tuple", "nested u64", "u64 in list", "function", "function inside", "lone surrogate"],
)
def test_what_cannot_be_stored_is_refused_with_its_path_and_nothing_is_written(kv, value, path):
    for use in (lambda: kv.set(("k",), value), lambda: kv.atomic().set(("k",), value)):
        with pytest.raises(InvalidValueError) as caught:
            use()
        assert caught.value.path == path
        assert caught.value.hint
    assert contents(kv) == []


def sized(limits=Limits.EMBEDDED, **sizes):
    return dataclasses.replace(limits, name="SMALL", **sizes)


def key_of_size(size):
    key = ("k" * (size - 2),)
    assert len(encode_key(key)) == size
    return key


@pytest.mark.parametrize("limits", [Limits.EMBEDDED, Limits.DENO], ids=lambda limits: limits.name)
def test_a_key_of_exactly_the_limit_is_written_and_one_byte_more_is_not(stores, limits):
    kv = stores.open(limits=limits)
    longest, whose = (511, "LMDB") if stores.engine == "lmdb" else (2048, limits.name)
    fits, too_long = key_of_size(longest), key_of_size(longest + 1)
    assert kv.set(fits, 1)
    assert kv.get(fits).value == 1
    for use in (
        lambda: kv.set(too_long, 1),
        lambda: kv.delete(too_long),
        lambda: kv.atomic().sum(too_long, 1).commit(),
        lambda: kv.atomic().set(("other",), 1).check(too_long, None).commit(),
    ):
        with pytest.raises(KeyTooLargeError) as caught:
            use()
        error = caught.value
        assert (error.limit, error.size, error.maximum, error.key) == ("max_key_bytes", longest + 1, longest, too_long)
        assert error.limits == whose
    for use in (lambda: kv.get(too_long), lambda: kv.get_many([("a",), too_long]), lambda: next(kv.list(too_long))):
        with pytest.raises(KeyTooLargeError) as caught:
            use()
        assert (caught.value.limit, caught.value.size) == ("max_read_key_bytes", longest + 2)
    assert list(kv.list(start=too_long, end=("z",))) == []
    assert contents(kv) == [(fits, 1)]


def test_K9_K11_a_value_over_the_limit_is_refused_whole(stores):
    kv = stores.open(limits=Limits.DENO)
    kv.set(("doc",), "the existing document")
    before = contents(kv)
    for size in (65_537, 700_000, 2_300_000):
        with pytest.raises(ValueTooLargeError) as caught:
            kv.atomic().set(("index", 1), 1).set(("doc",), bytes(size)).set(("index", 2), 2).commit()
        error = caught.value
        assert (error.limit, error.size, error.maximum, error.key) == ("max_value_bytes", size, 65_536, ("doc",))
        assert error.limits == "DENO"
        with pytest.raises(ValueTooLargeError):
            kv.set(("doc",), bytes(size))
    assert contents(kv) == before
    assert kv.set(("doc",), bytes(65_536))
    assert len(kv.get(("doc",)).value) == 65_536


def test_a_text_is_measured_in_encoded_bytes_and_not_in_characters(stores):
    kv = stores.open(limits=sized(max_value_bytes=100))
    assert kv.set(("k",), "x" * 90)
    with pytest.raises(ValueTooLargeError):
        kv.set(("k",), "\N{SNOWMAN}" * 90)
    assert kv.get(("k",)).value == "x" * 90


def test_the_number_of_checks_and_of_mutations_is_limited(stores):
    kv = stores.open(limits=sized(max_checks=3, max_mutations=4))
    operation = kv.atomic()
    for number in range(3):
        operation.check(("c", number), None)
    for number in range(4):
        operation.set(("k", number), number)
    assert operation.commit()
    too_many = kv.atomic()
    for number in range(4):
        too_many.check(("c", number), None)
    with pytest.raises(OperationTooLargeError) as caught:
        too_many.commit()
    assert (caught.value.limit, caught.value.size, caught.value.maximum) == ("max_checks", 4, 3)
    too_many = kv.atomic()
    for number in range(5):
        too_many.delete(("k", number))
    with pytest.raises(OperationTooLargeError) as caught:
        too_many.commit()
    assert (caught.value.limit, caught.value.size, caught.value.maximum) == ("max_mutations", 5, 4)
    assert len(contents(kv)) == 4


def test_the_bytes_of_an_operation_are_counted_as_deno_counts_them(stores):
    # ("k",) is 3 bytes. A check 3, a delete 3, a set 3 + 3 + value, a sum 3 + 3 + 8.
    kv = stores.open(limits=sized(max_operation_bytes=3 + 3 + (6 + 10) + (6 + 8)))

    def operation(size):
        return kv.atomic().check(("c",), None).delete(("d",)).set(("k",), bytes(size)).sum(("n",), 1)

    with pytest.raises(OperationTooLargeError) as caught:
        operation(11).commit()
    assert (caught.value.limit, caught.value.size, caught.value.maximum) == ("max_operation_bytes", 37, 36)
    assert contents(kv) == []
    assert operation(10).commit()


def test_key_bytes_of_an_operation_count_keys_with_values_once(stores):
    kv = stores.open(limits=sized(max_operation_key_bytes=6))

    def operation(name):
        return kv.atomic().check(("c",), None).delete(("d",)).set(("k",), 1).sum((name,), 1)

    with pytest.raises(OperationTooLargeError) as caught:
        operation("nn").commit()
    assert (caught.value.limit, caught.value.size, caught.value.maximum) == ("max_operation_key_bytes", 7, 6)
    assert operation("n").commit()


def test_the_number_of_keys_of_one_read_is_limited(stores):
    kv = stores.open(limits=sized(max_ranges=3))
    assert len(kv.get_many([("k", number) for number in range(3)])) == 3
    with pytest.raises(OperationTooLargeError) as caught:
        kv.get_many([("k", number) for number in range(4)])
    assert (caught.value.limit, caught.value.size, caught.value.maximum) == ("max_ranges", 4, 3)
    assert str(caught.value).endswith("on an engine that has snapshots.")


def test_a_listing_reads_no_more_rows_at_once_than_the_limit_and_is_complete(stores):
    kv = stores.open(limits=sized(max_read_entries=7))
    operation = kv.atomic()
    for number in range(40):
        operation.set(("n", number), number)
    operation.commit()
    assert [entry.value for entry in kv.list(("n",))] == list(range(40))
    assert [entry.value for entry in kv.list(("n",), limit=20)] == list(range(20))


def test_a_read_only_store_refuses_every_write_and_reads(stores):
    url = stores.url()
    writable = stores.open(url)
    writable.set(("k",), 1)
    if stores.engine != "memory":
        writable.close()  # one file has one set of options per process
    kv = stores.open(url, readonly=True)
    assert kv.get(("k",)).value == 1
    for use in (
        lambda: kv.set(("k",), 2),
        lambda: kv.delete(("k",)),
        lambda: kv.atomic().sum(("n",), 1).commit(),
    ):
        with pytest.raises(ReadOnlyError) as caught:
            use()
        assert caught.value.hint
    assert kv.get(("k",)).value == 1
