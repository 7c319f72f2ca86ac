"""How a query will be answered: which rows are walked, how they are put together, and what must still be tested.

A plan is one or more **scans** and the way in which they combine:

=============  =======================================================================  =========================
``combine``    what is done                                                             ``mark`` of a row
=============  =======================================================================  =========================
scan           the rows of one scan, in the order of their keys                         the key
merge          several scans in one order, put together by sort key; rows with equal    the sort key
               sort keys are one record
concatenate    one scan after the other; a record that an earlier scan of the list       number of the scan, key
               accepts is dropped
intersect      the primary keys that every scan has; the rows of each lie in the order   the packed primary key
               of the primary key
nothing        no record can match, so nothing is read                                  (there is no row)
=============  =======================================================================  =========================

Rules of this module: data and its text for people; decisions are the planner's. A plan is a pure function of the
query and of the indexes that are readable, and its hash is the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal, NamedTuple, TypeAlias

import msgpack

from kvmodels.query.describing import describe, digest
from kvmodels.query.matching import Matcher
from kvmodels.schema.definition import Column, ModelSchema
from kvmodels.schema.predicate import Predicate

__all__ = ["Analysis", "Combine", "KeyRange", "QueryPlan", "Scan", "Sort"]

Combine: TypeAlias = Literal["scan", "merge", "concatenate", "intersect", "nothing"]
"""How the scans of a plan are put together; the table in ``kvmodels.query.plans`` says what each does."""


class KeyRange(NamedTuple):
    """Packed keys with ``start <= key < end``; ``end`` None: the one key ``start``."""

    start: bytes
    end: bytes | None


@dataclass(frozen=True, slots=True)
class Scan:
    """One walk over the entries of an index, or over the records themselves.

    Attributes:
        index: name of the index that is read; None: the records, by primary key.
        generation: of the index; a rebuilt index has another one. 0 for the records.
        prefix: packed beginning of every key that is read.
        columns: what the keys hold behind the prefix, in order: the columns of the index, then those of the primary
            key, unless the index is unique (its slots end in its columns, and name the owner in their value).
        unique: a key without a primary key at its end is the slot of one owner.
        ranges: packed key ranges that are read, ascending and disjoint. In a merge every column that ``order`` does
            not name has one value in all of them, and in an intersection every column but those of the primary key.
        reverse: the ranges are read from their end.
        copies: the rows hold the records themselves, so that one read is enough.
        covers: every field that the query asks for, and every one that is tested, can be taken from the rows: from
            lossless columns, from what the entries include, and from the primary key. Then no record is read. For a
            query that asks for no fields at all (``Query.fields == ()``, as a count does): only what is tested.
        fans_out: one record may be found by several rows of the ranges, because a column has several values. It
            counts only at the lowest of its keys that lie in the ranges, whatever the direction, so that ``reverse()``
            gives the same records from the other end.
        order: the complete order of the rows, ``-`` for descending, ending in the primary key and without columns
            that have one value; empty when the rows are in no order of the records (``fans_out``).
        served: the conditions that the ranges answer.
        tested: the conditions that ``matches`` tests.
        accepts: of a concatenation: whether a record satisfies the whole branch that this scan answers, so that a
            later scan of the list drops it. None in other plans.
        matches: what must still be tested on the record behind a row. None: nothing.
    """

    index: str | None
    generation: int
    prefix: bytes = field(repr=False)
    columns: tuple[Column, ...] = field(repr=False)
    unique: bool
    ranges: tuple[KeyRange, ...] = field(repr=False)
    reverse: bool
    copies: bool
    covers: bool
    fans_out: bool
    order: tuple[str, ...]
    served: tuple[Predicate, ...] = field(repr=False)
    tested: tuple[Predicate, ...] = field(default=(), repr=False)
    accepts: Matcher | None = field(default=None, repr=False, compare=False)
    matches: Matcher | None = field(default=None, repr=False, compare=False)

    @property
    def points(self) -> bool:
        """Whether every range is one key."""
        return all(key_range.end is None for key_range in self.ranges)


class Sort(NamedTuple):
    """A sort in memory, which ``sort_in_memory(limit=…)`` has permitted.

    Attributes:
        columns: what to sort by, complete with the primary key; the packed parts of a stored document, one after the
            other, compare as the order asks, because descending columns have descending codecs.
        limit: the most records that may be held.
    """

    columns: tuple[Column, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """What running a plan took; ``explain(analyze=True)`` fills it in.

    Attributes:
        rows: how many rows of indexes, or records in their own order, were walked.
        records: how many records were read behind entries.
        batches: how many times the engine was read.
        results: how many objects came out.
    """

    rows: int
    records: int
    batches: int
    results: int

    @property
    def reads(self) -> int:
        """Rows and records together, as ``QueryPlan.estimated_reads`` counts them."""
        return self.rows + self.records


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """How a query is answered; what ``explain()`` returns.

    Attributes:
        combine: how the scans are put together.
        scans: what is read, in the order of the branches of the filter, whatever the direction: a reversed
            concatenation walks the list from its end, and a record is still dropped if a scan **before** the one that
            found it in this list accepts it. One scan for ``"scan"``, none for ``"nothing"``.
        order: the complete order of the results, ``-`` for descending; it ends in the primary key. Empty when it is
            not specified (a concatenation, or a scan that fans out): it is then stable while nothing is written.
        start, stop: the slice of the results, counted from 0; ``stop`` None: to the end.
        full_scan: the whole collection is read and tested, which ``allow_scan()`` has permitted. False for a query
            that reads everything because it returns everything.
        tested: the conditions that ``matches`` tests.
        matches: what must be tested on every record, in addition to ``Scan.matches`` of the scan that found it. A
            concatenation tests with its scans, every other plan here. None: nothing.
        sort: the results must be sorted in memory before the slice is cut.
        analysis: what running it took, after ``explain(analyze=True)``.
    """

    schema: ModelSchema = field(repr=False)
    combine: Combine
    scans: tuple[Scan, ...]
    order: tuple[str, ...]
    start: int = 0
    stop: int | None = None
    full_scan: bool = False
    tested: tuple[Predicate, ...] = field(default=(), repr=False)
    matches: Matcher | None = field(default=None, repr=False, compare=False)
    sort: Sort | None = None
    analysis: Analysis | None = field(default=None, compare=False)

    @property
    def index(self) -> str | None:
        """The name of the only index that is read; None when several are, or the records themselves."""
        names = self.indexes
        return names[0] if len(names) == 1 and all(scan.index is not None for scan in self.scans) else None

    @property
    def indexes(self) -> tuple[str, ...]:
        """The names of all indexes that are read, each once."""
        return tuple(dict.fromkeys(scan.index for scan in self.scans if scan.index is not None))

    @property
    def ranges(self) -> tuple[KeyRange, ...]:
        """The packed key ranges of all scans; none when no record can match."""
        if len(self.scans) == 1:
            return self.scans[0].ranges
        return tuple(key_range for scan in self.scans for key_range in scan.ranges)

    @property
    def reverse(self) -> bool:
        """Whether everything is read from its end."""
        return bool(self.scans) and all(scan.reverse for scan in self.scans)

    @property
    def points(self) -> bool:
        """Whether every range of every scan is one key."""
        return all(scan.points for scan in self.scans)

    @property
    def exact(self) -> bool:
        """Whether every row of a plan of one scan is a result, so that rows can be counted without their records."""
        if self.combine != "scan" or self.matches is not None:
            return self.combine == "nothing"
        return not self.scans[0].fans_out and self.scans[0].matches is None

    @property
    def bound(self) -> tuple[str, ...]:
        """The conditions that the ranges answer, for people."""
        return tuple(dict.fromkeys(describe(condition) for scan in self.scans for condition in scan.served))

    @property
    def residual(self) -> tuple[str, ...]:
        """The conditions that are tested on each record that was read, for people."""
        tested = (*self.tested, *(predicate for scan in self.scans for predicate in scan.tested))
        return tuple(dict.fromkeys(describe(predicate) for predicate in tested))

    @property
    def estimated_reads(self) -> int | None:
        """The most rows that the whole query can read, entries and records counted; None when that depends on data.

        It is known for keys that are named one by one, and for a slice that is not filtered further.
        """
        known = [sum(len(scan.ranges) * _cost(scan) for scan in self.scans)] if self.points else []
        if self.stop is not None and self.exact and self.scans and self.sort is None:
            known.append(self.start + (self.stop - self.start) * _cost(self.scans[0]))
        return min(known) if known else None

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that are equal for two plans that read the same, operands included.

        Cost: linear in the number of ranges. Raises InvalidValueError for an operand that cannot be stored.
        """
        described = [
            self.schema.collection,
            self.combine,
            [_scan_digest(self.schema, scan) for scan in self.scans],
            list(self.order),
            [digest(self.schema, predicate) for predicate in self.tested],
        ]
        return sha256(msgpack.packb(described)).hexdigest()[:16]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    # --- of the only scan -------------------------------------------------------------------------------------

    @property
    def copies(self) -> bool:
        """Whether no entry has to be followed to its record."""
        return all(scan.copies for scan in self.scans)

    @property
    def prefix(self) -> bytes:
        """The packed beginning of the keys of the only scan."""
        return self.scans[0].prefix if self.scans else b""

    @property
    def generation(self) -> int:
        """The generation of the index of the only scan."""
        return self.scans[0].generation if self.scans else 0

    def _lines(self) -> Iterable[str]:
        yield f"{self.schema.name}: {self._access()}"
        if not self.ranges:
            return
        if self.bound:
            yield f"  reads only  {' and '.join(self.bound)}"
        if self.residual:
            yield f"  then tests  {' and '.join(self.residual)}"
        yield f"  in order    {', '.join(self.order)}"
        reads = self.estimated_reads
        each = "one row for each record" if self.copies else "an entry and a record for each result"
        yield f"  reads       {each if reads is None else f'at most {reads} rows'}"

    def _access(self) -> str:
        if not self.ranges:
            return "nothing is read, because no record can match"
        if self.full_scan:
            return f"full scan of {self.schema.collection}" + (f" through index {self.index}" if self.index else "")
        count = len(self.ranges)
        kind = "key" if self.points else "range"
        extent = f"{count} {kind}{'s' if count > 1 else ''} of "
        return extent + ("the primary key" if self.index is None else f"index {self.index}")


def _cost(scan: Scan) -> int:
    """Rows that are read for one result of a scan."""
    return 1 if scan.copies or scan.covers else 2


def _scan_digest(schema: ModelSchema, scan: Scan) -> list[Any]:
    """What a scan reads and tests; its generation is no part of it, because a cursor names that by itself."""
    return [
        scan.index,
        [[start.removeprefix(scan.prefix), end and end.removeprefix(scan.prefix)] for start, end in scan.ranges],
        scan.reverse,
        [digest(schema, predicate) for predicate in scan.tested],
    ]
