"""Reads and counts of a PostgreSQL store as calls of its functions, one call and one round trip each.

Rules of this module: a call is one statement and so one snapshot, its guard included. What a Python function asks for
after it has seen rows is read by a second call, whose answer counts only if the state is still the same; otherwise
both are repeated in a snapshot. Generators yield the calls and are sent the rows, so that connections of threads and of
event loops share them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from kvmodels.core.operations import (
    Change,
    Changes,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    MultiRangeFollow,
    PlainRow,
    PredictedFollow,
    ReadRange,
    ReadResult,
    Row,
    SuffixFollow,
    as_plain_rows,
    to_versionstamp,
)
from kvmodels.engines.contract import SMALL_READ, is_small
from kvmodels.engines.postgres.connection import FALSE, TRUE, Call, Calls, Int8, Int8Array, byteas, int8, int8s
from kvmodels.engines.shared.background import require_reached, resume_expired, without_change_log
from kvmodels.engines.shared.evaluation import from_versionstamp

NONE: Final = -(1 << 63)
"""Stands for "none" in a parameter, so that the types of the parameters are always the same."""

ABSENT: Final = -1
NEVER: Final = -2
"""The version of no row."""

_NOT_FOLLOWED: Final = -2

_GUARD_FAILED: Final = -2
"""The part of the row that says so."""

_NONE: Final = int8(NONE)
_NO_FOLLOW: Final = (int8(0), byteas(()), int8s(()), byteas(()), int8s(()))
_REVERSE, _KEYS_ONLY, _POINT = 1, 2, 4

_READ: Final = "SELECT part, k, v, e, s, d FROM {schema}.read_1(%b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b)"
_COUNT: Final = "SELECT part, s, d FROM {schema}.count_1(%b, %b, %b, %b, %b, %b, %b)"
_CHANGES: Final = "SELECT part, k, changed, v, e, s, d FROM {schema}.changes_1(%b, %b, %b, %b, %b, %b)"
_STATE: Final = "SELECT state, present FROM {schema}.state_1(%b, %b)"
_SEALED_CHANGES: Final = (
    "SELECT part, k, changed, v, e, s, d, (SELECT {schema}.sealed_2()) FROM {schema}.changes_1(%b, %b, %b, %b, %b, %b)"
)
_SEALED_STATE: Final = "SELECT {schema}.sealed_2(), present FROM {schema}.state_1(%b, %b)"
_SETTLED: Final = (
    "SELECT {schema}.sealed_2() >= %b, EXISTS (SELECT FROM {schema}.commits c WHERE c.version = %b), "
    "pg_catalog.pg_is_in_recovery()"
)
_DURABLE_READS: Final = "SELECT m.durable_reads FROM {schema}.meta m WHERE m.one"
_SEAL: Final = "SELECT {schema}.seal_2(%b)"
_SIZES: Final = (
    "SELECT class.relname::pg_catalog.text, pg_catalog.pg_total_relation_size(class.oid) "
    "FROM pg_catalog.pg_class class "
    "WHERE class.relkind = 'r' AND class.relnamespace = pg_catalog.to_regnamespace('{schema}') ORDER BY 1"
)
_DUE: Final = "SELECT deadline, log_ms, log_floor, oldest FROM {schema}.due_1()"


class Statements(NamedTuple):
    """The statements that read a store, with the name of its schema."""

    read: bytes
    number: bytes
    changes: bytes
    state: bytes
    due: bytes
    settled: bytes
    seal: bytes
    durable_reads: bytes
    sizes: bytes


def statements(schema: str, *, seals: bool) -> Statements:
    """Return the statements for a schema, whose name is quoted; ``seals``: whether its commits may end early.

    Then the version that is reported to those who wait for commits is one that is durable.
    """
    changed, stated = (_SEALED_CHANGES, _SEALED_STATE) if seals else (_CHANGES, _STATE)
    read, number, changes, state, due, settled, seal, durable_reads = (
        text.format(schema=schema).encode()
        for text in (_READ, _COUNT, changed, stated, _DUE, _SETTLED, _SEAL, _DURABLE_READS)
    )
    sizes = _SIZES.format(schema=schema.replace("'", "''")).encode()  # a name inside of a literal
    return Statements(read, number, changes, state, due, settled, seal, durable_reads, sizes)


class Times(NamedTuple):
    """The time of a call: the one that decides, ``NONE`` for the server's, and the greatest that was seen before."""

    given: int
    mark: int


