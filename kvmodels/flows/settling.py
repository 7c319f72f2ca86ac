"""Answers that rest on what was read, on a store whose reads may show what is not yet durable.

Rules of this module: a caller learns of a refusal, and that a write had nothing to do, when the state that it rests on
can no longer be lost. A conflict that a commit reports is durable already, because the engine sees to that.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeVar

from kvmodels.core.operations import Counted, ReadResult
from kvmodels.errors import ConcurrencyError, EngineTimeoutError, IntegrityError
from kvmodels.flows.effects import Flow, Settle
from kvmodels.limits import Traits

T = TypeVar("T")

REFUSALS: Final = (IntegrityError, ConcurrencyError)


class ReadState(Protocol):
    """A snapshot that a flow reads in."""

    @property
    def versionstamp(self) -> bytes:
        """The versionstamp of the last commit that it contains."""
        ...


def require_durable_reads(traits: Traits) -> Flow[None]:
    """Wait until what the flow has read is durable; for a write that ends without a commit.

    What an engine of this machine shows is durable already.

    Raises EngineTimeoutError: a crash of the server has removed it.
    """
    if traits.remote and not (yield Settle()):
        raise _lost() from None


def with_durable_refusals(flow: Flow[T], state: ReadState | None) -> Flow[T]:
    """Return a flow that raises a refusal only when the newest state that it has read is durable.

    Raises EngineTimeoutError: a crash of the server has removed that state, so nothing is known.
    """
    newest = b"" if state is None else state.versionstamp
    answer: Any = None
    error: BaseException | None = None
    try:
        while True:
            try:
                request = flow.send(answer) if error is None else flow.throw(error)
            except StopIteration as done:
                result: T = done.value
                return result
            except REFUSALS:
                # Inside of the handler, so that no frame holds the error, and the error the frame.
                answer = error = None
                if newest and not (yield Settle(newest)):
                    raise _lost() from None
                raise
            answer = error = None
            if type(request) is Settle and not request.versionstamp:
                if not newest:
                    answer = True
                    continue
                request = Settle(newest)
            try:
                answer = yield request
            except BaseException as raised:  # noqa: BLE001 - thrown into the flow, which decides
                error = raised
            else:
                if isinstance(answer, ReadResult | Counted) and answer.versionstamp > newest:
                    newest = answer.versionstamp
    finally:
        flow.close()
        answer = error = None  # as in ``run``


def _lost() -> EngineTimeoutError:
    return EngineTimeoutError(
        "the server has lost the state that this call has read",
        reason="crash",
        hint="Nothing was written; try again.",
    )
