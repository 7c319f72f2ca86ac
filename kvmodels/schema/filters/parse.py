"""Parse keyword lookups and typed expressions to the normal form of a filter, with checked operands.

Comparisons with None:

- ``field=None``, ``field__exact=None`` and ``field__iexact=None`` are ``field__isnull=True``; ``field__ne=None`` is
  ``field__isnull=False``;
- None in the list of ``in`` matches None, as Python's ``in`` does;
- ``gt``, ``gte``, ``lt``, ``lte``, ``range``, ``startswith``, ``endswith``, ``contains`` and ``icontains`` never match
  None and refuse it as an operand;
- ``ne``, ``not_in``, ``~`` and ``exclude()`` are plain negation: a record whose field is None is "not equal to 5" and
  is returned, as with Django's ``exclude()`` (SQL's ``<>`` would lose it silently).

A field with several values is compared as a whole by ``exact``, ``ne``, ``in``, ``not_in`` and ``isnull``, and by its
elements with ``contains``, ``contains_any``, ``contains_all`` and ``any__<lookup>``. A field that is None or empty
never satisfies the element lookups, except ``contains_all`` with no values. Elements are never None.

Rules of this module: pure; every operand is validated, converted and checked here, before anything is planned or read.
A field whose type cannot be a column is compared with Python's ``==``, and has no order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from inspect import unwrap
from typing import Any, Final

from kvmodels.errors import InvalidValueError
from kvmodels.schema.declare.expressions import And, Comparison, Expression, Lookup, Not, Or, Q, subquery_of
from kvmodels.schema.definition.definition import ColumnSource, IndexDefinition, ModelSchema
from kvmodels.schema.definition.kind_lookup import KindLookup
from kvmodels.schema.definition.kinds import KINDS
from kvmodels.schema.filters.changes import Term
from kvmodels.schema.filters.field_operands import OF_FIELDS, field_operand
from kvmodels.schema.filters.kind_lookups import OF_KIND, KindKeyword, KindOperand
from kvmodels.schema.filters.link_filters import on_links, refuse_links, together
from kvmodels.schema.filters.operands import (
    PRIMARY_KEY,
    Keyword,
    PathKeyword,
    bounds_of,
    checked_subquery,
    comparable,
    flag,
    is_own,
    key_values,
    known_field,
    listed,
    lookups_of,
    path_keyword,
    prefix_of,
    refuse_reference,
    refused,
    require_own,
    split_keyword,
    takes_as_given,
    unknown_lookup,
    value_of,
    values_of,
    whole_of,
)
from kvmodels.schema.filters.predicate import (
    ALWAYS,
    NEVER,
    TEXT_TESTS,
    AllOf,
    AnyOf,
    Condition,
    Conjunction,
    Predicate,
    all_of,
    any_of,
    conjunction,
)
from kvmodels.schema.filters.relation_keywords import RelationKeyword, compares_keys, refuse_lookup, relation_keyword
from kvmodels.schema.filters.target_filters import on_target
from kvmodels.schema.filters.validation import validated, validated_list, validated_whole

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor

_OPPOSITES: Final[Mapping[str, Lookup]] = {"exact": "ne", "ne": "exact", "in": "not_in", "not_in": "in"}
_REVERSED: Final[Mapping[str, Lookup]] = {"gt": "lte", "lte": "gt", "lt": "gte", "gte": "lt"}
_TOTALLY_ORDERED: Final = frozenset({"bool", "int", "str", "bytes", "uuid", "ulid", "date", "timedelta", "ip4"})
"""Columns that hold every value of their type. An unindexed field of another type may hold values without an order
(NaN, a naive datetime, an int that is not a JavaScript number), for which "not greater" is not "less or equal"."""


def parse(schema: ModelSchema, expressions: Iterable[Expression], keywords: Mapping[str, Any]) -> Conjunction:
    """Return the normal form of the arguments of one ``filter()``; ``(NEVER,)`` if they contradict each other."""
    plain = None if expressions else _plain(schema, keywords)
    if plain is not None:
        return plain
    parts = [*_said(schema, expressions), *_of_keywords(schema, keywords)]
    return conjunction([together(parts)] if schema.relations else parts)


def _plain(schema: ModelSchema, keywords: Mapping[str, Any]) -> Conjunction | None:
    """Parse fields with values that their columns accept unchanged; None for anything else, and for a refused value."""
    packers, found = schema.compiled.packers, list[Condition]()
    for name, operand in keywords.items():
        if name in packers:
            pack = packers[name]
        elif name in schema.fields:
            pack = packers[name] = _plain_packer(schema, name)
        else:
            return None
        if pack is None or operand is None:
            return None
        try:
            pack(operand)
        except InvalidValueError:
            return None
        found.append(_new(Condition, (name, "exact", operand, False, False)))
    return tuple(found)


def _plain_packer(schema: ModelSchema, name: str) -> Callable[[Any], bytes] | None:
    source = schema.source(name)
    if source is None or source.name != name or not takes_as_given(schema, name):
        return None
    bare: Callable[[Any], bytes] = unwrap(source.codec.pack)
    return bare


def negate(schema: ModelSchema, predicate: Predicate) -> Predicate:
    """Return the negation of a predicate, pushed down to the conditions."""
    if isinstance(predicate, AllOf):
        return any_of(negate(schema, part) for part in predicate.parts)
    if isinstance(predicate, AnyOf):
        return all_of(negate(schema, part) for part in predicate.parts)
    if predicate.negated or predicate.any:
        return predicate._replace(negated=not predicate.negated)
    field, lookup, operand = predicate.field, predicate.lookup, predicate.operand
    if lookup in _OPPOSITES:
        return Condition(field, _OPPOSITES[lookup], operand)
    if lookup == "isnull":
        return Condition(field, lookup, not operand)
    source = schema.source(field)
    total = source is not None and not source.nullable and source.codec.name in _TOTALLY_ORDERED
    if lookup in _REVERSED and total:
        return Condition(field, _REVERSED[lookup], operand)
    return predicate._replace(negated=True)


def _said(schema: ModelSchema, expressions: Iterable[object]) -> list[Predicate]:
    """Return the predicates of expressions; an empty ``Q`` has none."""
    said = [_of_expression(schema, expression) for expression in expressions]
    return [predicate for predicate in said if predicate is not None]


def _of_keywords(schema: ModelSchema, keywords: Mapping[str, Any]) -> list[Predicate]:
    found: list[Predicate] = []
    for name, operand in keywords.items():
        keyword = split_keyword(schema, name)
        if isinstance(keyword, PathKeyword):
            found.append(_of_path(schema, keyword, operand))
        elif isinstance(keyword, RelationKeyword):
            found.append(_of_relation(schema, keyword, operand))
        elif isinstance(keyword, KindKeyword):
            found.append(_of_kind(schema, keyword, operand))
        else:
            found.append(_predicate(schema, keyword, operand))
    return found


def _of_path(schema: ModelSchema, path: PathKeyword, operand: Any, said: str | None = None) -> Predicate:
    """Return a condition on the target of a foreign key; one on the key of the target is about the foreign key.

    ``said``: the name that a call has for the foreign key, if it is another one.
    """
    target = schema.targets[path.field]
    head, _, lookup = path.rest.partition("__")
    if head in (PRIMARY_KEY, target.primary_key[0].field):
        return all_of(_of_keywords(schema, {f"{path.field}__{lookup or 'exact'}": operand}))
    return _on_target(schema, path.field, all_of(_of_keywords(target, {path.rest: operand})), said)


def _of_relation(schema: ModelSchema, keyword: RelationKeyword, operand: Any) -> Predicate:
    """Return a condition on the other side of a many-to-many relation; without a field, it is about its records."""
    relation = schema.relations[keyword.field]
    links, other = relation.links, relation.other
    if keyword.rest == "isnull" or (keyword.rest in ("", "exact") and operand is None):
        exists = on_links(schema, relation, ALWAYS)
        return negate(schema, exists) if operand is None or flag(schema, keyword.field, operand) else exists
    if compares_keys(relation, keyword.rest):
        predicate = all_of(_of_keywords(links, {f"{other}__{keyword.rest or 'exact'}": operand}))
    else:
        refuse_lookup(schema, relation, keyword.rest)
        predicate = _of_path(links, PathKeyword(other, keyword.rest), operand, keyword.field)
    return on_links(schema, relation, predicate)


def _of_relation_comparison(schema: ModelSchema, keyword: RelationKeyword, comparison: Comparison) -> Predicate:
    relation = schema.relations[keyword.field]
    path, comparison = PathKeyword(relation.other, keyword.rest), replace(comparison, model=None)
    return on_links(schema, relation, _of_path_comparison(relation.links, path, comparison, keyword.field))


def _on_target(schema: ModelSchema, field: str, predicate: Predicate, said: str | None = None) -> Predicate:
    if schema.targets[field].relations:
        refuse_links(schema.targets[field], said or field, predicate)
    return on_target(schema, field, predicate, negate(schema.targets[field], predicate))


def _of_kind(schema: ModelSchema, keyword: KindKeyword, operand: Any) -> Condition:
    """Return the condition of a lookup that a kind of index adds."""
    name, lookup, index = keyword
    refuse_reference(schema, name, operand)
    definition = schema.indexes[index]
    known = KINDS[definition.kind].lookups[lookup]
    if operand is None or subquery_of(operand) is not None:
        hint = _hint_of(known, schema, definition)
        hint = hint or f"Give the operand that {lookup} of an index of kind {definition.kind} takes."
        raise refused(schema, name, operand, "this lookup takes neither None nor a query", hint)
    try:
        value = known.operand(schema, definition, operand)
    except InvalidValueError as error:
        error.model, error.field = schema.name, name
        raise
    return Condition(name, OF_KIND, KindOperand(index, lookup, value, narrowed=known.narrows(value)))


def _hint_of(lookup: KindLookup, schema: ModelSchema, definition: IndexDefinition) -> str | None:
    """Return how to write an operand of a lookup, as its error for None says it."""
    try:
        lookup.operand(schema, definition, None)
    except InvalidValueError as error:
        return error.hint
    return None


def _of_expression(schema: ModelSchema, expression: object) -> Predicate | None:
    joined = together if schema.relations else all_of
    if isinstance(expression, Comparison):
        return _of_comparison(schema, expression)
    if isinstance(expression, Q):
        parts = _said(schema, expression.expressions) + _of_keywords(schema, dict(expression.lookups))
        return joined(parts) if parts else None
    if isinstance(expression, (And, Or)):
        parts = _said(schema, expression.parts)
        return (joined if isinstance(expression, And) else any_of)(parts) if parts else None
    if isinstance(expression, Not):
        positive = _of_expression(schema, expression.part)
        return None if positive is None else negate(schema, positive)
    # Callers without a type checker may pass anything, for example the result of `18 == 18`.
    raise InvalidValueError(
        "this is not an expression",
        model=schema.name,
        type=type(expression).__name__,
        hint=f"Write an expression such as {schema.name}.field >= 18, or a keyword such as field__gte=18. Properties "
        "and methods of the class are not fields.",
    )


def _of_comparison(schema: ModelSchema, comparison: Comparison) -> Predicate:
    require_own(schema, "the expression is about another model", comparison.model, comparison.field)
    if comparison.field not in schema.fields:
        is_field = is_own(schema, comparison.field)
        relation = None if is_field else relation_keyword(schema, comparison.field)
        if relation is not None and relation.rest:
            return _of_relation_comparison(schema, relation, comparison)
        path = None if is_field else path_keyword(schema, comparison.field.split("__"))
        if path is not None:
            return _of_path_comparison(schema, path, comparison)
    name = known_field(schema, comparison.field)
    return _predicate(schema, Keyword(name, comparison.lookup, comparison.any), comparison.operand)


def _of_path_comparison(
    schema: ModelSchema, path: PathKeyword, comparison: Comparison, said: str | None = None
) -> Predicate:
    target = schema.targets[path.field]
    if path.rest in (PRIMARY_KEY, target.primary_key[0].field):
        return _of_comparison(schema, replace(comparison, field=path.field))
    rest = _of_comparison(target, replace(comparison, field=path.rest, model=None))
    return _on_target(schema, path.field, rest, said)


def _predicate(schema: ModelSchema, keyword: Keyword, operand: Any) -> Predicate:
    name, lookup, element = keyword
    if name == PRIMARY_KEY and len(schema.primary_key) == 1:
        name = schema.primary_key[0].field
    if isinstance(operand, Term):
        return _of_fields(schema, name, lookup, operand, element=element)
    refuse_reference(schema, name, operand)
    subquery = subquery_of(operand)
    if subquery is not None:
        return Condition(name, lookup, checked_subquery(schema, name, lookup, subquery))
    if name == PRIMARY_KEY:
        return _of_composite_key(schema, lookup, operand)
    source = schema.source(name)
    if element and (source is None or not source.many):
        raise unknown_lookup(schema, name, "any", lookups_of(schema, name, source, element=False))
    available = lookups_of(schema, name, source, element=element)
    if lookup not in available:
        raise unknown_lookup(schema, name, lookup, available)
    if name in schema.blobs and lookup != "isnull" and operand is not None:
        hint = f"Test whether there is one: {name}=None. Keep its hash or name in a field of its own to find it."
        raise refused(schema, name, operand, "records are not found by the content of a blob", hint)
    if lookup == "isnull":
        return Condition(name, lookup, flag(schema, name, operand))
    if source is None or (source.many and not element):
        return _of_whole_field(schema, name, source, lookup, operand)
    validators = schema.compiled.validators
    if validators.get(source.name, validators) is not None:  # not the usual case, of which the name and None are known
        operand = _validated(schema, source, lookup, operand)
    if operand is None and lookup in ("exact", "ne", "iexact") and not element:
        return Condition(name, "isnull", lookup != "ne")
    return _of_value(schema, source, lookup, operand, element=element)


def _of_fields(schema: ModelSchema, name: str, lookup: Lookup, operand: Term, *, element: bool) -> Predicate:
    """Return a comparison of a field with another field of the record."""
    compared = field_operand(schema, name, f"any__{lookup}" if element else lookup, operand)
    return Condition(name, OF_FIELDS, compared, negated=lookup == "ne")


def _validated(schema: ModelSchema, source: ColumnSource, lookup: Lookup, operand: Any) -> Any:
    """Return the operand as the field would store it, if the lookup compares for equality."""
    if lookup in ("exact", "ne"):
        return validated(schema, source, operand)
    return validated_list(schema, source, operand) if lookup in ("in", "not_in") else operand


def _of_value(schema: ModelSchema, source: ColumnSource, lookup: Lookup, operand: Any, *, element: bool) -> Predicate:
    """Return a comparison of a column with one value, or of one element of a multi-value column."""
    if lookup in ("in", "not_in"):
        written = f"any__{lookup}" if element else lookup
        values = values_of(schema, source, written, operand, nulls=not element)
        return _listed(source.name, lookup, values, element=element)
    if lookup == "range":
        operand = bounds_of(schema, source, operand)
    elif lookup == "startswith" or lookup in TEXT_TESTS:
        operand = prefix_of(schema, source, operand)
    else:
        operand = value_of(schema, source, operand)
    return Condition(source.name, lookup, operand, any=element)


def _listed(field: str, lookup: Lookup, values: tuple[Any, ...], *, element: bool) -> Predicate:
    if values:
        return Condition(field, lookup, values, any=element)
    if lookup == "in":
        return NEVER
    # Every element satisfies "none of no values". The test that there is an element remains, and no other lookup
    # expresses it.
    return Condition(field, lookup, values, any=True) if element else ALWAYS


def _of_whole_field(
    schema: ModelSchema, name: str, source: ColumnSource | None, lookup: Lookup, operand: Any
) -> Predicate:
    """Return a comparison of a field with Python's ``==``, or a search in its elements."""
    if source is not None and lookup == "contains":
        operand = validated(schema, source, operand)
        return Condition(name, "exact", value_of(schema, source, operand), any=True)
    if source is not None and lookup in ("contains_any", "contains_all"):
        operand = validated_list(schema, source, operand)
        values = values_of(schema, source, lookup, operand, nulls=False)
        if lookup == "contains_any":
            return _listed(name, "in", values, element=True)
        return all_of(Condition(name, "exact", value, any=True) for value in values)
    if lookup in ("in", "not_in"):
        given = listed(schema, name, lookup, operand)
        held = tuple(_whole_operand(schema, name, source, value) for value in given)
        return _listed(name, lookup, held, element=False)
    if operand is None:
        return Condition(name, "isnull", lookup == "exact")
    return Condition(name, lookup, _whole_operand(schema, name, source, operand))


def _whole_operand(schema: ModelSchema, name: str, source: ColumnSource | None, value: Any) -> Any:
    try:
        if value is None:
            return None
        if source is None:
            return comparable(validated_whole(schema, name, value))
        return whole_of(schema, source, value)
    except RecursionError:
        message = "a value that contains itself or is nested too deeply cannot be compared"
        hint = "Compare with another value, or read the records and compare a part of the value in Python."
        raise refused(schema, name, value, message, hint) from None


def _of_composite_key(schema: ModelSchema, lookup: Lookup, operand: Any) -> Predicate:
    if lookup == "exact":
        values = comparable(key_values(schema, operand))
        return all_of(
            Condition(column.field, "exact", value) for column, value in zip(schema.primary_key, values, strict=True)
        )
    if lookup in ("in", "not_in"):
        given = listed(schema, PRIMARY_KEY, lookup, operand)
        keys = dict.fromkeys(comparable(key_values(schema, key)) for key in given)
        return _listed(PRIMARY_KEY, lookup, tuple(keys), element=False)
    raise unknown_lookup(schema, PRIMARY_KEY, lookup, lookups_of(schema, PRIMARY_KEY, None, element=False))
