"""The frame of a dump: how a line is written, and how the first line, the last line and the number of keys are judged.

A document has one form in all dumps: its fields, and beside them what the library keeps in it, if there is something.

    {"key": ["users", 1], "document": {"id": 1, "name": "Ada"}, "library": {"v": 2}}

Rules of this module: pure. It knows nothing of keys, so a load into an empty store and a load into one that
is in use judge a dump alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from kvmodels._support.naming import short_repr
from kvmodels._support.visible import visible_json
from kvmodels.codecs.typed_json import parse_line, value_from_json, value_to_json
from kvmodels.errors import DecodeError, KvModelsError
from kvmodels.schema.definition.definition import Document
from kvmodels.schema.definition.values import COMPUTED, RESERVED_FIELD

DUMP_FORMAT: Final = 1
RECORDS_FORMAT: Final = 2
"""The number of a dump without index entries, which ``kvmodels.flows.transfer`` writes and loads."""

STORE_FORMAT: Final = 3
"""The number of a dump with tenants, which releases without tenants refuse."""

DUMP_MARK: Final = "kvmodels_dump"

_CODECS: Final = ("msgpack", "v8")

Line = str | bytes


def dump_line(content: dict[str, Any], expire_at: int | None = None) -> str:
    """Return a line of JSON, in one line for every program that reads text; with a deadline, if there is one.

    Nothing in it drives the terminal that shows it, as some characters do that JSON allows inside strings.
    """
    if expire_at is not None:
        content["expires_at"] = expire_at
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return visible_json(text) + "\n"


class DumpFrame:
    """The place of a reader in a dump; ``with frame:`` names the present line in the errors of the block.

    Args:
        formats: the numbers of the formats that the reader takes; none if the dump has no first and no last line.
        hint: of the error for a dump that cannot be read.

    Attributes:
        number: of the present line, from 1, which the reader counts.
        keys: the number of keys that were read.
        first: the content of the first line.
    """

    def __init__(self, formats: tuple[int, ...], hint: str) -> None:
        self._formats = formats
        self._hint = hint
        self.rewind()

    def rewind(self) -> None:
        """Expect the first line again."""
        self.number = self.keys = 0
        self.first: Mapping[str, Any] = {}
        self._ended = not self._formats

    def require_beginning(self, line: Line) -> None:
        """Refuse a first line that is not that of a dump, before a store is opened for it. Raises DecodeError."""
        self.number = 1
        with self:
            content = content_of(line)
            if self._formats:
                self._begin_with(content)

    def content(self, line: Line) -> Mapping[str, Any] | None:
        """Return the content of the present line; None for the first and the last one. Raises ValueError."""
        content = content_of(line)
        if self._ended:
            raise ValueError("content after the last line")
        if self.number == 1:
            self._begin_with(content)
            return None
        if "end" in content:
            if content["end"]["keys"] != self.keys:
                raise ValueError(f"{content['end']['keys']} keys were dumped, {self.keys} are there")
            self._ended = True
            return None
        self.keys += 1
        return content

    def _begin_with(self, content: Mapping[str, Any]) -> None:
        number = content.get(DUMP_MARK)
        if type(number) is not int:
            raise ValueError("the first line is not that of a dump")
        if number not in self._formats:
            if number == RECORDS_FORMAT:
                raise ValueError("a dump of some records, which db.load() reads")
            if number == STORE_FORMAT:
                raise ValueError("a dump of a store with tenants, which db.kv.load() reads into an empty store")
            known = f"{'is' if len(self._formats) == 1 else 'are'} {' and '.join(map(str, self._formats))}"
            raise ValueError(f"a dump of format {number}, known {known}")
        codec = content.get("codec", _CODECS[0])
        if codec not in _CODECS:
            raise ValueError(f"a dump of codec {short_repr(codec)}, known are {' and '.join(_CODECS)}")
        self.first = content

    def end(self) -> None:
        """Refuse a dump that is cut off. Raises DecodeError."""
        if not self._ended:
            self.number += 1
            raise self._malformed("the dump is cut off: its last line is missing")

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KvModelsError):
            error.add_note(f"line {self.number} of the dump")
        elif isinstance(error, (ValueError, TypeError, LookupError, AttributeError)):
            raise self._malformed(str(error) or type(error).__name__) from error

    def _malformed(self, reason: str) -> DecodeError:
        return DecodeError("a line of the dump cannot be read", reason=f"line {self.number}: {reason}", hint=self._hint)


def document_content(document: Document) -> dict[str, Any]:
    """Return the items of a line that hold a document."""
    own = _own_of(document)
    if own is None:
        return {"document": value_to_json(document)}
    fields = {name: value for name, value in document.items() if name != RESERVED_FIELD}
    return {"document": value_to_json(fields), "library": value_to_json(own)}


def without_computed(document: Document) -> Document:
    """Return a document without the values of computed columns, which a load computes."""
    own = _own_of(document)
    if own is None or COMPUTED not in own:
        return document
    kept = {name: value for name, value in own.items() if name != COMPUTED}
    fields = {name: value for name, value in document.items() if name != RESERVED_FIELD}
    return fields | ({RESERVED_FIELD: kept} if kept else {})


def _own_of(document: Document) -> Document | None:
    """Return what the library keeps in a document; None if there is nothing, or another program has written it."""
    own: object = document.get(RESERVED_FIELD)
    return cast("Document", own) if type(own) is dict else None


def document_in(content: Mapping[str, Any]) -> Document:
    """Return the document of a line, in this form or, as in older dumps, in one piece. Raises ValueError."""
    value: object = value_from_json(content["document"])
    if type(value) is not dict:
        raise ValueError("a document that is not an object")
    document = cast("Document", value)
    if "library" in content:
        document[RESERVED_FIELD] = value_from_json(content["library"])
    return document


def content_of(line: Line) -> Mapping[str, Any]:
    """Return the object that a line contains. Raises ValueError."""
    content: Any = parse_line(line)
    if not isinstance(content, Mapping):
        raise ValueError("no object")
    return cast("Mapping[str, Any]", content)
