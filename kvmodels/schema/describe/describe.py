"""Models and indexes as plain data, from a class or from the catalogue of a store.

Rules of this module: pure; nothing is read from a store. Descriptions have no functions or classes of the program, so
that they can be compared and stored as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, cast

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.values import StoredAsJson
from kvmodels.schema.compile.polymorphic import collection_schema, view_of
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.declarations import FOLDS, Nulls, OnDeleteAction
from kvmodels.schema.declare.on_write import Kind
from kvmodels.schema.definition.definition import UNRESOLVED, Column, IndexDefinition, ModelSchema
from kvmodels.schema.definition.kinds import KINDS
from kvmodels.schema.definition.values import RESERVED_FIELD, stored_name
from kvmodels.schema.describe.conditions import condition_text
from kvmodels.schema.encryption.blind_values import BLIND_MARK, key_id_of


@dataclass(frozen=True, slots=True)
class FieldDescription:
    """A stored field of a model.

    Attributes:
        name: the name of the field, never an alias.
        type: its type as the catalogue of a store names it, such as ``"str"`` or ``"list[int]"``.
        required: whether a stored record must have it, because the class declares no default.
        nullable: whether it may be None.
        automatic: the function that declares a field set by the library at every write; None for an ordinary field.
    """

    name: str
    type: str
    required: bool
    nullable: bool
    automatic: Kind | None = None


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    """A column of a primary key or of an index.

    Attributes:
        name: the name of a field, of a path such as ``"address.city"``, or of a computed column.
        type: the type of one key part, such as ``"str"``, ``"int"`` or ``"datetime"``.
        descending: whether the index sorts it in descending order.
        nullable: whether it may be None.
        many: whether a record has an entry for each of several values.
        computed: whether a function of the model computes it; also for a case-folded field.
        fold: for a field that a method of str folds, ``"casefold"``, ``"lower"`` or ``"upper"``; otherwise None.
        blind: for an encrypted field, the id of the key of its blind values; None for any other column, and if a
            function folds the field that is not a method of str.
    """

    name: str
    type: str
    descending: bool = False
    nullable: bool = False
    many: bool = False
    computed: bool = False
    fold: str | None = None
    blind: int | None = None


@dataclass(frozen=True, slots=True)
class IndexDescription:
    """The declaration of an index, from a model or from the catalogue of a store.

    Attributes:
        name: its name.
        kind: ``"unique"`` or ``"index"``; ``"foreign_key"`` for the index of a foreign key; ``"aggregate"`` for
            counters, and a word of its own for every other kind of index; ``"unknown"`` for an index in a store that
            this process does not know.
        columns: its columns in order; for an aggregate index and for an index with ``fields``, those of its group.
        unique: whether at most one record has each combination of values.
        nulls: the treatment of None: ``"distinct"``, ``"skip"`` or ``"equal"``.
        condition: the condition of a partial index as an expression, such as ``"Q(plan='pro')"``; None if every record
            has entries.
        included: the fields whose values each entry contains.
        stores_record: whether each entry contains a copy of the record.
        sums: the fields that an aggregate index adds up.
        references: for a foreign key, the collection of the target; the name of its class while that class is unknown.
        on_delete: for a foreign key, the effect of a removal of the target; otherwise None.
        fields: for a kind with lookups of its own, the fields that it indexes within its group.
        options: the options of the declaration that only its kind has.
        declaration: the path of the class that declares it in ``Meta``, such as ``"kvmodels.Index"``; None for the
            index of a foreign key.
        sorts: whether its entries are sorted by its columns, so that conditions and orders on them use the index.
        group: the first of its columns, if the declaration names them as ``group``.
    """

    name: str
    kind: str
    columns: tuple[ColumnDescription, ...]
    unique: bool = False
    nulls: Nulls = "distinct"
    condition: str | None = None
    included: tuple[str, ...] = ()
    stores_record: bool = False
    sums: tuple[str, ...] = ()
    references: str | None = None
    on_delete: OnDeleteAction | None = None
    fields: tuple[str, ...] = ()
    options: Annotated[Mapping[str, Any], StoredAsJson] = field(default_factory=dict[str, Any], hash=False)
    declaration: str | None = None
    sorts: bool = False
    group: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns, with ``-`` for descending order, and of the fields that it indexes."""
        return (*(f"-{column.name}" if column.descending else column.name for column in self.columns), *self.fields)

    def __str__(self) -> str:
        words = [f"{self.kind} {self.name} ({', '.join(self.names)})"]
        words += [f"{name} {_option_text(value)}" for name, value in self.options.items()]
        words += [f"where {self.condition}"] if self.condition is not None else []
        words += [f"includes {', '.join(self.included)}"] if self.included else []
        words += ["stores the record"] if self.stores_record else []
        words += [f"references {self.references}, on delete {self.on_delete}"] if self.references is not None else []
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class HistoryDescription:
    """The declaration of a history, from a model or from the catalogue of a store.

    Attributes:
        keep_seconds: how long a version is kept after it ended; None: for ever.
        exclude: the fields that old versions do not hold.
        only: ``"removed"`` if only removals keep a version; None: all.
        state: in a store, ``"readable"``, ``"write_only"`` until every record was looked at, or ``"dropping"``; None
            for the declaration of a class.
    """

    keep_seconds: float | None = None
    exclude: tuple[str, ...] = ()
    only: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """The declaration of a model class.

    Attributes:
        name: the name of the class.
        collection: the first part of the keys of its records.
        schema_version: ``Meta.schema_version``.
        fields: the stored fields in the order of the class.
        primary_key: the columns of the primary key in order.
        indexes: its indexes in the order of the class.
        hooks: the names of the hook methods that the class has, such as ``"before_insert"``.
        ttl_seconds: ``Meta.ttl``, the lifetime of a new record in seconds; None if records do not expire.
        discriminator: for a class that shares its collection, the field that distinguishes the classes.
        classes: for a class that shares its collection, the names of the classes that its records may have.
        history: the declared history; None if old versions are not kept.
    """

    name: str
    collection: str
    schema_version: int
    fields: tuple[FieldDescription, ...]
    primary_key: tuple[ColumnDescription, ...]
    indexes: tuple[IndexDescription, ...]
    hooks: tuple[str, ...] = ()
    ttl_seconds: float | None = None
    discriminator: str | None = None
    classes: tuple[str, ...] = ()
    history: HistoryDescription | None = None

    @property
    def time_fields(self) -> tuple[str, ...]:
        """The fields that the library sets at every write."""
        return tuple(field.name for field in self.fields if field.automatic is not None)


