"""Read the counters of an aggregate index: totals, and the groups of a query one after the other.

Rules of this module: every read carries the header as guard (rule R3). All counters of one group are read together, in
one snapshot; a group whose records are all gone keeps counters with zero, and is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kvmodels.core.keys import decode_key, key_successor
from kvmodels.core.operations import GuardFailed, ReadRange, Row, point
from kvmodels.errors import DecodeError, IndexChangedError
from kvmodels.flows.context import Context, HeaderView, reload_header
from kvmodels.flows.effects import Flow, ranges_at_once, read, rows_at_once
from kvmodels.indexing.aggregates import from_u64
from kvmodels.query.aggregates import Measure, average, summed
from kvmodels.query.planning.aggregation import COUNT, CounterPlan, kinds_of
from kvmodels.schema.definition.definition import IndexDefinition, ModelSchema

ROWS_AT_ONCE: Final = 500
U64_ENCODING: Final = 2
HALF: Final = 2**32


class Counters(NamedTuple):
    """Some counters of one group of the index: its packed columns, and the signed numbers by kind."""

    parts: tuple[bytes, ...]
    numbers: dict[str, int]


class CounterScan:
    """Reads the counters of a plan, batch by batch; a stateful object for one reader.

    Args:
        context: shared by the flows of the database.
        view: the header that the plan was made under.
        schema: the model.
        plan: the counters.
        kinds: those that are needed when complete groups are read by key.
    """

    __slots__ = ("_at", "_context", "_guard", "_plan", "_ranges", "_schema", "done")

    def __init__(
        self, context: Context, view: HeaderView, schema: ModelSchema, plan: CounterPlan, kinds: Iterable[str]
    ) -> None:
        self._context = context
        self._schema = schema
        self._plan = plan
        self._guard = view.guard
        self._at = 0
        layout = plan.index.layout
        ranges = [point(layout.counter_key(group, kind)) for group in plan.groups for kind in kinds]
        ranges += [ReadRange(start, end, ROWS_AT_ONCE, plan.reverse) for start, end in plan.ranges if end is not None]
        self._ranges = ranges[::-1] if plan.reverse else ranges
        self.done = not ranges

    def next_batch(self) -> Flow[list[Counters]]:
        """The next counters, those of one group side by side; a group may go on in the next batch.

        Raises:
            IndexChangedError: the index was rebuilt or dropped.
            DecodeError: a counter is damaged.
        """
        limits = self._context.limits
        many = min(rows_at_once(limits, ROWS_AT_ONCE), ranges_at_once(limits, guarded=True)) if self._plan.groups else 1
        wanted = self._ranges[self._at : self._at + many]
        result = yield from read(wanted, self._guard)
        while isinstance(result, GuardFailed):
            yield from self._renew()
            result = yield from read(wanted, self._guard)
        rows = [row for found in result.ranges for row in found]
        if not self._plan.groups and len(rows) == ROWS_AT_ONCE:
            self._ranges[self._at] = _behind(wanted[0], rows[-1])
        else:
            self._at += len(wanted)
        self.done = self._at >= len(self._ranges)
        return self._counters(rows)

    def _renew(self) -> Flow[None]:
        """Go on under another header, if the index is still the one that is being read."""
        view = yield from reload_header(self._context)
        live = view.live[self._schema.collection]
        index = live.readable.get(self._plan.name)
        if index is None or index.stored.generation != self._plan.index.stored.generation:
            raise IndexChangedError(
                "the index was rebuilt or dropped while it was being read",
                model=self._schema.name,
                index=self._plan.name,
            )
        self._guard = view.guard

    def _counters(self, rows: Sequence[Row]) -> list[Counters]:
        counters: list[Counters] = []
        for row in rows:
            found = self._plan.parts_in(row.key)
            if found is None:
                continue
            *parts, kind = found
            group = tuple(parts)
            if not counters or counters[-1].parts != group:
                counters.append(Counters(group, {}))
            counters[-1].numbers[_text(kind)] = _number(row)
        return counters


def _behind(wanted: ReadRange, row: Row) -> ReadRange:
    if wanted.reverse:
        return wanted._replace(end=row.key)
    return wanted._replace(start=key_successor(row.key))


def _text(part: bytes) -> str:
    (kind,) = decode_key(part)
    return str(kind)


def _number(row: Row) -> int:
    if row.encoding != U64_ENCODING:
        raise DecodeError(
            "a counter of an aggregate index is not a number",
            key=decode_key(row.key),
            reason=f"encoding {row.encoding}",
            hint="Another program wrote it: run db.check(repair=True).",
        )
    return from_u64(int.from_bytes(row.value, "little"))


def total_of(found: Iterable[Counters]) -> dict[str, int]:
    """The sums of counters of one kind each."""
    totals: dict[str, int] = {}
    for counters in found:
        for kind, number in counters.numbers.items():
            totals[kind] = totals.get(kind, 0) + number
    return totals


def counted_result(definition: IndexDefinition, measure: Measure, totals: Mapping[str, int]) -> Any:
    """A result of the totals of its counters.

    Raises:
        InvalidValueError: a result that its type cannot hold; see ``kvmodels.query.aggregates``.
    """
    kinds = kinds_of(definition, measure)
    assert kinds is not None  # the plan saw to it
    values = totals.get(kinds[-1] if kinds and kinds[-1].startswith("present:") else COUNT, 0)
    if measure.function == "count":
        return values
    if values == 0:
        return None
    total = totals.get(kinds[1], 0) * HALF + totals.get(kinds[0], 0)
    return average(measure.kind, total, values) if measure.function == "avg" else summed(measure.kind, total)
