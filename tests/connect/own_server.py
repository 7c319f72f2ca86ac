"""The server of this library over HTTP/1.1, in a thread of the tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

import pytest
import uvicorn

from kvmodels import open_kv
from kvmodels.engines import url as opening
from kvmodels.engines.contract import Engine
from kvmodels.engines.memory import engine as memory
from kvmodels.ext.serve import AccessToken, KvConnectServer, ServedStore
from tests.connect.scripted import ACCESS_TOKEN

STARTED_S = 60


class OwnServer:
    """Serves a store with one token.

    Args:
        url: of the store.
        clock: of the store, in milliseconds since the epoch; None for that of the system.
        model_writes: whether its clients may write keys of models.
    """

    def __init__(self, url: str, clock: Callable[[], int] | None = None, *, model_writes: bool = True) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(opening, "memory", memory)  # a suite over KV Connect has put this server in its place
            self._kv = open_kv(url, codec="v8", clock=clock)
            self.engine: Engine = opening.open_engine(url, clock=clock)
        app = KvConnectServer([ServedStore(self._kv, [AccessToken(ACCESS_TOKEN, model_writes=model_writes)])])
        self._server = uvicorn.Server(uvicorn.Config(app, port=0, ws="none", lifespan="off", log_level="error"))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + STARTED_S
        while not self._server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self.engine.close()
        self._kv.close()
