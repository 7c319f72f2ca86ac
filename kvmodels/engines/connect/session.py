"""Where a database is served and with which token, learned by the metadata exchange and renewed in time.

Rules of this module: the access token goes to the origin of the database's URL alone, the token of the metadata to the
endpoints that the metadata names. A redirect is followed within that origin only.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from kvmodels.engines.connect.clock import EstimatedClock
from kvmodels.engines.connect.errors import busy, not_a_database, refused, refused_redirect
from kvmodels.engines.connect.exchange import HttpAnswer, HttpCall, LostAnswerError, NotSentError, RetryPause, Steps
from kvmodels.engines.connect.wire.errors import WireError
from kvmodels.engines.connect.wire.metadata import (
    DATABASE_HEADER,
    OLD_DATABASE_HEADER,
    VERSION_HEADER,
    VERSIONS,
    DatabaseMetadata,
    MetadataRequest,
    decode_metadata,
    encode_metadata_request,
)
from kvmodels.errors import EngineError

RENEW_BEFORE_S: Final = 10.0
"""The metadata is asked for again so many seconds before it expires."""

RENEWING_S: Final = 10.0
"""While one call renews metadata that is still valid, others use it; after so many seconds another one tries."""

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0

_REQUEST: Final = encode_metadata_request(MetadataRequest(VERSIONS))
_MOST_REDIRECTS: Final = 5
_REDIRECTS: Final = (307, 308)
_PORTS: Final = {"http": 80, "https": 443}


class Attempts:
    """How long one call may try: a deadline, and pauses with jitter that grow."""

    __slots__ = ("_deadline", "_pause")

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._pause = FIRST_PAUSE_S

    @property
    def remaining(self) -> float:
        """Seconds until the deadline; never so few that a request could not be made."""
        return max(self._deadline - time.monotonic(), 0.001)

    def pause(self) -> Steps[bool]:
        """RetryPause before the next attempt; return false at once when the time is over."""
        pause = random.uniform(self._pause / 2, self._pause)
        if time.monotonic() + pause >= self._deadline:
            return False
        yield RetryPause(pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
        return True

    def again(self, url: str, reason: str) -> Steps[None]:
        """RetryPause before the next attempt. Raises EngineTimeoutError when the time is over."""
        if not (yield from self.pause()):
            raise busy(url, reason)


class Served(NamedTuple):
    """The endpoint and the token of a metadata exchange; ``repr`` leaves out the token.

    Attributes:
        endpoint: the URL before the names of the calls.
        headers: of every call, the token among them.
        version: of the protocol.
        token: of the calls.
        expires_at: on the monotonic clock, in seconds.
    """

    endpoint: str
    headers: Mapping[str, str]
    version: int
    token: str
    expires_at: float

    def __repr__(self) -> str:
        return f"Served({self.endpoint!r}, version={self.version})"


class Session:
    """The metadata of one database, shared by all threads and event loops of an engine.

    Args:
        url: of the database.
        shown: the URL for messages.
        access_token: for the metadata exchange.
        clock: is told the server's time.
    """

    def __init__(self, url: str, shown: str, access_token: str, clock: EstimatedClock) -> None:
        self._url = url
        self._access_token = access_token
        self._clock = clock
        self._lock = threading.Lock()
        self._served: Served | None = None
        self._renewing_until = 0.0
        self._next_endpoint = 0
        self._database_id: str | None = None
        self.shown = shown

    def current(self, attempts: Attempts) -> Steps[Served]:
        """Return valid metadata; it is renewed shortly before it expires, by one of the calls that want it.

        Raises:
            EngineError, EngineTimeoutError, UnsupportedError: it cannot be had, and nothing else was sent.
        """
        with self._lock:
            served, now = self._served, time.monotonic()
            if served is not None and now < served.expires_at - RENEW_BEFORE_S:
                return served
            valid = served is not None and now < served.expires_at
            if valid and now < self._renewing_until:
                assert served is not None
                return served
            self._renewing_until = now + RENEWING_S
        try:
            return (yield from self._exchanged(attempts))
        except EngineError:
            if served is None or time.monotonic() >= served.expires_at:
                raise
            return served

    def now_ms(self) -> int:
        """Return milliseconds since the epoch by the server's clock, as far as it is known."""
        return self._clock.now_ms()

    def forget(self, served: Served, *, unreachable: bool = False) -> None:
        """Have the next call ask for the metadata again, because the server refused it or could not be reached."""
        with self._lock:
            if self._served is served:
                self._served = None
                self._next_endpoint += unreachable

    def _exchanged(self, attempts: Attempts) -> Steps[Served]:
        """Return the metadata that the server tells now."""
        url, redirects = self._url, 0
        while True:
            reason = ""
            try:
                answer = yield HttpCall(url, self._request_headers(), _REQUEST, attempts.remaining)
            except (NotSentError, LostAnswerError) as error:
                reason = str(error)
            else:
                if answer.status == 200:
                    return self._take(url, answer)
                if answer.status in _REDIRECTS and redirects < _MOST_REDIRECTS:
                    url, redirects = self._redirected(url, answer), redirects + 1
                    continue
                if 300 <= answer.status < 400:
                    raise refused_redirect(self.shown, answer.headers.get("location", ""), self._access_token)
                if answer.status != 429 and answer.status < 500:
                    raise refused(self.shown, answer, self._access_token)
                reason = f"status {answer.status}"
            yield from attempts.again(self.shown, reason)

    def _request_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._access_token}", "content-type": "application/json"}

    def _redirected(self, url: str, answer: HttpAnswer) -> str:
        location = answer.headers.get("location", "")
        try:
            target = urljoin(url, location)
            within = _origin(urlsplit(target)) == _origin(urlsplit(self._url))
        except ValueError:  # it is no URL
            within, target = False, location
        if not within:
            raise refused_redirect(self.shown, target, self._access_token)
        return target

    def _take(self, url: str, answer: HttpAnswer) -> Served:
        try:
            metadata = decode_metadata(answer.body)
        except WireError as error:
            reason = str(error)
        else:
            return self._took(url, answer, metadata)
        raise not_a_database(self.shown, reason)

    def _took(self, url: str, answer: HttpAnswer, metadata: DatabaseMetadata) -> Served:
        endpoints = [self._endpoint(url, one.url) for one in metadata.endpoints if one.consistency == "strong"]
        now_ms = self._clock.answered(answer.headers.get("date"))
        lifetime_s = metadata.expires_at.timestamp() - now_ms / 1_000
        with self._lock:
            if self._database_id not in (None, metadata.database_id):
                raise EngineError(
                    "the URL leads to another database than the one that was opened",
                    url=self.shown,
                    reason=f"{metadata.database_id} instead of {self._database_id}",
                    hint="Close this store and open it again: nothing that was read before holds for the other one.",
                )
            self._database_id = metadata.database_id
            endpoint = endpoints[self._next_endpoint % len(endpoints)]
            self._served = served = Served(
                endpoint,
                _headers(metadata),
                metadata.version,
                metadata.token,
                time.monotonic() + lifetime_s,
            )
            return served

    def _endpoint(self, url: str, given: str) -> str:
        """Return the URL of an endpoint. Raises EngineError if it cannot be used, or would give the token away."""
        try:
            endpoint = urljoin(url, given)
            parts = urlsplit(endpoint)
            host, _ = parts.hostname, parts.port
        except ValueError:
            raise not_a_database(self.shown, "an endpoint is not a URL") from None
        allowed = ("https",) if self._url.startswith("https:") else ("http", "https")
        if parts.scheme not in allowed or not host:
            raise not_a_database(self.shown, "an endpoint is not an https URL")
        return endpoint


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _headers(metadata: DatabaseMetadata) -> dict[str, str]:
    headers = {"authorization": f"Bearer {metadata.token}", "content-type": "application/x-protobuf"}
    if metadata.version == 1:
        return {**headers, OLD_DATABASE_HEADER: metadata.database_id}
    return {**headers, VERSION_HEADER: str(metadata.version), DATABASE_HEADER: metadata.database_id}
