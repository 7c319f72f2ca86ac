"""The endpoints of a cluster and their tokens, learned before the first call and again after a failure.

Rules of this module: an endpoint is asked for its version and its role before anything else, so that a learner, a
member without a leader and a release that loses commits are known. The password goes to the endpoints of the store
alone, and is shown nowhere.
"""

from __future__ import annotations

import random
import re
import time
from typing import Final, NamedTuple

from kvmodels.engines.etcd.errors import (
    FailureKind,
    busy,
    insecure,
    is_tls_failure,
    kind_of,
    lossy_server,
    old_server,
    reason_of,
    refused,
)
from kvmodels.engines.etcd.protocol.exchange import (
    AUTHENTICATE,
    STATUS,
    CallFailedError,
    EtcdCall,
    EtcdPause,
    Metadata,
    Steps,
)
from kvmodels.engines.etcd.protocol.rpc_pb2 import (
    AuthenticateRequest,
    AuthenticateResponse,
    StatusRequest,
    StatusResponse,
)

ANSWER_S: Final = 3.0
"""Seconds after which one call is given up, so that another endpoint can be asked; elections take one or two."""

VERIFY_S: Final = 2.0
"""Seconds after which an endpoint that does not tell its version is passed over."""

FIRST_PAUSE_S: Final = 0.002
LONGEST_PAUSE_S: Final = 0.5

CONTENDED_PAUSE_S: Final = 0.02
"""The longest pause after a conflict with another writer, which is over once that has committed."""

_LEADER: Final = ("hasleader", "true")
"""A member without a leader refuses calls with it at once, before it has accepted them."""

_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_OLDEST: Final = (3, 4)
_LOSSY: Final = ((3, 5, 0), (3, 5, 1), (3, 5, 2))


class EtcdAttempts:
    """How long one call may try: a deadline, and pauses with jitter that grow.

    Args:
        seconds: until the deadline.
        endpoints: that are asked one after the other without a pause.
    """

    __slots__ = ("_deadline", "_endpoints", "_failed", "_pause")

    def __init__(self, seconds: float, endpoints: int) -> None:
        self._deadline = time.monotonic() + seconds
        self._pause = FIRST_PAUSE_S
        self._endpoints = endpoints
        self._failed = 0

    def within(self, seconds: float) -> float:
        """Return how long the next call may take: at most ``seconds``, and never past the deadline."""
        return min(seconds, max(self._deadline - time.monotonic(), 0.001))

    def pause(self, longest: float = LONGEST_PAUSE_S) -> Steps[bool]:
        """Pause before the next attempt, at most ``longest`` seconds; return false at once when the time is over."""
        pause = random.uniform(self._pause / 2, self._pause)
        if time.monotonic() + pause >= self._deadline:
            return False
        yield EtcdPause(pause)
        self._pause = min(2 * self._pause, longest)
        return True

    def again(self, url: str, reason: str) -> Steps[None]:
        """Go on to the next endpoint; pause after the last one. Raises EngineTimeoutError when the time is over."""
        self._failed += 1
        if self._failed % self._endpoints == 0:
            if not (yield from self.pause()):
                raise busy(url, reason)
        elif time.monotonic() >= self._deadline:
            raise busy(url, reason)


