"""``dump``, ``load``, ``backup``, ``restore`` and ``copy``: move data between stores, and to and from Deno KV.

Rules of this module: ``-`` is stdin or stdout. A file is opened before the store, so that a misspelt name creates no
store. Nothing overwrites a file.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Literal, cast

import typer

from kvmodels.api._sync.kv import Kv, open_kv
from kvmodels.api.deno_file import SQLITE_MAGIC
from kvmodels.api.dump_files import LONGEST_LINE
from kvmodels.api.progress import bars
from kvmodels.cli.command_line import CommandLine
from kvmodels.cli.failures import FOUND, CommandError
from kvmodels.cli.store import OpenStore, open_store, open_unfinished
from kvmodels.flows.kv.dump import DAMAGED
from kvmodels.flows.kv.dump_frame import DUMP_FORMAT, RECORDS_FORMAT, STORE_FORMAT, DumpFrame
from kvmodels.flows.transfer.load import LoadResult
from kvmodels.schema.describe.describe import describe

DumpFormat = Literal["kvmodels", "deno"]
ConflictRule = Literal["error", "ignore", "update"]
Format = Annotated[
    DumpFormat,
    typer.Option("--format", help="deno: the lines of Deno's package @deno/kv-utils."),
]
CodecName = Annotated[
    Literal["msgpack", "v8"] | None,
    typer.Option("--codec", help="Codec of a new store; v8: that of Deno. Default: msgpack.", show_default=False),
]
OnConflict = Annotated[
    ConflictRule | None,
    typer.Option("--on-conflict", help="With --into-used: refuse, keep or replace keys that exist. Default: error."),
]
DumpedModels = Annotated[
    list[str] | None,
    typer.Argument(metavar="MODEL", help="Collections or class names; the whole store if absent.", show_default=False),
]
LoadedModels = Annotated[
    list[str] | None,
    typer.Argument(metavar="MODEL", help="With --into-used: load only these models.", show_default=False),
]
STANDARD_STREAM = "-"
LAST_LINE = 100
"""The maximum number of bytes in the last line of a dump."""


def dump(
    line: CommandLine,
    *,
    models: DumpedModels = None,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="A new file; - is stdout.")] = "-",
    format: Format = "kvmodels",
    history: Annotated[bool, typer.Option("--history", help="With models: also their old versions.")] = False,
    no_blobs: Annotated[bool, typer.Option("--no-blobs", help="With models: without the content of files.")] = False,
) -> None:
    """Write the store as lines of JSON.

    It is one snapshot; readers and writers may stay. It has all tenants, with --tenant only one. With models, only
    their records are written, without index entries; load --into-used loads them.
    """
    target = typer.get_binary_stream("stdout") if output == STANDARD_STREAM else output
    with line.open() as store, line.output.progress() as progress:
        told = _told(progress, "dump", _number_of_keys(line, store, models))
        if models:
            chosen = store.chosen(models)
            count = store.db.dump(target, *chosen, format=format, history=history, blobs=not no_blobs, progress=told)
        else:
            count = store.kv.dump(target, format=format, progress=told)
    line.output.message(f"{_counted(count)} dumped")


def load(
    line: CommandLine,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A dump; - is stdin.")],
    models: LoadedModels = None,
    into_used: Annotated[
        bool, typer.Option("--into-used", help="Load into a store that holds data, record by record.")
    ] = False,
    on_conflict: OnConflict = None,
    format: Format = "kvmodels",
    restart: Annotated[
        bool, typer.Option("--restart", help="First remove the keys of a load that was killed.")
    ] = False,
    codec: CodecName = None,
) -> None:
    """Load a dump into the store.

    The store must be empty, and the dump is loaded completely or not at all. With --tenant, the tenant must exist and
    be empty. With --format deno, FILE may also be the SQLite file of a Deno program. --into-used loads into a store
    that holds data: it examines every line before the first write, and then writes records with their index entries,
    in batches. It needs the model classes for records. Exit code 1: keys exist already, or records were left out.
    """
    if not into_used and (models or on_conflict):
        raise CommandError("MODEL and --on-conflict need --into-used")
    if into_used and restart:
        raise CommandError("--restart is for a load into an empty store", hint="Leave out one of the two options.")
    formats = () if format == "deno" else (DUMP_FORMAT, RECORDS_FORMAT) if into_used else (DUMP_FORMAT, STORE_FORMAT)
    with _opened(file) as opened, _examined(opened, formats) as source:
        if into_used:
            result = _loaded_into_used(line, source, models or (), on_conflict or "error", format)
        elif restart and line.tenant is None:
            with open_unfinished(line.database, readonly=line.readonly, codec=codec) as kv:
                result = _loaded(line, kv, file, source, format, restart=True)
        else:
            with line.open(writes=True, creates=True, codec=codec) as store:
                result = _loaded(line, store.kv, file, source, format, restart=restart)
    _report(line, result)


def _loaded_into_used(
    line: CommandLine, source: IO[bytes], models: Sequence[str], on_conflict: ConflictRule, format: DumpFormat
) -> LoadResult:
    with line.open(writes=True, creates=True) as store, line.output.progress() as progress:
        if format == "deno" and _is_sqlite(source):
            raise CommandError(
                "the file of a Deno program is loaded into an empty store only",
                hint="Load it into a new store, dump that with --format deno, and load the dump.",
            )
        told = _told(progress, "load", _number_at_end(source))
        chosen = store.chosen(models) if models else []
        return store.db.load(source, *chosen, on_conflict=on_conflict, format=format, progress=told)


def _loaded(
    line: CommandLine, kv: Kv, file: str, source: IO[bytes], format: DumpFormat, *, restart: bool
) -> LoadResult:
    with line.output.progress() as progress:
        told = _told(progress, "load", _number_at_end(source))
        if format == "deno" and _is_sqlite(source):
            return LoadResult(kv.load_deno(file, restart=restart, progress=told))
        return LoadResult(kv.load(source, format=format, restart=restart, progress=told))


def backup(line: CommandLine, path: Annotated[str, typer.Argument(metavar="PATH", help="The new file.")]) -> None:
    """Copy the store into a new SQLite file.

    Readers and writers may stay. The file opens like any other store.
    """
    with line.open() as store:
        store.kv.backup(path)
    line.output.message(f"{path} is complete")


def restore(line: CommandLine, path: Annotated[str, typer.Argument(metavar="PATH", help="A backup.")]) -> None:
    """Load a backup into an empty store.

    The store may have any engine. Versionstamps are new. To keep them, use the file of the backup itself as the store.
    """
    if not Path(path).exists():
        raise CommandError(f"no backup at {path}")
    with open_kv(path, readonly=True) as source, line.open(writes=True, creates=True) as target:
        count = _copy(line, source, target.kv)
    line.output.message(f"{_counted(count)} restored")


def copy(
    line: CommandLine,
    source: Annotated[str, typer.Argument(metavar="SRC", help="The database to read: a URL or module:object.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="The database to fill, which must be empty.")],
    *,
    codec: CodecName = None,
) -> None:
    """Copy a whole store into an empty one.

    Both may have any engine. The store is copied completely or not at all; versionstamps are new. Readers and writers
    of SRC may stay; nothing may write to DST.
    """
    if source == target:
        raise CommandError("SRC and DST are the same store", hint="Name an empty store as DST, or one that is absent.")
    with (
        open_store(source, readonly=line.readonly, writes=False) as from_store,
        open_store(target, readonly=line.readonly, writes=True, creates=True, codec=codec) as to_store,
    ):
        count = _copy(line, from_store.kv, to_store.kv)
    line.output.message(f"{_counted(count)} copied")


def _copy(line: CommandLine, source: Kv, target: Kv) -> int:
    # Through a file, so that neither store waits for the other one, and a failed dump loads nothing.
    with tempfile.TemporaryFile() as file, line.output.progress() as progress:
        total = source.count(()) if line.output.shows_progress else None
        count = source.dump(file, progress=_told(progress, "dump", total))
        file.seek(0)
        return target.load(file, progress=_told(progress, "load", count))


@contextmanager
def _opened(name: str) -> Generator[IO[bytes]]:
    if name == STANDARD_STREAM:
        yield typer.get_binary_stream("stdin")
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise CommandError(f"cannot open {name}: {error.strerror}") from error
    with file:
        yield file


@contextmanager
def _examined(source: IO[bytes], formats: tuple[int, ...]) -> Generator[IO[bytes]]:
    """Yield a dump whose first line was read, so that a file of another kind creates no store. Raises DecodeError."""
    if _is_sqlite(source):
        yield source
        return
    start = source.tell() if source.seekable() else None
    first = source.readline(LONGEST_LINE)
    if first or formats:
        DumpFrame(formats, DAMAGED).require_beginning(first)
    if start is not None:
        source.seek(start)
        yield source
    else:
        yield cast("IO[bytes]", _Resumed(first, source))


class _Resumed:
    """A stream whose first line was read already."""

    def __init__(self, first: bytes, rest: IO[bytes]) -> None:
        self._first = first
        self._rest = rest

    def seekable(self) -> bool:
        return False

    def readline(self, size: int = -1) -> bytes:
        return self._taken() or self._rest.readline(size)

    def read(self, size: int = -1) -> bytes:
        return self._taken() or self._rest.read(size)

    def _taken(self) -> bytes:
        first, self._first = self._first, b""
        return first


def _report(line: CommandLine, result: LoadResult) -> None:
    skipped = f", {result.skipped:,} skipped" if result.skipped else ""
    for failure in result.failed:
        line.output.message(failure.message)
    data = {"written": result.written, "skipped": result.skipped, "failures": result.failures}
    if result.versions or result.versions_left_out:
        data |= {"versions": result.versions, "versions_left_out": result.versions_left_out}
        skipped += f", {result.versions:,} rows of histories loaded, {result.versions_left_out:,} left out"
    failures = f", {result.failures:,} left out" if result.failures else ""
    line.output.report(f"{_counted(result.written)} loaded{skipped}{failures}", data)
    if result.failures:
        raise typer.Exit(FOUND)


def _told(report: bars.Report, label: str, total: int | None) -> Callable[[int], None]:
    return lambda count: report(label, count, total if total is None else max(total, count))


def _number_of_keys(line: CommandLine, store: OpenStore, models: list[str] | None) -> int | None:
    """Return the approximate number of keys of a dump; None without a progress bar."""
    if not line.output.shows_progress:
        return None
    if not models:
        return store.kv.count(())
    return sum(store.kv.count((describe(model).collection,)) for model in store.chosen(models))


def _is_sqlite(source: IO[bytes]) -> bool:
    """Return whether a file begins like one of SQLite."""
    if not source.seekable():
        return False
    start = source.tell()
    found = source.read(len(SQLITE_MAGIC))
    source.seek(start)
    return found == SQLITE_MAGIC


def _number_at_end(source: IO[bytes]) -> int | None:
    """Return the number of keys in the last line of a dump; None for a stream and for dumps without this line."""
    if not source.seekable():
        return None
    start = source.tell()
    source.seek(max(start, source.seek(0, os.SEEK_END) - LAST_LINE))
    end = source.read()
    source.seek(start)
    try:
        keys = json.loads(end.strip().rpartition(b"\n")[2])["end"]["keys"]
    except (ValueError, LookupError, TypeError):
        return None
    return keys if isinstance(keys, int) else None


def _counted(count: int) -> str:
    return f"{count:,} key{'' if count == 1 else 's'}"
