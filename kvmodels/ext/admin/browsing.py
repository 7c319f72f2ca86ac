"""Pages of a query that read no more rows than they show, apart from a constant.

A query that one index serves completely is read page by page. Of any other query, the conditions and the order that an
index serves choose the records of a window of ``SCANNED`` records; the rest is tested and sorted within this window.
A part of a text counts as served if an index of trigrams narrows it, although the matches are tested: its window has
matches only, wherever they are. So it is chosen before the order and before the other conditions.

Rules of this module: whether an index serves a query is decided by the planner, never guessed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kvmodels.errors import NoUsableIndexError
from kvmodels.ext.admin.backend import Backend
from kvmodels.query.matching import comparison_column, matcher
from kvmodels.query.planning.narrowing import narrowing_indexes
from kvmodels.query.plans import QueryPlan
from kvmodels.query.text_lookups import ORDER, parse_lookups
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.polymorphic import collection_schema, view_of
from kvmodels.schema.declare.expressions import Q
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.definition.values import reader
from kvmodels.schema.filters.parse import parse
from kvmodels.schema.filters.predicate import Condition, conditions_of

SCANNED: Final = 500
"""The number of records that a page reads if no index serves its conditions or its order."""


class BrowsedCondition(NamedTuple):
    """A condition of a page, from its URL."""

    name: str
    text: str
    where: Q


class RecordWindow(NamedTuple):
    """The records of one page.

    Attributes:
        items: the records.
        next_cursor, previous_cursor: the positions of the neighbouring pages; None at the ends.
        plan: the plan of what was read.
        scanned: the number of records that were tested or sorted; None if an index serves the whole query.
        tested: the names of the conditions that no index serves.
        sorted_here: whether the order holds only within the scanned records.
    """

    items: list[Any]
    next_cursor: str | None
    previous_cursor: str | None
    plan: QueryPlan
    scanned: int | None = None
    tested: tuple[str, ...] = ()
    sorted_here: bool = False


class BrowsedQuery:
    """The conditions and the order of a page.

    Args:
        model: the model class.
        parameters: names and texts, as of a query string; ``order_by`` is the order.

    Raises:
        InvalidLookupError: a parameter is not a condition of the model.
    """

    def __init__(self, model: type[KvModel], parameters: Sequence[tuple[str, str]]) -> None:
        self.model = model
        self.conditions: list[BrowsedCondition] = []
        self.order: tuple[str, ...] = ()
        for name, text in parameters:
            if name == ORDER:
                self.order = parse_lookups(model, [(ORDER, text)]).order_by
            else:
                self.conditions.append(BrowsedCondition(name, text, parse_lookups(model, [(name, text)]).where))
        collection = collection_schema(model)
        self._schema: ModelSchema = view_of(collection, model) or collection

    async def window(
        self, backend: Backend, size: int, *, after: str | None = None, before: str | None = None
    ) -> RecordWindow:
        """Return one page.

        Cost: ``size`` + 1 entries and records if an index serves everything; otherwise those of ``SCANNED``.
        """
        everything = backend.db[self.model].all()
        query = everything
        for condition in self.conditions:
            query = query.filter(condition.where)
        plan = await _served(backend, query.order_by(*self.order))
        if plan is not None:
            page = await backend.call(query.order_by(*self.order).page, size=size, after=after, before=before)
            return RecordWindow(page.items, page.next_cursor, page.previous_cursor, plan)
        return await self._scanned(backend, everything, after, before)

    async def _scanned(self, backend: Backend, everything: Any, after: str | None, before: str | None) -> RecordWindow:
        query, rest = await self._by_parts(backend, everything)
        tested, sorted_here = list[BrowsedCondition](), False
        ordered = query.order_by(*self.order)
        if await _served(backend, ordered) is not None:
            query = ordered
        for condition in rest:
            narrower = query.filter(condition.where)
            if await _served(backend, narrower) is not None:
                query = narrower
            else:
                tested.append(condition)
        if query is not ordered and self.order:
            ordered = query.order_by(*self.order)
            sorted_here = await _served(backend, ordered) is None
            query = query if sorted_here else ordered
        plan = await backend.call(query.explain)
        page = await backend.call(query.page, size=SCANNED, after=after, before=before)
        items = self._matching(page.items, tested)
        return RecordWindow(
            self._sorted(items) if sorted_here else items,
            page.next_cursor,
            page.previous_cursor,
            plan,
            len(page.items),
            tuple(condition.name for condition in tested),
            sorted_here,
        )

    async def _by_parts(self, backend: Backend, everything: Any) -> tuple[Any, list[BrowsedCondition]]:
        """Return the query with the parts of texts that an index narrows, and the other conditions.

        Conditions on the group of such an index are added together with the part, because it needs them.
        """
        query, rest = everything, list(self.conditions)
        for part in self.conditions:
            for index in [index for one in self._parsed(part) for index in narrowing_indexes(self._schema, one)]:
                group = {column.field for column in index.columns}
                chosen = [one for one in rest if one is part or {each.field for each in self._parsed(one)} <= group]
                narrower = query.filter(*(condition.where for condition in chosen))
                if part in chosen and await _served(backend, narrower) is not None:
                    query, rest = narrower, [one for one in rest if one not in chosen]
        return query, rest

    def _parsed(self, condition: BrowsedCondition) -> list[Condition]:
        return [one for part in parse(self._schema, [condition.where], {}) for one in conditions_of(part)]

    def _matching(self, items: list[Any], tested: Sequence[BrowsedCondition]) -> list[Any]:
        test = matcher(self._schema, parse(self._schema, [condition.where for condition in tested], {}))
        return items if test is None else [item for item in items if test.on_object(item)]

    def _sorted(self, items: list[Any]) -> list[Any]:
        """Sort records as an index would, from the last column to the first."""
        found = [(item, self._schema.prepare(item).document) for item in items]
        for name in reversed(self._columns()):
            field = name.removeprefix("-")
            source, column = self._schema.source(field), comparison_column(self._schema, field)
            if source is not None and column is not None:
                read, pack = reader(source.path, many=False), column.codec.pack_stored
                found.sort(key=lambda one: pack(read(one[1])), reverse=name.startswith("-"))
        return [item for item, _ in found]

    def _columns(self) -> list[str]:
        """Return the order with the columns of the primary key in place of ``pk``."""
        keys = [column.field for column in self._schema.primary_key]
        return [
            f"{'-' * name.startswith('-')}{column}"
            for name in self.order
            for column in (keys if name.removeprefix("-") == "pk" else [name.removeprefix("-")])
        ]


async def _served(backend: Backend, query: Any) -> QueryPlan | None:
    """Return the plan of a query whose rows are all results, or candidates for a part of a text; otherwise None."""
    try:
        plan: QueryPlan = await backend.call(query.explain)
    except NoUsableIndexError:
        return None
    if plan.full_scan or plan.sort is not None:
        return None
    if plan.choice:
        return plan if _narrows(plan) else None
    exact = plan.combine in ("scan", "nothing") and not any(scan.fans_out for scan in plan.scans)
    return plan if exact and not plan.residual else None


def _narrows(plan: QueryPlan) -> bool:
    """Return whether a plan tests nothing but parts of texts, each of which an index that it reads narrows."""
    tested = (*plan.tested, *(predicate for scan in plan.scans for predicate in scan.tested))
    return all(
        any(index.name in plan.indexes for index in narrowing_indexes(plan.schema, one))
        for predicate in tested
        for one in conditions_of(predicate)
    )
