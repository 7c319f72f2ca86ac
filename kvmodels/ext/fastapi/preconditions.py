"""ETag, If-None-Match and If-Match: the versionstamp of a record as the version of a resource (RFC 9110).

Rules of this module: an ETag is the versionstamp in quotes. Whether it still holds is decided by the write, with
``if_version``, and not by a read before it.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from fastapi import Depends, Header, HTTPException, Request, Response

from kvmodels.schema.compile.model import KvModel

M = TypeVar("M", bound=KvModel)

_MARK: Final = "x-kvmodels-precondition"
"""The key of a JSON schema that marks a header of ``Precondition`` until ``describe_conditions`` removes it."""
_IF_MATCH: Final = Header(
    description="The ETags of the versions that the request may change or remove; * for any version.",
    json_schema_extra={_MARK: "If-Match"},
)
_IF_NONE_MATCH: Final = Header(
    description="The ETags that the client has. A record in one of these versions is answered with 304.",
    json_schema_extra={_MARK: "If-None-Match"},
)
_STRONG_TAG: Final = re.compile(r'"([0-9a-f]{20})"')
_LISTED_TAG: Final = re.compile(r'(?:W/)?"[^"]*"')


class Precondition:
    """The conditions of a request; a dependency: ``condition: Annotated[Precondition, Depends()]``.

    Pass ``condition.if_version`` to ``patch`` and ``remove``: with ``add_error_handlers``, another version is answered
    with 412. Return ``condition.tagged(user)``: the answer has the ETag, or is a 304 without a body.

    Args:
        request: the request.
        response: the response, whose headers are set.
        if_match: the header If-Match: ETags, separated by commas, or ``*`` for any version.
        if_none_match: the header If-None-Match: ETags, separated by commas, or ``*``.
    """

    __slots__ = ("_if_match", "_if_none_match", "_response")

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
        reads = request.method in ("GET", "HEAD")
        self._if_none_match = _joined(request, "if-none-match") if reads and if_none_match is not None else None

    @property
    def if_version(self) -> tuple[str, ...] | None:
        """The versions in If-Match; None without the header, and for ``*``. With ``*`` a missing record is a 404.

        Raises:
            HTTPException: 412: no ETag in the header can be that of a record. A weak one never matches (RFC 9110).
        """
        if self._if_match is None or self._if_match == "*":
            return None
        strong = _STRONG_TAG.fullmatch
        versions = tuple(found[1] for tag in _LISTED_TAG.findall(self._if_match) if (found := strong(tag)) is not None)
        if not versions:
            raise HTTPException(412, "If-Match has no ETag of a record")
        return versions

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
            HTTPException: 304: the client has this version already.
        """
        if record.versionstamp is None:
            return record
        tag = f'"{record.versionstamp}"'
        known = self._if_none_match
        if known is not None and (known == "*" or tag in _weakly(known)):
            raise HTTPException(304, headers={"ETag": tag})
        self._response.headers["ETag"] = tag
        return record


def _joined(request: Request, name: str) -> str:
    return ", ".join(request.headers.getlist(name)).strip()


def _weakly(tags: str) -> set[str]:
    """Return the ETags of a header for a comparison that does not distinguish weak ones."""
    return {tag.removeprefix("W/") for tag in _LISTED_TAG.findall(tags)}


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
        if header == "If-Match":
            if method == "get" or (method == "post" and "412" not in responses):
                continue
            if "428" in responses:
                parameter |= {"required": True, "schema": {"type": "string", "title": "If-Match"}}
        elif header == "If-None-Match" and method != "get":
            continue
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
