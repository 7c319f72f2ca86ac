"""A database under test, called synchronously in both worlds, on an injected clock."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any, Literal

from kvmodels import AsyncDatabase, Database
from kvmodels.engines.contract import Engine

START_MS = 1_700_000_000_000


class Clock:
    """Milliseconds that the test moves by hand."""

    def __init__(self) -> None:
        self.ms = START_MS

    def __call__(self) -> int:
        return self.ms


class World:
    """Where stores are opened: an engine, a folder, and an event loop for the asynchronous world."""

    def __init__(self, engine: str, asynchronous: bool, folder: Path) -> None:
        self.engine = engine
        self.asynchronous = asynchronous
        self._folder = folder
        self._loop = asyncio.Runner()
        self._stores = 0

    def new_url(self) -> str:
        """A store that nobody has used."""
        self._stores += 1
        name = f"{self._folder.name}-{self._stores}"
        if self.engine == "memory":
            return f"memory://{name}"
        return str(self._folder / f"{name}.db") if self.engine == "sqlite" else f"lmdb:///{self._folder}/{name}.lmdb"

    def open(self, url: str, model: Any, clock: Clock) -> Face:
        """Open a store with one model."""
        durability: Literal["commit", "relaxed"] = "commit" if self.engine == "memory" else "relaxed"
        if self.asynchronous:
            return Face(self, self.wait(AsyncDatabase(url, models=[model], clock=clock, durability=durability).open()))
        return Face(self, Database(url, models=[model], clock=clock, durability=durability))

    def wait(self, result: Any) -> Any:
        """The result itself, awaited first if it must be."""
        if not inspect.isawaitable(result):
            return result

        async def waiting() -> Any:
            return await result

        return self._loop.run(waiting())

    def listed(self, iterable: Any) -> list[Any]:
        """Everything that an iterator of either world gives."""
        if not hasattr(iterable, "__aiter__"):
            return list(iterable)

        async def collected() -> list[Any]:
            return [item async for item in iterable]

        found: list[Any] = self._loop.run(collected())
        return found

    def close(self) -> None:
        self._loop.close()


class Face:
    """An object of either world; what its methods return is awaited."""

    def __init__(self, world: World, target: Any) -> None:
        self._world = world
        self.target = target

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.target, name)
        if not callable(member):
            return member

        def call(*args: Any, **options: Any) -> Any:
            result = self._world.wait(member(*args, **options))
            # Query sets are built step by step, everything else is a plain result.
            return Face(self._world, result) if type(result).__name__.endswith(("QuerySet", "RankedQuery")) else result

        return call

    def __getitem__(self, item: Any) -> Face:
        return Face(self._world, self.target[item])

    def listed(self) -> list[Any]:
        """Everything that iterating gives."""
        return self._world.listed(self.target)

    @property
    def engine(self) -> Engine:
        """The engine of a database."""
        engine: Engine = self.target._engine
        return engine