class StateSeen(NamedTuple):
    """The version of the state that an answer comes from, and its time in milliseconds."""

    version: int
    present: int


class ReadAnswer(NamedTuple):
    """The outcome of one call, and whether a follow-up function is still to be called."""

    state: StateSeen
    found: ReadResult | GuardFailed
    unfollowed: bool


class Reading(NamedTuple):
    """A read on a connection of reads, and once more on a new one if that was lost.

    Attributes:
        make: returns its calls, new ones for each attempt.
        pinned: whether several calls see one state.
    """

    make: Callable[[], Calls[Any]]
    pinned: bool = False


SharedAnswer = tuple[StateSeen, list[ReadResult] | GuardFailed]
"""The state of a call for several callers, and the result of each."""


def version_of(versionstamp: bytes | None) -> int:
    """Return the version to compare a row's with; ``NEVER`` for a versionstamp that no row can have."""
    if versionstamp is None:
        return ABSENT
    number = from_versionstamp(versionstamp)
    if len(versionstamp) != 10 or versionstamp[8:] != b"\0\0" or not 0 < number < 1 << 63:
        return NEVER
    return number


@lru_cache(maxsize=64)
def _guard(guard: Guard | None) -> tuple[bytes, Int8]:
    return (b"", _NONE) if guard is None else (guard.key, int8(version_of(guard.versionstamp)))


def _limits(ranges: Sequence[ReadRange]) -> Int8Array:
    return int8s([one.limit for one in ranges])


def _pushed_follow(ranges: Sequence[ReadRange], follow: Follow | None) -> tuple[bytes, ...] | None:
    """Return the parameters of a follow-up read that the server carries out itself, else None."""
    if isinstance(follow, MultiRangeFollow) and all(one.end is not None for one in ranges):
        return int8(3), byteas([follow.prefix]), int8s(follow.starts), byteas(()), int8s([follow.most])
    if follow is None or len(ranges) != 1:
        return None
    _, end, limit, _, _ = ranges[0]
    if isinstance(follow, SuffixFollow) and end is not None:
        return int8(1), byteas([follow.prefix]), int8s([follow.start]), byteas(()), int8s(())
    if isinstance(follow, PredictedFollow) and end is None and limit is None:
        others = follow.others
        guesses = [follow.guess, *others.values()]
        return (
            int8(2),
            byteas([prefix for prefix, _, _ in guesses]),
            int8s([cut for _, cut, _ in guesses]),
            byteas([suffix for _, _, suffix in guesses]),
            int8s([ABSENT, *others]),
        )
    return None


def _read_call(
    texts: Statements,
    ranges: Sequence[ReadRange],
    times: Times,
    *,
    guard: Guard | None,
    hiding: bool,
    follow: tuple[bytes, ...],
) -> Call:
    """Return the call of a read; ``follow``: the parameters of a follow-up read."""
    shapes = [_POINT if one.end is None else one.reverse * _REVERSE + one.keys_only * _KEYS_ONLY for one in ranges]
    parameters = (
        byteas([one.start for one in ranges]),
        byteas([one.end for one in ranges]),
        _limits(ranges),
        int8s(shapes),
        *_guard(guard),
        int8(times.given),
        int8(times.mark),
        TRUE if hiding else FALSE,
        *follow,
    )
    return Call(texts.read, parameters, is_small(ranges))


