"""What ``db.check()`` finds, as values.

Rules of this module: data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

__all__ = ["CheckReport", "Finding", "FindingKind"]

FindingKind = Literal["dangling", "missing", "foreign", "undecodable"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One key that is not as it should be.

    Attributes:
        kind: ``dangling``: an index entry that no record reproduces (key, value, deadline); ``missing``: an entry
            that a record calls for and that is not there, or belongs to another record with the same value;
            ``foreign``: a key under a prefix of the collection that this library would not write;
            ``undecodable``: a record that cannot be read.
        key: the key as the key-value API shows it; for bytes that are no key, ``(bytes,)``.
        primary_key: of the record concerned, where it is known.
        reason: what exactly is wrong, in a few words.
        repaired: whether this run mended it.
    """

    kind: FindingKind
    collection: str
    index: str | None
    key: tuple[Any, ...]
    primary_key: Any
    reason: str
    repaired: bool = False


class CheckReport(NamedTuple):
    """The result of a check of the whole store.

    ``ok`` says that nothing was found, or that all that was found has been repaired. ``scanned`` counts the rows
    read: records and index entries.
    """

    scanned: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether the store is exact now."""
        return all(finding.repaired for finding in self.findings)

    @property
    def dangling(self) -> tuple[Finding, ...]:
        """Entries that no record reproduces."""
        return self._of("dangling")

    @property
    def missing(self) -> tuple[Finding, ...]:
        """Entries that a record calls for."""
        return self._of("missing")

    @property
    def foreign(self) -> tuple[Finding, ...]:
        """Keys that this library would not write."""
        return self._of("foreign")

    @property
    def undecodable(self) -> tuple[Finding, ...]:
        """Records that cannot be read."""
        return self._of("undecodable")

    @property
    def repaired(self) -> tuple[Finding, ...]:
        """Those that this run mended."""
        return tuple(finding for finding in self.findings if finding.repaired)

    def _of(self, kind: FindingKind) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.kind == kind)

    def __str__(self) -> str:
        counts = ", ".join(
            f"{len(found)} {kind}"
            for kind, found in (
                ("dangling", self.dangling),
                ("missing", self.missing),
                ("foreign", self.foreign),
                ("undecodable", self.undecodable),
            )
        )
        return f"{'ok' if self.ok else 'NOT OK'}: {self.scanned} rows scanned; {counts}; {len(self.repaired)} repaired"
