"""Findings and report of ``db.check()``.

Rules of this module: values only, nothing is read here.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NamedTuple

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels._support.notebooks import cells, html
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.keys import decode_key
from kvmodels.core.truth import without_truth
from kvmodels.core.values import StoredAsJson
from kvmodels.errors import KvModelsError

FINDINGS_SHOWN: Final = 5

_ROWS_SHOWN: Final = 20
"""The most findings in a notebook."""

REPAIR: Final = "db.check(repair=True) repairs it."

FindingKind = Literal[
    "dangling",
    "missing",
    "foreign",
    "undecodable",
    "computed",
    "counter",
    "dangling_reference",
    "stray_guard",
    "overlap",
    "undecodable_version",
    "overlapping_version",
    "missing_chunk",
    "shared_blob",
    "loose_blob",
    "damaged_blob",
    "stray_blob",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One key with an unexpected or missing row.

    Attributes:
        kind: ``dangling``: an index entry that its record does not expect (key, value, deadline), or the announcement
            of a message of a tenant that is not there. ``missing``: an expected entry that is absent, or belongs to
            another record with the same value; or the announcement of a message is absent. ``foreign``: a key under a
            prefix of the collection that this library would not write. ``undecodable``: a record that is not a
            document, or that its model does not accept. ``computed``: a record whose stored value of a computed column
            differs from the result of its function. ``counter``: a counter of an index, such as a number of records,
            that differs from the records. ``dangling_reference``: an entry of a foreign key whose target is missing or
            has a deadline. ``stray_guard``: a row that the library keeps for a record that others refer to, without
            that record.
            ``overlap``: an entry of an exclusion constraint whose interval overlaps that of another record.
            ``undecodable_version``: a row of a history that is no ended version, or names none.
            ``overlapping_version``: an ended version that overlaps the next one of its record.
            ``missing_chunk``: a record whose blob lacks a part of its content. ``damaged_blob``: one whose blob has
            another hash than its record says. ``shared_blob``: two records with one blob. ``loose_blob``: a blob of a
            record that is also listed as that of none. ``stray_blob``: content that belongs to no record.
        key: the key as the key-value API shows it; ``(bytes,)`` for bytes that are not a key.
        primary_key: the primary key of the record, if it is known.
        reason: a short description.
        repaired: whether this run repaired it.
        group: for a counter, the key parts of its group; the last part of ``key`` names the counted value.
        expected: for a counter, its value according to the records.
        found: for a counter, its number; None if it holds no number or is missing.
        hint: what to do about it, until it is repaired.
    """

    kind: FindingKind
    collection: str
    index: str | None
    key: Annotated[tuple[Any, ...], StoredAsJson]
    primary_key: Annotated[Any, StoredAsJson]
    reason: str
    repaired: bool = False
    group: Annotated[tuple[Any, ...] | None, StoredAsJson] = None
    expected: int | None = None
    found: int | None = None
    hint: str | None = None

    @property
    def removed(self) -> bool:
        """Whether this run removed the row, because nothing could be made of it: a foreign key or unreadable record."""
        return self.repaired and self.kind in ("foreign", "undecodable")

    def __str__(self) -> str:
        place = self.collection if self.index is None else f"{self.collection}.{self.index}"
        key = self.key if self.primary_key is None else self.primary_key
        return f"{self.kind} {place} {short_repr(key)}: {self.reason}"


