"""Reads of the versions of one record: in pages, newest first, and the one that was current at a time.

The record and its rows are read in this order, in one read where possible. A row that a later commit wrote for the
version that the record showed is left out, so an answer is that of the moment when the record was read.

Another process may change the options of a history at any time. A read under a former header begins again, because the
horizon and the rows that are shown follow from them.

Rules of this module: nothing is written. Inside of a transaction the committed state is read, never its own writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import wraps
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.history import StoredHistory
from kvmodels.catalog.keyspace import history_prefix
from kvmodels.core.keys import encode_key, key_successor
from kvmodels.core.operations import GuardFailed, ReadRange, ReadResult, Row, after_prefix, parse_versionstamp, point
from kvmodels.errors import HistoryExpiredError, IndexNotReadyError, InvalidArgumentError
from kvmodels.flows.arguments import refusal
from kvmodels.flows.context import Context, live_collection, reload_header
from kvmodels.flows.effects import Flow, Read, ReadPresent, now, rows_at_once
from kvmodels.flows.history.versions import Revision, Version, as_time, ended_version, present_version, revision_of
from kvmodels.flows.hydration.rows import shown_key
from kvmodels.flows.writing.record_write import packed_key
from kvmodels.schema.definition.definition import ModelSchema, Variants

P = ParamSpec("P")
T = TypeVar("T")

ROWS_AT_ONCE: Final = 100
"""Rows of one record that are read together."""

KEYS_AT_ONCE: Final = 100
"""Records whose versions are read together."""

NEWEST_ROWS: Final = 20
"""Rows of each of them."""

_WHEN: Final = "Give an aware datetime that is not in the future, or a versionstamp of 20 hexadecimal digits."


class Moment(NamedTuple):
    """A moment of the past: a time in ms, or a versionstamp."""

    time_ms: int | None
    versionstamp: str | None


class _HistoryChangedError(Exception):
    """The present header lists the history with other options than the reader has."""


def under_present_history(flow: Callable[P, Flow[T]]) -> Callable[P, Flow[T]]:
    """Return a flow that begins again if another process has changed the options of the history."""

    @wraps(flow)
    def restarted(*args: P.args, **options: P.kwargs) -> Flow[T]:
        while True:
            try:
                return (yield from flow(*args, **options))
            except _HistoryChangedError:
                continue

    return restarted


class RevisionPage(NamedTuple):
    """Some revisions, and the position after the last one; None at the end."""

    revisions: list[Revision[Any]]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class HistoryReader:
    """The history of one collection under the present header, for a model of the collection.

    ``variants``: the classes of the model, if the collection has records of other ones, which it does not show.
    """

    context: Context
    live: LiveCollection
    history: StoredHistory
    now_ms: int
    variants: Variants | None = None

    @property
    def prefix(self) -> bytes:
        """The common prefix of all history rows of the collection."""
        return history_prefix(self.live.schema.collection)

    @property
    def horizon(self) -> int:
        """The earliest time, in ms, about which every answer is exact."""
        return self.history.horizon(self.now_ms)

    def read(self, ranges: Sequence[ReadRange]) -> Flow[list[list[Row]]]:
        """Return the committed rows of ranges, for flows ``under_present_history``.

        Raises IndexNotReadyError: the history is not ready any more.
        """
        context = self.context
        if context.transaction is not None:
            present: ReadResult = yield ReadPresent(ranges)
            return present.ranges
        while True:
            view, live = yield from live_collection(context, self.live.schema)
            self._require_same(live)
            found: ReadResult | GuardFailed = yield Read(ranges, view.guard)
            if not isinstance(found, GuardFailed):
                return found.ranges
            yield from reload_header(context)

    def require_present(self) -> Flow[None]:
        """Make the flow begin again if the options of the history have changed."""
        if self.context.transaction is None:
            yield from reload_header(self.context)
            self._require_same((yield from live_collection(self.context, self.live.schema))[1])

    def _require_same(self, live: LiveCollection) -> None:
        if live.history == self.history:
            return
        if live.history is None or not live.history.readable:
            raise _not_ready(live)
        raise _HistoryChangedError

    def shows(self, version: Version) -> bool:
        """Return whether a version is one of a class of the model."""
        return self.variants is None or self.variants.of_document(version.document) is not None

    def versions_of(self, row: Row | None, rows: Sequence[Row]) -> list[Version]:
        """Return the versions of a record and of some of its rows, newest first, without rows of later versions."""
        codec = self.context.codec
        present = None if row is None else present_version(codec, self.live, row)
        found = [one for row in rows if (one := ended_version(codec, self.prefix, row, self.now_ms)) is not None]
        if present is None:
            return found
        return [present, *(one for one in found if one.begin < present.begin)]


def history_reader(context: Context, schema: ModelSchema) -> Flow[HistoryReader]:
    """Return the history of a model. Raises InvalidArgumentError: it has none; IndexNotReadyError: it is not ready."""
    _, live = yield from live_collection(context, schema)
    if live.history is None or not live.history.readable:
        yield from reload_header(context)
        _, live = yield from live_collection(context, schema)
    if live.history is None and schema.history is None:
        raise InvalidArgumentError(
            "the model has no history",
            argument="model",
            value=schema.name,
            hint="Write history = History() in its Meta, and run db.apply() if there are records.",
        )
    if live.history is None or not live.history.readable:
        raise _not_ready(live)
    variants = schema.variants if schema.variants is not None and schema.variants.where else None
    return HistoryReader(context, live, live.history, (yield from now()), variants)


def _not_ready(live: LiveCollection) -> IndexNotReadyError:
    return IndexNotReadyError(
        "the history of the model is not ready",
        model=live.schema.name,
        index="history",
        state="undeclared" if live.history is None else live.history.state,
        hint="Run db.apply(), which looks at every record and makes the history readable.",
    )


def moment_of(when: object, now_ms: int) -> Moment:
    """Return a moment as callers give it. Raises InvalidArgumentError."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise refusal("a time without a time zone names no moment", "when", when, _WHEN)
        time_ms = int(when.timestamp() * 1_000)
        if time_ms > now_ms:
            raise refusal("a moment of the past lies in the future", "when", when, _WHEN)
        return Moment(time_ms, None)
    try:
        return Moment(None, parse_versionstamp(when).hex())
    except (TypeError, ValueError):
        raise refusal("this is no moment of the past", "when", when, _WHEN) from None


