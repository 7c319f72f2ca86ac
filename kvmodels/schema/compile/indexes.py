"""Compilation of declared indexes to index definitions: columns, conditions, included fields and sums.

The condition of a partial index is compiled to spans of packed key parts, so that any process can maintain the index.
Alternatives that differ only in one column are joined, so that equivalent conditions have one form: ``Q(a=1) | Q(a=2)``
and ``Q(a__in=[2, 1])`` declare the same index.

Rules of this module: it uses the schema of the model without indexes, which knows every column by name. Every fault of
an index is found here, when the class is created, and raises a ModelDefinitionError that names model, field and index.
A condition is also refused if spans cannot express it, or if it holds always or never.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import combinations, product
from typing import Any, Final

from kvmodels.codecs.columns.base import PACKED_NONE
from kvmodels.errors import InvalidValueError, ModelDefinitionError, UnknownFieldError, UnknownLookupError
from kvmodels.schema.compile.columns import column_of, nearest
from kvmodels.schema.compile.options import check_name
from kvmodels.schema.declare.annotations import Plain, type_name
from kvmodels.schema.declare.declarations import MAX_FAN_OUT, DeclaredIndex
from kvmodels.schema.declare.expressions import Expression
from kvmodels.schema.declare.markers import EntryMarker, Indexed, MultiIndexed
from kvmodels.schema.definition.definition import (
    Column,
    IndexDefinition,
    ModelSchema,
    PartialCondition,
    SpanTest,
)
from kvmodels.schema.definition.kinds import KINDS, kind_of
from kvmodels.schema.definition.properties import hint_to_query
from kvmodels.schema.encryption.blind_values import distinct, key_ids, source_under, under_its_keys
from kvmodels.schema.filters.parse import negate, parse
from kvmodels.schema.filters.predicate import AllOf, Condition, Conjunction, Predicate, has_spans, joined, parts_of

MOST_ALTERNATIVES: Final = 100
"""The maximum number of alternatives of a condition; every write may evaluate all of them."""

Spans = tuple[tuple[bytes, bytes], ...]
Tests = Mapping[str, Spans]
"""One alternative of a condition: spans by column."""

_EVERYTHING: Final[Spans] = ((b"", b"\xff"),)


def partial_of(schema: ModelSchema, where: Expression, index: str) -> PartialCondition:
    """Return the condition of a partial index as spans; ``index`` is the declaration, for errors."""
    condition = AllOf(_parsed(schema, where, index))
    dnf = _Alternatives(schema, index)
    alternatives = _joined(dnf.columns, dnf.of(condition))
    refused = partial(ModelDefinitionError, model=schema.name, option=index)
    if not alternatives:
        raise refused(
            "the condition of an index never holds",
            hint="Two of its parts contradict each other: no record would be in the index.",
        )
    if {} in alternatives or _Alternatives(schema, index).hold_never(negate(schema, condition)):
        raise refused("the condition of an index holds for every record", hint="Leave out where=.")
    ordered = sorted(sorted(tests.items()) for tests in alternatives)
    return PartialCondition(
        tuple(tuple(SpanTest(dnf.columns[name], spans) for name, spans in tests) for tests in ordered), repr(where)
    )


def _parsed(schema: ModelSchema, where: Expression, index: str) -> Conjunction:
    try:
        return parse(schema, (where,), {})
    except (UnknownFieldError, UnknownLookupError, InvalidValueError) as error:
        raise ModelDefinitionError(
            "the condition of an index is not one of its model",
            model=schema.name,
            field=error.field,
            option=index,
            suggestion=getattr(error, "suggestion", None),
            hint=f"{error.message}: {error.hint}",
        ) from error


class _Alternatives:
    """A predicate as alternatives with one test per column each."""

    def __init__(self, schema: ModelSchema, index: str) -> None:
        self.columns: dict[str, Column] = {}
        self._schema = schema
        self._index = index

    def hold_never(self, predicate: Predicate) -> bool:
        """Return whether a predicate contradicts itself; False if it has too many alternatives to decide."""
        try:
            return not self.of(predicate)
        except ModelDefinitionError:
            return False

    def of(self, predicate: Predicate) -> list[Tests]:
        if isinstance(predicate, Condition):
            spans = self._spans(predicate)
            return [{predicate.field: spans}] if spans else []
        parts = [self.of(part) for part in predicate.parts]
        if not isinstance(predicate, AllOf):
            return self._bounded([tests for part in parts for tests in part])
        found: list[Tests] = [{}]
        for part in parts:
            both = (_both(one, other) for one, other in product(found, part))
            found = self._bounded([tests for tests in both if tests is not None])
        return found

    def _bounded(self, alternatives: list[Tests]) -> list[Tests]:
        if len(alternatives) <= MOST_ALTERNATIVES:
            return alternatives
        raise ModelDefinitionError(
            "the condition of an index has too many alternatives",
            model=self._schema.name,
            option=self._index,
            hint=f"Written out as one of several combinations it has more than {MOST_ALTERNATIVES}: make a field or a "
            "computed column of it.",
        )

    def _spans(self, condition: Condition) -> Spans:
        source = self._schema.source(condition.field)
        column = None if source is None else column_of(source)
        if column is None or column.many or not has_spans(condition, column):
            raise ModelDefinitionError(
                "the condition of an index has a comparison that indexes do not support",
                model=self._schema.name,
                field=condition.field,
                option=self._index,
                hint="Conditions of an index compare columns of one value: by =, ne, in, not_in, gt, gte, lt, lte, "
                "range, startswith and isnull.",
            )
        self.columns[column.field] = column
        return _normal(column, ((span.start, span.end) for span in parts_of(condition, column)))


def _both(one: Tests, other: Tests) -> Tests | None:
    """Return the combined tests of two alternatives; None if they contradict each other."""
    shared = {name: _intersection(one[name], other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **shared} if all(shared.values()) else None


def _intersection(one: Spans, other: Spans) -> Spans:
    shared = ((max(a, c), min(b, d)) for (a, b), (c, d) in product(one, other))
    return tuple(sorted((start, end) for start, end in shared if start < end))


def _normal(column: Column, spans: Iterable[tuple[bytes, bytes]]) -> Spans:
    """Return spans sorted, joined if they touch, without empty ones."""
    held = [(start, end) for start, end in spans if max(start, PACKED_NONE) < end]
    # Nothing sorts before None.
    found = tuple(joined(sorted((b"" if start <= PACKED_NONE else start, end) for start, end in held)))
    return _of_bools(column, found) if column.codec.name == "bool" else found


def _of_bools(column: Column, spans: Spans) -> Spans:
    """Return the normal form of spans of bools: both values together match everything."""
    parts = [column.codec.pack(value) for value in ((None, False, True) if column.nullable else (False, True))]
    held = [part for part in parts if any(start <= part < end for start, end in spans)]
    return _EVERYTHING if len(held) == len(parts) else tuple((part, part + b"\xff") for part in held)


def _joined(columns: Mapping[str, Column], alternatives: list[Tests]) -> list[Tests]:
    """Return the alternatives after joining pairs as far as possible, without tests that always pass."""
    found = [_without_everything(tests) for tests in alternatives]
    while True:
        for one, other in combinations(found, 2):
            union = _union(columns, one, other)
            if union is not None:
                found = [tests for tests in found if tests is not one and tests is not other]
                found.append(_without_everything(union))
                break
        else:
            return found


def _without_everything(tests: Tests) -> Tests:
    return {name: spans for name, spans in tests.items() if spans != _EVERYTHING}


def _union(columns: Mapping[str, Column], one: Tests, other: Tests) -> Tests | None:
    """Return the union of two alternatives, if one implies the other or they differ in only one column."""
    for wide, narrow in ((one, other), (other, one)):
        if all(name in narrow and _intersection(narrow[name], spans) == narrow[name] for name, spans in wide.items()):
            return wide
    different = [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]
    if len(different) != 1 or one.keys() != other.keys():
        return None
    (name,) = different
    return {**one, name: _normal(columns[name], (*one[name], *other[name]))}


class Declarations:
    """Compiles the declared indexes of one model.

    ``schema`` is the schema of the model without indexes. ``discriminator`` is the field that distinguishes the classes
    of the collection; the first class need not declare it.
    """

    def __init__(self, schema: ModelSchema, fields: Mapping[str, Plain], discriminator: str | None = None) -> None:
        self.schema = schema
        self._model = schema.name
        self.fields = fields
        self._discriminator = discriminator

    def all_of_field(self, field: str, mark: EntryMarker[Any]) -> list[IndexDefinition]:
        """Return the indexes that a marker declares on its field: one for each index key, if it is encrypted."""
        return list(distinct(self.of_field(field, mark, key_id) for key_id in key_ids(self.schema, (field,))))

    def all_of_meta(self, index: DeclaredIndex) -> list[IndexDefinition]:
        """Return the indexes of a declaration in ``Meta``: one for each index key of its encrypted fields."""
        names = [name.removeprefix("-") for name in kind_of(index).column_names(index)]
        return list(distinct(self.of_meta(index, key_id) for key_id in key_ids(self.schema, names)))

    def of_field(self, field: str, mark: EntryMarker[Any], key_id: int | None = None) -> IndexDefinition:
        """Return the index that a marker declares on its field."""
        text = f"{field}: {mark!r}"
        descends = isinstance(mark, Indexed) and mark.descending
        column = self._column(field, text, is_descending=descends, key_id=key_id)
        if isinstance(mark, MultiIndexed) and not column.many:
            raise self.error("a field marked MultiIndexed has one value", field, text, "Mark it Indexed.")
        if column.many and not isinstance(mark, MultiIndexed):
            raise self.error(
                "a field of this type cannot be in a key or index as one value",
                field,
                text,
                "It has several values: mark it MultiIndexed, which has an entry for each, or declare "
                f'UniqueConstraint("{field}") in Meta. Columns of one value are bool, int, str, date, Decimal and so '
                "on.",
            )
        name = field if mark.name is None else mark.name
        kept = KINDS["entries"].compile(mark, (column,), text, self)
        max_fan_out = mark.max_fan_out if isinstance(mark, MultiIndexed) else None
        return self._defined(name, (column,), mark.where, text, **kept, max_fan_out=max_fan_out)

    def of_meta(self, index: DeclaredIndex, key_id: int | None = None) -> IndexDefinition:
        """Return the index of a declaration in ``Meta``."""
        text, kind = repr(index), kind_of(index)
        columns = tuple(
            self._column(name.removeprefix("-"), text, is_descending=name.startswith("-"), key_id=key_id)
            for name in kind.column_names(index)
        )
        several = [column.field for column in columns if column.many]
        if len(several) > 1:
            raise self.error(
                "an index has more than one column with several values",
                several[1],
                text,
                f"An entry for each combination would be too many: index {several[0]} and {several[1]} separately.",
            )
        if index.max_fan_out is not None and not several and not kind.fans_out:
            raise self.error(
                "an index option has no effect here",
                None,
                text,
                "max_fan_out bounds the entries of a column with several values, and this index has none.",
            )
        name = kind.default_name(columns, index) if index.name is None else index.name
        kept = kind.compile(index, columns, text, self)
        max_fan_out = index.max_fan_out or kind.max_fan_out
        made = self._defined(name, columns, index.where, text, **kept, max_fan_out=max_fan_out)
        by_its_name = made.options is not None and made.options.looked_up is None
        if kind.lookups and by_its_name and name in (*self.fields, *self.schema.computed):
            lookup = f"{name}__{next(iter(kind.lookups))}"
            raise self.error(
                "an index whose lookups go by its name has the name of a field",
                name,
                text,
                f"Give it another one: name=...; then {lookup}= cannot be taken for a lookup of the field.",
            )
        return made

    def _defined(
        self,
        name: str,
        columns: tuple[Column, ...],
        where: Expression | None,
        text: str,
        *,
        max_fan_out: int | None,
        **kept: Any,
    ) -> IndexDefinition:
        made = IndexDefinition(
            check_name(self._model, "index", name),
            columns,
            where=None if where is None else partial_of(self.schema, where, text),
            max_fan_out=max_fan_out or MAX_FAN_OUT,
            **kept,
        )
        return under_its_keys(made)

    def _column(self, name: str, index: str, *, is_descending: bool, key_id: int | None) -> Column:
        source = source_under(self.schema, name, key_id)
        if source is None:
            raise self._no_column(name, index)
        return column_of(source, is_descending=is_descending)

    def _no_column(self, name: str, index: str) -> ModelDefinitionError:
        suggestion = nearest(self.fields, self.schema.computed, name)
        if name == self._discriminator and name not in self.fields:
            return self.error(
                "an index names the discriminator, which the first class does not declare",
                name,
                index,
                f"Declare {name}: str in it; each class that derives from it gives the field its own Literal.",
            )
        if suggestion != name:
            return self.error(
                "an index names a field that does not exist",
                name,
                index,
                hint_to_query(self.schema.model, name)
                or "Use the names of fields, paths such as address.city and computed columns, with a leading - for "
                "descending order.",
                suggestion,
            )
        return self.error(
            "a field of this type cannot be in a key or index",
            name,
            type_name(self.fields[name].annotation) if name in self.fields else index,
            "Columns are bool, int, float, str, bytes, UUID, ULID, date, datetime, time, timedelta, Decimal, "
            "IP addresses, and Enum and Literal of one of them, or None; without Stored(). A list, set, frozenset or "
            "tuple[T, ...] of one of them is marked MultiIndexed.",
        )

    def error(
        self, message: str, field: str | None, option: str, hint: str, suggestion: str | None = None
    ) -> ModelDefinitionError:
        """Return the error for a declaration; ``option`` is the declaration as text."""
        return ModelDefinitionError(
            message, model=self._model, field=field, option=option, suggestion=suggestion, hint=hint
        )
