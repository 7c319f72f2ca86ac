"""The order of records by their distance from an origin, as one kind of index supplies it.

A *ranking* is a generator that yields requests for entries of the index and is sent the answers. It reads outwards from
the origin: each ``RankEntries`` ranks the entries of one *ring*, from the outer edge of the previous ring to its own
outer edge. The reader sorts the entries of a ring by distance and primary key, reads their records and tests the
rest of the filter. It resumes the ranking only if it needs further results, so a filter that few records satisfy makes
the rings grow until enough records pass.

=================  =========================================================================  ========================
request            use                                                                        answer
=================  =========================================================================  ========================
``ReadEntries``    find out how far the next ring must reach                                  ``list[EntryParts]`` for
                                                                                              each span, in its order
``CountEntries``   find out whether a ring has too many entries                               a number for each span;
                                                                                              None in a transaction
``RankEntries``    rank the entries of a ring                                                 the number of entries of
                                                                                              the ring
``ReadPostings``   read entries with the primary keys of their records                        ``list[Posting]`` for each
                                                                                              span
``ReadLists``      read all entries of some values, and counters of the groups                ``ListsRead``
``ReadPoints``     look up the entries of one value for some records                          their values, by packed
                                                                                              primary key
``ScanEntries``    look at all entries of the groups, part by part                            None
``RankRecords``    rank records that were found in the entries before                         the number of records
``RankCandidates`` rank records by what they hold, in the order of bounds of their distances  the number of records
=================  =========================================================================  ========================

Rules of this module: pure. Spans are of the packed parts between the group and the primary key; the reader applies them
under each value of the group, and joins the answers. Two answers may be of two states of the store. An entry that is
not written in between must be in exactly one ring: its distance is a function of the entry and the origin alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

from kvmodels.query.hits import Hit
from kvmodels.schema.definition.definition import Document, IndexDefinition, ModelSchema


class EntrySpan(NamedTuple):
    r"""Entries whose parts between group and primary key are ``start <= part < end``.

    Attributes:
        start, end: packed parts; the entries of one value ``part`` are those from ``part`` to ``part + b"\xff"``.
        limit: the maximum number of entries; None: all. A ring has no limits.
        reverse: whether the last entries are read first.
    """

    start: bytes
    end: bytes
    limit: int | None = None
    reverse: bool = False


class EntryParts(NamedTuple):
    """The packed parts of an entry between group and primary key, and its stored value."""

    part: bytes
    value: bytes


DistanceOf: TypeAlias = Callable[[bytes, bytes], float | None]
"""From the packed parts and the value of an entry to its distance; None for an entry that is not in the ring."""


class ReadEntries(NamedTuple):
    """Read the entries of these spans, in one state of the store if the engine can."""

    spans: Sequence[EntrySpan]


class CountEntries(NamedTuple):
    """Count the entries of these spans, at most ``limit`` of each."""

    spans: Sequence[EntrySpan]


class RankEntries(NamedTuple):
    """Rank the entries of a ring: those of these disjoint spans that have a distance."""

    spans: Sequence[EntrySpan]
    distance: DistanceOf


class Posting(NamedTuple):
    """The packed parts of an entry between group and primary key, the packed primary key, and the stored value."""

    part: bytes
    pk: bytes
    value: bytes


class ReadPostings(NamedTuple):
    """Read all entries of these spans; the answers may be of several states of the store."""

    spans: Sequence[EntrySpan]


class ReadLists(NamedTuple):
    """Read lists: the entries of one value of the part before the primary key; and counters of the groups.

    With counters, it is one request if the engine can, whose lists are cut to fit.

    Attributes:
        parts: the packed value of each list.
        limit: the maximum number of entries of a list, in each group.
        counters: the ends of the keys of counters, after the group; a transaction does not check them.
    """

    parts: Sequence[bytes]
    limit: int
    counters: Sequence[bytes] = ()


class EntryList(NamedTuple):
    """The value of each entry of a list, by packed primary key; the number of entries; whether these are all."""

    values: Mapping[bytes, bytes]
    size: int
    whole: bool


class ListsRead(NamedTuple):
    """The lists of ``ReadLists``, and the sum of each counter over the groups."""

    lists: Sequence[EntryList]
    counters: Sequence[int]


class ReadPoints(NamedTuple):
    """Look up the entries of one packed value for records with these packed primary keys."""

    part: bytes
    keys: Sequence[bytes]


class RankRecords(NamedTuple):
    """Rank records, all of them at once.

    Attributes:
        distances: the distance of each record, by packed primary key.
        distance: from a stored document to its distance, None for a record that is no result. A record that has
            another distance than in ``distances`` was written in between, and is left out.
        frozen: plain data for ``Reach.frozen`` of the next pages, so that they use the same numbers.
    """

    distances: Mapping[bytes, float]
    distance: Callable[[Document], float | None]
    frozen: Any = None


class ScanEntries(NamedTuple):
    """Pass all entries of the groups to a function, part by part: packed primary keys and values."""

    take: Callable[[Iterable[tuple[bytes, bytes]]], object]


class RankCandidates(NamedTuple):
    """Rank records by what they hold, all of them at once.

    Attributes:
        candidates: a lower bound of the distance of each record, and its packed primary key, the least bound first. A
            record in several groups may be listed more than once.
        first: the number of candidates that have the wanted results, if none of them was written in between.
        number: the number of candidates.
        distance: from a stored document to its distance, which is above its bound; None for a record that is no result.
    """

    candidates: Iterator[tuple[float, bytes]]
    first: int
    number: int
    distance: Callable[[Document], float | None]


RankingStep: TypeAlias = (
    ReadEntries
    | CountEntries
    | RankEntries
    | ReadPostings
    | ReadLists
    | ReadPoints
    | ScanEntries
    | RankRecords
    | RankCandidates
)
"""A request of a ranking."""

Ranking: TypeAlias = Generator[RankingStep, Any, None]
"""Yields the rings from the origin outwards; it ends when every entry within reach was in one."""


class Reach(NamedTuple):
    """The part of the ranking that is needed.

    Attributes:
        wanted: the number of results that are needed, without a filter that is tested on records; None: all of them.
        beyond: results of a smaller distance are not needed, because they were on earlier pages.
        within: the greatest distance of a result, which counts; None: any distance.
        frozen: what ``RankRecords.frozen`` of the first page was; None: it is the first page.
        keys: the packed primary keys of the only records that are needed; None: any record.
        groups: the number of groups whose entries are read.
    """

    wanted: int | None
    beyond: float = 0.0
    within: float | None = None
    frozen: Any = None
    keys: Sequence[bytes] | None = None
    groups: int = 1


class KindRanking(ABC):
    """One order that a kind of index supplies, such as ``nearest``; an object of the access of the kind."""

    scores: ClassVar[bool] = False
    """Whether records have scores, the greatest first; then their distances are the negated scores."""

    most: ClassVar[int | None] = None
    """The maximum number of results, of which a query must take a slice without pages. None: any number, and pages."""

    named: ClassVar[bool] = False
    """Whether a query gives the name of an index, and not the name of a field."""

    def verifies(self, origin: Any) -> bool:
        """Return whether records decide if they are results, besides their entries."""
        del origin
        return False

    def is_frozen(self, origin: Any, frozen: Any) -> bool:
        """Return whether data of a cursor may be ``Reach.frozen``."""
        del origin
        return frozen is None

    def hit(self, definition: IndexDefinition, origin: Any, record: Any, distance: float) -> Any:
        """Return a result for a record; by default a ``Hit``."""
        del definition, origin
        return Hit(record, distance)

    def field(self, definition: IndexDefinition) -> str:
        """Return the name that a ranked query gives: by default, that of the lookups of the kind."""
        return definition.lookup_name

    @abstractmethod
    def origin(self, schema: ModelSchema, field: str, given: Any) -> Any:
        """Return the origin that a caller has given, checked and converted. Raises InvalidValueError with a hint."""

    @abstractmethod
    def digest(self, origin: Any) -> Any:
        """Return an origin as plain data that is the same in every process, for continuation tokens."""

    @abstractmethod
    def rings(self, definition: IndexDefinition, origin: Any, reach: Reach) -> Ranking:
        """Return the ranking of the entries of an index."""

    @abstractmethod
    def declaration(self, schema: ModelSchema, field: str) -> str | None:
        """Return the code of an index for a field, such as ``GeoIndex("location")``; None if it cannot have one."""