def _state_of(answer: list[tuple[Any, ...]]) -> tuple[StateSeen, GuardFailed | None]:
    """Return the state of the rows of a read, and the failure of its guard."""
    _, _, _, _, version, present = answer[0]
    state = StateSeen(version, present)
    if len(answer) > 1 and answer[1][0] == _GUARD_FAILED:
        seen = answer[1][4]
        return state, GuardFailed(None if seen == ABSENT else to_versionstamp(seen))
    return state, None


def read_once(
    texts: Statements,
    ranges: Sequence[ReadRange],
    times: Times,
    *,
    guard: Guard | None,
    follow: Follow | None,
    hiding: bool,
) -> Calls[ReadAnswer]:
    """Read ranges, and what follows if the server can carry that out, in one call."""
    pushed = _pushed_follow(ranges, follow)
    answer = yield _read_call(texts, ranges, times, guard=guard, hiding=hiding, follow=pushed or _NO_FOLLOW)
    state, failed = _state_of(answer)
    if failed is not None:
        return ReadAnswer(state, failed, unfollowed=False)
    stamp = to_versionstamp(state.version)
    if pushed is not None and isinstance(follow, SuffixFollow):
        return ReadAnswer(state, ReadResult(*_followed_rows(answer[1:], follow), stamp), unfollowed=False)
    if pushed is not None and isinstance(follow, MultiRangeFollow):
        return ReadAnswer(state, ReadResult(*_rows_of_ranges(answer[1:], follow), stamp), unfollowed=False)
    plain = follow is as_plain_rows
    found = _parts(answer, ranges, plain=plain)
    if pushed is not None and isinstance(follow, PredictedFollow):
        predicted = [_row(row) for row in answer[1:] if row[0] == 1]
        if predicted:
            follow.misses = 0
            return ReadAnswer(state, ReadResult(found, [predicted], stamp), unfollowed=False)
    return ReadAnswer(state, ReadResult(found, [], stamp), unfollowed=follow is not None and not plain)


def _row(row: tuple[Any, ...]) -> Row:
    _, key, value, encoding, version, expire_at = row
    return Row(key, value, encoding, to_versionstamp(version), expire_at)


def _parts(answer: list[tuple[Any, ...]], ranges: Sequence[ReadRange], *, plain: bool) -> list[list[Row]]:
    found: list[list[Row]] = [[] for _ in ranges]
    for row in answer:
        part: int = row[0]
        if 0 <= part < len(found):
            found[part].append(cast("Row", row[1:]) if plain else _row(row))
    for at, one in enumerate(ranges):
        if one.limit == 0:
            found[at] = []
    return found


def _followed_rows(answer: list[tuple[Any, ...]], suffix: SuffixFollow) -> tuple[list[list[Row]], list[list[Row]]]:
    """Return the entries of a range as plain tuples of their key, and the record of each entry."""
    prefix, cut = suffix.prefix, suffix.start
    entries = [[cast("Row", (row[1],)) for row in answer]]
    if ABSENT not in [row[4] for row in answer]:
        joined: list[PlainRow] = [
            (prefix + key[cut:], value, encoding, version, expire_at)
            for _, key, value, encoding, version, expire_at in answer
        ]
        return entries, [cast("list[Row]", joined)]
    behind: list[list[Row]] = []
    for _, key, value, encoding, version, expire_at in answer:
        row = (
            Row(prefix + key[cut:], value, encoding, to_versionstamp(version), expire_at) if version != ABSENT else None
        )
        behind.append([] if row is None else [row])
    return entries, behind


def _rows_of_ranges(answer: list[tuple[Any, ...]], follow: MultiRangeFollow) -> tuple[list[list[Row]], list[list[Row]]]:
    """Return the entries of each range as plain tuples of their key, and the row behind each of the first."""
    prefix, starts = follow.prefix, follow.starts
    entries: list[list[Row]] = [[] for _ in starts]
    behind: list[list[Row]] = []
    for part, key, value, encoding, version, expire_at in answer:
        at: int = part
        entries[at].append(cast("Row", (key,)))
        if version == ABSENT:
            behind.append(list[Row]())
        elif version != _NOT_FOLLOWED:
            record = Row(prefix + key[starts[part] :], value, encoding, to_versionstamp(version), expire_at)
            behind.append([record])
    return entries, behind


