"""A proxy between the engine and a server, which loses requests and answers, and counts round trips.

The engine is opened with ``prepare=False``, so that every request contains the name of the function that it calls.
"""

from __future__ import annotations

import select
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal
from urllib.parse import quote

Fault = Literal["lose_answer", "lose_request"] | None
Plan = Callable[[bytes], Fault]

ROLLBACK = b"ROLLBACK\0"

SOCKET = ".s.PGSQL.5432"


def no_fault(request: bytes) -> Fault:
    return None


class Proxy:
    """Passes on what the clients of a socket send to the socket of a server.

    Attributes:
        plan: called with each request; says what happens to it or to its answer. Then the connection ends.
        round_trips: how many requests were answered, those of new connections included, but no rollbacks.
        lost: what has happened.
        delay_s: how long each answer of the server waits.
        passing: cleared, the answers of the server wait until it is set.
    """

    def __init__(self, server: Path) -> None:
        self.plan: Plan = no_fault
        self.round_trips = 0
        self.lost: list[str] = []
        self.delay_s = 0.0
        self.passing = threading.Event()
        self.passing.set()
        self.folder = Path(tempfile.mkdtemp(prefix="kvmodels-proxy-"))
        self.folder.chmod(0o755)
        self._server = server / SOCKET
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / SOCKET))
        (self.folder / SOCKET).chmod(0o777)
        self._listener.listen(64)
        self._threads: list[threading.Thread] = []
        self._stopped = threading.Event()
        self._start(self._accept)

    def url(self, direct: str) -> str:
        """The URL of a database through the proxy."""
        head, _, rest = direct.partition("host=")
        return f"{head}host={quote(str(self.folder), safe='')}" + ("&" + rest.partition("&")[2] if "&" in rest else "")

    def stop(self) -> None:
        """End every connection; what waits to be passed on is lost."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()
        shutil.rmtree(self.folder)

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            if select.select([self._listener], [], [], 0.05)[0]:
                client, _ = self._listener.accept()
                self._start(lambda client=client: self._serve(client))  # type: ignore[misc]

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(str(self._server))
            losing: Fault = None
            asked = False
            while not self._stopped.is_set():
                for ready in select.select([client, server], [], [], 0.05)[0]:
                    data = ready.recv(1 << 20)
                    if not data:
                        return
                    if ready is client:
                        with self._lock:
                            losing = losing or self.plan(data)
                            if losing is not None:
                                self.lost.append(losing)
                        if losing == "lose_request":
                            return
                        # The end of a snapshot, whose answer is not waited for.
                        asked = ROLLBACK not in data or b"SELECT" in data
                        server.sendall(data)
                        continue
                    with self._lock:
                        self.round_trips += asked
                    asked = False
                    if losing == "lose_answer":
                        return
                    if self.delay_s:
                        time.sleep(self.delay_s)
                    while not self.passing.wait(0.05):
                        if self._stopped.is_set():
                            return
                    client.sendall(data)


@contextmanager
def proxy_of(server: Path) -> Iterator[Proxy]:
    """A proxy in front of the server whose socket is in a folder."""
    proxy = Proxy(server)
    try:
        yield proxy
    finally:
        proxy.stop()
