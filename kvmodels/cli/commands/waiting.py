"""``queue``, ``queue dead`` and ``locks``.

Rules of this module: messages are listed without taking them.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvmodels.cli.command_line import CommandLine
from kvmodels.cli.failures import FOUND, CommandError
from kvmodels.cli.operands import parse_key
from kvmodels.cli.output import moment
from kvmodels.codecs.typed_json import key_to_json, value_to_json
from kvmodels.flows.kv.dead_letters import DeadLetter
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
        list[str] | None,
        typer.Argument(metavar="PART", help="The first parts of their keys; all messages if absent."),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Put them into the queue again, and delete the keys.")] = False,
    limit: Limit = 1_000,
) -> None:
    """List messages that were never delivered, or retry them.

    They are stored under the keys that their senders gave as keys_if_undelivered, until a program deletes or changes
    these. With --retry, each message moves in one commit, and keeps its keys.
    """
    prefix = parse_key(parts or [])
    with line.open(writes=retry) as store:
        found = store.kv.dead_letters(prefix, limit=limit)
        if not retry:
            line.output.listing(("id", "keys", "value"), map(_letter, found), none="no messages were given up")
            return
        lost = 0
        for letter in found:
            operation = store.kv.atomic().enqueue(letter.value, keys_if_undelivered=letter.keys)
            for entry in letter.entries:
                operation.check(entry).delete(entry.key)
            lost += not operation.commit().ok
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


def _letter(letter: DeadLetter) -> dict[str, Any]:
    keys = [key_to_json(key) for key in letter.keys]
    return {"id": letter.id, "keys": keys, "value": value_to_json(letter.value)}
