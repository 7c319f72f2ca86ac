"""The rules by which differences between a release and a store are judged: how safe each is, why, and what is done.

Rules of this module: a table and its types only; ``schema/evolution.py`` finds the differences.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, NamedTuple

__all__ = ["NOTHING", "RULES", "Allowed", "Rule", "StepKind"]

Allowed = Literal["drop_index", "forget_field", "change_type", "leave_records"]
"""What ``db.apply(allow=...)`` may be told to do although something is lost by it, or may turn out to be unreadable."""


class StepKind(StrEnum):
    """What a step asks for."""

    SAFE = "SAFE"
    NEEDS_REBUILD = "NEEDS_REBUILD"
    REFUSED = "REFUSED"


class Rule(NamedTuple):
    """One rule of evolution.

    Attributes:
        kind: SAFE: the catalogue alone changes; NEEDS_REBUILD: records or entries are written; REFUSED: nothing.
        reason: what was found.
        action: what ``db.apply()`` does about it.
        allow: the name that lifts a refusal, or that makes more of a step than is done without it.
    """

    kind: StepKind
    reason: str
    action: str
    allow: Allowed | None = None


_SAFE, _REBUILD, _REFUSED = StepKind.SAFE, StepKind.NEEDS_REBUILD, StepKind.REFUSED

NOTHING: Final = "nothing"

RULES: Final[dict[str, Rule]] = {
    "collection_added": Rule(_SAFE, "the store does not list the collection", "list it, with every index readable"),
    "primary_key_changed": Rule(
        _REFUSED, "the primary key differs from the stored one", "write the records to a new collection"
    ),
    "schema_version_lower": Rule(
        _REFUSED, "a newer release was brought up: this one only reads", "run the newer release"
    ),
    "schema_version_raised": Rule(
        _SAFE, "the declared schema version is higher than the stored one", "raise it: lower ones then only read"
    ),
    "upgrade_missing": Rule(
        _REFUSED,
        "an upgrade is not declared that stored records may still need",
        "declare it again, until db.migrate() has rewritten every record of a lower version",
    ),
    "records_outdated": Rule(
        _SAFE,
        "records of older schema versions are upgraded when they are read",
        NOTHING + "; db.migrate() rewrites them",
    ),
    "upgrade_fails": Rule(
        _REFUSED,
        "records that were tried could not be read or written by this release, and a raised version is not lowered",
        "mend the upgrade; or change or remove the records with the older release, which still writes; with allow they "
        "stay as they are",
        "leave_records",
    ),
    "records_refused": Rule(
        _SAFE,
        "stored records are refused by the models of this release: they cannot be read, or not be rewritten",
        NOTHING + "; db.check() lists all of them, and an upgrade can give them values that fit",
    ),
    "field_added": Rule(_SAFE, "a field was added that has a default", "list it; records without it have the default"),
    "field_unmissed": Rule(
        _SAFE, "a field was added without a default, and no records are stored that could lack it", "list it"
    ),
    "field_of_class": Rule(
        _SAFE,
        "a field was added without a default to some classes of the collection, or came with a new class",
        "list it; records of these classes that lack it cannot be read, unless an upgrade fills it",
    ),
    "field_filled": Rule(_SAFE, "a field was added that an upgrade fills", "list it; the upgrade gives its value"),
    "field_required": Rule(
        _REFUSED,
        "a field was added without a default, so that the stored records could not be read",
        "give it a default, or an upgrade that fills it",
    ),
    "field_removed": Rule(
        _SAFE,
        "a stored field is not declared any more: its values are carried along",
        NOTHING + "; with allow the values are taken out of the records",
        "forget_field",
    ),
    "field_widened": Rule(_SAFE, "the type of a field takes every value that it took before", "list the type"),
    "field_converted": Rule(_SAFE, "the type of a field differs, and an upgrade converts the values", "list the type"),
    "field_retyped": Rule(
        _REFUSED,
        "the type of a field differs, and no upgrade converts the values",
        "write an upgrade; with allow the type is listed, and values that do not fit cannot be read",
        "change_type",
    ),
    "column_retyped": Rule(
        _REFUSED, "the type of an indexed column differs, and no upgrade converts the values", "write an upgrade"
    ),
    "index_added": Rule(_REBUILD, "a declared index is not built", "build it beside readers and writers"),
    "index_changed": Rule(
        _REBUILD,
        "the definition of an index differs from the stored one, which serves older releases until the switch",
        "build the next generation, and switch in one commit",
    ),
    "index_replaced": Rule(
        _REBUILD,
        "an index has a column of a type or a function that this release has replaced, so nobody can keep it",
        "end it and build the next generation; until then the queries that need it are refused",
    ),
    "index_unfinished": Rule(_REBUILD, "the build of an index was begun", "finish it"),
    "index_pending": Rule(_REBUILD, "violations keep an index from becoming readable", "look at each of them again"),
    "index_outdated": Rule(
        _REBUILD,
        "an upgrade touches a field of an index, whose entries are those of the records as they are stored",
        "rewrite the records of older versions; until then the queries that need it are refused",
    ),
    "index_undeclared": Rule(
        _REFUSED,
        "the store keeps an index that is not declared, so this process may not write",
        "declare it; with allow it is dropped (raise schema_version with it, or a build of an older release brings it "
        "back)",
        "drop_index",
    ),
    "index_superseded": Rule(
        _REFUSED,
        "a newer release has replaced the declared definition of an index",
        "run the newer release; to go back to this definition, db.drop_index() first",
    ),
    "index_dropping": Rule(_SAFE, "entries of a dropped index are left", "remove them in batches"),
}
