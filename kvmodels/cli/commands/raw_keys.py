"""``keys``, ``get``, ``set``, ``delete`` and ``watch``: the key-value API.

Rules of this module: keys of models are read like all others; a write to them is refused by the store.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from kvmodels.api._sync.kv_reading import KvListIterator
from kvmodels.cli.command_line import CommandLine, Yes
from kvmodels.cli.failures import FOUND, CommandError
from kvmodels.cli.operands import key_text, parse_key, parse_value, value_text
from kvmodels.codecs.typed_json import key_to_json, value_to_json
from kvmodels.core.operations import Entry

Key = Annotated[list[str], typer.Argument(metavar="PART", help="The parts of the key, or one JSON array.")]
Prefix = Annotated[
    list[str] | None, typer.Argument(metavar="PART", help="The first parts, or one JSON array; all keys if absent.")
]
STDIN = "-"


def keys(
    line: CommandLine,
    *,
    parts: Prefix = None,
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=1, help="Print at most this many.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Print in descending order.")] = False,
    values: Annotated[bool, typer.Option("--values", help="Print each key with its value.")] = False,
) -> None:
    """List the keys below a prefix.

    Each line is a JSON array, which get, set, delete and keys accept.
    """
    prefix = parse_key(parts or [])
    with line.open() as store:
        found = store.kv.list(prefix, limit=limit, reverse=reverse, keys_only=not values)
        if line.output.as_json:
            line.output.rows(_COLUMNS if values else _COLUMNS[:1], _entries(found), "json")
            return
        for entry in found:
            value = f"\t{value_text(entry.value)}" if values else ""
            line.output.json_line(f"{key_text(entry.key)}{value}")


def get(line: CommandLine, *, parts: Key) -> None:
    """Print the value of a key as JSON.

    With --json the versionstamp and the deadline are printed too. Exit code 1: there is no such key.
    """
    key = parse_key(parts)
    with line.open() as store:
        entry = store.kv.get(key)
        if entry.versionstamp is None:
            raise CommandError(f"no key {key_text(key)}", exit_code=FOUND)
        if line.output.as_json:
            line.output.json(_entry(entry))
        else:
            line.output.json_line(value_text(entry.value))


def set_(
    line: CommandLine,
    *,
    parts: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="JSON or text; - reads it from stdin.")],
    expire_in: Annotated[float | None, typer.Option("--expire-in", min=0, help="Lifetime in seconds.")] = None,
) -> None:
    """Store a value under a key."""
    key = parse_key(parts)
    stored = parse_value(_standard_input().strip() if value == STDIN else value)
    with line.open(writes=True) as store:
        store.kv.set(key, stored, expire_in=expire_in)


def delete(
    line: CommandLine,
    *,
    parts: Key,
    prefix: Annotated[bool, typer.Option("--prefix", help="Delete all keys below it too; asks first.")] = False,
    yes: Yes = False,
) -> None:
    """Delete a key, or all keys below it.

    Exit code 1: there is no such key.
    """
    key = parse_key(parts)
    with line.open(writes=True) as store:
        below = store.kv.count(key) if prefix else 0
        is_there = store.kv.get(key).versionstamp is not None
        if not below and not is_there:
            raise CommandError(f"no key {key_text(key)}", exit_code=FOUND)
        if prefix:
            line.confirm(f"Delete {below + is_there} keys?", yes=yes)
            for entry in store.kv.list(key, keys_only=True):
                store.kv.delete(entry.key)
        store.kv.delete(key)


def watch(
    line: CommandLine,
    *,
    parts: Key,
    prefix: Annotated[
        bool, typer.Option("--prefix", help="Print the keys below it instead; the store needs a change log.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="VERSIONSTAMP", help="With --prefix: only the changes after this commit."),
    ] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", min=0, help="End after this many idle seconds.")] = None,
) -> None:
    """Print a key, or all keys below it, at every change.

    The first lines are the present state. Each line is a JSON object. It ends with Ctrl-C. The value and the
    versionstamp of an absent key are null.
    """
    key = parse_key(parts)
    if since is not None and not prefix:
        raise CommandError("--since needs --prefix", hint="A watch of one key begins with its present state.")
    if not key and not prefix:
        raise CommandError("the key is empty", hint="Name the key to watch, or watch all keys with --prefix.")
    with line.open() as store:
        watched = (
            store.kv.watch(prefix=key, since=since, timeout=timeout)
            if prefix
            else store.kv.watch([key], timeout=timeout)
        )
        for entries in watched:
            line.output.rows(_COLUMNS, (_entry(entry) for entry in entries), "nl")
            sys.stdout.flush()


_COLUMNS = ("key", "value", "versionstamp", "expires_at")


def _standard_input() -> str:
    try:
        return typer.get_binary_stream("stdin").read().decode()
    except UnicodeDecodeError as error:
        raise CommandError("stdin is not text in UTF-8", hint='Bytes are written as {"$bytes": "…"}.') from error


def _entries(found: KvListIterator) -> Iterator[dict[str, Any]]:
    return (_entry(entry) for entry in found)


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "key": key_to_json(entry.key),
        "value": value_to_json(entry.value),
        "versionstamp": entry.versionstamp,
        "expires_at": entry.expires_at,
    }
