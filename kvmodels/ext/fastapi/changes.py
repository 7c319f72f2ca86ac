"""Changed records as server-sent events, resumed where the client lost its connection.

Rules of this module: an event has an id only if every change up to it was sent, so a client that reconnects misses
nothing. FastAPI writes the events, sends the keep-alive comments and cancels the stream of a client that is gone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, cast, overload

from anyio import BrokenResourceError
from fastapi import Depends, Header, Query
from fastapi.sse import ServerSentEvent
from pydantic import BaseModel, ConfigDict

from kvmodels.api._async.repository import AsyncRepository
from kvmodels.api._sync.repository import Repository
from kvmodels.core.values import StoredAsJson
from kvmodels.errors import ResumeExpiredError, TenantRemovedError
from kvmodels.ext.fastapi.shutdown import closed_at_shutdown
from kvmodels.ext.fastapi.tenant_streams import next_of, stream_of
from kvmodels.flows.kv.record_watch import ChangedRecord
from kvmodels.schema.compile.model import KvModel

M = TypeVar("M", bound=KvModel)
T = TypeVar("T")

_POSITION: Final = "^[0-9a-f]{20}$"


class RecordEvent(BaseModel, Generic[T]):
    """The data of an event; the name of the event is the same as event."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True, use_attribute_docstrings=True)

    event: Literal["changed", "removed", "reset"]
    """changed: the record is new or was changed. removed: it was removed or has expired. reset: the present records
    follow, so the client forgets what it has."""
    key: Annotated[Any, StoredAsJson] = None
    """The primary key, a list if it is composite; null for reset. Bytes are hexadecimal digits."""
    record: T | None = None
    """The latest version of a changed record."""
    version: str | None = None
    """The versionstamp of a changed record, for If-Match in quotes and for if_version."""


async def _without_broken_streams() -> AsyncGenerator[None]:
    """Let a stream end without an error when its client is gone.

    FastAPI 0.165 closes the stream to the client before it cancels the task that writes to it. A task that waits there,
    because the client did not read fast enough, then ends with this error, and servers log a traceback.
    """
    try:
        yield
    except BaseExceptionGroup as errors:
        _, others = errors.split(BrokenResourceError)
        if others is not None:
            raise others from None


class RecordChanges:
    """The changes that a client has not seen yet, as server-sent events; a dependency, imported as ``Changes``.

    Declare ``changes: Annotated[Changes, Depends()]`` in an asynchronous generator with the response class
    ``fastapi.sse.EventSourceResponse`` and the return type ``AsyncIterator[RecordEvent[Ticket]]``, and yield each
    event of ``changes.of(tickets)``. The database must keep a change log: ``change_log=3600``.

    Args:
        last_event_id: the header Last-Event-ID, which a browser sends when it reconnects.
        since: the query parameter for the first connection: a versionstamp, after which changes are sent. Without it,
            the present records come first, after the event ``reset``.
    """

    __slots__ = ("_since",)

    def __init__(
        self,
        last_event_id: Annotated[str | None, Header(pattern=_POSITION)] = None,
        since: Annotated[str | None, Query(pattern=_POSITION)] = None,
        _stream: Annotated[None, Depends(_without_broken_streams)] = None,
    ) -> None:
        self._since = last_event_id or since

    @overload
    def of(self, repository: AsyncRepository[M] | Repository[M]) -> AsyncIterator[RecordEvent[M]]: ...
    @overload
    def of(
        self, repository: AsyncRepository[M] | Repository[M], show: Callable[[M], T | None]
    ) -> AsyncIterator[RecordEvent[T]]: ...
    def of(
        self, repository: AsyncRepository[Any] | Repository[Any], show: Callable[[Any], Any] | None = None
    ) -> AsyncIterator[RecordEvent[Any]]:
        """Return the events of a collection; for FastAPI, each is a ``ServerSentEvent`` with a ``RecordEvent`` as data.

        A client whose position is older than the change log gets ``reset`` and the present records. The stream ends
        when the client disconnects, when the database is closed, when its tenant is removed, and within a second of
        SIGTERM or SIGINT.

        Args:
            repository: the repository; a stream over a synchronous one occupies a thread.
            show: returns what the client sees of a record, such as an object of another class; None hides the record.
                By default the record itself is sent. A hidden record causes no event, unless this stream has sent it
                before: then it is sent as removed. A stream that resumes does not know which records the client has.
                Before its first removal of a record that it has not sent, it sends ``reset`` and the present records.

        Returns:
            An asynchronous iterator. Cost: as for ``watch``; with ``show``, memory for the key of each shown record.

        Raises:
            UnsupportedError: at the first event: the store keeps no change log.
            DecodeError: at an event: a record cannot be read as an object.
        """
        # A ServerSentEvent carries the id; FastAPI describes the type that the endpoint declares.
        view = _EveryRecord() if show is None else _ShownRecords(show, knows_all=self._since is None)
        return cast("AsyncIterator[RecordEvent[Any]]", _events(repository, self._since, view))


