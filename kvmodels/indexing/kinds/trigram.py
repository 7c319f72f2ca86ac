"""Entries of an index of trigrams: a key of group, trigram and primary key, without a value.

Rules of this module: pure. A record has one entry for each distinct trigram of its text, none of a text with fewer than
three characters.
"""

from __future__ import annotations

from typing import Any, Final

from kvmodels.catalog.keyspace import IndexLayout
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import decode_key, encode_part
from kvmodels.errors import InvalidValueError
from kvmodels.indexing.entries import EMPTY_VALUE, StoredRecord
from kvmodels.indexing.kinds.contract import NOTHING, Contents, KindMaintenance
from kvmodels.schema.definition.definition import Document
from kvmodels.schema.definition.values import reader_of
from kvmodels.schema.kinds.trigram import options_of
from kvmodels.schema.words.folding import SIZE, folded, trigrams


class TrigramMaintenance(KindMaintenance):
    """The maintenance of an index of trigrams."""

    def __init__(self, layout: IndexLayout) -> None:
        super().__init__(layout)
        self._text = text = options_of(layout.definition).text
        self._read = reader_of(text)

    def contents(self, record: StoredRecord, codec: ValueCodec) -> Contents:
        """Return the entries of a record; raises InvalidValueError for a value that is not a text."""
        del codec
        layout, document, pk = self.layout, record.document, record.pk
        if not layout.covers(document) or not layout.holds(document):
            return NOTHING
        found = dict.fromkeys(one for text in self._texts(document) for one in trigrams(text))
        if not found:
            return NOTHING
        (head,) = layout.heads(document)[0]
        return Contents({head + encode_part(one) + pk: EMPTY_VALUE for one in found}, fan_out=len(found))

    def has(self, document: Document, pk: bytes, key: bytes) -> bool:
        """Return whether an entry with this key is one of a document, without listing all of them."""
        layout = self.layout
        if not layout.covers(document) or not layout.holds(document):
            return False
        (head,) = layout.heads(document)[0]
        if not key.startswith(head) or not key.endswith(pk):
            return False
        (trigram,) = decode_key(key[len(head) : len(key) - len(pk)])
        if not isinstance(trigram, str) or len(trigram) != SIZE:
            return False
        return any(trigram in text for text in self._texts(document))

    def _texts(self, document: Document) -> list[str]:
        held: Any = self._read(document)
        texts: list[Any] = held or [] if self._text.many else [held]
        return [folded(self._checked(text)) for text in texts if text is not None]

    def _checked(self, text: Any) -> str:
        if isinstance(text, str):
            return text
        raise InvalidValueError(
            "a value is not a text",
            field=self._text.field,
            type=type(text).__name__,
            hint="An index of trigrams holds values of type str.",
        )


MAINTENANCE: Final = TrigramMaintenance
