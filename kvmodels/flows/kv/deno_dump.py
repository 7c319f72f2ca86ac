"""Dump a store for Deno KV, and load the entries of a Deno KV, as the lines of Deno's package ``@deno/kv-utils``.

    {"key": [{"type": "string", "value": "hits"}], "value": {"type": "KvU64", "value": "7"}, "versionstamp": "…"}

The format has no first and no last line, so a file that was cut off between two lines is not recognized. A deadline is
written as ``expires_at``, in milliseconds since the epoch, which Deno ignores and a load here reads. What only this
library can use is left out: its own keys, and index entries.

Rules of this module: as in ``kvmodels.flows.kv.dump``, whose snapshot, batches and commits these classes share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from kvmodels.catalog.catalogue import Header
from kvmodels.catalog.keyspace import RESERVED
from kvmodels.codecs.deno_json import deno_form, deno_key, deno_value, key_of_deno, parse_deno_line
from kvmodels.core.keys import Key, encode_key
from kvmodels.core.operations import Row, Set, format_versionstamp
from kvmodels.errors import InvalidValueError, ReservedKeyError
from kvmodels.flows.effects import Flow
from kvmodels.flows.kv.dump import DAMAGED, Dumping, Loading
from kvmodels.flows.kv.dump_frame import DumpFrame, dump_line, without_computed
from kvmodels.flows.kv.queue import Message, NewMessage
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.limits import Limits


class DenoDumping(Dumping):
    """One dump of the keys and records of a store in the format of Deno."""

    def begin(self) -> Flow[list[str]]:
        """Return no lines; the catalogue is read to know which keys are records. Raises as ``Dumping.begin``."""
        yield from super().begin()
        self.keys = 0
        return []

    def lines(self, rows: Sequence[Row]) -> Iterator[str]:
        """Yield the lines for rows. Raises DecodeError, and InvalidValueError with the key of the value."""
        collections: Mapping[str, Any] = {} if self._header is None else self._header.collections
        derived = {RESERVED} if self._header is None else {RESERVED, *self._header.prefixes()} - {*collections}
        for row in rows:
            key = self._form.entry_without_value(row).key
            if type(key[0]) is str and key[0] in derived:
                continue
            self.keys += 1
            is_record = type(key[0]) is str and key[0] in collections
            yield deno_line(self._form, row, key, is_record=is_record)

    def end(self) -> Sequence[str]:
        """Return no lines."""
        return []


def deno_line(form: StoreFormat, row: Row, key: Key, *, is_record: bool) -> str:
    """Return the line of a row. Raises DecodeError, InvalidValueError."""
    codec = form.codec
    try:
        if is_record:
            document = without_computed(codec.decode_document(row.value, row.encoding, row.key))
            value = deno_form(document, as_document=True)
        else:
            value = deno_form(codec.decode(row.value, row.encoding, row.key), as_document=False)
    except InvalidValueError as error:
        error.key = key
        raise
    content = {"key": deno_key(key), "value": value, "versionstamp": format_versionstamp(row.versionstamp)}
    return dump_line(content, row.expire_at)


class DenoLoading(Loading):
    """One load of entries of Deno into an empty store."""

    def __init__(self, form: StoreFormat, limits: Limits, token: str) -> None:
        super().__init__(form, limits, token)
        self._frame = DumpFrame((), DAMAGED)

    def _read(self, line: str | bytes) -> list[Set]:
        if not line.strip():
            return []
        content = deno_content(parse_deno_line(line))
        key = key_of_deno(content["key"])
        self._require_unowned(key)
        packed = self._form.root + encode_key(key)
        self._form.check_key_runes(packed, self._limits)
        value = deno_value(content["value"], as_in_javascript=self._form.codec.name == "v8")
        return [Set(packed, *self._form.codec.encode(value), content.get("expires_at"))]

    def _require_unowned(self, key: Key) -> None:
        """Refuse the key of a record or of the library, because a raw value would have no index entries."""
        before = None if self._before is None else Header.from_value(self._before, (RESERVED, "header"))
        owners = {} if before is None else before.prefixes()
        part = key[0] if type(key[0]) is str else ""
        owner = "kvmodels" if part == RESERVED else owners.get(part)
        if owner is not None:
            raise ReservedKeyError(
                "the key is reserved",
                key=key,
                owner=owner,
                hint='Load records with db.load(file, format="deno"), which also writes their index entries.',
            )


class DenoFileLoading(DenoLoading):
    """One load of the file of a Deno program: entries, and messages of the queue as lines with ``ready_at``."""

    def _read(self, line: str | bytes) -> list[Set]:
        content = parse_deno_line(line)
        if "ready_at" not in content:
            return super()._read(line)
        value, encoding = self._form.codec.encode(
            deno_value(content["value"], as_in_javascript=self._form.codec.name == "v8")
        )
        keys = tuple(self._form.root + bytes.fromhex(key) for key in content["undelivered"])
        message = Message(value, encoding, tuple(content["backoff"]), keys)
        return [NewMessage(content["id"], 0, message).arrival(self._form, content["ready_at"])]


def deno_content(content: Any) -> Mapping[str, Any]:
    """Return the content of a line with its three parts. Raises ValueError."""
    if not isinstance(content, Mapping) or not {"key", "value"} <= content.keys():
        raise ValueError("not an entry of Deno")
    found = cast("Mapping[str, Any]", content)
    if type(found.get("expires_at")) not in (int, type(None)):
        raise ValueError("a deadline that is not a number of milliseconds")
    return found
