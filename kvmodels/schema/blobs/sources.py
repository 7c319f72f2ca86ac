"""Sources of the content of blobs: bytes, paths, files, iterators and asynchronous iterators.

Rules of this module: a source is read once, from its present position, in pieces of the size that is asked for. A
reader is blocking, or asynchronous if its source is; only a driver calls it. An error of the source is raised as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable, Iterator
from inspect import iscoroutinefunction
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol, TypeAlias, cast

from kvmodels.errors import InvalidArgumentError


class AsyncReadable(Protocol):
    """A file with an asynchronous ``read``, such as an upload of a web framework."""

    def read(self, size: int, /) -> Awaitable[bytes]:
        """Return at most so many bytes; none at the end."""
        ...


BlobSource: TypeAlias = (
    "bytes | bytearray | memoryview | IO[bytes] | AsyncReadable | Iterable[bytes] | AsyncIterable[bytes]"
)
"""The sources that ``Blob`` takes."""


class ContentReader(ABC):
    """Reads the content of a source from its beginning to its end.

    Attributes:
        is_async: whether only ``aread`` reads it.
        is_ready: whether a read waits for nothing.
    """

    is_async: ClassVar[bool] = False
    is_ready: ClassVar[bool] = False

    @abstractmethod
    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, less only at the end."""

    async def aread(self, size: int) -> bytes:
        """Return the same where the source is asynchronous."""
        return self.read(size)

    def close(self) -> None:  # noqa: B027 - most sources are not opened here
        """Close what was opened for the reading; nothing by default."""


class BytesReader(ContentReader):
    """Reads bytes in memory."""

    is_ready = True

    def __init__(self, content: bytes | bytearray | memoryview) -> None:
        self._content = memoryview(content).cast("B")
        self._position = 0

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, less only at the end."""
        piece = bytes(self._content[self._position : self._position + size])
        self._position += len(piece)
        return piece


class FileReader(ContentReader):
    """Reads a binary file, which its owner closes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file: IO[bytes] | None = file

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, less only at the end."""
        file = self._file
        assert file is not None, "it is read before it is closed"
        parts: list[bytes] = []
        while size and (part := _checked(file.read(size))):  # a raw file may return less before its end
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class PathReader(FileReader):
    """Reads the file at a path, which it opens with the first read and closes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = None

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, less only at the end."""
        if self._file is None:
            self._file = self._path.open("rb")
        return super().read(size)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class IteratorReader(ContentReader):
    """Joins the pieces of an iterator."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = bytearray()

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, less only at the end."""
        while len(self._rest) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._rest += _checked(piece)
        return _taken(self._rest, size)


class AwaitedIteratorReader(ContentReader):
    """Joins the pieces of an asynchronous iterator."""

    is_async = True

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = bytearray()

    def read(self, size: int) -> bytes:
        """Refuse to read without an event loop."""
        del size
        raise _asynchronous()

    async def aread(self, size: int) -> bytes:
        """Return the next ``size`` bytes, less only at the end."""
        while len(self._rest) < size:
            try:
                piece = await anext(self._pieces)
            except StopAsyncIteration:
                break
            self._rest += _checked(piece)
        return _taken(self._rest, size)


class AwaitedFileReader(ContentReader):
    """Reads a file whose ``read`` is a coroutine function."""

    is_async = True

    def __init__(self, file: AsyncReadable) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        """Refuse to read without an event loop."""
        del size
        raise _asynchronous()

    async def aread(self, size: int) -> bytes:
        """Return the next ``size`` bytes, less only at the end."""
        parts: list[bytes] = []
        while size and (part := _checked(await self._file.read(size))):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def reader_of(source: Any) -> ContentReader:
    """Return the reader of a source. Raises InvalidArgumentError for any other value."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return BytesReader(cast("bytes", source))
    if isinstance(source, Path):
        return PathReader(source)
    read = getattr(source, "read", None)
    if callable(read):
        return AwaitedFileReader(source) if iscoroutinefunction(read) else FileReader(source)
    if isinstance(source, AsyncIterable):
        return AwaitedIteratorReader(aiter(cast("AsyncIterable[bytes]", source)))
    if isinstance(source, Iterable) and not isinstance(source, str):
        return IteratorReader(iter(cast("Iterable[bytes]", source)))
    raise InvalidArgumentError(
        "this is no source of a blob",
        argument="source",
        value=type(source).__name__,
        hint="Give bytes, a binary file, an iterator of bytes, an asynchronous one, or write Blob.from_path(path).",
    )


def _taken(rest: bytearray, size: int) -> bytes:
    piece = bytes(rest[:size])
    del rest[:size]
    return piece


def _checked(piece: Any) -> bytes:
    if isinstance(piece, bytes):
        return piece
    if isinstance(piece, (bytearray, memoryview)):
        return bytes(cast("bytearray", piece))
    raise InvalidArgumentError(
        "a source of a blob gave something else than bytes",
        argument="source",
        value=type(piece).__name__,
        hint='Open the file in binary mode, open(path, "rb"), or encode the text.',
    )


def _asynchronous() -> InvalidArgumentError:
    return InvalidArgumentError(
        "a source of a blob is asynchronous, and the database is not",
        argument="source",
        hint="Use AsyncDatabase, or give a blocking source: of an UploadFile its .file.",
    )
