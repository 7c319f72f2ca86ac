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
from itertools import combinations, product
from typing import Any, Final, NamedTuple

from kvmodels.codecs.columns.base import ColumnCodec
from kvmodels.errors import InvalidValueError, ModelDefinitionError, UnknownFieldError, UnknownLookupError
from kvmodels.schema.compile.columns import column_of, nearest, stored_source
from kvmodels.schema.compile.options import check_name
from kvmodels.schema.declare.annotations import Plain, type_name
from kvmodels.schema.declare.declarations import MAX_FAN_OUT, AggregateIndex, DeclaredIndex, Index
from kvmodels.schema.declare.expressions import Expression
from kvmodels.schema.declare.markers import EntryMarker, Indexed, MultiIndexed, Unique
from kvmodels.schema.definition.definition import (
    Aggregates,
    Column,
    ColumnSource,
    IndexDefinition,
    ModelSchema,
    PartialCondition,
    SpanTest,
)
from kvmodels.schema.definition.properties import hint_to_query, hint_to_write
from kvmodels.schema.filters.parse import negate, parse
from kvmodels.schema.filters.predicate import AllOf, Condition, Conjunction, Predicate, has_spans, parts_of

MOST_ALTERNATIVES: Final = 100
"""The maximum number of alternatives of a condition; every write may evaluate all of them."""

Spans = tuple[tuple[bytes, bytes], ...]
Tests = Mapping[str, Spans]
"""One alternative of a condition: spans by column."""

_LOWEST: Final = b"\x01\x00"
"""The packed part of None, which sorts before all other parts."""

_EVERYTHING: Final[Spans] = ((b"", b"\xff"),)


def partial_of(schema: ModelSchema, where: Expression, index: str) -> PartialCondition:
    """Return the condition of a partial index as spans; ``index`` is the declaration, for errors."""
    condition = AllOf(_parsed(schema, where, index))
    dnf = _Alternatives(schema, index)
    alternatives = _joined(dnf.columns, dnf.of(condition))
    if not alternatives:
        raise ModelDefinitionError(
            "the condition of an index never holds",
            model=schema.name,
            option=index,
            hint="Two of its parts contradict each other: no record would be in the index.",
        )
    if {} in alternatives or _Alternatives(schema, index).hold_never(negate(schema, condition)):
        raise ModelDefinitionError(
            "the condition of an index holds for every record",
            model=schema.name,
            option=index,
            hint="Leave out where=.",
        )
    tests = [
        tuple(SpanTest(dnf.columns[name], spans) for name, spans in sorted(alternative.items()))
        for alternative in alternatives
    ]
    return PartialCondition(tuple(sorted(tests, key=_sort_key)), repr(where))


def _sort_key(tests: tuple[SpanTest, ...]) -> list[tuple[str, Spans]]:
    return [(test.column.field, test.spans) for test in tests]


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
                "an index cannot be kept by this condition",
                model=self._schema.name,
                field=condition.field,
                option=self._index,
                hint="Conditions of an index compare columns of one value: by =, ne, in, not_in, gt, gte, lt, lte, "
                "range, startswith and isnull.",
            )
        self.columns[column.field] = column
        return _normal(column.codec, ((span.start, span.end) for span in parts_of(condition, column)))


def _both(one: Tests, other: Tests) -> Tests | None:
    """Return the combined tests of two alternatives; None if they contradict each other."""
    tests = dict(one)
    for name, spans in other.items():
        tests[name] = _intersection(tests[name], spans) if name in tests else spans
        if not tests[name]:
            return None
    return tests


def _intersection(one: Spans, other: Spans) -> Spans:
    shared = ((max(a, c), min(b, d)) for (a, b), (c, d) in product(one, other))
    return tuple(sorted((start, end) for start, end in shared if start < end))


def _normal(codec: ColumnCodec, spans: Iterable[tuple[bytes, bytes]]) -> Spans:
    """Return spans sorted, joined if they touch, without empty ones."""
    joined: list[tuple[bytes, bytes]] = []
    for start, end in sorted(spans):
        start = b"" if start <= _LOWEST else start
        if end <= _LOWEST or start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    if codec.name == "bool":
        return _of_bools(codec, joined)
    return tuple(joined)


def _of_bools(codec: ColumnCodec, spans: list[tuple[bytes, bytes]]) -> Spans:
    """Return the normal form of spans of bools: both values together match everything."""
    null = [] if not _takes_none(codec) else [None]
    parts = [codec.pack(value) for value in (*null, False, True)]
    held = [part for part in parts if any(start <= part < end for start, end in spans)]
    return _EVERYTHING if len(held) == len(parts) else tuple((part, part + b"\xff") for part in held)


def _takes_none(codec: ColumnCodec) -> bool:
    try:
        codec.pack(None)
    except InvalidValueError:
        return False
    return True


