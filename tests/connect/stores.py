"""Stores over KV Connect in the place of stores in memory, so that a suite which knows only memory runs over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvmodels import Limits
from kvmodels.engines.connect.engine import ConnectEngine
from kvmodels.engines.memory.engine import MemoryEngine
from tests.connect.scripted import ACCESS_TOKEN, ScriptedServer

MEMORY = "memory://"
LACKING = ("change_log", "snapshot_max_age")
"""Options of the engine in memory that KV Connect does not have; what needs them is left to other engines."""


class ConnectStores:
    """Makes engines over KV Connect from the arguments of ``MemoryEngine``; each store has a server of its own."""

    def __init__(self) -> None:
        self._servers: dict[str, ScriptedServer] = {}
        self._engines: list[ConnectEngine] = []
        self._unnamed = 0

    def open(
        self,
        limits: Limits | None = None,
        *,
        url: str = MEMORY,
        clock: Callable[[], int] | None = None,
        **options: Any,
    ) -> ConnectEngine:
        """Return an engine as ``MemoryEngine`` would be."""
        if url == MEMORY:
            self._unnamed += 1
            url = f"{MEMORY}{self._unnamed} unnamed"
        if url not in self._servers:
            self._servers[url] = ScriptedServer(MemoryEngine(clock=clock))
        given = {name: value for name, value in options.items() if name not in LACKING}
        opened = ConnectEngine(self._servers[url].url, limits, access_token=ACCESS_TOKEN, clock=clock, **given)
        self._engines.append(opened)
        return opened

    def close(self) -> None:
        """Close what the test has left open."""
        for engine in self._engines:
            engine.close()
        for server in self._servers.values():
            server.__exit__()
