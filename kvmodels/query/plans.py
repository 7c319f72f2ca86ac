"""Query plans: the scans of a query, how they combine, the remaining conditions, and their text form.

A plan consists of one or more **scans** and how they combine:

=============  =======================================================================  =========================
``combine``    the steps                                                                ``mark`` of a row
=============  =======================================================================  =========================
scan           the rows of one scan, in the order of their keys                         the key
merge          several scans in one order, put together by sort key; rows with equal    the sort key
               sort keys are one record
concatenate    one scan after the other; a record that an earlier scan of the list       number of the scan, key
               accepts is dropped
intersect      the primary keys that every scan has; the rows of each lie in the order   the packed primary key
               of the primary key
ranked         the rows of one scan in the order of their distance from an origin, ring  the distance, and the packed
               by ring; see ``kvmodels.query.kinds.ranking``                             primary key
nothing        no record can match, so nothing is read                                  (there is no row)
=============  =======================================================================  =========================

Rules of this module: data and its text form; the planner makes the decisions. A plan is a pure function of the query
and of the readable indexes, and its hash is the same in every process. Long operands are truncated in the text, never
in the hashed bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from enum import Enum
from hashlib import sha256
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgpack

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels._support.notebooks import html
from kvmodels._support.slotted_dataclass import INTERNAL, dataclass
from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.values import BytesAsHex
from kvmodels.query.matching import Matcher, comparison_column, packed_key
from kvmodels.query.query import Query
from kvmodels.query.ranked_order import RankedOrder
from kvmodels.schema.declare.expressions import Subquery
from kvmodels.schema.definition.definition import Column, ModelSchema
from kvmodels.schema.filters.field_operands import OF_FIELDS
from kvmodels.schema.filters.kind_lookups import OF_KIND, KindOperand, kind_of_operand
from kvmodels.schema.filters.operands import PRIMARY_KEY
from kvmodels.schema.filters.predicate import TEXT_TESTS, AllOf, AnyOf, Condition, Predicate, has_spans, parts_of
from kvmodels.schema.filters.target_filters import target_filter_of

_SYMBOLS: Final = {"exact": "=", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_IN_ANY_CASE: Final = ("", " in any case")
_SHOWN_VALUES: Final = 5
_SHOWN_OPERAND: Final = 60


def describe(predicate: Predicate) -> str:
    """Return a predicate as readable text.

    Examples:
        >>> describe(AnyOf((Condition("age", "gte", 18), Condition("age", "isnull", True))))
        '(age >= 18 or age is None)'
        >>> describe(Condition("names", "startswith", "Par", any=True, negated=True))
        "not (any names startswith 'Par')"
    """
    if isinstance(predicate, AllOf):
        return " and ".join(map(describe, predicate.parts)) or "anything"
    if isinstance(predicate, AnyOf):
        parts = (f"({describe(part)})" if isinstance(part, AllOf) else describe(part) for part in predicate.parts)
        return f"({' or '.join(parts)})" if predicate.parts else "nothing"
    text = _described(predicate)
    return f"not ({text})" if predicate.negated else text


def digest(schema: ModelSchema, predicate: Predicate) -> list[Any]:
    """Return the meaning of a predicate as plain data that is the same in every process.

    Raises InvalidValueError for an operand that cannot be stored.
    """
    if not isinstance(predicate, Condition):
        return ["all" if isinstance(predicate, AllOf) else "any", *(digest(schema, part) for part in predicate.parts)]
    if predicate.lookup == OF_KIND:
        _, lookup = kind_of_operand(schema, predicate.operand)
        operand: KindOperand = predicate.operand
        return [predicate.field, OF_KIND, operand.lookup, predicate.negated, lookup.identity(operand.value)]
    head = [predicate.field, predicate.lookup, predicate.any, predicate.negated]
    if predicate.lookup == OF_FIELDS:
        return [*head, *predicate.operand]
    target = target_filter_of(predicate)
    if target is not None:
        return [*head, [digest(target.schema, part) for part in target.where]]
    return [*head, _operand(schema, predicate._replace(negated=False))]


def _described(condition: Condition) -> str:
    name, lookup, operand, element, _ = condition
    name = f"any {name}" if element else name
    if lookup == "isnull":
        return f"{name} is None" if operand else f"{name} is not None"
    if lookup == OF_KIND:
        return f"{name} {operand.lookup} {_shown(operand.value)}"
    if lookup == OF_FIELDS:
        return f"{name} {_SYMBOLS[operand.lookup]} {operand.field}"
    if lookup in ("contains", "icontains"):
        return f"{_shown(operand)} in {name}{_IN_ANY_CASE[lookup == 'icontains']}"
    if lookup == "iexact":
        return f"{name} = {_shown(operand)}{_IN_ANY_CASE[True]}"
    if lookup == "exact" and element:
        return f"{_shown(operand)} in {condition.field}"
    if lookup == "range":
        low, high, bounds = operand
        left, right = "<" if bounds[0] == "(" else "<=", "<" if bounds[1] == ")" else "<="
        return f"{_shown(low)} {left} {name} {right} {_shown(high)}"
    target = target_filter_of(condition)
    if target is not None:
        tests = " and ".join(describe(part) for part in target.where)
        amount = "a" if lookup == "in" else "no"
        return f"{name} refers to {amount} record of {target.schema.name} with {tests}"
    if isinstance(operand, Subquery):
        return f"{name} {'in' if lookup == 'in' else 'not in'} {operand!r}"
    if lookup in ("in", "not_in"):
        more = ", …" if len(operand) > _SHOWN_VALUES else ""
        values = ", ".join(_shown(value) for value in operand[:_SHOWN_VALUES])
        return f"{name} {'in' if lookup == 'in' else 'not in'} ({values}{more})"
    return f"{name} {_SYMBOLS.get(lookup, lookup)} {_shown(operand)}"


def _shown(value: Any) -> str:
    text = f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else short_repr(value)
    return text if len(text) <= _SHOWN_OPERAND else f"{text[:_SHOWN_OPERAND]}…"


def _operand(schema: ModelSchema, condition: Condition) -> Any:
    name, lookup, operand, _, _ = condition
    if name == PRIMARY_KEY:
        return sorted(packed_key(schema, values) for values in operand)
    if lookup == "isnull" or lookup in TEXT_TESTS:
        return operand
    column = comparison_column(schema, name)
    if column is not None and has_spans(condition, column):
        return [[span.start, span.end] for span in parts_of(condition, column)]
    values = operand if lookup in ("in", "not_in") else (operand,)
    storage, codec = schema.fields.get(name), MsgpackCodec()
    encode = None if storage is None else storage.encode
    stored = [value if value is None or encode is None else encode(value) for value in values]
    return [list(codec.encode(value)) for value in stored]


Combine: TypeAlias = Literal["scan", "merge", "concatenate", "intersect", "ranked", "nothing"]
"""How the scans of a plan are combined; the table in ``kvmodels.query.plans`` describes each kind."""


Distinct: TypeAlias = Literal["jumps", "passes", "holds"]
"""How distinct values are found; see ``kvmodels.query.planning.distinct``."""

_DISTINCT: Final[dict[Distinct, str]] = {
    "jumps": "jumps from one value to the next",
    "passes": "passes over equal values, which come one after the other",
    "holds": "holds the different values in memory",
}
_TITLES: Final = {
    "merge": "{} scans merged in one order",
    "concatenate": "{} scans, one after the other",
    "intersect": "the primary keys that {} scans have in common",
}
_SHOWN_SCANS: Final = 5
_SHOWN_LISTS: Final = 5
_ONE_BATCH: Final = 100


class KeyRange(NamedTuple):
    """Packed keys with ``start <= key < end``; with ``end`` None, the single key ``start``."""

    start: Annotated[bytes, BytesAsHex]
    end: Annotated[bytes | None, BytesAsHex]


class LastRowRange(KeyRange):
    """A range of packed keys of which only the last row is read."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan of index entries, or of the records themselves.

    Attributes:
        index: name of the index; None for a scan of the records by primary key.
        generation: the generation of the index, which changes when it is rebuilt. 0 for records.
        prefix: the packed beginning of every key.
        columns: the columns in the keys after the prefix: those of the index, then those of the primary key. Keys of a
            unique index end after its own columns, and their values contain the primary key.
        unique: a key without a primary key at its end is a unique slot with one owner.
        ranges: the packed key ranges to read, ascending and disjoint. In a merge, every column outside ``order`` has
            one value in all ranges; in an intersection, every column outside the primary key has.
        reverse: the ranges are read in descending order.
        copies: the rows contain the records, so that one read is enough.
        covers: the rows contain every field that the query needs: lossless columns, included fields and the primary
            key. Then no record is read. A query without fields (``Query.fields == ()``, such as a count) needs only the
            tested fields.
        fans_out: several rows of the ranges may lead to one record, because a column has several values. The record
            counts only at the lowest of its keys in the ranges, in both directions, so that ``reverse()`` returns the
            same records in the opposite order.
        order: the complete order of the rows, ``-`` for descending, ending in the primary key and without columns that
            have one value; empty if the rows have no order of records (``fans_out``).
        served: the conditions that the ranges answer.
        tested: the conditions that ``matches`` tests.
        values: in a merge that reads a list of values: the value of each listed field that this scan reads.
        accepts: in a concatenation: returns whether a record satisfies the whole alternative of this scan, so that
            later scans drop it. None in other plans.
        matches: the test of the record that a row leads to. None if nothing is left to test.
        sparse: the ranges are those of a lookup of a kind, and most of them are empty, so they are read together.
    """

    index: str | None
    generation: int
    prefix: bytes = field(repr=False, metadata=INTERNAL)
    columns: tuple[Column, ...] = field(repr=False, metadata=INTERNAL)
    unique: bool
    ranges: tuple[KeyRange, ...] = field(repr=False, metadata=INTERNAL)
    reverse: bool
    copies: bool
    covers: bool
    fans_out: bool
    order: tuple[str, ...]
    served: tuple[Predicate, ...] = field(repr=False, metadata=INTERNAL)
    tested: tuple[Predicate, ...] = field(default=(), repr=False, metadata=INTERNAL)
    values: tuple[tuple[str, Any], ...] = field(default=(), repr=False, compare=False, metadata=INTERNAL)
    accepts: Matcher | None = field(default=None, repr=False, compare=False, metadata=INTERNAL)
    matches: Matcher | None = field(default=None, repr=False, compare=False, metadata=INTERNAL)
    sparse: bool = field(default=False, repr=False, compare=False, metadata=INTERNAL)

    @property
    def points(self) -> bool:
        """Whether every range is a single key."""
        return all(key_range.end is None for key_range in self.ranges)


class PlanNode(NamedTuple):
    """A node of a plan as a tree: a label, named details, and child nodes."""

    label: str
    details: tuple[tuple[str, str], ...] = ()
    children: tuple[PlanNode, ...] = ()


@dataclass(frozen=True, slots=True)
class Sort:
    """A sort in memory, allowed by ``sort_in_memory(limit=…)``.

    Attributes:
        columns: the columns to sort by, including the primary key; their codecs are ascending.
        limit: the maximum number of records in memory.
        target_fields: the columns that are paths to fields of targets, which are read for each batch.
        placed: the columns whose None comes after all values in ascending and before them in descending order.
    """

    columns: tuple[Column, ...] = field(repr=False, compare=False, metadata=INTERNAL)
    limit: int
    target_fields: tuple[str, ...] = field(default=(), repr=False, compare=False, metadata=INTERNAL)
    placed: tuple[str, ...] = field(default=(), repr=False, compare=False, metadata=INTERNAL)


@dataclass(frozen=True, slots=True)
class Analysis:
    """The costs of running a plan, filled in by ``explain(analyze=True)``.

    Attributes:
        rows: the number of scanned rows: index entries, or records in their own order.
        records: the number of records that were read by following entries.
        batches: the number of reads of the engine.
        results: the number of results.
        lists: the words, or trigrams, whose entries were read in an index of texts, each with the number of its rows,
            the longest first.
        counted: the number of rows that the engine counted and did not return.
    """

    rows: int
    records: int
    batches: int
    results: int
    lists: tuple[tuple[str, int], ...] = ()
    counted: int = 0

    @property
    def reads(self) -> int:
        """Rows and records together, as in ``QueryPlan.estimated_reads``."""
        return self.rows + self.records

    def __str__(self) -> str:
        return f"{_counted(self.rows, 'row')} and {_counted(self.records, 'record')} {self._end()}"

    def of_records(self) -> str:
        """Return the text for a plan without an index, whose rows are the records."""
        return f"{_counted(self.rows, 'record')} {self._end()}"

    def of_lists(self) -> str:
        """Return the text for the lists of words or trigrams that were read, the longest first."""
        shown = [f"{short_repr(name)} {_counted(rows, 'row')}" for name, rows in self.lists[:_SHOWN_LISTS]]
        others = self.lists[_SHOWN_LISTS:]
        if others:
            shown.append(f"{len(others):,} more {_counted(sum(rows for _, rows in others), 'row')}")
        return ", ".join(shown)

    def _end(self) -> str:
        return f"in {_counted(self.batches, 'batch', 'batches')}, for {_counted(self.results, 'result')}"


class FoundKeys(NamedTuple):
    """A query for the primary keys of the records whose entries a ranking reads, and its plan."""

    query: Query
    plan: QueryPlan

    def tree(self) -> PlanNode:
        """Return the plan as a part of that of the ranking."""
        tree = self.plan.tree()
        _, _, label = tree.label.partition(": ")
        return tree._replace(label=f"of the records found by {label}")


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The plan of a query; the result of ``explain()``.

    Attributes:
        combine: how the scans are combined.
        scans: the scans in the order of the alternatives of the filter, for both directions: a reversed concatenation
            runs the list from its end, and a record is still dropped if a scan **before** the current one in this list
            accepts it. One scan for ``"scan"``, none for ``"nothing"``.
        order: the complete order of the results, ``-`` for descending, ending in the primary key. Empty if it is
            unspecified (a concatenation, or a scan that fans out); then it is stable as long as nothing is written.
        start, stop: the slice of the results, counted from 0; ``stop`` None: to the end.
        full_scan: the whole collection is read and tested, allowed by ``allow_scan()``. False for a query that returns
            everything.
        tested: the conditions that ``matches`` tests.
        matches: the test of every record, in addition to ``Scan.matches`` of its scan. A concatenation tests in its
            scans, all other plans here. None if there is nothing to test.
        sort: the results must be sorted in memory before the slice is cut.
        distinct: how distinct values are found, if the query is distinct.
        analysis: the costs of running it, after ``explain(analyze=True)``.
        related: the foreign keys whose targets are read with each result.
        semi_joins: for each query among the operands, how its keys are read.
        ranked: the order by distance of a ranked query.
        choice: the entries that narrow text lookups, for cursors; see ``kvmodels.query.planning.narrowing``.
        target_tests: the predicates that are tested on the targets of foreign keys, after ``matches``.
        counts: the numbers that are returned with each result, each with the foreign key of the counted records.
        each: how the plan is repeated for each object of ``explain_referrers``; None for a query.
    """

    schema: ModelSchema = field(repr=False, metadata=INTERNAL)
    combine: Combine
    scans: tuple[Scan, ...]
    order: tuple[str, ...]
    start: int = 0
    stop: int | None = None
    full_scan: bool = False
    tested: tuple[Predicate, ...] = field(default=(), repr=False, metadata=INTERNAL)
    matches: Matcher | None = field(default=None, repr=False, compare=False, metadata=INTERNAL)
    sort: Sort | None = None
    distinct: Distinct | None = field(default=None, compare=False)
    analysis: Analysis | None = field(default=None, compare=False)
    related: tuple[str, ...] = field(default=(), compare=False)
    semi_joins: tuple[str, ...] = field(default=(), compare=False)
    ranked: RankedOrder | None = field(default=None, metadata=INTERNAL)
    choice: tuple[tuple[int, ...], ...] = field(default=(), repr=False, compare=False, metadata=INTERNAL)
    target_tests: tuple[Predicate, ...] = field(default=(), repr=False, compare=False, metadata=INTERNAL)
    counts: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    each: str | None = field(default=None, compare=False)

    @property
    def index(self) -> str | None:
        """Return the name of the only index; None if the plan reads several indexes, or the records themselves."""
        names = self.indexes
        return names[0] if len(names) == 1 and all(scan.index is not None for scan in self.scans) else None

    @property
    def indexes(self) -> tuple[str, ...]:
        """Return the distinct names of all indexes that the plan reads."""
        return tuple(dict.fromkeys(scan.index for scan in self.scans if scan.index is not None))

    @property
    def ranges(self) -> tuple[KeyRange, ...]:
        """Return the packed key ranges of all scans; empty if no record can match."""
        return tuple(key_range for scan in self.scans for key_range in scan.ranges)

    @property
    def reverse(self) -> bool:
        """Whether everything is read in descending order."""
        return bool(self.scans) and all(scan.reverse for scan in self.scans)

    @property
    def points(self) -> bool:
        """Whether every range of every scan is a single key."""
        return all(scan.points for scan in self.scans)

    @property
    def bound(self) -> tuple[str, ...]:
        """Return the conditions that the ranges answer, as readable text."""
        return tuple(dict.fromkeys(describe(condition) for scan in self.scans for condition in scan.served))

    @property
    def residual(self) -> tuple[str, ...]:
        """Return the conditions that are tested on each record that is read, as readable text."""
        tested = (*self.tested, *(predicate for scan in self.scans for predicate in scan.tested))
        return tuple(dict.fromkeys(describe(predicate) for predicate in tested))

    @property
    def estimated_reads(self) -> int | None:
        """Return the maximum number of entries and records that the query can read; None if it depends on data.

        It is known for a list of keys, and for a slice without remaining conditions.
        """
        if self.combine in ("intersect", "ranked"):
            return None
        known: list[int] = []
        # A merge may read rows again that do not count yet, unless they fit into one batch.
        if self.points and (self.combine != "merge" or len(self.ranges) <= _ONE_BATCH):
            known.append(sum(len(scan.ranges) * _cost(scan) for scan in self.scans))
        tests = self.matches is not None or self.target_tests or (self.scans and self.scans[0].fans_out)
        every_row_counts = self.combine == "scan" and not tests
        if every_row_counts and self.stop is not None and self.sort is None:
            known.append(self.start + (self.stop - self.start) * _cost(self.scans[0]))
        return min(known, default=None)

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that are equal for two plans with the same reads, including operands.

        Cost: linear in the number of ranges. Raises InvalidValueError for an operand that cannot be stored.
        """
        described: list[Any] = [
            self.schema.collection,
            self.combine,
            [_scan_digest(self.schema, scan) for scan in self.scans],
            list(self.order),
            [digest(self.schema, predicate) for predicate in self.tested],
            self.sort is not None,
        ]
        if self.target_tests:
            described.append([digest(self.schema, predicate) for predicate in self.target_tests])
        if self.ranked is not None:
            described.append([self.ranked.method, self.ranked.digest, self.ranked.within])
        return sha256(msgpack.packb(described)).hexdigest()[:16]

    @property
    def copies(self) -> bool:
        """Whether all rows contain their records, so that no entry must be followed."""
        return all(scan.copies for scan in self.scans)

    # --- readable forms ---------------------------------------------------------------------------------------

    def tree(self) -> PlanNode:
        """Return the plan as a tree for ``kvmodels.ext.rich_tree``; several scans are children of how they combine."""
        if self.combine == "nothing":
            return PlanNode(f"{self.schema.name}: nothing is read, because no record can match")
        if self.combine == "scan" or self.ranked is not None:
            source = found_of(self)
            found = () if source is None else (source.tree(),)
            return PlanNode(f"{self.schema.name}: {self._extent()}", tuple(self._details()), found)
        shown = [PlanNode(_extent(scan), tuple(_scan_details(scan))) for scan in self.scans[:_SHOWN_SCANS]]
        if len(self.scans) > _SHOWN_SCANS:
            shown.append(PlanNode(f"{len(self.scans) - _SHOWN_SCANS} more"))
        label = f"{self.schema.name}: {_TITLES[self.combine].format(len(self.scans))}"
        return PlanNode(label, tuple(self._details()), tuple(shown))

    def __str__(self) -> str:
        return "\n".join(_lines(self.tree()))

    def _repr_html_(self) -> str:
        return html.view("", tree=self.tree())

    def _extent(self) -> str:
        if self.ranked is not None:
            if self.ranked.scored:
                return f"best first, by the words in index {self.index}"
            if self.ranked.most is not None:
                return f"most similar first, by the vectors in index {self.index}"
            return f"{self.ranked.method} first, in rings of index {self.index}"
        if self.full_scan:
            return f"full scan of {self.schema.collection}" + (f" through index {self.index}" if self.index else "")
        return _extent(self.scans[0])

    def _details(self) -> Iterable[tuple[str, str]]:
        if self.ranked is not None:
            yield "from", _shown(self.ranked.origin)
            if self.ranked.within is not None:
                yield "within", _shown(self.ranked.within)
        if self.combine == "scan" or self.ranked is not None:
            yield from _scan_details(self.scans[0])
        if self.tested:
            yield "then tests", " and ".join(describe(predicate) for predicate in self.tested)
        if self.target_tests:
            tests = " and ".join(describe(predicate) for predicate in self.target_tests)
            yield "targets", f"read in one more request for each level and batch, to test {tests}"
        if self.sort is not None:
            held = f"with at most {self.sort.limit:,} records in memory"
            if self.sort.target_fields:
                held += ", and their targets read in one more request for each level and batch"
            yield "sorts by", f"{', '.join(self.order)}, {held}"
        else:
            yield "in order", ", ".join(self.order) or "not specified"
        if self.distinct is not None:
            yield "distinct", _DISTINCT[self.distinct]
        for line in self.semi_joins:
            yield "semi-join", line
        yield "reads", self._reads()
        if self.related:
            each = "batch" if not any("__" in name for name in self.related) else "level and batch"
            yield "with", f"the targets of {', '.join(self.related)}, in one more read for each {each}"
        for label, key in self.counts:
            yield "counts", f"{label}, the records with {key}"
        if self.counts:
            yield "numbers", "from counters in one more request for each batch, from numbers of rows in another one"
        if self.each is not None:
            yield "each", self.each
        if self.analysis is not None:
            yield "took", self.analysis.of_records() if self._without_index() else str(self.analysis)
            if self.analysis.counted:
                yield "counted", f"{_counted(self.analysis.counted, 'row')}, which the engine did not return"
            if self.analysis.lists:
                yield "lists", self.analysis.of_lists()

    def _without_index(self) -> bool:
        return all(scan.index is None for scan in self.scans)

    def _reads(self) -> str:
        reads = self.estimated_reads
        entries_only = all(_cost(scan) == 1 for scan in self.scans)
        if reads is not None:
            if self._without_index():
                return f"at most {_counted(reads, 'record')}"
            return f"at most {_counted(reads, 'row')}" if entries_only else f"at most {reads:,} rows and records"
        if self.combine == "intersect":
            return "an entry of each scan, and a record for each that all have"
        if self.ranked is not None:
            each = "entry in this order, until enough pass" if self.tested or self.ranked.verified else "result"
            entries = "the entries of the words" if self.ranked.scored else "the entries near the origin"
            if self.ranked.most is not None:
                found = "every entry of the groups"
                entries = found if found_of(self) is None else "the keys of the records found, and their entries"
            return f"{entries}, and a record for each {each}"
        if self.distinct == "jumps":
            return "a few rows for each value"
        if self.full_scan:
            return "every record" if self._without_index() else "every entry, and its record"
        each = "result" if self._gives_what_it_reads() else "row in the ranges"
        if self._without_index():
            return f"a record for each {each}"
        return f"an entry for each {each}, and no record" if entries_only else f"an entry and a record for each {each}"

    def _gives_what_it_reads(self) -> bool:
        tests = self.tested or self.target_tests or any(scan.tested or scan.fans_out for scan in self.scans)
        return not tests and self.sort is None and self.distinct is None and self.combine != "concatenate"


def _extent(scan: Scan) -> str:
    count = len(scan.ranges)
    kind = "key" if scan.points else "range"
    extent = f"{count} {kind}{'s' if count > 1 else ''} of "
    return extent + ("the primary key" if scan.index is None else f"index {scan.index}")


def _scan_details(scan: Scan) -> Iterable[tuple[str, str]]:
    if scan.served:
        yield "reads only", " and ".join(describe(_at(scan, predicate)) for predicate in scan.served)
    if scan.fans_out:
        yield "once each", "a record with several entries here counts at the lowest"
    if scan.tested:
        yield "then tests", " and ".join(describe(predicate) for predicate in scan.tested)


def _at(scan: Scan, predicate: Predicate) -> Predicate:
    """Return a predicate with the one value of a list that the scan reads."""
    if isinstance(predicate, Condition) and predicate.lookup == "in":
        for name, value in scan.values:
            if name == predicate.field:
                null = value is None and not predicate.any
                return predicate._replace(lookup="isnull" if null else "exact", operand=True if null else value)
    return predicate


def _lines(node: PlanNode, indent: str = "") -> Iterable[str]:
    yield indent + node.label
    for name, text in node.details:
        yield f"{indent}  {name:<11} {text}"
    for child in node.children:
        yield from _lines(child, f"{indent}    ")


def _counted(number: int, one: str, several: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def _cost(scan: Scan) -> int:
    """Return the number of rows that are read for one result of a scan."""
    return 1 if scan.copies or scan.covers else 2


def _scan_digest(schema: ModelSchema, scan: Scan) -> list[Any]:
    """Return what a scan reads and tests, without its generation, which a cursor contains separately."""
    return [
        scan.index,
        [_range_digest(scan, one) for one in scan.ranges],
        scan.reverse,
        [digest(schema, predicate) for predicate in scan.tested],
    ]


def _range_digest(scan: Scan, one: KeyRange) -> list[Any]:
    edges = [one.start.removeprefix(scan.prefix), one.end and one.end.removeprefix(scan.prefix)]
    return [*edges, "last"] if isinstance(one, LastRowRange) else edges


show_public_path(QueryPlan)


def found_of(plan: QueryPlan) -> FoundKeys | None:
    """Return the query for the keys of the records whose entries a ranking reads; None: all entries of the groups."""
    return None if plan.ranked is None else plan.ranked.found


def in_key_order(plan: QueryPlan) -> bool:
    """Return whether the plan reads in the order of the primary key, or its reverse, without a sort."""
    if plan.sort is not None:
        return False
    keys = tuple(column.field for column in plan.schema.primary_key)
    return plan.combine == "nothing" or plan.order in (keys, tuple(f"-{name}" for name in keys))
