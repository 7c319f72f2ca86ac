"""Write the content of a blob to a file, which appears under its name when it is complete.

Rules of this module: a blocking call at a time; with an event loop each of them runs in a thread.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import IO, Final

from kvmodels._support.naming import short_repr
from kvmodels.engines.shared.file_checks import require_file_name
from kvmodels.errors import EngineError, InvalidArgumentError

_LONGEST: Final = 50
"""The characters of a name that its temporary file shows; each has up to 4 of the 255 bytes of a name."""


class BlobDownload:
    """A file that is written under a temporary name beside its path; ``close`` removes what was not published.

    Args:
        path: the path of the file.
        overwrite: whether it may replace a file.

    Raises:
        InvalidArgumentError: this is not a path, or ``overwrite`` is neither True nor False.
        EngineError: the file exists already, or cannot be written.
    """

    def __init__(self, path: str | Path, overwrite: bool) -> None:
        if overwrite is not True and overwrite is not False:
            raise InvalidArgumentError(
                "this is neither True nor False",
                argument="overwrite",
                value=type(overwrite).__name__,
                hint="Give overwrite=True to replace a file.",
            )
        self.path = _required(path)
        self._overwrite = overwrite
        if not overwrite and os.path.lexists(self.path):
            raise self._exists()
        try:
            number, self._part = tempfile.mkstemp(".part", f".{self.path.name[:_LONGEST]}.", self.path.parent)
        except OSError as error:
            raise self._failed(error) from error
        self._file: IO[bytes] = os.fdopen(number, "wb")

    def write(self, piece: bytes) -> None:
        """Append bytes."""
        try:
            self._file.write(piece)
        except OSError as error:
            raise self._failed(error) from error

    def publish(self) -> None:
        """Give the complete file its name."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            if self._overwrite:
                os.replace(self._part, self.path)
            else:
                self._rename()
        except FileExistsError as error:
            raise self._exists() from error
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Close the temporary file, and remove it if it is still there."""
        with contextlib.suppress(OSError):  # of a last write, which has failed before
            self._file.close()
        Path(self._part).unlink(missing_ok=True)

    def _rename(self) -> None:
        """Give the file its name unless a file has it. Raises OSError."""
        try:
            os.link(self._part, self.path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            if os.path.lexists(self.path):
                raise FileExistsError from None
            os.rename(self._part, self.path)

    def _exists(self) -> EngineError:
        return EngineError(
            "the file of a blob exists already",
            reason=str(self.path),
            hint="Give another path, or overwrite=True to replace it.",
        )

    def _failed(self, error: OSError) -> EngineError:
        return EngineError(
            "the file of a blob cannot be written",
            reason=f"{self.path}: {error.strerror}",
            hint="Check the path, its rights and the free space.",
        )


def _required(path: object) -> Path:
    name = str(path) if isinstance(path, str | Path) else None
    if not name:
        raise InvalidArgumentError(
            "this is not a path", argument="path", value=short_repr(path), hint="Give a str or a Path."
        )
    require_file_name("path", name)
    return Path(name)