def read_keys(
    texts: Statements, ranges: Sequence[ReadRange], times: Times, *, guard: Guard | None, hiding: bool, plain: bool
) -> Calls[SharedAnswer]:
    """Read keys for as many callers in one call."""
    follow = as_plain_rows if plain else None
    state, found, _ = yield from read_once(texts, ranges, times, guard=guard, follow=follow, hiding=hiding)
    if isinstance(found, GuardFailed):
        return state, found
    return state, [ReadResult([rows], [], found.versionstamp) for rows in found.ranges]


def read_pages(
    texts: Statements,
    ranges: Sequence[ReadRange],
    follows: Sequence[SuffixFollow],
    times: Times,
    *,
    guard: Guard | None,
    hiding: bool,
) -> Calls[SharedAnswer]:
    """Read ranges of entries, each with the rows behind them, for as many callers in one call.

    The ranges have an end and a limit, and the rows behind all of them have keys of one prefix.
    """
    if len(ranges) == 1:  # which the server reads faster than several
        state, found, _ = yield from read_once(texts, ranges, times, guard=guard, follow=follows[0], hiding=hiding)
        return state, found if isinstance(found, GuardFailed) else [found]
    together = MultiRangeFollow(follows[0].prefix, tuple([one.start for one in follows]), SMALL_READ)
    pushed = _pushed_follow(ranges, together)
    assert pushed is not None
    answer = yield _read_call(texts, ranges, times, guard=guard, hiding=hiding, follow=pushed)
    state, failed = _state_of(answer)
    if failed is not None:
        return state, failed
    parts = [list[tuple[Any, ...]]() for _ in ranges]
    for row in answer[1:]:
        part: int = row[0]
        parts[part].append(row)
    stamp = to_versionstamp(state.version)
    return state, [ReadResult(*_followed_rows(rows, one), stamp) for rows, one in zip(parts, follows, strict=True)]


def read_and_follow(
    texts: Statements,
    ranges: Sequence[ReadRange],
    times: Times,
    *,
    guard: Guard | None,
    follow: Follow | None,
    hiding: bool,
) -> Calls[tuple[StateSeen, ReadResult | GuardFailed | None]]:
    """Read ranges and what follows from them; None if another commit came between two calls.

    In a snapshot nothing comes between, so the answer is never None there.
    """
    first = yield from read_once(texts, ranges, times, guard=guard, follow=follow, hiding=hiding)
    state, found, unfollowed = first
    if not unfollowed or isinstance(found, GuardFailed):
        return state, found
    assert follow is not None
    more = follow(found.ranges)
    if not more:
        return state, found
    # The deadlines are judged by the time of the first call.
    at_that_time = Times(state.present, NONE)
    then = yield from read_once(texts, more, at_that_time, guard=None, follow=None, hiding=hiding)
    assert isinstance(then.found, ReadResult)
    if then.state.version != state.version:
        return then.state, None
    return state, found._replace(followed=then.found.ranges)


def count_once(
    texts: Statements, ranges: Sequence[ReadRange], guard: Guard | None, times: Times
) -> Calls[tuple[StateSeen, Counted | GuardFailed]]:
    """Count the live rows of ranges in one call."""
    parameters = (
        byteas([one.start for one in ranges]),
        byteas([one.start + b"\0" if one.end is None else one.end for one in ranges]),
        _limits(ranges),
        *_guard(guard),
        int8(times.given),
        int8(times.mark),
    )
    answer = yield Call(texts.number, parameters, is_small(ranges))
    _, version, present = answer[0]
    state = StateSeen(version, present)
    if len(answer) > 1 and answer[1][0] == -2:
        seen = answer[1][1]
        return state, GuardFailed(None if seen == ABSENT else to_versionstamp(seen))
    return state, Counted([row[1] for row in answer[1:]], to_versionstamp(version))


