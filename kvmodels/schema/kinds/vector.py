"""The index of vectors: its declaration and its options.

Rules of this module: pure. The index has no lookups: ``similar()`` ranks by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, ClassVar, Final, Literal, Never, get_args

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.columns.scalars import BYTES
from kvmodels.errors import InvalidValueError, UnsupportedError
from kvmodels.schema.compile.columns import column_of, naming, nearest, value_at
from kvmodels.schema.declare.annotations import Stored
from kvmodels.schema.declare.declarations import DeclaredIndex
from kvmodels.schema.declare.expressions import Expression
from kvmodels.schema.definition.definition import Column, ColumnSource, IndexDefinition, KindOptions
from kvmodels.schema.definition.kinds import ColumnsOf, DeclaringModel, GroupedKind
from kvmodels.schema.vectors.distances import METRICS
from kvmodels.schema.vectors.stores import STORES
from kvmodels.schema.vectors.vector import LONGEST, Vector, VectorLength

Metric = Literal["cosine", "l2", "dot"]
VectorStore = Literal["float32", "float16", "int8"]


class VectorIndex(DeclaredIndex):
    """An index of vectors, such as embeddings, which finds the records with the most similar ones.

    ``similar("by_meaning", vector)[:10]`` returns the ten records whose vectors are nearest, with their distances. It
    is exact: it reads every entry of the group, or those of the records that another index finds for the filter.
    It needs numpy: ``pip install 'kvmodels[vector]'``.

    Args:
        fields: the field of type ``Vector``, or the path to one, such as ``"text.embedding"``. A record whose field is
            None has no entry.
        dim: the number of components; that of the field, ``Vector[384]``, unless given.
        metric: ``"cosine"``, ``"l2"`` for Euclidean distance, or ``"dot"`` for the negated dot product.
        store: how an entry stores its vector: ``"float32"``, or smaller as ``"float16"`` or ``"int8"``. The results are
            the same, because the vectors of the records decide.
        group: the field, or fields, that a query must fix, such as ``"org"``.
        name: name of the index; by default the names of group and field, joined by ``_``.
        where: a condition; only records that satisfy it have an entry.

    Raises:
        ModelDefinitionError: not one field, a repeated field, or an invalid option.

    Examples:
        >>> VectorIndex("embedding", dim=384, store="int8", group="org", name="by_meaning")
        VectorIndex('embedding', dim=384, metric='cosine', store='int8', name='by_meaning', group=('org',))
    """

    kind = "vector"
    _shown = ("dim", "metric", "store", "name")

    def __init__(
        self,
        *fields: str,
        dim: int | None = None,
        metric: Metric = "cosine",
        store: VectorStore = "float32",
        group: str | Sequence[str] = (),
        name: str | None = None,
        where: Expression | None = None,
        **unknown: Never,
    ) -> None:
        self._refuse_unknown(unknown)
        self._declare_grouped(fields, group, name, where)
        if len(fields) != 1:
            raise self._error(
                "an index of vectors has one field",
                ", ".join(map(repr, fields)),
                'Name the field that is a Vector, and put others into the group: VectorIndex("embedding", '
                'group="org").',
            )
        self._refuse_directions(fields)
        if dim is not None and (type(dim) is not int or not 1 <= dim <= LONGEST):
            raise self._invalid("dim", dim, f"dim is a whole number from 1 to {LONGEST:,}.")
        if metric not in get_args(Metric):
            raise self._invalid("metric", metric, f"metric is one of {', '.join(get_args(Metric))}.")
        if store not in get_args(VectorStore):
            raise self._invalid("store", store, f"store is one of {', '.join(get_args(VectorStore))}.")
        self.dim = dim
        self.metric = metric
        self.store = store


@dataclass(frozen=True, slots=True)
class VectorOptions(KindOptions):
    """The column of the vector, the number of its components, the metric, and the form of entries."""

    kind = "vector"

    vector: Column
    dim: int
    metric: str
    store: str

    @property
    def columns(self) -> tuple[Column, ...]:
        """The bytes of the vector."""
        return (self.vector,)

    @property
    def field(self) -> str:
        """The field of the vector, or the path to it."""
        return self.vector.field

    def stored(self) -> dict[str, Any]:
        """Return the number of components, the metric and the form."""
        return {"dim": self.dim, "metric": self.metric, "store": self.store}


def options_of(definition: IndexDefinition) -> VectorOptions:
    """Return the options of an index of vectors."""
    options = definition.options
    assert isinstance(options, VectorOptions), "an index of another kind"
    return options


def require_comparable(options: VectorOptions, length: int, *, is_zero: bool) -> None:
    """Refuse a vector of another length, and zeros for cosine.

    Raises:
        InvalidValueError: names the field.
    """
    if length != options.dim:
        raise InvalidValueError(
            "a vector has another number of components than its index",
            field=options.field,
            type="Vector",
            hint=f"It has {length:,} numbers, and the index takes {options.dim:,}: use vectors of one model.",
        )
    if is_zero and options.metric == "cosine":
        raise InvalidValueError(
            "a vector of zeros has no direction to compare",
            field=options.field,
            type="Vector",
            hint='Store None in its place, or declare the index with metric="l2" or metric="dot".',
        )


def vector_of(options: VectorOptions, given: Any) -> Vector:
    """Return a vector that can be compared with those of an index. Raises InvalidValueError that names the field."""
    try:
        vector = given if isinstance(given, Vector) else Vector(given)
    except InvalidValueError as error:
        error.field = options.field
        raise
    require_comparable(options, len(vector), is_zero=not any(vector))
    return vector


class VectorKind(GroupedKind):
    """The definition of an index of vectors."""

    declaration: ClassVar[type[DeclaredIndex] | None] = VectorIndex
    shown: ClassVar[str] = "vector"

    def compile(
        self, declared: VectorIndex, columns: tuple[Column, ...], text: str, model: DeclaringModel
    ) -> Mapping[str, Any]:
        """Return the column of the vector, and its options. Raises UnsupportedError without numpy."""
        del columns
        (name,) = declared.fields
        column, length = _vector_at(name, text, model)
        if declared.dim is None and length is None:
            hint = f'Write VectorIndex("{name}", dim=384), or declare the field as Vector[384].'
            raise model.error("an index of vectors does not know their length", name, text, hint)
        if declared.dim is not None and length not in (None, declared.dim):
            hint = f"The field takes vectors of {length:,} numbers: leave out dim=."
            raise model.error("an index of vectors has another length than its field", name, text, hint)
        require_numpy()
        dim = declared.dim if declared.dim is not None else length
        return {"options": VectorOptions(column, dim or 0, declared.metric, declared.store)}

    def from_signature(self, stored: Mapping[str, Any], columns_of: ColumnsOf) -> VectorOptions:
        """Return the options in a signature."""
        options = stored["options"]
        (column,) = columns_of(options["columns"])
        found = VectorOptions(column, options["dim"], options["metric"], options["store"])
        is_valid = type(found.dim) is int and 1 <= found.dim <= LONGEST
        known = found.metric in METRICS and found.store in STORES and set(options) <= {"columns", *found.stored()}
        if not is_valid or not known or column.codec.name != "bytes" or column.many:
            raise ValueError("an index of vectors of another form")
        return found


def require_numpy() -> None:
    """Raise UnsupportedError if numpy is not installed; it is not imported."""
    if find_spec("numpy") is None:
        raise UnsupportedError(
            "an index of vectors needs a package that is not installed",
            reason="numpy",
            hint="Install it: pip install 'kvmodels[vector]'.",
        )


def _vector_at(name: str, text: str, model: DeclaringModel) -> tuple[Column, int | None]:
    """Return the column of the bytes of a vector, and the length in its annotation."""
    found = value_at(model.fields, name)
    if found is None:
        suggestion = nearest(model.fields, model.schema.computed, name)
        hint = "Use the name of a field of type Vector."
        raise model.error("an index names a field that does not exist", name, text, hint, suggestion)
    inner, is_nullable = found
    if inner.annotation is not Vector or any(isinstance(mark, Stored) for mark in inner.metadata):
        hint = f"Declare it as {name.rpartition('.')[2]}: Vector[384], or Vector[384] | None."
        raise model.error("the field of an index of vectors is not a Vector", name, text, hint)
    lengths = [mark.length for mark in inner.metadata if isinstance(mark, VectorLength)]
    source = ColumnSource(name, tuple(name.split(".")), naming(BYTES, model.schema.name, name), is_nullable)
    return column_of(source), lengths[0] if lengths else None


KIND: Final = VectorKind()

show_public_path(VectorIndex)
