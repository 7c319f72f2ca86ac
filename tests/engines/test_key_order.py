"""The order of the keys of a mapping against a sorted list."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels.engines import key_order
from kvmodels.engines.key_order import KeyOrder

KEYS = st.binary(max_size=2) | st.integers(0, 99).map(lambda number: b"%02d" % number)


def require_equal(order: KeyOrder, keys: set[bytes], bounds: list[bytes]) -> None:
    """Each question has the answer that the sorted keys give."""
    for start in bounds:
        for end in bounds:
            expected = sorted(key for key in keys if start <= key < end)
            assert list(order.between(start, end)) == expected
            assert list(order.between(start, end, reverse=True)) == expected[::-1]
            assert order.count(start, end) == len(expected)
            assert order.has_any(start, end) == bool(expected)


@given(st.sets(KEYS, max_size=12), st.lists(KEYS, max_size=60), st.lists(KEYS, max_size=3))
def test_keys_are_in_order_whatever_is_added_and_removed(first: set[bytes], changed: list[bytes], bounds: list[bytes]):
    with mock.patch.object(key_order, "MOST", 4):
        order, keys = KeyOrder(first), set(first)
        for key in changed:
            if key in keys:
                order.remove(key)
            else:
                order.add(key)
            keys ^= {key}
        require_equal(order, keys, [b"", b"\xff\xff\xff", *bounds])
        for key in sorted(keys):
            order.remove(key)
        require_equal(order, set(), [b"", b"\xff\xff\xff"])


@pytest.mark.parametrize("reverse", [False, True])
def test_keys_that_come_in_order_leave_full_lists_behind(reverse: bool):
    order, keys = KeyOrder(), [b"%05d" % number for number in range(3_000)]
    for key in reversed(keys) if reverse else keys:
        order.add(key)
    lengths = [len(one) for one in order._lists]
    assert max(lengths) <= key_order.MOST
    assert len(lengths) <= (12 if reverse else 6)
    require_equal(order, set(keys), [b"", b"00511", b"00512", b"02999", b"1"])
    for key in keys[10:]:
        order.remove(key)
    assert len(order._lists) == 1
    require_equal(order, set(keys[:10]), [b"", b"00005", b"1"])
