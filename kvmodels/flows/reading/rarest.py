"""Choose the rarest entries of the lookups that an index narrows, before the query is planned.

The entries of all candidates are counted in one request, each up to a limit: beyond it, an intersection finds the
rarer ones by itself. Counting decides only how much is read, so it has no part in the checks of a transaction, where
the choice is made without it.

Rules of this module: one request for each lookup at most, of as many ranges as one read of the engine takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kvmodels.core.operations import Counted, ReadRange, after_prefix
from kvmodels.errors import NoUsableIndexError
from kvmodels.flows.context import Context, HeaderView, live_collection
from kvmodels.flows.effects import Flow, count_rows, ranges_at_once
from kvmodels.query.kinds.registry import ACCESS
from kvmodels.query.planning.narrowing import MOST, NarrowedLookup, narrowed_lookups, with_choice
from kvmodels.query.planning.planner import plan_query
from kvmodels.query.query import Query
from kvmodels.schema.filters.predicate import TEXT_TESTS, AllOf, AnyOf, Condition, Predicate

MOST_COUNTED: Final = 1_000
"""The number of entries of one candidate up to which they are counted."""

_MOST_GROUPS: Final = 4
"""The number of groups in which they are counted, if the filter lists several."""


def narrowed(context: Context, query: Query, *, counts: bool) -> Flow[Query]:
    """Return the query with conditions of entries; ``counts``: the rarest ones, where that needs a choice."""
    lookups = narrowed_lookups(query)
    if not lookups:
        return query
    chosen: list[tuple[int, ...]] = []
    for one in lookups:
        choice = one.usual
        if counts and context.transaction is None:
            choice = yield from _rarest(context, query, one)
        chosen.append(choice)
    return with_choice(query, lookups, tuple(chosen))


def _rarest(context: Context, query: Query, lookup: NarrowedLookup) -> Flow[tuple[int, ...]]:
    view, _ = yield from live_collection(context, query.schema)
    heads = _heads(view, query, lookup)[:_MOST_GROUPS]
    is_alone = len(heads) == 1 and lookup.condition in query.where
    if not heads or len(lookup.candidates) <= (MOST if is_alone else 1):
        return lookup.usual  # all of them are intersected
    most = ranges_at_once(context.limits, guarded=True) // len(heads)
    places = _places(lookup, most)
    limit = max(1, min(MOST_COUNTED, (context.limits.max_read_entries - 1) // max(1, len(places) * len(heads))))
    packed = [_packed(lookup, at) for at in places]
    wanted = [ReadRange(head + part, after_prefix(head + part), limit) for part in packed for head in heads]
    counted = yield from count_rows(wanted, view.guard)
    if not isinstance(counted, Counted):
        return lookup.usual
    size = len(heads)
    totals = [sum(counted.numbers[at : at + size]) for at in range(0, len(counted.numbers), size)]
    usual = {at: rank for rank, at in enumerate(lookup.usual)}
    order = sorted(zip(totals, places, strict=True), key=lambda one: (one[0], usual.get(one[1], MOST), one[1]))
    return tuple(at for _, at in order[:MOST])


def _places(lookup: NarrowedLookup, most: int) -> Sequence[int]:
    """Return the numbers of the candidates to count, those of the usual choice first."""
    return list(dict.fromkeys((*lookup.usual, *range(len(lookup.candidates)))))[: max(most, 1)]


def _packed(lookup: NarrowedLookup, at: int) -> bytes:
    definition = lookup.indexes[0]
    (span,) = ACCESS[definition.kind].spans(definition, lookup.name, lookup.candidates[at])
    return span.start


def _heads(view: HeaderView, query: Query, lookup: NarrowedLookup) -> list[bytes]:
    """Return the beginnings of the keys of its entries, one for each group; none if no index can be used."""
    live = view.live[query.schema.collection]
    beside = _beside(query.where, lookup.condition) or ()
    others = [part for part in beside if part.lookup not in TEXT_TESTS]
    (entry,) = lookup.entries((0,))
    packed = _packed(lookup, 0)
    for definition in lookup.indexes:
        if definition.name not in live.readable:
            continue
        probe = Query(query.schema, (*others, entry), using=definition.name, fields=())
        try:
            plan = plan_query(probe, live)
        except NoUsableIndexError:
            continue
        if plan.combine == "scan":
            return [one.start[: -len(packed)] for one in plan.ranges if one.start.endswith(packed)]
    return []


def _beside(parts: Iterable[Predicate], wanted: Condition) -> list[Condition] | None:
    """Return the conditions that hold with a condition, in its alternative too; None if it is not among the parts."""
    parts = tuple(parts)
    own = [part for part in parts if isinstance(part, Condition)]
    if wanted in own:
        return own
    for part in parts:
        for option in part.parts if isinstance(part, AnyOf) else ():
            found = _beside(option.parts if isinstance(option, AllOf) else (option,), wanted)
            if found is not None:
                return own + found
    return None
