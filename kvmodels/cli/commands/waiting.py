"""``queue``, ``queue dead`` and ``locks``.

Rules of this module: messages are listed without taking them. A dead letter is a value below a key that the sender
named in ``keys_if_undelivered``; only the operator knows which keys these are.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvmodels.cli.command_line import CommandLine
from kvmodels.cli.failures import FOUND, CommandError
from kvmodels.cli.operands import key_text, parse_key
from kvmodels.cli.output import moment
from kvmodels.codecs.typed_json import key_to_json, value_to_json
from kvmodels.core.operations import Entry
from kvmodels.flows.kv.waiting import QueuedMessage

Limit = Annotated[int, typer.Option("--limit", "-l", min=1, help="List at most this many.")]


def queue(line: CommandLine, *, limit: Limit = 1_000) -> None:
    """List the messages of the queue.

    They are in the order of their delivery. A taken message is ready again when its lease ends.
    """
    with line.open() as store:
        rows = [_message(one) for one in store.kv.messages(limit=limit)]
        line.output.listing(
            ("id", "ready_at", "state", "redeliveries", "value"), rows, none="the queue has no messages"
        )


def dead(
    line: CommandLine,
    *,
    parts: Annotated[
        list[str], typer.Argument(metavar="PART", help="The first parts of the keys in keys_if_undelivered.")
    ],
    retry: Annotated[bool, typer.Option("--retry", help="Put them into the queue again, and delete the keys.")] = False,
    limit: Limit = 1_000,
) -> None:
    """List messages that were never delivered, or retry them.

    They are the values below the keys that their senders gave as keys_if_undelivered. With --retry, each message moves
    in one commit.
    """
    prefix = parse_key(parts)
    with line.open(writes=retry) as store:
        found = list(store.kv.list(prefix, limit=limit))
        if not retry:
            line.output.listing(("key", "value"), map(_letter, found), none=f"no keys below {key_text(prefix)}")
            return
        lost = 0
        for entry in found:
            moved = store.kv.atomic().check(entry).enqueue(entry.value).delete(entry.key).commit()
            lost += not moved.ok
        moved_ones = len(found) - lost
        line.output.message(f"{moved_ones} message{' is' if moved_ones == 1 else 's are'} in the queue again")
        if lost:
            raise CommandError(f"{lost} were changed meanwhile", hint="Run the command again.", exit_code=FOUND)


def locks(line: CommandLine) -> None:
    """List the locks that are held or waited for."""
    with line.open() as store:
        rows = [
            {"name": one.name, "held": one.held, "lease_ends": moment(one.expires_at), "waiting": one.waiting}
            for one in store.kv.locks()
        ]
        line.output.listing(("name", "held", "lease_ends", "waiting"), rows, none="no locks are held")


def _message(message: QueuedMessage) -> dict[str, Any]:
    return {
        "id": message.id,
        "ready_at": moment(message.ready_at),
        "state": "taken" if message.taken else "waiting",
        "redeliveries": message.redeliveries,
        "value": value_to_json(message.value),
        "keys_if_undelivered": [key_to_json(key) for key in message.keys_if_undelivered],
    }


def _letter(entry: Entry) -> dict[str, Any]:
    return {"key": key_to_json(entry.key), "value": value_to_json(entry.value)}
