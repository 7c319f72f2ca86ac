"""Short forms for the operations that the contract tests write most often."""

from __future__ import annotations

from kvmodels.core.operations import AtomicWrite, Committed, Mutation, ReadRange, ReadResult, Row, Set
from kvmodels.engines.contract import Engine, Snapshot

BYTES = 3
U64 = 2


def put(key: bytes, value: bytes = b"v", expire_at: int | None = None) -> Set:
    return Set(key, value, BYTES, expire_at)


def counter(key: bytes, number: int) -> Set:
    return Set(key, number.to_bytes(8, "little"), U64)


def commit(engine: Engine, *mutations: Mutation) -> bytes:
    outcome = engine.commit(AtomicWrite((), mutations))
    assert isinstance(outcome, Committed)
    return outcome.versionstamp


def rows(source: Engine | Snapshot, *ranges: ReadRange, include_expired: bool = False) -> list[Row]:
    """All rows of the ranges, one after the other."""
    result = source.read(ranges, include_expired=include_expired)
    assert isinstance(result, ReadResult)
    return [row for found in result.ranges for row in found]


def keys(source: Engine | Snapshot, *ranges: ReadRange, include_expired: bool = False) -> list[bytes]:
    return [row.key for row in rows(source, *ranges, include_expired=include_expired)]


def get(source: Engine | Snapshot, key: bytes, *, include_expired: bool = False) -> Row | None:
    found = rows(source, ReadRange(key), include_expired=include_expired)
    return found[0] if found else None


def stored(source: Engine | Snapshot, key: bytes) -> Row:
    """The row of a key that must be there."""
    row = get(source, key)
    assert row is not None
    return row


def number(engine: Engine, key: bytes) -> int:
    row = stored(engine, key)
    assert (row.encoding, len(row.value)) == (U64, 8)
    return int.from_bytes(row.value, "little")


EVERYTHING = ReadRange(b"\x00", b"\xff\xff")


def told(engine: Engine, versionstamp: bytes) -> bytes:
    """The versionstamp that a read of a state tells; an engine without versioned reads tells none."""
    return versionstamp if engine.capabilities.traits.versioned_reads else b""
