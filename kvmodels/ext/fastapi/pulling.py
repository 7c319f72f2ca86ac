"""Pages of changes for clients that were offline: ``ChangedSince``.

Rules of this module: nothing is kept between two requests; a client sends the position of its last page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Generic, TypeVar, overload

from anyio import to_thread
from fastapi import Query
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict

from kvmodels.api._async.repository import AsyncRepository
from kvmodels.api._sync.repository import Repository
from kvmodels.errors import InvalidArgumentError
from kvmodels.ext.fastapi.changes import RecordEvent, event_of
from kvmodels.flows.feeds.changed_since import ChangePage
from kvmodels.flows.feeds.position import Position
from kvmodels.schema.compile.model import KvModel

M = TypeVar("M", bound=KvModel)
T = TypeVar("T")

_MARK: Final = "x-kvmodels-position"
"""The key of a JSON schema that marks the parameter of a position until ``describe_pulls`` removes it."""

MOST_CHANGES: Final = 1_000
"""The greatest ``limit`` that a client can ask for."""


class ChangesPage(BaseModel, Generic[T]):
    """Changes that a client applies to its copy, by their keys, together with the position."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True, use_attribute_docstrings=True)

    changes: list[RecordEvent[T]]
    """Each record once, in its latest version, or its removal."""
    position: str
    """The parameter since of the next request."""
    has_more: bool
    """Whether the next request returns more at once."""


class ChangedSince:
    """The changes after the position of a client; a dependency: ``pull: Annotated[ChangedSince, Depends()]``.

    Write ``return await pull.of(tickets)`` in an endpoint with the return type ``ChangesPage[Ticket]``. The database
    must keep a change log: ``change_log=86_400``. A position that is older than the log, or of another store, is
    answered with 410 if the application has ``add_error_handlers``: the client begins without ``since``.

    Args:
        since: the position of the client; without one the present records come first.
        limit: the number of changes that a page ends with, 1 to 1,000.
    """

    __slots__ = ("_limit", "_since")

    def __init__(
        self,
        since: Annotated[
            str | None,
            Query(
                max_length=8_192,
                description="The position of the last page; none at the first request.",
                json_schema_extra={_MARK: True},
            ),
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_CHANGES, description="The most changes of a page.")] = 500,
    ) -> None:
        try:
            self._since = None if since is None else Position.parse(since)
        except InvalidArgumentError as error:
            raise _refused(since, error) from error
        self._limit = limit

    @overload
    async def of(self, repository: AsyncRepository[M] | Repository[M]) -> ChangesPage[M]: ...
    @overload
    async def of(
        self, repository: AsyncRepository[M] | Repository[M], show: Callable[[M], T | None]
    ) -> ChangesPage[T]: ...
    async def of(
        self, repository: AsyncRepository[Any] | Repository[Any], show: Callable[[Any], Any] | None = None
    ) -> ChangesPage[Any]:
        """Return the next page of a collection.

        Args:
            repository: the repository; a synchronous one is read in a thread.
            show: returns what the client sees of a record; None hides it. A hidden record is sent as removed, because
                the client may have it, so the client learns its key. By default the record itself is sent.

        Returns:
            The page. Cost: as for ``changed_since``.

        Raises:
            ResumeExpiredError: the change log does not reach back to the position, or it is that of another store.
            RequestValidationError: the position belongs to another collection; answered with 422.
            UnsupportedError: the store keeps no change log.
        """
        try:
            page = await self._read(repository)
        except InvalidArgumentError as error:
            if error.argument != "position":
                raise
            raise _refused(str(self._since), error) from error
        events = [event_of(one, one.record if one.record is None or show is None else show(one.record)) for one in page]
        return ChangesPage[Any](changes=events, position=str(page.position), has_more=page.has_more)

    async def _read(self, repository: AsyncRepository[Any] | Repository[Any]) -> ChangePage[Any]:
        if isinstance(repository, AsyncRepository):
            return await repository.changed_since(self._since, limit=self._limit)
        return await to_thread.run_sync(lambda: repository.changed_since(self._since, limit=self._limit))


def describe_pulls(operation: dict[str, Any], problem: dict[str, Any] | None) -> None:
    """Give the OpenAPI description of an operation that depends on a ``ChangedSince`` its 410.

    Args:
        operation: the description, which is changed.
        problem: the content of the response; None for none.
    """
    if any(parameter.get("schema", {}).pop(_MARK, None) for parameter in operation.get("parameters", ())):
        gone = {"description": "The position is too old, or of another store: begin without since."}
        operation["responses"].setdefault("410", gone if problem is None else {**gone, "content": problem})


def _refused(since: str | None, error: InvalidArgumentError) -> RequestValidationError:
    place: dict[str, Any] = {"loc": ("query", "since"), "input": since}
    return RequestValidationError([{**place, "msg": error.message, "type": "value_error"}])
