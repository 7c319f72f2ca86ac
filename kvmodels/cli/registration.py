"""Add functions to the application as commands with the common options.

Rules of this module: a command is a function whose first parameter is a ``CommandLine``; all others are declared as
typer expects them. Sections of the help are in the order of ``SECTIONS``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from kvmodels.cli.command_line import Tenant, common_options
from kvmodels.cli.failures import reported

SECTIONS: Final = (
    "Look inside",
    "Records",
    "Schema and indexes",
    "Copies",
    "Raw keys",
    "Queue and locks",
    "Tenants",
    "Other",
)


class SectionedGroup(TyperGroup):
    """A group whose help lists the commands by section."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the signature of typer
        """Write the commands of each section, in the order in which they were added."""
        commands = self.commands.items()
        width = max(len(name) for name in self.commands)
        for section in (*SECTIONS, None):
            rows = [
                (name.ljust(width), command.get_short_help_str(formatter.width - width - 6))
                for name, command in commands
                if getattr(command, "rich_help_panel", None) == section
            ]
            if rows:
                with formatter.section(section or "Commands"):
                    formatter.write_dl(rows)


def new_group(name: str | None = None, help: str | None = None) -> typer.Typer:  # noqa: A002 - typer's name
    """Return an empty group of commands."""
    return typer.Typer(
        name=name,
        help=help,
        cls=SectionedGroup,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=name is None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )


def add_command(
    group: typer.Typer,
    function: Callable[..., None],
    *,
    name: str | None = None,
    section: str | None = None,
    values: Mapping[str, str] | None = None,
    in_tenants: bool = False,
) -> None:
    """Add a command to a group.

    Args:
        group: the application, or a group of it.
        function: takes a ``CommandLine`` and its own parameters; its docstring is the help.
        name: the name of the command; None for the name of the function.
        section: one of ``SECTIONS``; None inside a small group.
        values: the values of options that are given without one, such as ``--repair``.
        in_tenants: whether it has the option ``--tenant``, which confines the store that ``line.open`` opens.
    """
    kind = TyperCommand if values is None else _with_optional_values(values)
    group.command(name or function.__name__, cls=kind, rich_help_panel=section)(
        with_common_options(function, in_tenants=in_tenants)
    )


def _with_optional_values(values: Mapping[str, str]) -> type[TyperCommand]:
    """Return a class of commands that complete an option without a value; typer has deprecated its own form."""

    class Completed(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            operands = args.index("--") if "--" in args else len(args)
            given = [f"{word}={values[word]}" if word in values else word for word in args[:operands]]
            return super().parse_args(ctx, given + args[operands:])

    return Completed


def add_group(
    application: typer.Typer,
    function: Callable[..., None],
    *,
    name: str | None = None,
    section: str,
    in_tenants: bool = False,
) -> typer.Typer:
    """Add a group of commands, whose name alone is a command too.

    Args:
        application: the application.
        function: the command for the name alone; takes a ``CommandLine`` and options, but no arguments.
        name: the name of the group; None for the name of the function.
        section: one of ``SECTIONS``.
        in_tenants: as for ``add_command``; the option also serves the commands of the group.

    Returns:
        The group, for ``add_command``.
    """
    group = new_group(name or function.__name__, inspect.getdoc(function))
    group.callback(invoke_without_command=True)(with_common_options(function, in_tenants=in_tenants))
    application.add_typer(group, rich_help_panel=section)
    return group


def with_common_options(function: Callable[..., None], *, in_tenants: bool = False) -> Callable[..., None]:
    """Return a function for typer, with the parameters of ``function``, the common options, and ``--tenant``."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    common = [
        one
        for one in inspect.signature(common_options, eval_str=True).parameters.values()
        if one.name not in ("outer", "tenant")
    ]
    if in_tenants:
        common.append(inspect.Parameter("tenant", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Tenant))

    @functools.wraps(function)
    def run(context: typer.Context, **given: Any) -> None:
        options = {one.name: given.pop(one.name) for one in common}
        context.obj = line = common_options(**options, outer=context.obj)
        if context.invoked_subcommand is None:
            with reported(line.output):
                function(line, **given)

    first = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (first, *own, *common)]
    # Typer reads both: the signature for defaults, the annotations for types.
    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run
