"""ETag, If-None-Match and If-Match: the versionstamp of a record as the version of a resource (RFC 9110).

Rules of this module: an ETag is the versionstamp in quotes. Whether it still holds is decided by the write, with
``if_version``, and not by a read before it.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias, TypeVar

from fastapi import Depends, Header, HTTPException, Request, Response

from kvmodels.schema.compile.model import KvModel

M = TypeVar("M", bound=KvModel)

_TAG: Final = re.compile(r'"([0-9a-f]{20})"')
_ANY_TAG: Final = re.compile(r'(?:W/)?("[^"]*")')


class Precondition:
    """The conditions of a request; a dependency: ``condition: Annotated[Precondition, Depends()]``.

    Pass ``condition.if_version`` to ``patch`` and ``remove``: with ``add_error_handlers``, another version is answered
    with 412. Return ``condition.tagged(user)``: the answer has the ETag, or is a 304 without a body.

    Args:
        request: the request.
        response: the response, whose headers are set.
        if_match: the header If-Match: one ETag, or ``*`` for any version.
        if_none_match: the header If-None-Match: ETags, separated by commas, or ``*``.
    """

    __slots__ = ("_if_match", "_if_none_match", "_response")

    def __init__(
        self,
        request: Request,
        response: Response,
        if_match: Annotated[str | None, Header()] = None,
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> None:
        self._response = response
        self._if_match = None if if_match is None else if_match.strip()
        reads = request.method in ("GET", "HEAD")
        self._if_none_match = if_none_match.strip() if reads and if_none_match is not None else None

    @property
    def if_version(self) -> str | None:
        """The version in If-Match; None without the header, and for ``*``.

        Raises:
            HTTPException: 412: the header is not one ETag of a record, so no record has it.
        """
        if self._if_match is None or self._if_match == "*":
            return None
        tag = _TAG.fullmatch(self._if_match)
        if tag is None:
            raise HTTPException(412, "If-Match is not the ETag of a record")
        return tag[1]

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
        if known is not None and (known == "*" or tag in _ANY_TAG.findall(known)):
            raise HTTPException(304, headers={"ETag": tag})
        self._response.headers["ETag"] = tag
        return record


async def _required(condition: Annotated[Precondition, Depends()]) -> Precondition:
    if not condition.is_given:
        raise HTTPException(428, "this request needs an If-Match with the ETag of the record")
    return condition


RequiredPrecondition: TypeAlias = Annotated[Precondition, Depends(_required)]
"""The annotation of a condition that a request must have; one without If-Match is answered with 428."""