def _joined(columns: Mapping[str, Column], alternatives: list[Tests]) -> list[Tests]:
    """Return the alternatives after joining pairs as far as possible, without tests that always pass."""
    found = [_without_everything(tests) for tests in alternatives]
    while True:
        pair = next(
            (
                (one, other, new)
                for one, other in combinations(found, 2)
                if (new := _union(columns, one, other)) is not None
            ),
            None,
        )
        if pair is None:
            return found
        one, other, new = pair
        found = [tests for tests in found if tests is not one and tests is not other]
        found.append(_without_everything(new))


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
    return {**one, name: _normal(columns[name].codec, (*one[name], *other[name]))}


_SUMMED = {"int", "number", "timedelta"}


class _Declared(NamedTuple):
    """The options that all kinds of declarations share, and their form in errors."""

    text: str
    name: str
    columns: tuple[Column, ...]
    where: Expression | None
    max_fan_out: int | None


class Declarations:
    """Compiles the declared indexes of one model.

    ``schema`` is the schema of the model without indexes. ``discriminator`` is the field that distinguishes the classes
    of the collection; the first class need not declare it.
    """

    def __init__(self, schema: ModelSchema, fields: Mapping[str, Plain], discriminator: str | None = None) -> None:
        self._schema = schema
        self._model = schema.name
        self._fields = fields
        self._discriminator = discriminator

    def of_field(self, field: str, mark: EntryMarker[Any]) -> IndexDefinition:
        """Return the index that a marker declares on its field."""
        text = f"{field}: {mark!r}"
        column = self._column(field, text, is_descending=isinstance(mark, Indexed) and mark.descending)
        if isinstance(mark, MultiIndexed) and not column.many:
            raise self._error("a field marked MultiIndexed has one value", field, text, "Mark it Indexed.")
        if column.many and not isinstance(mark, MultiIndexed):
            raise self._error(
                "a field of this type cannot be in a key or index as one value",
                field,
                text,
                "It has several values: mark it MultiIndexed, which has an entry for each, or declare "
                f'UniqueConstraint("{field}") in Meta. Columns of one value are bool, int, str, date, Decimal and so '
                "on.",
            )
        declared = _Declared(
            text=text,
            name=field if mark.name is None else mark.name,
            columns=(column,),
            where=mark.where,
            max_fan_out=mark.max_fan_out if isinstance(mark, MultiIndexed) else None,
        )
        return self._with_entries(declared, mark, unique=isinstance(mark, Unique))

    def of_meta(self, index: DeclaredIndex, computed: Mapping[str, bool]) -> IndexDefinition:
        """Return the index of a declaration in ``Meta``.

        ``computed`` holds the computed columns that indexes of ``Meta`` declare, and whether they are descending.
        """
        text = repr(index)
        columns = tuple(
            self._column(name, text, is_descending=is_descending) for name, is_descending in _asked(index, computed)
        )
        several = [column.field for column in columns if column.many]
        if len(several) > 1:
            raise self._error(
                "an index has more than one column with several values",
                several[1],
                text,
                f"An entry for each combination would be too many: index {several[0]} and {several[1]} separately.",
            )
        if index.max_fan_out is not None and not several:
            raise self._error(
                "an index option has no effect here",
                None,
                text,
                "max_fan_out bounds the entries of a column with several values, and this index has none.",
            )
        name = index.name if index.name is not None else _default_name(index, columns)
        declared = _Declared(text, name, columns, index.where, index.max_fan_out)
        if isinstance(index, Index):
            return self._with_entries(declared, index, unique=index.unique)
        assert isinstance(index, AggregateIndex)
        return self._with_counters(declared, index)

    def _with_entries(self, declared: _Declared, kept: Index | EntryMarker[Any], *, unique: bool) -> IndexDefinition:
        return IndexDefinition(
            check_name(self._model, "index", declared.name),
            declared.columns,
            unique,
            kept.nulls,
            kept.store,
            where=self._condition(declared),
            include=self._included(kept.include, declared),
            max_fan_out=declared.max_fan_out or MAX_FAN_OUT,
        )

    def _with_counters(self, declared: _Declared, index: AggregateIndex) -> IndexDefinition:
        if self._schema.ttl_ms is not None:
            raise self._error(
                "a model whose records expire has an aggregate index",
                None,
                declared.text,
                "A record that expires is taken out of no counter: remove Meta.ttl or the aggregate index.",
            )
        return IndexDefinition(
            check_name(self._model, "index", declared.name),
            declared.columns,
            where=self._condition(declared),
            aggregates=Aggregates(tuple(self._sum(name, declared) for name in index.sums)),
            max_fan_out=declared.max_fan_out or MAX_FAN_OUT,
        )

    def _condition(self, declared: _Declared) -> PartialCondition | None:
        return None if declared.where is None else partial_of(self._schema, declared.where, declared.text)

    def _column(self, name: str, index: str, *, is_descending: bool) -> Column:
        source = self._schema.source(name)
        if source is None:
            raise self._no_column(name, index)
        return column_of(source, is_descending=is_descending)

    def _no_column(self, name: str, index: str) -> ModelDefinitionError:
        suggestion = nearest(self._fields, self._schema.computed, name)
        if name == self._discriminator and name not in self._fields:
            return self._error(
                "an index names the discriminator, which the first class does not declare",
                name,
                index,
                f"Declare {name}: str in it; each class that derives from it gives the field its own Literal.",
            )
        if suggestion != name:
            return ModelDefinitionError(
                "an index names a field that does not exist",
                model=self._model,
                field=name,
                option=index,
                suggestion=suggestion,
                hint=hint_to_query(self._schema.model, name)
                or "Use the names of fields, paths such as address.city and computed columns, with a leading - for "
                "descending order.",
            )
        return self._error(
            "a field of this type cannot be in a key or index",
            name,
            type_name(self._fields[name].annotation) if name in self._fields else index,
            "Columns are bool, int, float, str, bytes, UUID, ULID, date, datetime, time, timedelta, Decimal, "
            "IP addresses, and Enum and Literal of one of them, or None; without Stored(). A list, set, frozenset or "
            "tuple[T, ...] of one of them is marked MultiIndexed.",
        )

    def _included(self, names: Iterable[str], declared: _Declared) -> tuple[str, ...]:
        in_key = {
            column.field
            for column in declared.columns
            if column.codec.lossless and not column.many and column.path == (column.field,)
        } | {column.field for column in self._schema.primary_key}
        included = tuple(names)
        for name in included:
            if name not in self._fields:
                raise self._not_included(name, declared)
            if name in in_key:
                raise self._error(
                    "an index includes a field that its entries have already",
                    name,
                    declared.text,
                    "The primary key and the columns are in the key of every entry: leave it out of include=.",
                )
        return included

    def _not_included(self, name: str, declared: _Declared) -> ModelDefinitionError:
        head = name.replace("__", ".").partition(".")[0]
        if head != name and head in self._fields:
            return ModelDefinitionError(
                "an index includes a part of a field",
                model=self._model,
                field=name,
                option=declared.text,
                suggestion=head,
                hint=f'Whole fields are included, with all that is in them: write include=("{head}",).',
            )
        return ModelDefinitionError(
            "an index includes a field that does not exist",
            model=self._model,
            field=name,
            option=declared.text,
            suggestion=nearest(self._fields, (), head),
            hint=hint_to_write(self._schema.model, name)
            or "Use the names of fields; a nested field is included with the whole field that it is in.",
        )

    def _sum(self, name: str, declared: _Declared) -> Column:
        computed = self._schema.computed.get(name)
        source = self._schema.source(name)
        if computed is not None and computed.folds:
            source = stored_source(self._model, self._fields, name)  # sums use the unfolded values
        if source is None and nearest(self._fields, self._schema.computed, name) != name:
            raise ModelDefinitionError(
                "an index sums a field that does not exist",
                model=self._model,
                field=name,
                option=declared.text,
                suggestion=nearest(self._fields, self._schema.computed, name),
                hint="Use the names of fields of type int or timedelta.",
            )
        if source is None or source.many or not is_summed(source):
            raise self._error(
                "an index sums a field that has no exact sum",
                name,
                declared.text,
                "Sums are kept of fields of type int or timedelta, with one value or None.",
            )
        return column_of(source)

    def _error(self, message: str, field: str | None, option: str, hint: str) -> ModelDefinitionError:
        return ModelDefinitionError(message, model=self._model, field=field, option=option, hint=hint)


def _asked(index: DeclaredIndex, computed: Mapping[str, bool]) -> list[tuple[str, bool]]:
    """Return the names of the columns of an index, and whether they are descending."""
    if isinstance(index, Index) and index.key is not None and index.name is not None:
        return [(index.name, computed[index.name])]
    return [(name.removeprefix("-"), name.startswith("-")) for name in index.fields]


def is_summed(source: ColumnSource) -> bool:
    """Return whether an aggregate index can keep sums of a column with one value."""
    codec = source.codec
    # An Enum of ints has the codec of ints, but its members cannot be added.
    return codec.name in _SUMMED and (codec.to_stored is None or codec.name == "timedelta")


def _default_name(index: DeclaredIndex, columns: Iterable[Column]) -> str:
    names = [column.field.replace(".", "_") for column in columns]
    return "_".join([*names, "totals"] if isinstance(index, AggregateIndex) else names)
