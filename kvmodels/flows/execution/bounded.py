"""Rank records by what they hold, where only lower bounds of their distances are known before they are read.

Records are read in the order of their bounds. A record that was read is a result once no unread record has a bound as
low as its distance. The number of records that this needs for the wanted results is known from the bounds, so these are
read at once; further ones only if records did not pass the filter, or were written in between.

Rules of this module: pure. Memory holds the bound and the key of each record, and the records that were read too early.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import chain, islice

from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow
from kvmodels.flows.execution.executor import MAX_BATCH, beginning, read_batch
from kvmodels.flows.execution.join import MatchedRecord
from kvmodels.flows.execution.places import RankedPosition, RankedRecord
from kvmodels.query.kinds.ranking import RankCandidates
from kvmodels.query.plans import FoundKeys


class BoundedRanking:
    """The candidates of a ranking, and the records that were read; a stateful object for one reader."""

    def __init__(self, step: RankCandidates) -> None:
        self._distance = step.distance
        self.number = step.number
        self._first = step.first
        self._unread = step.candidates
        self._next = next(self._unread, None)
        self._seen: set[bytes] = set()
        self._read: list[RankedRecord] = []

    @property
    def ended(self) -> bool:
        """Whether all records were read and returned."""
        return self._next is None and not self._read

    def take(self, size: int, *, tested: bool) -> list[RankedPosition]:
        """Return the bounds and keys of the next records to read, at first of all that the results need.

        ``size``: their number after those, and if records are tested the least number of those too.
        """
        if self._next is None:
            return []
        needed = min(self._first, MAX_BATCH)
        wanted = max(size, needed) if tested or needed <= 0 else needed
        self._first -= wanted
        found = islice(chain((self._next,), self._unread), wanted)
        taken: dict[bytes, float] = {}
        for bound, pk in found:
            if pk not in self._seen:
                taken.setdefault(pk, bound)  # the least of its bounds comes first
        self._seen.update(taken)
        self._next = next(self._unread, None)
        return [RankedPosition(bound, pk) for pk, bound in taken.items()]

    def distance_of(self, found: MatchedRecord) -> float | None:
        """Return the distance of a record that was read; None if it is no result."""
        try:
            return self._distance(found.held)
        except (KeyError, TypeError):  # a document of another form
            return None

    def add(self, bound: float, found: RankedRecord) -> None:
        """Add a record that was read. Below its bound it was written in between, and is left out."""
        if found.place.distance >= bound:
            heappush(self._read, found)

    def results(self) -> list[RankedRecord]:
        """Return the records that no unread one can precede, in order."""
        found: list[RankedRecord] = []
        while self._read and (self._next is None or self._read[0].place.distance < self._next[0]):
            found.append(heappop(self._read))
        return found

    def keys(self) -> set[bytes]:
        """Return the distinct keys of all candidates, of which none was taken; they cannot be read afterwards."""
        first = () if self._next is None else (self._next,)
        found = {pk for _, pk in chain(first, self._unread)}
        self._next = None
        return found


def found_keys(context: Context, found: FoundKeys) -> Flow[list[bytes]]:
    """Return the packed primary keys of the records that a query finds. Cost: its entries, and no records if it can."""
    keys: dict[bytes, None] = {}
    position = beginning(found.plan)
    while True:
        batch = yield from read_batch(context, found.query, position, MAX_BATCH, peek=False)
        keys.update(dict.fromkeys(hit.pk for hit in batch.hits))
        if batch.position is None:
            return [*keys]
        position = batch.position
