"""Stored blobs as files, for both APIs.

Rules of this module: nothing here depends on an engine or an event loop; ``Fetch`` does. A file reads whole
chunks, about 1 MiB at once when it is read in order, and keeps those of the last read only.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from kvmodels._support.naming import show_public_path
from kvmodels.errors import InvalidArgumentError
from kvmodels.schema.blobs.stored import StoredBlob, damaged

Fetch: TypeAlias = "Callable[[StoredBlob, int, int], Any]"
"""Returns some chunks of a blob, or a coroutine that does: the first one, and how many."""

AT_ONCE: Final = 1024 * 1024
"""The number of bytes that are read at once, in order."""

_HOW: Final = {True: "async with", False: "with"}


class _Window:
    """A position in a blob, the chunks around it, and the hash of what was read from the beginning on."""

    def __init__(self, blob: StoredBlob) -> None:
        self.blob = blob
        self.position = 0
        self._start = 0
        self._content = b""
        self._hashed = 0
        self._digest = sha256()

    def wanted(self, size: int) -> tuple[int, int] | None:
        """Return the first chunk and the number of chunks to read before ``size`` bytes; None if they are here."""
        end = min(self.position + size, self.blob.size)
        if self.position >= end or self._start <= self.position < self._start + len(self._content):
            return None
        first = self.position // self.blob.chunk
        # Ahead only when it is read in order: who reads a range gets the chunks that it needs.
        is_ordered = self._content and self.position == self._start + len(self._content)
        ahead = AT_ONCE if is_ordered or not self.position else 0
        last = -(-max(end, min(self.position + ahead, self.blob.size)) // self.blob.chunk)
        return first, min(last - first, max(1, AT_ONCE // self.blob.chunk))

    def take_in(self, first: int, chunks: list[bytes]) -> None:
        """Keep chunks that were read in place of the former ones."""
        self._start = first * self.blob.chunk
        self._content = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if self._hashed == self._start and self._hashed < self.blob.size:
            self._digest.update(self._content)
            self._hashed += len(self._content)
            if self._hashed == self.blob.size and self._digest.digest() != self.blob.sha256:
                raise damaged(self.blob, "its hash is another one")

    def piece(self, size: int) -> bytes:
        """Return bytes that are here, at most ``size``, and move the position behind them."""
        at = self.position - self._start
        if not 0 <= at < len(self._content):
            return b""
        found = self._content[at : at + size]
        self.position += len(found)
        return found

    def left(self, size: int | None) -> int:
        """Return the number of bytes that a read of a size gives."""
        rest = max(0, self.blob.size - self.position)
        return rest if size is None or size < 0 else min(size, rest)

    def seek(self, offset: int, whence: int) -> int:
        """Move the position and return it. Raises ValueError as files do."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.blob.size}.get(whence)
        if base is None or base + offset < 0:
            raise ValueError(f"invalid position: offset {offset}, whence {whence}")
        self.position = base + offset
        return self.position


class BlobFile(io.BufferedIOBase):
    """The content of a blob as a binary file for reading; ``Blob.open()`` gives it in a ``with`` block."""

    def __init__(self, fetch: Fetch, blob: StoredBlob) -> None:
        self._chunks = fetch
        self._window = _Window(blob)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._window.position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move the position, and return it."""
        return self._window.seek(offset, whence)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next ``size`` bytes, less only at the end; without a size all that follow.

        Raises:
            BlobGoneError: the content was removed meanwhile.
            DecodeError: it is damaged.
        """
        return self._joined(self._window.left(size))

    def read1(self, size: int = -1, /) -> bytes:
        """Return the next bytes, at most ``size``, with at most one read of the store."""
        left = self._window.left(size)
        self._fetch(left)
        return self._window.piece(left)

    def readinto(self, buffer: Any, /) -> int:
        """Read bytes into a buffer, and return their number."""
        view = memoryview(buffer).cast("B")
        found = self.read(len(view))
        view[: len(found)] = found
        return len(found)

    def _joined(self, left: int) -> bytes:
        parts: list[bytes] = []
        while left:
            self._fetch(left)
            parts.append(self._window.piece(left))
            left -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _fetch(self, size: int) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        wanted = self._window.wanted(size)
        if wanted is not None:
            self._window.take_in(wanted[0], self._chunks(self._window.blob, *wanted))


class BlobStream:
    """The content of a blob as a binary file for reading; ``Blob.open()`` gives it in an ``async with`` block."""

    def __init__(self, fetch: Fetch, blob: StoredBlob) -> None:
        self._chunks = fetch
        self._window = _Window(blob)
        self._closed = False

    async def tell(self) -> int:
        """Return the position."""
        return self._window.position

    async def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move the position, and return it."""
        return self._window.seek(offset, whence)

    async def read(self, size: int | None = -1, /) -> bytes:
        """Return the next ``size`` bytes, less only at the end; without a size all that follow.

        Raises:
            BlobGoneError: the content was removed meanwhile.
            DecodeError: it is damaged.
        """
        left, parts = self._window.left(size), list[bytes]()
        while left:
            await self._fetch(left)
            parts.append(self._window.piece(left))
            left -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def aclose(self) -> None:
        """Refuse further reads."""
        self._closed = True

    async def _fetch(self, size: int) -> None:
        if self._closed:
            raise ValueError("I/O operation on closed file.")
        wanted = self._window.wanted(size)
        if wanted is not None:
            self._window.take_in(wanted[0], await self._chunks(self._window.blob, *wanted))


class OpenBlob:
    """A block that gives the content of a blob as a file; the result of ``Blob.open()``."""

    def __init__(self, fetch: Fetch, blob: StoredBlob, *, is_async: bool) -> None:
        self._chunks = fetch
        self._blob = blob
        self._is_async = is_async
        self._file: BlobFile | None = None
        self._afile: BlobStream | None = None

    @property
    def is_async(self) -> bool:
        """Whether it is opened with ``async with``."""
        return self._is_async

    def __enter__(self) -> BlobFile:
        self._require(False)
        self._file = BlobFile(self._chunks, self._blob)
        return self._file

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    async def __aenter__(self) -> BlobStream:
        self._require(True)
        self._afile = BlobStream(self._chunks, self._blob)
        return self._afile

    async def __aexit__(self, *_: object) -> None:
        if self._afile is not None:
            await self._afile.aclose()

    def _require(self, is_async: bool) -> None:
        if self._is_async is not is_async:
            raise InvalidArgumentError(
                "a blob was opened in the way of the other kind of database",
                argument="open",
                value=_HOW[is_async],
                hint=f"Write '{_HOW[self._is_async]} blob.open() as file'.",
            )

    def _refuse(self, *_: object) -> NoReturn:
        raise InvalidArgumentError(
            "an opened blob is used without a block",
            argument="open",
            value=type(self).__name__,
            hint=f"Write '{_HOW[self._is_async]} blob.open() as file', and use file.",
        )

    if not TYPE_CHECKING:  # otherwise type checkers accept these calls
        read = read1 = readinto = seek = tell = close = aclose = __iter__ = __await__ = _refuse


show_public_path(BlobStream, BlobFile, OpenBlob)
