"""``follow``: run a follower of a program, which keeps another store equal to the records of some models.

Rules of this module: the program makes the follower, with its database and its sink; the common options of stores are
not used.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Annotated, Any

import typer

from kvmodels.api._async.feeds.follower import AsyncFollower
from kvmodels.api._sync.feeds.follower import Follower
from kvmodels.cli.command_line import CommandLine
from kvmodels.cli.failures import FOUND, CommandError
from kvmodels.cli.location import import_object
from kvmodels.flows.feeds.follow import FollowReport


def follow(
    line: CommandLine,
    *,
    follower: Annotated[
        str,
        typer.Argument(metavar="MODULE:FOLLOWER", help="The result of db.follow(), or a function that returns it."),
    ],
    rescan: Annotated[bool, typer.Option("--rescan", help="Scan all records first, which repairs the sink.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Catch up, and end.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Catch up, and compare the sink with the store.")] = False,
) -> None:
    """Keep another store equal to the records of some models.

    A module has the follower: follower = db.follow([Article], FtsSink("search.db", "title")). It continues where the
    sink is. Ctrl+C ends it. With --verify, the exit code is 1 if the sink differs.
    """
    found = import_object(follower, Path.cwd())
    if not isinstance(found, Follower | AsyncFollower):
        raise CommandError(
            f"{follower} is not a follower, but {type(found).__name__}",
            hint="Name the result of db.follow(models, sink), or a function that returns one.",
        )
    if verify:
        if rescan:
            _done(found.catch_up(rescan=True))
        _print_report(line, _done(found.verify()))
    elif once:
        number = _done(found.catch_up(rescan=rescan))
        line.output.report(f"{number:,} changes applied", {"applied": number})
    else:
        line.output.message(f"following: {found!r}")
        with _stopped_by_signals(found.stop):
            _done(found.run(rescan=rescan))


def _done(result: Any) -> Any:
    """Return the result of a call, of a coroutine in an event loop."""
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


@contextlib.contextmanager
def _stopped_by_signals(stop: Callable[[], object]) -> Generator[None]:
    """End a follower after its present batch when the process is told to end."""

    def ended(_number: int, _frame: object) -> None:
        stop()

    before = {
        name: signal.signal(name, ended)
        for name in (signal.SIGINT, signal.SIGTERM)
        if threading.current_thread() is threading.main_thread()
    }
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _print_report(line: CommandLine, report: FollowReport) -> None:
    kinds = {"missing": report.missing, "extra": report.extra, "different": report.different}
    rows = [{"difference": kind, "key": repr(key)} for kind, keys in kinds.items() for key in keys]
    line.output.listing(("difference", "key"), rows, none=f"{report.compared:,} records are equal on both sides")
    if not report.ok:
        raise CommandError(
            "the sink differs from the store", hint="Repair it: kvmodels follow ... --rescan.", exit_code=FOUND
        )
