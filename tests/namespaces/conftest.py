"""Fixtures: every test of this folder runs on memory, SQLite and LMDB, synchronously and asynchronously."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.kv.stores import AsyncFace, Stores
from tests.worlds import WORLDS


class NamespaceFace:
    """An ``AsyncNamespace`` that is called like a ``Namespace``."""

    def __init__(self, store: AsyncFace, space: Any) -> None:
        self._store = store
        self._space = space
        self.kv = AsyncFace(store._loop, space.kv)

    def namespace(self, *args: Any, **options: Any) -> NamespaceFace:
        return NamespaceFace(self._store, self._space.namespace(*args, **options))

    def __repr__(self) -> str:
        return repr(self._space)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            result = getattr(self._space, name)(*args, **options)
            return self._store._loop.wait(result) if inspect.isawaitable(result) else result

        return call


def namespace(kv: Any, name: str, **options: Any) -> Any:
    """The namespace of a store of either world."""
    if isinstance(kv, AsyncFace):
        return NamespaceFace(kv, kv.kv.namespace(name, **options))
    return kv.namespace(name, **options)


@pytest.fixture(params=WORLDS)
def stores(request, tmp_path, quick_folder):
    engine, world = request.param.split("-")
    opened = Stores(engine, world, quick_folder if engine == "lmdb" else tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def kv(stores):
    return stores.open()


@pytest.fixture
def space(kv):
    return namespace(kv, "plugin")
