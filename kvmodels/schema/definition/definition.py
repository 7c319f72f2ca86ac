"""The declaration of a model as immutable data: fields, primary key, columns and indexes.

Rules of this module: data only; ``schema/compile/model.py`` reads pydantic's classes, ``catalog/keyspace.py`` builds
keys. ``IndexDefinition.signature()`` describes an index completely, so that a process can maintain it from the stored
catalogue alone.
"""

from __future__ import annotations

from collections.abc import Callable, KeysView, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from json import dumps
from typing import Any, ClassVar, Final, NamedTuple

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.columns.base import ColumnCodec
from kvmodels.schema.declare.declarations import MAX_FAN_OUT, Nulls, OnDeleteAction, Store
from kvmodels.schema.declare.expressions import Order
from kvmodels.schema.declare.history import History
from kvmodels.schema.declare.on_write import Hooks, TimeField

Document = dict[str, Any]
"""A stored record: a map of field NAMES to stored values; see ``FieldStorage``."""


@dataclass(frozen=True, slots=True)
class FieldStorage:
    """The conversion of one field between its value and its stored value.

    ``encode`` and ``decode`` are None if the value is stored unchanged. ``type_name`` is stored in the catalogue.
    ``required`` means that a document without the field cannot be read.
    """

    name: str
    type_name: str
    encode: Callable[[Any], Any] | None
    decode: Callable[[Any], Any] | None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Computed:
    """A column that a function computes from fields; the document stores its value under ``$kv`` and ``c``.

    A folded field has such a column with its own name, which determines its comparisons and order.

    Attributes:
        name: the name in queries: that of the folded field, or the name that the index declares.
        stored_as: the key under ``c``: the name, for a named column the fields in parentheses, ``~`` and the version.
            So two versions, or functions of different fields, never share a value.
        of: the fields that the function takes, in order.
        function: converts the values to the value of the column; for a field with several values, called with each
            element.
        codec: the codec of the result, ascending, without None.
        many: whether the column has several values, because the folded field has, or because the function returns a
            list.
        folds: whether it folds the field ``name``, so that operands are passed to the function too.
        takes_none: whether the function is called with None too; otherwise the column is None if an argument is.
        blind: of an encrypted field, the id of the key of its blind values; None for any other column.
    """

    name: str
    stored_as: str
    of: tuple[str, ...]
    function: Callable[..., Any]
    codec: ColumnCodec
    many: bool = False
    folds: bool = False
    takes_none: bool = False
    blind: int | None = None


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """A value that can be compared and indexed: a field, a field of a nested model, or a computed column.

    Attributes:
        name: ``"email"``, ``"address.city"``, or the name of a computed column.
        path: the names to follow through stored maps; for a computed column ``("$kv", "c", stored_as)``.
        codec: the codec of one value, ascending, without None.
        nullable: whether the value may be None, because the field or a model along the path is optional.
        many: whether there may be several values: a list, set, frozenset or ``tuple[T, ...]`` along the path or at its
            end.
        computed: the computation, if the column is computed or folded.
        normalise: folds operands of a folded field before they are compared; None: operands are not folded.
        given: of the blind values of an encrypted field, the source of its plain values, as operands are given.
    """

    name: str
    path: tuple[str, ...]
    codec: ColumnCodec
    nullable: bool = False
    many: bool = False
    computed: Computed | None = None
    normalise: Callable[[Any], Any] | None = None
    given: ColumnSource | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a primary key or index, with its direction and the codec of its key part.

    Attributes:
        field: the name of a field, of a path (``"address.city"``) or of a computed column.
        codec: the codec of one key part, which includes None handling (``nullable``) and direction.
        many: whether there is an entry for each distinct value. A field that is None has one entry with None; an empty
            field has none.
        path: the place in the document; ``(field,)`` unless it is nested or computed.
    """

    field: str
    codec: ColumnCodec
    descending: bool = False
    nullable: bool = False
    many: bool = False
    path: tuple[str, ...] = ()

    def signature(self) -> list[Any]:
        """Return the description for the catalogue; only a column that is not a plain field has the fifth item."""
        plain = [self.field, self.codec.name, "desc" if self.descending else "asc", self.nullable]
        if self.path in ((), (self.field,)) and not self.many:
            return plain
        return [*plain, {"path": list(self.path or (self.field,)), "many": self.many}]


class SpanTest(NamedTuple):
    """A test whether the value of a column is within sorted spans of packed parts; see ``schema/filters/predicate.py``.

    ``column`` is ascending, has one value, and is nullable if its source is.
    """

    column: Column
    spans: tuple[tuple[bytes, bytes], ...]

    def signature(self) -> list[Any]:
        """Return the description for the catalogue."""
        return [self.column.signature(), [[start.hex(), end.hex()] for start, end in self.spans]]


@dataclass(frozen=True, slots=True)
class PartialCondition:
    """The condition of a partial index: a document must pass every test of at least one alternative.

    It holds packed spans instead of operands, so that a process can maintain the index from the catalogue alone. An
    alternative has at least one test, and at most one per column. ``text`` is the condition as the model declares it,
    for display.
    """

    alternatives: tuple[tuple[SpanTest, ...], ...]
    text: str = field(default="", compare=False)

    def signature(self) -> list[Any]:
        """Return the description for the catalogue."""
        return [[test.signature() for test in tests] for tests in self.alternatives]


class KindOptions:
    """The options of one kind of index besides those of ``IndexDefinition``, as it declares and stores them.

    Each kind but entries derives an immutable class from it, whose objects are compared by their values.
    """

    kind: ClassVar[str]
    """The name of the kind in the tables of kinds and in signatures."""

    has_counters: ClassVar[bool] = False
    """Whether records add to counters: a build sets each record that it counts, and counters know no deadlines."""

    has_entries: ClassVar[bool] = True
    """Whether the index has entries, which lead to records."""

    fans_out: ClassVar[bool] = False
    """Whether a record may have several entries although no column has several values."""

    key_parts: ClassVar[int] = 0
    """The number of key parts of an entry between the columns and the primary key."""

    omits_none: ClassVar[bool] = False
    """Whether a record with None in a column of its group has no entry."""

    sorted_columns: ClassVar[int] = 0
    """The number of last columns that sort the entries of a group; a record with None in one of them has no entry."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that a document must store besides those that keys begin with."""
        return ()

    @property
    def decimal_places(self) -> Mapping[str, int]:
        """The decimal places of each summed field of type Decimal, by its name."""
        return {}

    @property
    def looked_up(self) -> str | None:
        """The field that lookups of the kind name, such as ``location``; None: they name the index."""
        return None

    def stored(self) -> dict[str, Any]:
        """Return what else determines the bytes of the rows: plain maps, lists, strings and numbers."""
        return {}

    def counter_name(self, parts: tuple[Any, ...]) -> str:
        """Return the name of a counter, by the parts of its key after the group."""
        return str(parts[-1])

    def is_bucket(self, parts: tuple[Any, ...]) -> bool:
        """Return whether a counter has the number of records that a query may have to read one by one."""
        del parts
        return False

    def signature(self) -> dict[str, Any]:
        """Return the items that the kind adds to the signature of an index."""
        options = {"columns": [column.signature() for column in self.columns], **self.stored()}
        return {"kind": self.kind, "options": options}


