"""Read places on a board: ranks, positions, records by position, percentiles and counts.

The number of entries before a bound is the sum of counters, one range for each level, and of the entries of one bucket,
all from one read. A position is found level by level; the last read repeats the counters of all levels together with
the entries. If they still lead to this bucket, the answer is that of one state, on every engine; otherwise the search
continues at the first level that differs.

A bucket with more entries than one read returns is counted in several reads, so its entries may be of several states.
An engine that takes too few ranges for the bounds of a count reads them again until two rounds agree.

A transaction reads counters one by one before it reads their range. So its commit also checks that those without a row
still have none: the first record in a bucket makes its counter. A change of others between the two reads is a conflict.

Rules of this module: every read has the header as its guard (rule R3). A record is returned only if it has the very
entry that was counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Final, NamedTuple

from kvmodels.core.keys import key_successor
from kvmodels.core.operations import Counted, GuardFailed, ReadRange, ReadResult, Row, point
from kvmodels.errors import InvalidKeyError, RetriesExhaustedError
from kvmodels.flows.context import Context, HeaderView, pause_before, planned, reload_header
from kvmodels.flows.effects import Flow, count_rows, fits_one_read, read, read_all, rows_at_once
from kvmodels.flows.execution.executor import MAX_BATCH
from kvmodels.flows.execution.ranges import KeptFollow
from kvmodels.flows.hydration.loader import expected_keys
from kvmodels.flows.hydration.rows import document_of, object_of_document, require_known_version
from kvmodels.indexing.entries import number_in
from kvmodels.query.kinds.boards import BITS, SIBLINGS, BoardKeys, CountedRange, child_at
from kvmodels.query.planning.boards import BoardPlan, BoardQuery, OpenBoard, percentile_position
from kvmodels.query.planning.cursor import require_generation
from kvmodels.schema.filters.predicate import Spans

_END: Final = b"\xff"


def rank(context: Context, board: BoardQuery, part: bytes) -> Flow[int]:
    """Return 1 and the number of entries before a packed value."""
    (number,) = yield from _before(context, board, [part])
    return number + 1


def count(context: Context, board: BoardQuery, spans: Spans) -> Flow[int]:
    """Count the entries with a value in some spans."""
    bounds = [bound for span in spans for bound in (span.start, span.end)]
    numbers = yield from _before(context, board, bounds)
    return sum(numbers[1::2]) - sum(numbers[::2])


# --- entries before bounds --------------------------------------------------------------------------------------


class _Tally:
    """The ranges that count the entries before some bounds, and their sums.

    Attributes:
        ranges: counters, each range once, then entries; the read takes at most ``part`` rows of each range of entries.
        counters: the number of ranges of counters.
    """

    def __init__(self, context: Context, keys: BoardKeys, bounds: Sequence[bytes]) -> None:
        self._keys = keys
        self._bounds = bounds
        self._limits = context.limits
        self._pieces = [list(keys.before(keys.bucket_at(bound))) for bound in bounds]
        longest: dict[tuple[int, int], int] = {}
        for level, first, after in (piece for pieces in self._pieces for piece in pieces):
            longest[level, first] = max(after, longest.get((level, first), 0))
        self._counted = [CountedRange(level, first, after) for (level, first), after in longest.items()]
        self._entries = [self._in_bucket(bound) for bound in bounds]
        rows = SIBLINGS * len(longest)
        limits, many = context.limits, sum(one is not None for one in self._entries)
        self.part = max(1, rows_at_once(limits, limits.max_read_entries, others=rows + 2) // max(many, 1))
        self.counters = len(longest)
        self.ranges: list[ReadRange] = [
            *map(keys.counters, self._counted),
            *(one._replace(limit=self.part) for one in self._entries if one is not None),
        ]

    def counter_keys(self) -> list[ReadRange]:
        """Return the key of each counter that the numbers depend on, with those of the buckets of read entries."""
        keys, partly = self._keys, zip(self._bounds, self._entries, strict=True)
        buckets = [keys.one(keys.bucket_at(bound)) for bound, entries in partly if entries is not None]
        return [*dict.fromkeys(one for wanted in (*self._counted, *buckets) for one in keys.each(wanted))]

    @property
    def is_one_read(self) -> bool:
        """Whether the engine takes all ranges in one read."""
        return fits_one_read(self._limits, self.ranges, guarded=True)

    def _in_bucket(self, bound: bytes) -> ReadRange | None:
        start = self._keys.board.start(self._keys.bucket_at(bound))
        return self._keys.entries(start, bound)._replace(keys_only=True) if start < bound else None

    def numbers(self, found: Sequence[list[Row]]) -> list[int]:
        """Return the number of entries before each bound, as far as they were read."""
        of_counters = {(one.level, one.first): rows for one, rows in zip(self._counted, found, strict=False)}
        of_entries = iter(found[len(self._counted) :])
        return [
            sum(
                number
                for level, first, after in pieces
                for digits, number in _numbers_in(self._keys, of_counters[level, first])
                if digits < after
            )
            + (0 if wanted is None else len(next(of_entries)))
            for pieces, wanted in zip(self._pieces, self._entries, strict=True)
        ]

    def unread(self, found: Sequence[list[Row]]) -> dict[int, ReadRange]:
        """Return the rest of the ranges of entries with more than ``part`` rows, by the number of the bound."""
        of_entries = iter(found[len(self._counted) :])
        rest: dict[int, ReadRange] = {}
        for number, wanted in enumerate(self._entries):
            rows = [] if wanted is None else next(of_entries)
            if wanted is not None and len(rows) >= self.part:
                rest[number] = wanted._replace(start=key_successor(rows[-1].key))
        return rest


def _numbers_in(keys: BoardKeys, rows: Iterable[Row]) -> Iterator[tuple[int, int]]:
    """Yield the digits and the number of each counter; foreign rows are left out."""
    for row in rows:
        try:
            digits = keys.digits(row.key)
        except (InvalidKeyError, LookupError):
            continue
        yield digits, number_in(row)


def _checked(context: Context, view: HeaderView, tally: _Tally) -> Flow[None]:
    """Let the commit of a transaction check every counter of a tally, also those without a row."""
    if context.transaction is not None:
        yield from read_all(context.limits, tally.counter_keys(), view.guard)


def _opened(context: Context, board: BoardQuery) -> Flow[tuple[HeaderView, OpenBoard]]:
    return (yield from planned(context, board.schema, board.opened))


def _before(context: Context, board: BoardQuery, bounds: Sequence[bytes]) -> Flow[list[int]]:
    """Return the number of entries before each bound."""
    if not bounds:
        return []
    policy, started = context.retry, context.monotonic()
    earlier: list[int] | None = None
    tally: _Tally | None = None
    for attempt in range(1, policy.attempts + 1):
        yield from pause_before(context, attempt)
        numbers: list[int] | None = None
        while numbers is None:
            view, opened = yield from _opened(context, board)
            tally = _Tally(context, opened.keys, bounds)
            yield from _checked(context, view, tally)
            numbers = yield from _tallied(context, view, tally)
        assert tally is not None, "the loop has made it"
        if tally.is_one_read or context.traits.snapshots or context.transaction is not None or numbers == earlier:
            return numbers
        earlier = numbers
    raise RetriesExhaustedError(
        "the numbers of a board never agreed in two rounds of reads",
        attempts=policy.attempts,
        elapsed_s=round(context.monotonic() - started, 6),
        failed_checks=(),
        hint="The engine takes few ranges in one read, and the board is written all the time: count fewer ranges.",
    )


def _tallied(context: Context, view: HeaderView, tally: _Tally) -> Flow[list[int] | None]:
    """Read the ranges of a tally; None when the header has changed."""
    found = yield from read_all(context.limits, tally.ranges, view.guard)
    if found is None:
        yield from reload_header(context)
        return None
    return (yield from _with_rest(context, view, tally, found))


def _with_rest(context: Context, view: HeaderView, tally: _Tally, found: Sequence[list[Row]]) -> Flow[list[int] | None]:
    """Return the numbers of a tally, whose buckets may need further reads; None when the header has changed."""
    numbers = tally.numbers(found)
    for at, rest in tally.unread(found).items():
        more = yield from _counted(context, view, rest)
        if more is None:
            return None
        numbers[at] += more
    return numbers


def _counted(context: Context, view: HeaderView, wanted: ReadRange) -> Flow[int | None]:
    """Count the entries of a range, by reading them in a transaction; None when the header has changed."""
    if context.transaction is None:
        counted = yield from count_rows((wanted,), view.guard)
        number = counted.numbers[0] if isinstance(counted, Counted) else None
    else:
        found = yield from read_all(context.limits, (wanted,), view.guard)
        number = None if found is None else len(found[0])
    if number is None:
        yield from reload_header(context)
    return number


# --- the place of a record --------------------------------------------------------------------------------------


def place_of(context: Context, board: BoardQuery, key: tuple[Any, ...], *, ties: bool) -> Flow[int | None]:
    """Return the number of entries before that of a record; None if it has none on the board.

    ``ties``: entries with the same value before its own count too.
    """
    record: Row | None = None
    while True:
        view, opened = yield from _opened(context, board)
        wanted = point(opened.live.layout.key(opened.live.layout.pack(key)))
        entry = None if record is None else _entry_of(context, opened, record)
        if entry is None:
            result = yield from read((wanted,), view.guard)
            rows = result.ranges[0] if isinstance(result, ReadResult) else []
            if isinstance(result, ReadResult) and (not rows or _entry_of(context, opened, rows[0]) is None):
                return None
            record = rows[0] if rows else None
            if not isinstance(result, ReadResult):
                yield from reload_header(context)
            continue
        pk = opened.stored.layout.pk_in(entry)
        end = len(entry) - (0 if ties else len(pk))
        tally = _Tally(context, opened.keys, [entry[len(opened.keys.head) : end]])
        yield from _checked(context, view, tally)
        result = yield from read((wanted, *tally.ranges), view.guard)
        if not isinstance(result, ReadResult):
            yield from reload_header(context)
            continue
        (rows, *found) = result.ranges
        if rows and record is not None and rows[0].versionstamp == record.versionstamp:
            numbers = yield from _with_rest(context, view, tally, found)
            if numbers is not None:
                return numbers[0]
        record = rows[0] if rows else None


def _entry_of(context: Context, opened: OpenBoard, record: Row) -> bytes | None:
    """Return the key of the entry that a record has on a board; None if it has none."""
    document, pk = document_of(context, record), opened.live.layout.pk_of(record.key)
    require_known_version(opened.live, document, pk)
    keys = expected_keys(opened.stored, document, pk)
    return next((key for key in keys if key.startswith(opened.keys.head)), None)


# --- entries by position ----------------------------------------------------------------------------------------


At = Callable[[int], int | None]
"""Returns a position, given the number of entries; None if there is none."""


class _Path(NamedTuple):
    """The digits of each level down to the counter that a position lies in, and the position in each of them."""

    digits: tuple[int, ...] = ()
    lefts: tuple[int, ...] = ()

    @property
    def left(self) -> int:
        """The number of entries from the start of the last counter to the position."""
        return self.lefts[-1]

    def wider(self, depth: int, size: int) -> _Path:
        """Return the path down to a shorter depth, if few entries more are read then; otherwise this path."""
        near = 0 < depth <= len(self.digits) and self.lefts[depth - 1] + size <= _NEAR
        return _Path(self.digits[:depth], self.lefts[:depth]) if near else self


_NEAR: Final = 1_000
"""The maximum number of entries that are read for a position that moves from bucket to bucket between the reads."""

_SPARE: Final = 8
"""Entries that are read in addition, in case that others come before the position between two reads."""


class _Search(NamedTuple):
    """A position that is searched on a board.

    Attributes:
        at: the position.
        size: the maximum number of entries from there on.
        whole: whether their records are read too.
    """

    at: At
    size: int
    whole: bool


class FoundEntries(NamedTuple):
    """Entries in their order.

    Attributes:
        records: the records that were read in the same state; None: they must be read later.
        more: whether there may be further entries.
    """

    opened: OpenBoard
    entries: list[Row]
    records: list[Row] | None
    more: bool


def _stepped(keys: BoardKeys, at: At, path: _Path, rows: Iterable[Row]) -> _Path | None:
    """Return the path with the next level, whose counters are given; None if there is no such position.

    The path is empty again if the counters are of a later state, in which the position is not below the last digits.
    """
    numbers = list(_numbers_in(keys, rows))
    left = path.left if path.digits else at(sum(number for _, number in numbers))
    if left is None:
        return None
    child = child_at(numbers, left)
    return _Path() if child is None else _Path((*path.digits, child[0]), (*path.lefts, child[1]))


def _walked(keys: BoardKeys, at: At, known: _Path, levels: Iterable[list[Row]]) -> _Path | None:
    """Return the path in one state, as far as its digits are the known ones, and one level more; as ``_stepped``."""
    path = _Path()
    for rows, digits in zip(levels, known.digits, strict=True):
        stepped = _stepped(keys, at, path, rows)
        if stepped is None or stepped.digits[-1:] != (digits,):
            return stepped
        path = stepped
    return path


def located(context: Context, board: BoardQuery, search: _Search) -> Flow[FoundEntries | None]:
    """Return the entries from a position on; None if there is no such position."""
    path, depth = _Path(), 0
    for _ in range(_MOST_READS):
        view, opened = yield from _opened(context, board)
        keys, depth = opened.keys, depth or opened.keys.board.levels
        answer: FoundEntries | _Path | None
        result: ReadResult | GuardFailed | None
        if len(path.digits) < depth:
            result = yield from _read_level(context, view, keys, path)
            answer = _stepped(keys, search.at, path, result.ranges[0]) if isinstance(result, ReadResult) else _Path()
        elif path.left >= _most_entries(context, keys):
            found = yield from read_all(context.limits, (_far(keys, search, path),), view.guard)
            result = None if found is None else ReadResult(found, [], b"")
            answer = _Path() if found is None else FoundEntries(opened, found[0][path.left :], None, more=True)
        else:
            result, answer = yield from _in_one_state(context, view, opened, search, path)
            if isinstance(answer, _Path) and answer.digits != path.digits:
                answer, depth = answer.wider(depth - 1, search.size), depth - 1
                depth = max(depth, len(answer.digits), 1)
        if not isinstance(result, ReadResult):
            yield from reload_header(context)
            path, depth = _Path(), 0
        elif answer is None or isinstance(answer, FoundEntries):
            return answer
        else:
            path = answer
    raise RetriesExhaustedError(
        "a position on a board was never found in one state",
        attempts=_MOST_READS,
        elapsed_s=0.0,
        failed_checks=(),
        hint="Its counters are damaged, or it is written all the time: run db.check().",
    )


_MOST_READS: Final = 200


def _most_entries(context: Context, keys: BoardKeys) -> int:
    """Return the maximum number of entries in one read with the counters of all levels."""
    limits = context.limits
    return rows_at_once(limits, limits.max_read_entries, others=1 + SIBLINGS * keys.board.levels)


def _level(keys: BoardKeys, path: _Path, number: int) -> ReadRange:
    """Return the range of the counters of a level, counted from 0, below those of the path."""
    return keys.siblings(number + 1, path.digits[number - 1] << BITS if number else 0)


def _read_level(context: Context, view: HeaderView, keys: BoardKeys, path: _Path) -> Flow[ReadResult | GuardFailed]:
    """Read the counters below those of a path; the commit of a transaction checks also those without a row."""
    number = len(path.digits)
    if context.transaction is not None:
        first = path.digits[-1] << BITS if number else 0
        wanted = CountedRange(number + 1, first, first + SIBLINGS)
        yield from read_all(context.limits, [*keys.each(wanted)], view.guard)
    return (yield from read((_level(keys, path, number),), view.guard))


def _start(keys: BoardKeys, path: _Path) -> bytes:
    """Return the bound at which the entries of the last counter of a path begin."""
    return keys.board.start(path.digits[-1] << BITS * (keys.board.levels - len(path.digits)))


def _far(keys: BoardKeys, search: _Search, path: _Path) -> ReadRange:
    """Return the range of entries in a bucket with more of them before the position than one read returns."""
    return keys.entries(_start(keys, path), _END)._replace(limit=path.left + search.size)


def _in_one_state(
    context: Context, view: HeaderView, opened: OpenBoard, search: _Search, path: _Path
) -> Flow[tuple[ReadResult | GuardFailed, FoundEntries | _Path | None]]:
    """Read the counters of a path again together with the entries; return those, or how far the path was right."""
    keys, size = opened.keys, search.size
    levels = [_level(keys, path, number) for number in range(len(path.digits))]
    most = _most_entries(context, keys)
    limit = min(most, path.left + size + _SPARE)
    follows = search.whole and context.traits.snapshots

    def chosen(found: Sequence[list[Row]]) -> tuple[FoundEntries | _Path | None, Sequence[ReadRange]]:
        now = _walked(keys, search.at, path, found[:-1])
        if now is None or now.digits != path.digits:
            return now, ()
        if len(found[-1]) == limit < min(most, now.left + size):
            return now, ()
        entries = found[-1][now.left : now.left + size]
        more = len(found[-1]) == limit or len(found[-1]) > now.left + size
        return FoundEntries(opened, entries, None, more), _records(opened, entries) if follows else ()

    follow = KeptFollow(chosen)
    ranges = (*levels, keys.entries(_start(keys, path), _END)._replace(limit=limit))
    result = yield from read(ranges, view.guard, follow=follow if follows else None)
    if not isinstance(result, ReadResult):
        return result, None
    if not follows:
        follow(result.ranges)
    answer = follow.kept
    if isinstance(answer, FoundEntries) and follows:
        answer = answer._replace(records=[row for rows in result.followed for row in rows])
    return result, answer


# --- records ----------------------------------------------------------------------------------------------------


def item(context: Context, board: BoardQuery, position: int) -> Flow[Any]:
    """Return the record at a position; raises DoesNotExist."""
    found = yield from items(context, board, position, position + 1)
    if not found:
        raise board.schema.model.DoesNotExist(
            "the board has no record at this position",
            model=board.schema.name,
            lookup=position,
            hint="Positions are below count(); a slice, board[a:b], may be empty.",
        )
    return found[0]


def items(context: Context, board: BoardQuery, start: int, stop: int | None) -> Flow[list[Any]]:
    """Return the records between two positions."""
    if stop is not None and stop <= start:
        return []
    attempt = 1
    while True:
        found, all_hold = yield from _items(context, board, start, stop)
        attempt += 1
        if all_hold or attempt > context.retry.attempts:
            return found
        yield from pause_before(context, attempt)


def _items(context: Context, board: BoardQuery, start: int, stop: int | None) -> Flow[tuple[list[Any], bool]]:
    """Return records, and False if one that was read after its entry has changed in between and was left out."""
    wanted = None if stop is None else stop - start

    def at(total: int) -> int | None:
        return start if start < total else None

    search = _Search(at, _batch(context, wanted, 0), whole=True)
    found = yield from located(context, board, search)
    objects: list[Any] = []
    passed, all_hold = 0, True
    while found is not None and found.entries:
        records = found.records
        if records is None:
            records = yield from _later(context, found)
        made = _objects(context, found, records)
        all_hold = all_hold and (found.records is not None or len(made) == len(found.entries))
        objects += made
        passed += len(found.entries)
        if not found.more or (wanted is not None and passed >= wanted):
            break
        found = yield from _next(context, board, found, _batch(context, wanted, passed))
    return objects, all_hold


def _batch(context: Context, wanted: int | None, passed: int) -> int:
    most = rows_at_once(context.limits, MAX_BATCH)
    return most if wanted is None else min(most, wanted - passed)


def _next(context: Context, board: BoardQuery, before: FoundEntries, size: int) -> Flow[FoundEntries]:
    """Return the entries after some. Raises IndexChangedError."""
    name, generation = board.definition.name, before.opened.stored.stored.generation
    wanted = ReadRange(key_successor(before.entries[-1].key), before.opened.keys.head + _END, size)
    follows = context.traits.snapshots
    while True:
        view, opened = yield from _opened(context, board)
        require_generation(opened.live, name, generation)
        result = yield from read((wanted,), view.guard, follow=partial(_first_records, opened) if follows else None)
        if isinstance(result, ReadResult):
            records = [row for rows in result.followed for row in rows] if follows else None
            return FoundEntries(opened, result.ranges[0], records, more=len(result.ranges[0]) == size)
        yield from reload_header(context)


def _first_records(opened: OpenBoard, found: Sequence[list[Row]]) -> list[ReadRange]:
    return _records(opened, found[0])


def _records(opened: OpenBoard, entries: Iterable[Row]) -> list[ReadRange]:
    layout = opened.live.layout
    return [point(layout.key(pk)) for row in entries if (pk := _pk_in(opened, row))]


def _pk_in(opened: OpenBoard, row: Row) -> bytes:
    try:
        return opened.stored.layout.pk_in(row.key)
    except InvalidKeyError:
        return b""  # a foreign row


def _later(context: Context, found: FoundEntries) -> Flow[list[Row]]:
    """Read the records of entries in a later state."""
    rows = yield from read_all(context.limits, _records(found.opened, found.entries))
    return [row for some in rows or () for row in some]


def _objects(context: Context, found: FoundEntries, records: Iterable[Row]) -> list[Any]:
    """Return the objects of the records that have these entries, in the order of the entries."""
    live, index = found.opened.live, found.opened.stored
    by_key = {row.key: row for row in records}
    objects: list[Any] = []
    for entry in found.entries:
        pk = _pk_in(found.opened, entry)
        record = by_key.get(live.layout.key(pk)) if pk else None
        if record is None:
            continue
        document = document_of(context, record)
        require_known_version(live, document, pk)
        if entry.key in expected_keys(index, document, pk):
            objects.append(object_of_document(live, record, document, pk))
    return objects


# --- values -----------------------------------------------------------------------------------------------------


def percentile(context: Context, board: BoardQuery, percent: Fraction) -> Flow[Any]:
    """Return the value at a percentile by nearest rank; None for an empty board."""
    at = partial(percentile_position, percent, descending=board.column.descending)
    found = yield from located(context, board, _Search(at, 1, whole=False))
    if found is None or not found.entries:
        return None
    return found.opened.stored.layout.columns_in(found.entries[0].key)[-1]


def explain(context: Context, board: BoardQuery, part: bytes) -> Flow[BoardPlan]:
    """Return the cost of the rank of a packed value."""
    while True:
        view, opened = yield from _opened(context, board)
        keys = opened.keys
        tally, bucket = _Tally(context, keys, [part]), keys.bucket_at(part)
        result = yield from read((*tally.ranges, keys.counters(keys.one(bucket))), view.guard)
        if not isinstance(result, ReadResult):
            yield from reload_header(context)
            continue
        *found, last = result.ranges
        entries = len(found) - tally.counters
        counters = sum(map(len, found[: tally.counters]))
        number = sum(number for _, number in _numbers_in(keys, last))
        return BoardPlan(board.definition.name, counters, len(found[-1]) if entries else 0, number)
