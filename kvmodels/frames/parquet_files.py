"""Parquet files, written batch by batch.

Rules of this module: nothing overwrites a file, and an unfinished file is removed.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self, cast

from kvmodels._support.naming import short_repr
from kvmodels.engines.shared.file_checks import require_file_name
from kvmodels.errors import EngineError, InvalidArgumentError
from kvmodels.frames.layouts import TableLayout
from kvmodels.schema.arrow.packages import parquet

_OWNER_ONLY: Final = 0o600
"""The rights of a new file, which holds the data of a store that others may not be allowed to read."""

ParquetFile = str | os.PathLike[str] | IO[bytes]
"""The location of a Parquet file: a new path, or a file object in binary mode."""


class ParquetOutput:
    """Writes batches of a table to a new file; leaving its ``with`` block removes an unfinished one.

    Attributes:
        rows: the number of rows so far.
    """

    def __init__(self, target: ParquetFile, layout: TableLayout) -> None:
        self.rows = 0
        schema, writer = layout.schema, parquet.ParquetWriter  # before the file is made: the package may be missing
        self._path = Path(target) if isinstance(target, str | os.PathLike) else None
        self._file: Any = _required(target) if self._path is None else _opened(self._path)
        self._writer = writer(self._file, schema, compression="zstd")

    def write(self, batch: Any) -> None:
        """Append a batch, as one group of rows."""
        self._writer.write_batch(batch, row_group_size=max(1, batch.num_rows))
        self.rows += batch.num_rows

    def close(self) -> None:
        """Write the end of the file."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._writer.is_open = False  # its finalizer would write the end, as if the file were complete
        if self._path is None:
            return
        self._file.close()
        if error is not None:
            self._path.unlink(missing_ok=True)


def _required(file: object) -> IO[bytes]:
    if isinstance(file, type) or not callable(getattr(file, "write", None)):
        raise InvalidArgumentError(
            "this is neither a path nor a file",
            argument="file",
            value=short_repr(file),
            hint="Give a new path, or a file object that is open in binary mode.",
        )
    return cast("IO[bytes]", file)


def _opened(path: Path) -> IO[bytes]:
    require_file_name("path", str(path))
    try:
        return open(path, "xb", opener=lambda name, flags: os.open(name, flags, _OWNER_ONLY))
    except (OSError, ValueError) as error:
        raise EngineError(
            "the Parquet file cannot be written",
            reason=f"{path}: {getattr(error, 'strerror', error)}",
            hint="Check the path; a file is never overwritten.",
        ) from error
