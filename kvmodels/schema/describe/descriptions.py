"""The values that describe a model: its fields, columns and indexes.

Rules of this module: plain data without functions or classes of the program, so that every value can be compared,
stored as JSON, and made from the catalogue of a store as well as from a class.
"""

from __future__ import annotations

from typing import Literal

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.schema.declare.declarations import Nulls, OnDeleteAction
from kvmodels.schema.declare.on_write import Kind

IndexKind = Literal["index", "unique", "foreign_key", "aggregate"]


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
    """

    name: str
    type: str
    descending: bool = False
    nullable: bool = False
    many: bool = False
    computed: bool = False
    fold: str | None = None


@dataclass(frozen=True, slots=True)
class IndexDescription:
    """The declaration of an index, from a model or from the catalogue of a store.

    Attributes:
        name: its name.
        kind: ``"aggregate"`` for counters; ``"foreign_key"`` for the index of a foreign key; ``"unique"`` or
            ``"index"`` for others.
        columns: its columns in order; for an aggregate index, those that define a group.
        unique: whether at most one record has each combination of values.
        nulls: the treatment of None: ``"distinct"``, ``"skip"`` or ``"equal"``.
        condition: the condition of a partial index as an expression, such as ``"Q(plan='pro')"``; None if every record
            has entries.
        included: the fields whose values each entry contains.
        stores_record: whether each entry contains a copy of the record.
        sums: the fields that an aggregate index adds up.
        references: for a foreign key, the collection of the target; the name of its class while that class is unknown.
        on_delete: for a foreign key, the effect of a removal of the target; otherwise None.
    """

    name: str
    kind: IndexKind
    columns: tuple[ColumnDescription, ...]
    unique: bool = False
    nulls: Nulls = "distinct"
    condition: str | None = None
    included: tuple[str, ...] = ()
    stores_record: bool = False
    sums: tuple[str, ...] = ()
    references: str | None = None
    on_delete: OnDeleteAction | None = None

    def __str__(self) -> str:
        columns = ", ".join(f"-{column.name}" if column.descending else column.name for column in self.columns)
        words = [f"{self.kind} {self.name} ({columns})"]
        words += [f"sums {', '.join(self.sums)}"] if self.sums else []
        words += [f"where {self.condition}"] if self.condition is not None else []
        words += [f"includes {', '.join(self.included)}"] if self.included else []
        words += ["stores the record"] if self.stores_record else []
        words += [f"references {self.references}, on delete {self.on_delete}"] if self.references is not None else []
        return ", ".join(words)


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

    @property
    def time_fields(self) -> tuple[str, ...]:
        """The fields that the library sets at every write."""
        return tuple(field.name for field in self.fields if field.automatic is not None)


show_public_path(ColumnDescription, FieldDescription, IndexDescription, ModelDescription)
