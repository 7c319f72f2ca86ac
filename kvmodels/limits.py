"""Limits and traits: the capacity and behaviour of an engine, as data.

Rules of this module: no other module contains a constant of an engine; the compiler, the key-value façade and the tests
read these values. Sizes are bytes of the encoding, never characters or elements.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, ClassVar, Literal

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass

__all__ = ["Limits", "Traits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest sizes that an engine accepts; a larger request is refused before anything is written.

    ``max_operation_bytes`` counts the keys and values of one atomic operation, ``max_operation_key_bytes`` only its
    keys. ``max_key_runes`` counts the characters (code points) of the text parts of a key; None means no limit.
    ``DENO`` has the values of Deno 2.9 (``ext/kv/config.rs``), and ``DENOKV_SERVER`` those of denokv
    (``proto/limits.rs``), which accepts 10 checks where Deno accepts 100. ``MATTERMOST`` has the documented limits of
    the key-value store of Mattermost plugins: keys of 50 runes, values of 4 MB. ``ETCD`` has those of an etcd cluster
    with its default settings, 128 operations in a transaction and requests of 1.5 MiB.

    ``max_ranges`` and ``max_read_entries`` count the guard of a read as one range with one row.

    Only ``within`` sets ``borrowed``: the names of the limits that come from another object, with the name of that
    object.

    Examples:
        >>> Limits.EMBEDDED.max_key_bytes, Limits.DENOKV_SERVER.max_checks
        (2048, 10)
        >>> Limits.MATTERMOST.max_key_runes, Limits.MATTERMOST.max_value_bytes
        (50, 4194304)
    """

    name: str
    max_key_bytes: int
    max_read_key_bytes: int
    max_value_bytes: int
    max_checks: int
    max_mutations: int
    max_operation_bytes: int
    max_operation_key_bytes: int
    max_ranges: int
    max_read_entries: int
    max_key_runes: int | None = None
    borrowed: tuple[tuple[str, str], ...] = ()

    EMBEDDED: ClassVar[Limits]
    LMDB: ClassVar[Limits]
    DENO: ClassVar[Limits]
    DENOKV_SERVER: ClassVar[Limits]
    ETCD: ClassVar[Limits]
    MATTERMOST: ClassVar[Limits]

    def within(self, outer: Limits) -> Limits:
        """Return these limits, with the smaller value of both wherever the other limits are stricter.

        Args:
            outer: the limits that always apply, such as those of the engine.

        Returns:
            Limits with this name; ``whose`` returns the origin of each value.

        Examples:
            >>> Limits.DENO.within(Limits.EMBEDDED) == Limits.DENO
            True
            >>> smaller = Limits.MATTERMOST.within(Limits.DENO)
            >>> smaller.max_value_bytes, smaller.whose("max_value_bytes"), smaller.whose("max_key_runes")
            (65536, 'DENO', 'MATTERMOST')
        """
        numbers: dict[str, Any] = {}
        borrowed: list[tuple[str, str]] = []
        for field in fields(self):
            limit = field.name
            if not limit.startswith("max_"):
                continue
            own, other = getattr(self, limit), getattr(outer, limit)
            numbers[limit] = own
            if other is not None and (own is None or other < own):
                numbers[limit] = other
                borrowed.append((limit, outer.whose(limit)))
            elif limit in dict(self.borrowed):
                borrowed.append((limit, self.whose(limit)))
        return replace(self, borrowed=tuple(borrowed), **numbers)

    def whose(self, limit: str) -> str:
        """Return the name of the limits that a value comes from, for error messages.

        Args:
            limit: the name of an attribute, such as ``"max_key_bytes"``.
        """
        return dict(self.borrowed).get(limit, self.name)


Limits.EMBEDDED = Limits(
    name="EMBEDDED",
    max_key_bytes=2_048,
    max_read_key_bytes=2_049,
    max_value_bytes=16 * 1024 * 1024,
    max_checks=100_000,
    max_mutations=100_000,
    max_operation_bytes=64 * 1024 * 1024,
    max_operation_key_bytes=64 * 1024 * 1024,
    max_ranges=100_000,
    max_read_entries=100_000,
)
Limits.DENO = Limits(
    name="DENO",
    max_key_bytes=2_048,
    max_read_key_bytes=2_049,
    max_value_bytes=65_536,
    max_checks=100,
    max_mutations=1_000,
    max_operation_bytes=819_200,
    max_operation_key_bytes=81_920,
    max_ranges=10,
    max_read_entries=1_000,
)
Limits.DENOKV_SERVER = replace(Limits.DENO, name="DENOKV_SERVER", max_checks=10, max_operation_key_bytes=819_200)
Limits.LMDB = replace(Limits.EMBEDDED, name="LMDB", max_key_bytes=511, max_read_key_bytes=512)
Limits.ETCD = replace(
    Limits.EMBEDDED,
    name="ETCD",
    max_value_bytes=1024 * 1024,
    max_checks=63,
    max_mutations=60,
    max_operation_bytes=1_400_000,
    max_operation_key_bytes=700_000,
)
Limits.MATTERMOST = replace(Limits.EMBEDDED, name="MATTERMOST", max_key_runes=50, max_value_bytes=4 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class Traits:
    """The behaviour of an engine, so that the layers above do not depend on its name.

    The defaults are those of the embedded engines. If an engine lacks a capability, the request is refused with
    UnsupportedError before anything is written, or carried out in another way; the table in ``docs/guides/engines.md``
    lists both.

    Attributes:
        may_lose_answers: a commit can end without an answer, so operations carry a token.
        snapshots: ``snapshot()`` works, and ``read`` takes ``follow``.
        blocking: calls wait for a disk or a network, so the asynchronous driver moves them to a thread.
        persistent: committed data survives the end of the process.
        keeps_rows: reads return the stored row objects themselves, not copies made for the reader.
        tells_deadlines: rows include their deadline, and ``include_expired`` and physical checks work. Otherwise both
            options have no effect, and a sum that keeps a deadline is refused.
        hides_expired: an expired row is never returned.
        clock: the clock that decides when rows expire: of this machine, of the server, or of the requesting client.
            None if the engine does not say, so ``now_ms`` is only an estimate.
        versioned_reads: a read returns the versionstamp of the state that it read; otherwise an empty one.
        tells_commits: ``subscribe`` and ``wait_for_commit`` work; otherwise keys are polled, or watched with
            ``ServerCalls.wait_for_keys``.
        versionstamped_keys: a ``Set`` may be versionstamped.
        value_encodings: numbers of the encodings that may be stored; None for all.
        functions: a mutation may be an ``Apply``.
        changes: ``changes`` works if the store keeps a change log.
        backup: ``backup`` works.
        background_sweep: expired rows are removed without a call of ``sweep``.
        remote: a call is a round trip over a network, so a read of several ranges is better than several reads.
    """

    may_lose_answers: bool
    snapshots: bool
    blocking: bool
    persistent: bool
    keeps_rows: bool = False
    tells_deadlines: bool = True
    hides_expired: bool = True
    clock: Literal["machine", "server", "client"] | None = "machine"
    versioned_reads: bool = True
    tells_commits: bool = True
    versionstamped_keys: bool = True
    value_encodings: frozenset[int] | None = None
    functions: bool = True
    changes: bool = True
    backup: bool = True
    background_sweep: bool = True
    remote: bool = False


show_public_path(Limits)
