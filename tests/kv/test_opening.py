"""Opening, closing and reserved keys, in both worlds."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from kvmodels.api._async.kv import AsyncKv, open_async_kv
from kvmodels.api._sync.kv import Kv, open_kv
from kvmodels.api.opening import Opening, store_format
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import ClosedError, EngineError, InvalidArgumentError, ReservedKeyError
from tests.kv.stores import AsyncFace, Loop


@pytest.fixture(params=["sync", "async"])
def reserving(request):
    """A function from reserved parts to a store that has them."""
    loops = []

    def make(reserved):
        engine, form = MemoryEngine(), store_format("msgpack", reserved)
        if request.param == "sync":
            return Kv(Opening.done(engine), form)
        loops.append(Loop())
        return AsyncFace(loops[-1], AsyncKv(Opening.done(engine), form))

    yield make
    for loop in loops:
        loop.runner.close()


def write_attempts(kv, key):
    return [
        lambda: kv.set(key, 1),
        lambda: kv.delete(key),
        lambda: kv.atomic().set(key, 1),
        lambda: kv.atomic().delete(key),
        lambda: kv.atomic().sum(key, 1),
        lambda: kv.atomic().min(key, 1),
        lambda: kv.atomic().max(key, 1),
    ]


def test_review_13_raw_writes_to_model_keys_are_refused_and_unsafe_lifts_it(reserving):
    reserved = {"users": "User", "users_by_email": "index 'email' of User"}
    kv = reserving(reserved)
    for key, owner in [
        (("__kvmodels__",), "kvmodels"),
        (("__kvmodels__", "header"), "kvmodels"),
        (("users",), "User"),
        (("users", 1), "User"),
        (("users_by_email", "ada@x.org"), "index 'email' of User"),
    ]:
        for attempt in write_attempts(kv, key):
            with pytest.raises(ReservedKeyError) as caught:
                attempt()
            assert (caught.value.key, caught.value.owner) == (key, owner)
            assert "kv.unsafe()" in str(caught.value)
        assert kv.get(key).versionstamp is None, "reading is allowed"
        assert kv.atomic().check(key, None).commit(), "checking is allowed"
        for attempt in write_attempts(kv.unsafe(), key)[:2]:
            attempt()
        kv.unsafe().atomic().sum(key, 1).commit()
        kv.unsafe().delete(key)
    assert list(kv.list(())) == []


@pytest.mark.parametrize(
    "key",
    [
        ("user",),
        ("users2", 1),
        ("users\0", 1),
        ("users\0x", 1),
        (b"users", 1),
        ("Users", 1),
        ("", "users"),
        (1, "users"),
        (True, "__kvmodels__"),
        ("__kvmodels__\0",),
        ("other", "__kvmodels__"),
    ],
    ids=repr,
)
def test_a_key_that_only_looks_like_a_reserved_one_is_free(reserving, key):
    kv = reserving({"users": "User"})
    assert kv.set(key, 1)
    assert kv.get(key).value == 1


def test_a_key_is_judged_as_it_will_be_stored_and_not_by_the_equality_of_its_type(reserving):
    class Evasive(str):
        __slots__ = ()

        def __eq__(self, other):
            return False

        def __hash__(self):
            return 0

    kv = reserving({"users": "User", "\N{REPLACEMENT CHARACTER}": "Odd"})
    for part in (Evasive("users"), "\ud800"):
        with pytest.raises(ReservedKeyError):
            kv.set((part, 1), 1)


def test_reservations_are_read_at_every_write(reserving):
    reserved: dict[str, str] = {}
    kv = reserving(reserved)
    assert kv.set(("users", 1), 1)
    reserved["users"] = "User"
    with pytest.raises(ReservedKeyError):
        kv.set(("users", 2), 1)
    del reserved["users"]
    assert kv.set(("users", 2), 1)


def test_a_store_without_models_reserves_the_keys_of_the_library(kv):
    with pytest.raises(ReservedKeyError):
        kv.set(("__kvmodels__", "header"), 1)
    assert kv.unsafe().set(("__kvmodels__", "header"), 1)


def test_calls_on_a_closed_store_raise_and_closing_again_does_nothing(kv):
    kv.set(("k",), 1)
    unsafe = kv.unsafe()
    iterator = kv.list(())
    operation = kv.atomic().set(("k",), 2)
    kv.close()
    kv.close()
    for use in (
        lambda: kv.get(("k",)),
        lambda: kv.get_many([("k",)]),
        lambda: kv.set(("k",), 1),
        lambda: kv.delete(("k",)),
        lambda: next(iterator),
        operation.commit,
        lambda: unsafe.get(("k",)),
    ):
        with pytest.raises(ClosedError) as caught:
            use()
        assert caught.value.hint


def test_what_was_written_is_there_when_a_file_is_opened_again(stores):
    if stores.engine == "memory":
        url = "memory://" + str(stores.folder)
        holder = stores.open(url)  # a named store lives as long as a handle of it
        assert holder.get(("k",)).value is None
    else:
        url, holder = stores.url(), None
    first = stores.open(url)
    result = first.set(("k",), {"a": [1, 2.5]})
    first.close()
    second = stores.open(url)
    entry = second.get(("k",))
    assert (entry.value, entry.versionstamp) == ({"a": [1, 2.5]}, result.versionstamp)
    assert second.set(("k",), 2).versionstamp > result.versionstamp
    assert holder is None or holder.get(("k",)).value == 2


def test_every_memory_store_without_a_name_is_a_new_one_and_a_name_is_shared(stores):
    if stores.engine != "memory":
        first, second = stores.open("sqlite://:memory:"), stores.open("sqlite://:memory:")
    else:
        first, second = stores.open("memory://"), stores.open("memory://")
        shared, again = stores.open("memory://shared-name"), stores.open("memory://shared-name")
        shared.set(("k",), 1)
        assert again.get(("k",)).value == 1
    first.set(("k",), 1)
    assert second.get(("k",)).value is None


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("postgres://host/db", {}),
        ("memory://", {"no_such_option": 1}),
        ("memory://", {"codec": "pickle"}),
        ("memory://", {"durability": "sometimes"}),
        ("memory://", {"limits": 5}),
    ],
    ids=repr,
)
def test_an_unknown_scheme_option_or_codec_is_refused(url, options):
    with pytest.raises(InvalidArgumentError) as caught:
        open_kv(url, **options)
    assert caught.value.expected or caught.value.hint

    async def main():
        async with open_async_kv(url, **options):
            raise AssertionError("it was opened")

    with pytest.raises(InvalidArgumentError):
        asyncio.run(main())


def test_the_unknown_codec_error_lists_the_known_ones():
    with pytest.raises(InvalidArgumentError) as caught:
        open_kv(codec="pickle")
    assert caught.value.expected == ("msgpack", "v8")


def test_a_store_says_what_it_is():
    with open_kv() as kv:
        assert repr(kv) == "<Kv memory://>"
    other = open_async_kv()
    assert repr(other) == "<AsyncKv not open>"
    asyncio.run(other.open())
    assert repr(other) == "<AsyncKv memory://>"
    asyncio.run(other.close())


def test_the_context_manager_closes_after_an_exception_as_well():
    with pytest.raises(LookupError), open_kv() as kv:
        raise LookupError
    with pytest.raises(ClosedError):
        kv.get(("k",))

    async def main():
        async with open_async_kv() as opened:
            kept.append(opened)
            raise LookupError

    kept: list[AsyncKv] = []
    with pytest.raises(LookupError):
        asyncio.run(main())
    with pytest.raises(ClosedError):
        asyncio.run(kept[0].get(("k",)))


async def test_the_first_call_opens_an_asynchronous_store(tmp_path):
    path = tmp_path / "first.db"
    kv = open_async_kv(path, durability="relaxed")
    assert not path.exists()
    assert (await kv.get(("k",))).value is None
    assert path.exists()
    await kv.close()


async def test_concurrent_first_calls_open_once():
    made = []

    def make():
        made.append(threading.get_ident())
        return MemoryEngine()

    kv = AsyncKv(Opening(make), store_format("msgpack"))
    await asyncio.gather(*(kv.set(("k", number), number) for number in range(20)))
    assert len(made) == 1
    assert made[0] != threading.get_ident(), "opening waits for a disk, so it runs in a thread"
    assert len([entry async for entry in kv.list(("k",))]) == 20


async def test_a_store_that_was_closed_before_it_was_opened_stays_closed(tmp_path):
    path = tmp_path / "never.db"
    kv = open_async_kv(path)
    await kv.close()
    with pytest.raises(ClosedError):
        await kv.get(("k",))
    assert not path.exists()


async def test_an_opening_that_is_cancelled_leaks_no_engine():
    begun, gate, opened = threading.Event(), threading.Event(), []

    def make():
        begun.set()
        assert gate.wait(60)
        opened.append(MemoryEngine())
        return opened[0]

    kv = AsyncKv(Opening(make), store_format("msgpack"))
    task = asyncio.create_task(kv.get(("k",)))
    assert await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    closing = asyncio.create_task(kv.close())
    await asyncio.sleep(0.01)
    gate.set()
    await closing
    with pytest.raises(ClosedError):
        opened[0].now_ms()
        opened[0].read([])


async def test_a_failed_opening_can_be_tried_again(tmp_path):
    folder = tmp_path / "later"
    kv = open_async_kv(folder / "x.db", durability="relaxed")
    with pytest.raises((EngineError, InvalidArgumentError)):
        await kv.get(("k",))
    folder.mkdir()
    assert (await kv.get(("k",))).value is None
    await kv.close()


async def test_a_long_listing_in_memory_lets_other_tasks_run():
    async with open_async_kv() as kv:
        operation = kv.atomic()
        for number in range(2_000):
            operation.set(("n", number), number)
        await operation.commit()
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        assert len([entry async for entry in kv.list(("n",))]) == 2_000
        task.cancel()
        assert turns >= 20


@pytest.mark.parametrize("rounds", range(8))
async def test_cancelling_a_write_to_a_file_says_whether_it_was_applied(tmp_path, rounds):
    async with open_async_kv(tmp_path / "c.db", durability="relaxed") as kv:
        await kv.set(("k",), "before")
        task = asyncio.create_task(kv.set(("k",), "after"))
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError as error:
            notes = getattr(error, "__notes__", [])
            applied = notes == ["the commit was applied"]
            assert applied or notes in ([], ["the commit was not applied: it had not been started"])
        else:
            applied = True
        assert (await kv.get(("k",))).value == ("after" if applied else "before")
        assert await kv.set(("k",), "again")


def test_a_path_object_is_a_file(tmp_path):
    path = Path(tmp_path) / "path.db"
    with open_kv(path, durability="relaxed") as kv:
        kv.set(("k",), 1)
    assert path.exists()
