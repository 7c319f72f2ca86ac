"""The requests of the engine as values, and what a transport answers; the flows that yield them do no input or output.

Rules of this module: a flow is a generator that yields ``EtcdCall``, ``WatchCall`` and ``EtcdPause``. It is sent the
response of a call, or is thrown ``CallFailedError``. So a thread and an event loop run the same flows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from google.protobuf.message import Message

from kvmodels.engines.etcd.protocol.rpc_pb2 import (
    AuthenticateResponse,
    StatusResponse,
    TxnResponse,
    WatchRequest,
    WatchResponse,
)

T = TypeVar("T")

Metadata: TypeAlias = tuple[tuple[str, str], ...]


class Method(NamedTuple):
    """A method of etcd: its path, and the class of its responses."""

    path: str
    response: type[Message]


TXN: Final = Method("/etcdserverpb.KV/Txn", TxnResponse)
STATUS: Final = Method("/etcdserverpb.Maintenance/Status", StatusResponse)
AUTHENTICATE: Final = Method("/etcdserverpb.Auth/Authenticate", AuthenticateResponse)
WATCH: Final = Method("/etcdserverpb.Watch/Watch", WatchResponse)


class EtcdCall(NamedTuple):
    """A call with one request and one response.

    Attributes:
        endpoint: host and port.
        method: that is called.
        request: its message.
        metadata: headers of the call, the token among them.
        seconds: until the call is given up.
    """

    endpoint: str
    method: Method
    request: Message
    metadata: Metadata
    seconds: float

    def __repr__(self) -> str:  # the request may hold a password, the metadata the token
        return f"EtcdCall({self.endpoint!r}, {self.method.path!r})"


class WatchCall(NamedTuple):
    """A watch whose responses are taken in until they suffice; the transport then ends it.

    Attributes:
        endpoint: host and port.
        request: creates the watch.
        metadata: headers of the call, the token among them.
        seconds: until the call is given up.
        take: is given each response, and returns whether it was the last one that is wanted.
    """

    endpoint: str
    request: WatchRequest
    metadata: Metadata
    seconds: float
    take: Callable[[WatchResponse], bool]

    def __repr__(self) -> str:  # the metadata holds the token
        return f"WatchCall({self.endpoint!r})"


class EtcdPause(NamedTuple):
    """A wait before the next call."""

    seconds: float


class CallFailedError(Exception):
    """A call without a response: the name of the gRPC status code, and the text of the server or of the client."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code
        self.details = details


Steps: TypeAlias = Generator[EtcdCall | WatchCall | EtcdPause, Any, T]
