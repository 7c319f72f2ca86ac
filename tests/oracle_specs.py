"""The declaration of a model as plain data for the oracle: read from annotations and ``Meta``, never from a schema.

Conditions of partial indexes are evaluated here on stored documents, with neither the parser of filters nor the spans
of packed parts of the library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from tests.oracle_columns import TYPES, packed_part, python_form, stored_form
from tests.oracle_words import packed_terms

RESERVED = "$kv"
SEVERAL = (list, set, frozenset)
SPECIAL: Mapping[str, str] = {
    "WeekdayIndex": "weekdays",
    "GeoIndex": "geo",
    "IntervalIndex": "interval",
    "TrigramIndex": "trigram",
    "ExclusionConstraint": "exclusion",
    "RankIndex": "rank",
    "SearchIndex": "search",
    "VectorIndex": "vector",
}
"""The kinds of entries that ``tests/oracle_kinds.py`` tells, as the catalogue names them, by their declarations."""
DEEPEST_PATH = 4


@dataclass(frozen=True)
class IndexSpec:
    """An index as plain test data: columns are (field, descending).

    ``where`` is the declared condition, or None; ``sums`` are the fields that an aggregate index adds up, None for an
    index of entries. ``special`` is the kind of an index whose entries ``tests/oracle_kinds.py`` tells, and ``of`` are
    its fields: the integer whose bits have an entry each, the place, start and end, the ranked field with its
    direction, or the texts. Its columns are the group. ``scale`` are the bounds and the levels of an index of ranks.
    ``terms`` is the computed column of an index of words, and ``scores`` is whether it has statistics. ``form`` is the
    stored form of vectors.
    """

    name: str
    columns: tuple[tuple[str, bool], ...]
    unique: bool = False
    nulls: str = "distinct"
    store: str | None = None
    where: Any = None
    include: tuple[str, ...] = ()
    sums: tuple[str, ...] | None = None
    special: str | None = None
    of: tuple[str, ...] = ()
    scale: tuple[Any, Any, int] | None = None
    terms: str | None = None
    scores: bool = False
    form: str | None = None

    @property
    def counts(self) -> bool:
        """Whether it has counters."""
        return self.sums is not None or self.scale is not None or self.scores


@dataclass(frozen=True)
class ComputedSpec:
    """A column whose value a function makes of fields.

    ``folds``: it stands for its field in every comparison. ``whole``: the function is called with the values as the
    document stores them, None included.
    """

    stored_as: str
    of: tuple[str, ...]
    function: Callable[..., Any]
    folds: bool = False
    whole: bool = False


@dataclass(frozen=True)
class CollectionSpec:
    """A collection as plain test data.

    Attributes:
        types: the documented column type of every name that can be in a key: fields, paths, computed columns.
        paths: where the document stores what is not simply under its name.
        many: the names that may have several values.
        nullable: fields that may be None.
        computed: by the name of the column.
    """

    name: str
    primary_key: tuple[str, ...]
    types: Mapping[str, str]
    indexes: tuple[IndexSpec, ...]
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    many: frozenset[str] = frozenset()
    nullable: frozenset[str] = frozenset()
    computed: Mapping[str, ComputedSpec] = field(default_factory=dict)

    def path(self, name: str) -> tuple[str, ...]:
        """Where a document stores the values of a name."""
        return self.paths.get(name, (name,))

    def values(self, document: Mapping[str, Any], name: str) -> list[Any]:
        """The stored values of a name; one, unless it may have several. KeyError: the document lacks it."""
        return values_at(document, self.path(name))


def values_at(document: Mapping[str, Any], path: tuple[str, ...]) -> list[Any]:
    """Return the values along a path through nested maps, None where the path ends early.

    Behind a list, or in one, None is no value: there is none, unless the list itself is None.
    """
    found: list[Any] = [document]
    several = False
    for name in (*path, None):
        several = several or any(isinstance(held, SEVERAL) for held in found)
        found = [one for held in found for one in _spread(held) if one is not None or not several]
        if name is not None:
            found = [None if held is None else held[name] for held in found]
    return found


def _spread(held: Any) -> list[Any]:
    return list(held) if isinstance(held, SEVERAL) else [held]


# --- what a model declares, from its annotations ----------------------------------------------------------------------


class _Shape(NamedTuple):
    """The column of an annotation: its type, whether it may be None or several, and a nested model."""

    kind: str | None
    nullable: bool = False
    many: bool = False
    model: Any = None


def spec_of(model: Any) -> CollectionSpec:
    """The declaration of a model class as test data; ``Meta`` of parents is not looked at."""
    return _Declaration(model).spec()


class _Declaration:
    """A model class while it is read."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._types: dict[str, str] = {}
        self._paths: dict[str, tuple[str, ...]] = {}
        self._many: set[str] = set()
        self._nullable: set[str] = set()
        self._computed: dict[str, ComputedSpec] = {}
        self._indexes: list[IndexSpec] = []

    def spec(self) -> CollectionSpec:
        self._fields(self._model.model_fields, (), many=False)
        primary_key = []
        for name, info in self._model.model_fields.items():
            marks = {type(mark).__name__: mark for mark in info.metadata}
            if "PrimaryKey" in marks:
                primary_key.append(name)
            for kind in ("Unique", "Indexed", "MultiIndexed"):
                if kind in marks:
                    self._marked(name, kind, marks[kind])
        for index in getattr(self._model.__dict__.get("Meta"), "indexes", ()):
            self._declared(index)
        return CollectionSpec(
            self._model.__kv_options__.collection,
            tuple(primary_key),
            self._types,
            tuple(self._indexes),
            self._paths,
            frozenset(self._many),
            frozenset(self._nullable),
            self._computed,
        )

    def _fields(self, fields: Mapping[str, Any], prefix: tuple[str, ...], *, many: bool) -> None:
        for name, info in fields.items():
            path = (*prefix, name)
            dotted, shape = ".".join(path), _shape(info.annotation)
            if shape.kind is not None:
                number = any(type(mark).__name__ == "KeyNumber" for mark in info.metadata)
                self._types[dotted] = "number" if number else shape.kind
                if prefix:
                    self._paths[dotted] = path
                if many or shape.many:
                    self._many.add(dotted)
                if shape.nullable:
                    self._nullable.add(dotted)
            elif shape.model is not None and len(path) < DEEPEST_PATH:
                if shape.nullable:
                    self._nullable.add(dotted)
                self._fields(shape.model.model_fields, path, many=many or shape.many)

    def _marked(self, name: str, kind: str, mark: Any) -> None:
        if getattr(mark, "key", None) is not None:
            self._compute(name, (name,), mark, folds=True)
        column = (name, getattr(mark, "descending", False))
        self._indexes.append(
            IndexSpec(
                mark.name or name,
                (column,),
                kind == "Unique",
                getattr(mark, "nulls", "distinct"),
                mark.store,
                getattr(mark, "where", None),
                tuple(getattr(mark, "include", ()) or ()),
            )
        )

    def _declared(self, index: Any) -> None:
        aggregates = type(index).__name__ == "AggregateIndex"
        special = SPECIAL.get(type(index).__name__)
        names = index.group if special else index.fields
        columns = tuple((column.removeprefix("-"), column.startswith("-")) for column in names)
        scale = (index.low, index.high, index.levels) if special == "rank" else None
        name = index.name or "_".join(column.replace(".", "_") for column, _ in columns)
        if aggregates and not index.name:
            name = f"{name}_totals" if name else "totals"
        if getattr(index, "key", None) is not None:
            self._compute(name, tuple(column for column, _ in columns), index, folds=False)
            columns = ((name, columns[0][1]),)
        self._indexes.append(
            IndexSpec(
                name,
                columns,
                type(index).__name__ == "UniqueConstraint",
                getattr(index, "nulls", "distinct"),
                None if special else getattr(index, "store", None),
                getattr(index, "where", None),
                tuple(getattr(index, "include", ()) or ()),
                tuple(index.sums) if aggregates else None,
                special,
                tuple(index.fields) if special else (),
                scale,
                self._terms(name, tuple(index.fields)) if special == "search" else None,
                special == "search" and index.rank,
                index.store if special == "vector" else None,
            )
        )

    def _terms(self, index: str, of: tuple[str, ...]) -> str:
        """Note the computed column of an index of words, and return its name."""
        name, stored_as = f"terms of {index}", f"{index}({','.join(of)})~1"
        self._computed[name] = ComputedSpec(stored_as, of, packed_terms, whole=True)
        self._paths[name] = (RESERVED, "c", stored_as)
        self._types[name] = "bytes"
        return name

    def _compute(self, name: str, of: tuple[str, ...], mark: Any, *, folds: bool) -> None:
        function = mark.key
        arguments = "" if folds else f"({','.join(of)})"
        stored_as = f"{name}{arguments}~{function.__name__ if mark.version is None else mark.version}"
        self._computed[name] = ComputedSpec(stored_as, of, function, folds)
        self._paths[name] = (RESERVED, "c", stored_as)
        if folds:
            return  # the result has the type of the field
        shape = _shape(getattr(mark, "returns", None) or get_type_hints(function)["return"])
        assert shape.kind is not None
        self._types[name] = shape.kind
        if shape.many:
            self._many.add(name)