UNRESOLVED: Final = ""
"""In place of the collection of a target whose class is not known yet; no collection has this name."""


class Reference(NamedTuple):
    """A foreign key: a field that holds the primary key of a record of another model.

    Attributes:
        field: its name.
        index_name: the name of its index.
        target: the model class, or its name where the class is not known yet.
        optional: the field may be None.
        on_delete: the effect of a removal of the target.
    """

    field: str
    index_name: str
    target: type[Any] | str
    optional: bool
    on_delete: OnDeleteAction = "protect"

    @property
    def target_name(self) -> str:
        """The name of the target class."""
        return self.target if isinstance(self.target, str) else self.target.__name__


class Relation(NamedTuple):
    """A many-to-many relation as one of its two models sees it.

    Attributes:
        name: its name in filters of this model.
        links: the schema of the link model.
        own: the foreign key of a link to the records of this model.
        other: the foreign key of a link to the records of the other one.
        declared: whether this model declares it, and not the other one.
    """

    name: str
    links: ModelSchema
    own: str
    other: str
    declared: bool

    def turned(self) -> Relation:
        """Return the relation with its two sides exchanged."""
        return self._replace(own=self.other, other=self.own, declared=not self.declared)


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """One secondary index: its columns in order and how its entries are kept.

    Attributes:
        where: the condition for documents to have entries; None: all documents have.
        include: the fields whose values are copied into each entry.
        options: what belongs to its kind; None for entries of columns, unique or not.
        max_fan_out: the maximum number of entries of one record, if a column has several values.
        reference: of the index of a foreign key, the collection of the target; ``UNRESOLVED`` until a database is
            opened, for a target that is given by its name.
        on_delete: of the index of a foreign key, the effect of a removal of the target; not a part of the signature,
            because entries do not depend on it.
        copies_record: whether each entry contains a copy of its record, with the versionstamp of the record.
        skips_none: whether a record with None in a column has no entry.
        repeats_none: whether any number of records may have None in a column, also if the index is unique.
    """

    name: str
    columns: tuple[Column, ...]
    unique: bool = False
    nulls: Nulls = "distinct"
    store: Store | None = None
    where: PartialCondition | None = None
    include: tuple[str, ...] = ()
    options: KindOptions | None = None
    max_fan_out: int = MAX_FAN_OUT
    reference: str | None = None
    on_delete: OnDeleteAction = "protect"
    copies_record: bool = field(init=False, repr=False, compare=False)
    skips_none: bool = field(init=False, repr=False, compare=False)
    repeats_none: bool = field(init=False, repr=False, compare=False)
    _digest: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        text = dumps(self.signature(), sort_keys=True, separators=(",", ":"))
        object.__setattr__(self, "_digest", sha256(text.encode()).hexdigest()[:16])
        # Values, because a property would slow down every write.
        object.__setattr__(self, "copies_record", self.store is not None)
        object.__setattr__(self, "skips_none", self.nulls == "skip")
        object.__setattr__(self, "repeats_none", self.nulls == "distinct")

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the columns, in order."""
        return tuple(column.field for column in self.columns)

    @property
    def entry_columns(self) -> tuple[Column, ...]:
        """The columns that entries are made of: those of keys, and those of the kind."""
        return self.columns if self.options is None or not self.has_entries else self.columns + self.options.columns

    @property
    def needed_columns(self) -> tuple[Column, ...]:
        """The columns, those of the condition, and those of the kind, such as sums."""
        alternatives = () if self.where is None else self.where.alternatives
        others = () if self.options is None else self.options.columns
        return (*self.columns, *(test.column for tests in alternatives for test in tests), *others)

    @property
    def kind(self) -> str:
        """The name of its kind, as in the tables of kinds."""
        return "entries" if self.options is None else self.options.kind

    @property
    def declared_name(self) -> str:
        """The name that its declaration gives it; without the ids of the keys of blind values."""
        return self.name.partition("~")[0]

    @property
    def lookup_name(self) -> str:
        """The name that the lookups of its kind go by: a field, or the name of the index."""
        field = None if self.options is None else self.options.looked_up
        return self.name if field is None else field

    @property
    def group(self) -> tuple[Column, ...]:
        """The columns of its group: all of them, except those that sort the entries of a group."""
        return self.columns if self.options is None else self.columns[: len(self.columns) - self.options.sorted_columns]

    def omits_none(self, column: Column) -> bool:
        """Return whether a record has no entry because this column of it is None."""
        omits = self.skips_none or (self.options is not None and self.options.omits_none)
        return column.nullable and (omits or column in self.columns[len(self.group) :])

    @property
    def has_counters(self) -> bool:
        """Whether it has counters, so that its records have no deadlines and a build sets each of them."""
        return self.options is not None and self.options.has_counters

    @property
    def has_entries(self) -> bool:
        """Whether it has entries, which lead to records."""
        return self.options is None or self.options.has_entries

    @property
    def has_every_record(self) -> bool:
        """Whether each record has one entry in the order of the columns, which ends with its primary key."""
        is_whole = self.options is None and not self.unique and self.where is None
        return is_whole and not self.skips_none and not self.fans_out

    @property
    def fans_out(self) -> bool:
        """Whether one record may have several entries."""
        return any(column.many for column in self.columns) or (self.options is not None and self.options.fans_out)

    def signature(self) -> dict[str, Any]:
        """Return everything that determines the bytes of the entries; newer items only if they are used."""
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
        if self.options is not None:
            signature.update(self.options.signature())
        if self.reference is not None:
            signature["reference"] = self.reference
        return signature

    def hash(self) -> str:
        """Return a short stable digest of the signature: definitions with equal hashes have equal entries."""
        return self._digest


class FastDecoding(NamedTuple):
    """The steps from a document of exactly the declared fields to an object, for readers of many records.

    Attributes:
        names: the declared fields; ``ModelSchema.decode`` handles documents with other fields.
        decoders: functions to apply first to the values of fields.
        validate: converts the document to the object.
        schema_version: the version that the document must have.
        marked: whether documents have a ``$kv``, which must contain nothing but the version and computed columns.
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
        by_class: the schema of each class whose objects the model includes.
        by_tag: the same, by the stored value of the discriminator.
        where: predicates that queries of the model add, because the collection may contain other classes, also of other
            programs; empty for the first class, which includes all.
        upgrade: the upgrade function of the model, if it changes the discriminator, whose new value determines the
            class.
    """

    discriminator: str
    by_class: Mapping[type[Any], ModelSchema]
    by_tag: Mapping[Any, ModelSchema]
    where: tuple[Any, ...] = ()
    upgrade: Callable[[Document, tuple[Any, ...]], Document] | None = None

    def of_tag(self, tag: Any) -> ModelSchema | None:
        """Return the schema of the class with a stored discriminator value; None if it is none of these classes."""
        return self.by_tag.get(tag) if type(tag) in (str, int, bool, bytes) else None

    def of_document(self, document: Document) -> ModelSchema | None:
        """Return the schema of the class of a stored document; None if it is none of these classes."""
        return self.of_tag(self.tag_of(document))

    def tag_of(self, document: Document) -> Any:
        """Return the discriminator value of a stored document; None if it has none."""
        if self.upgrade is not None:
            document = self.upgrade(document, ())
        return document.get(self.discriminator)


MAX_ORDERS: Final = 1_000
"""The maximum number of cached orders of a model."""


Validate = Callable[[Any], Any]
"""Returns an operand as a field stores it; unchanged if the type of the field refuses it."""


@dataclass(slots=True)
class CompiledDeclaration:
    """Values derived from a declaration, each computed at first use.

    Attributes:
        packers: for each field, the function that packs an operand of ``exact``; None if operands need more conversion.
        validators: for each column, the validation of operands of equality; None if its type changes no value.
        whole_validators: for each field that is compared as a whole, the validation of operands.
        orders: for each str given to ``order_by``, the columns to order by; at most ``MAX_ORDERS``.
        kind_keywords: the keywords of the lookups that kinds of indexes add, each with its name, lookup and index.
        resolved: for the collections and classes that the foreign keys lead to, the schema with these targets.
        links: the link models that were made for many-to-many relations, by name of the relation and by target.
        opened: the ``OpenedSchema`` of ``catalog/collection.py``, a higher package.
        projectors: the projectors of a schema with a sealer, by their fields.
    """

    packers: dict[str, Callable[[Any], bytes] | None] = field(
        default_factory=dict["str", "Callable[[Any], bytes] | None"]
    )
    validators: dict[str, Validate | None] = field(default_factory=dict["str", "Validate | None"])
    whole_validators: dict[str, Validate] = field(default_factory=dict["str", "Validate"])
    orders: dict[str, tuple[Order, ...]] = field(default_factory=dict["str", "tuple[Order, ...]"])
    kind_keywords: dict[str, tuple[str, str, str]] | None = None
    resolved: dict[tuple[tuple[str, type[Any]], ...], ModelSchema] = field(
        default_factory=dict["tuple[tuple[str, type[Any]], ...]", "ModelSchema"]
    )
    links: dict[tuple[str, type[Any]], type[Any]] = field(default_factory=dict["tuple[str, type[Any]]", "type[Any]"])
    opened: object | None = None
    projectors: dict[tuple[str, ...], Any] = field(default_factory=dict["tuple[str, ...]", Any])


@dataclass(frozen=True, slots=True)
class ModelSchema:
    """A model class compiled for storage; created once per class by ``schema/compile/model.py``.

    Attributes:
        model: the KvModel class (typed ``type[Any]``, because this module does not depend on pydantic).
        collection: the first part of the key of every record.
        fields: the storage of every stored field by field name, in declaration order.
        primary_key: the columns of the primary key in declaration order; never nullable, never descending.
        indexes: the definitions by index name, in declaration order.
        column_codecs: the ascending codec, without None handling, of every field that can be a column with one value.
        computed: computed columns and folded fields by name; their values are stored in every document.
        source: returns the column source of a field, a path with dots or a computed column, cached after the first
            call; None for another name, and for a type that cannot be a column.
        schema_version: ``Meta.schema_version``, 1 by default.
        ttl_ms: ``Meta.ttl``, the lifetime of a new record in milliseconds; None: no deadline.
        decode: converts a document and primary key values to the validated object and the stored fields that the class
            does not declare; DecodeError names the key. The document belongs to the object afterwards.
        primary_key_of: returns the tuple of primary key values of an object.
        prepare: converts an object to a ``PreparedObject`` of ``schema/compile/record_codec.py``, validated again; its
            document has every field, materialised defaults and unknown stored fields. The object is unchanged.
        accept: copies the values of a ``PreparedObject`` to the object; call it after the write has succeeded.
        hooks: the methods of the class that run before and after a write; None if it has none.
        time_fields: the fields that the library sets at every write.
        automatic_key: the field of the primary key, if the store gives out its values.
        history: the declared history (``schema/declare/history.py``); None if old versions are not kept.
        blobs: the names of the fields of the type ``Blob``.
        shape: a pydantic model with the fields that queries may name: the class itself, unless it shares a collection.
        variants: the classes that objects may have; None: only ``model``.
        upgrade: converts a document and primary key values to a document of the declared version, the same document if
            no upgrade is outstanding; None if the model has no upgrades. DecodeError names the key.
        touched: for each field, the highest version whose upgrade changes it.
        upgrades_to: the versions that have an upgrade.
        fast_decoding: the steps of ``decode`` for a document that needs no others; None if objects may have several
            classes.
        revise: converts a stored document and new values to the object and its ``PreparedObject``, validated once; None
            if the document must be decoded first.
        prepare_many: converts new objects to a ``PreparedBatch``; None if ``prepare`` must be called for each.
        ordering: ``Meta.ordering``, the order of query sets without another one; empty if there is none.
        references: the foreign keys by field.
        targets: the schemas of their targets by field; none before a database is opened.
        relations: the many-to-many relations by name, of both sides; none before a database is opened.
        encrypted: the fields whose values are encrypted in the store.
        sealer: seals and opens them with the keys of a database (``schema/encryption/documents.py``); None before a
            database is opened, and in one without keys and encrypted fields.
        compiled: values compiled from the declaration at first use.
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
    decode: Callable[[Document, tuple[Any, ...]], tuple[Any, dict[str, Any]]]
    primary_key_of: Callable[[Any], tuple[Any, ...]]
    prepare: Callable[[Any], Any]
    accept: Callable[[Any, Any], None]
    hooks: Hooks | None = None
    time_fields: tuple[TimeField, ...] = ()
    automatic_key: str | None = None
    history: History | None = None
    blobs: tuple[str, ...] = ()
    upgrade: Callable[[Document, tuple[Any, ...]], Document] | None = None
    touched: Mapping[str, int] = field(default_factory=dict[str, int])
    upgrades_to: frozenset[int] = frozenset()
    shape: type[Any] = object
    variants: Variants | None = None
    fast_decoding: FastDecoding | None = None
    revise: Callable[[Document, Mapping[str, Any]], Any] | None = None
    prepare_many: Callable[[Sequence[Any]], Any] | None = None
    ordering: tuple[Order, ...] = ()
    references: Mapping[str, Reference] = field(default_factory=dict[str, Reference])
    targets: dict[str, ModelSchema] = field(default_factory=dict[str, "ModelSchema"], compare=False, repr=False)
    relations: dict[str, Relation] = field(default_factory=dict[str, Relation], compare=False, repr=False)
    encrypted: tuple[str, ...] = ()
    sealer: Any = field(default=None, compare=False, repr=False)
    compiled: CompiledDeclaration = field(default_factory=CompiledDeclaration, init=False, compare=False, repr=False)

    def variant_of(self, instance: object) -> ModelSchema:
        """Return the schema of the exact class of an object."""
        return self if self.variants is None else self.variants.by_class.get(instance.__class__, self)