def state_once(texts: Statements, times: Times) -> Calls[StateSeen]:
    """Read the version of the last commit, and the time."""
    answer = yield Call(texts.state, (int8(times.given), int8(times.mark)))
    return StateSeen(*answer[0])


class SettledRead(NamedTuple):
    """Whether everything up to a version is durable, and whether its commit is still there.

    ``standby``: the server only reads, so that nothing can be sealed there.
    """

    durable: bool
    there: bool
    standby: bool


def settled_once(texts: Statements, version: int) -> Calls[SettledRead]:
    """Ask whether everything up to a version is durable."""
    answer = yield Call(texts.settled, (int8(version), int8(version)))
    return SettledRead(*answer[0])


def seal_once(texts: Statements, version: int) -> Calls[None]:
    """Make everything up to a version durable. It waits for the disk, so on a connection of its own."""
    yield Call(texts.seal, (int8(version),), small=False)


def durable_reads_once(texts: Statements) -> Calls[bool]:
    """Read whether a read of the store shows only what is on the disk."""
    answer = yield Call(texts.durable_reads, ())
    return bool(answer[0][0])


def due_once(texts: Statements) -> Calls[tuple[Any, ...]]:
    """Read what waits to be removed: the one row of ``due_1``."""
    answer = yield Call(texts.due, ())
    return answer[0]


def sizes_once(texts: Statements) -> Calls[dict[str, int]]:
    """Read the size of each table in bytes, with its indexes; a table that is being dropped has none."""
    answer = yield Call(texts.sizes, ())
    return {name: size for name, size in answer if size is not None}


def guard_in(found: ReadResult, guard: Guard) -> GuardFailed | None:
    """Return the failure of a guard, by the rows of its key."""
    rows = found.ranges[0]
    present = rows[0].versionstamp if rows else None
    return None if present == guard.versionstamp else GuardFailed(present)


class ChangesRead(NamedTuple):
    """Changes after a version, if ``logging`` and ``reaches``; ``floor`` is where the log begins.

    ``durable``: whether the state that they were read in is.
    """

    state: StateSeen
    logging: bool
    reaches: bool
    floor: int
    changes: Changes
    durable: bool


def changes_once(texts: Statements, one: ReadRange, after: int, times: Times) -> Calls[ChangesRead]:
    """Read the changes of a range in one call."""
    end = one.start + b"\0" if one.end is None else one.end
    most = (1 << 62) if one.limit is None else max(1, one.limit)
    parameters = (one.start, end, int8(most), int8(after), int8(times.given), int8(times.mark))
    answer = yield Call(texts.changes, parameters, small=most <= SMALL_READ)
    _, _, through, floor, kind, version, present, *sealed = answer[0]
    found = [
        Change(
            key,
            to_versionstamp(changed),
            None if version_of_row is None else Row(key, value, encoding, to_versionstamp(version_of_row), expire_at),
        )
        for _, key, changed, value, encoding, version_of_row, expire_at, *_ in answer[1:]
    ]
    return ChangesRead(
        StateSeen(version, present),
        kind != 0,
        kind == 2,
        int.from_bytes(floor, "big"),
        Changes(found, to_versionstamp(through)),
        durable=not sealed or sealed[0] >= version,
    )


def changes_of(found: ChangesRead, after: bytes, url: str) -> Changes:
    """Return the changes that were read.

    Raises:
        UnsupportedError, ResumeExpiredError: as ``Engine.changes``.
    """
    if not found.logging:
        raise without_change_log(url)
    require_reached(after, to_versionstamp(found.state.version))
    if not found.reaches:
        raise resume_expired(url, after, to_versionstamp(found.floor))
    return found.changes