def _shape(annotation: Any) -> _Shape:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not NoneType]
        if len(members) > 1:
            return _Shape(None)
        return _shape(members[0])._replace(nullable=True)
    arguments = get_args(annotation)
    if get_origin(annotation) in SEVERAL or (get_origin(annotation) is tuple and arguments[1:] == (...,)):
        inner = _shape(arguments[0])
        return _Shape(None) if inner.many else inner._replace(nullable=False, many=True)
    if get_origin(annotation) is Literal:
        return _Shape(TYPES[type(arguments[0])])
    if not isinstance(annotation, type):
        return _Shape(None)
    if issubclass(annotation, Enum):
        return _Shape(TYPES.get(type(next(iter(annotation)).value)))
    if hasattr(annotation, "model_fields"):
        return _Shape(None, model=annotation)
    return _Shape(TYPES.get(annotation))


# --- computed columns -------------------------------------------------------------------------------------------------


def computed_values(spec: CollectionSpec, name: str, document: Mapping[str, Any]) -> Iterator[Any]:
    """The stored values that a computed column should have: its function, called with what the fields store."""
    column = spec.computed[name]
    if column.whole:
        yield column.function(*(_whole(document, of.split(".")) for of in column.of))
        return
    # The fields themselves, also where comparisons of a field are those of its folded values.
    fields = [
        [python_form(spec.types.get(of, ""), stored) for stored in values_at(document, tuple(of.split(".")))]
        for of in column.of
    ]
    if column.folds:
        yield from (None if value is None else stored_form(column.function(value)) for value in fields[0])
        return
    arguments = [values if of in spec.many else values[0] for of, values in zip(column.of, fields, strict=True)]
    result = None if any(argument is None for argument in arguments) else column.function(*arguments)
    if isinstance(result, (tuple, *SEVERAL)):
        yield from (stored_form(value) for value in result if value is not None)
    else:
        yield stored_form(result)


