"""Errors of etcd as errors of this library.

Rules of this module: a call that failed is sorted by its status code, and where etcd uses one code for several things,
by its text. Whatever is not known to come before the server has accepted a commit leaves its outcome open. Passwords
and tokens are in no text of etcd.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from kvmodels.core.operations import format_versionstamp
from kvmodels.engines.etcd.protocol.exchange import CallFailedError
from kvmodels.engines.shared.server_errors import (
    FULL,
    LACKING,
    MAY_NOT_WRITE,
    NO_STORE,
    NOT_ENCRYPTED,
    REFUSED,
    UNREACHABLE,
    WRONG_CREDENTIALS,
    shortened,
)
from kvmodels.errors import (
    EngineError,
    EngineTimeoutError,
    KvModelsError,
    OperationTooLargeError,
    ResumeExpiredError,
    UnsupportedError,
)

_NOT_CONNECTED: Final = ("failed to connect", "connections to all backends failing", "DNS resolution failed")
_ELSEWHERE: Final = (
    "etcdserver: no leader",
    "etcdserver: not leader",
    "etcdserver: not capable",
    "etcdserver: rpc not supported for learner",
    "etcdserver: too many requests",
)
"""Beginnings of refusals that come before a server has accepted a commit, and that another server may not give."""

_LOST_CODES: Final = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "UNKNOWN", "CANCELLED", "INTERNAL", "ABORTED", "DATA_LOSS")
_OLD_TOKENS: Final = ("etcdserver: invalid auth token", "etcdserver: revision of auth store is old")
_WRONG_CREDENTIALS: Final = ("etcdserver: authentication failed", "etcdserver: user name is empty")
_TLS: Final = ("handshake", "certificate", "ssl", "tsi_")


AFTER_FORK: Final = (
    "Use etcd in the child only: gunicorn without --preload, multiprocessing with the start method spawn; "
    "docs/guides/etcd.md, section Forked processes, has more."
)


class FailureKind(Enum):
    """The possible reactions to a failed call."""

    ELSEWHERE = auto()
    """It was certainly not carried out; another endpoint, or this one later, may do so."""

    TOKEN = auto()
    """It was certainly not carried out, because the token has ended."""

    LOST = auto()
    """It may have been carried out."""

    COMPACTED = auto()
    """The revision to read is gone."""

    FUTURE = auto()
    """The revision to read does not exist yet."""

    REFUSED = auto()
    """It was not carried out, and would not be the next time."""


def kind_of(error: CallFailedError) -> FailureKind:
    """Return what may be done about a call that failed.

    Examples:
        >>> kind_of(CallFailedError("UNAVAILABLE", "etcdserver: no leader")).name
        'ELSEWHERE'
        >>> kind_of(CallFailedError("UNAVAILABLE", "Socket closed")).name
        'LOST'
    """
    code, details = error.code, error.details
    if details.startswith(_ELSEWHERE) or (code == "UNAVAILABLE" and any(one in details for one in _NOT_CONNECTED)):
        return FailureKind.ELSEWHERE
    if details.startswith(_OLD_TOKENS):
        return FailureKind.TOKEN
    if code == "OUT_OF_RANGE":
        return FailureKind.FUTURE if "future" in details else FailureKind.COMPACTED
    return FailureKind.LOST if code in _LOST_CODES else FailureKind.REFUSED


def is_tls_failure(error: CallFailedError) -> bool:
    """Return whether the two sides could not agree on an encrypted connection."""
    text = error.details.lower()
    return any(one in text for one in _TLS)


def reason_of(error: CallFailedError) -> str:
    """Return the code and the text of a failed call in one line."""
    return shortened(f"{error.code}: {' '.join(error.details.split())}")


def refused(error: CallFailedError, url: str, prefix: str, *, writing: bool) -> KvModelsError:
    """Return the error for a call that the server has refused; nothing was applied.

    Args:
        error: the failed call.
        url: that was opened, for the message.
        prefix: of the keys of the store.
        writing: whether the call was a commit.
    """
    code, details = error.code, error.details
    if details.startswith(_WRONG_CREDENTIALS):
        return wrong_credentials(url, reason_of(error))
    if code in ("PERMISSION_DENIED", "UNAUTHENTICATED"):
        return _forbidden(error, url, prefix, writing=writing)
    if "database space exceeded" in details:
        hint = "Compact and defragment the cluster, disarm its alarm, or raise --quota-backend-bytes."
        return FULL.of(url, reason_of(error), hint)
    if "too many operations" in details:
        return OperationTooLargeError(
            "the server refuses the number of operations in a transaction",
            limit="max_mutations",
            limits="the server",
            hint="Open the store with max_txn_ops= as in --max-txn-ops of the servers.",
        )
    if "too large" in details or "larger than" in details:
        return OperationTooLargeError(
            "the server refuses the size of an operation",
            limit="max_operation_bytes",
            limits="the server",
            hint="Write less at once, or raise --max-request-bytes of the servers.",
        )
    hint = "Check that the endpoints are those of an etcd cluster, version 3.4 or newer."
    return REFUSED.of(url, reason_of(error), hint)


def _forbidden(error: CallFailedError, url: str, prefix: str, *, writing: bool) -> KvModelsError:
    hint = (
        f"Grant the user's role the keys of the store: etcdctl role grant-permission --prefix ROLE readwrite {prefix}."
    )
    if writing:
        return MAY_NOT_WRITE.of(url, reason_of(error), hint)
    hint = f"{hint} With readonly=True, read is enough instead of readwrite."
    return EngineError("the user may not read the store", url=url, reason=reason_of(error), hint=hint)


def wrong_credentials(url: str, reason: str) -> EngineError:
    """Return the error for a user or a password that the cluster does not know."""
    return WRONG_CREDENTIALS.of(url, reason, "Give user= and password=, or set ETCDCTL_USER and ETCDCTL_PASSWORD.")


def insecure(url: str, reason: str) -> EngineError:
    """Return the error for endpoints with which no encrypted connection is possible."""
    return NOT_ENCRYPTED.of(
        url,
        reason,
        "Check the certificates, their dates and names, and cacert=, cert= and key=; for servers without TLS, begin "
        "the URL with etcd://.",
    )


def busy(url: str, reason: str) -> EngineTimeoutError:
    """Return the error for a call that was tried until its time was over; nothing was applied."""
    return UNREACHABLE.of(
        url,
        reason,
        "Check that most members of the cluster are running and reachable; if they use TLS, the URL begins with etcds://.",
    )


def lossy_server(url: str, version: str) -> UnsupportedError:
    """Return the error for writes to a release of etcd that loses commits."""
    return UnsupportedError(
        "this release of etcd can lose committed writes when it is killed",
        url=url,
        reason=f"etcd {version}: see issue 13766 of etcd",
        hint="Upgrade to etcd 3.5.3 or newer; for data that may be lost, open the store with allow_lossy_server=True.",
    )


def old_server(url: str, version: str) -> UnsupportedError:
    """Return the error for a release of etcd that lacks what the engine needs."""
    return UnsupportedError(
        "this release of etcd is too old", url=url, reason=f"etcd {version}", hint="Upgrade to etcd 3.4 or newer."
    )


def restored(url: str, present: int, known: int) -> EngineError:
    """Return the error for writes to a store that was restored into another cluster."""
    return EngineError(
        "this store was restored into another cluster, where versionstamps could be given a second time",
        url=url,
        reason=f"cluster id {present:x} instead of {known:x}",
        hint="End all programs that use the store, then open it once with accept_restore=True.",
    )


def went_back(url: str) -> EngineError:
    """Return the error for writes to a cluster that was put back to an earlier state under the same cluster id."""
    return EngineError(
        "the cluster has lost commits, whose versionstamps would be given a second time",
        url=url,
        reason="its revision went back while the store is open",
        hint="End all programs that use the store. Restore the cluster with another --initial-cluster-token, then open "
        "the store once with accept_restore=True.",
    )


def absent(url: str) -> EngineError:
    """Return the error for a prefix without a store."""
    hint = "Check the prefix, the last part of the URL, or open it once with create=True and readonly=False."
    return NO_STORE.of(url, "absent", hint)


def compacted(url: str, since: bytes, oldest: bytes) -> ResumeExpiredError:
    """Return the error of reading changes from before a compaction of the cluster."""
    return ResumeExpiredError(
        "the history of the cluster does not reach back so far",
        url=url,
        since=format_versionstamp(since),
        oldest=format_versionstamp(oldest),
        hint="Watch without since=, which starts with the present state; compact the cluster less often to keep more.",
    )


def without_backup(url: str) -> UnsupportedError:
    """Return the error of a backup, which etcd makes of whole clusters only."""
    hint = "Save the whole cluster with etcdctl snapshot save, or the store with kv.dump()."
    return LACKING.of(url, "backups of one store", hint)


def unusable_after_fork(url: str) -> UnsupportedError:
    """Return the error of opening a store in a child whose parent has used gRPC, where every call would hang."""
    return UnsupportedError(
        "gRPC does not work in a process that was forked while the parent used it",
        url=url,
        reason="forked",
        hint=AFTER_FORK,
    )