# --- pages ----------------------------------------------------------------------------------------------------


@under_present_history
def history_page(
    context: Context, schema: ModelSchema, given: Any, size: int, cursor: str | None
) -> Flow[RevisionPage]:
    """Return versions of a record, newest first, at most ``size``; ``cursor``: after the revision of that begin.

    Cost: one read of the record and of size + 1 rows.
    """
    _require_size(size)
    _, pk = packed_key(context, schema, given)
    reader = yield from history_reader(context, schema)
    limit = rows_at_once(context.limits, size + 1, others=1)
    start = reader.prefix + pk
    end = after_prefix(start) if cursor is None else start + encode_key((_begin_in(cursor),))
    rows = ReadRange(start, end, limit, reverse=True)
    if cursor is None:
        found = yield from reader.read((point(reader.live.layout.key(pk)), rows))
        record = found[0][0] if found[0] else None
        versions = reader.versions_of(record, found[1])
    else:
        found = yield from reader.read((rows,))
        versions = reader.versions_of(None, found[0])
    shown = versions[: min(size, limit - 1)]
    following = {one.begin: one for one in versions}
    revisions = [revision_of(reader.live, one, following.get(one.before or "")) for one in shown if reader.shows(one)]
    more = len(versions) > len(shown) or len(found[-1]) == limit
    return RevisionPage(revisions, shown[-1].begin if shown and more else None)


def _require_size(size: object) -> None:
    if type(size) is not int or size < 1:
        raise refusal("the size of a page is 1 or more", "size", size, "Give a whole number: page(size=20).")


def _begin_in(cursor: object) -> str:
    text = cursor.lstrip("-") if isinstance(cursor, str) else ""
    if len(text) != 20 or not isinstance(cursor, str) or any(letter not in "0123456789abcdef" for letter in text):
        raise refusal("this is no cursor of a history", "cursor", cursor, "Give next_cursor of the page before.")
    return cursor


# --- one moment -----------------------------------------------------------------------------------------------


@under_present_history
def revision_at(context: Context, schema: ModelSchema, given: Any, when: object) -> Flow[Revision[Any] | None]:
    """Return the version of a record that was current at a moment; None if the record was certainly absent.

    Raises HistoryExpiredError: it is not known. Cost: one read; more if many versions are newer.
    """
    _, pk = packed_key(context, schema, given)
    reader = yield from history_reader(context, schema)
    moment = moment_of(when, reader.now_ms)
    version, is_certain = yield from version_at(reader, pk, moment)
    if version is not None:
        return (yield from with_changes(reader, version))
    if not is_certain:
        yield from reader.require_present()
        raise expired(reader, shown_key(reader.live.layout.unpack(pk)))
    return None


