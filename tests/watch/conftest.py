"""Every test of this folder runs on memory and on SQLite, through the synchronous and the asynchronous iterator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvmodels.api._async.kv import AsyncKv
from kvmodels.api._sync.kv import Kv
from kvmodels.core.operations import Entry
from kvmodels.engines.url import open_engine
from tests.kv.stores import Clock
from tests.store_codecs import kv_on
from tests.worlds import WORLDS


class WatchedStore:
    """One engine: written through ``kv``, watched through either API."""

    def __init__(self, kind: str, folder: Path) -> None:
        engine, self.world = kind.split("-")
        urls = {"memory": "memory://", "sqlite": str(folder / "watched.db"), "lmdb": f"lmdb:///{folder}/watched.lmdb"}
        self.url = urls[engine]
        self.clock = Clock()
        self._runner = asyncio.Runner()
        self._open: list[Kv] = []

    def open(self, *, system_clock: bool = False, **options: Any) -> Kv:
        """The store for writing; the first one is what ``watch`` watches."""
        clock = None if system_clock else self.clock
        engine = open_engine(self.url, clock=clock, durability="relaxed", **options)
        kv = kv_on(engine)
        self._open.append(kv)
        return kv

    def watch(self, *arguments: Any, **options: Any) -> Any:
        """A watch as an iterator, whichever API it belongs to."""
        kv = self._open[0]
        if self.world == "sync":
            return kv.watch(*arguments, **options)
        opening = kv._opening
        return TakenInALoop(self._runner, AsyncKv(opening, kv._form).watch(*arguments, **options))

    def close(self) -> None:
        self._runner.close()
        for kv in self._open:
            kv.close()


class TakenInALoop:
    """An asynchronous watch, taken item by item."""

    def __init__(self, runner: asyncio.Runner, watch: Any) -> None:
        self._runner = runner
        self._watch = watch

    @property
    def versionstamp(self) -> str | None:
        return self._watch.versionstamp

    def close(self) -> None:
        self._watch.close()

    def __iter__(self) -> TakenInALoop:
        return self

    def __next__(self) -> list[Entry]:
        async def take() -> list[Entry] | None:
            return await anext(self._watch, None)

        entries = self._runner.run(take())
        if entries is None:
            raise StopIteration
        return entries


@pytest.fixture(params=WORLDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, quick_folder: Path) -> Iterator[WatchedStore]:
    opened = WatchedStore(request.param, quick_folder if request.param.startswith("lmdb") else tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def kv(store: WatchedStore) -> Kv:
    return store.open()
