"""Read the lines of a dump, in any format: records of models, and keys of no model.

Rules of this module: no I/O, and nothing is validated by a model. What a store makes itself is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from kvmodels.catalog.catalogue import Header, StoredCollection
from kvmodels.catalog.keyspace import RESERVED
from kvmodels.catalog.unknown import unknown_section
from kvmodels.codecs.deno_json import deno_value, key_of_deno, parse_deno_line
from kvmodels.codecs.typed_json import key_from_json, value_from_json
from kvmodels.core.keys import Key, encode_key
from kvmodels.core.operations import Set
from kvmodels.errors import SchemaMismatchError, UnsupportedError
from kvmodels.flows.kv.deno_dump import deno_content
from kvmodels.flows.kv.dump_frame import (
    DUMP_FORMAT,
    DUMP_MARK,
    RECORDS_FORMAT,
    DumpFrame,
    Line,
    content_of,
    document_in,
)
from kvmodels.flows.kv.formats import DumpFormat
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.indexing.blobs import blobs_in
from kvmodels.indexing.loaded_versions import history_of, loaded_row
from kvmodels.limits import Limits
from kvmodels.schema.definition.definition import Document, ModelSchema

DAMAGED: Final = "The file is damaged, cut off, or of another format. Nothing of it was stored."


class DumpedRecord(NamedTuple):
    """A record of a dump."""

    schema: ModelSchema
    key: bytes
    document: Document
    expire_at: int | None
    number: int
    line: Line


class DumpedChunk(NamedTuple):
    """A chunk of the content of a blob, which belongs to the record before it."""

    blob_id: bytes
    number: int
    content: bytes


class DumpedLines:
    """Reads the lines of one dump, in order."""

    def __init__(
        self,
        form: StoreFormat,
        schemas: Mapping[str, ModelSchema],
        *,
        only_records: bool,
        dump_format: DumpFormat,
        limits: Limits,
    ) -> None:
        self._form = form
        self._schemas = schemas
        self._only_records = only_records
        self._is_deno = dump_format == "deno"
        self._limits = limits
        self._collections: frozenset[str] = frozenset(schemas)
        self._derived: frozenset[str] = frozenset()
        self._unknown: Mapping[str, StoredCollection] = {}
        self.frame = DumpFrame(() if self._is_deno else (DUMP_FORMAT, RECORDS_FORMAT), DAMAGED)

    def read(self, lines: Sequence[Line], *, again: bool = False) -> Iterator[DumpedRecord | DumpedChunk | Set]:
        """Yield the records, and the keys of no model. Raises DecodeError with the line, or another typed error.

        ``again``: the lines were read before, and are not counted again.
        """
        for line in lines:
            self.frame.number += not again
            with self.frame:
                found = self._of_deno(line) if self._is_deno else self._of_line(line, again=again)
            if found is not None:
                yield found

    # -- the format of Deno

    def _of_deno(self, line: Line) -> DumpedRecord | DumpedChunk | Set | None:
        if not line.strip():
            return None
        content = deno_content(parse_deno_line(line))
        key = key_of_deno(content["key"])
        schema = self._schemas.get(key[0]) if type(key[0]) is str else None
        if schema is not None:
            document = deno_value(content["value"], as_document=True)
            return self._record(schema, key, document, content.get("expires_at"), line)
        value = deno_value(content["value"], as_in_javascript=self._form.codec.name == "v8")
        return self._raw_key(key, value, content.get("expires_at"))

    # -- the format of the library

    def _of_line(self, line: Line, *, again: bool) -> DumpedRecord | DumpedChunk | Set | None:
        content = content_of(line) if again else self.frame.content(line)
        if content is not None:
            return self._of_content(content, line)
        if self.frame.number == 1:
            first = self.frame.first
            self._collections = frozenset(first["collections"] if first[DUMP_MARK] == RECORDS_FORMAT else ())
        return None

    def _of_content(self, content: Mapping[str, Any], line: Line) -> DumpedRecord | DumpedChunk | Set | None:
        key = key_from_json(content["key"])
        part = key[0] if type(key[0]) is str else None
        deadline = content.get("expires_at")
        if type(deadline) not in (int, type(None)):
            raise ValueError("a deadline that is not a number of milliseconds")
        if key == (RESERVED, "header"):
            header = Header.from_value(value_from_json(content["value"]), key)
            self._collections = frozenset(header.collections)
            self._unknown = {name: one for name, one in header.collections.items() if one.unknown}
            self._derived = frozenset(header.prefixes()) - self._collections
        if history_of(key) in self._schemas and self.frame.first.get(DUMP_MARK) == RECORDS_FORMAT:
            key, value = loaded_row(key, document_in(content))
            return Set(encode_key(key), *self._form.codec.encode_document(value), deadline)
        if key[:2] == (RESERVED, "blob") and self.frame.first.get(DUMP_MARK) == RECORDS_FORMAT:
            return _chunk(key, value_from_json(content["value"]))
        if part == RESERVED or part in self._derived:
            return None
        if part not in self._collections:
            return self._raw_key(key, value_from_json(content["value"]), deadline)
        schema = self._schemas.get(part)
        if schema is not None:
            self._require_known(part)
            return self._record(schema, key, document_in(content), deadline, line)
        if self._only_records:
            return None
        raise SchemaMismatchError(
            "the dump has records of a collection without a declared model",
            collection=part,
            hint="Open the database with its model, or name the models to load.",
        )

    def _require_known(self, collection: str) -> None:
        """Refuse records that a newer release may have stored in another form."""
        error = unknown_section(self._unknown[collection]) if collection in self._unknown else None
        if error is not None:
            raise error

    # -- both

    def _record(self, schema: ModelSchema, key: Key, document: Any, deadline: int | None, line: Line) -> DumpedRecord:
        if cast("type[object]", type(document)) is not dict:
            raise ValueError("a record that is not an object")
        if self.frame.first.get(DUMP_MARK) != RECORDS_FORMAT and blobs_in(document, schema.blobs):
            raise UnsupportedError(
                "a record has a blob whose content does not follow it",
                reason=schema.name,
                hint="Load a dump of a whole store with kv.load() into an empty store, or dump records with db.dump().",
            )
        return DumpedRecord(schema, encode_key(key), document, deadline, self.frame.number, line)

    def _raw_key(self, key: Key, value: Any, deadline: int | None) -> Set | None:
        if self._only_records:
            return None
        packed = self._form.pack_written_key(key)
        self._form.check_key_runes(packed, self._limits)
        return Set(packed, *self._form.codec.encode(value), deadline)


def _chunk(key: Key, content: Any) -> DumpedChunk | None:
    if len(key) != 4 or not isinstance(key[2], bytes) or type(key[3]) is not int or not isinstance(content, bytes):
        raise ValueError("a chunk of a blob that is not bytes")
    return DumpedChunk(key[2], key[3], content)
