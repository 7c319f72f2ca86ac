"""The replay: does a history of acknowledged commits and snapshot reads have the order that it claims?

Clients commit random checked operations and write down what was acknowledged. The judge then replays all commits in
versionstamp order on a plain dictionary: every check must pass again, and every snapshot read must equal the prefix
up to the versionstamp that it reported. It knows nothing of the engine but its answers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from kvmodels.core.operations import (
    Apply,
    Arithmetic,
    AtomicWrite,
    Check,
    Committed,
    Delete,
    Mutation,
    ReadRange,
    ReadResult,
    Row,
    Set,
)
from kvmodels.engines.contract import Engine
from kvmodels.errors import CommitUnknownError

KEYS = tuple(b"key-%d" % i for i in range(6))
EVERYTHING = ReadRange(b"key", b"kez")


class Acknowledged(NamedTuple):
    versionstamp: bytes
    write: AtomicWrite


class Seen(NamedTuple):
    """A snapshot read: what was asked, what came, and the versionstamp that the engine gave it."""

    versionstamp: bytes
    ranges: tuple[ReadRange, ...]
    rows: list[list[Row]]


class Journal(NamedTuple):
    commits: list[Acknowledged]
    reads: list[Seen]
    refused: int


class Verdict(NamedTuple):
    """The findings of the replay; ``violations`` is empty for an engine that keeps its promises."""

    commits: int
    reads: int
    violations: list[str]


class Doubt(NamedTuple):
    """A commit whose outcome is unknown: it was applied if its mark is stored, with the versionstamp of the mark."""

    mark: bytes
    write: AtomicWrite


def run_client(
    engine: Engine,
    seed: int,
    operations: int,
    journal: Journal | None = None,
    doubts: list[Doubt] | None = None,
) -> Journal:
    """Read and commit at random; about half of the commits check what was read, some check what is stale.

    Args:
        engine: under test.
        seed: of what is drawn.
        operations: how many commits are tried.
        journal: is written on; a new one without it. It is right even if the engine raises.
        doubts: receives the commits whose outcome is unknown; each commit then sets a mark of its own, whose key no
            other seed has. Without it CommitUnknownError ends the client.
    """
    rng = random.Random(seed)
    journal = Journal([], [], 0) if journal is None else journal
    known: dict[bytes, bytes | None] = {}
    refused = 0
    for turn in range(operations):
        if rng.random() < 0.5:
            known |= _read(engine, rng, journal)
        checked = rng.sample(KEYS, rng.choice((0, 1, 1, 2, 3)))
        checks = tuple(Check(key, known.get(key)) for key in checked)
        mutations = tuple(random_mutation(rng) for _ in range(rng.choice((0, 1, 2, 3))))
        mark = b"mark-%d-%d" % (seed, turn)
        if doubts is not None:
            mutations += (Set(mark, b"", 2),)
        write = AtomicWrite(checks, mutations)
        try:
            outcome = engine.commit(write)
        except CommitUnknownError:
            if doubts is None:
                raise
            doubts.append(Doubt(mark, write))
            continue
        if isinstance(outcome, Committed):
            journal.commits.append(Acknowledged(outcome.versionstamp, write))
        else:
            refused += 1
            known |= _read(engine, rng, journal)
    return journal._replace(refused=refused)


def judge(journals: Sequence[Journal], final: ReadResult, everything: ReadRange = EVERYTHING) -> Verdict:
    """Replay the commits of all clients; ``final`` is a read of ``everything`` after the last of them."""
    commits = sorted(entry for journal in journals for entry in journal.commits)
    reads = sorted((seen for journal in journals for seen in journal.reads), key=lambda seen: seen.versionstamp)
    reads.append(Seen(final.versionstamp, (everything,), final.ranges))
    violations: list[str] = []
    state: dict[bytes, Row] = {}
    waiting = iter(reads)
    seen = next(waiting, None)
    for position, (stamp, write) in enumerate(commits):
        while seen is not None and seen.versionstamp < stamp:
            violations += _compare(state, seen)
            seen = next(waiting, None)
        if position and stamp == commits[position - 1].versionstamp:
            violations.append(f"two commits share the versionstamp {stamp.hex()}")
        for check in write.checks:
            row = state.get(check.key)
            if (None if row is None else row.versionstamp) != check.versionstamp:
                violations.append(f"commit {stamp.hex()} was acknowledged, but its check of {check.key!r} fails")
        for mutation in write.mutations:
            apply(state, mutation, stamp)
    while seen is not None:
        violations += _compare(state, seen)
        seen = next(waiting, None)
    return Verdict(len(commits), len(reads), violations)


def _read(engine: Engine, rng: random.Random, journal: Journal) -> dict[bytes, bytes | None]:
    """Read one key, several keys, a range, or a range in a snapshot; what is known of the keys now."""
    kind = rng.randrange(5)
    if kind == 0:
        ranges: tuple[ReadRange, ...] = (ReadRange(rng.choice(KEYS)),)
    elif kind == 1:
        ranges = tuple(ReadRange(key) for key in rng.sample(KEYS, 3))
    elif kind == 2:
        ranges = (ReadRange(KEYS[1], KEYS[4], rng.choice((None, 2)), rng.random() < 0.5), ReadRange(KEYS[5]))
    else:
        ranges = (EVERYTHING,)
    if kind == 4:
        snapshot = engine.snapshot()
        first, result = snapshot.read(ranges), snapshot.read(ranges)
        snapshot.close()
        journal.reads.append(Seen(first.versionstamp, ranges, first.ranges))
    else:
        answer = engine.read(ranges)
        assert isinstance(answer, ReadResult)
        result = answer
    journal.reads.append(Seen(result.versionstamp, ranges, result.ranges))
    found: dict[bytes, bytes | None] = {one.start: None for one in ranges if one.end is None}
    if EVERYTHING in ranges:
        found = dict.fromkeys(KEYS)
    return found | {row.key: row.versionstamp for rows in result.ranges for row in rows}


def random_mutation(rng: random.Random, keys: Sequence[bytes] = KEYS) -> Mutation:
    """Return a mutation of one of the keys."""
    key = rng.choice(keys)
    kind = rng.randrange(5)
    if kind == 0:
        return Delete(key)
    if kind == 4:
        return Apply(key, partial(_exclusive_or, rng.randrange(2**64)), 8)
    if kind == 1:
        return Arithmetic(rng.choice(("sum", "min", "max")), key, rng.randrange(2**64))
    return Set(key, rng.randbytes(8), 2)


def _exclusive_or(operand: int, stored: tuple[bytes, int] | None) -> tuple[bytes, int]:
    present = 0 if stored is None else int.from_bytes(stored[0], "little")
    return (present ^ operand).to_bytes(8, "little"), 2


def apply(state: dict[bytes, Row], mutation: Mutation, stamp: bytes) -> None:
    """Carry out a mutation on a state."""
    if isinstance(mutation, Set):
        state[mutation.key] = Row(mutation.key, mutation.value, mutation.encoding, stamp, None)
    elif isinstance(mutation, Delete):
        state.pop(mutation.key, None)
    elif isinstance(mutation, Apply):
        row = state.get(mutation.key)
        stored = mutation.function(None if row is None else (row.value, row.encoding))
        state[mutation.key] = Row(mutation.key, *stored, stamp, None)
    else:
        number = mutation.operand
        if mutation.key in state:
            present = int.from_bytes(state[mutation.key].value, "little")
            number = {"sum": (present + number) % 2**64, "min": min(present, number), "max": max(present, number)}[
                mutation.kind
            ]
        state[mutation.key] = Row(mutation.key, number.to_bytes(8, "little"), 2, stamp, None)


def _compare(state: dict[bytes, Row], seen: Seen) -> list[str]:
    violations: list[str] = []
    for one, found in zip(seen.ranges, seen.rows, strict=True):
        end = one.start + b"\0" if one.end is None else one.end
        expected = [state[key] for key in sorted(state) if one.start <= key < end]
        if one.reverse:
            expected.reverse()
        if found != expected[: one.limit]:
            violations.append(f"a read at {seen.versionstamp.hex()} of {one} does not equal the replayed prefix")
    return violations