def with_changes(reader: HistoryReader, version: Version) -> Flow[Revision[Any]]:
    """Return the revision of a version, with a read of the version before it."""
    before = None
    if version.before is not None:
        key = reader.prefix + version.pk + encode_key((version.before,))
        found = yield from reader.read((point(key),))
        before = ended_version(reader.context.codec, reader.prefix, found[0][0], reader.now_ms) if found[0] else None
    return revision_of(reader.live, version, before)


def version_at(reader: HistoryReader, pk: bytes, moment: Moment) -> Flow[tuple[Version | None, bool]]:
    """Return the version that was current at a moment, and whether its absence is certain."""
    start = reader.prefix + pk
    end = after_prefix(start)
    if moment.versionstamp is not None:
        end = key_successor(start + encode_key((moment.versionstamp,)))
    limit = rows_at_once(reader.context.limits, ROWS_AT_ONCE if moment.versionstamp is None else 1, others=1)
    record: tuple[ReadRange, ...] = (point(reader.live.layout.key(pk)),)
    while True:
        found = yield from reader.read((*record, ReadRange(start, end, limit, reverse=True)))
        rows = found[-1]
        versions = reader.versions_of(found[0][0] if record and found[0] else None, rows)
        chosen = newest_at(versions, moment)
        if chosen is not None or len(rows) < limit or moment.versionstamp is not None:
            return _settled(reader, chosen, moment)
        record, end = (), rows[-1].key


def versions_at(reader: HistoryReader, pks: Sequence[bytes], moment: Moment) -> Flow[list[Version | None]]:
    """Return the versions of several records that were current at a moment; the moment is after the horizon.

    Cost: one read for each batch of keys; one more for a key with more than ``NEWEST_ROWS`` newer versions.
    """
    limits = reader.context.limits
    most = rows_at_once(limits, NEWEST_ROWS, others=2)
    at_once = max(1, min(KEYS_AT_ONCE, (limits.max_ranges - 1) // 2, (limits.max_read_entries - 1) // (most + 1)))
    found: list[Version | None] = []
    for start in range(0, len(pks), at_once):
        batch = pks[start : start + at_once]
        rows = [reader.prefix + pk for pk in batch]
        records = [point(reader.live.layout.key(pk)) for pk in batch]
        newest = [ReadRange(row, after_prefix(row), most, reverse=True) for row in rows]
        read = yield from reader.read((*records, *newest))
        for pk, record, ended in zip(batch, read, read[len(batch) :], strict=False):
            chosen = newest_at(reader.versions_of(record[0] if record else None, ended), moment)
            if chosen is None and len(ended) == most:
                found.append((yield from version_at(reader, pk, moment))[0])
            else:
                found.append(_settled(reader, chosen, moment)[0])
    return found


def newest_at(versions: Sequence[Version], moment: Moment) -> Version | None:
    """Return the newest of these versions, newest first, that had begun at a moment."""
    if moment.time_ms is not None:
        return next((one for one in versions if one.began_by(moment.time_ms)), None)
    stamp = moment.versionstamp or ""
    return next((one for one in versions if one.begin <= stamp and one.begin[:1] != "-"), None)


def lasts_at(version: Version, moment: Moment) -> bool:
    """Return whether a version that had begun at a moment had not ended."""
    if moment.time_ms is not None:
        return version.lasted_beyond(moment.time_ms)
    return version.contains(moment.versionstamp or "")


def _settled(reader: HistoryReader, chosen: Version | None, moment: Moment) -> tuple[Version | None, bool]:
    if chosen is not None and lasts_at(chosen, moment):
        return (chosen if reader.shows(chosen) else None), True
    return None, is_certain_at(reader, moment) or (
        chosen is not None and not reader.history.keeps and reader.history.keeps_updates and chosen.begin[:1] != "-"
    )


def is_certain_at(reader: HistoryReader, moment: Moment) -> bool:
    """Return whether every version that was current at a moment is kept."""
    history = reader.history
    if not history.keeps_updates:
        return False
    if moment.time_ms is not None:
        return moment.time_ms >= reader.horizon
    if history.keep is not None or history.keeps:
        return False
    return history.begin is None or (moment.versionstamp or "") >= history.begin


def expired(reader: HistoryReader, key: Any) -> HistoryExpiredError:
    """Return the error for a moment about which nothing is certain."""
    return HistoryExpiredError(
        "the state at this moment is not known",
        model=reader.live.schema.name,
        key=key,
        horizon=as_time(reader.horizon).isoformat(timespec="milliseconds"),
    )
