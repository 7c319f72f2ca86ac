"""Values that a function changes: absent and removed ones, deadlines, conflicts, functions that are refused."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kvmodels import open_kv
from kvmodels.errors import InvalidArgumentError, InvalidValueError, ReservedKeyError, RetriesExhaustedError
from kvmodels.flows.kv.operations import UPDATE_ATTEMPTS
from tests.kv.stores import Clock


def one_more(value: int | None) -> int:
    return (value or 0) + 1


def nothing(_: Any) -> None:
    return None


def test_a_function_gets_the_value_and_its_result_is_stored(space):
    assert space.update("a", one_more) == 1
    assert space.update("a", one_more) == 2
    assert space.get("a") == 2
    assert space.update("a", nothing) is None
    assert space.list_keys() == []
    assert space.update("a", nothing) is None


def test_a_value_may_be_changed_in_place_if_it_is_returned(space):
    def added(items: list[int] | None) -> list[int]:
        items = [] if items is None else items
        items.append(len(items))
        return items

    assert (space.update("a", added), space.update("a", added)) == ([0], [0, 1])
    assert space.get("a") == [0, 1]
    with pytest.raises(InvalidValueError, match="Return the changed value"):
        space.update("a", lambda items: items.append(5))
    assert space.get("a") == [0, 1]


def test_keys_of_several_parts_have_a_default_and_store_none(space):
    assert space.kv.update(("n", 1), lambda items: [*items, 2], default=[1]) == [1, 2]
    assert space.kv.update(("n", 1), nothing) is None
    entry = space.kv.get(("n", 1))
    assert (entry.value, entry.versionstamp is not None) == (None, True)
    assert space.kv.update(("n", 1), lambda value: value, default=7) is None
    with pytest.raises(ReservedKeyError):
        space.kv.update(("__kvmodels__", 1), one_more)


def test_an_equal_value_is_not_written_again(space):
    space.set("a", 1)
    before = space.kv.get(("a",)).versionstamp
    assert space.update("a", lambda value: value) == 1
    assert space.kv.get(("a",)).versionstamp == before
    space.update("a", lambda value: value, expire_in=60)
    assert space.kv.get(("a",)).versionstamp != before


def test_a_deadline_stays_unless_another_one_is_given():
    clock = Clock()
    with open_kv(clock=clock) as kv:
        space = kv.namespace("n")
        space.set("a", 1, expire_in=10)
        deadline = space.kv.get(("a",)).expires_at
        assert deadline is not None
        space.update("a", one_more)
        assert space.kv.get(("a",)).expires_at == deadline
        space.update("a", one_more, expire_in=20)
        assert space.kv.get(("a",)).expires_at == deadline + 10_000
        space.update("a", one_more, expire_in=None)
        assert space.kv.get(("a",)).expires_at is None
        space.update("a", nothing, expire_in=20)
        space.update("b", one_more)
        assert space.kv.get(("b",)).expires_at is None


@pytest.fixture
def alone():
    """A namespace whose functions may write: those of an asynchronous one cannot wait."""
    with open_kv() as kv:
        yield kv.namespace("plugin")


def test_an_update_that_another_writer_beats_starts_again_from_the_new_value(alone):
    space, seen = alone, []

    def slow(value: int | None) -> int:
        seen.append(value)
        if len(seen) < 3:
            space.set("a", 10 * len(seen))
        return (value or 0) + 1

    assert space.update("a", slow) == 21
    assert seen == [None, 10, 20]


@pytest.mark.parametrize("result", [-5, None])
def test_an_update_that_is_always_beaten_ends_in_a_typed_error(alone, result):
    space, calls = alone, []

    def beaten(_: Any) -> Any:
        calls.append(1)
        space.set("a", len(calls))
        return result if len(calls) > 1 else -5

    with pytest.raises(RetriesExhaustedError) as caught:
        space.update("a", beaten)
    assert (caught.value.attempts, len(calls)) == (UPDATE_ATTEMPTS, UPDATE_ATTEMPTS)
    assert caught.value.failed_checks == (("a",),)


def test_threads_that_count_lose_no_update():
    with open_kv() as kv:
        space = kv.namespace("n")

        def count() -> None:
            for _ in range(20):
                space.update("a", one_more)
                kv.update(("b",), one_more)

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (space.get("a"), kv.get(("b",)).value) == (80, 80)


async def one_later(value: Any) -> int:
    return 1


@pytest.mark.parametrize("function", [None, 1, one_later])
def test_what_is_no_plain_function_is_refused(space, function):
    for update in (lambda: space.update("a", function), lambda: space.kv.update(("a",), function)):
        with pytest.raises(InvalidArgumentError) as caught:
            update()
        assert caught.value.argument == "function"
    assert space.list_keys() == []


def test_an_error_of_the_function_writes_nothing(space):
    space.set("a", 0)
    with pytest.raises(ZeroDivisionError):
        space.update("a", lambda value: 1 // value)
    with pytest.raises(InvalidArgumentError):
        space.update("a", one_more, expire_in=-1)
    with pytest.raises(InvalidValueError):
        space.update("a", lambda _: object())
    assert space.get("a") == 0