def describe(model: type[Any]) -> ModelDescription:
    """Return the fields, the primary key, the indexes and the options of a model class as plain data.

    Args:
        model: a class that derives from ``KvModel``; no database is needed.

    Returns:
        The description, without functions and classes. Of a class that shares its collection with others, it has the
        fields that all its objects have. Cost: none.

    Raises:
        ModelDefinitionError: it is not a model class, or it is abstract.

    Examples:
        >>> from kvmodels import Indexed, KvModel, PrimaryKey, Unique
        >>> class User(KvModel, collection="users"):
        ...     id: PrimaryKey[int]
        ...     email: Unique[str]
        ...     age: Indexed[int | None] = None
        >>> [(field.name, field.type, field.required) for field in describe(User).fields]
        [('id', 'int', True), ('email', 'str', True), ('age', 'int | None', False)]
        >>> [str(index) for index in describe(User).indexes]
        ['unique email (email)', 'index age (age)']
    """
    collection = collection_schema(model)
    schema = view_of(collection, model) or collection
    automatic: dict[str, Kind] = {field.name: field.automatic.kind for field in schema.time_fields}
    fields = [
        FieldDescription(name, field.type_name, field.required, name in schema.nullable_fields, automatic.get(name))
        for name, field in schema.fields.items()
    ]
    variants = schema.variants
    return ModelDescription(
        name=schema.name,
        collection=schema.collection,
        schema_version=schema.schema_version,
        fields=tuple(fields),
        primary_key=describe_columns(schema.primary_key),
        indexes=tuple(describe_index(index, _target_of(schema, index)) for index in schema.indexes.values()),
        hooks=() if schema.hooks is None else tuple(name for name, found in schema.hooks._asdict().items() if found),
        ttl_seconds=None if schema.ttl_ms is None else schema.ttl_ms / 1000,
        discriminator=None if variants is None else variants.discriminator,
        classes=() if variants is None else tuple(cls.__name__ for cls in variants.by_class),
        history=None if (kept := schema.history) is None else describe_history(kept.keep_ms, kept.exclude, kept.only),
    )


