"""The token of one logical operation, with which it is applied at most once although answers can be lost.

Rules of this module: until a token is burned, nothing but success may be reported after a lost answer; see
``attempt.py``.
"""

from __future__ import annotations

from kvmodels.catalog.keyspace import token_key
from kvmodels.core.operations import AtomicWrite, Check, Committed, Row, Set, point
from kvmodels.errors import CommitUnknownError, EngineError
from kvmodels.flows.context import Context, pause_before
from kvmodels.flows.effects import Flow, commit, now, read
from kvmodels.indexing import rules

LIFETIME_S = 900.0
LIFETIMES_PER_DEADLINE = 10.0
VOID = "void"


class Token:
    """The token of one logical operation."""

    def __init__(self, text: str, deadline_s: float) -> None:
        self.text = text
        self.key = token_key(text)
        self.lifetime_ms = int(1000 * max(LIFETIME_S, LIFETIMES_PER_DEADLINE * deadline_s))

    def attach(self, write: AtomicWrite, value: Set) -> AtomicWrite:
        """Return the operation with the check and the mutation that make it apply at most once."""
        check = rules.token_check(self.key)
        checks = write.checks if check is None else (*write.checks, check)
        return AtomicWrite(checks, (*write.mutations, value))

    def row(self, context: Context, value: int | str, now_ms: int) -> Set:
        """Return the row that says how the operation ended."""
        return Set(self.key, *context.codec.encode(value), now_ms + self.lifetime_ms)


def token_row_attempt(context: Context, row: Row) -> int | None:
    """Return the number of the attempt that was applied, or None when the token was burned."""
    value = context.codec.decode(row.value, row.encoding, row.key)
    return value if isinstance(value, int) else None


def burn(context: Context, token: Token, started: float) -> Flow[Row | None]:
    """Make sure that the operation is not applied later, or find out that it was.

    Returns None when the token is burned, else its row. Raises CommitUnknownError: every answer was lost until the
    deadline; it carries the token.
    """
    attempt = 1
    while True:
        value = token.row(context, VOID, (yield from now()))
        try:
            outcome = yield from commit(AtomicWrite((Check(token.key, None, physical=True),), (value,)))
            if isinstance(outcome, Committed):
                return None
            result = yield from read((point(token.key),), include_expired=True)
        except CommitUnknownError as error:
            left = context.retry.deadline_s - (context.monotonic() - started)
            if left <= 0:
                raise CommitUnknownError(
                    "the answer to a commit was lost and its outcome could not be found out in time", token=token.text
                ) from error
            attempt += 1
            yield from pause_before(context, attempt, left)
            continue
        row = result.ranges[0][0] if result.ranges[0] else None
        return None if row is None or token_row_attempt(context, row) is None else row


def settled(context: Context, token: Token, started: float) -> Flow[Row | None]:
    """Return the same before a failure is reported, which may be untrue and which the engine may not be able to tell.

    Raises CommitUnknownError: the outcome could not be found out; it carries the token.
    """
    try:
        return (yield from burn(context, token, started))
    except CommitUnknownError:
        raise
    except EngineError as error:
        raise CommitUnknownError(
            "the answer to a commit was lost and its outcome could not be found out",
            token=token.text,
            reason=str(error),
        ) from error
