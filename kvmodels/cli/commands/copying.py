"""``dump``, ``load``, ``backup``, ``restore`` and ``copy``: move data between stores, and to and from Deno KV.

Rules of this module: ``-`` is stdin or stdout. A file is opened before the store, so that a misspelt name creates no
store. Nothing overwrites a file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Literal

import typer

from kvmodels.api._sync.kv import Kv, open_kv
from kvmodels.cli.command_line import CommandLine
from kvmodels.cli.failures import FOUND, CommandError
from kvmodels.cli.output import ReportProgress
from kvmodels.cli.store import open_store
from kvmodels.flows.transfer.load import LoadResult

Format = Annotated[
    Literal["kvmodels", "deno"],
    typer.Option("--format", help="deno: the lines of Deno's package @deno/kv-utils."),
]
OnConflict = Annotated[
    Literal["error", "ignore", "update"] | None,
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


def dump(
    line: CommandLine,
    *,
    models: DumpedModels = None,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="A new file; - is stdout.")] = "-",
    format: Format = "kvmodels",
) -> None:
    """Write the store as lines of JSON.

    It is one snapshot; readers and writers may stay. With models, only their records are written, without index
    entries; load --into-used loads them.
    """
    target = typer.get_binary_stream("stdout") if output == STANDARD_STREAM else output
    with line.open() as store, line.output.progress() as progress:
        told = _told(progress, "dump")
        if models:
            count = store.db.dump(target, *store.chosen(models), format=format, progress=told)
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
) -> None:
    """Load a dump into the store.

    The store must be empty, and the dump is loaded completely or not at all. --into-used loads into a store that holds
    data: it examines every line before the first write, and then writes records with their index entries, in batches.
    It needs the model classes for records. Exit code 1: keys exist already, or records were left out.
    """
    if not into_used and (models or on_conflict):
        raise CommandError("MODEL and --on-conflict need --into-used")
    if into_used and restart:
        raise CommandError("--restart is for a load into an empty store", hint="Leave out one of the two options.")
    with _opened(file) as source, line.open(writes=True, creates=True) as store, line.output.progress() as progress:
        told = _told(progress, "load")
        if not into_used:
            result = LoadResult(store.kv.load(source, format=format, restart=restart, progress=told))
        else:
            chosen = store.chosen(models) if models else []
            result = store.db.load(source, *chosen, on_conflict=on_conflict or "error", format=format, progress=told)
    _report(line, result)


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
    with open_kv(path, readonly=True) as source, line.open(writes=True, creates=True) as target:
        count = _copy(line, source, target.kv)
    line.output.message(f"{_counted(count)} restored")


def copy(
    line: CommandLine,
    source: Annotated[str, typer.Argument(metavar="SRC", help="The database to read: a URL or module:object.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="The database to fill, which must be empty.")],
) -> None:
    """Copy a whole store into an empty one.

    Both may have any engine. The store is copied completely or not at all; versionstamps are new. Readers and writers
    of SRC may stay; nothing may write to DST.
    """
    with (
        open_store(source, readonly=line.readonly, writes=False) as from_store,
        open_store(target, readonly=line.readonly, writes=True, creates=True) as to_store,
    ):
        count = _copy(line, from_store.kv, to_store.kv)
    line.output.message(f"{_counted(count)} copied")


def _copy(line: CommandLine, source: Kv, target: Kv) -> int:
    # Through a file, so that neither store waits for the other one, and a failed dump loads nothing.
    with tempfile.TemporaryFile() as file, line.output.progress() as progress:
        source.dump(file, progress=_told(progress, "dump"))
        file.seek(0)
        return target.load(file, progress=_told(progress, "load"))


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


def _report(line: CommandLine, result: LoadResult) -> None:
    skipped = f", {result.skipped:,} skipped" if result.skipped else ""
    for failure in result.failed:
        line.output.message(failure.message)
    data = {"written": result.written, "skipped": result.skipped, "failures": result.failures}
    failures = f", {result.failures:,} left out" if result.failures else ""
    line.output.report(f"{_counted(result.written)} loaded{skipped}{failures}", data)
    if result.failures:
        raise typer.Exit(FOUND)


def _told(report: ReportProgress, label: str) -> Callable[[int], None]:
    return lambda count: report(label, count, None)


def _counted(count: int) -> str:
    return f"{count:,} key{'' if count == 1 else 's'}"
