"""``tenants``, ``tenants create``, ``tenants copy`` and ``tenants remove``.

Rules of this module: a list reads the rows of tenants only.
"""

from __future__ import annotations

from typing import Annotated

import typer

from kvmodels.cli.command_line import CommandLine, Yes
from kvmodels.cli.commands.schema import Throttle
from kvmodels.cli.failures import FOUND, CommandError
from kvmodels.cli.output import of_schema_change
from kvmodels.cli.store import open_store

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tenant.")]


def tenants(
    line: CommandLine,
    *,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only names that begin with it.")] = "",
    after: Annotated[str | None, typer.Option("--after", metavar="NAME", help="Only names after this one.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="List at most this many.")] = 1_000,
) -> None:
    """List the tenants of the store.

    They are in the order of their names. A tenant whose state is removing is being removed, or its removal was
    interrupted; tenants remove resumes it.
    """
    with line.open() as store:
        found = store.db.tenants(prefix=prefix, after=after, limit=limit)
        rows = [{"name": one.name, "state": one.state} for one in found]
        line.output.listing(("name", "state"), rows, none="the store has no tenants")
        if len(found) == limit:
            line.output.message(f"more: --after {found[-1].name}")


def create(line: CommandLine, *, name: Name) -> None:
    """Create a tenant.

    Exit code 1: it exists.
    """
    with line.open(writes=True) as store:
        if not store.db.create_tenant(name):
            raise CommandError(f"the tenant {name} exists", exit_code=FOUND)
        line.output.message(f"created {name}")


def copy(
    line: CommandLine,
    *,
    name: Name,
    new: Annotated[
        str | None,
        typer.Argument(metavar="NEW", help="The name of the copy. With --to, it may be absent: DST becomes the copy."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="DST", help="The database of the copy: a URL or module:object.")
    ] = None,
) -> None:
    """Copy a tenant.

    The copy is a tenant of the same store, of DST, or without NEW the empty store DST itself. It is one snapshot;
    readers and writers may stay. Versionstamps are new.
    """
    if new is None and to is None:
        raise CommandError("the copy has no name", hint="Give NEW, or with --to an empty store.")
    with line.open(writes=to is None) as store:
        if to is None:
            count = store.db.copy_tenant(name, as_=new)
        else:
            with open_store(to, readonly=line.readonly, writes=True, creates=True) as target:
                count = store.db.copy_tenant(name, as_=new, to=target.db)
    line.output.message(f"{count:,} key{'' if count == 1 else 's'} copied")


def remove(line: CommandLine, *, name: Name, throttle: Throttle = None, yes: Yes = False) -> None:
    """Remove a tenant with all its records and other keys.

    From the first commit on, nothing can be written in the tenant. An interrupted run is resumed by the next one. Exit
    code 1: there is no such tenant.
    """
    with line.open(writes=True) as store:
        line.confirm(f"Remove the tenant {name} with all its records and other keys?", yes=yes)
        with line.output.progress() as progress:
            removed = store.db.remove_tenant(name, progress=of_schema_change(progress), throttle=throttle)
        if not removed:
            raise CommandError(f"the store has no tenant {name}", exit_code=FOUND)
        line.output.message(f"removed {name}")