class Credentials(NamedTuple):
    """A user of the cluster; ``repr`` leaves out the password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.user!r}, …)"


class VerifiedEndpoint(NamedTuple):
    """An endpoint that answers, the metadata of its calls, and the version of its server; ``repr`` has no token."""

    address: str
    metadata: Metadata
    version: str
    loses_commits: bool

    def __repr__(self) -> str:
        return f"Endpoint({self.address!r}, {self.version!r})"


class EtcdSession:
    """The endpoints of one cluster, shared by all threads and event loops of an engine.

    Args:
        addresses: hosts with their ports.
        url: for messages.
        prefix: of the keys of the store, for messages.
        credentials: of a user; None for none.
        allow_lossy_server: whether writes to releases that lose commits are allowed.

    Attributes:
        url, prefix: as above.
        revision: of the cluster, the greatest that was answered.
        went_back: whether a later answer had a smaller revision, so the cluster has lost commits.
    """

    def __init__(
        self,
        addresses: tuple[str, ...],
        url: str,
        prefix: str,
        credentials: Credentials | None,
        *,
        allow_lossy_server: bool,
    ) -> None:
        self._addresses = addresses
        self._credentials = credentials
        self._allow_lossy_server = allow_lossy_server
        self._at = random.randrange(len(addresses))
        self._known: dict[str, VerifiedEndpoint] = {}
        self._insecure: set[str] = set()
        self.url = url
        self.prefix = prefix
        self.revision = 0
        self.went_back = False

    def answered(self, revision: int, before: int) -> None:
        """Take over the revision in an answer; ``before`` is the value of ``revision`` when the request was sent."""
        if revision < before <= self.revision:  # a greater one is of a history that was ended meanwhile
            self.went_back = True
        self.revision = max(self.revision, revision)

    def begin_history(self) -> None:
        """Forget the revisions of before a restore that was accepted."""
        self.revision, self.went_back = 0, False

    @property
    def endpoints(self) -> int:
        """The number of endpoints."""
        return len(self._addresses)

    def current(self, attempts: EtcdAttempts, *, writing: bool) -> Steps[VerifiedEndpoint]:
        """Return an endpoint that has answered, the same one until it fails.

        Raises:
            UnsupportedError: its release is too old, or loses commits and ``writing`` is not allowed.
            EngineError: it refuses the user, or no encrypted connection is possible; EngineTimeoutError.
        """
        while True:
            address = self._addresses[self._at]
            endpoint = self._known.get(address)
            if endpoint is None:
                endpoint = yield from self._asked(address, attempts)
                if endpoint is None:
                    continue
                self._known[address] = endpoint
            if writing:
                self._require_lossless(endpoint)
            return endpoint

    def database_bytes(self, attempts: EtcdAttempts) -> Steps[int]:
        """Return the size of the database of an endpoint, which holds everything in the cluster.

        Raises:
            EngineError, EngineTimeoutError.
        """
        while True:
            endpoint = yield from self.current(attempts, writing=False)
            try:
                status: StatusResponse = yield EtcdCall(
                    endpoint.address, STATUS, StatusRequest(), endpoint.metadata, attempts.within(VERIFY_S)
                )
            except CallFailedError as error:
                failure = error
            else:
                return status.db_size
            if kind_of(failure) is FailureKind.REFUSED:
                raise refused(failure, self.url, self.prefix, writing=False)
            self.failed(endpoint)
            yield from attempts.again(self.url, reason_of(failure))

    def failed(self, endpoint: VerifiedEndpoint) -> None:
        """Have the next call ask another endpoint, and this one for its version before it is used again."""
        self._pass_over(endpoint.address)

    def token_ended(self, endpoint: VerifiedEndpoint) -> None:
        """Have the next call get a new token."""
        if self._known.get(endpoint.address) == endpoint:
            del self._known[endpoint.address]

    def _pass_over(self, address: str) -> None:
        self._known.pop(address, None)
        if self._addresses[self._at] == address:
            self._at = (self._at + 1) % len(self._addresses)

    def _asked(self, address: str, attempts: EtcdAttempts) -> Steps[VerifiedEndpoint | None]:
        """Return the endpoint if it can be used; else pass it over and return None."""
        try:
            metadata = yield from self._metadata(address, attempts)
            status: StatusResponse = yield EtcdCall(
                address, STATUS, StatusRequest(), metadata, attempts.within(VERIFY_S)
            )
        except CallFailedError as error:
            failure = error
        else:
            self._insecure.discard(address)
            if not status.is_learner and status.leader:
                self._require_recent(status.version)
                return VerifiedEndpoint(address, metadata, status.version, _numbers(status.version) in _LOSSY)
            failure = CallFailedError("UNAVAILABLE", "a learner" if status.is_learner else "no leader")
        if kind_of(failure) is FailureKind.REFUSED:
            raise refused(failure, self.url, self.prefix, writing=False)
        self._note_insecure(address, failure)
        self._pass_over(address)
        yield from attempts.again(self.url, reason_of(failure))
        return None

    def _note_insecure(self, address: str, failure: CallFailedError) -> None:
        """Raise EngineError when no endpoint allows an encrypted connection: waiting changes nothing."""
        if not is_tls_failure(failure):
            self._insecure.discard(address)
            return
        self._insecure.add(address)
        if len(self._insecure) == len(self._addresses):
            self._insecure.clear()
            raise insecure(self.url, reason_of(failure))

    def _metadata(self, address: str, attempts: EtcdAttempts) -> Steps[Metadata]:
        if self._credentials is None:
            return (_LEADER,)
        request = AuthenticateRequest(name=self._credentials.user, password=self._credentials.password)
        try:
            answer: AuthenticateResponse = yield EtcdCall(
                address, AUTHENTICATE, request, (_LEADER,), attempts.within(ANSWER_S)
            )
        except CallFailedError as error:
            if error.code == "FAILED_PRECONDITION":  # authentication is not enabled
                return (_LEADER,)
            raise
        return (_LEADER, ("token", answer.token))

    def _require_recent(self, version: str) -> None:
        if _numbers(version)[:2] < _OLDEST:
            raise old_server(self.url, version)

    def _require_lossless(self, endpoint: VerifiedEndpoint) -> None:
        if endpoint.loses_commits and not self._allow_lossy_server:
            raise lossy_server(self.url, endpoint.version)


def _numbers(version: str) -> tuple[int, int, int]:
    """Return the numbers of a release.

    Examples:
        >>> _numbers("3.5.16"), _numbers("3.6.0-rc.1"), _numbers("unknown")
        ((3, 5, 16), (3, 6, 0), (0, 0, 0))
    """
    match = _VERSION.match(version)
    return (0, 0, 0) if match is None else (int(match[1]), int(match[2]), int(match[3]))
