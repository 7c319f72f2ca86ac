"""``history``, ``trash`` and ``undelete``: the old versions of a record, and removed records.

Rules of this module: a primary key is given as one word for each of its fields. Secrets are masked, and values of
encrypted fields are hidden unless they are asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any, cast

import typer
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from kvmodels._support.secret_values import HIDDEN, without_values
from kvmodels.cli.command_line import CommandLine
from kvmodels.cli.commands.records import ShowEncrypted
from kvmodels.cli.commands.schema import Model, as_data
from kvmodels.cli.failures import CommandError
from kvmodels.cli.operands import parse_value
from kvmodels.flows.history.versions import Revision
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.describe.describe import describe

KeyWords = Annotated[list[str], typer.Argument(metavar="KEY", help="The primary key, one word for each of its fields.")]
Limit = Annotated[int, typer.Option("--limit", "-l", min=1, help="Print at most this many.")]
After = Annotated[str | None, typer.Option("--after", metavar="CURSOR", help="Continue after a page.")]

_VERSIONS = ("version", "at", "actor", "reason", "changes", "ended", "error")
_ENDS = ("removed_at", "actor", "reason", "record", "error")


def history(
    line: CommandLine,
    *,
    model: Model,
    key: KeyWords,
    limit: Limit = 20,
    after: After = None,
    show_encrypted: ShowEncrypted = False,
) -> None:
    """List the versions of a record, newest first.

    Each has its time, who wrote it and why, and the values of changed fields, before and after. The last version of a
    removed record tells how it ended. The cursor of the next page is printed on stderr.
    """
    with line.open() as store:
        chosen = store.model(model)
        page = store.db[chosen].history(_key(chosen, key)).page(limit, after)
        hidden = () if show_encrypted else schema_of(chosen).encrypted
        line.output.listing(_VERSIONS, (_version(one, hidden) for one in page.items), none="no versions")
        if page.next_cursor is not None:
            line.output.message(f"more: --after {page.next_cursor}")


def trash(
    line: CommandLine,
    *,
    model: Model,
    limit: Limit = 20,
    after: After = None,
    show_encrypted: ShowEncrypted = False,
) -> None:
    """List removed records that can be restored, by their keys.

    The command undelete restores them. The cursor of the next page is printed on stderr.
    """
    with line.open() as store:
        chosen = store.model(model)
        names = _key_names(chosen)
        page = store.db[chosen].trash().page(limit, after)
        hidden = () if show_encrypted else schema_of(chosen).encrypted
        rows = [_removed(one, names, hidden) for one in page.items]
        line.output.listing((*names, *_ENDS), rows, none="no removed records")
        if page.next_cursor is not None:
            line.output.message(f"more: --after {page.next_cursor}")


def undelete(
    line: CommandLine,
    *,
    model: Model,
    key: KeyWords,
    also: Annotated[bool, typer.Option("--also", help="Restore what the same removal took with it, too.")] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Store this value in place of the old one: JSON or text."),
    ] = None,
) -> None:
    """Restore a removed record.

    It is inserted again as it was last. Exit code 1: there is no such removed record, a record has the key by now, or
    the old values break a unique index or a foreign key.
    """
    with line.open(writes=True) as store:
        chosen = store.model(model)
        values, given = _changes(changes or ()), _key(chosen, key)
        if also:
            result: Any = store.db[chosen].restore(given, values, also=True)
            record, others, left = result.record, result.others, result.left_out
        else:
            record, others, left = store.db[chosen].restore(given, values), 0, ()
        for one in left:
            line.output.message(f"left out: {one}")
        more = f", {others} others restored or changed" if also else ""
        data = {
            "record": _record(record, schema_of(chosen).encrypted),
            "others": others,
            "left_out": [as_data(one) for one in left],
        }
        line.output.report(f"{type(record).__name__} {' '.join(key)} restored{more}", data)


def _version(one: Revision[Any], hidden: Collection[str]) -> dict[str, Any]:
    ended = None
    if one.ended is not None and one.ended.removed:
        ended = {name: value for name, value in one.ended._asdict().items() if value is not None}
    shown = {"version": one.versionstamp, "at": one.at, "actor": one.actor, "reason": one.reason}
    changes: Any = one.changes
    if changes is not None:
        changes = {name: HIDDEN if name in hidden else pair for name, pair in changes.items()}
    return _plain_row({**shown, "changes": changes, "ended": ended, "error": _text(one.error)})


def _removed(one: Revision[Any], names: Sequence[str], hidden: Collection[str]) -> dict[str, Any]:
    keys = dict(zip(names, one.key if len(names) > 1 else (one.key,), strict=True))
    ended = one.ended
    end = {} if ended is None else {"removed_at": ended.at, "actor": ended.actor, "reason": ended.reason}
    record = None if one.record is None else _record(one.record, hidden)
    return _plain_row({**keys, **end, "record": record, "error": _text(one.error)})


def _text(error: Exception | None) -> str | None:
    return None if error is None else str(error)


def _record(record: Any, hidden: Collection[str]) -> Any:
    return _plain(without_values(record.model_dump(), hidden))


def _plain_row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    return to_jsonable_python(value, bytes_mode="base64", serialize_unknown=True)


def _key_names(model: type[KvModel]) -> list[str]:
    return [column.name for column in describe(model).primary_key]


def _key(model: type[KvModel], words: Sequence[str]) -> Any:
    """Return the primary key for the words of a command line. Raises CommandError."""
    names = _key_names(model)
    if len(words) != len(names):
        raise CommandError(
            f"a primary key of {model.__name__} has {len(names)} field{'' if len(names) == 1 else 's'}",
            hint=f"Give one word for each: {' '.join(name.upper() for name in names)}.",
        )
    values = tuple(_value(model, name, word) for name, word in zip(names, words, strict=True))
    return values[0] if len(values) == 1 else values


def _value(model: type[KvModel], name: str, word: str) -> Any:
    try:
        return TypeAdapter(cast("Any", model.model_fields[name].annotation)).validate_strings(word)
    except ValidationError as error:
        reason = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise CommandError(
            f"{word!r} is no value of {name}: {reason}", hint="Print keys with the command rows."
        ) from error


def _changes(words: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise CommandError(f"{word!r} sets no field", hint="Write --set FIELD=VALUE, such as --set title=new.")
        found[name] = parse_value(value)
    return found
