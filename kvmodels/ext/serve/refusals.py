"""The refusal of a request, and the texts that Deno's own servers answer with.

Rules of this module: Deno repeats a request without end after a status of 500 or above. So 503 means that nothing was
applied, and everything that a repetition cannot change has a status below 500.
"""

from __future__ import annotations

from typing import Final


class RequestRefusedError(Exception):
    """A request that is answered with a status other than 200; the text holds no data of the request or the store."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


INVALID_MESSAGE: Final = "Request protobuf is invalid."
INVALID_KEY: Final = "A key is not a key of Deno KV."
KEY_TOO_LARGE: Final = "A key exceeds the key size limit."
VALUE_TOO_LARGE: Final = "A value exceeds the value size limit."
TOO_MANY_ENTRIES: Final = "The total number of entries requested across read ranges in the read request is too large."
WRITE_TOO_LARGE: Final = "The total size of the atomic write is too large."
TOO_MANY_RANGES: Final = "Too many read ranges requested in one read request."
TOO_MANY_WATCHED: Final = "Too many keys watched in a single watch request."
TOO_MANY_CHECKS: Final = "Too many checks included in atomic write."
TOO_MANY_MUTATIONS: Final = "Too many mutations / enqueues included in atomic write."
TOO_MANY_DEAD_LETTER_KEYS: Final = "Too many dead letter keys for a single queue message."
TOO_MANY_INTERVALS: Final = "Too many backoff intervals for a single queue message."
INTERVAL_TOO_LARGE: Final = "A backoff interval exceeds the maximum allowed backoff interval."
INVALID_LIMIT: Final = "The read range limit of the snapshot read request is invalid."
INVALID_VERSIONSTAMP: Final = "Invalid versionstamp."
INVALID_MUTATION: Final = "Invalid mutation kind or arguments."
INVALID_EXPIRE_AT: Final = "Invalid mutation expire at."
INVALID_DEADLINE: Final = "Invalid mutation enqueue deadline."

INVALID_AUTHORIZATION: Final = "Malformed authorization header."
INVALID_TOKEN: Final = "Invalid access token."  # noqa: S105 - a text
INVALID_DATABASE: Final = "Invalid database id."
INVALID_VERSION: Final = "Expected protocol version 1, 2 or 3."
NO_COMMON_VERSION: Final = "The server could not negotiate a protocol version. The server supports versions 1, 2 and 3."
INVALID_METADATA: Final = "The body is not a JSON object with a list of supportedVersions."
INVALID_HOST: Final = "Protocol version 1 needs a valid Host header."
NOT_FOUND: Final = "Resource not found."
REQUEST_TOO_LARGE: Final = "The request is too large."
REQUEST_TOO_SLOW: Final = "The body of the request did not arrive in time."
READ_ONLY: Final = "This database is read only."
UNAVAILABLE: Final = "The server is temporarily unavailable, try again later."
OUTCOME_UNKNOWN: Final = (
    "The outcome of the atomic write is unknown: it may have been applied. Read its keys before you repeat it."
)
RESERVED: Final = (
    "The atomic write changes keys of a model or of kvmodels itself, which would leave indexes inconsistent. Write "
    "such records with kvmodels, or let the server grant model writes to this token (--allow-model-writes)."
)
UNREADABLE_CATALOGUE: Final = "The catalogue of this store cannot be read by the server, so that writes are refused."
OTHER_ENCODING: Final = (
    "A requested value has an encoding that Deno cannot read. Write the store with kvmodels and codec='v8'."
)
UNREADABLE_STORE: Final = "The store is damaged, or was written by a newer version of kvmodels."
UNSUPPORTED: Final = "The engine of this store does not support this operation."
