"""Makes calls in the calling thread, or in an event loop.

Rules of this module: the only one that knows the gRPC library. Every endpoint has a channel of its own; nothing is sent
again, neither here nor by the library. Errors of the library become ``CallFailedError``, without their chain.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

import grpc
import grpc.aio

from kvmodels.engines.etcd.protocol.exchange import (
    WATCH,
    CallFailedError,
    EtcdCall,
    EtcdPause,
    Metadata,
    Method,
    Steps,
    WatchCall,
)
from kvmodels.engines.etcd.protocol.rpc_pb2 import WatchRequest, WatchResponse
from kvmodels.engines.shared.steps import arun_steps, run_steps

T = TypeVar("T")

KEEPALIVE_MS: Final = 10_000
"""A connection that is silent for so long during a call is probed; servers refuse probes within five seconds."""

KEEPALIVE_TIMEOUT_MS: Final = 3_000

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Otherwise two stores of one process share connections, and the counters of their failures.
    ("grpc.use_local_subchannel_pool", 1),
)


class TlsFiles(NamedTuple):
    """The contents of the files for TLS, each None if it was not given; ``repr`` shows none of them."""

    ca: bytes | None
    key: bytes | None
    certificate: bytes | None

    def __repr__(self) -> str:
        return "TlsFiles(…)"


def _credentials(tls: TlsFiles) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate)


def _failure(error: Exception) -> CallFailedError:
    if isinstance(error, CallFailedError):
        return error
    assert isinstance(error, grpc.RpcError)
    code: grpc.StatusCode = error.code()
    return CallFailedError(code.name, error.details() or "")


_TRANSLATION: Final = ((CallFailedError, grpc.RpcError), _failure)


def _serializer(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


class WatchStream:
    """The responses of one watch, for the thread that iterates over it; another thread may end it.

    Raises:
        CallFailedError: from the iteration, when the call fails or is ended.
    """

    def __init__(self, channel: grpc.Channel, request: WatchRequest, metadata: Metadata, seconds: float) -> None:
        self._requests: queue.SimpleQueue[WatchRequest | None] = queue.SimpleQueue()
        self._requests.put(request)
        open_stream = channel.stream_stream(
            WATCH.path, request_serializer=_serializer, response_deserializer=WatchResponse.FromString
        )
        # The server ends the watch when the requests end, so they wait for the end of the stream.
        self._call = open_stream(iter(self._requests.get, None), timeout=seconds, metadata=metadata)

    def __iter__(self) -> Iterator[WatchResponse]:
        failure: CallFailedError
        try:
            yield from self._call
        except grpc.RpcError as error:
            failure = _failure(error)
        else:
            failure = CallFailedError("UNAVAILABLE", "the server has ended the watch")
        finally:
            self.close()
        raise failure

    def close(self) -> None:
        """End the watch; idempotent."""
        self._requests.put(None)
        self._call.cancel()


class EtcdThreadTransport:
    """Makes calls in the calling thread; all threads share the channels."""

    def __init__(self, tls: TlsFiles | None) -> None:
        self._tls = tls
        self._lock = threading.Lock()
        self._channels: dict[str, grpc.Channel] = {}
        self._calls: dict[tuple[str, str], Callable[..., Any]] = {}

    def run(self, steps: Steps[T]) -> T:
        """Carry out the calls and pauses of a flow, and return its result. Raises what the flow raises."""
        return run_steps(steps, self._answer, _TRANSLATION)

    def watch(self, call: WatchCall) -> WatchStream:
        """Begin a watch."""
        return WatchStream(self._channel(call.endpoint), call.request, call.metadata, call.seconds)

    def close(self) -> None:
        """Close the channels; idempotent."""
        with self._lock:
            channels, self._channels, self._calls = self._channels, {}, {}
        for channel in channels.values():
            channel.close()

    def _answer(self, step: EtcdCall | WatchCall | EtcdPause) -> Any:
        if isinstance(step, EtcdPause):
            return time.sleep(step.seconds)
        if isinstance(step, WatchCall):
            return self._take(step)
        call = self._calls.get((step.endpoint, step.method.path)) or self._call(step.endpoint, step.method)
        return call(step.request, timeout=step.seconds, metadata=step.metadata)

    def _take(self, step: WatchCall) -> None:
        stream = self.watch(step)
        try:
            for response in stream:
                if step.take(response):
                    return
        finally:
            stream.close()

    def _call(self, endpoint: str, method: Method) -> Callable[..., Any]:
        call: Callable[..., Any] = self._channel(endpoint).unary_unary(
            method.path, request_serializer=_serializer, response_deserializer=method.response.FromString
        )
        self._calls[endpoint, method.path] = call
        return call

    def _channel(self, endpoint: str) -> grpc.Channel:
        with self._lock:
            channel = self._channels.get(endpoint)
            if channel is None:
                if self._tls is None:
                    channel = grpc.insecure_channel(endpoint, options=_OPTIONS)
                else:
                    channel = grpc.secure_channel(endpoint, _credentials(self._tls), options=_OPTIONS)
                self._channels[endpoint] = channel
            return channel


class EtcdLoopTransport:
    """Makes calls in one event loop, over channels of its own."""

    def __init__(self, tls: TlsFiles | None) -> None:
        self._tls = tls
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._calls: dict[tuple[str, str], Callable[..., Any]] = {}

    async def run(self, steps: Steps[T]) -> T:
        """Carry out the calls and pauses of a flow, and return its result. Raises what the flow raises."""
        return await arun_steps(steps, self._answer, _TRANSLATION)

    async def aclose(self) -> None:
        """Close the channels; idempotent."""
        channels, self._channels, self._calls = self._channels, {}, {}
        for channel in channels.values():
            await channel.close()

    async def _answer(self, step: EtcdCall | WatchCall | EtcdPause) -> Any:
        if isinstance(step, EtcdPause):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, WatchCall):
            return await self._take(step)
        call = self._calls.get((step.endpoint, step.method.path)) or self._call(step.endpoint, step.method)
        return await call(step.request, timeout=step.seconds, metadata=step.metadata)

    async def _take(self, step: WatchCall) -> None:
        ended = asyncio.Event()

        async def requests() -> AsyncIterator[WatchRequest]:
            yield step.request
            await ended.wait()  # the server ends the watch when the requests end

        open_stream = self._channel(step.endpoint).stream_stream(
            WATCH.path, request_serializer=_serializer, response_deserializer=WatchResponse.FromString
        )
        call: Any = open_stream(requests(), timeout=step.seconds, metadata=step.metadata)
        try:
            async for response in call:
                if step.take(response):
                    return
        finally:
            ended.set()
            call.cancel()
        raise CallFailedError("UNAVAILABLE", "the server has ended the watch")

    def _call(self, endpoint: str, method: Method) -> Callable[..., Any]:
        call: Callable[..., Any] = self._channel(endpoint).unary_unary(
            method.path, request_serializer=_serializer, response_deserializer=method.response.FromString
        )
        self._calls[endpoint, method.path] = call
        return call

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        channel = self._channels.get(endpoint)
        if channel is None:
            if self._tls is None:
                channel = grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
            else:
                channel = grpc.aio.secure_channel(endpoint, _credentials(self._tls), options=_OPTIONS)
            self._channels[endpoint] = channel
        return channel
