"""Count the rows and bytes of a store by collection and index.

The key space is divided into ranges: the records of each collection, the entries or counters of each index, the queue,
the locks, the namespaces, other rows of the library, and everything else. An exact run reads every row; an estimate
counts the rows of each range and reads a few from both ends.

Rules of this module: the memory does not depend on the number of rows. No class is needed. Batches are separate reads,
so writes during a run may be counted in part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final, NamedTuple

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels._support.notebooks import html
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.catalogue import Header, StoredIndex, stored_entry_layouts
from kvmodels.catalog.keyspace import CHUNKS, RESERVED, also_prefix, counter_prefix, history_prefix, trash_prefix
from kvmodels.core.keys import decode_key, encode_key, encode_part, key_successor
from kvmodels.core.operations import GuardFailed, ReadRange, Row, after_prefix
from kvmodels.core.truth import without_truth
from kvmodels.errors import InvalidKeyError
from kvmodels.flows.context import Context, reload_header
from kvmodels.flows.describe.index_tally import IndexTally
from kvmodels.flows.effects import Flow, count_rows, now, read, rows_at_once
from kvmodels.flows.evolution.throttle import Pace, SchemaProgress
from kvmodels.flows.kv.dead_letters import count_dead_letters

ROWS_AT_ONCE: Final = 500
CHUNKS_AT_ONCE: Final = 16
"""Rows of the content of files are large: 16 have up to 4 MiB."""

SAMPLED_ROWS: Final = 100
"""The number of rows that an estimate reads from each end of a range."""

_PARTS_SHOWN: Final = 100
"""The most parts in a notebook."""

_LOCK_PARTS: Final = 3
_UNKNOWN: Final = " (unknown to this release)"
_FIRST: Final = b"\0"
_END: Final = b"\xff"


@without_truth("stats.rows")
@dataclass(frozen=True, slots=True)
class RowStats:
    """The rows of a part of a store.

    Attributes:
        rows: how many there are; always counted.
        bytes: the size of their keys and values, without the overhead of the engine.
        expiring: how many have a deadline that has not been reached.
        exact: whether every row was read; otherwise ``bytes`` and ``expiring`` are estimated from a sample.
    """

    rows: int = 0
    bytes: int = 0
    expiring: int = 0
    exact: bool = True

    def __add__(self, other: RowStats) -> RowStats:
        return RowStats(
            self.rows + other.rows, self.bytes + other.bytes, self.expiring + other.expiring, self.exact and other.exact
        )

    def __str__(self) -> str:
        about = "" if self.exact else "about "
        expiring = f", {about}{self.expiring:,} expiring" if self.expiring else ""
        return f"{self.rows:,} row{'' if self.rows == 1 else 's'}, {about}{self.bytes:,} bytes{expiring}"


@without_truth("stats.entries.rows")
@dataclass(frozen=True, slots=True)
class IndexStats:
    """The rows of one generation of an index: its entries and its counters.

    Attributes:
        name: its name.
        generation: the generation.
        entries: the numbers of its rows.
        known: False if a newer release describes it in a way that this one does not know; its rows are counted.
        largest_bucket: for an index of ranks, the largest number of records in a bucket, all of which a rank may have
            to read; None unless every row was read.
        lists: for an index of words or trigrams, the number of its lists: of different words, or trigrams, in each
            group; None unless every row was read.
        longest_list: the word, or trigram, with the most entries, and their number; None without any.
    """

    name: str
    generation: int
    entries: RowStats
    known: bool = True
    largest_bucket: int | None = None
    lists: int | None = None
    longest_list: tuple[str, int] | None = None

    def __str__(self) -> str:
        bucket = "" if self.largest_bucket is None else f", {self.largest_bucket:,} in the largest bucket"
        line = f"{self.name}: {self.entries}{bucket}{'' if self.known else _UNKNOWN}"
        if self.longest_list is None:
            return line
        text, rows = self.longest_list
        lists = f"{self.lists:,} list{'' if self.lists == 1 else 's'} of entries"
        return f"{line}\n    {lists}, the longest of {short_repr(text)} with {rows:,}"


@without_truth("stats.records.rows")
@dataclass(frozen=True, slots=True)
class CollectionStats:
    """The records, index entries and old versions of a collection.

    Attributes:
        name: its name.
        records: the numbers of its records.
        indexes: those of each of its indexes.
        unknown: the sections of its catalogue that this release does not know.
        history: the numbers of the rows of old versions and removed records; None if it keeps none.
        keys: the ids of the keys in use for encrypted fields, in ascending order; none of them may leave the ring.
    """

    name: str
    records: RowStats
    indexes: tuple[IndexStats, ...]
    unknown: tuple[str, ...] = ()
    history: RowStats | None = None
    keys: tuple[int, ...] = ()

    @property
    def total(self) -> RowStats:
        """The records, all entries and all old versions together."""
        parts = [index.entries for index in self.indexes]
        return sum(parts, self.records if self.history is None else self.records + self.history)


@without_truth("the number that you need, such as stats.queue_ready")
@dataclass(frozen=True, slots=True)
class StoreStats:
    """The numbers of rows and bytes of a store.

    Attributes:
        collections: each collection in the catalogue, in the order of the names.
        queue_ready: messages of the queue that can be taken now.
        queue_later: messages that are delayed, or that a worker is handling.
        dead_letters: messages that were given up, and are still stored under one of their ``keys_if_undelivered``.
        locks_held: the number of locks that have a holder.
        lock_waiters: the number of tickets of waiters for locks.
        namespaces: the rows of all namespaces, with their own queues and locks.
        blobs: the chunks of the content of files.
        library: other rows of the library, such as the catalogue and progress of schema changes.
        other: keys of the program, and rows below no collection of the catalogue.
        tenants: the rows of all tenants, with everything that is in them.
        files: the size of each file of the store in bytes, or of each table on a server with its indexes; empty in
            memory.
    """

    collections: tuple[CollectionStats, ...]
    queue_ready: int
    queue_later: int
    dead_letters: int
    locks_held: int
    lock_waiters: int
    namespaces: RowStats
    library: RowStats
    other: RowStats
    tenants: RowStats = RowStats()
    blobs: RowStats = RowStats()
    files: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def exact(self) -> bool:
        """Whether every row was read; otherwise sizes in bytes and numbers of deadlines are estimates."""
        parts = (*(part for _, part in self._others()), *(one.total for one in self.collections))
        return all(part.exact for part in parts)

    def __str__(self) -> str:
        lines: list[str] = []
        for collection in self.collections:
            unknown = f"{_UNKNOWN}: {', '.join(collection.unknown)}" if collection.unknown else ""
            lines.append(f"{collection.name}: {collection.records}{unknown}")
            lines += [f"  {one}" for one in collection.indexes]
            lines += [f"  old versions: {collection.history}"] if collection.history is not None else []
            lines += [f"  keys in use: {', '.join(map(str, collection.keys))}"] if collection.keys else []
        lines.append(f"queue: {self.queue_ready:,} ready, {self.queue_later:,} later, {self.dead_letters:,} dead")
        lines.append(f"locks: {self.locks_held:,} held, {self.lock_waiters:,} waiting")
        lines += [f"{name}: {part}" for name, part in self._others()]
        lines += [f"{path}: {size:,} bytes" for path, size in self.files.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        shown = list(self._parts())
        rows = [_row(name, part) for name, part in shown[:_PARTS_SHOWN]]
        queue = f"{self.queue_ready:,} ready, {self.queue_later:,} later, {self.dead_letters:,} dead"
        facts = [("queue", queue), ("locks", f"{self.locks_held:,} held, {self.lock_waiters:,} waiting")]
        facts += [(path, f"{size:,} bytes") for path, size in [*self.files.items()][:_PARTS_SHOWN]]
        more = f"The first {_PARTS_SHOWN} parts; print the statistics to see all." if len(shown) > len(rows) else ""
        columns = ("part", "rows", "bytes" if self.exact else "bytes, about", "expiring")
        return html.view("Rows and bytes of the store", facts, table=html.Table(columns, rows), note=more)

    def _parts(self) -> Iterator[tuple[str, RowStats]]:
        for collection in self.collections:
            yield collection.name, collection.records
            for index in collection.indexes:
                yield f"{collection.name}.{index.name}", index.entries
            if collection.history is not None:
                yield f"{collection.name}, old versions", collection.history
        yield from self._others()

    def _others(self) -> Iterator[tuple[str, RowStats]]:
        """Yield the parts that belong to no collection; those of features that few stores have only if they do."""
        if self.blobs.rows:
            yield "blobs", self.blobs
        yield from (("namespaces", self.namespaces), ("library", self.library), ("other keys", self.other))
        if self.tenants.rows:
            yield "tenants", self.tenants


def _row(name: str, part: RowStats) -> list[html.Cell]:
    numbers = (part.rows, part.bytes, part.expiring)
    return [html.Cell(name), *(html.Cell(f"{number:,}", is_number=True) for number in numbers)]


class _RangePart(NamedTuple):
    """The kind of the rows of a range."""

    kind: str
    collection: str = ""
    index_name: str | None = None
    generation: int = 0


_OTHER: Final = _RangePart("other")
_LIBRARY: Final = _RangePart("library")
_TENANTS: Final = _RangePart("tenants")
_NAMESPACES: Final = _RangePart("namespaces")
_BLOBS: Final = _RangePart("blobs")
_LOCKS: Final = _RangePart("locks")
_READY: Final = _RangePart("ready")
_LATER: Final = _RangePart("later")

_Range = tuple[bytes, bytes, _RangePart]


def measure(context: Context, pace: Pace, *, exact: bool) -> Flow[StoreStats]:
    """Return the numbers of rows and bytes by collection and index."""
    view = yield from reload_header(context)
    time = yield from now()
    found: dict[_RangePart, RowStats] = {}
    tallies = dict(_tallies(view.header))
    held = waiting = 0
    for start, end, part in _ranges(view.header, time):
        if part is _LOCKS:
            held, waiting = yield from _locks(context, start, end)
            continue
        if exact:
            tally = tallies.get(part)
            stats = yield from _scanned(context, pace, (start, end, part), None if tally is None else tally.take)
        else:
            stats = yield from _sampled(context, (start, end, part))
        found[part] = found.get(part, RowStats()) + stats
    dead_letters = yield from count_dead_letters(context.codec, context.limits)
    return StoreStats(
        collections=tuple(_collections(view.header, found, tallies)),
        queue_ready=found.get(_READY, RowStats()).rows,
        queue_later=found.get(_LATER, RowStats()).rows,
        dead_letters=dead_letters,
        locks_held=held,
        lock_waiters=waiting,
        namespaces=found.get(_NAMESPACES, RowStats()),
        library=found.get(_LIBRARY, RowStats()),
        other=found.get(_OTHER, RowStats()),
        tenants=found.get(_TENANTS, RowStats()),
        blobs=found.get(_BLOBS, RowStats()),
    )


def _tallies(header: Header) -> Iterator[tuple[_RangePart, IndexTally]]:
    """Yield a tally for each index of a kind with buckets or lists."""
    for name, collection in header.collections.items():
        for index, layout in stored_entry_layouts(collection):
            if layout.definition.options is not None:
                yield _entries(name, index), IndexTally(layout)


def _collections(
    header: Header, found: Mapping[_RangePart, RowStats], tallies: Mapping[_RangePart, IndexTally]
) -> Iterator[CollectionStats]:
    for name in sorted(header.collections):
        stored = header.collections[name]
        indexes: list[IndexStats] = []
        for index in stored.indexes:
            part = _entries(name, index)
            rows, tally = found.get(part, RowStats()), tallies.get(part)
            numbers = IndexStats(index.name, index.generation, rows, not index.unknown)
            if tally is not None:
                bucket, lists, longest = tally.largest_bucket, tally.lists, tally.longest_list
                numbers = replace(numbers, largest_bucket=bucket, lists=lists, longest_list=longest)
            indexes.append(numbers)
        records = found.get(_RangePart("records", name), RowStats())
        history = None if stored.history is None else found.get(_RangePart("history", name), RowStats())
        keys = () if stored.encryption is None else tuple(sorted(stored.encryption.keys))
        yield CollectionStats(name, records, tuple(indexes), stored.unknown, history, keys)


def _entries(collection: str, index: StoredIndex) -> _RangePart:
    return _RangePart("entries", collection, index.name, index.generation)


def _ranges(header: Header, time: int) -> list[_Range]:
    """Return ranges that cover every key once, in key order."""
    library = encode_key((RESERVED,))
    after_library = after_prefix(library)
    # Empty ranges divide the gaps where the keys of the library begin and end.
    borders = [(border, border, _OTHER) for border in (library, after_library, _END)]
    found: list[_Range] = []
    at = _FIRST
    for start, end, part in sorted([*_of_models(header), *_of_library(time), *borders]):
        if at < start:
            found.append((at, start, _LIBRARY if library <= at < after_library else _OTHER))
        if start < end:
            found.append((start, end, part))
        at = end
    return found


def _of_models(header: Header) -> Iterator[_Range]:
    for name, collection in header.collections.items():
        prefix = encode_key((name,))
        yield prefix, after_prefix(prefix), _RangePart("records", name)
        if collection.history is not None:
            for rows in (history_prefix(name), trash_prefix(name), also_prefix(name)):
                yield rows, after_prefix(rows), _RangePart("history", name)
        for index in collection.indexes:
            # An unknown one may have both.
            if index.has_counters or index.unknown:
                prefix = counter_prefix(name, index.name, index.generation)
                yield prefix, after_prefix(prefix), _entries(name, index)
            if index.has_entries or index.unknown:
                prefix = encode_key((index.prefix(name),))
                yield prefix, after_prefix(prefix), _entries(name, index)


def _of_library(time: int) -> Iterator[_Range]:
    queue = encode_key((RESERVED, "queue"))
    later = queue + encode_part(time + 1)
    yield queue, later, _READY
    yield later, after_prefix(queue), _LATER
    yield CHUNKS, after_prefix(CHUNKS), _BLOBS
    for name, part in (("lock", _LOCKS), ("ns", _NAMESPACES), ("tenant", _TENANTS), ("announced", _TENANTS)):
        prefix = encode_key((RESERVED, name))
        yield prefix, after_prefix(prefix), part


def _scanned(context: Context, pace: Pace, one: _Range, take: Callable[[Sequence[Row]], None] | None) -> Flow[RowStats]:
    """Read every row of a range, and pass the rows to ``take``."""
    start, end, part = one
    total = RowStats()
    while True:
        size = rows_at_once(context.limits, pace.size(CHUNKS_AT_ONCE if part is _BLOBS else ROWS_AT_ONCE))
        result = yield from read((ReadRange(start, end, size),))
        rows = result.ranges[0]
        if not rows:
            return total
        total += sum_of(rows)
        if take is not None:
            take(rows)
        start = key_successor(rows[-1].key)
        yield from pace.after(
            SchemaProgress("stats", part.collection or part.kind, part.index_name, total.rows),
            len(rows),
            ReadRange(start, end),
        )


def _sampled(context: Context, one: _Range) -> Flow[RowStats]:
    """Count the rows of a range, and read some from both ends."""
    start, end, part = one
    size = rows_at_once(context.limits, CHUNKS_AT_ONCE if part is _BLOBS else SAMPLED_ROWS)
    result = yield from read((ReadRange(start, end, size),))
    first = result.ranges[0]
    if len(first) < size:
        return sum_of(first)
    counted = yield from count_rows((ReadRange(start, end),))
    assert not isinstance(counted, GuardFailed), "there is no guard"
    number = counted.numbers[0]
    result = yield from read((ReadRange(key_successor(first[-1].key), end, size, reverse=True),))
    sample = sum_of([*first, *result.ranges[0]])
    if sample.rows >= number:
        return sample
    scale = number / sample.rows
    return RowStats(number, round(sample.bytes * scale), round(sample.expiring * scale), exact=False)


def _locks(context: Context, start: bytes, end: bytes) -> Flow[tuple[int, int]]:
    """Return the numbers of locks and tickets; a key has one part more if it is that of a ticket."""
    held = waiting = 0
    while True:
        result = yield from read((ReadRange(start, end, rows_at_once(context.limits, ROWS_AT_ONCE)),))
        rows = result.ranges[0]
        if not rows:
            return held, waiting
        locks = sum(_is_lock(row.key) for row in rows)
        held, waiting = held + locks, waiting + len(rows) - locks
        start = key_successor(rows[-1].key)


def _is_lock(key: bytes) -> bool:
    try:
        return len(decode_key(key)) == _LOCK_PARTS
    except InvalidKeyError:
        return False


def sum_of(rows: Sequence[Row]) -> RowStats:
    """Return the numbers of some rows."""
    return RowStats(
        len(rows), sum(len(row.key) + len(row.value) for row in rows), sum(row.expire_at is not None for row in rows)
    )


show_public_path(CollectionStats, IndexStats, RowStats, StoreStats)