class _EveryRecord:
    """The view of a client that may see every record."""

    def events(self, changes: list[ChangedRecord[Any]]) -> list[RecordEvent[Any]]:
        return [event_of(change, change.record) for change in changes]

    def begin_again(self) -> None:
        """Forget what the client has."""


class _ShownRecords:
    """The view of a client that sees what ``show`` returns.

    Args:
        show: returns what the client sees of a record.
        knows_all: whether the client has only records that this stream has sent.
    """

    def __init__(self, show: Callable[[Any], Any], *, knows_all: bool) -> None:
        self._show = show
        self._sent: set[Any] = set()
        self._knows_all = knows_all

    def events(self, changes: list[ChangedRecord[Any]]) -> list[RecordEvent[Any]] | None:
        """Return the events for some changes; None if the client may have a record that is gone, or hidden now."""
        found: list[RecordEvent[Any]] = []
        for change in changes:
            shown = None if change.record is None else self._show(change.record)
            if shown is not None:
                self._sent.add(change.key)
            elif change.key in self._sent:
                self._sent.remove(change.key)
            elif self._knows_all:
                continue  # the key of a record that the client never had would tell that it exists
            else:
                return None
            found.append(event_of(change, shown))
        return found

    def begin_again(self) -> None:
        """Forget what the client has."""
        self._sent.clear()
        self._knows_all = True


async def _events(
    repository: AsyncRepository[Any] | Repository[Any], since: str | None, view: _EveryRecord | _ShownRecords
) -> AsyncGenerator[ServerSentEvent]:
    while True:
        if since is None:
            view.begin_again()
            yield _sent(RecordEvent[Any](event="reset"), None)
        watch = stream_of(repository, since)
        since = None  # where it cannot go on, it begins again
        with closed_at_shutdown(watch):
            try:
                while (changes := await next_of(watch)) is not None:
                    events = view.events(changes)
                    if events is None:
                        break
                    # The position of a batch is the id of its last event: a client that lost the others gets all again.
                    for event in events[:-1]:
                        yield _sent(event, None)
                    if events:
                        yield _sent(events[-1], watch.versionstamp)
                    elif watch.versionstamp is not None:
                        yield ServerSentEvent(id=watch.versionstamp)
                else:
                    return
            except ResumeExpiredError:
                pass
            except TenantRemovedError:
                return  # the next request of the client is told so


def event_of(change: ChangedRecord[Any], shown: Any) -> RecordEvent[Any]:
    """Return the event of a change; ``shown`` is what the client sees of the record, None for a removal."""
    if shown is None:
        return RecordEvent(event="removed", key=change.key)
    return RecordEvent(event="changed", key=change.key, record=shown, version=change.versionstamp)


def _sent(event: RecordEvent[Any], position: str | None) -> ServerSentEvent:
    return ServerSentEvent(event=event.event, raw_data=event.model_dump_json(by_alias=True), id=position)
