"""The server of this library over HTTP/1.1, in a thread of the tests."""

from __future__ import annotations

import threading
import time
from typing import Self

import uvicorn

from kvmodels import open_kv
from kvmodels.engines.contract import Engine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.ext.serve import AccessToken, KvConnectServer, ServedStore
from tests.connect.scripted import ACCESS_TOKEN

STARTED_S = 60


class OwnServer:
    """Serves a store in memory, whose keys of models its clients may write.

    Args:
        name: of the store in this process.
    """

    def __init__(self, name: str) -> None:
        self._kv = open_kv(f"memory://{name}", codec="v8")
        self.engine: Engine = MemoryEngine(url=f"memory://{name}")
        app = KvConnectServer([ServedStore(self._kv, [AccessToken(ACCESS_TOKEN, model_writes=True)])])
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
