"""``info``, ``stats`` and ``inspect``: what a store holds.

Rules of this module: the catalogue of the store is enough; no model classes are needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from kvmodels.catalog.catalogue import IndexState
from kvmodels.cli.command_line import AllTenants, CommandLine, Tenant, one_side
from kvmodels.cli.commands.schema import Throttle, as_data
from kvmodels.cli.model_source import MSGPACK, model_source
from kvmodels.cli.output import of_schema_change, without_password
from kvmodels.cli.store import OpenStore
from kvmodels.flows.describe.stats import CollectionStats, RowStats, StoreStats

_HEADER = ("__kvmodels__", "header")


def info(line: CommandLine) -> None:
    """Show the collections of the store.

    With the indexes that are not ready. Nothing is counted; see kvmodels stats.
    """
    with line.open() as store:
        found = _info(store)
        if line.output.as_json:
            line.output.json(found)
            return
        line.output.message(f"stored format: {found['format'] or 'none'}")
        line.output.listing(
            ("collection", "model", "schema_version", "fields", "indexes", "not_ready"),
            ({**one, "not_ready": ", ".join(one["not_ready"]) or None} for one in found["collections"]),
            none="the store has no collections",
        )


def _info(store: OpenStore) -> dict[str, Any]:
    header = store.kv.get(_HEADER).value
    indexes = store.db.indexes()
    collections = [
        {
            "collection": one.name,
            "model": one.model,
            "schema_version": one.schema_version,
            "oldest_version": one.oldest_version,
            "primary_key": [column.name for column in one.primary_key],
            "fields": len(one.fields),
            "indexes": sum(index.collection == one.name for index in indexes),
            "not_ready": [
                index.index.name
                for index in indexes
                if index.collection == one.name and index.state is not IndexState.READABLE
            ],
        }
        for one in store.db.collections()
    ]
    return {"format": None if header is None else header["format"], "collections": collections}


def stats(
    line: CommandLine,
    *,
    exact: Annotated[bool, typer.Option("--exact", help="Read every row instead of a sample.")] = False,
    throttle: Throttle = None,
    tenant: Tenant = None,
    all_tenants: AllTenants = False,
) -> None:
    """Count rows and bytes by collection and index, or by tenant.

    Rows are counted, and their sizes estimated from a sample; --exact reads all of them, and --all-tenants all those of
    tenants.
    """
    one_side(tenant, all_tenants=all_tenants)
    with line.open(tenant=tenant) as store:
        if all_tenants:
            _tenants(line, store, throttle)
            return
        with line.output.progress() as progress:
            found = store.db.stats(exact=exact, progress=of_schema_change(progress), throttle=throttle)
        if line.output.as_json:
            line.output.json({"exact": found.exact, **as_data(found)})
            return
        line.output.listing(("part", "rows", "size", "expiring"), _lines(found), none="")
        for name, number in _largest_buckets(found):
            line.output.message(f"{name}: {number:,} records in the largest bucket, all of which a rank may read")
        for one in found.collections:
            if one.keys:
                line.output.message(f"{one.name}: keys in use: {', '.join(map(str, one.keys))}")
        if not found.exact:
            line.output.message("sizes and expiring are estimates; --exact reads every row")


def _tenants(line: CommandLine, store: OpenStore, throttle: float | None) -> None:
    with line.output.progress() as progress:
        found = store.db.stats(tenants=True, progress=of_schema_change(progress), throttle=throttle).tenants
    if line.output.as_json:
        line.output.json(
            [
                {"tenant": name, "rows": rows.rows, "bytes": rows.bytes, "expiring": rows.expiring or None}
                for name, rows in found.items()
            ]
        )
        return
    largest = sorted(found.items(), key=lambda one: -one[1].bytes)
    lines = ({**_line(name, rows), "tenant": name} for name, rows in largest)
    line.output.listing(("tenant", "rows", "size", "expiring"), lines, none="the store has no tenants")


def _largest_buckets(found: StoreStats) -> Iterator[tuple[str, int]]:
    for collection in found.collections:
        for index in collection.indexes:
            if index.largest_bucket is not None:
                yield f"{collection.name}.{index.name}", index.largest_bucket


def _lines(found: StoreStats) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for collection in sorted(found.collections, key=lambda one: -_bytes_of(one)):
        lines.append(_line(collection.name, collection.records))
        for index in sorted(collection.indexes, key=lambda one: -one.entries.bytes):
            generation = "" if index.generation == 1 else f" (generation {index.generation})"
            lines.append(_line(f"{collection.name}.{index.name}{generation}", index.entries))
    lines += [_line("blobs", found.blobs)] if found.blobs.rows else []
    lines += [
        {"part": "queue: ready", "rows": found.queue_ready},
        {"part": "queue: later", "rows": found.queue_later},
        {"part": "queue: dead letters", "rows": found.dead_letters},
        {"part": "locks: held", "rows": found.locks_held},
        {"part": "locks: waiting", "rows": found.lock_waiters},
        _line("namespaces", found.namespaces),
        _line("library", found.library),
        _line("other keys", found.other),
    ]
    return lines + [{"part": _of_disk(path), "size": size_text(size)} for path, size in found.files.items()]


def _bytes_of(collection: CollectionStats) -> int:
    """Return the bytes of a collection with its indexes."""
    return collection.records.bytes + sum(index.entries.bytes for index in collection.indexes)


def size_text(number: float) -> str:
    """Return a number of bytes in the unit that people read.

    Examples:
        >>> size_text(155), size_text(9_999), size_text(25_300), size_text(7_340_000), size_text(3 * 10**12)
        ('155 B', '9,999 B', '25.3 kB', '7.3 MB', '3.0 TB')
    """
    if number < 10_000:
        return f"{number:,} B"
    units = ["kB", "MB", "GB", "TB"]
    number /= 1_000
    while number >= 1_000 and len(units) > 1:
        number /= 1_000
        del units[0]
    return f"{number:,.1f} {units[0]}"


def _of_disk(path: str) -> str:
    """Return a label for a file, or for a table of a server, whose name is not a path."""
    name = Path(path).name
    return f"table {name}" if name == path else f"file {name}"


def _line(part: str, rows: RowStats) -> dict[str, Any]:
    return {"part": part, "rows": rows.rows, "size": size_text(rows.bytes), "expiring": rows.expiring or None}


def inspect(line: CommandLine) -> None:
    """Print model classes for the store as a Python module.

    They are made from the catalogue: nested models become dicts, and functions of computed columns are not known.
    Indexes that cannot be declared without them are listed as comments. The module has the database db, so that
    -d module:db works; a password is left out of its URL.
    """
    with line.open() as store:
        settings = store.db.settings
        url = None if settings is None else without_password(os.fspath(settings.url))
        codec = MSGPACK if settings is None else str(settings.options["codec"])
        built = [one for one in store.db.indexes() if one.generation]
        line.output.text(model_source(store.db.collections(), built, url, codec))
