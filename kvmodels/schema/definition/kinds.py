"""The definition of one kind of index: its declaration, its stored description, and the columns that it needs.

A kind has up to three modules of one name: ``schema/kinds`` has its definition, ``indexing/kinds`` its maintenance,
``query/kinds`` its access. A table in each layer names them by module path, so a kind is loaded only where a
declaration or a stored index uses it.

Rules of this module: pure. What a kind stores besides the options of ``IndexDefinition`` is a ``KindOptions`` of its
own. A signature has ``kind`` and ``options``, except those of entries and counters, which are older than the home of
kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from kvmodels._support.lazy_modules import ModuleTable
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.declare.annotations import Plain
from kvmodels.schema.declare.declarations import MAX_FAN_OUT, DeclaredIndex
from kvmodels.schema.definition.definition import Column, ColumnSource, IndexDefinition, KindOptions, ModelSchema
from kvmodels.schema.definition.kind_lookup import KindLookup

Draw = Callable[[int, int], int]
"""Returns a random number within two bounds."""

ColumnsOf = Callable[[Iterable[Any]], tuple[Column, ...]]
"""Returns columns from their stored descriptions; raises ValueError for an unknown one."""


class DeclaringModel(Protocol):
    """The model whose index is compiled, without its indexes."""

    @property
    def schema(self) -> ModelSchema:
        """The schema of the model, which knows every column by name."""
        ...

    @property
    def fields(self) -> Mapping[str, Plain]:
        """Its fields, by name."""
        ...

    def error(
        self, message: str, field: str | None, option: str, hint: str, suggestion: str | None = None
    ) -> ModelDefinitionError:
        """Return the error for a declaration; ``option`` is the declaration as text."""
        ...


class KindDescription(NamedTuple):
    """The description of an index as its kind gives it, for descriptions and for declarations as source text.

    Attributes:
        shown: the kind, ``IndexDescription.kind``.
        declaration: the class that declares it in ``Meta``; None: ``Meta`` declares no such index.
        fields: the fields that the declaration names besides ``group``; empty if its fields are the columns.
        options: the other options of the declaration that its kind alone has.
        sorts: whether entries are sorted by the columns, so that conditions and orders on the columns use them.
        group: the first columns, if the declaration names them as ``group`` and the others as its fields.
    """

    shown: str
    declaration: type[DeclaredIndex] | None
    fields: tuple[str, ...] = ()
    options: Mapping[str, Any] = MappingProxyType({})
    sorts: bool = False
    group: tuple[str, ...] = ()


class KindDefinition(ABC):
    """The definition of one kind of index; one object for each kind."""

    declaration: ClassVar[type[DeclaredIndex] | None] = None
    """The class that declares an index of the kind in ``Meta``."""

    shown: ClassVar[str] = "index"
    """The kind in descriptions, ``IndexDescription.kind``."""

    max_fan_out: ClassVar[int] = MAX_FAN_OUT
    """The maximum number of distinct values of a record, unless the declaration says another one."""

    fans_out: ClassVar[bool] = False
    """Whether a record may have several entries although no column has several values."""

    has_entries: ClassVar[bool] = True
    """Whether its indexes have rows below the prefix of entries."""

    has_counters: ClassVar[bool] = False
    """Whether its indexes have rows below the prefix of counters."""

    without_counters: ClassVar[str | None] = None
    """The option of a declaration without counters, for hints; None: its indexes always have them, or never."""

    items: ClassVar[frozenset[str]] = frozenset({"kind", "options"})
    """The items of a signature that belong to the kind."""

    lookups: ClassVar[Mapping[str, KindLookup]] = MappingProxyType({})
    """The lookups that the kind adds to ``filter()``, by name."""

    narrowed: ClassVar[frozenset[str]] = frozenset()
    """The ordinary lookups of a text whose matches have certain entries in an index of the kind; see ``implied``."""

    implied_lookups: ClassVar[Mapping[str, KindLookup]] = MappingProxyType({})
    """The conditions that the planner adds for them, by name; no keyword has such a name."""

    names_field: ClassVar[bool] = False
    """Whether lookups name the field of an index, ``KindOptions.looked_up``."""

    def line(self, name: str) -> str | None:
        """Return a declaration whose lookups go by this name of a field or index, for hints; None if there is none."""
        del name
        return None

    def implied(self, lookup: str, operand: Any) -> tuple[str, Sequence[Any]]:
        """Return one of ``implied_lookups``, and the operands with which every match of a narrowed lookup satisfies it.

        No operands: the index does not serve the lookup.
        """
        del lookup, operand
        return "", ()

    def why_no_entry(self, name: str) -> str:
        """Return why the index of a field does not serve an operand of a narrowed lookup, for hints."""
        return f"the index of {name!r} has no entries for this operand"

    def column_names(self, declared: Any) -> tuple[str, ...]:
        """Return the columns that keys begin with, a leading ``-`` for descending order."""
        names: tuple[str, ...] = declared.fields
        return names

    def computed(self, declared: Any, model: str, fields: Mapping[str, Plain]) -> ColumnSource | None:
        """Return the computed column that an index needs, by whose name ``compile`` finds it; None: it needs none.

        Called before ``compile``, with the annotations of the fields of the model; no error of the declaration is its.
        """
        del declared, model, fields
        return None

    def default_name(self, columns: Sequence[Column], declared: Any) -> str:
        """Return the name of an index that is declared without one."""
        del declared
        return "_".join(column.field.replace(".", "_") for column in columns)

    @abstractmethod
    def compile(
        self, declared: Any, columns: tuple[Column, ...], text: str, model: DeclaringModel
    ) -> Mapping[str, Any]:
        """Return the arguments of ``IndexDefinition`` for a declaration: ``options``, and what else is its own.

        Raises ModelDefinitionError that names model, field and index; ``text`` is the declaration.
        """

    @abstractmethod
    def from_signature(self, stored: Mapping[str, Any], columns_of: ColumnsOf) -> KindOptions | None:
        """Return the options in a signature; raises KeyError, TypeError or ValueError for unknown ones."""

    def describe(self, index: IndexDefinition) -> KindDescription:
        """Return the description of an index; an option has the name under which it is stored."""
        options = index.options
        assert options is not None, "entries have a description of their own"
        fields = tuple(dict.fromkeys(column.field for column in options.columns))
        return KindDescription(self.shown, self.declaration, fields, options.stored())

    def fitted(self, options: Any, values: Mapping[str, Any], free: Collection[str], draw: Draw) -> Mapping[str, Any]:
        """Return other values for ``free`` fields of a random record, which an index could not hold as it is."""
        del options, values, free, draw
        return {}

    def described_columns(self, stored: Mapping[str, Any]) -> Iterable[list[Any]]:
        """Return the stored descriptions of the columns of the options in a signature."""
        described: Iterable[list[Any]] = stored["options"]["columns"]
        return described


class GroupedKind(KindDefinition):
    """The definition of a kind whose keys begin with the fields of a group.

    Attributes:
        suffix: what a name that is not declared ends with, after the names of group and fields.
    """

    suffix: ClassVar[tuple[str, ...]] = ()

    def column_names(self, declared: Any) -> tuple[str, ...]:
        """Return the fields of the group."""
        names: tuple[str, ...] = declared.group
        return names

    def default_name(self, columns: Sequence[Column], declared: Any) -> str:
        """Return the names of group and fields, and the suffix, joined by ``_``."""
        del columns
        return "_".join(name.replace(".", "_") for name in (*declared.group, *declared.fields, *self.suffix))


KINDS: Final = ModuleTable[KindDefinition](
    "KIND",
    {
        "entries": "kvmodels.schema.kinds.entries",
        "counters": "kvmodels.schema.kinds.counters",
        "geo": "kvmodels.schema.kinds.geo",
        "interval": "kvmodels.schema.kinds.interval",
        "rank": "kvmodels.schema.kinds.rank",
        "search": "kvmodels.schema.kinds.search",
        "trigram": "kvmodels.schema.kinds.trigram",
        "exclusion": "kvmodels.schema.kinds.exclusion",
        "vector": "kvmodels.schema.kinds.vector",
    },
)
"""The definition of each kind, by its name."""


def kind_in(signature: Mapping[str, Any]) -> str:
    """Return the name of the kind of a signature, which this release may not know."""
    named: str = signature.get("kind", "counters" if "sums" in signature else "entries")
    return named


def kind_of(declared: DeclaredIndex) -> KindDefinition:
    """Return the kind of a declaration in ``Meta``."""
    return KINDS[declared.kind]
