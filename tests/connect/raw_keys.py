"""An engine over KV Connect that takes any bytes as keys, for the contract suite over servers that take keys of Deno.

A server of Deno takes encoded keys alone. Here the key ``raw`` is stored as the encoded key ``(raw,)``: a part of bytes
keeps the order. A key that a server has ended with the versionstamp of its commit is ``(raw, versionstamp)``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvmodels.core.keys import decode_key, encode_key
from kvmodels.core.operations import (
    AtomicWrite,
    Committed,
    Conflict,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
    Row,
)
from kvmodels.engines.contract import Capabilities, Engine
from tests.passing_engine import PassingEngine

_VERSIONSTAMPED = re.compile(rb"(.*)\x02([0-9a-f]{20})\x00", re.DOTALL)


def key_of_deno(raw: bytes) -> bytes:
    """Return the encoded key under which a raw key is stored."""
    ended = _VERSIONSTAMPED.fullmatch(raw)
    return encode_key((raw,) if ended is None else (ended[1], ended[2].decode()))


def raw_key(key: bytes) -> bytes:
    """Return the raw key that is stored under an encoded key."""
    first, *others = decode_key(key)
    assert isinstance(first, bytes)
    return first + encode_key(others)


class RawKeyEngine(PassingEngine):
    """Translates the keys of all calls that an engine over KV Connect has."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self._capabilities = Capabilities(self.traits)

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        found = self.inner.read(_translated(ranges), _guard(guard), include_expired=include_expired, follow=follow)
        if isinstance(found, GuardFailed):
            return found
        return found._replace(ranges=[[_row(row) for row in rows] for rows in found.ranges])

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        return self.inner.count(_translated(ranges), _guard(guard))

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        return self.inner.commit(
            AtomicWrite(
                tuple(one._replace(key=key_of_deno(one.key)) for one in write.checks),
                tuple(one._replace(key=key_of_deno(one.key)) for one in write.mutations),
            )
        )


def _row(row: Row) -> Row:
    return row._replace(key=raw_key(row.key))


def _guard(guard: Guard | None) -> Guard | None:
    return None if guard is None else guard._replace(key=key_of_deno(guard.key))


def _translated(ranges: Sequence[ReadRange]) -> list[ReadRange]:
    return [
        one._replace(start=key_of_deno(one.start), end=None if one.end is None else key_of_deno(one.end))
        for one in ranges
    ]
