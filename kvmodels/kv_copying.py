"""Backup, dump and load through the key-value API, synchronous.

Rules of this module: the flows of ``kvmodels.flows.dumping`` and ``loading`` decide, here are the files. Names,
signatures and behaviour are those of ``kvmodels.kv_copying_async``, which a test compares.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import cast

from kvmodels.drivers import run
from kvmodels.errors import InvalidArgumentError, KvModelsError, UnsupportedError
from kvmodels.flows import dumping as dumping_flows
from kvmodels.flows import loading as loading_flows
from kvmodels.flows.store_format import StoreFormat
from kvmodels.kv_copying_files import DumpFile, DumpReader, DumpWriter
from kvmodels.kv_reading import KvReading
from kvmodels.ulid import ULID

__all__ = ["KvCopying", "backup_path"]


class KvCopying(KvReading):
    """Copies of a store."""

    __slots__ = ()

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the store into a new SQLite file, beside readers and writers.

        The copy is one snapshot with its versionstamps and deadlines; open it like any other store. The file
        appears under its name when it is whole and on disk. Cost: one pass over the store.

        Args:
            path: where no file is; its folder must exist.

        Raises:
            EngineError: there is a file already, or it cannot be written; StorageFullError: no room.
            UnsupportedError: this is a part of a store; use ``dump``.
            InvalidArgumentError: this is no path.

        Example:
            >>> import tempfile
            >>> from kvmodels import open_kv
            >>> with tempfile.TemporaryDirectory() as folder, open_kv() as kv:
            ...     _ = kv.set(("users", 1), "Ada")
            ...     kv.backup(f"{folder}/copy.db")
            ...     with open_kv(f"{folder}/copy.db") as copy:
            ...         copy.get(("users", 1)).value
            'Ada'
        """
        self._engine.backup(backup_path(self._form, path))

    def dump(self, file: DumpFile) -> int:
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
            >>> from kvmodels import open_kv
            >>> with open_kv() as kv:
            ...     _ = kv.set(("users", 1), {"name": "Ada", "logins": 2**64})
            ...     file = io.StringIO()
            ...     kv.dump(file)
            1
            >>> print(file.getvalue().splitlines()[1])
            {"key":["users",1],"value":{"name":"Ada","logins":{"$int":"0x10000000000000000"}}}
        """
        dumping = dumping_flows.Dumping(self._form)
        with closing(self._engine.snapshot()) as state, DumpWriter(file) as writer:
            writer.write(run(self._engine, dumping.begin(), snapshot=state))
            while rows := run(self._engine, dumping.rows(self._limits), snapshot=state):
                writer.write(dumping.lines(rows))
            writer.write([dumping.end()])
            writer.sync()
        return dumping.keys

    def load(self, file: DumpFile, *, restart: bool = False) -> int:
        """Load what ``dump`` wrote into this store, which must be empty: all of it, or nothing.

        Values and deadlines are those of the dump, versionstamps are new. Indexes that were being built are not
        loaded: ``db.build_indexes()`` builds them. Nothing else may write meanwhile; models cannot be used until it
        is done. Memory holds about 1 MiB of it, or its largest value.

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
            >>> from kvmodels import open_kv
            >>> with open_kv() as one, open_kv() as other:
            ...     _ = one.set(("users", 1), {"name": "Ada"}, expire_in=60)
            ...     file = io.StringIO()
            ...     _ = one.dump(file)
            ...     _ = file.seek(0)
            ...     other.load(file), other.get(("users", 1)).value
            (1, {'name': 'Ada'})
        """
        loading = loading_flows.Loading(self._form, self._limits, str(ULID()))
        with DumpReader(file) as reader:
            try:
                run(self._engine, loading.begin(restart=restart))
                while lines := reader.read():
                    for mutations in loading.take(lines):
                        run(self._engine, loading.store(mutations))
                return run(self._engine, loading.finish())
            except BaseException as error:
                # Also for an interrupt: half of a dump is no store.
                try:
                    run(self._engine, loading.abandon())
                except KvModelsError as failure:
                    error.add_note(f"what was loaded could not be removed: {failure}")
                raise


def backup_path(form: StoreFormat, path: object) -> str:
    """The path of a backup as text.

    Raises:
        UnsupportedError: the store is a confined part of one, and the file would hold the rest too.
        InvalidArgumentError: it is no path.
    """
    if form.root:
        raise UnsupportedError(
            "a part of a store has no backup of its own",
            hint="Use dump() and load(), which stay within the part, or back up the whole store.",
        )
    text = os.fspath(cast("str | os.PathLike[str]", path)) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgumentError("this is not a path", argument="path", value=path, hint="Give a str or a Path.")
    return text
