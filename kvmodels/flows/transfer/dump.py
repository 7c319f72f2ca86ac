"""Dump the records of some models from one snapshot.

    {"kvmodels_dump": 2, "collections": ["users"], "codec": "msgpack", "versionstamp": "…"}     the first line
    {"key": ["users", 1], "document": {…}, "expires_at": 1767225600000}                         a record
    {"end": {"keys": 1}}                                                                        the last line

The chunks of a blob follow the line of its record, see ``blobs.py``. With ``history`` the rows of histories come before
the records, with their own keys; older releases skip them.

Index entries, counters and the values of computed columns are left out, because a load makes them. The number differs
from that of a dump of a whole store, so that no release loads these lines as one, which would store records without
entries.

Rules of this module: no I/O; the lines are an exact function of the snapshot of the caller. A collection comes after
those that its foreign keys name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kvmodels.catalog.keyspace import HEADER_KEY, also_prefix, history_prefix, trash_prefix
from kvmodels.codecs.typed_json import key_to_json, value_to_json
from kvmodels.core.keys import Key
from kvmodels.core.operations import Row, after_prefix, format_versionstamp, point
from kvmodels.errors import InvalidArgumentError, UnsupportedError
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, read
from kvmodels.flows.kv.deno_dump import deno_line
from kvmodels.flows.kv.dump import Dumping
from kvmodels.flows.kv.dump_frame import DUMP_MARK, RECORDS_FORMAT, document_content, dump_line, without_computed
from kvmodels.flows.kv.formats import DumpFormat
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.flows.transfer.blobs import DumpedBlobs, is_chunk, require_droppable
from kvmodels.indexing.blobs import blobs_in
from kvmodels.indexing.loaded_versions import history_of
from kvmodels.limits import Limits
from kvmodels.schema.blobs.stored import StoredBlob
from kvmodels.schema.definition.definition import ModelSchema


class RecordDumping(Dumping):
    """One dump of records: ``rows`` reads the next rows of the snapshot, ``lines`` converts them to text."""

    def __init__(
        self,
        context: Context,
        form: StoreFormat,
        schemas: Iterable[ModelSchema],
        dump_format: DumpFormat,
        *,
        history: bool = False,
        blobs: bool = True,
    ) -> None:
        super().__init__(form)
        self._is_deno = dump_format == "deno"
        if history and self._is_deno:
            raise InvalidArgumentError(
                "the format of Deno holds no old versions",
                argument="history",
                value=history,
                hint='Dump with format="kvmodels", or leave history= out.',
            )
        self._collections = targets_first(schemas)
        self._blobs = DumpedBlobs(self._collections, kept=blobs)
        if not blobs:
            require_droppable(self._collections)
        elif self._is_deno and self._blobs.interleaves:
            raise UnsupportedError(
                "the format of Deno cannot hold blobs",
                reason=", ".join(self._blobs.fields),
                hint="Dump without them, db.dump(file, blobs=False), or name the other models.",
            )
        names = [schema.collection for schema in self._collections] if history else []
        versions = [prefix(name) for prefix in (history_prefix, trash_prefix, also_prefix) for name in names]
        # Versions come first, because a load takes them only for keys without a record.
        prefixes = versions + [context.layouts[schema.collection].prefix for schema in self._collections]
        self._ranges = [(prefix, after_prefix(prefix)) for prefix in prefixes]

    def begin(self) -> Flow[list[str]]:
        """Return the first lines."""
        found = yield from read([point(HEADER_KEY)])
        if self._is_deno:
            return []
        names = [schema.collection for schema in self._collections]
        stamp = format_versionstamp(found.versionstamp)
        mark = {DUMP_MARK: RECORDS_FORMAT, "collections": names, "codec": self._form.codec.name, "versionstamp": stamp}
        return [dump_line(mark)]

    def rows(self, limits: Limits) -> Flow[Sequence[Row]]:
        """Return the next rows; the chunks of blobs follow the record that has them."""
        if not self._blobs.interleaves:
            return (yield from super().rows(limits))
        if not self._blobs.waiting:
            self._blobs.add((yield from super().rows(limits)))
        return (yield from self._blobs.next_rows(self._blobs_of))

    def _blobs_of(self, row: Row) -> Iterable[StoredBlob]:
        key = self._form.entry_without_value(row).key
        fields = self._blobs.fields.get(key[0]) if type(key[0]) is str else None
        if fields is None:
            return ()
        return blobs_in(self._form.codec.decode_document(row.value, row.encoding, row.key), fields).values()

    def lines(self, rows: Sequence[Row]) -> Iterator[str]:
        """Yield the lines for rows. Raises DecodeError, and InvalidValueError with the key of the value."""
        for row in rows:
            key = self._form.entry_without_value(row).key
            self.keys += 1
            if self._is_deno:
                yield deno_line(self._form, self._without_blobs(row, key), key, is_record=True)
                continue
            if is_chunk(key):
                yield dump_line({"key": key_to_json(key), "value": value_to_json(row.value)})
                continue
            document = self._form.codec.decode_document(row.value, row.encoding, row.key)
            document = self._blobs.without(key, document)
            content = document_content(document if history_of(key) else without_computed(document))
            yield dump_line({"key": key_to_json(key), **content}, row.expire_at)

    def _without_blobs(self, row: Row, key: Key) -> Row:
        if not self._blobs.fields:
            return row
        codec = self._form.codec
        document = self._blobs.without(key, codec.decode_document(row.value, row.encoding, row.key))
        value, encoding = codec.encode_document(document)
        return row._replace(value=value, encoding=encoding)

    def end(self) -> Sequence[str]:
        """Return the last lines."""
        return [] if self._is_deno else [dump_line({"end": {"keys": self.keys}})]


def targets_first(schemas: Iterable[ModelSchema]) -> list[ModelSchema]:
    """Return the models, each after those that its foreign keys name; in a cycle one of them comes first."""
    given = {schema.collection: schema for schema in schemas}
    ordered: dict[str, ModelSchema] = {}
    begun: set[str] = set()

    def add(schema: ModelSchema) -> None:
        if schema.collection in begun:
            return
        begun.add(schema.collection)
        for index in schema.indexes.values():
            if index.reference in given:
                add(given[index.reference])
        ordered[schema.collection] = schema

    for schema in given.values():
        add(schema)
    return list(ordered.values())
