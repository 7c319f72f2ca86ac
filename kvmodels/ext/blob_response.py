"""Answer with the content of a blob, or with a range of it (RFC 9110, section 14).

Rules of this module: the content is read in pieces while it is sent, and no more is read than the client asked for and
waits for. A request for several ranges is answered with the whole content, which the standard allows.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final
from urllib.parse import quote

from anyio import create_task_group
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kvmodels.schema.blobs.blob import Blob

_PIECE: Final = 256 * 1024
_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)")
_TAG: Final = re.compile(r'(?:W/)?("[^"]*")')


class BlobResponse(Response):
    """The content of a stored blob as a response, with ETag, ranges (206, 416), HEAD and If-None-Match (304).

    Browsers play media from it, because they ask for ranges. The content is offered as a download unless ``inline`` is
    set: a browser would run a page that a user has uploaded with the rights of your site.

    Args:
        blob: a blob of a stored record.
        filename: the name that a browser saves it as.
        inline: whether a browser shows it in place of saving it.
        headers: further headers.
        status_code: the status of an answer with the whole content. FastAPI reads the default for OpenAPI.

    Raises:
        InvalidArgumentError: the blob is not stored.
    """

    def __init__(
        self,
        blob: Blob,
        *,
        filename: str | None = None,
        inline: bool = False,
        headers: Mapping[str, str] | None = None,
        status_code: int = 200,
    ) -> None:
        self._blob = blob
        self._size = blob.size
        self._tag = f'"{blob.sha256[:32]}"'
        super().__init__(None, status_code, headers, media_type=None)
        self.headers["content-type"] = blob.content_type
        self.headers["content-length"] = str(self._size)
        self.headers["accept-ranges"] = "bytes"
        self.headers["etag"] = self._tag
        self.headers["x-content-type-options"] = "nosniff"
        name = "" if filename is None else f"; filename*=UTF-8''{quote(filename, safe='')}"
        self.headers["content-disposition"] = ("inline" if inline else "attachment") + name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response for the request."""
        asked, start, end = Headers(scope=scope), 0, self._size
        if self._is_known(asked.get("if-none-match")):
            self._without_content(304)
            start = end = 0
        elif (found := self._range(asked)) is not None:
            start, end = found
            if start >= end:
                self._without_content(416)
                self.headers["content-range"] = f"bytes */{self._size}"
            else:
                self.status_code = 206
                self.headers["content-range"] = f"bytes {start}-{end - 1}/{self._size}"
                self.headers["content-length"] = str(end - start)
        if scope["method"] == "HEAD":
            start = end
        async with aclosing(self._pieces(start, end)) as pieces:
            first = await anext(pieces, b"")  # an error of the first read can still be answered as such
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": first, "more_body": start + len(first) < end})
            if start + len(first) < end:
                await self._send_rest(pieces, receive, send)

    async def _send_rest(self, pieces: AsyncGenerator[bytes], receive: Receive, send: Send) -> None:
        """Send the other pieces until the client leaves: servers take what is sent after that without an error."""
        failed: Exception | None = None

        async def send_pieces() -> None:
            nonlocal failed
            try:
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            except Exception as error:  # noqa: BLE001 - raised below: a task group would wrap it
                failed = error
            group.cancel_scope.cancel()

        async with create_task_group() as group:
            group.start_soon(send_pieces)
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()
        if failed is not None:
            raise failed

    def _without_content(self, status: int) -> None:
        self.status_code = status
        del self.headers["content-length"]
        if status == 416:
            self.headers["content-length"] = "0"

    def _is_known(self, tags: str | None) -> bool:
        return tags is not None and (tags.strip() == "*" or self._tag in _TAG.findall(tags))

    def _range(self, asked: Headers) -> tuple[int, int] | None:
        """Return the first byte and the byte after the last one; None for the whole content."""
        found = _RANGE.fullmatch(asked.get("range", "").strip())
        if found is None or asked.get("if-range", self._tag) != self._tag:
            return None
        first, last = found.groups()
        if not first:
            return None if not last else (max(0, self._size - int(last)), self._size if int(last) else 0)
        if last and int(last) < int(first):
            return None  # not a range
        return int(first), min(int(last) + 1 if last else self._size, self._size)

    async def _pieces(self, start: int, end: int) -> AsyncGenerator[bytes]:
        """Yield the content of a range, read in the event loop or in threads, as the database does."""
        if start >= end:
            return
        opened = self._blob.open()
        if opened.is_async:
            async with opened as stream:
                await stream.seek(start)
                while start < end:
                    piece = await stream.read(min(_PIECE, end - start))
                    start += len(piece)
                    yield piece
            return
        with opened as file:
            file.seek(start)
            while start < end:
                piece = await run_in_threadpool(file.read, min(_PIECE, end - start))
                start += len(piece)
                yield piece
