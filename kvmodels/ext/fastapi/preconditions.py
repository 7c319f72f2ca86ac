"""ETag, If-None-Match and If-Match: the versionstamp of a record as the version of a resource (RFC 9110).

Rules of this module: an ETag is the versionstamp in quotes. Whether it still holds is decided by the write, with
``if_version``, and not by a read before it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from fastapi import Depends, Header, HTTPException, Request, Response

from kvmodels.flows.arguments import OtherVersions
from kvmodels.schema.compile.model import KvModel

M = TypeVar("M", bound=KvModel)

_MARK: Final = "x-kvmodels-precondition"
"""The key of a JSON schema that marks a header of ``Precondition`` until ``describe_conditions`` removes it."""
_IF_MATCH: Final = Header(
    description="The ETags of the versions that the request may read, change or remove; * for any version. "
    "Any other version is answered with 412.",
    json_schema_extra={_MARK: "If-Match"},
)
_IF_NONE_MATCH: Final = Header(
    description="The ETags of versions that the client has or does not want to change; * for any version. "
    "A record in one of these versions is answered with 304, a change of it with 412.",
    json_schema_extra={_MARK: "If-None-Match"},
)
_STRONG_TAG: Final = re.compile(r'"([0-9a-f]{20})"')
_NO_VERSION: Final = ("0" * 20,)
"""Refuses every stored version: no commit has this versionstamp."""
_LISTED_TAG: Final = re.compile(r'(?:W/)?"[^"]*"')


class Precondition:
    """The conditions of a request; a dependency: ``condition: Annotated[Precondition, Depends()]``.

    Pass ``condition.if_version`` to ``patch`` and ``remove``: with ``add_error_handlers``, another version is answered
    with 412, and a missing record with 404. Return ``condition.tagged(user)``: the answer has the ETag; of a GET, it is
    a 412 without one of the versions in If-Match, and a 304 for a version in If-None-Match (RFC 9110, section 13.2.2).

    Args:
        request: the request.
        response: the response, whose headers are set.
        if_match: the header If-Match: ETags, separated by commas, or ``*`` for any version.
        if_none_match: the header If-None-Match: ETags, separated by commas, or ``*``.
    """

    __slots__ = ("_if_match", "_if_none_match", "_reads", "_response")

    def __init__(
        self,
        request: Request,
        response: Response,
        if_match: Annotated[str | None, _IF_MATCH] = None,
        if_none_match: Annotated[str | None, _IF_NONE_MATCH] = None,
    ) -> None:
        self._response = response
        # A header may be sent in several lines, of which FastAPI shows one.
        self._if_match = None if if_match is None else _joined(request, "if-match")
        self._if_none_match = None if if_none_match is None else _joined(request, "if-none-match")
        self._reads = request.method in ("GET", "HEAD")

    @property
    def if_version(self) -> Collection[str] | None:
        """The versions that the request may change: those in If-Match, but none in If-None-Match; None for any.

        With a condition, a missing record is a 404, as without one (RFC 9110, section 13.2.1). A weak ETag in If-Match
        never matches.
        """
        if self._if_none_match == "*":
            return OtherVersions()
        refused = _versions(_weakly(self._if_none_match or ""))
        if self._if_match is None or self._if_match == "*":
            return OtherVersions(refused) if refused else None
        allowed = _versions(_LISTED_TAG.findall(self._if_match))
        return tuple(version for version in allowed if version not in refused) or _NO_VERSION

    @property
    def is_given(self) -> bool:
        """Whether the request has an If-Match."""
        return self._if_match is not None

    def tagged(self, record: M) -> M:
        """Set the ETag of the response to the version of a record; without one if the record is not committed yet.

        Args:
            record: the record that the response shows.

        Returns:
            The same record.

        Raises:
            HTTPException: of a GET: 412: the record has no version of If-Match; 304: the client has this version.
        """
        if record.versionstamp is None:
            return record
        tag = f'"{record.versionstamp}"'
        if self._reads:
            self._require(tag)
        self._response.headers["ETag"] = tag
        return record

    def _require(self, tag: str) -> None:
        """Answer the conditions of a request that reads a record with this ETag."""
        if self._if_match not in (None, "*") and tag not in _LISTED_TAG.findall(self._if_match or ""):
            raise HTTPException(412, "the record has none of the versions in If-Match", headers={"ETag": tag})
        known = self._if_none_match
        if known is not None and (known == "*" or tag in _weakly(known)):
            raise HTTPException(304, headers={"ETag": tag})


def _joined(request: Request, name: str) -> str:
    return ", ".join(request.headers.getlist(name)).strip()


def _weakly(tags: str) -> set[str]:
    """Return the ETags of a header for a comparison that does not distinguish weak ones."""
    return {tag.removeprefix("W/") for tag in _LISTED_TAG.findall(tags)}


def _versions(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the versionstamps of those ETags that a record can have."""
    return tuple(found[1] for tag in tags if (found := _STRONG_TAG.fullmatch(tag)) is not None)


async def _required(condition: Annotated[Precondition, Depends()]) -> Precondition:
    if not condition.is_given:
        raise HTTPException(428, "this request needs an If-Match with the ETag of the record")
    return condition


RequiredPrecondition: TypeAlias = Annotated[Precondition, Depends(_required)]
"""The annotation of a condition that a request must have; one without If-Match is answered with 428."""


def describe_conditions(method: str, operation: dict[str, Any]) -> None:
    """Complete the OpenAPI description of an operation that depends on a ``Precondition``.

    It gets its ETag and its 304. A header that has no effect is left out, and an If-Match is required if the operation
    describes a 428.

    Args:
        method: the method of the operation, in lower case.
        operation: the description, which is changed.
    """
    responses = operation.get("responses", {})
    kept: list[Any] = []
    is_conditional = False
    for parameter in operation.get("parameters", ()):
        header = parameter.get("schema", {}).pop(_MARK, None)
        is_conditional = is_conditional or header is not None
        if header is not None and method == "post" and "412" not in responses:
            continue
        if header == "If-Match" and "428" in responses:
            parameter |= {"required": True, "schema": {"type": "string", "title": "If-Match"}}
        kept.append(parameter)
    if not is_conditional:
        return
    operation["parameters"] = kept
    for status, response in responses.items():
        if status.startswith("2") and "content" in response:
            response.setdefault("headers", {})["ETag"] = {
                "description": "The version of the record, to send in If-Match or If-None-Match.",
                "schema": {"type": "string"},
            }
    if method == "get":
        responses.setdefault("304", {"description": "Not Modified"})
