"""One synchronous face for both APIs, so that every test of the key-value API runs against all four stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from kvmodels.api._async.kv import open_async_kv
from kvmodels.api._sync.kv import open_kv

START_MS = 1_700_000_000_000


class Clock:
    """Milliseconds that a test moves by hand."""

    def __init__(self) -> None:
        self.ms = START_MS

    def __call__(self) -> int:
        return self.ms


class Loop:
    """Runs awaitables one by one in one event loop."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()

    def wait(self, awaitable: Any) -> Any:
        async def await_it() -> Any:
            return await awaitable

        return self.runner.run(await_it())


class AsyncOperationFace:
    """An asynchronous operation, committed in a loop."""

    def __init__(self, loop: Loop, operation: Any) -> None:
        self._loop = loop
        self._operation = operation

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._operation, name)

        def call(*args: Any, **options: Any) -> Any:
            result = method(*args, **options)
            if name == "commit":
                return self._loop.wait(result)
            assert result is self._operation, "a builder method returns its operation"
            return self

        return call


class AsyncListFace:
    """An asynchronous listing, taken in a loop."""

    def __init__(self, loop: Loop, iterator: Any) -> None:
        self._loop = loop
        self._iterator = iterator

    @property
    def cursor(self) -> str:
        return self._iterator.cursor

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return self._loop.wait(self._iterator.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None


class AsyncFace:
    """An ``AsyncKv`` that is called like a ``Kv``."""

    def __init__(self, loop: Loop, kv: Any) -> None:
        self._loop = loop
        self.kv = kv

    def get(self, *args: Any, **options: Any) -> Any:
        return self._loop.wait(self.kv.get(*args, **options))

    def get_many(self, *args: Any, **options: Any) -> Any:
        return self._loop.wait(self.kv.get_many(*args, **options))

    def set(self, *args: Any, **options: Any) -> Any:
        return self._loop.wait(self.kv.set(*args, **options))

    def delete(self, *args: Any, **options: Any) -> Any:
        return self._loop.wait(self.kv.delete(*args, **options))

    def update(self, *args: Any, **options: Any) -> Any:
        return self._loop.wait(self.kv.update(*args, **options))

    def list(self, *args: Any, **options: Any) -> AsyncListFace:
        return AsyncListFace(self._loop, self.kv.list(*args, **options))

    def count(self, *args: Any, **options: Any) -> int:
        return self._loop.wait(self.kv.count(*args, **options))

    def snapshot(self) -> AsyncFace:
        state = self.kv.snapshot()
        self._loop.wait(state.open())
        return AsyncFace(self._loop, state)

    @property
    def versionstamp(self) -> str:
        return self.kv.versionstamp

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def atomic(self) -> AsyncOperationFace:
        return AsyncOperationFace(self._loop, self.kv.atomic())

    def backup(self, *args: Any) -> None:
        self._loop.wait(self.kv.backup(*args))

    def dump(self, *args: Any, **options: Any) -> int:
        return self._loop.wait(self.kv.dump(*args, **options))

    def load(self, *args: Any, **options: Any) -> int:
        return self._loop.wait(self.kv.load(*args, **options))

    def unsafe(self) -> AsyncFace:
        return AsyncFace(self._loop, self.kv.unsafe())

    def close(self) -> None:
        self._loop.wait(self.kv.close())


@dataclass
class Stores:
    """Opens stores of one kind and closes them when the test ends."""

    engine: str
    world: str
    folder: Path
    clock: Clock = field(default_factory=Clock)
    _open: list[Any] = field(default_factory=list)
    _loop: Loop = field(default_factory=Loop)
    _count: int = 0

    def url(self) -> str:
        """A URL that nobody has used."""
        self._count += 1
        if self.engine == "memory":
            return f"memory://{self.folder.name}-{self._count}"
        if self.engine == "lmdb":
            return f"lmdb:///{self.folder}/{self._count}.lmdb"
        return str(self.folder / f"{self._count}.db")

    def open(self, url: str | None = None, **options: Any) -> Any:
        """Open a store in the world of this test; a new one without a URL."""
        url = self.url() if url is None else url
        options.setdefault("clock", self.clock)
        if self.engine != "memory":
            options.setdefault("durability", "relaxed")  # nothing here is about power loss
        store = (
            open_kv(url, **options) if self.world == "sync" else AsyncFace(self._loop, open_async_kv(url, **options))
        )
        self._open.append(store)
        return store

    def close(self) -> None:
        """Close everything that was opened."""
        for store in self._open:
            store.close()
        self._loop.runner.close()