def describe_history(
    keep_ms: int | None, exclude: Sequence[str], only: str | None, state: str | None = None
) -> HistoryDescription:
    """Return the description of a declared or stored history."""
    return HistoryDescription(None if keep_ms is None else keep_ms / 1000, tuple(exclude), only, state)


def describe_index(index: IndexDefinition, target: str | None) -> IndexDescription:
    """Return the description of a declared or stored index; ``target`` is the collection of a foreign key's target."""
    described = KINDS[index.kind].describe(index)
    declaration = described.declaration
    return IndexDescription(
        name=index.name,
        kind=described.shown,
        columns=describe_columns(index.columns),
        unique=index.unique,
        nulls=index.nulls,
        condition=None if index.where is None else condition_text(index.where),
        included=index.include,
        stores_record=index.copies_record,
        sums=tuple(described.options.get("sums", ())),
        references=target,
        on_delete=None if target is None else index.on_delete,
        fields=described.fields,
        options=dict(described.options),
        declaration=None if declaration is None else f"{declaration.__module__}.{declaration.__qualname__}",
        sorts=described.sorts,
        group=described.group or (index.fields if described.fields else ()),
    )


def _option_text(value: object) -> str:
    return ", ".join(map(str, cast("tuple[object, ...]", value))) if isinstance(value, tuple) else str(value)


def describe_columns(columns: Iterable[Column]) -> tuple[ColumnDescription, ...]:
    """Return the descriptions of columns in order."""
    return tuple(
        ColumnDescription(
            name=column.field,
            type=column.codec.name,
            descending=column.descending,
            nullable=column.nullable,
            many=column.many,
            computed=column.path[:1] == (RESERVED_FIELD,),
            fold=_fold_of(column),
            blind=_blind_of(column),
        )
        for column in columns
    )


def _fold_of(column: Column) -> str | None:
    # Only a fold of the field itself: a named column has its fields in parentheses before the tilde.
    field, _, fold = _name_without_key(column).rpartition("~")
    return fold if field == column.field and fold in FOLDS.values() else None


def _blind_of(column: Column) -> int | None:
    is_of_field = _name_without_key(column) == column.field or _fold_of(column) is not None
    return key_id_of(column) if is_of_field else None


def _name_without_key(column: Column) -> str:
    """Return the name of a computed column, without the id of the key of its blind values."""
    name, key_id = stored_name(column.path) or "", key_id_of(column)
    return name if key_id is None else name.removesuffix(f"{BLIND_MARK}{key_id}")


def _target_of(schema: ModelSchema, index: IndexDefinition) -> str | None:
    """Return the collection of the target of a foreign key, or the name of its class before a database is opened."""
    if index.reference != UNRESOLVED:
        return index.reference
    reference = next(one for one in schema.references.values() if one.index_name == index.name)
    return reference.target if isinstance(reference.target, str) else schema_of(reference.target).collection


show_public_path(describe, ColumnDescription, FieldDescription, HistoryDescription, IndexDescription, ModelDescription)
