"""Failures of a command: a message on stderr, and an exit code.

    0    done
    1    the answer is no: something was found, is pending, is absent, or was refused
    2    the command line is wrong: an unknown name, a malformed operand, no database, a store that does not exist
    3    the store failed; the message begins with the code of the error
    130  interrupted

Rules of this module: the only place that maps errors to exit codes. A message never contains a traceback, and is
redacted by ``Output``.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import typer

from kvmodels.cli.output import Output
from kvmodels.cli.wording import in_commands
from kvmodels.errors import (
    DoesNotExist,
    EngineError,
    IndexNotReadyError,
    IntegrityError,
    InvalidArgumentError,
    InvalidKeyError,
    InvalidValueError,
    KvModelsError,
    LimitExceededError,
    NoUsableIndexError,
    QueryError,
    ReservedKeyError,
    SchemaChangeRefusedError,
    TenantNotFoundError,
    ValueTooLargeError,
)

FOUND: Final = 1
USAGE: Final = 2
STORE: Final = 3

ABSENT: Final = "absent"
"""The reason of the error for a server that has no store of the given name."""

_EXIT_CODES: Final[tuple[tuple[type[KvModelsError], int], ...]] = (
    (DoesNotExist, FOUND),
    (IntegrityError, FOUND),
    (NoUsableIndexError, FOUND),
    (IndexNotReadyError, FOUND),
    (ReservedKeyError, FOUND),
    (SchemaChangeRefusedError, FOUND),
    (TenantNotFoundError, USAGE),
    (InvalidArgumentError, USAGE),
    (InvalidKeyError, USAGE),
    (InvalidValueError, USAGE),
    (ValueTooLargeError, FOUND),
    (LimitExceededError, USAGE),
    (QueryError, USAGE),
)
"""The exit codes of the library's errors, the first class that fits; ``STORE`` for all others."""


class CommandError(Exception):
    """A command cannot be carried out as it was given.

    Args:
        message: what is wrong, without a full stop.
        hint: what to do instead, as a complete sentence; None if the message says it.
        exit_code: one of the exit codes above.
    """

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = USAGE) -> None:
        super().__init__(f"{message}. {hint}" if hint else message)
        self.exit_code = exit_code


def exit_code_of(error: KvModelsError) -> int:
    """Return the exit code for an error of the library."""
    if isinstance(error, EngineError) and error.reason == ABSENT:
        return USAGE
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), STORE)


@contextmanager
def reported(output: Output) -> Generator[None]:
    """Print the errors of a command to stderr, and exit with their code."""
    try:
        yield
    except CommandError as error:
        output.error(str(error))
        raise typer.Exit(error.exit_code) from error
    except KvModelsError as error:
        output.error(in_commands(str(error)))
        raise typer.Exit(exit_code_of(error)) from error
