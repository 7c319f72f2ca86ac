"""Stores over KV Connect in the place of stores in memory, so that a suite which knows only memory runs over it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from kvmodels import Limits
from kvmodels.engines.connect.engine import ConnectEngine
from kvmodels.engines.memory.engine import MemoryEngine
from tests.connect.denokv import DenokvServer
from tests.connect.own_server import OwnServer
from tests.connect.scripted import ACCESS_TOKEN, ScriptedServer

MEMORY = "memory://"
LACKING = ("change_log", "snapshot_max_age")
"""Options of the engine in memory that KV Connect does not have; what needs them is left to other engines."""

Clock = Callable[[], int]
Serve = Callable[[ExitStack, Clock | None], str]
"""Begins to serve an empty store with a clock, until the end of the stack, and returns its URL."""

SERVED = ("connect", "connect-own", "connect-denokv")
"""A scripted server of the tests, the server of this library, and the backend of Deno's own servers."""

_numbers = itertools.count()


class ConnectStores:
    """Makes engines over KV Connect from the arguments of ``MemoryEngine``.

    Args:
        serve: begins to serve a store.
    """

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._served = ExitStack()
        self._urls: dict[str, str] = {}
        self._engines: list[ConnectEngine] = []
        self._unnamed = 0

    def open(
        self,
        limits: Limits | None = None,
        *,
        url: str = MEMORY,
        clock: Clock | None = None,
        **options: Any,
    ) -> ConnectEngine:
        """Return an engine as ``MemoryEngine`` would be."""
        if url == MEMORY:
            self._unnamed += 1
            url = f"{MEMORY}{self._unnamed} unnamed"
        if url not in self._urls:
            self._urls[url] = self._serve(self._served, clock)
        given = {name: value for name, value in options.items() if name not in LACKING}
        opened = ConnectEngine(self._urls[url], limits, access_token=ACCESS_TOKEN, clock=clock, **given)
        self._engines.append(opened)
        return opened

    def close(self) -> None:
        """Close what the test has left open."""
        for engine in self._engines:
            engine.close()
        self._served.close()


def on_scripted_servers(stack: ExitStack, clock: Clock | None) -> str:
    """Serve a store by a server of its own in the tests."""
    return stack.enter_context(ScriptedServer(MemoryEngine(clock=clock))).url


def on_own_servers(stack: ExitStack, clock: Clock | None) -> str:
    """Serve a store in memory by a server of this library."""
    return stack.enter_context(OwnServer(f"memory://served {next(_numbers)}", clock)).url


def on_denokv(server: DenokvServer) -> Serve:
    """Serve databases of the backend of Deno, which has a clock of its own."""

    def serve(stack: ExitStack, clock: Clock | None) -> str:
        del clock
        name = f"store{next(_numbers)}"
        stack.callback(server.remove, name)
        return server.url(name)

    return serve
