"""The declaration of a model as frozen data: fields, primary key, columns and indexes.

Rules of this module: data only; ``schema/compile/model.py`` reads pydantic's classes, ``catalog/keyspace.py`` builds
keys. An index is fully described by ``IndexDefinition.signature()``, so that a process can maintain an index from the
stored catalogue alone.
"""

from __future__ import annotations

from collections.abc import Callable, KeysView, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from json import dumps
from typing import Any, Final, NamedTuple

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.columns.base import ColumnCodec
from kvmodels.schema.declare.declarations import MAX_FAN_OUT, Nulls, Store
from kvmodels.schema.declare.expressions import Order
from kvmodels.schema.declare.on_write import Hooks, TimeField

Document = dict[str, Any]
"""A stored record: field NAME to stored value; see ``FieldStorage``."""


@dataclass(frozen=True, slots=True)
class FieldStorage:
    """Conversion of the value of one field to its stored value and back.

    ``encode`` and ``decode`` are None when the value is stored as it is. ``type_name`` goes into the catalogue.
    ``required`` says that a document without the field cannot be read.
    """

    name: str
    type_name: str
    encode: Callable[[Any], Any] | None
    decode: Callable[[Any], Any] | None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Computed:
    """A column whose value a function makes of fields; the document stores it under ``$kv`` and ``c``.

    A folded field has one of its own name, by whose values it is compared and ordered.

    Attributes:
        name: of the column in queries: the name of the folded field, or the name that its index declares.
        stored_as: the key under ``c``: name, for a named column the fields in parentheses, ``~`` and version, so that
            two versions, or functions of other fields, never share a value.
        of: the fields whose values the function takes, in order.
        function: value or values to the value of the column; for a field with several values, called with each element.
        codec: of the result, ascending, without None.
        many: the column has several values: the folded field has, or the function returns a list.
        to_stored: result to its stored value; None: as it is.
        folds: it belongs to the field ``name``: operands are given to the function too.
    """

    name: str
    stored_as: str
    of: tuple[str, ...]
    function: Callable[..., Any]
    codec: ColumnCodec
    many: bool = False
    to_stored: Callable[[Any], Any] | None = None
    folds: bool = False


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """A value that can be compared and indexed: a field, a field of a nested model, a computed column.

    Attributes:
        name: ``"email"``, ``"address.city"``, or the name of a computed column.
        path: the names to walk through stored maps; for a computed column ``("$kv", "c", stored_as)``.
        codec: of one value, ascending, without None.
        nullable: the value may be None: the field is optional, or a model on the way is.
        many: there may be several values: a list, set, frozenset or ``tuple[T, ...]`` on the way, or at its end.
        computed: how the value is made, if it is computed or folded.
        normalise: folds operands of a folded field before they are compared; None: operands stay as they are.
    """

    name: str
    path: tuple[str, ...]
    codec: ColumnCodec
    nullable: bool = False
    many: bool = False
    computed: Computed | None = None
    normalise: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a primary key or index, with its direction and the codec of its key part.

    Attributes:
        field: name of the field, of a path (``"address.city"``) or of a computed column.
        codec: of one key part; it already includes None handling (``nullable``) and direction.
        many: an entry for each distinct value; None for a field that is None; no entry at all when there is no value.
        path: where the document stores it; ``(field,)`` unless it is nested or computed.
    """

    field: str
    codec: ColumnCodec
    descending: bool = False
    nullable: bool = False
    many: bool = False
    path: tuple[str, ...] = ()

    def signature(self) -> list[Any]:
        """Return the description for the catalogue.

        The fifth item is there only for a column that is no plain field.
        """
        plain = [self.field, self.codec.name, "desc" if self.descending else "asc", self.nullable]
        if self.path in ((), (self.field,)) and not self.many:
            return plain
        return [*plain, {"path": list(self.path or (self.field,)), "many": self.many}]


class SpanTest(NamedTuple):
    """Test whether the value of a column lies in sorted spans of packed parts; see ``schema/filters/predicate.py``.

    ``column`` is ascending, of one value, and holds None if its source does.
    """

    column: Column
    spans: tuple[tuple[bytes, bytes], ...]

    def signature(self) -> list[Any]:
        """Return the description for the catalogue."""
        return [self.column.signature(), [[start.hex(), end.hex()] for start, end in self.spans]]


@dataclass(frozen=True, slots=True)
class Partial:
    """The condition of a partial index: a document must pass every test of at least one alternative.

    Packed spans and not operands, so that a process can maintain the index from the catalogue alone. An alternative has
    one test at least, and at most one per column. ``text`` is the condition as the model declares it, for people.
    """

    alternatives: tuple[tuple[SpanTest, ...], ...]
    text: str = field(default="", compare=False)

    def signature(self) -> list[Any]:
        """Return the description for the catalogue."""
        return [[test.signature() for test in tests] for tests in self.alternatives]


@dataclass(frozen=True, slots=True)
class Aggregates:
    """The sums of an aggregate index, beside the number of records: fields of int or timedelta; None is not added."""

    sums: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """One secondary index: its columns in order and how its entries are kept.

    Attributes:
        where: only documents for which this holds have entries; None: all.
        include: fields whose values each entry holds.
        aggregates: counters per group of columns instead of entries.
        max_fan_out: the most entries of one record, when a column has several values.
    """

    name: str
    columns: tuple[Column, ...]
    unique: bool = False
    nulls: Nulls = "distinct"
    store: Store | None = None
    where: Partial | None = None
    include: tuple[str, ...] = ()
    aggregates: Aggregates | None = None
    max_fan_out: int = MAX_FAN_OUT
    _digest: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        text = dumps(self.signature(), sort_keys=True, separators=(",", ":"))
        object.__setattr__(self, "_digest", sha256(text.encode()).hexdigest()[:16])

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the columns, in order."""
        return tuple(column.field for column in self.columns)

    @property
    def fans_out(self) -> bool:
        """Whether one record may have several entries."""
        return any(column.many for column in self.columns)

    def signature(self) -> dict[str, Any]:
        """Return everything that decides on the bytes of the entries; later kinds of data only where they are used."""
        signature: dict[str, Any] = {
            "columns": [column.signature() for column in self.columns],
            "unique": self.unique,
            "nulls": self.nulls,
            "store": self.store,
        }
        if self.where is not None:
            signature["where"] = self.where.signature()
        if self.include:
            signature["include"] = list(self.include)
        if self.aggregates is not None:
            signature["sums"] = [column.signature() for column in self.aggregates.sums]
        return signature

    def hash(self) -> str:
        """Return a short stable digest of the signature: two definitions with one hash have the same entries."""
        return self._digest


