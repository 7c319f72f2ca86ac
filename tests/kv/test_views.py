"""Views of buffers are stored as the bytes that they show; views of stores do not close them."""

from __future__ import annotations

import pytest

from kvmodels import AsyncDatabase, ClosedError, Database, open_async_kv, open_kv
from kvmodels.api.opening import store_format


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


VIEWS = {
    "unsafe": lambda kv: kv.unsafe(),
    "namespace": lambda kv: kv.namespace("plugin").kv,
    "inner namespace": lambda kv: kv.namespace("plugin").namespace("inner").kv,
    "unsafe of a namespace": lambda kv: kv.namespace("plugin").kv.unsafe(),
    "namespace of unsafe": lambda kv: kv.unsafe().namespace("plugin").kv,
}


@pytest.mark.parametrize("view_of", VIEWS.values(), ids=VIEWS)
def test_closing_a_view_leaves_the_store_open(view_of):
    kv = open_kv()
    with view_of(kv) as view:
        view.set(("a",), 1)
    view_of(kv).close()
    view.close()
    kv.set(("b",), 2)
    assert (view.get(("a",)).value, kv.get(("b",)).value) == (1, 2)
    kv.close()
    for store in (kv, view):
        with pytest.raises(ClosedError):
            store.get(("a",))


@pytest.mark.parametrize("view_of", VIEWS.values(), ids=VIEWS)
async def test_closing_an_asynchronous_view_leaves_the_store_open(view_of):
    kv = open_async_kv()
    await view_of(kv).close()  # before the store is opened, too
    async with view_of(kv) as view:
        await view.set(("a",), 1)
    await view.close()
    await kv.set(("b",), 2)
    assert ((await view.get(("a",))).value, (await kv.get(("b",))).value) == (1, 2)
    await kv.close()
    for store in (kv, view):
        with pytest.raises(ClosedError):
            await store.get(("a",))


def test_the_store_of_a_database_is_closed_by_the_database_alone():
    db = Database()
    with db.kv as view:
        view.set(("a",), 1)
    db.kv.close()
    with db.transaction() as tx:
        tx.kv.set(("a",), 2)
        assert not hasattr(tx.kv, "close"), "nothing to close there"
    assert db.kv.get(("a",)).value == 2
    listener = db.kv.listen(lambda message: None)
    db.close()
    assert listener.wait(0), "closing the database stops listeners"
    with pytest.raises(ClosedError):
        view.get(("a",))


async def test_the_store_of_an_asynchronous_database_is_closed_by_the_database_alone():
    async with AsyncDatabase() as db:
        async with db.kv as view:
            await view.set(("a",), 1)
        await db.kv.close()
        async with db.transaction() as tx:
            await tx.kv.set(("a",), 2)
            assert not hasattr(tx.kv, "close"), "nothing to close there"
        assert (await db.kv.get(("a",))).value == 2
        listener = db.kv.listen(print)
    assert await listener.wait(0), "closing the database stops listeners"
    with pytest.raises(ClosedError):
        await view.get(("a",))
