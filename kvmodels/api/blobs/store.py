"""The blobs of one database: opened, downloaded, and swept in the background.

Rules of this module: nothing here runs a flow or depends on an event loop; the functions that it is given do.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from kvmodels.api.blobs.downloads import BlobDownload
from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.blobs.reading import read_chunks
from kvmodels.flows.blobs.sweep import sweep_blobs
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow
from kvmodels.schema.blobs.files import AT_ONCE, OpenBlob
from kvmodels.schema.blobs.stored import StoredBlob

SWEEP_EVERY_S: Final = 3_600
"""Seconds between two sweeps in the background."""

SWEPT_AT_ONCE: Final = 1_000
_HOW: Final = {True: "await blob.adownload_to(path)", False: "blob.download_to(path)"}


class BlobStore:
    """Opens the blobs of one database.

    Attributes:
        is_async: whether reads are coroutines.
    """

    def __init__(
        self,
        run: Callable[[Flow[list[bytes]]], Any],
        *,
        is_async: bool,
        start: Callable[[Flow[int]], object],
        in_thread: Callable[..., Any],
    ) -> None:
        self.is_async = is_async
        self._run = run
        self._start = start
        self._in_thread = in_thread
        self._swept: float | None = None

    def wrote(self, context: Context) -> None:
        """Sweep in the background if the process has written blobs for an hour since the last time."""
        time = context.monotonic()
        before = self._swept
        if before is None or time - before >= SWEEP_EVERY_S:
            self._swept = time
            if before is not None:
                self._start(sweep_blobs(context, SWEPT_AT_ONCE))

    def open(self, blob: StoredBlob, /) -> OpenBlob:
        """Return the content as a file, in a block."""
        return OpenBlob(self._fetch, blob, is_async=self.is_async)

    def download(self, blob: StoredBlob, path: str | Path, overwrite: bool, /) -> Path:
        """Write the content to a file."""
        self._require(False)
        with closing(BlobDownload(path, overwrite)) as target, self.open(blob) as file:
            while piece := file.read(AT_ONCE):
                target.write(piece)
            target.publish()
        return target.path

    async def adownload(self, blob: StoredBlob, path: str | Path, overwrite: bool, /) -> Path:
        """Write the content to a file, in threads."""
        self._require(True)
        target = BlobDownload(path, overwrite)  # here, so that a cancelled task leaves no file
        try:
            async with self.open(blob) as file:
                while piece := await file.read(AT_ONCE):
                    await self._in_thread(target.write, piece)
            await self._in_thread(target.publish)
        finally:
            target.close()
        return target.path

    def _fetch(self, blob: StoredBlob, first: int, count: int) -> Any:
        return self._run(read_chunks(blob, first, count))

    def _require(self, is_async: bool) -> None:
        if self.is_async is not is_async:
            raise InvalidArgumentError(
                "a blob was downloaded in the way of the other kind of database",
                argument="path",
                value=_HOW[is_async],
                hint=f"Write '{_HOW[self.is_async]}'.",
            )