class FastDecoding(NamedTuple):
    """The steps from a document of exactly the declared fields to an object, for readers of many records.

    Attributes:
        names: the declared fields; documents with other ones are left to ``ModelSchema.decode``.
        decoders: functions that are first applied to the values of fields.
        validate: the document to the object.
        schema_version: the version that the document must have.
        marked: documents have a ``$kv``, which must hold nothing but the version and computed columns.
    """

    names: KeysView[str]
    decoders: tuple[tuple[str, Callable[[Any], Any]], ...]
    validate: Callable[..., Any]
    schema_version: int
    marked: bool


@dataclass(frozen=True, slots=True)
class Variants:
    """The classes of one collection, distinguished by the value of one field.

    Attributes:
        by_class: the schema of each class whose objects the model stands for.
        by_tag: the same by the stored value of the discriminator.
        where: predicates that queries of the model add, because the collection may hold other classes, also of other
            programs; empty for the first class, which finds all.
        upgrade: that of the model, if it touches the discriminator, whose new value gives the class.
    """

    discriminator: str
    by_class: Mapping[type[Any], ModelSchema]
    by_tag: Mapping[Any, ModelSchema]
    where: tuple[Any, ...] = ()
    upgrade: Callable[[Document, tuple[Any, ...]], Document] | None = None

    def of_tag(self, tag: Any) -> ModelSchema | None:
        """Return the schema of the class of a stored value of the discriminator; None if it is none of these."""
        return self.by_tag.get(tag) if type(tag) in (str, int, bool, bytes) else None

    def of_document(self, document: Document) -> ModelSchema | None:
        """Return the schema of the class of a stored document; None if it is none of these."""
        return self.of_tag(self.tag_of(document))

    def tag_of(self, document: Document) -> Any:
        """Return the value of the discriminator of a stored document; None if it has none."""
        if self.upgrade is not None:
            document = self.upgrade(document, ())
        return document.get(self.discriminator)


MAX_ORDERS: Final = 1_000
"""The most texts whose orders are kept for a model."""


