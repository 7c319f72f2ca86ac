"""A snapshot: one state, read in several steps while others write."""

from __future__ import annotations

import asyncio

import pytest

from kvmodels import COMMIT_VERSIONSTAMP
from kvmodels.api._async.kv import open_async_kv
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import ClosedError, InvalidKeyError, ReadOnlyError, SnapshotExpiredError
from tests.kv.stores import Clock
from tests.store_codecs import async_kv_on


def test_a_snapshot_keeps_every_read_at_one_state(kv):
    for number in range(250):
        kv.set(("k", number), "old")
    last = kv.set(("other",), "old")
    with kv.snapshot() as state:
        assert state.versionstamp == last.versionstamp
        listing = state.list(("k",), batch_size=7)
        seen = [next(listing)]
        operation = kv.atomic()
        for number in range(100, 200):
            operation.delete(("k", number)).set(("k", number, "new"), "new")
        operation.set(("k", 249), "new").delete(("other",)).commit()
        seen += list(listing)
        assert [(entry.key[-1], entry.value) for entry in seen] == [(number, "old") for number in range(250)]
        assert listing.cursor == ""
        assert state.count(("k",)) == 250
        assert state.get(("other",)).value == "old"
        assert [entry.value for entry in state.get_many([("k", 249), ("k", 100, "new")])] == ["old", None]
        assert state.versionstamp == last.versionstamp
    assert kv.get(("k", 249)).value == "new"
    assert kv.count(("k",)) == 250


def test_a_cursor_of_a_snapshot_goes_on_in_the_store_and_back(kv):
    for name in "abcd":
        kv.set(("k", name), name)
    with kv.snapshot() as state:
        page = state.list(("k",), limit=2)
        assert [entry.value for entry in page] == ["a", "b"]
        kv.delete(("k", "c"))
        assert [entry.value for entry in kv.list(("k",), cursor=page.cursor)] == ["d"]
        assert [entry.value for entry in state.list(("k",), cursor=page.cursor)] == ["c", "d"]


def test_two_snapshots_see_two_states(kv):
    kv.set(("k",), 1)
    first = kv.snapshot()
    kv.set(("k",), 2)
    second = kv.snapshot()
    kv.set(("k",), 3)
    assert [source.get(("k",)).value for source in (first, second, kv)] == [1, 2, 3]
    first.close()
    assert second.get(("k",)).value == 2
    second.close()


def test_a_snapshot_sees_the_deadlines_as_of_its_beginning(stores):
    kv = stores.open()
    kv.set(("k",), 1, expire_in=10)
    with kv.snapshot() as state:
        stores.clock.ms += 10_000
        assert kv.get(("k",)).value is None
        assert state.get(("k",)).value == 1
        assert state.count(()) == 1


def test_a_closed_snapshot_refuses_every_read_and_closing_is_idempotent(kv):
    state = kv.snapshot()
    versionstamp = state.versionstamp
    state.close()
    state.close()
    assert state.versionstamp == versionstamp
    for use in (
        lambda: state.get(("k",)),
        lambda: state.get_many([("k",)]),
        lambda: list(state.list(())),
        lambda: state.count(()),
    ):
        with pytest.raises(ClosedError):
            use()
    assert kv.set(("k",), 1), "the store is open"


def test_a_snapshot_of_a_closed_store_is_closed(stores):
    kv = stores.open()
    state = kv.snapshot()
    kv.close()
    with pytest.raises(ClosedError):
        state.get(("k",))
    state.close()
    with pytest.raises(ClosedError):
        kv.snapshot()


def test_a_snapshot_that_is_too_old_says_so(stores):
    kv = stores.open(snapshot_max_age=2.0)
    kv.set(("k",), 1)
    with kv.snapshot() as state:
        stores.clock.ms += 1_999
        assert state.get(("k",)).value == 1
        stores.clock.ms += 1
        with pytest.raises(SnapshotExpiredError) as caught:
            state.get(("k",))
        assert caught.value.hint


def test_a_snapshot_refuses_what_the_store_refuses(kv):
    with kv.snapshot() as state, pytest.raises(InvalidKeyError):
        state.get("text")


def test_a_snapshot_is_read_only(kv):
    with kv.snapshot() as state:
        writing = {"set", "delete", "atomic", "mutate", "enqueue", "unsafe"}
        assert not writing & set(dir(getattr(state, "kv", state)))


async def test_an_asynchronous_snapshot_is_taken_when_it_is_first_used(tmp_path):
    async with open_async_kv(tmp_path / "store.db", durability="relaxed") as kv:
        state = kv.snapshot()
        with pytest.raises(ClosedError, match="not open yet"):
            assert state.versionstamp
        await kv.set(("k",), 1)
        first, second = await asyncio.gather(state.get(("k",)), state.count(()))
        assert (first.value, second) == (1, 1)
        await kv.set(("k",), 2)
        assert (await state.get(("k",))).value == 1
        assert state.versionstamp == first.versionstamp
        await state.close()
        await state.close()
        with pytest.raises(ClosedError):
            await state.open()


async def test_many_tasks_take_one_snapshot():
    class Counting(MemoryEngine):
        """Counts the snapshots that are taken."""

        __slots__ = ("taken",)

        def __init__(self):
            super().__init__(clock=Clock())
            self.taken = 0

        def snapshot(self):
            self.taken += 1
            return super().snapshot()

    engine = Counting()
    async with async_kv_on(engine) as kv, kv.snapshot() as state:
        await asyncio.gather(*[state.get(("k", number)) for number in range(10)])
        assert engine.taken == 1
        await kv.count(())
        assert engine.taken == 2


async def test_a_snapshot_whose_taking_is_cancelled_leaves_nothing_that_keeps_the_store_from_closing(tmp_path):
    kv = open_async_kv(tmp_path / "store.db", durability="relaxed")
    await kv.set(("k",), 1)
    for steps in range(6):
        state = kv.snapshot()
        taking = asyncio.create_task(state.open())
        for _ in range(steps):
            await asyncio.sleep(0)
        taking.cancel()
        await asyncio.wait((taking,))
        assert (await state.get(("k",))).value == 1, "it may be taken again"
        await state.close()
    await asyncio.wait_for(kv.close(), 60)


def test_a_read_only_store_has_every_read_and_no_write(stores):
    url = stores.url()
    writable = stores.open(url)
    for number in range(5):
        writable.set(("k", number), number)
    if stores.engine != "memory":
        writable.close()  # handles of one file in one process share its connections, and so their options
    kv = stores.open(url, readonly=True)
    with kv.snapshot() as state:
        assert state.count(("k",)) == kv.count(("k",)) == len(list(kv.list(("k",), keys_only=True))) == 5
    page = kv.list(("k",), limit=2)
    assert [entry.value for entry in page] == [0, 1]
    assert [entry.value for entry in kv.list(("k",), cursor=page.cursor)] == [2, 3, 4]
    for use in (
        lambda: kv.set(("k", COMMIT_VERSIONSTAMP), 1),
        lambda: kv.delete(("k", 1)),
        lambda: kv.atomic().mutate("sum", ("k", 1), 1).commit(),
        lambda: kv.atomic().sum(("n",), 1).commit(),
        lambda: kv.atomic().commit(),
    ):
        with pytest.raises(ReadOnlyError):
            use()
    assert kv.get(("k", 1)).value == 1
