"""The options that every command has, before or after its name, and the object that hands them to the command.

Rules of this module: an option here means the same for every command. A command gets a ``CommandLine`` as its first
argument, opens the store through it and prints through it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Annotated

import typer

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels._support.visible import visible
from kvmodels.cli.failures import FOUND, CommandError
from kvmodels.cli.output import Output
from kvmodels.cli.store import NAME_A_STORE, OpenStore, open_store

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
"""The option of commands that call ``confirm``."""

Tenant = Annotated[
    str | None, typer.Option("--tenant", metavar="NAME", help="Work in this tenant of the store.", show_default=False)
]
"""The option of commands that work in one tenant; see ``add_command``. Others give it to ``CommandLine.open``."""

AllTenants = Annotated[bool, typer.Option("--all-tenants", help="Work in all tenants of the store, not in the store.")]
"""The option of commands that work in all tenants; see ``one_side``."""


def one_side(tenant: str | None, *, all_tenants: bool) -> None:
    """Refuse ``--tenant`` together with ``--all-tenants``. Raises CommandError."""
    if tenant is not None and all_tenants:
        raise CommandError("--tenant and --all-tenants exclude each other", hint="Leave one of them out.")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The common options of one command.

    Attributes:
        database: the value of ``--database``, or None.
        readonly: whether every write is refused.
        output: where the command prints.
        tenant: the value of ``--tenant`` of a command that is registered with this option, or None.
    """

    database: str | None
    readonly: bool
    output: Output
    tenant: str | None = None

    def open(
        self,
        *,
        writes: bool = False,
        creates: bool = False,
        codec: str | None = None,
        if_absent: str = NAME_A_STORE,
        tenant: str | None = None,
    ) -> AbstractContextManager[OpenStore]:
        """Open the store for the block of a ``with`` statement.

        Args:
            writes: whether the command writes; otherwise a store that is given as a URL is opened read-only.
            creates: whether the store may be created if it does not exist.
            codec: the codec of a store that is given as a URL; None for the one it was written with.
            if_absent: the hint for a path without a store.
            tenant: the tenant that the command is confined to, if it has an option of its own for it.

        Returns:
            A context manager, which closes the store.
        """
        return open_store(
            self.database,
            readonly=self.readonly,
            writes=writes,
            creates=creates,
            codec=codec,
            if_absent=if_absent,
            tenant=self.tenant if tenant is None else tenant,
        )

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before data is destroyed; the answer is read from the terminal, and ``--yes`` gives it in advance.

        Raises:
            CommandError: the answer was not yes, or stdin is not a terminal.
        """
        if yes:
            return
        if not typer.get_text_stream("stdin").isatty():
            raise CommandError(
                "stdin is not a terminal, so --yes is required", hint=f"The question is: {question}", exit_code=FOUND
            )
        if not typer.confirm(visible(question), err=True):
            raise CommandError("nothing was changed", exit_code=FOUND)


def common_options(
    *,
    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            "-d",
            metavar="URL|MODULE:OBJECT",
            help="The database. Default: $KVMODELS_DATABASE, then [tool.kvmodels] in pyproject.toml.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print data as JSON.")] = False,
    readonly: Annotated[bool, typer.Option("--readonly", help="Refuse every write.")] = False,
    silent: Annotated[bool, typer.Option("--silent", help="Print neither messages nor progress.")] = False,
    tenant: str | None = None,
    outer: CommandLine | None = None,
) -> CommandLine:
    """Return the command line for the options of a command and of the groups that it belongs to (``outer``)."""
    if outer is not None:
        database = database or outer.database
        readonly, tenant = readonly or outer.readonly, tenant or outer.tenant
        json, silent = json or outer.output.as_json, silent or outer.output.silent
    return CommandLine(database, readonly, Output(as_json=json, silent=silent), tenant)
