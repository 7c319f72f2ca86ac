"""Schemas with the keys of a database: their objects have plain values, their documents sealed ones.

Rules of this module: a schema is bound once for each database. A class without encrypted fields keeps its fast paths;
of documents with sealed fields it opens those that it declares, and seals the others again when a record is renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.codecs.sealing.key_ring import KeyCache
from kvmodels.schema.compile.polymorphic import dispatched
from kvmodels.schema.compile.record_codec import PreparedObject
from kvmodels.schema.definition.definition import ColumnSource, Computed, Document, ModelSchema
from kvmodels.schema.definition.upgrades import version_of
from kvmodels.schema.definition.values import COMPUTED, RESERVED_FIELD, SEALED, same_stored
from kvmodels.schema.encryption.blind_values import BlindValue
from kvmodels.schema.encryption.documents import Sealer, sealed_names, with_sealed
from kvmodels.schema.instances import state_of, unknown_of


def bound_schemas(schemas: Mapping[str, ModelSchema], keys: KeyCache, codec: ValueCodec) -> dict[str, ModelSchema]:
    """Return the schemas of a database with its keys, and with each other as targets."""
    found = {name: bound(schema, Sealer(keys, codec, schema)) for name, schema in schemas.items()}
    for schema in found.values():
        schema.targets.update((field, found.get(one.collection, one)) for field, one in schema.targets.items())
        schema.relations.update(
            (name, one._replace(links=found.get(one.links.collection, one.links)))
            for name, one in schema.relations.items()
        )
    return found


def bound(schema: ModelSchema, sealer: Sealer) -> ModelSchema:
    """Return a schema whose documents are sealed and opened by a sealer; the same one if it has one already."""
    if schema.sealer is not None:
        return schema
    computed = {name: _bound_column(sealer, schema.source(name), one) for name, one in schema.computed.items()}
    blind = {name: one for name, one in computed.items() if one.blind is not None}
    with_keys = replace(
        schema,
        sealer=sealer,
        computed=computed,
        source=_bound_source(schema.source, blind) if blind else schema.source,
        targets=dict(schema.targets),
        relations=dict(schema.relations),
    )
    if schema.variants is None:
        return _with_functions(with_keys, schema, sealer, blind)
    variants = replace(
        schema.variants,
        by_class={cls: bound(one, sealer) for cls, one in schema.variants.by_class.items()},
        by_tag={tag: bound(one, sealer) for tag, one in schema.variants.by_tag.items()},
    )
    return replace(with_keys, **dispatched(with_keys, variants, variants.by_tag))


def bound_view(view: ModelSchema, collection: ModelSchema) -> ModelSchema:
    """Return the schema for one class of a bound collection; its classes are bound already."""
    sealer: Sealer | None = collection.sealer
    if sealer is None or view.sealer is not None:
        return view
    computed = {name: _bound_column(sealer, view.source(name), one) for name, one in view.computed.items()}
    blind = {name: one for name, one in computed.items() if one.blind is not None}
    return replace(
        view,
        sealer=sealer,
        computed=computed,
        source=_bound_source(view.source, blind) if blind else view.source,
        targets=dict(view.targets),
    )


def _bound_column(sealer: Sealer, found: ColumnSource | None, computed: Computed) -> Computed:
    """Return a computed column; that of blind values with the function that makes them."""
    if computed.blind is None or found is None or found.given is None:
        return computed
    given, field, key_id = found.given, computed.name, computed.blind

    def blind(value: Any) -> bytes:
        folded = value if given.normalise is None else given.normalise(value)
        keys = sealer.keys_of(key_id)
        if keys is None:
            raise sealer.no_key(key_id)
        if sealer.checks.get(key_id, keys.check) != keys.check:
            raise sealer.other_key(key_id)  # else a query would not find, and a write would store another value
        return keys.blind(field, given.codec.pack(folded))

    return replace(computed, function=blind)


def _bound_source(
    source: Callable[[str], ColumnSource | None], blind: Mapping[str, Computed]
) -> Callable[[str], ColumnSource | None]:
    known: dict[str, ColumnSource] = {}
    for name, computed in blind.items():
        found = source(name)
        assert found is not None, "each blind column has a source"
        known[name] = replace(found, computed=computed, normalise=_operand(computed.name, blind.values()))

    def bound_source(name: str) -> ColumnSource | None:
        return known.get(name) or source(name)

    return bound_source


def _operand(field: str, blind: Iterable[Computed]) -> Callable[[Any], BlindValue]:
    """Return the function that hashes an operand for the indexes of all keys of a field."""
    of_field = {one.blind: one.function for one in blind if one.name == field and one.blind is not None}
    return lambda value: BlindValue.of({key_id: function(value) for key_id, function in of_field.items()})


def _with_functions(
    made: ModelSchema, schema: ModelSchema, sealer: Sealer, blind: Mapping[str, Computed]
) -> ModelSchema:
    record = _SealedRecord(schema, sealer, tuple(blind.values()))
    made = replace(
        made,
        decode=record.decode,
        prepare=record.prepare,
        upgrade=None if schema.upgrade is None else record.upgrade,
    )
    if not schema.encrypted:
        return made
    return replace(made, fast_decoding=None, revise=None, prepare_many=None)


class _SealedRecord:
    """Decodes and prepares the objects of one class, whose documents are sealed."""

    def __init__(self, schema: ModelSchema, sealer: Sealer, blind: tuple[Computed, ...]) -> None:
        self._schema = schema
        self._sealer = sealer
        self._blind = blind
        self._latest = max(schema.upgrades_to, default=1)

    def decode(self, document: Document, key: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
        """Return the object of a document with opened fields; see ``ModelSchema.decode``. Raises DecryptionError."""
        sealed = sealed_names(document)
        if not sealed:
            return self._schema.decode(document, key)
        key = key or self._sealer.key_in(document)
        outstanding = self._schema.upgrade is not None and version_of(document) < self._latest
        opened = self._sealer.opened(document, key, None if outstanding else self._schema.fields.keys())
        held = {name: (document[name], opened[name]) for name in sealed} if outstanding else {}
        instance, unknown = self._schema.decode(opened, key)
        return instance, self._resealed(unknown, held, key) if held else unknown

    def _resealed(
        self, unknown: dict[str, Any], held: Mapping[str, tuple[Any, Any]], key: tuple[Any, ...]
    ) -> dict[str, Any]:
        """Return undeclared fields with those sealed again that were opened for an upgrade."""
        names = [name for name in held if name in unknown]
        if not names:
            return unknown
        pk = self._sealer.pack(key)
        for name in names:
            sealed, plain = held[name]
            same = same_stored(plain, unknown[name])
            unknown[name] = sealed if same else self._sealer.seal(name, pk, unknown[name])
        return with_sealed(unknown, names)

    def upgrade(self, document: Document, key: tuple[Any, ...]) -> Document:
        """Return an upgraded document with opened fields; see ``ModelSchema.upgrade``."""
        assert self._schema.upgrade is not None, "it has upgrades"
        if sealed_names(document) and version_of(document) < self._latest:
            document = self._sealer.opened(document, key or self._sealer.key_in(document))
        return self._schema.upgrade(document, key)

    def prepare(self, instance: Any) -> PreparedObject:
        """Return an object prepared for a write, with a sealed document; see ``ModelSchema.prepare``."""
        prepared: PreparedObject = self._schema.prepare(instance)
        carried = unknown_of(instance).get(RESERVED_FIELD, {}).get(SEALED, ())
        if not carried and not self._schema.encrypted:
            return prepared
        document = prepared.document
        pk = self._sealer.pack(prepared.primary_key)
        blind = {one.stored_as: _blind_value(one, prepared.values[one.name]) for one in self._blind}
        if blind:
            reserved = cast("dict[str, Any]", document.get(RESERVED_FIELD, {}))
            columns = {**reserved.get(COMPUTED, {}), **blind}
            document = {**document, RESERVED_FIELD: {**reserved, COMPUTED: columns}}
        kept = [name for name in carried if name in prepared.unknown and name not in self._schema.fields]
        document = self._sealer.sealed(with_sealed(document, kept), pk, self._schema.encrypted)
        state = state_of(instance) if kept else None
        if state is not None:
            document = self._sealer.moved(document, kept, state.key, prepared.primary_key)
        return prepared._replace(document=document)


def _blind_value(computed: Computed, value: Any) -> Any:
    if value is None:
        return None
    if not computed.many:
        return computed.function(value)
    return sorted({computed.function(one) for one in value if one is not None})