@dataclass(slots=True)
class CompiledDeclaration:
    """Values that follow from a declaration alone, each made when it is first needed.

    Attributes:
        packers: by field, the function that packs an operand of ``exact``; None where operands need more than that.
        orders: by the text given to ``order_by``, the columns to order by; at most ``MAX_ORDERS``.
        opened: the ``OpenedSchema`` of ``catalog/collection.py``, which lies above this package.
    """

    packers: dict[str, Callable[[Any], bytes] | None] = field(
        default_factory=dict["str", "Callable[[Any], bytes] | None"]
    )
    orders: dict[str, tuple[Order, ...]] = field(default_factory=dict["str", "tuple[Order, ...]"])
    opened: object | None = None


@dataclass(frozen=True, slots=True)
class ModelSchema:
    """A model class compiled for storage; made once per class by ``schema/compile/model.py``.

    Attributes:
        model: the KvModel class (typed as ``type[Any]``, because this module knows no pydantic).
        collection: first part of the key of every record.
        fields: storage of every stored field by field name, in declaration order.
        primary_key: columns of the primary key in declaration order; never nullable, never descending.
        indexes: by index name, in declaration order.
        column_codecs: the ascending codec, without None handling, of every field that can be a column of one value.
        computed: computed columns and folded fields by name; their values are stored in every document.
        source: the column source of a field, a path with dots or a computed column, kept after the first time; None for
            another name, and for a type that cannot be a column.
        schema_version: ``Meta.schema_version``, 1 unless declared.
        ttl_ms: ``Meta.ttl``, the lifetime of a new record in milliseconds; None: no deadline.
        encode: object to document: every field stored, defaults materialised, unknown stored fields added.
        decode: document and primary key values to the validated object and the stored fields that the class does not
            know; DecodeError names that key. The document belongs to the object afterwards.
        primary_key_of: object to the tuple of its primary key values.
        prepare: object to ``PreparedObject`` of ``schema/compile/record_codec.py``: validated again and encoded; the
            object is left as it is.
        accept: puts the values of a ``PreparedObject`` into the object; to be called after the write has succeeded.
        hooks: methods of the class that run before and after a write; None when it has none.
        time_fields: fields that the library sets with every write.
        shape: a pydantic model with the fields that queries may name: the class itself, unless it shares a collection.
        variants: the classes that objects may be of; None: they are of ``model``.
        upgrade: document and primary key values to the document of the declared version, the same one when no upgrade
            is outstanding; None when the model has no upgrades. DecodeError names the key.
        touched: by field, the highest version whose upgrade touches it.
        upgrades_to: the versions that its upgrades lead to.
        fast_decoding: the parts of ``decode`` for a document that needs nothing else; None: objects may be of several
            classes.
        revise: a stored document and new values to the object and its ``PreparedObject``, validated once; or None where
            the document must be decoded first.
        prepare_many: new objects to their ``PreparedBatch``, or None where ``prepare`` must be called for each.
        compiled: values compiled from the declaration when they are first needed.
    """

    model: type[Any]
    name: str
    collection: str
    fields: Mapping[str, FieldStorage]
    primary_key: tuple[Column, ...]
    indexes: Mapping[str, IndexDefinition]
    column_codecs: Mapping[str, ColumnCodec]
    nullable_fields: frozenset[str]
    computed: Mapping[str, Computed]
    source: Callable[[str], ColumnSource | None]
    schema_version: int
    ttl_ms: int | None
    encode: Callable[[Any], Document]
    decode: Callable[[Document, tuple[Any, ...]], tuple[Any, dict[str, Any]]]
    primary_key_of: Callable[[Any], tuple[Any, ...]]
    prepare: Callable[[Any], Any]
    accept: Callable[[Any, Any], None]
    hooks: Hooks | None = None
    time_fields: tuple[TimeField, ...] = ()
    upgrade: Callable[[Document, tuple[Any, ...]], Document] | None = None
    touched: Mapping[str, int] = field(default_factory=dict[str, int])
    upgrades_to: frozenset[int] = frozenset()
    shape: type[Any] = object
    variants: Variants | None = None
    fast_decoding: FastDecoding | None = None
    revise: Callable[[Document, Mapping[str, Any]], Any] | None = None
    prepare_many: Callable[[Sequence[Any]], Any] | None = None
    compiled: CompiledDeclaration = field(default_factory=CompiledDeclaration, init=False, compare=False, repr=False)

    def variant_of(self, instance: object) -> ModelSchema:
        """Return the schema of the very class of an object."""
        return self if self.variants is None else self.variants.by_class.get(instance.__class__, self)
