"""Every limit of the protocol exactly at and one above: taken by a server, or refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvmodels import Kv, LimitExceededError, open_kv
from kvmodels.codecs.v8.codec import V8Codec
from kvmodels.core.keys import encode_key
from kvmodels.engines.memory.engine import MemoryEngine
from tests.connect.own_server import OwnServer
from tests.connect.scripted import ACCESS_TOKEN, ScriptedServer

VALUE = "v" * 60_000
KEY = 2 * len(encode_key(("a",)))
"""The key of a set counts twice."""
TAKEN = KEY + len(V8Codec().encode(VALUE)[0])
EMPTY = len(V8Codec().encode("")[0])


def checked(kv: Kv, number: int) -> object:
    operation = kv.atomic().set(("new",), number)
    for at in range(number):
        operation.check(("absent", at), None)
    return operation.commit()


def written(kv: Kv, number: int) -> object:
    operation = kv.atomic()
    for at in range(number):
        operation.set(("rows", at), at)
    return operation.commit()


def bytes_of(kv: Kv, number: int) -> object:
    operation = kv.atomic()
    for letter in "bcdefghijklmn":
        operation.set((letter,), VALUE)
    return operation.set(("a",), text_of(number - 13 * TAKEN - KEY)).commit()


def keys_of(kv: Kv, number: int) -> object:
    operation = kv.atomic()
    for letter in "bcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNO":
        operation.set((letter * 2_000,), 1)
    return operation.set(("a" * (number - 40 * 2_002 - 2),), 1).commit()


def text_of(size: int) -> str:
    """A text that is stored in so many bytes; its length is stored in two or three of them."""
    more = size - len(V8Codec().encode("x" * (size - EMPTY - 2))[0])
    return "x" * (size - EMPTY - 2 + more)


LIMITS: list[tuple[str, int, Callable[[Kv, int], object]]] = [
    ("max_checks", 100, checked),
    ("max_mutations", 1_000, written),
    ("max_key_bytes", 2_048, lambda kv, size: kv.set(("k" * (size - 2),), 1)),
    ("max_value_bytes", 65_536, lambda kv, size: kv.set(("k",), text_of(size))),
    ("max_operation_bytes", 819_200, bytes_of),
    ("max_operation_key_bytes", 81_920, keys_of),
    ("max_ranges", 10, lambda kv, number: kv.get_many([("k", at) for at in range(number)])),
    ("max_read_entries", 1_000, lambda kv, number: list(kv.list((), batch_size=number))),
    ("max_ranges", 10, lambda kv, number: next(kv.watch([("k", at) for at in range(number)], timeout=0))),
]


@pytest.fixture(scope="module")
def kv() -> Any:
    with OwnServer("memory://exactly at its limits") as server, open_kv(server.url, access_token=ACCESS_TOKEN) as kv:
        yield kv


@pytest.mark.parametrize(("limit", "largest", "call"), LIMITS)
def test_a_limit_is_reached_and_one_above_is_refused_before_anything_is_written(kv, limit, largest, call):
    call(kv, largest)
    before = [(entry.key, entry.versionstamp) for entry in kv.list(())]
    with pytest.raises(LimitExceededError) as caught:
        call(kv, largest + 1)
    assert (caught.value.limit, caught.value.maximum, caught.value.size) == (limit, largest, largest + 1)
    assert [(entry.key, entry.versionstamp) for entry in kv.list(())] == before


def test_a_server_with_ten_checks_gets_no_more_of_them():
    with ScriptedServer(MemoryEngine()) as server:
        server.max_checks = 10
        with open_kv(server.url, access_token=ACCESS_TOKEN) as kv:
            assert checked(kv, 10)
            sent = len(server.requests)
            with pytest.raises(LimitExceededError) as caught:
                checked(kv, 11)
            assert (caught.value.limit, caught.value.maximum, len(server.requests)) == ("max_checks", 10, sent)
