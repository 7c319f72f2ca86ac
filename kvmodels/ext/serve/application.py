"""The ASGI application that serves stores to Deno.

Rules of this module: a client without a token learns nothing, not even which paths exist. An error of a request has a
status below 500, and every error of the store becomes a text without any of its data.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from kvmodels.core.ulid import ULID
from kvmodels.engines.connect.wire import decoding, encoding
from kvmodels.engines.connect.wire.errors import TooManyFieldsError, WireError
from kvmodels.engines.connect.wire.frames import PING, encode_frame
from kvmodels.engines.connect.wire.metadata import (
    DATABASE_HEADER,
    OLD_DATABASE_HEADER,
    VERSION_HEADER,
    VERSIONS,
    DatabaseMetadata,
    Endpoint,
    decode_metadata_request,
    encode_metadata,
)
from kvmodels.engines.contract import Engine
from kvmodels.errors import (
    CommitUnknownError,
    InvalidArgumentError,
    KvModelsError,
    LimitExceededError,
    ReadOnlyError,
    SchemaError,
    UnsupportedError,
)
from kvmodels.ext.serve import refusals
from kvmodels.ext.serve.access import AccessToken, ServedStore
from kvmodels.ext.serve.data_path import DataPath
from kvmodels.ext.serve.exchange import JSON, PROTOBUF, TEXT, CompleteAnswer, HttpExchange, Receive, Scope, Send
from kvmodels.ext.serve.refusals import RequestRefusedError
from kvmodels.ext.serve.requests import MAX_WATCHED_KEYS, requested_keys
from kvmodels.ext.serve.watching import ServedWatch, watch_output
from kvmodels.flows.effects import AnyFlow
from kvmodels.limits import Limits
from kvmodels.runtime.event_loop import arun

T = TypeVar("T")

DEFAULT_MAX_REQUEST_BYTES: Final = 1_500_000
"""The default size limit: an atomic write at all limits of Deno has 0.9 MB."""

TOKEN_LIFETIME_S: Final = 3600
PING_INTERVAL_S: Final = 5.0

_METHODS: Final = ("snapshot_read", "atomic_write", "watch")
_HOST: Final = re.compile(r"[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")
_log: Final = logging.getLogger("kvmodels.serve")

_UNKNOWN_FIELDS: Final = 100
"""How many fields a request may have besides its parts, for newer clients."""

_TOO_MANY: Final = {
    "snapshot_read": refusals.TOO_MANY_RANGES,
    "atomic_write": refusals.TOO_MANY_MUTATIONS,
    "watch": refusals.TOO_MANY_WATCHED,
}


class KvConnectServer:
    """An ASGI application that serves stores by KV Connect, versions 1 to 3, so that Deno programs share them.

    Deno opens ``Deno.openKv("http://host:port/path")`` with an access token in ``DENO_KV_ACCESS_TOKEN``. It speaks
    HTTP/2 only; without TLS that is HTTP/2 with prior knowledge, which ``serve`` and Hypercorn understand. The limits
    are those of Deno, or of the engine where it is stricter. Writes to keys of models are refused, unless the token
    grants them: Deno would not maintain the indexes.

    Args:
        stores: the stores, each with its path and its tokens.
        max_request_bytes: the largest request; a larger one is answered with status 413.
        now: seconds since the epoch, the clock of the tokens.

    Raises:
        InvalidArgumentError: there is no store, two stores have the same path, or the size is too small.

    Examples:
        >>> from kvmodels import open_kv
        >>> with open_kv(codec="v8") as kv:
        ...     app = KvConnectServer([ServedStore(kv, [AccessToken("a-long-secret")])])
    """

    def __init__(
        self,
        stores: Sequence[ServedStore],
        *,
        max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._stores = {one.path: one for one in stores}
        if not stores or len(self._stores) < len(stores):
            raise InvalidArgumentError(
                "every store needs a path of its own",
                argument="stores",
                hint="Give at least one ServedStore, each with another path.",
            )
        if max_request_bytes < 1024:
            raise InvalidArgumentError(
                "the size limit of requests is too small",
                argument="max_request_bytes",
                value=max_request_bytes,
                hint=f"Give 1,024 bytes or more; the default is {DEFAULT_MAX_REQUEST_BYTES:,}.",
            )
        self._max_request_bytes = max_request_bytes
        self._now = now
        self._paths: dict[str, tuple[Engine, DataPath]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as an ASGI application."""
        if scope["type"] == "lifespan":
            await _acknowledge_lifespan(receive, send)
        elif scope["type"] == "http":
            exchange = HttpExchange(scope, receive, send, self._max_request_bytes)
            try:
                await self._answer(exchange)
            except RequestRefusedError as refusal:
                await exchange.answer(CompleteAnswer(refusal.status, refusal.text.encode(), TEXT))
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _answer(self, exchange: HttpExchange) -> None:
        if exchange.method != "POST":
            raise RequestRefusedError(404, refusals.NOT_FOUND)
        token = _bearer(exchange)
        path, _, method = exchange.path.rpartition("/v2/")
        store = self._stores.get(path or "/") if method in _METHODS else None
        if store is not None:
            await self._serve_data(exchange, store, method, self._accepted(store, token))
            return
        store = self._stores.get(exchange.path or "/")
        access = None if store is None else store.access(token)
        if store is None or access is None:
            raise RequestRefusedError(401, refusals.INVALID_TOKEN)
        await exchange.answer(self._metadata(exchange, store, access, await exchange.body()))

    def _accepted(self, store: ServedStore, token: str) -> AccessToken:
        accepted = [one for one in store.tokens if one.accepts(token, store.database_id, self._now())]
        if not accepted:
            raise RequestRefusedError(401, refusals.INVALID_TOKEN)
        return accepted[0]

    def _metadata(self, exchange: HttpExchange, store: ServedStore, access: AccessToken, body: bytes) -> CompleteAnswer:
        try:
            supported = decode_metadata_request(body).supported_versions
        except WireError:
            raise RequestRefusedError(400, refusals.INVALID_METADATA) from None
        version = max((one for one in VERSIONS if one in supported), default=None)
        if version is None:
            raise RequestRefusedError(400, refusals.NO_COMMON_VERSION)
        url = exchange.root + store.path.rstrip("/") + "/v2"
        if version == 1:  # its clients take absolute URLs only
            host = exchange.header("host") or ""
            if _HOST.fullmatch(host) is None:
                raise RequestRefusedError(400, refusals.INVALID_HOST)
            url = f"{exchange.scheme}://{host}{url}"
        expires_s = int(self._now()) + TOKEN_LIFETIME_S
        answer = DatabaseMetadata(
            version,
            str(store.database_id),
            (Endpoint(url, "strong"),),
            access.data_token(store.database_id, expires_s),
            datetime.fromtimestamp(expires_s, UTC),
        )
        return CompleteAnswer(200, encode_metadata(answer), JSON)

    async def _serve_data(self, exchange: HttpExchange, store: ServedStore, method: str, access: AccessToken) -> None:
        _check_version(exchange, store)
        body = await exchange.body()
        try:
            engine, data_path = await self._opened(store)
            if method == "watch":
                await self._watch(exchange, engine, data_path, body)
            elif method == "snapshot_read":
                most = data_path.limits.max_ranges + _UNKNOWN_FIELDS
                read = data_path.snapshot_read(decoding.decode_snapshot_read(body, most))
                found = encoding.encode_snapshot_read_output(await self._run(engine, read))
                await exchange.answer(CompleteAnswer(200, found, PROTOBUF))
            else:
                limits = data_path.limits
                most = limits.max_checks + limits.max_mutations + _UNKNOWN_FIELDS
                message = decoding.decode_atomic_write(body, most)
                if access.readonly:
                    raise RequestRefusedError(400, refusals.READ_ONLY)
                write = data_path.atomic_write(message, model_writes=access.model_writes)
                done = encoding.encode_atomic_write_output(await self._run(engine, write))
                await exchange.answer(CompleteAnswer(200, done, PROTOBUF))
        except TooManyFieldsError:
            raise RequestRefusedError(400, _TOO_MANY[method]) from None
        except WireError:
            raise RequestRefusedError(400, refusals.INVALID_MESSAGE) from None

    async def _opened(self, store: ServedStore) -> tuple[Engine, DataPath]:
        found = self._paths.get(store.path)
        if found is None:
            try:
                opening, form = store.parts()
                engine = await asyncio.to_thread(opening.open)
            except KvModelsError as error:
                raise _unavailable(error) from None
            limits = Limits.DENO.within(engine.limits)
            found = self._paths[store.path] = engine, DataPath(form, limits, lambda: str(ULID()))
        return found

    async def _run(self, engine: Engine, flow: AnyFlow[T]) -> T:
        """Run a flow; errors of the store become refusals."""
        try:
            return await arun(engine, flow)
        except CommitUnknownError as error:
            _log.warning("the outcome of a write is unknown: %s", error.code)
            raise RequestRefusedError(409, refusals.OUTCOME_UNKNOWN) from None
        except ReadOnlyError:
            raise RequestRefusedError(400, refusals.READ_ONLY) from None
        except UnsupportedError:
            raise RequestRefusedError(400, refusals.UNSUPPORTED) from None
        except SchemaError as error:
            _log.warning("the store cannot be read: %s", error.code)
            raise RequestRefusedError(400, refusals.UNREADABLE_STORE) from None
        except LimitExceededError:
            raise RequestRefusedError(400, refusals.WRITE_TOO_LARGE) from None
        except KvModelsError as error:
            raise _unavailable(error) from None

    async def _watch(self, exchange: HttpExchange, engine: Engine, data_path: DataPath, body: bytes) -> None:
        message = decoding.decode_watch(body, MAX_WATCHED_KEYS + _UNKNOWN_FIELDS)
        keys = requested_keys(message, data_path.limits)
        watch = ServedWatch(keys, time.monotonic)
        able = engine.capabilities
        gone = asyncio.ensure_future(exchange.disconnected())

        def following() -> asyncio.Future[Any]:
            flow = watch.following(engine.limits, able.traits, reports_keys=able.server.wait_for_keys is not None)
            return asyncio.ensure_future(self._run(engine, flow))

        step = following()
        begun = False
        try:
            while keys:
                await asyncio.wait((gone, step), timeout=PING_INTERVAL_S, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return
                if not step.done():
                    part = PING
                elif (found := step.result()) is None:
                    break  # the store was closed
                else:
                    part = encode_frame(encoding.encode_watch_output(watch_output(found)))
                    step = following()
                if not begun:
                    await exchange.begin_stream()
                    begun = True
                await exchange.send_part(part)
            if not begun:
                await exchange.begin_stream()
            await exchange.end_stream()
        except RequestRefusedError:
            if not begun:
                raise
            await exchange.end_stream()
        finally:
            for task in (gone, step):
                task.cancel()
            await asyncio.gather(gone, step, return_exceptions=True)


def _bearer(exchange: HttpExchange) -> str:
    kind, _, token = (exchange.header("authorization") or "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise RequestRefusedError(401, refusals.INVALID_AUTHORIZATION)
    return token.strip()


def _check_version(exchange: HttpExchange, store: ServedStore) -> None:
    version = exchange.header(VERSION_HEADER)
    if version not in (None, "1", "2", "3"):
        raise RequestRefusedError(400, refusals.INVALID_VERSION)
    database_id = exchange.header(OLD_DATABASE_HEADER if version in (None, "1") else DATABASE_HEADER)
    if database_id is None or database_id.lower() != str(store.database_id):
        raise RequestRefusedError(400, refusals.INVALID_DATABASE)


def _unavailable(error: KvModelsError) -> RequestRefusedError:
    """Return the refusal for an error of the store, after which nothing was applied; the log has its code only."""
    _log.warning("a request failed: %s", error.code)
    return RequestRefusedError(503, refusals.UNAVAILABLE)


async def _acknowledge_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
