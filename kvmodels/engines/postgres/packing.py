"""Operations in the form in which the server applies them.

Rules of this module: a packed operation has every key at most once, so that the order of its mutations does not
matter. An operation that cannot be packed, because it applies a Python function or combines a value with what it has
written itself, is computed from what is stored and committed under checks that this has not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias, cast

from kvmodels.core.operations import (
    U64_MODULUS,
    VACANT,
    Apply,
    Arithmetic,
    AtomicWrite,
    Check,
    Conflict,
    Delete,
    Mutation,
    ReadRange,
    Removal,
    Row,
    Set,
    merged,
    point,
    vacant_range,
)
from kvmodels.engines.postgres.connection import Parameter, byteas, int8s
from kvmodels.engines.postgres.reads import version_of
from kvmodels.engines.shared.evaluation import evaluate, visible

_LIVE, _STORED, _VACANT = 0, 1, 2
_SUM_KINDS: Final = {"sum": 0, "min": 1, "max": 2}
_INTEGER_SUM: Final = 3
_KEEPS_DEADLINE: Final = 4
_HAS_DEADLINE: Final = 8

_ADDITION: Final = Struct(">qqq?")

_MANY: Final = 20
"""From so many mutations on, a look at all of them together is quicker than one at each."""


Sum: TypeAlias = Arithmetic | Apply
"""A mutation that the server computes."""


class PackedWrite(NamedTuple):
    """One operation with every key at most once.

    Attributes:
        checks: keys, versions, kinds.
        sets: by key and whether it is versionstamped.
        deletes: keys.
        sums: by key; an ``Apply`` has an ``addition``.
    """

    checks: tuple[Check, ...]
    sets: list[Set]
    deletes: list[bytes]
    sums: list[Sum]

    @property
    def earliest_ms(self) -> int | None:
        """The first deadline that it sets."""
        deadlines = [one.expire_at for one in self.sets] + [one.expire_at for one in self.sums]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    @property
    def size(self) -> int:
        """Bytes of keys and values that it writes."""
        size = sum(map(len, self.deletes)) + sum([len(one.key) for one in self.sums])
        return size + sum([len(one.key) + len(one.value) for one in self.sets])


def packed(write: AtomicWrite | Removal, *, adds_integers: bool) -> PackedWrite | None:
    """Return the packed form of an operation; None if it must be computed from what is stored.

    ``adds_integers``: whether the functions of the store know an ``IntegerSum``.
    """
    if isinstance(write, Removal):
        return None
    if _only_sets(write.mutations):
        return PackedWrite(write.checks, [*cast("tuple[Set, ...]", write.mutations)], [], [])
    last: dict[tuple[bytes, bool], Set | Delete | Sum] = {}
    for mutation in write.mutations:
        if isinstance(mutation, Apply) and (mutation.addition is None or not adds_integers):
            return None
        if not isinstance(mutation, Delete) and not -(1 << 63) <= (mutation.expire_at or 0) < 1 << 63:
            return None
        stamped = isinstance(mutation, Set) and mutation.versionstamped
        place = (mutation.key, stamped)
        before = last.get(place)
        if isinstance(mutation, Arithmetic):
            if not 0 <= mutation.operand < U64_MODULUS:
                return None
            if before is not None:
                if not isinstance(before, Arithmetic) or before.kind != mutation.kind:
                    return None
                if before.expire_at is not None:
                    return None  # the time of the commit decides whether the first one leaves a live row
                mutation = merged(before, mutation)
        elif isinstance(before, Sum) or (isinstance(mutation, Apply) and before is not None):
            return None  # what is stored decides whether the operation is refused
        last[place] = mutation
    sets = [one for one in last.values() if isinstance(one, Set)]
    deletes = [one.key for one in last.values() if isinstance(one, Delete)]
    sums = [one for one in last.values() if isinstance(one, Sum)]
    return PackedWrite(write.checks, sets, deletes, sums)


def _only_sets(mutations: Sequence[Mutation]) -> bool:
    """Return whether an operation of many mutations sets each key once, without deadlines, as in an index build."""
    if len(mutations) < _MANY or {*map(type, mutations)} != {Set}:
        return False
    sets = cast("Sequence[Set]", mutations)
    return len({one.key for one in sets}) == len(sets) and {(one.expire_at, one.versionstamped) for one in sets} == {
        (None, False)
    }


def parameters_of(writes: Sequence[PackedWrite], context: Sequence[int]) -> tuple[Parameter, Parameter]:
    """Return the parameters ``blobs`` and ``numbers`` of ``commit_1`` for operations.

    Args:
        writes: the operations.
        context: what ``numbers`` begins with, which is the same for all of them.
    """
    blobs: list[bytes] = []
    numbers: list[int | None] = [*context]
    for checks, unordered, deletes, sums in writes:
        sets = sorted(unordered, key=_is_stamped)
        numbers += len(checks), len(sets), sum(map(_is_stamped, sets)), len(deletes), len(sums)
        blobs += [check.key for check in checks]
        for check in checks:
            numbers += _judged(check)
        blobs += [one.key for one in sets]
        blobs += deletes
        blobs += [one.key for one in sums]
        blobs += [one.value for one in sets]
        for one in sets:
            numbers += one.encoding, one.expire_at
        for added in sums:
            blobs.append(_operand(added))
            numbers.append(_rule(added))
        numbers += [added.expire_at for added in sums if added.expire_at is not None]
    return byteas(blobs), int8s(numbers)


def _is_stamped(one: Set) -> bool:
    return one.versionstamped


def _operand(added: Sum) -> bytes:
    """Return the operand of a sum; that of an int comes after its bounds, as a number and as it is stored."""
    if isinstance(added, Arithmetic):
        return added.operand.to_bytes(8, "little")
    assert added.addition is not None, "others are not packed"
    operand, minimum, maximum, clamp, data = added.addition
    return _ADDITION.pack(operand, minimum, maximum, clamp) + data


def _rule(added: Sum) -> int:
    """Return the kind of a sum, and whether it keeps a deadline and has one of its own."""
    rule = _SUM_KINDS[added.kind] if isinstance(added, Arithmetic) else _INTEGER_SUM
    if added.keeps_deadline:
        rule += _KEEPS_DEADLINE
    return rule if added.expire_at is None else rule + _HAS_DEADLINE


def _judged(check: Check) -> tuple[int, int]:
    """Return the version and the kind of a check."""
    if check.versionstamp == VACANT:
        return 0, _VACANT
    return version_of(check.versionstamp), _STORED if check.physical else _LIVE


def ranges_to_compute(write: AtomicWrite) -> list[ReadRange]:
    """Return the ranges to read, expired rows included, to compute an operation: its checks, then its keys."""
    checked = [
        vacant_range(one.key)._replace(limit=None) if one.versionstamp == VACANT else point(one.key)
        for one in write.checks
    ]
    return checked + [point(one.key) for one in write.mutations]


def computed(
    write: AtomicWrite, found: Sequence[Sequence[Row]], now: int
) -> tuple[Conflict | None, Callable[[], PackedWrite]]:
    """Judge an operation by what is stored.

    Args:
        write: the operation.
        found: the rows of ``ranges_to_compute``.
        now: the time of the read, in milliseconds.

    Returns:
        The conflict, or None and a function that computes the operation; it raises what the operation raises.
    """
    failed = tuple(
        at
        for at, (check, rows) in enumerate(zip(write.checks, found[: len(write.checks)], strict=True))
        if not _holds(check, rows, now)
    )
    if failed:
        return Conflict(failed), lambda: PackedWrite((), [], [], [])
    return None, lambda: _compute(write.checks, write.mutations, found[len(write.checks) :], now)


def _holds(check: Check, rows: Sequence[Row], now: int) -> bool:
    if check.versionstamp == VACANT:
        return all(visible(row, now) is None for row in rows)
    row = rows[0] if rows else None
    if not check.physical:
        row = visible(row, now)
    return (None if row is None else row.versionstamp) == check.versionstamp


def _compute(
    checks: tuple[Check, ...], mutations: Sequence[Mutation], found: Sequence[Sequence[Row]], now: int
) -> PackedWrite:
    stored = {rows[0].key: rows[0] for rows in found if rows}
    stamped = [one for one in mutations if isinstance(one, Set) and one.versionstamped]
    others = [one for one in mutations if not (isinstance(one, Set) and one.versionstamped)]
    changes, _ = evaluate(mutations, bytes(10), now, stored.get)
    changes, _ = evaluate(others, bytes(10), now, stored.get) if stamped else (changes, None)
    depends = {one.key for one in mutations if isinstance(one, Arithmetic | Apply)}
    # An expired row is as good as none, but the time of the commit is later: so the stored row is checked.
    more = tuple(
        Check(key, stored[key].versionstamp if key in stored else None, physical=True) for key in sorted(depends)
    )
    sets = [Set(row.key, row.value, row.encoding, row.expire_at) for row in changes.values() if row is not None]
    last_stamped = {one.key: one for one in stamped}
    return PackedWrite(
        (*checks, *more), [*sets, *last_stamped.values()], [key for key, row in changes.items() if row is None], []
    )