@without_truth("report.ok, or report.findings")
class CheckReport(NamedTuple):
    """The result of a check of the whole store.

    ``ok`` is true if nothing was found, or if all findings were repaired. ``scanned`` counts the rows read: records and
    index entries, and for indexes with counters these and the records once more. ``unchecked`` lists every index that
    was not compared completely, as ``"collection.index: reason"``: an index that this release does not declare, that is
    not built, being built, being dropped or has violations, and counters that could not be counted. It also lists, as
    ``"collection: reason"``, every collection without a declared model, of which only entries were compared. ``ok``
    does not cover anything in ``unchecked``.
    """

    scanned: int
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every compared key is now correct."""
        return all(finding.repaired for finding in self.findings)

    @property
    def dangling(self) -> tuple[Finding, ...]:
        """Entries that their records do not expect."""
        return self._of("dangling")

    @property
    def missing(self) -> tuple[Finding, ...]:
        """Expected entries that are absent."""
        return self._of("missing")

    @property
    def foreign(self) -> tuple[Finding, ...]:
        """Keys that this library would not write."""
        return self._of("foreign")

    @property
    def undecodable(self) -> tuple[Finding, ...]:
        """Records that cannot be read as objects of their model."""
        return self._of("undecodable")

    @property
    def computed(self) -> tuple[Finding, ...]:
        """Records whose computed columns differ from their functions."""
        return self._of("computed")

    @property
    def counters(self) -> tuple[Finding, ...]:
        """Counters that differ from the records."""
        return self._of("counter")

    @property
    def dangling_references(self) -> tuple[Finding, ...]:
        """Entries of foreign keys whose target is missing or has a deadline."""
        return self._of("dangling_reference")

    @property
    def stray_guards(self) -> tuple[Finding, ...]:
        """Rows that are kept for records that others refer to, without these records."""
        return self._of("stray_guard")

    @property
    def overlaps(self) -> tuple[Finding, ...]:
        """Entries of exclusion constraints whose intervals overlap."""
        return self._of("overlap")

    @property
    def repaired(self) -> tuple[Finding, ...]:
        """Findings that this run repaired."""
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
                ("computed", self.computed),
                ("counters", self.counters),
            )
        )
        for kind, found in (
            ("dangling references", self.dangling_references),
            ("stray guards", self.stray_guards),
            ("overlaps", self.overlaps),
        ):
            counts += f", {len(found)} {kind}" if found else ""
        verdict = "ok" if self.ok else "NOT OK"
        missed = f"; not compared: {'; '.join(self.unchecked)}" if self.unchecked else ""
        left = [finding for finding in self.findings if not finding.repaired]
        first = "".join(f"\n  {finding}" for finding in left[:FINDINGS_SHOWN])
        more = f"\n  and {len(left) - FINDINGS_SHOWN} more: see findings" if len(left) > FINDINGS_SHOWN else ""
        removed = sum(finding.removed for finding in self.findings)
        done = f"{len(self.repaired) - removed} repaired" + (f", {removed} removed" if removed else "")
        summary = f"{verdict}: {self.scanned} rows scanned; {counts}; {done}{missed}"
        return summary + first + more

    def _repr_html_(self) -> str:
        title = f"{'ok' if self.ok else 'NOT OK'}: {self.scanned:,} rows scanned, {len(self.findings):,} findings"
        facts = [("repaired", f"{len(self.repaired):,}")] if self.findings else []
        facts += [("not compared", one) for one in self.unchecked[:_ROWS_SHOWN]]
        found = sorted(self.findings, key=lambda one: one.repaired)[:_ROWS_SHOWN]
        rows = [_row(one) for one in found]
        more = f"The first {_ROWS_SHOWN} findings; see findings." if len(self.findings) > len(rows) else ""
        table = html.Table(("kind", "place", "key", "reason", "repaired"), rows) if rows else None
        return html.view(title, facts, table=table, note=more)


def _row(one: Finding) -> list[html.Cell]:
    place = one.collection if one.index is None else f"{one.collection}.{one.index}"
    key = one.key if one.primary_key is None else one.primary_key
    return [html.Cell(one.kind), html.Cell(place), cells.cell(key), cells.cell(one.reason), cells.cell(one.repaired)]


def shown_key(key: bytes) -> tuple[Any, ...]:
    r"""Return a key as the key-value API shows it; bytes that are not a key unchanged.

    Examples:
        >>> from kvmodels.core.keys import encode_key
        >>> shown_key(encode_key(("a", 42))), shown_key(bytes.fromhex("ff"))
        (('a', 42), (b'\xff',))
    """
    try:
        return decode_key(key)
    except KvModelsError:
        return (key,)


show_public_path(CheckReport)
