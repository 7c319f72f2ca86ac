"""What a model declares, as frozen data: fields, primary key, columns and indexes.

Rules of this module: data only, nothing is read from pydantic here (``schema/model.py`` does that) and no key is
built here (``schema/keyspace.py`` does). An index is fully described by ``IndexDefinition.signature()``, so that a
process can maintain an index from the stored catalogue alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from json import dumps
from typing import Any, Literal

from kvmodels.encoding.columns import ColumnCodec

__all__ = ["Column", "FieldStorage", "IndexDefinition", "ModelSchema", "Nulls", "Store"]

Nulls = Literal["distinct", "skip", "equal"]
Store = Literal["record"]
Document = dict[str, Any]
"""A stored record: field NAME to stored value; see ``FieldStorage``."""


@dataclass(frozen=True, slots=True)
class FieldStorage:
    """How the value of one field is stored: Python value to stored value and back.

    ``encode`` and ``decode`` are None when the value is stored as it is. ``type_name`` goes into the catalogue.
    """

    name: str
    type_name: str
    encode: Callable[[Any], Any] | None
    decode: Callable[[Any], Any] | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a primary key or index: a field, its direction and the codec of its key part.

    ``codec`` already includes None handling (``nullable``) and direction.
    """

    field: str
    codec: ColumnCodec
    descending: bool = False
    nullable: bool = False

    def signature(self) -> list[Any]:
        """The description that the catalogue stores."""
        return [self.field, self.codec.name, "desc" if self.descending else "asc", self.nullable]


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """One secondary index: its columns in order and how its entries are kept."""

    name: str
    columns: tuple[Column, ...]
    unique: bool = False
    nulls: Nulls = "distinct"
    store: Store | None = None
    _digest: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        text = dumps(self.signature(), sort_keys=True, separators=(",", ":"))
        object.__setattr__(self, "_digest", sha256(text.encode()).hexdigest()[:16])

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the columns, in order."""
        return tuple(column.field for column in self.columns)

    def signature(self) -> dict[str, Any]:
        """Everything that decides on the bytes of the entries, as plain data."""
        return {
            "columns": [column.signature() for column in self.columns],
            "unique": self.unique,
            "nulls": self.nulls,
            "store": self.store,
        }

    def hash(self) -> str:
        """A short stable digest of the signature: two definitions with one hash have the same entries."""
        return self._digest


@dataclass(frozen=True, slots=True)
class ModelSchema:
    """A model class compiled for storage; made once per class by ``schema/model.py``.

    Attributes:
        model: the KvModel class (typed as ``type[Any]``, because this module knows no pydantic).
        collection: first part of the key of every record.
        fields: storage of every stored field by field name, in declaration order.
        primary_key: columns of the primary key in declaration order; never nullable, never descending.
        indexes: by index name, in declaration order.
        column_codecs: the ascending codec, without None handling, of every field that can be a column.
        schema_version: ``Meta.schema_version``, 1 unless declared.
        ttl_ms: ``Meta.ttl``, the lifetime of a new record in milliseconds; None for ever.
        encode: object to document: every field stored, defaults materialised, unknown stored fields added.
        decode: document and primary key values to the validated object and the stored fields that the class does not
            know; DecodeError names that key. The document belongs to the object afterwards.
        primary_key_of: object to the tuple of its primary key values.
        prepare: object to ``Prepared`` (values, extra, document, primary_key) of ``schema/record_codec.py``: validated
            again and encoded; the object is left as it is.
        accept: puts the values of a ``Prepared`` into the object; to be called after the write has succeeded.
    """

    model: type[Any]
    name: str
    collection: str
    fields: Mapping[str, FieldStorage]
    primary_key: tuple[Column, ...]
    indexes: Mapping[str, IndexDefinition]
    column_codecs: Mapping[str, ColumnCodec]
    nullable_fields: frozenset[str]
    schema_version: int
    ttl_ms: int | None
    encode: Callable[[Any], Document]
    decode: Callable[[Document, tuple[Any, ...]], tuple[Any, dict[str, Any]]]
    primary_key_of: Callable[[Any], tuple[Any, ...]]
    prepare: Callable[[Any], Any]
    accept: Callable[[Any, Any], None]
