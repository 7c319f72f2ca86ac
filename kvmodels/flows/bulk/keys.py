"""The primary keys of the results of a query, in batches, for bulk writes.

Rules of this module: results are read with the plan of the query, reading only the fields of records that the filter
needs. In the order of the primary key, every record has one position that no write changes, so a scan finds each record
once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from kvmodels.catalog.collection import LiveCollection
from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import Flow
from kvmodels.flows.execution.executor import (
    MAX_BATCH,
    SortWindow,
    beginning,
    counts_rows,
    mark_of,
    mark_of_key,
    plan_of,
    position_at,
    read_batch,
    resume,
    sorted_hits,
)
from kvmodels.flows.execution.join import MatchedRecord
from kvmodels.flows.execution.ranges import Candidate, QueryPosition
from kvmodels.query.planning.cursor import cursor_after
from kvmodels.query.plans import QueryPlan
from kvmodels.query.query import Query
from kvmodels.schema.definition.definition import Document

T = TypeVar("T")


class FoundRecord(NamedTuple):
    """A record of a query, by its packed primary key; without plan and row if the results were sorted in memory.

    ``tested`` are the values of the fields that were tested with targets of foreign keys.
    """

    pk: bytes
    plan: QueryPlan | None = None
    row: Candidate | None = None
    tested: tuple[Any, ...] = ()

    def cursor(self) -> str:
        """Return the continuation token after this record; empty if there is none."""
        if self.plan is None or self.row is None:
            return ""
        return cursor_after(self.plan, mark_of(self.plan, self.row, behind=True))


def tested_values(query: Query, document: Document) -> tuple[Any, ...]:
    """Return the stored values of the foreign keys whose targets the filter tests."""
    return tuple(document.get(field) for field in query.target_test_fields if field in query.schema.references)


class Source(Generic[T]):
    """A source of the records of a bulk write, in order: of those in memory, or by ``_fill`` of stored ones."""

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._found = deque(items)

    def take(self, size: int) -> Flow[list[T]]:
        """Return the next records, at most ``size``; empty at the end."""
        yield from self._fill()
        return [self._found.popleft() for _ in range(min(size, len(self._found)))]

    def give_back(self, items: Sequence[T]) -> None:
        """Take back unhandled records; they come first again."""
        self._found.extendleft(reversed(items))

    def dealt_with(self, matched: int) -> None:
        """Count handled records, if that matters."""

    def _fill(self) -> Flow[None]:
        """Read until there is a record to take."""
        yield from ()


class KeySource(Source[FoundRecord]):
    """A source of the primary keys of the results of a query, including its slice.

    Raises InvalidArgumentError if the results of the query are values.
    """

    def __init__(self, context: Context, query: Query) -> None:
        super().__init__()
        if query.fields is not None:
            raise InvalidArgumentError(
                "values are not records and cannot be written",
                argument="values",
                value=query.fields,
                hint="Write before values(), values_list() and only(): filter(...).update(...).",
            )
        self._context = context
        self._asked = query
        # It reads only the fields that the filter needs. But for a slice of results in an unspecified order, the plan
        # must be that of the list, so that the write affects the records that a list of the same slice shows.
        fields = None if query.sliced and not query.order else ()
        self._query = replace(query, fields=fields, start=0, stop=None)
        self._skip = query.start
        self._position: QueryPosition | None = None
        self._remaining = None if query.stop is None else max(0, query.stop - query.start)
        self._plan: QueryPlan | None = None

    @property
    def plan(self) -> QueryPlan:
        """The plan of the query; known once the source is open."""
        assert self._plan is not None, "the source is not open"
        return self._plan

    @property
    def finished(self) -> bool:
        """Whether all results were taken."""
        return self._remaining == 0 or (not self._found and self._position is None)

    def open(self) -> Flow[None]:
        """Plan the query, and read the first results."""
        self._plan = yield from plan_of(self._context, self._query)
        self._position = beginning(self._plan)
        yield from self._fill()

    def open_behind(self, cursor: str) -> Flow[None]:
        """Continue after a record, by its cursor."""
        plan, live, mark = yield from resume(self._context, self._query, cursor)
        yield from self._open_at(plan, live, mark)

    def open_behind_key(self, last: bytes, order: Sequence[str]) -> Flow[None]:
        """Continue a scan after a record, without any index."""
        self._query = replace(self._query, using="pk", scan_allowed=True)
        plan = yield from plan_of(self._context, self._query)
        if plan.combine != "scan" or plan.order != tuple(order):
            raise InvalidArgumentError(
                "the position at which a bulk write stopped no longer exists",
                argument="resume_id",
                hint="The index that it went by is gone: build it again and resume, or forget the id.",
            )
        _, live = yield from live_collection(self._context, self._query.schema)
        key = live.layout.key(last).removeprefix(plan.scans[0].prefix)
        yield from self._open_at(plan, live, mark_of_key(key, behind=True))

    def _open_at(self, plan: QueryPlan, live: LiveCollection, mark: bytes) -> Flow[None]:
        self._skip = 0
        self._plan = plan
        self._position = position_at(plan, live, mark, back=False)
        yield from self._fill()

    def take(self, size: int) -> Flow[list[FoundRecord]]:
        """Return the next results, at most ``size``; empty at the end."""
        return (yield from super().take(size if self._remaining is None else min(size, self._remaining)))

    def dealt_with(self, matched: int) -> None:
        """Count handled results of the slice."""
        if self._remaining is not None:
            self._remaining = max(0, self._remaining - matched)

    def _fill(self) -> Flow[None]:
        while not self._found and self._position is not None and self._remaining != 0:
            plan = self._position.plan
            self._plan = plan
            if plan.sort is not None:
                yield from self._fill_sorted(plan)
                return
            size = MAX_BATCH
            if self._remaining is not None and counts_rows(plan):
                size = min(size, self._skip + self._remaining)
            batch = yield from read_batch(self._context, self._query, self._position, size, peek=False)
            self._position = batch.position
            passed = min(self._skip, len(batch.hits))
            self._skip -= passed
            self._found.extend(
                FoundRecord(hit.pk, plan, row, self._tested(hit))
                for hit, row in zip(batch.hits[passed:], batch.found[passed:], strict=True)
            )

    def _tested(self, hit: MatchedRecord) -> tuple[Any, ...]:
        through = self._query.target_tests
        return tested_values(self._query, hit.document) if through else ()

    def _fill_sorted(self, plan: QueryPlan) -> Flow[None]:
        query = self._asked
        hits = yield from sorted_hits(self._context, self._query, plan, SortWindow(query.stop))
        self._found.extend(FoundRecord(one.hit.pk, tested=self._tested(one.hit)) for one in hits[query.start :])
        self._position = None