def _whole(document: Any, path: list[str]) -> Any:
    """The value at the end of a path through nested maps, lists as they are; None where the path ends early."""
    for name in path:
        document = None if document is None else document[name]
    return document


# --- conditions of partial indexes ------------------------------------------------------------------------------------

LOOKUPS: Mapping[str, Callable[[Any, Any], bool]] = {
    "exact": lambda value, operand: value == operand,
    "ne": lambda value, operand: value != operand,
    "in": lambda value, operand: value in operand,
    "not_in": lambda value, operand: value not in operand,
}
ORDERED: Mapping[str, Callable[[Any, Any], bool]] = {
    "gt": lambda value, operand: value > operand,
    "gte": lambda value, operand: value >= operand,
    "lt": lambda value, operand: value < operand,
    "lte": lambda value, operand: value <= operand,
}
INSIDE = {"[]": ("gte", "lte"), "[)": ("gte", "lt"), "(]": ("gt", "lte"), "()": ("gt", "lt")}


def holds(spec: CollectionSpec, condition: Any, document: Mapping[str, Any]) -> bool:
    """Whether a document satisfies the condition of a partial index, as it is declared."""
    match type(condition).__name__:
        case "NoneType":
            return True
        case "And":
            return all(holds(spec, part, document) for part in condition.parts)
        case "Or":
            return any(holds(spec, part, document) for part in condition.parts)
        case "Not":
            return not holds(spec, condition.part, document)
        case "Comparison":
            return _compared(spec, document, condition.field, condition.lookup, condition.operand)
    assert type(condition).__name__ == "Q"
    return all(holds(spec, part, document) for part in condition.expressions) and all(
        _compared(spec, document, *_split(spec, keyword), operand) for keyword, operand in condition.lookups
    )


def _split(spec: CollectionSpec, keyword: str) -> tuple[str, str]:
    """A keyword such as ``address__zip__startswith`` as name and lookup."""
    name, _, lookup = keyword.rpartition("__")
    whole = keyword.replace("__", ".")
    return (whole, "exact") if whole in spec.types else (name.replace("__", "."), lookup)


def _compared(spec: CollectionSpec, document: Mapping[str, Any], name: str, lookup: str, operand: Any) -> bool:
    kind, computed = spec.types[name], spec.computed.get(name)
    (stored,) = spec.values(document, name)

    def normal(value: Any) -> Any:
        if value is not None and computed is not None and computed.folds:
            value = computed.function(value)
        return stored_form(value)

    if lookup == "isnull":
        return (stored is None) == operand
    if lookup in ("startswith", "contains"):
        part = normal(operand)
        return stored is not None and (stored.startswith(part) if lookup == "startswith" else part in stored)
    value = packed_part(kind, stored)
    if lookup in ("in", "not_in"):
        return LOOKUPS[lookup](value, [packed_part(kind, normal(one)) for one in operand])
    if lookup in LOOKUPS:
        return LOOKUPS[lookup](value, packed_part(kind, normal(operand)))
    if stored is None:
        return False
    if lookup == "range":
        low, high, bounds = operand if len(operand) == 3 else (*operand, "[]")
        tests = zip(INSIDE[bounds], (low, high), strict=True)
    else:
        tests = zip((lookup,), (operand,), strict=True)
    return all(ORDERED[test](value, packed_part(kind, normal(end))) for test, end in tests)


def in_spans(spec: CollectionSpec, alternatives: list[Any], document: Mapping[str, Any]) -> bool:
    """Whether a document passes a condition as the catalogue stores it: packed parts in spans."""

    def passes(column: list[Any], spans: list[list[str]]) -> bool:
        (stored,) = values_at(document, tuple(column[4]["path"]) if len(column) > 4 else (column[0],))
        value = packed_part(spec.types[column[0]], stored)
        return any(bytes.fromhex(start) <= value < bytes.fromhex(end) for start, end in spans)

    return any(all(passes(column, spans) for column, spans in tests) for tests in alternatives)
