"""Commits as atomic writes of KV Connect.

Rules of this module: an operation that a commit cannot carry is computed from what is stored, and committed under
checks that this has not changed. Of operations that may fail on the server, sums come first: denokv applies what
precedes a sum that it refuses.

That a prefix is vacant is read before the commit, because KV Connect checks single keys only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kvmodels.core.keys import shown_key
from kvmodels.core.operations import (
    U64_ENCODING,
    U64_MODULUS,
    VACANT,
    Apply,
    Arithmetic,
    AtomicWrite,
    Check,
    Committed,
    Conflict,
    Delete,
    Mutation,
    ReadRange,
    Row,
    Set,
    combine,
    point,
    vacant_range,
)
from kvmodels.engines.connect.calls import call_commit
from kvmodels.engines.connect.exchange import Steps
from kvmodels.engines.connect.reads import rows_at
from kvmodels.engines.connect.session import Attempts, Session
from kvmodels.engines.connect.wire.decoding import decode_atomic_write_output
from kvmodels.engines.connect.wire.encoding import encode_atomic_write
from kvmodels.engines.connect.wire.errors import WireError
from kvmodels.engines.connect.wire.messages import (
    AtomicWriteMessage,
    CheckMessage,
    KvValue,
    MutationMessage,
    MutationType,
    ValueEncoding,
    WriteStatus,
)
from kvmodels.engines.shared.evaluation import evaluate, require_storable_deadline
from kvmodels.engines.shared.server_errors import CONTENDED, LOST_ANSWER, TAKES_NO_WRITES
from kvmodels.errors import InvalidValueError, OperationTooLargeError, UnsupportedError
from kvmodels.limits import Limits

ENCODINGS: Final = frozenset({int(ValueEncoding.V8), int(ValueEncoding.LE64), int(ValueEncoding.BYTES)})
"""V8 values, 64-bit integers and bytes: what KV Connect carries."""

_U64_BYTES: Final = 8
_STAMP_BYTES: Final = 10

_ROUNDS_WITHOUT_A_REASON: Final = 5
"""So often a commit is sent again whose checks all hold when they are looked at after it was refused."""

_NO_VERSIONSTAMP: Final = b""
_KINDS: Final = {"sum": MutationType.SUM, "min": MutationType.MIN, "max": MutationType.MAX}


class _Sendable(NamedTuple):
    """An operation that one commit carries.

    Attributes:
        write: has no checks of prefixes and no functions.
        origins: for each of its checks the position in the operation that was given; None for an added one.
    """

    write: AtomicWrite
    origins: tuple[int | None, ...]


def commit_steps(
    session: Session, write: AtomicWrite, limits: Limits, attempts: Attempts
) -> Steps[Committed | Conflict]:
    """Apply an operation whole, or return the positions of the checks that fail.

    Raises:
        CommitUnknownError: the answer was lost.
        EngineTimeoutError: other writers changed what it depends on again and again; nothing was applied.
        InvalidValueError, UnsupportedError, LimitExceededError, ReadOnlyError, EngineError: nothing was applied.
    """
    _require_carried(write.mutations)
    unexplained = 0
    while True:
        sendable = yield from _sendable(session, write, attempts)
        if isinstance(sendable, Conflict):
            return sendable
        if len(sendable.origins) > limits.max_checks:
            raise _too_many_checks(len(sendable.origins), limits)
        outcome = yield from _commit(session, sendable.write, attempts)
        if isinstance(outcome, Committed):
            return outcome
        failed = [sendable.origins[at] for at in outcome.failed_checks]
        if not failed:
            failed = list((yield from _failing(session, write.checks, attempts)))
            unexplained += not failed
        own = tuple([at for at in failed if at is not None])
        if own:
            return Conflict(own)
        if unexplained >= _ROUNDS_WITHOUT_A_REASON and None not in sendable.origins:
            return Conflict(tuple(range(len(write.checks))))
        if not (yield from attempts.pause()):
            raise CONTENDED.of(session.shown)


def _commit(session: Session, write: AtomicWrite, attempts: Attempts) -> Steps[Committed | Conflict]:
    """Send an operation; a server that takes no writes is asked once more where it takes them."""
    body = _encoded(write)
    renewed = False
    while True:
        answered = yield from call_commit(session, body, write, attempts)
        try:
            output = decode_atomic_write_output(answered.body)
        except WireError as error:
            raise LOST_ANSWER.of(session.shown, f"an answer that is not one of KV Connect: {error}") from None
        if output.status == WriteStatus.SUCCESS and len(output.versionstamp) == _STAMP_BYTES:
            return Committed(output.versionstamp)
        if output.status == WriteStatus.CHECK_FAILURE:
            return Conflict(tuple([at for at in output.failed_checks if at < len(write.checks)]))
        if output.status != WriteStatus.WRITE_DISABLED:
            raise LOST_ANSWER.of(session.shown, f"status {output.status} of the commit")
        session.forget(answered.served)
        if renewed:
            hint = "Open the database that takes writes, or try again when this one does."
            raise TAKES_NO_WRITES.of(session.shown, hint=hint)
        renewed = True


def _sendable(session: Session, write: AtomicWrite, attempts: Attempts) -> Steps[_Sendable | Conflict]:
    """Return the operation as a commit carries it, or the conflict that what is stored now shows."""
    depends = _depending(write.mutations)
    kept = [(at, one) for at, one in enumerate(write.checks) if one.versionstamp != VACANT]
    mutations = write.mutations
    added: list[Check] = []
    if depends or len(kept) < len(write.checks):
        ranges = [*map(_range_of, write.checks), *map(point, depends)]
        found = yield from rows_at(session, ranges, attempts)
        failed = _failed(write.checks, found)
        if failed:
            return Conflict(failed)
        stored = {rows[0].key: rows[0] for rows in found[len(write.checks) :] if rows}
        added = [Check(key, stored[key].versionstamp if key in stored else None) for key in depends]
        mutations = _evaluated(mutations, stored, session.now_ms())
        _require_carried(mutations)
    sums = [one for one in mutations if isinstance(one, Arithmetic)]
    others = [one for one in mutations if not isinstance(one, Arithmetic)]
    checks = (*[one for _, one in kept], *added)
    return _Sendable(AtomicWrite(checks, (*sums, *others)), (*[at for at, _ in kept], *[None] * len(added)))


def _depending(mutations: Sequence[Mutation]) -> dict[bytes, None]:
    """Return the keys whose values must be computed here.

    That is by a function, by a sum beside another mutation, or by a sum that sets a deadline: denokv disregards it.
    """
    summed, others, computed = set[bytes](), set[bytes](), dict[bytes, None]()
    for one in mutations:
        if isinstance(one, Apply) or (isinstance(one, Arithmetic) and one.expire_at is not None):
            computed[one.key] = None
        elif isinstance(one, Arithmetic):
            summed.add(one.key)
        elif not (isinstance(one, Set) and one.versionstamped):
            others.add(one.key)
    return computed | dict.fromkeys(sorted(summed & others))


def _evaluated(mutations: Sequence[Mutation], stored: dict[bytes, Row], now_ms: int) -> tuple[Mutation, ...]:
    """Return the mutations with the values of the keys that depend on what is stored."""
    depends = _depending(mutations)
    own = [one for one in mutations if one.key in depends and not (isinstance(one, Set) and one.versionstamped)]
    changes, _ = evaluate(own, bytes(_STAMP_BYTES), now_ms, stored.get)
    results = [
        Delete(key) if row is None else Set(key, row.value, row.encoding, row.expire_at) for key, row in changes.items()
    ]
    return (*[one for one in mutations if one not in own], *results)


def _failing(session: Session, checks: Sequence[Check], attempts: Attempts) -> Steps[tuple[int, ...]]:
    """Return the positions of the checks that do not hold now."""
    found = yield from rows_at(session, [*map(_range_of, checks)], attempts)
    return _failed(checks, found)


def _range_of(check: Check) -> ReadRange:
    return vacant_range(check.key) if check.versionstamp == VACANT else point(check.key)


def _failed(checks: Sequence[Check], found: Sequence[Sequence[Row]]) -> tuple[int, ...]:
    return tuple([at for at, check in enumerate(checks) if not _holds(check, found[at])])


def _holds(check: Check, rows: Sequence[Row]) -> bool:
    if check.versionstamp == VACANT:
        return not rows
    return (rows[0].versionstamp if rows else None) == check.versionstamp


def _require_carried(mutations: Sequence[Mutation]) -> None:
    """Refuse what KV Connect does not carry. Raises InvalidValueError, UnsupportedError: nothing was sent."""
    for one in mutations:
        if isinstance(one, Arithmetic) and not 0 <= one.operand < U64_MODULUS:
            combine(one, None)
        if not isinstance(one, Delete) and one.expire_at is not None:
            require_storable_deadline(one.expire_at, one.key)
        if isinstance(one, Arithmetic | Apply) and one.keeps_deadline:
            raise UnsupportedError(
                "KV Connect does not tell the deadline of a key, so a sum cannot keep it",
                reason="keep_deadline",
                hint="Set the deadline again with each sum: expire_in=. Or use another engine.",
            )
        if not isinstance(one, Set):
            continue
        if one.encoding not in ENCODINGS:
            raise UnsupportedError(
                "KV Connect does not carry values in this encoding",
                reason=f"encoding {one.encoding}",
                hint='Open the store with codec="v8".',
            )
        if one.encoding == U64_ENCODING and len(one.value) != _U64_BYTES:
            raise InvalidValueError(
                "a 64-bit integer does not have eight bytes", path=shown_key(one.key), hint="Store a KvU64."
            )


def _encoded(write: AtomicWrite) -> bytes:
    checks = [CheckMessage(one.key, one.versionstamp or _NO_VERSIONSTAMP) for one in write.checks]
    return encode_atomic_write(AtomicWriteMessage(tuple(checks), tuple(map(_message_of, write.mutations))))


def _message_of(one: Mutation) -> MutationMessage:
    if isinstance(one, Set):
        kind = MutationType.SET_SUFFIX_VERSIONSTAMPED_KEY if one.versionstamped else MutationType.SET
        # 0 and -1 mean that there is no deadline; 1 is over as well.
        deadline = 0 if one.expire_at is None else max(1, one.expire_at)
        return MutationMessage(one.key, KvValue(one.value, one.encoding), kind, deadline)
    if isinstance(one, Arithmetic):
        return MutationMessage(
            one.key, KvValue(one.operand.to_bytes(_U64_BYTES, "little"), U64_ENCODING), _KINDS[one.kind]
        )
    return MutationMessage(one.key, KvValue(b"", ValueEncoding.BYTES), MutationType.DELETE)


def _too_many_checks(number: int, limits: Limits) -> OperationTooLargeError:
    return OperationTooLargeError(
        "too many checks in one operation",
        limit="max_checks",
        size=number,
        maximum=limits.max_checks,
        limits=limits.whose("max_checks"),
    )
