"""The application: every command, registered by name.

Rules of this module: it only registers. A module of ``kvmodels/cli/commands/`` has one function for each command.
"""

from __future__ import annotations

from typing import Annotated

import typer

from kvmodels.cli.command_line import CommandLine
from kvmodels.cli.commands import (
    checking,
    collections,
    copying,
    indexes,
    inside,
    old_versions,
    raw_keys,
    records,
    schema,
    shell,
    tenants,
    version,
    waiting,
)
from kvmodels.cli.commands.running import admin, following, serving
from kvmodels.cli.registration import add_command, add_group, new_group, with_common_options

application = new_group()


Version = Annotated[
    bool,
    typer.Option("--version", callback=version.print_version, is_eager=True, help="Print the version of kvmodels."),
]


def kvmodels(line: CommandLine, *, asked_for_version: Version = False) -> None:  # noqa: ARG001 - its callback ends
    """Look into a store of kvmodels, change its schema, check it, and copy it.

    The database is a URL or a path, which needs no code, or module:object, which brings the model classes of your
    program. Exit codes: 0 done; 1 found, pending or refused; 2 wrong usage; 3 error of the store; 130 interrupted.
    """
    line.output.message("Try 'kvmodels --help'.")


application.callback(no_args_is_help=True, help=kvmodels.__doc__)(with_common_options(kvmodels))

add_command(application, inside.info, section="Look inside", in_tenants=True)
add_command(application, inside.stats, section="Look inside")
add_command(application, inside.inspect, section="Look inside", in_tenants=True)

add_command(application, records.rows, section="Records", in_tenants=True)
add_command(application, records.search, section="Records", in_tenants=True)
add_command(application, records.count, section="Records", in_tenants=True)
add_command(application, records.explain, section="Records", in_tenants=True)
add_command(application, records.insert, section="Records", in_tenants=True)
add_command(application, records.export, section="Records", in_tenants=True)
add_command(application, old_versions.history, section="Records", in_tenants=True)
add_command(application, old_versions.trash, section="Records", in_tenants=True)
add_command(application, old_versions.undelete, section="Records", in_tenants=True)

for _command in (schema.plan, schema.apply):
    add_command(application, _command, section="Schema and indexes")
for _command_in_tenants in (schema.migrate, schema.rotate, schema.violations, schema.resolve):
    add_command(application, _command_in_tenants, section="Schema and indexes", in_tenants=True)
add_command(application, checking.check, section="Schema and indexes", values={checking.REPAIR: checking.ENTRIES})

add_command(application, collections.sweep, section="Schema and indexes", in_tenants=True)
add_command(application, collections.drop, section="Schema and indexes", in_tenants=True)
_indexes = add_group(application, indexes.indexes, section="Schema and indexes", in_tenants=True)
add_command(_indexes, indexes.build, in_tenants=True)
add_command(_indexes, indexes.drop, in_tenants=True)

add_command(application, copying.dump, section="Copies", in_tenants=True)
add_command(application, copying.load, section="Copies", in_tenants=True)
add_command(application, copying.backup, section="Copies")
add_command(application, copying.restore, section="Copies")
add_command(application, copying.copy, section="Copies")

add_command(application, following.follow, section="Copies")

add_command(application, raw_keys.keys, section="Raw keys", in_tenants=True)
add_command(application, raw_keys.get, section="Raw keys", in_tenants=True)
add_command(application, raw_keys.set_, name="set", section="Raw keys", in_tenants=True)
add_command(application, raw_keys.delete, section="Raw keys", in_tenants=True)
add_command(application, raw_keys.watch, section="Raw keys", in_tenants=True)

_queue = add_group(application, waiting.queue, section="Queue and locks", in_tenants=True)
add_command(_queue, waiting.dead, in_tenants=True)
add_command(application, waiting.locks, section="Queue and locks", in_tenants=True)

_tenants = add_group(application, tenants.tenants, section="Tenants")
add_command(_tenants, tenants.create)
add_command(_tenants, tenants.copy)
add_command(_tenants, tenants.remove)

add_command(application, admin.admin, section="Other", in_tenants=True)
add_command(application, serving.serve, section="Other")
add_command(application, shell.shell, section="Other", in_tenants=True)
add_command(application, version.version, section="Other")
