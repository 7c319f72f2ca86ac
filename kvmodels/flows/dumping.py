"""Dump a store as lines of JSON from one snapshot, with the types of all values and with their deadlines.

    {"kvmodels_dump": 1, "codec": "msgpack", "versionstamp": "…"}       the first line
    {"key": ["users", 1], "document": {…}}                              a record, or a copy of one in an index
    {"key": ["hits"], "value": {"$u64": "7"}, "expires_at": 1767225600000}
    {"end": {"keys": 2}}                                                the last line, which shows that none is missing

The catalogue of models comes before the other keys, which are in key order; versionstamps are left out, because those
of another store would mean nothing. ``kvmodels.encoding.typed_json`` has the forms of keys and values.

Rules of this module: nothing here does I/O but by reading the snapshot that the caller pins; the lines are an exact
function of the snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kvmodels.encoding.typed_json import is_graph_form, key_to_json, value_to_json
from kvmodels.errors import DecodeError
from kvmodels.flows.requests import Flow, read
from kvmodels.flows.store_format import StoreFormat
from kvmodels.keys import Key, key_successor
from kvmodels.limits import Limits
from kvmodels.operations import ReadRange, Row, after_prefix, format_versionstamp, point
from kvmodels.schema.catalogue import Header
from kvmodels.schema.keyspace import HEADER_KEY

__all__ = ["DUMP_FORMAT", "DUMP_MARK", "Dumping", "document_owners"]

DUMP_FORMAT: Final = 1
DUMP_MARK: Final = "kvmodels_dump"

LINE_ENDS: Final = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""What JSON allows inside a text, and some programs take for the end of a line."""

FIRST_BATCH: Final = 4
LARGEST_BATCH: Final = 100
BATCH_BYTES: Final = 4 * 1024 * 1024


def document_owners(header: Header) -> Mapping[str, str]:
    """First key parts whose values are documents, each with its collection: records, and copies of them."""
    owners = {name: name for name in header.collections}
    for collection in header.collections.values():
        for index in collection.indexes:
            if index.signature["store"] == "record":
                owners[index.prefix(collection.name)] = collection.name
    return owners


class Dumping:
    """One dump: ``rows`` reads the next of the snapshot, ``lines`` turns them into text.

    Args:
        form: how the keys and values of the store, or of a confined part of one, are packed.
    """

    def __init__(self, form: StoreFormat) -> None:
        self.keys = 0
        self._form = form
        self._owners: Mapping[str, str] = {}
        self._header_key = form.root + HEADER_KEY
        self._start = key_successor(form.root)
        self._end = after_prefix(form.root)
        self._batch = FIRST_BATCH

    def begin(self) -> Flow[list[str]]:
        """The first lines: what this is, and the catalogue if there is one.

        Raises:
            SchemaMismatchError: the store holds half of another dump, or is of a newer format.
            DecodeError: the catalogue cannot be read.
        """
        found = yield from read([point(self._header_key)])
        mark = {
            DUMP_MARK: DUMP_FORMAT,
            "codec": self._form.codec.name,
            "versionstamp": format_versionstamp(found.versionstamp),
        }
        rows = found.ranges[0]
        if rows:
            entry = self._form.entry(rows[0])
            self._owners = document_owners(Header.from_value(entry.value, entry.key))
        return [_line(mark), *map(self._line_of, rows)]

    def rows(self, limits: Limits) -> Flow[Sequence[Row]]:
        """The next rows, none at the end; one request. As many as hold about 4 MiB, by the size of the last ones."""
        wanted = min(self._batch, limits.max_read_entries)
        found = yield from read([ReadRange(self._start, self._end, wanted)])
        rows = found.ranges[0]
        if rows:
            self._start = key_successor(rows[-1].key)
            average = sum(len(row.key) + len(row.value) for row in rows) // len(rows) + 1
            self._batch = max(1, min(LARGEST_BATCH, 4 * self._batch, BATCH_BYTES // average))
        return rows

    def lines(self, rows: Sequence[Row]) -> Iterator[str]:
        """The lines of rows, one made after the other, because a line may be larger than all other memory in use.

        Raises:
            DecodeError: a key or value cannot be read; it is named.
        """
        for row in rows:
            if row.key != self._header_key:
                yield self._line_of(row)

    def end(self) -> str:
        """The last line."""
        return _line({"end": {"keys": self.keys}})

    def _line_of(self, row: Row) -> str:
        key = self._form.entry_without_value(row).key
        content: dict[str, Any] = {"key": key_to_json(key)}
        content.update(self._value(row, key))
        if row.expire_at is not None:
            content["expires_at"] = row.expire_at
        self.keys += 1
        return _line(content)

    def _value(self, row: Row, key: Key) -> dict[str, Any]:
        codec = self._form.codec
        if type(key[0]) is str and key[0] in self._owners:
            try:
                document = value_to_json(codec.decode_document(row.value, row.encoding, row.key))
            except DecodeError:
                document = None  # foreign to the collection; if it is no value either, that is said below
            # A document in which containers are shared was not written by this library: as it is, it stays exact.
            if document is not None and not is_graph_form(document):
                return {"document": document}
        return {"value": value_to_json(codec.decode(row.value, row.encoding, row.key))}


def _line(content: dict[str, Any]) -> str:
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return (text if text.isascii() else text.translate(LINE_ENDS)) + "\n"
