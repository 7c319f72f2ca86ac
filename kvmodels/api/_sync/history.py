# Generated from kvmodels/api/_async/history.py by tools/unasync.py. Do not edit.
"""Old versions of records, and new ones: RecordHistory, Trash, Past, and the iterators of watches.

Rules of this module: a method runs one flow and contains no decisions. Nothing is read before an answer is needed.
Between two items of a watch nothing is open and nothing is queued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, TypeVar, cast

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.api._sync._compat import engine_of, run
from kvmodels.api._sync.queryset import Runner
from kvmodels.api.opening import Opening
from kvmodels.api.refusals import refuse_copies
from kvmodels.flows.effects import Flow
from kvmodels.flows.feeds import resumed_watch
from kvmodels.flows.feeds.position import Position
from kvmodels.flows.history import past, reading, trash
from kvmodels.flows.history.versions import Revision
from kvmodels.flows.kv.record_watch import ChangedRecord, RecordWatch, TenantRows, TenantsWatch
from kvmodels.query.query import Page
from kvmodels.schema.declare.expressions import Expression
from kvmodels.schema.filters.predicate import Conjunction

M = TypeVar("M")
D = TypeVar("D")

PAGE_SIZE = 50
"""Revisions that an iteration reads at once."""


class _Revisions(Generic[M]):
    """A list of revisions that is read in pages."""

    __slots__ = ("_pages", "_runner", "_verb")

    def __init__(
        self, runner: Runner, verb: str, pages: Callable[[int, str | None], Flow[reading.RevisionPage]]
    ) -> None:
        self._runner = runner
        self._verb = verb
        self._pages = pages

    def page(self, size: int, cursor: str | None = None) -> Page[Revision[M]]:
        """Return one page of revisions.

        Args:
            size: the maximum number of revisions, 1 or more.
            cursor: ``next_cursor`` of the page before; None: the first page.

        Returns:
            The page; its ``next_cursor`` is None at the end. Cost: one read of ``size`` + 1 rows for a history; three
            reads, two of them for each row, for removed records.

        Raises:
            InvalidArgumentError: the size or the cursor is invalid, or the model has no history.
            IndexNotReadyError: the history is not ready yet.
        """
        found: reading.RevisionPage = self._runner.run(self._verb, self._pages(size, cursor))
        return Page(found.revisions, found.next_cursor, found.next_cursor is not None)

    def __iter__(self) -> Iterator[Revision[M]]:
        cursor: str | None = None
        while True:
            part = self.page(PAGE_SIZE, cursor)
            yield from part.items
            cursor = part.next_cursor
            if cursor is None:
                return


class RecordHistory(_Revisions[M], Generic[M]):
    """The versions of one record, newest first; created by ``contracts.history(key)``."""

    __slots__ = ("_key",)

    def __init__(self, runner: Runner, key: Any) -> None:
        context, schema = runner.context, runner.schema
        super().__init__(
            runner, "history", lambda size, cursor: reading.history_page(context, schema, key, size, cursor)
        )
        self._key = key

    def at(self, when: datetime | str) -> Revision[M] | None:
        """Return the version that was current at a moment.

        Args:
            when: an aware datetime that is not in the future, or a versionstamp.

        Returns:
            The revision; None if the record was certainly absent. Cost: one or two reads, more if many versions are
            newer.

        Raises:
            HistoryExpiredError: it is not known, because the moment is before the horizon.
            InvalidArgumentError: this is no moment of the past.
        """
        runner = self._runner
        found: Revision[M] | None = runner.run(
            "history", reading.revision_at(runner.context, runner.schema, self._key, when)
        )
        return found


class Trash(_Revisions[M], Generic[M]):
    """The last revisions of removed records, in the order of their keys; created by ``contracts.trash()``."""

    __slots__ = ()

    def __init__(self, runner: Runner) -> None:
        context, schema = runner.context, runner.schema
        super().__init__(runner, "trash", lambda size, cursor: trash.trash_page(context, schema, size, cursor))


class Past(Generic[M]):
    """The records of a model as they were at a moment, read-only; created by ``contracts.as_of(when)``."""

    __slots__ = ("_runner", "_when")

    def __init__(self, runner: Runner, when: datetime | str) -> None:
        self._runner = runner
        self._when = when

    def get(self, key: Any, /) -> M:
        """Return the record with this primary key as it was.

        Args:
            key: the primary key, a tuple if it is composite.

        Returns:
            The object, which no store knows. Cost: one read of the record and of its newer versions.

        Raises:
            DoesNotExist: there was none.
            HistoryExpiredError: the moment is before the horizon of the history.
        """
        runner = self._runner
        found: M = runner.run("as_of", past.required_past_record(runner.context, runner.schema, self._when, key))
        return found

    def get_or_none(self, key: Any, /) -> M | None:
        """Return the record like ``get``, or None if there was none.

        Args:
            key: the primary key, a tuple if it is composite.

        Returns:
            The object or None. Cost: as for ``get``.

        Raises:
            HistoryExpiredError: the moment is before the horizon of the history.
        """
        runner = self._runner
        found: M | None = runner.run("as_of", past.past_record(runner.context, runner.schema, self._when, key))
        return found

    def get_many(self, keys: Iterable[Any]) -> list[M | None]:
        """Return the records with these primary keys as they were.

        Args:
            keys: primary keys, tuples if composite.

        Returns:
            Objects in the order of the keys; None for each that there was not. Cost: one read for each batch of keys,
            and one more for a key with many newer versions.

        Raises:
            HistoryExpiredError: the moment is before the horizon of the history.
        """
        runner = self._runner
        found: list[M | None] = runner.run("as_of", past.past_records(runner.context, runner.schema, self._when, keys))
        return found

    def exists(self, key: Any, /) -> bool:
        """Return whether there was a record with this primary key.

        Args:
            key: the primary key, a tuple if it is composite.

        Returns:
            True or False. Cost: as for ``get``.

        Raises:
            HistoryExpiredError: the moment is before the horizon of the history.
        """
        return self.get_or_none(key) is not None

    def filter(self, /, *expressions: Expression, **lookups: Any) -> PastQuery[M]:
        """Return a query of the records as they were; call ``allow_scan()`` on it.

        Args:
            expressions: conditions such as ``Contract.amount > 100``.
            lookups: conditions as keywords, ``amount__gt=100``.

        Returns:
            The query, whose results are in the order of the primary keys. Cost: none; nothing is read.

        Raises:
            InvalidArgumentError: a condition names an excluded field, or has a query as its operand.
            QueryError: a condition is wrong.
        """
        schema = self._runner.schema
        excluded = () if schema.history is None else schema.history.exclude
        where = past.past_conditions(schema, expressions, lookups, excluded)
        return PastQuery(self._runner, self._when, where, allowed=False)


@dataclass(frozen=True, slots=True)
class _PastState:
    """The moment and the conditions of a query of the past."""

    when: datetime | str
    where: Conjunction
    allowed: bool


class PastQuery(Generic[M]):
    """The records that matched a filter at a moment, in the order of their keys; see ``Past.filter``."""

    __slots__ = ("_runner", "_state")

    def __init__(self, runner: Runner, when: datetime | str, where: Conjunction, *, allowed: bool) -> None:
        self._runner = runner
        self._state = _PastState(when, where, allowed)

    def allow_scan(self) -> PastQuery[M]:
        """Allow to read all records and all old versions of the collection.

        Returns:
            The query. Cost: none; nothing is read.
        """
        state = replace(self._state, allowed=True)
        return PastQuery(self._runner, state.when, state.where, allowed=True)

    def __iter__(self) -> Iterator[M]:
        state, runner = self._state, self._runner
        past.require_scan(runner.context, runner.schema, allowed=state.allowed)
        after: bytes | None = None
        while True:
            found: tuple[list[M], bytes | None] = runner.run(
                "as_of", past.past_batch(runner.context, runner.schema, state.when, state.where, after)
            )
            yield from found[0]
            after = found[1]
            if after is None:
                return

    def to_list(self) -> list[M]:
        """Return all objects.

        Returns:
            A list in the order of the primary keys. Cost: all records and all old versions of the collection.

        Raises:
            NoUsableIndexError: ``allow_scan()`` was not called.
            HistoryExpiredError: the moment is before the horizon of the history.
            DecodeError: an old version cannot be read as an object.
        """
        found: list[M] = []
        for one in self:
            found += (one,)
        return found

    def count(self) -> int:
        """Return the number of objects.

        Returns:
            The number. Cost: as for ``to_list``.

        Raises:
            NoUsableIndexError: ``allow_scan()`` was not called.
            HistoryExpiredError: the moment is before the horizon of the history.
        """
        return len(self.to_list())

    def exists(self) -> bool:
        """Return whether any record matched.

        Returns:
            True or False. Cost: as for ``to_list``, up to the first result.

        Raises:
            NoUsableIndexError: ``allow_scan()`` was not called.
            HistoryExpiredError: the moment is before the horizon of the history.
        """
        for _ in self:
            return True
        return False


class RecordWatchIterator(Iterator[list[ChangedRecord[M]]], Generic[M]):
    """The records of a model as they change; created by ``users.watch()``."""

    __slots__ = ("_runner", "_watch")

    def __init__(self, runner: Runner, watch: RecordWatch | resumed_watch.ResumedWatch) -> None:
        self._runner = runner
        self._watch = watch

    @property
    def versionstamp(self) -> str | None:
        """Every change up to this commit was delivered; pass it as ``since`` to resume.

        None before the first item, and while the present records are being delivered.
        """
        return self._watch.versionstamp

    @property
    def position(self) -> Position | None:
        """The position after the last item; pass it as ``resume``. None without ``resume=``, and at the beginning."""
        return self._watch.position if isinstance(self._watch, resumed_watch.ResumedWatch) else None

    def close(self) -> None:
        """End the iteration; one that waits in another thread or task ends within a second."""
        self._watch.end()

    def __next__(self) -> list[ChangedRecord[M]]:
        context = self._runner.context
        # Not observed: a watch may wait for hours.
        found: list[ChangedRecord[Any]] | None = self._runner.run_part(
            self._watch.following(context.limits, context.traits), None
        )
        if found is None:
            raise StopIteration
        return cast("list[ChangedRecord[M]]", found)


class TenantsWatchIterator(Iterator[list[tuple[D, ChangedRecord[M]]]], Generic[D, M]):
    """The records of a model in all tenants as they change; created by ``db.watch_tenants(Model)``."""

    __slots__ = ("_opening", "_records", "_watch")

    def __init__(
        self,
        opening: Opening,
        watch: TenantsWatch,
        records: Callable[[TenantRows], list[tuple[D, ChangedRecord[M]]]],
    ) -> None:
        self._opening = opening
        self._watch = watch
        self._records = records

    @property
    def versionstamp(self) -> str | None:
        """Every change up to this commit was delivered; pass it as ``since`` to resume.

        None before the first item, and while the present records are being delivered.
        """
        return self._watch.versionstamp

    def close(self) -> None:
        """End the iteration; one that waits in another thread or task ends within a second."""
        self._watch.end()

    def __next__(self) -> list[tuple[D, ChangedRecord[M]]]:
        engine = engine_of(self._opening)
        # Not observed: a watch may wait for hours.
        found = run(engine, self._watch.following(engine.limits, engine.capabilities.traits))
        if found is None:
            raise StopIteration
        items: list[tuple[D, ChangedRecord[M]]] = []
        try:
            for rows in found:
                items += self._records(rows)
        except BaseException:
            self._watch.back()
            raise
        return items


for _one in (
    RecordHistory,
    Trash,
    Past,
    PastQuery,
    RecordWatchIterator,
    TenantsWatchIterator,
):
    show_public_path(_one)
    refuse_copies(_one)
