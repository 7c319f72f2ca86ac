"""The files that dumps are written to and read from: a path, or a file object for text or bytes; and temporary files.

Rules of this module: files opened here are closed here, and an unfinished or temporary file is removed; a file object
belongs to the caller. Reads of a line are bounded.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Any, Final, Self, cast

from kvmodels.engines.shared.file_checks import require_file_name
from kvmodels.errors import DecodeError, EngineError, InvalidArgumentError, UnsupportedError
from kvmodels.flows.kv.store_format import StoreFormat

DumpFile = str | os.PathLike[str] | IO[str] | IO[bytes]
"""The location of a dump: a path, or a file object in text or binary mode."""

CHUNK_BYTES: Final = 1024 * 1024
_OWNER_ONLY: Final = 0o600
"""The rights of a new dump, which holds the data of a store that others may not be allowed to read."""

LONGEST_LINE: Final = 1 << 28
"""More than the JSON of the largest value; a file without line breaks is not read as one line."""


class DumpWriter:
    """Writes a dump to a new path or to a file object; leaving its ``with`` block removes an unfinished file."""

    def __init__(self, target: DumpFile) -> None:
        self._path = _path_of(target, "write")
        self._file: Any = target if self._path is None else _open(self._path, "xb", _OWNER_ONLY)
        self._text = isinstance(self._file, io.TextIOBase) or hasattr(self._file, "encoding")

    def write(self, lines: Iterable[str]) -> None:
        """Append lines."""
        for line in lines:
            self._file.write(line if self._text else line.encode())

    def sync(self) -> None:
        """Flush everything to the operating system, and to the disk if the file was opened here."""
        self._file.flush()
        if self._path is not None:
            os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is not None:
            try:
                self._file.close()
            finally:
                if error is not None:
                    os.unlink(self._path)


class DumpReader:
    """Reads a dump from a path or a file object; use it in a ``with`` statement."""

    def __init__(self, source: DumpFile) -> None:
        self._path = _path_of(source, "readline")
        self._file: Any = source if self._path is None else _open(self._path, "rb")
        self._lines = 0

    def rewind(self, position: int) -> None:
        """Read again from the beginning of the dump; only for a file that can seek."""
        self._file.seek(position)
        self._lines = 0

    def read(self) -> list[str | bytes]:
        """Return the next lines, about 1 MiB; an empty list at the end."""
        lines: list[str | bytes] = []
        size = 0
        while size < CHUNK_BYTES:
            self._lines += 1
            try:
                line: str | bytes = self._file.readline(LONGEST_LINE)
            except UnicodeDecodeError as error:
                raise self._malformed("no text in UTF-8") from error
            if len(line) == LONGEST_LINE:
                raise self._malformed("longer than any line of a dump")
            if not line:
                break
            lines.append(line)
            size += len(line)
        return lines

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._path is not None:
            self._file.close()

    def _malformed(self, reason: str) -> DecodeError:
        return DecodeError(
            "a line of the dump cannot be read",
            reason=f"line {self._lines}: {reason}",
            hint="The file is damaged, or no dump of kv.dump(). Nothing of it was kept.",
        )


@contextmanager
def readable_twice(file: DumpFile) -> Generator[tuple[DumpFile, int]]:
    """Yield a file that can seek, and the position of its beginning; a stream is first copied to a temporary file."""
    given: Any = file
    if isinstance(file, str | os.PathLike) or not callable(getattr(given, "readline", None)):
        yield file, 0  # a path, or an argument that the reader refuses
    elif getattr(given, "seekable", lambda: False)():
        yield file, given.tell()
    else:
        with tempfile.TemporaryFile() as copy:
            while chunk := given.read(CHUNK_BYTES):
                copy.write(chunk.encode() if isinstance(chunk, str) else chunk)
            copy.seek(0)
            yield copy, 0


class DeferredLines:
    """Lines in a temporary file; ``close`` removes it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by ``close``
        self.count = 0

    def write(self, lines: Iterable[str | bytes]) -> None:
        """Append lines."""
        for line in lines:
            self._file.write(line.encode() if isinstance(line, str) else line)
            self.count += 1

    def reader(self) -> DumpReader:
        """Return a reader of all lines."""
        self._file.seek(0)
        return DumpReader(self._file)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()


def _path_of(given: object, method: str) -> str | None:
    """Return the path, or None for a file object."""
    if isinstance(given, str | os.PathLike):
        path = os.fspath(cast("str | os.PathLike[str]", given))
        require_file_name("file", path)
        return os.path.abspath(path)
    if not callable(getattr(given, method, None)):
        raise InvalidArgumentError(
            "this is neither a path nor a file object",
            argument="file",
            value=given,
            hint="Give a path, or a file that is open in text or binary mode.",
        )
    return None


def _open(path: str, mode: str, rights: int = 0) -> IO[Any]:
    try:
        return open(path, mode, opener=lambda name, flags: os.open(name, flags, rights))
    except (OSError, ValueError) as error:
        raise EngineError(
            "the file of the dump cannot be opened",
            reason=f"{path}: {getattr(error, 'strerror', error)}",
            hint="Check the path." if "r" in mode else "Check the path; a dump never overwrites a file.",
        ) from error


def backup_path(form: StoreFormat, path: object) -> str:
    """Return the path of a backup as text."""
    if form.root:
        raise UnsupportedError(
            "a part of a store cannot be backed up separately",
            hint="Use dump() and load(), which stay within the part, or back up the whole store.",
        )
    return path_text(path)


def path_text(path: object) -> str:
    """Return the path of a file as text. Raises InvalidArgumentError."""
    text = os.fspath(cast("str | os.PathLike[str]", path)) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text:
        raise InvalidArgumentError("this is not a path", argument="path", value=path, hint="Give a str or a Path.")
    require_file_name("path", text)
    return text
