"""``drop`` a collection that no program uses any more, and ``sweep`` the content of blobs that no record has.

Rules of this module: no model classes are needed, and none may declare a collection that is dropped.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from kvmodels.cli.command_line import CommandLine, Yes
from kvmodels.cli.commands.schema import Throttle
from kvmodels.cli.failures import FOUND, CommandError
from kvmodels.cli.output import of_schema_change

_AT_ONCE: Final = 1_000

Collection = Annotated[str, typer.Argument(metavar="COLLECTION", help="The collection, such as books.")]


def drop(line: CommandLine, *, name: Collection, throttle: Throttle = None, yes: Yes = False) -> None:
    """Drop a collection with all its records and indexes.

    No model may declare it, and no foreign key of another collection may refer to it. An interrupted run is resumed by
    the next one. Exit code 1: there is no such collection.
    """
    with line.open(writes=True) as store:
        line.confirm(f"Drop the collection {name} with all its records and indexes?", yes=yes)
        with line.output.progress() as progress:
            dropped = store.db.drop_collection(name, progress=of_schema_change(progress), throttle=throttle)
        if not dropped:
            raise CommandError(f"the store has no collection {name}", exit_code=FOUND)
        line.output.message(f"dropped {name}")


def sweep(
    line: CommandLine,
    *,
    limit: Annotated[
        int | None, typer.Option("--limit", "-l", min=1, help="Remove at most this many; by default all that are due.")
    ] = None,
) -> None:
    """Remove the content of files that no record has.

    Content without a record is kept for a day, and the content of old versions for as long as these. Run it each night.
    """
    with line.open(writes=True) as store:
        removed = store.db.sweep_blobs(limit or _AT_ONCE)
        while limit is None and (more := store.db.sweep_blobs(_AT_ONCE)):
            removed += more
        line.output.report(f"removed {removed:,} blob{'' if removed == 1 else 's'}", {"removed": removed})
