"""A view of a buffer is stored as the bytes that it shows, under every codec."""

from __future__ import annotations

import pytest

from kvmodels import open_kv
from kvmodels.kv_opening import store_format


@pytest.mark.parametrize("codec", ["msgpack", "v8"])
@pytest.mark.parametrize("nested", [False, True], ids=["top level", "in a list"])
def test_T3_a_view_stores_its_window_and_nothing_around_it(codec: str, nested: bool):
    buffer = bytearray(b"secret" * 100 + b"0123456789" + b"secret" * 100)
    window = memoryview(buffer)[600:610]
    value = [window] if nested else window
    with open_kv(codec=codec) as kv:
        kv.set(("window",), value)
        stored = kv.get(("window",)).value
    assert bytes(stored[0] if nested else stored) == b"0123456789"
    data, _ = store_format(codec).codec.encode(value)
    assert len(data) < 40
    assert b"secret" not in data
