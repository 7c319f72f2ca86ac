"""One transaction of etcd: the endpoint, the token, and repetitions.

Rules of this module: a transaction is sent again only if the server has certainly not carried it out, or if it is only
read.
"""

from __future__ import annotations

from kvmodels.engines.etcd.errors import FailureKind, kind_of, reason_of, refused
from kvmodels.engines.etcd.protocol.exchange import TXN, CallFailedError, EtcdCall, Steps
from kvmodels.engines.etcd.protocol.rpc_pb2 import TxnRequest, TxnResponse
from kvmodels.engines.etcd.protocol.session import ANSWER_S, EtcdAttempts, EtcdSession
from kvmodels.engines.shared.server_errors import LOST_ANSWER


class CompactedError(Exception):
    """The revision to read is gone."""


class FutureRevisionError(Exception):
    """The revision to read does not exist."""


def call_read(session: EtcdSession, request: TxnRequest, attempts: EtcdAttempts) -> Steps[TxnResponse]:
    """Send a transaction that only reads until it is answered.

    Raises:
        CompactedError, FutureRevisionError: a revision in the request is gone, or does not exist.
        EngineTimeoutError: there was no answer in time.
        EngineError: the server refuses it.
    """
    return _call(session, request, attempts, writing=False)


def call_commit(session: EtcdSession, request: TxnRequest, attempts: EtcdAttempts) -> Steps[TxnResponse]:
    """Send a transaction once; again only if it certainly was not carried out.

    Raises:
        CommitUnknownError: there was no answer.
        StorageFullError: the quota is exceeded; a server also says so after it has applied a transaction.
        EngineTimeoutError: it could not be sent in time; nothing was applied.
        EngineError, LimitExceededError, ReadOnlyError: the server refuses it; nothing was applied.
    """
    return _call(session, request, attempts, writing=True)


def _call(session: EtcdSession, request: TxnRequest, attempts: EtcdAttempts, *, writing: bool) -> Steps[TxnResponse]:
    renewed = False
    while True:
        endpoint = yield from session.current(attempts, writing=writing)
        before = session.revision
        try:
            answer: TxnResponse = yield EtcdCall(
                endpoint.address, TXN, request, endpoint.metadata, attempts.within(ANSWER_S)
            )
            session.answered(answer.header.revision, before)
            return answer
        except CallFailedError as error:
            failure = error
        kind = kind_of(failure)
        if kind is FailureKind.TOKEN and not renewed:
            renewed = True
            session.token_ended(endpoint)
            continue
        if kind is FailureKind.COMPACTED:
            raise CompactedError
        if kind is FailureKind.FUTURE:
            raise FutureRevisionError
        if kind in (FailureKind.REFUSED, FailureKind.TOKEN):
            raise refused(failure, session.url, session.prefix, writing=writing)
        session.failed(endpoint)
        if kind is FailureKind.LOST and writing:
            raise LOST_ANSWER.of(session.url, reason_of(failure))
        yield from attempts.again(session.url, reason_of(failure))
