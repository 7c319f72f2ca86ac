"""A proxy of TCP connections on the loopback, which can lose or delay what is sent, and cut connections.

It stands between a client and a node, or between two nodes.
"""

from __future__ import annotations

import queue
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.etcd.server import LOOPBACK, free_port

Plan = Callable[[bytes], "str | None"]
"""Says what happens after the bytes of a client: ``lose_request``, ``lose_answer``, ``hold_request``, or nothing."""

LOOK_S = 0.05
ANSWER_S = 120

FRAME_HEAD = 9
DATA, HEADERS = 0, 1
END_STREAM = 1
MESSAGE_HEAD = 5
"""Of HTTP/2, and of gRPC in it."""


class TcpProxy:
    """Passes bytes on between its port and another one.

    Args:
        target: the port that it stands in front of.
        port: its own; a free one without.

    Attributes:
        plan: is called with what a client sends.
        severed: is called with what a connection has sent first; says whether it ends. New ones are accepted, and end.
        lost: what the plan has demanded.
        held: a request was held back, and its client has lost the connection.
    """

    def __init__(self, target: int, port: int | None = None) -> None:
        self.target = target
        self.port = free_port() if port is None else port
        self.plan: Plan = lambda data: None
        self.severed: Callable[[bytes], bool] = nothing
        self.lost: list[str] = []
        self.held = threading.Event()
        self._released = threading.Event()
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._listener = socket.create_server((LOOPBACK, self.port))
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def endpoint(self) -> str:
        """Its host and port."""
        return f"{LOOPBACK}:{self.port}"

    def deliver(self) -> bytes:
        """Let the request that was held back through, and return the message that answers it."""
        self._released.set()
        return self._answers.get(timeout=ANSWER_S)

    def stop(self) -> None:
        """End every connection and the proxy."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            if select.select([self._listener], [], [], LOOK_S)[0]:
                client, _ = self._listener.accept()
                self._start(lambda client=client: self._serve(client))  # type: ignore[misc]

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            with socket.create_connection((LOOPBACK, self.target)) as server:
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._pass_on(client, server)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        head = b""
        while not (self._stopped.is_set() or self.severed(head)):
            for ready in select.select([client, server], [], [], LOOK_S)[0]:
                data = ready.recv(1 << 16)
                if not data or self.severed(head := head or data if ready is client else head):
                    return
                if ready is server:
                    client.sendall(data)
                    continue
                with self._lock:
                    fault = self.plan(data)
                    if fault is not None:
                        self.lost.append(fault)
                if fault == "lose_request":
                    return
                if fault == "hold_request":
                    client.close()
                    self._hold(server, data)
                    return
                server.sendall(data)
                if fault == "lose_answer":
                    server.recv(1 << 16)
                    return

    def _hold(self, server: socket.socket, data: bytes) -> None:
        self.held.set()
        while not self._released.wait(LOOK_S):
            if self._stopped.is_set():
                return
        server.settimeout(ANSWER_S)
        server.sendall(data)
        self._answers.put(_message_from(server))


def _message_from(server: socket.socket) -> bytes:
    """The message of the next response that a server of gRPC sends."""
    message = b""
    with server.makefile("rb") as frames:
        while len(head := frames.read(FRAME_HEAD)) == FRAME_HEAD:
            content = frames.read(int.from_bytes(head[:3], "big"))
            kind, flags = head[3], head[4]
            if kind == DATA:
                message += content
            elif kind == HEADERS and flags & END_STREAM:
                break
    return message[MESSAGE_HEAD:]


def nothing(head: bytes) -> bool:
    """Sever no connection."""
    return False


@contextmanager
def proxy_of(port: int) -> Iterator[TcpProxy]:
    """A proxy in front of a port."""
    proxy = TcpProxy(port)
    try:
        yield proxy
    finally:
        proxy.stop()
