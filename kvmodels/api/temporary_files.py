"""Temporary files of a load: a copy of a stream that is read twice, and lines that are read after all others.

Rules of this module: every file is removed when it is closed, or when the process ends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

from kvmodels.api.dump_files import CHUNK_BYTES, DumpFile, DumpReader


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
