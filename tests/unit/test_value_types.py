"""``KvU64`` and ``UNDEFINED``."""

from __future__ import annotations

import copy
import operator
import pickle

import pytest

from kvmodels.core.values import UNDEFINED, KvU64, UndefinedType
from kvmodels.errors import InvalidArgumentError, InvalidValueError


@pytest.mark.parametrize("number", [0, 1, 2**64 - 1])
def test_a_u64_gives_its_number_back(number):
    value = KvU64(number)
    assert (value.value, int(value), operator.index(value)) == (number, number, number)
    assert repr(value) == f"KvU64({number})"
    assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value


def test_a_u64_equals_only_a_u64_and_is_ordered_among_them():
    assert KvU64(1) == KvU64(1)
    assert hash(KvU64(1)) == hash(KvU64(1))
    assert KvU64(1) != 1
    assert KvU64(1) < KvU64(2) <= KvU64(2)
    assert KvU64(3) > KvU64(2)
    assert {KvU64(1), 1} == {1, KvU64(1)}
    with pytest.raises(TypeError):
        _ = KvU64(1) < 2


@pytest.mark.parametrize("number", [1.0, "1", None, True, KvU64(1)])
def test_a_u64_takes_ints_only(number):
    with pytest.raises(InvalidValueError, match="must be an int") as caught:
        KvU64(number)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(("number", "message"), [(-1, "must be positive"), (2**64, "must fit in 64 bits")])
def test_a_u64_has_64_bits(number, message):
    with pytest.raises(InvalidArgumentError, match=message):
        KvU64(number)


@pytest.mark.parametrize("name", ["value", "_value", "other"])
def test_a_u64_is_immutable(name):
    value = KvU64(1)
    with pytest.raises(AttributeError):
        setattr(value, name, 2)
    with pytest.raises(AttributeError):
        delattr(value, name)
    assert value == KvU64(1)


def test_undefined_is_one_falsy_object():
    assert not UNDEFINED
    assert repr(UNDEFINED) == "UNDEFINED"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(UNDEFINED, protocol)) is UNDEFINED
    assert copy.deepcopy(UNDEFINED) is copy.copy(UNDEFINED) is UndefinedType() is UNDEFINED
