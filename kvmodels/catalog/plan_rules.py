"""The named rules of plans: what each difference between the models and the store needs.

Rules of this module: data only. ``docs/guides/evolving.md`` has the table.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, NamedTuple

Allowed = Literal["drop_index", "drop_history", "forget_field", "change_type", "leave_records"]
"""Names for ``db.apply(allow=...)``: each allows a change that loses data, or may leave unreadable records."""


class StepKind(StrEnum):
    """The kind of work that a step needs."""

    SAFE = "SAFE"
    NEEDS_REBUILD = "NEEDS_REBUILD"
    REFUSED = "REFUSED"


class Rule(NamedTuple):
    """One rule of evolution.

    Attributes:
        kind: SAFE: only the catalogue changes; NEEDS_REBUILD: records or entries are written; REFUSED: nothing is done.
        reason: the difference.
        action: the work of ``db.apply()``.
        allow: the name that lifts the refusal, or that extends the step beyond its default work.
    """

    kind: StepKind
    reason: str
    action: str
    allow: Allowed | None = None


_SAFE, _REBUILD, _REFUSED = StepKind.SAFE, StepKind.NEEDS_REBUILD, StepKind.REFUSED

NOTHING: Final = "nothing"

RULES: Final[dict[str, Rule]] = {
    "collection_added": Rule(
        _SAFE,
        "the collection is not in the catalogue of the store",
        "add it to the catalogue; its indexes are readable if it has no records",
    ),
    "primary_key_changed": Rule(
        _REFUSED, "the primary key differs from the stored one", "write the records to a new collection"
    ),
    "collection_dropping": Rule(
        _REFUSED, "the collection is being dropped", "finish db.drop_collection(), and open the database again"
    ),
    "description_unknown": Rule(
        _REFUSED,
        "the catalogue has a description that this release of kvmodels does not know: this process only reads",
        "update kvmodels in this process",
    ),
    "schema_version_lower": Rule(
        _REFUSED, "a newer release has been applied: this release only reads", "run the newer release"
    ),
    "schema_version_raised": Rule(
        _SAFE,
        "the declared schema version is higher than the stored one",
        "raise it; releases with a lower version then only read",
    ),
    "upgrade_missing": Rule(
        _REFUSED,
        "stored records may still need an upgrade that is not declared",
        "declare it again, until db.migrate() has rewritten every record of a lower version",
    ),
    "records_outdated": Rule(
        _SAFE,
        "records of older schema versions are upgraded when they are read",
        NOTHING + "; db.migrate() rewrites them",
    ),
    "field_encrypted": Rule(
        _REBUILD, "a field is encrypted now", "rewrite every record, and every old version, with the value sealed"
    ),
    "field_decrypted": Rule(
        _REBUILD, "a field is no longer encrypted", "rewrite every record, and every old version, with the plain value"
    ),
    "field_encrypted_unversioned": Rule(
        _REFUSED,
        "a field is encrypted now, and older releases would go on writing plain values",
        "raise schema_version: older releases then only read",
    ),
    "field_decrypted_unversioned": Rule(
        _REFUSED,
        "a field is no longer encrypted, and older releases would not read its plain values",
        "raise schema_version: older releases then only read",
    ),
    "encryption_unfinished": Rule(
        _REBUILD,
        "records or old versions still hold a field in the form from before it was encrypted, or decrypted",
        "rewrite them",
    ),
    "upgrade_fails": Rule(
        _REFUSED,
        "this release could not read or write some of the tried records, and a raised version is never lowered",
        "correct the upgrade, or change or remove the records with the older release, which still writes; with allow "
        "they stay unchanged",
        "leave_records",
    ),
    "records_refused": Rule(
        _SAFE,
        "the models of this release cannot read, or not rewrite, some stored records",
        NOTHING + "; db.check() lists all of them, and an upgrade can give them values that fit",
    ),
    "field_added": Rule(
        _SAFE, "a field with a default was added", "add it to the catalogue; records without it have the default"
    ),
    "field_unmissed": Rule(
        _SAFE,
        "a field without a default was added, and there are no records that could lack it",
        "add it to the catalogue",
    ),
    "field_of_class": Rule(
        _SAFE,
        "a field without a default was added to some classes of the collection, or with a new class",
        "add it to the catalogue; records of these classes that lack it cannot be read, unless an upgrade fills it",
    ),
    "field_filled": Rule(
        _SAFE, "a field that an upgrade fills was added", "add it to the catalogue; the upgrade gives its value"
    ),
    "field_required": Rule(
        _REFUSED,
        "a field without a default was added, so stored records could not be read",
        "give it a default, or an upgrade that fills it",
    ),
    "field_removed": Rule(
        _SAFE,
        "a stored field is no longer declared; its values are kept",
        NOTHING + "; with allow the values are removed from the records",
        "forget_field",
    ),
    "field_widened": Rule(
        _SAFE, "the type of a field was changed and still accepts every old value", "change the type in the catalogue"
    ),
    "field_converted": Rule(
        _SAFE, "the type of a field was changed, and an upgrade converts the values", "change the type in the catalogue"
    ),
    "field_retyped": Rule(
        _REFUSED,
        "the type of a field was changed, and no upgrade converts the values",
        "write an upgrade; with allow the new type is accepted, and values that do not fit cannot be read",
        "change_type",
    ),
    "column_retyped": Rule(
        _REFUSED, "the type of an indexed column was changed, and no upgrade converts the values", "write an upgrade"
    ),
    "index_added": Rule(_REBUILD, "a declared index is not built", "build it while other processes read and write"),
    "index_unbuilt": Rule(
        _REBUILD,
        "a declared index has no entries for records that are older than the model",
        "build it; until then queries that need it are refused, and this release only reads",
    ),
    "index_changed": Rule(
        _REBUILD,
        "the definition of an index was changed; the stored one serves older releases until the switch",
        "build the next generation, and switch in one commit",
    ),
    "index_replaced": Rule(
        _REBUILD,
        "this release stores a field of the index in another form, or has another function for it, so it cannot "
        "maintain the stored entries",
        "drop the entries and build the index again; until then queries that need it are refused, and this release "
        "only reads",
    ),
    "index_unfinished": Rule(_REBUILD, "the build of an index is not finished", "finish it"),
    "index_pending": Rule(_REBUILD, "violations keep an index from becoming readable", "check each violation again"),
    "index_outdated": Rule(
        _REBUILD,
        "an upgrade touches a field of an index, whose entries are made from the stored form",
        "rewrite the records of older versions; until then queries that need it are refused",
    ),
    "index_undeclared": Rule(
        _REFUSED,
        "the store has an index that is not declared, so this process must not write",
        "declare it; with allow it is dropped (also raise schema_version, or an older release may build it again)",
        "drop_index",
    ),
    "index_superseded": Rule(
        _REFUSED,
        "a newer release has replaced the declared definition of an index",
        "run the newer release; to go back to this definition, raise schema_version, or db.drop_index() first",
    ),
    "reference_added": Rule(
        _REBUILD,
        "a declared foreign key is not enforced for the stored records",
        "check the target of each record, and list the records without one; until the build has begun, this release "
        "only reads",
    ),
    "reference_changed": Rule(
        _REFUSED,
        "the target of a foreign key was changed, or a field is a foreign key no longer",
        "declare the stored foreign key; with allow it is dropped, and then the declared index is built",
        "drop_index",
    ),
    "on_delete_changed": Rule(
        _SAFE,
        "the effect of a removal of the target of a foreign key was changed",
        "change it in the catalogue, for every process",
    ),
    "index_dropping": Rule(_SAFE, "some entries of a dropped index remain", "remove them in batches"),
    "history_added": Rule(
        _REBUILD,
        "a declared history is not kept yet",
        "keep every version from the first commit on, then look for records that could not be ended",
    ),
    "history_unfinished": Rule(
        _REBUILD,
        "not every record was looked at yet, or some cannot be ended: they expire or are too long",
        "look at them again, and make the history readable",
    ),
    "history_changed": Rule(
        _SAFE, "the options of a history were changed", "change them in the catalogue, for every process"
    ),
    "history_undeclared": Rule(
        _REFUSED,
        "the store keeps a history that is not declared; every process keeps writing it",
        "declare it; with allow all old versions are removed",
        "drop_history",
    ),
    "history_dropping": Rule(_SAFE, "some old versions of a dropped history remain", "remove them in batches"),
}
