"""``indexes``, ``indexes build`` and ``indexes drop``.

Rules of this module: an index is named ``collection.index``, or ``Model.index``, as listings print it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from kvmodels.cli.command_line import CommandLine, Yes
from kvmodels.cli.commands.schema import Throttle, as_data
from kvmodels.cli.failures import FOUND, CommandError
from kvmodels.cli.output import of_schema_change
from kvmodels.cli.store import OpenStore
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.describe.describe import describe

Name = Annotated[str, typer.Argument(metavar="COLLECTION.INDEX", help="The index, such as books.genre.")]


def indexes(line: CommandLine) -> None:
    """List the indexes of the store with their states.

    The state is readable if queries use the index. Indexes that no class declares are listed too.
    """
    with line.open() as store:
        rows = [
            {
                "index": f"{one.collection}.{one.index.name}",
                "state": one.state.value,
                "kind": one.index.kind,
                "columns": ", ".join((*(column.name for column in one.index.columns), *one.index.fields)),
                "generation": one.generation,
                "processed": one.processed,
                "violations": one.violations or None,
                "declared": one.declared if store.models else None,
            }
            for one in store.db.indexes()
        ]
        shown = [name for name in _COLUMNS if any(row[name] is not None for row in rows)]
        line.output.listing(shown, rows, none="the store has no indexes")


def build(line: CommandLine, *, name: Name, throttle: Throttle = None) -> None:
    """Build a declared index, next to live readers and writers.

    An interrupted build is resumed by the next one. Exit code 1: violations are left; see kvmodels violations.
    """
    model, index = _split(name)
    with line.open(writes=True) as store:
        chosen = store.model(model)
        with line.output.progress() as progress:
            done = store.db.build_index(chosen, index, progress=of_schema_change(progress), throttle=throttle)
        line.output.report(str(done), as_data(done))
        if done.violations:
            raise typer.Exit(FOUND)


def drop(line: CommandLine, *, name: Name, throttle: Throttle = None, yes: Yes = False) -> None:
    """Drop an index with all its entries, also one that no class declares.

    A program that declares the index builds it again at its next apply. Exit code 1: there is no such index.
    """
    collection, index = _split(name)
    with line.open(writes=True) as store:
        chosen = store.model(collection) if store.models else collection
        line.confirm(f"Drop {collection}.{index} with all its entries?{_given_up(store, chosen, index)}", yes=yes)
        with line.output.progress() as progress:
            dropped = store.db.drop_index(chosen, index, progress=of_schema_change(progress), throttle=throttle)
        if not dropped:
            raise CommandError(f"the store has no index {collection}.{index}", exit_code=FOUND)
        line.output.message(f"dropped {collection}.{index}")


_COLUMNS = ("index", "state", "kind", "columns", "generation", "processed", "violations", "declared")


def _given_up(store: OpenStore, model: type[KvModel] | str, index: str) -> str:
    """Return a sentence for the rules that the writes of this index enforce; empty for any other index."""
    collection = model if isinstance(model, str) else describe(model).collection
    found = next(
        (one.index for one in store.db.indexes() if one.collection == collection and one.index.name == index), None
    )
    rules: list[str] = []
    if found is not None and found.unique:
        rules.append("that its values are unique")
    if found is not None and found.references is not None:
        rules.append(f"the foreign key to {found.references} with its on_delete={found.on_delete}")
    return f" The store then no longer enforces {' and '.join(rules)}." if rules else ""


def _split(name: str) -> tuple[str, str]:
    model, dot, index = name.partition(".")
    if not dot or not model or not index:
        raise CommandError(f"{name!r} does not name an index", hint="Write COLLECTION.INDEX, such as books.genre.")
    return model, index
