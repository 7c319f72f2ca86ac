"""The encrypted fields of a collection as the header lists them, so that all processes change keys at one commit.

The section of a collection in the header, which a release without encrypted fields does not know, so that it only
reads:

    current the id of the key that values are sealed with
    keys    for the id of each key in use, of values and of blind indexes, its check value
    fields  for each encrypted field, the schema version from which on documents hold it sealed
    plain   for each field that is no longer encrypted, the schema version from which on documents hold it plain

Rules of this module: pure. A section with an item that is not listed above is that of a newer release, and unknown.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import SchemaMismatchError
from kvmodels.schema.definition.definition import IndexDefinition, ModelSchema
from kvmodels.schema.encryption.blind_values import key_id_of

SECTION: Final = "encrypted"
"""The name of the section."""

_ITEMS: Final = frozenset({"current", "keys", "fields", "plain"})


@dataclass(frozen=True, slots=True)
class StoredEncryption:
    """The encrypted fields of one collection; see the items of its section."""

    current: int
    keys: Mapping[int, str]
    fields: Mapping[str, int]
    plain: Mapping[str, int]

    def to_value(self) -> dict[str, Any]:
        """Return the section."""
        return {
            "current": self.current,
            "keys": {str(key_id): check for key_id, check in sorted(self.keys.items())},
            "fields": dict(self.fields),
            "plain": dict(self.plain),
        }

    def waits_for(self, oldest: int) -> bool:
        """Return whether records of the versions from ``oldest`` on may hold a field in its former form."""
        return any(version > oldest for version in (*self.fields.values(), *self.plain.values()))

    def must_be_sealed(self, field: str, version: int, oldest: int) -> bool:
        """Return whether a document of a schema version holds a field sealed, unless it is None."""
        since = self.fields.get(field)
        return since is not None and (version >= since or oldest >= since)

    def settled(self, oldest: int, gone: Container[str]) -> StoredEncryption | None:
        """Return the section once every document has at least a version, and lacks some fields; None without fields."""
        fields = {name: since for name, since in self.fields.items() if name not in gone}
        plain = {name: since for name, since in self.plain.items() if since > oldest and name not in gone}
        return replace(self, fields=fields, plain=plain) if fields or plain else None


def encryption_in(section: object) -> StoredEncryption | None:
    """Return the encrypted fields that a section lists; None for one that this release does not know."""
    if not isinstance(section, Mapping):
        return None
    value = cast("Mapping[str, Any]", section)
    if _ITEMS.symmetric_difference(value) or not _is_well_formed(value):
        return None
    keys = {int(key_id): check for key_id, check in value["keys"].items()}
    return StoredEncryption(value["current"], keys, dict(value["fields"]), dict(value["plain"]))


def _is_well_formed(value: Mapping[str, Any]) -> bool:
    keys, fields, plain = value["keys"], value["fields"], value["plain"]
    if not all(isinstance(one, Mapping) for one in (keys, fields, plain)) or not isinstance(value["current"], int):
        return False
    ids = all(str(key_id).isdigit() and isinstance(check, str) for key_id, check in keys.items())
    return ids and all(isinstance(version, int) for version in (*fields.values(), *plain.values()))


def first_encryption(schema: ModelSchema) -> StoredEncryption | None:
    """Return the section of a collection that is listed first; None without encrypted fields or their first key."""
    sealer = schema.sealer
    if not schema.encrypted or sealer is None:
        return None
    first = sealer.keys.first
    check = sealer.check_of(first)
    if check is None:
        return None
    fields = dict.fromkeys(schema.encrypted, schema.schema_version)
    return with_blind_keys(StoredEncryption(first, {first: check}, fields, {}), schema)


def blind_keys(schema: ModelSchema) -> frozenset[int]:
    """Return the ids of the keys of the blind indexes that a class declares."""
    return frozenset(one.blind for one in schema.computed.values() if one.blind is not None)


def with_blind_keys(stored: StoredEncryption, schema: ModelSchema) -> StoredEncryption:
    """Return the section with the check values of the keys of blind indexes that this process has."""
    sealer = schema.sealer
    if sealer is None:
        return stored
    checks = {key_id: sealer.check_of(key_id) for key_id in sorted(blind_keys(schema) - stored.keys.keys())}
    found = {key_id: check for key_id, check in checks.items() if check is not None}
    return replace(stored, keys={**stored.keys, **found}) if found else stored


def listed_encryption(
    stored: StoredEncryption | None, schema: ModelSchema, known: Mapping[str, str]
) -> StoredEncryption | None:
    """Return the section with the fields of a release; ``known`` are the fields that the header lists.

    A new field is sealed in every document that has it.
    """
    if stored is None and not schema.encrypted:
        return None
    first = stored or first_encryption(schema)
    if first is None:
        return None
    fields, plain = {} if stored is None else dict(first.fields), dict(first.plain)
    for name in schema.encrypted:
        plain.pop(name, None)
        fields.setdefault(name, schema.schema_version if name in known else 1)
    for name in [name for name in fields if name in schema.fields and name not in schema.encrypted]:
        plain[name] = schema.schema_version
        del fields[name]
    return with_blind_keys(replace(first, fields=fields, plain=plain), schema)


def lists(stored: StoredEncryption | None, schema: ModelSchema) -> bool:
    """Return whether the header lists every field that a class declares as encrypted."""
    return all(stored is not None and name in stored.fields for name in schema.encrypted)


def changed_fields(schema: ModelSchema, stored: StoredEncryption | None) -> Mapping[str, int]:
    """Return for each field the highest version from which on documents hold it in another form."""
    if stored is None or not stored.plain:
        return schema.touched
    names = schema.touched.keys() | stored.plain.keys()
    return {name: max(schema.touched.get(name, 1), stored.plain.get(name, 1)) for name in names}


def without_keys(schema: ModelSchema, stored: StoredEncryption | None) -> SchemaMismatchError | None:
    """Return the error for every write of a process that was opened without keys, and whose class encrypts nothing."""
    return None if stored is None or schema.sealer is not None else writing_problem(schema, stored)


def writing_problem(schema: ModelSchema, stored: StoredEncryption | None) -> SchemaMismatchError | None:
    """Return why this process must not store records with encrypted fields; None if it may."""
    missing = [name for name in schema.encrypted if stored is None or name not in stored.fields]
    if missing:
        return SchemaMismatchError(
            "the store does not list a field as encrypted yet",
            collection=schema.collection,
            stored=None,
            declared=missing[0],
            hint="Give the keys, Database(url, keys=KeyRing({...})), and run db.apply(); until then this process only "
            "reads and removes.",
        )
    return None if stored is None else key_problem(schema, stored)


def listing_problem(schema: ModelSchema, stored: StoredEncryption | None) -> SchemaMismatchError | None:
    """Return why this process must not list the encrypted fields of a class that the header lacks; None if it may.

    It could not write to the collection afterwards, and the fields would stay as they are.
    """
    if schema.sealer is None or lists(stored, schema):
        return None
    listed = stored or first_encryption(schema)
    if listed is None:
        missing: SchemaMismatchError = schema.sealer.no_key(schema.sealer.keys.first)
        return missing
    return key_problem(schema, listed)


def key_problem(schema: ModelSchema, stored: StoredEncryption) -> SchemaMismatchError | None:
    """Return the error for a process that lacks a key which its writes need, or has another one under its id."""
    sealer = schema.sealer
    if sealer is None:
        return opened_without_keys(schema, stored.current)
    for key_id in (stored.current, *blind_keys(schema)):
        if not has_key(schema, stored, key_id):
            is_missing = sealer.check_of(key_id) is None
            problem: SchemaMismatchError = sealer.no_key(key_id) if is_missing else sealer.other_key(key_id)
            return problem
    return None


def opened_without_keys(schema: ModelSchema, key_id: int) -> SchemaMismatchError:
    """Return the error for a write that needs the key of an id, in a process without any keys."""
    return SchemaMismatchError(
        "the collection has encrypted fields, and this process was opened without keys",
        collection=schema.collection,
        stored=key_id,
        declared=None,
        hint="Give them: Database(url, keys=KeyRing({...})). Until then this process only reads.",
    )


def other_index_key(
    schema: ModelSchema, stored: StoredEncryption | None, definition: IndexDefinition
) -> SchemaMismatchError | None:
    """Return the error for a process whose key of a blind index is not the listed one; None if it is, or is missing.

    A filter may have been parsed before the key was listed: its operands were hashed with the other key.
    """
    sealer = schema.sealer
    if stored is None or sealer is None or not schema.encrypted:
        return None
    for key_id in filter(None, map(key_id_of, definition.columns)):
        if sealer.check_of(key_id) is not None and not has_key(schema, stored, key_id):
            problem: SchemaMismatchError = sealer.other_key(key_id)
            return problem
    return None


def has_key(schema: ModelSchema, stored: StoredEncryption, key_id: int) -> bool:
    """Return whether this process has the key of an id, with the check value that the store lists for it."""
    check = None if schema.sealer is None else schema.sealer.check_of(key_id)
    return check is not None and stored.keys.get(key_id, check) == check
