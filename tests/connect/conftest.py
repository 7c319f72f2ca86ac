"""A scripted server, and engines and databases over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvmodels.engines.connect.engine import ConnectEngine
from kvmodels.engines.memory.engine import MemoryEngine
from tests.connect.scripted import ACCESS_TOKEN, ScriptedServer


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(MemoryEngine()) as scripted:
        yield scripted


@pytest.fixture
def reach(server: ScriptedServer) -> Iterator[Callable[..., ConnectEngine]]:
    """Opens engines on the server, and closes them after the test."""
    opened: list[ConnectEngine] = []

    def open_one(**options: Any) -> ConnectEngine:
        opened.append(ConnectEngine(server.url, access_token=ACCESS_TOKEN, **options))
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.close()
