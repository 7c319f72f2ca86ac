"""Notices of changed keys by the protocol's watch: a stream of frames for each list of keys that is waited for.

A frame says that a key may have changed; what it is now is read as usual, so a frame that comes late or twice does no
harm. While there is no stream, because the server has an older version of the protocol or cannot be reached, a wait
ends after ``POLL_S``, and its caller reads the keys. Every stream begins with a frame, so a change that happened while
there was none is noticed.

Rules of this module: a stream runs in one event loop, that of the caller or of a thread for all callers without one. It
ends ``LINGER_S`` after the last wait for its keys, and the thread with its last stream. Nothing here refers to the
engine, so a forgotten one is not kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
from collections.abc import Callable
from typing import Final

from kvmodels.engines.connect.calls import RENEWED_AFTER
from kvmodels.engines.connect.exchange import HttpCall, LostAnswerError, NotSentError
from kvmodels.engines.connect.session import Attempts, Served, Session
from kvmodels.engines.connect.transport import LoopTransport
from kvmodels.engines.connect.wire.decoding import decode_watch_output
from kvmodels.engines.connect.wire.encoding import encode_watch
from kvmodels.engines.connect.wire.errors import WireError
from kvmodels.engines.connect.wire.frames import FrameReader
from kvmodels.engines.connect.wire.messages import ReadStatus, WatchMessage
from kvmodels.engines.shared.registry import closed_error
from kvmodels.engines.shared.threads import start_thread
from kvmodels.errors import KvModelsError

POLL_S: Final = 0.1
"""Seconds after which a wait ends while there is no stream."""

LINGER_S: Final = 5.0
"""Seconds that a stream stays open after the last wait for its keys, because the next one usually follows soon."""

QUIET_S: Final = 20.0
"""Seconds without any byte after which a stream counts as lost; servers send a ping every 5 seconds."""

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
"""The pauses before a stream is opened again, which grow while that fails; the keys are polled meanwhile."""

METADATA_S: Final = 10.0

_WATCH_SINCE: Final = 3
"""The first version of the protocol with a watch."""

_numbers: Final = itertools.count(1)
"""Numbers of frames, which no two streams of the process share."""


class KeyStreams:
    """The streams of one event loop.

    Args:
        session: of the database.
        url: of the database, for messages.
    """

    def __init__(self, session: Session, url: str) -> None:
        self._session = session
        self._url = url
        self._transport = LoopTransport(None)  # not the connections of reads, which long streams would use up
        self._streams: dict[tuple[bytes, ...], _KeyStream] = {}
        self._closed = False
        self.unused = asyncio.Event()
        """Set while there is no stream."""
        self.unused.set()

    async def wait(self, keys: tuple[bytes, ...], after: int, seconds: float) -> int:
        """Wait until a key may have changed since the wait that returned ``after``, at most ``seconds``.

        Returns ``after`` if nothing has changed, else another number. Raises ClosedError.
        """
        if self._closed:
            raise closed_error(self._url, "closed")
        stream = self._streams.get(keys)
        if stream is None:
            stream = self._streams[keys] = _KeyStream(self._session, self._transport, keys, self._forget)
            self.unused.clear()
        number = await stream.wait(after, seconds)
        if self._closed:
            raise closed_error(self._url, "closed")
        return number

    def end(self) -> None:
        """End all streams, and every wait with ClosedError."""
        self._closed = True
        for stream in list(self._streams.values()):
            stream.end()

    async def aclose(self) -> None:
        """End all streams, and close their connections; idempotent."""
        self.end()
        await self.unused.wait()
        await self._transport.aclose()

    def _forget(self, stream: _KeyStream) -> None:
        if self._streams.get(stream.keys) is stream:
            del self._streams[stream.keys]
        if not self._streams:
            self.unused.set()


class _KeyStream:
    """The stream of one list of keys, which is opened again whenever it ends."""

    def __init__(
        self,
        session: Session,
        transport: LoopTransport,
        keys: tuple[bytes, ...],
        ended: Callable[[_KeyStream], object],
    ) -> None:
        self.keys = keys
        self._session = session
        self._transport = transport
        self._body = encode_watch(WatchMessage(keys))
        self._news = asyncio.Event()
        self._number: int | None = None
        """The number of the last frame; None while there is no stream."""
        self._waiting = 0
        self._lingering: asyncio.TimerHandle | None = None
        self._task = asyncio.get_running_loop().create_task(self._follow())
        self._task.add_done_callback(lambda _task: ended(self))

    async def wait(self, after: int, seconds: float) -> int:
        """Wait for a frame later than ``after``, at most ``seconds``; without a stream, at most ``POLL_S``."""
        self._waiting += 1
        if self._lingering is not None:
            self._lingering.cancel()
        try:
            if self._number is None or self._number == after:
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(seconds, POLL_S) if self._number is None else seconds):
                        await self._news.wait()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._lingering = asyncio.get_running_loop().call_later(LINGER_S, self.end)
        return next(_numbers) if self._number is None else self._number

    def end(self) -> None:
        """End the stream, and every wait."""
        self._task.cancel()
        self._news.set()
        if self._lingering is not None:
            self._lingering.cancel()

    async def _follow(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            with contextlib.suppress(KvModelsError, LostAnswerError, NotSentError, WireError):
                await self._receive(await self._transport.run(self._session.current(Attempts(METADATA_S))))
            pause = FIRST_PAUSE_S if self._number is not None else min(2 * pause, LONGEST_PAUSE_S)
            self._number = None
            self._news.set()
            await asyncio.sleep(random.uniform(pause / 2, pause))

    async def _receive(self, served: Served) -> None:
        """Open a stream, and note its frames until it ends.

        Raises:
            NotSentError, LostAnswerError: it could not be opened, or has ended early.
            WireError: it is not a stream of the protocol.
        """
        if served.version < _WATCH_SINCE:
            return
        call = HttpCall(f"{served.endpoint}/watch", served.headers, self._body, QUIET_S)
        async with self._transport.stream(call) as answer:
            if answer.status in RENEWED_AFTER:
                self._session.forget(served)
            if answer.status != 200:
                return
            reader = FrameReader()
            async for part in answer.parts:
                for frame in filter(None, reader.feed(part)):  # a ping is empty
                    if decode_watch_output(frame).status != ReadStatus.SUCCESS:
                        self._session.forget(served)  # the endpoint does not serve consistent reads
                        return
                    self._number = next(_numbers)
                    self._news.set()


class WatchThread:
    """Streams for callers without an event loop, in a thread that ends with its last stream.

    Args:
        session: of the database.
        url: of the database, for messages.
    """

    def __init__(self, session: Session, url: str) -> None:
        self._session = session
        self._url = url
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._streams: KeyStreams
        self._thread: threading.Thread | None = None
        self._calls = 0
        self._closed = False

    def wait(self, keys: tuple[bytes, ...], after: int, seconds: float) -> int:
        """Wait as ``KeyStreams.wait`` does. Raises ClosedError; EngineError: no thread can be started."""
        with self._lock:
            if self._closed:
                raise closed_error(self._url, "closed")
            loop = self._loop or self._start()
            self._calls += 1
            future = asyncio.run_coroutine_threadsafe(self._streams.wait(keys, after, seconds), loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
        finally:
            with self._lock:
                self._calls -= 1

    def close(self) -> None:
        """End all streams, every wait with ClosedError, and the thread; idempotent."""
        with self._lock:
            self._closed = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._streams.end)
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._run, args=(loop,), name="kvmodels-watch", daemon=True)
        self._streams = KeyStreams(self._session, self._url)
        try:
            start_thread(thread, self._url)
        except BaseException:
            loop.close()
            raise
        self._loop, self._thread = loop, thread
        return loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_until_complete(self._serve(self._streams))
        finally:
            loop.close()

    async def _serve(self, streams: KeyStreams) -> None:
        """Keep the loop running until nothing uses the streams."""
        while True:
            await streams.unused.wait()
            with self._lock:
                if not self._calls:  # otherwise a call has not reached the streams, or has just left them
                    self._loop = None
                    break
            await asyncio.sleep(0)
        await streams.aclose()
