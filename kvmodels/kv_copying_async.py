"""Backup, dump and load through the key-value API, asynchronous.

Rules of this module: the flows of ``kvmodels.flows.dumping`` and ``loading`` decide, here are the files, which are read
and written in threads. Names, signatures and behaviour are those of ``kvmodels.kv_copying``, which a test compares.
"""

from __future__ import annotations

import asyncio
import os

from kvmodels.drivers_async import apin, arelease, arun
from kvmodels.engines.base import Engine
from kvmodels.errors import KvModelsError
from kvmodels.flows import dumping as dumping_flows
from kvmodels.flows import loading as loading_flows
from kvmodels.kv_copying import backup_path
from kvmodels.kv_copying_files import DumpFile, DumpReader, DumpWriter
from kvmodels.kv_reading_async import AsyncKvReading, opened
from kvmodels.ulid import ULID

__all__ = ["AsyncKvCopying"]


class AsyncKvCopying(AsyncKvReading):
    """Copies of a store."""

    __slots__ = ()

    async def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the store into a new SQLite file, beside readers and writers.

        The copy is one snapshot with its versionstamps and deadlines; open it like any other store. The file
        appears under its name when it is whole and on disk. Cost: one pass over the store, in a thread, which a
        cancelled task leaves behind to end by itself.

        Args:
            path: where no file is; its folder must exist.

        Raises:
            EngineError: there is a file already, or it cannot be written; StorageFullError: no room.
            UnsupportedError: this is a part of a store; use ``dump``.
            InvalidArgumentError: this is no path.

        Example:
            >>> import tempfile
            >>> from kvmodels import open_async_kv
            >>> async def main(folder):
            ...     async with open_async_kv() as kv:
            ...         await kv.set(("users", 1), "Ada")
            ...         await kv.backup(f"{folder}/copy.db")
            ...     async with open_async_kv(f"{folder}/copy.db") as copy:
            ...         return (await copy.get(("users", 1))).value
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     asyncio.run(main(folder))
            'Ada'
        """
        target = backup_path(self._form, path)
        engine = await opened(self._opening)
        await asyncio.to_thread(engine.backup, target)

    async def dump(self, file: DumpFile) -> int:
        """Write one snapshot of all keys as lines of JSON that every engine and codec loads, with all types.

        Keys of models and of the library are included, expired ones are not. Memory holds some MiB of it, 100 keys
        at most. The snapshot is kept until the end: for a large store raise ``snapshot_max_age`` (60 seconds).

        Args:
            file: a path where no file is, or a file object that is open for writing text (UTF-8) or bytes.

        Returns:
            How many keys there were.

        Raises:
            EngineError: the path cannot be created.
            DecodeError: a stored value cannot be read; its key is named.
            SnapshotExpiredError: it took longer than the engine keeps a snapshot.
            InvalidArgumentError: neither a path nor a file object.

        Example:
            >>> import io
            >>> from kvmodels import open_async_kv
            >>> async def main():
            ...     async with open_async_kv() as kv:
            ...         await kv.set(("users", 1), {"name": "Ada"})
            ...         return await kv.dump(io.BytesIO())
            >>> asyncio.run(main())
            1
        """
        engine = await opened(self._opening)
        limits = self._form.limits_within(engine.limits)
        dumping = dumping_flows.Dumping(self._form)
        state = await apin(engine)
        try:
            with DumpWriter(file) as writer:
                writer.write(await arun(engine, dumping.begin(), snapshot=state))
                while rows := await arun(engine, dumping.rows(limits), snapshot=state):
                    await asyncio.to_thread(writer.write, dumping.lines(rows))
                writer.write([dumping.end()])
                await asyncio.to_thread(writer.sync)
        finally:
            await arelease(engine, state)
        return dumping.keys

    async def load(self, file: DumpFile, *, restart: bool = False) -> int:
        """Load what ``dump`` wrote into this store, which must be empty: all of it, or nothing.

        Values and deadlines are those of the dump, versionstamps are new. Indexes that were being built are not
        loaded: ``db.build_indexes()`` builds them. Nothing else may write meanwhile; models cannot be used until it
        is done. Memory holds about 1 MiB of it, or its largest value. A cancelled task removes what it has loaded.

        Args:
            file: a path, or a file object that is open for reading text (UTF-8) or bytes.
            restart: first remove what a load has left that was killed; without it, such a store is refused.

        Returns:
            How many keys were written.

        Raises:
            EngineError: the store is not empty, or the path cannot be opened.
            DecodeError: the file is damaged, cut off, or no dump; the line is named, and nothing is left.
            InvalidValueError, LimitExceededError: the store cannot hold a value, such as one that its codec lacks.
            SchemaMismatchError: the dump is of a newer format.
            ReadOnlyError, StorageFullError: nothing can be written.

        Example:
            >>> import io
            >>> from kvmodels import open_async_kv
            >>> async def main():
            ...     async with open_async_kv() as one, open_async_kv() as other:
            ...         await one.set(("users", 1), {"name": "Ada"}, expire_in=60)
            ...         file = io.BytesIO()
            ...         await one.dump(file)
            ...         file.seek(0)
            ...         return await other.load(file), (await other.get(("users", 1))).value
            >>> asyncio.run(main())
            (1, {'name': 'Ada'})
        """
        engine = await opened(self._opening)
        loading = loading_flows.Loading(self._form, self._form.limits_within(engine.limits), str(ULID()))
        with DumpReader(file) as reader:
            try:
                await arun(engine, loading.begin(restart=restart))
                while lines := await asyncio.to_thread(reader.read):
                    for mutations in await asyncio.to_thread(loading.take, lines):
                        await arun(engine, loading.store(mutations))
                return await arun(engine, loading.finish())
            except BaseException as error:
                # Also for a cancelled task: half of a dump is no store.
                await _abandon(engine, loading, error)
                raise


async def _abandon(engine: Engine, loading: loading_flows.Loading, error: BaseException) -> None:
    try:
        await arun(engine, loading.abandon())
    except KvModelsError as failure:
        error.add_note(f"what was loaded could not be removed: {failure}")
