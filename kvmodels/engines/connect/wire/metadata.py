"""The metadata exchange: JSON that says where a database is served, in which version, and with which token.

Rules of this module: a token is never part of a ``repr`` or of an error.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final, Literal, cast, get_args
from uuid import UUID

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.engines.connect.wire.errors import WireError

VERSIONS: Final = (1, 2, 3)
"""The versions of the protocol, oldest first."""

VERSION_HEADER: Final = "x-denokv-version"
"""The header of the data path that holds the version; version 1 has none."""

DATABASE_HEADER: Final = "x-denokv-database-id"
"""The header of the data path that holds the id of the database, from version 2 on."""

OLD_DATABASE_HEADER: Final = "x-transaction-domain-id"
"""The header of the data path that holds the id of the database in version 1."""

Consistency = Literal["strong", "eventual"]

_MAX_METADATA_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """The versions that a client supports."""

    supported_versions: tuple[int, ...] = (1,)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A URL of the data path, which may be relative to the URL of the exchange, and the consistency of its reads."""

    url: str
    consistency: Consistency


@dataclass(frozen=True, slots=True)
class DatabaseMetadata:
    """The answer of the metadata exchange.

    Attributes:
        version: the version that the server chose.
        database_id: the UUID of the database, as text.
        endpoints: where the data path is served; at least one with strong consistency.
        token: the token of the data path, which may differ from the access token; never shown.
        expires_at: when the client must have asked again; it has a time zone.
    """

    version: int
    database_id: str
    endpoints: tuple[Endpoint, ...]
    token: str
    expires_at: datetime

    def __repr__(self) -> str:
        return f"DatabaseMetadata(version={self.version}, endpoints={len(self.endpoints)}, token=...)"


def encode_metadata_request(message: MetadataRequest) -> bytes:
    """Return the body of the request of the exchange."""
    return json.dumps({"supportedVersions": list(message.supported_versions)}).encode()


def decode_metadata_request(data: bytes) -> MetadataRequest:
    """Return the request of the exchange; a body without content stands for version 1.

    Raises:
        WireError: the body is not such a JSON object.
    """
    if not data:
        return MetadataRequest()
    versions = _json_object(data).get("supportedVersions")
    if not isinstance(versions, list):
        raise WireError("the metadata request has no list of supported versions")
    listed = cast("list[object]", versions)
    numbers = tuple(version for version in listed if isinstance(version, int) and not isinstance(version, bool))
    if len(numbers) < len(listed):
        raise WireError("a supported version is not an integer")
    return MetadataRequest(numbers)


def encode_metadata(message: DatabaseMetadata) -> bytes:
    """Return the body of the answer of the exchange."""
    expires_at = message.expires_at.astimezone(UTC).isoformat(timespec="milliseconds")
    answer = {
        "version": message.version,
        "databaseId": message.database_id,
        "endpoints": [{"url": one.url, "consistency": one.consistency} for one in message.endpoints],
        "token": message.token,
        "expiresAt": expires_at.removesuffix("+00:00") + "Z",
    }
    return json.dumps(answer).encode()


def decode_metadata(data: bytes) -> DatabaseMetadata:
    """Return the answer of the exchange.

    Raises:
        WireError: the body is not such a JSON object, its version is unknown, or no endpoint has strong consistency.
    """
    found = _json_object(data)
    version = found.get("version")
    if type(version) is not int or version not in VERSIONS:
        raise WireError("the metadata has an unknown version")
    return DatabaseMetadata(
        version, _uuid(found), _endpoints(found.get("endpoints")), _text(found, "token"), _expires_at(found)
    )


def _json_object(data: bytes) -> dict[str, Any]:
    if len(data) > _MAX_METADATA_BYTES:
        raise WireError("the metadata is too large")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise WireError("the metadata is not JSON") from None
    if not isinstance(found, dict):
        raise WireError("the metadata is not a JSON object")
    return cast("dict[str, Any]", found)


def _text(found: dict[str, Any], name: str) -> str:
    """Return a text without anything that could not be sent in a header."""
    value = found.get(name)
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        raise WireError(f"the metadata has no text of visible characters in {name}")
    return value


def _uuid(found: dict[str, Any]) -> str:
    try:
        return str(UUID(_text(found, "databaseId")))
    except ValueError:
        raise WireError("the metadata has no UUID in databaseId") from None


def _expires_at(found: dict[str, Any]) -> datetime:
    try:
        expires_at = datetime.fromisoformat(_text(found, "expiresAt"))
    except ValueError:
        raise WireError("the metadata has no time in expiresAt") from None
    if expires_at.tzinfo is None:
        raise WireError("the time in expiresAt has no time zone")
    return expires_at


def _endpoints(listed: object) -> tuple[Endpoint, ...]:
    if not isinstance(listed, list):
        raise WireError("the metadata has no list of endpoints")
    found = tuple(map(_endpoint, cast("list[object]", listed)))
    if not any(one.consistency == "strong" for one in found):
        raise WireError("the metadata has no endpoint with strong consistency")
    return found


def _endpoint(listed: object) -> Endpoint:
    if not isinstance(listed, dict):
        raise WireError("an endpoint is not a JSON object")
    one = cast("dict[str, Any]", listed)
    url = _text(one, "url")
    consistency = one.get("consistency")
    if consistency not in get_args(Consistency):
        raise WireError("an endpoint has an unknown consistency")
    if url.endswith("/"):
        raise WireError("the URL of an endpoint ends with a slash")
    return Endpoint(url, cast("Consistency", consistency))
