"""Run a query for ``explain(analyze=True)``, and count what it read.

Rules of this module: every request of the flow is counted on its way to the engine, so the numbers are those of the
reads that happened, whatever the plan is; results are made and let go batch by batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from kvmodels.core.operations import ReadRange, ReadResult, Row
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, Read
from kvmodels.flows.execution.batch import plan_of
from kvmodels.flows.reading.scan import Scan
from kvmodels.query.plans import Analysis, QueryPlan
from kvmodels.query.query import Query
from kvmodels.schema.definition.definition import ModelSchema

T = TypeVar("T")


class Tally:
    """Counts the reads of a flow.

    Args:
        records: packed beginning of the keys of the records.
        through_index: no scan walks over the records themselves, so a record was read behind an entry.
    """

    def __init__(self, records: bytes, *, through_index: bool) -> None:
        self._prefix = records
        self._through_index = through_index
        self.reads = 0
        self.rows = 0
        self.records = 0

    def add(self, request: Read, result: Any) -> None:
        """Count one read that was answered."""
        self.reads += 1
        if not isinstance(result, ReadResult):
            return  # the guard did not hold, so nothing was read
        self._add(request.ranges, result.ranges)
        for rows in result.followed:
            self._count(rows, followed=True)

    def analysis(self, results: int) -> Analysis:
        """What was counted, for so many results."""
        return Analysis(self.rows, self.records, self.reads, results)

    def _add(self, ranges: Sequence[ReadRange], found: Sequence[list[Row]]) -> None:
        for wanted, rows in zip(ranges, found, strict=True):
            self._count(rows, followed=self._through_index and wanted.end is None)

    def _count(self, rows: Sequence[Row], *, followed: bool) -> None:
        behind = len(rows) if followed and rows and rows[0].key.startswith(self._prefix) else 0
        self.records += behind
        self.rows += len(rows) - behind


def measured(context: Context, schema: ModelSchema, flow: Flow[T], *, through_index: bool) -> Flow[tuple[T, Tally]]:
    """What a flow returns, and what it has read; ``through_index`` as in ``Tally``."""
    tally = Tally(context.layouts[schema.collection].prefix, through_index=through_index)
    return (yield from _tallied(flow, tally)), tally


def _tallied(flow: Flow[T], tally: Tally) -> Flow[T]:
    """The same flow, its reads counted."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            request = flow.send(answer) if error is None else flow.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        answer, error = None, None
        try:
            answer = yield request
        except GeneratorExit:
            flow.close()
            raise
        except BaseException as raised:  # noqa: BLE001 - what the driver throws into a flow is for the flow
            error = raised
        else:
            if isinstance(request, Read):
                tally.add(request, answer)


def analyzed(context: Context, query: Query) -> Flow[QueryPlan]:
    """The plan of a query, which was run to its end, with what that took.

    Raises: as ``plan_of`` and ``read_batch``.

    Cost: that of the query; its results are not kept.
    """
    plan = yield from plan_of(context, query)
    through_index = all(scan.index is not None for scan in plan.scans)
    results, tally = yield from measured(context, query.schema, _run(context, query), through_index=through_index)
    return replace(plan, analysis=tally.analysis(results))


def _run(context: Context, query: Query) -> Flow[int]:
    scan = Scan(context, query)
    results = 0
    while not scan.done:
        results += len((yield from scan.next_batch()))
    return results
