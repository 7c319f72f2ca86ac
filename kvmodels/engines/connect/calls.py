"""One call of the data path: the endpoint, the token, and what is sent again.

Rules of this module: a request is sent again only if the server has certainly not carried it out, or if it is a read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kvmodels.core.operations import AtomicWrite
from kvmodels.engines.connect.errors import refused, refused_redirect
from kvmodels.engines.connect.exchange import HttpAnswer, HttpCall, LostAnswerError, NotSentError, Steps
from kvmodels.engines.connect.session import Attempts, Served, Session
from kvmodels.engines.shared.server_errors import LOST_ANSWER

RENEWED_AFTER: Final = (401, 404)
"""The token has ended, or the endpoint has moved; both before anything was carried out."""


class Answered(NamedTuple):
    """The body of a successful answer, and the metadata with which it was asked for."""

    body: bytes
    served: Served


def call_read(session: Session, name: str, body: bytes, attempts: Attempts) -> Steps[Answered]:
    """Send a read until it is answered.

    Raises:
        EngineTimeoutError: there was no answer in time.
        EngineError: the server refuses it.
    """
    renewed = False
    while True:
        served = yield from session.current(attempts)
        try:
            answer = yield _request(served, name, body, attempts)
        except (NotSentError, LostAnswerError) as error:
            session.forget(served, unreachable=isinstance(error, NotSentError))
            reason = str(error)
        else:
            if answer.status == 200:
                return Answered(answer.body, served)
            if answer.status in RENEWED_AFTER and not renewed:
                renewed = True
                session.forget(served)
                continue
            reason = _reason_to_wait(session, served, answer)
        yield from attempts.again(session.shown, reason)


def call_commit(session: Session, body: bytes, write: AtomicWrite, attempts: Attempts) -> Steps[Answered]:
    """Send a commit once; again only if it certainly was not carried out.

    Raises:
        CommitUnknownError: there was no answer, or one that does not say what became of it.
        EngineTimeoutError: it could not be sent in time; nothing was applied.
        EngineError, LimitExceededError, InvalidValueError, ReadOnlyError: the server refuses it; nothing was applied.
    """
    renewed = False
    while True:
        served = yield from session.current(attempts)
        try:
            answer = yield _request(served, "atomic_write", body, attempts)
        except LostAnswerError as error:
            raise LOST_ANSWER.of(session.shown, str(error)) from None
        except NotSentError as error:
            session.forget(served, unreachable=True)
            reason = str(error)
        else:
            if answer.status == 200:
                return Answered(answer.body, served)
            if answer.status in RENEWED_AFTER and not renewed:
                renewed = True
                session.forget(served)
                continue
            if answer.status == 409 or answer.status >= 500 or answer.status < 300:
                raise LOST_ANSWER.of(session.shown, f"status {answer.status}")
            reason = _reason_to_wait(session, served, answer, write)
        yield from attempts.again(session.shown, reason)


def _request(served: Served, name: str, body: bytes, attempts: Attempts) -> HttpCall:
    return HttpCall(f"{served.endpoint}/{name}", served.headers, body, attempts.remaining)


def _reason_to_wait(session: Session, served: Served, answer: HttpAnswer, write: AtomicWrite | None = None) -> str:
    """Return why the request may succeed later. Raises the error of an answer that is final."""
    if 300 <= answer.status < 400:
        raise refused_redirect(session.shown, answer.headers.get("location", ""), served.token)
    if 400 <= answer.status < 500 and answer.status != 429:
        raise refused(session.shown, answer, served.token, write=write)
    return f"status {answer.status}"
