"""Resolve names in a query to columns and lookups, and convert operands to the type of the column.

``address__city__startswith`` is the lookup ``startswith`` on the path ``address.city``: the longest prefix that names a
field or path wins, so a field may have the name of a lookup.

Rules of this module: pure; the error for an unknown name suggests the nearest known one. An operand that the column
cannot hold raises an InvalidValueError that names the field, before anything is planned or read. None is never passed
to the function of a folded field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, Final, NamedTuple, cast, get_args

from pydantic.fields import FieldInfo

from kvmodels._support import suggest as spelling
from kvmodels.codecs.columns.scalars import BYTES, DECIMAL
from kvmodels.errors import DecodeError, InvalidValueError, SchemaMismatchError, UnknownFieldError, UnknownLookupError
from kvmodels.schema.declare.annotations import container_kind, nested_fields, plain
from kvmodels.schema.declare.expressions import (
    Comparable,
    Expression,
    Lookup,
    MultiFieldRef,
    Order,
    Subquery,
    is_bounds,
    is_list_of_values,
)
from kvmodels.schema.definition.definition import Column, ColumnSource, ModelSchema
from kvmodels.schema.definition.properties import hint_to_query
from kvmodels.schema.definition.variants import constructor_of, key_given
from kvmodels.schema.filters.encrypted_fields import lookups_of_blind
from kvmodels.schema.filters.kind_lookups import KindKeyword, kind_keyword, kind_lookups_of, without_index
from kvmodels.schema.filters.relation_keywords import RelationKeyword, refuse_relation, relation_keyword
from kvmodels.schema.filters.validation import validated, validated_whole, value_validator

PRIMARY_KEY: Final = "pk"
"""The name of the primary key in lookups and orders, as in Django."""

_LOOKUPS: Final[Mapping[str, Lookup]] = {lookup: lookup for lookup in get_args(Lookup)}
_KEY: Final = frozenset({"exact", "in", "not_in"})
_WHOLE: Final = frozenset({"exact", "ne", "in", "not_in", "isnull"})
_ELEMENT: Final = frozenset({"exact", "ne", "gt", "gte", "lt", "lte", "in", "not_in", "range"})
_BYTES_ELEMENT: Final = _ELEMENT | {"startswith", "endswith", "contains"}
_TEXT_ELEMENT: Final = _BYTES_ELEMENT | {"icontains", "iexact"}
_SEVERAL: Final = frozenset({"contains", "contains_any", "contains_all", "isnull"})
_SEVERAL_OF_FIELD: Final = _SEVERAL | _WHOLE


class Keyword(NamedTuple):
    """The parts of a keyword of ``filter``: the name with dots, the lookup, and whether it applies to any element."""

    name: str
    lookup: Lookup
    any: bool = False


class PathKeyword(NamedTuple):
    """A keyword about the target of a foreign key: the foreign key, and the keyword of its target."""

    field: str
    rest: str


def known_field(schema: ModelSchema, name: str) -> str:
    """Return the name of a field, path, computed column or ``pk`` in a condition. Raises UnknownFieldError."""
    if name in schema.fields or name == PRIMARY_KEY or is_computed(schema, name):
        return name
    known = _named(schema, name.split("__"))
    if known is None:
        refuse_relation(schema, name)
        _refuse_other_side(schema, name.split("__"))
        raise _unknown_field(schema, name)
    return known


def is_computed(schema: ModelSchema, name: str) -> bool:
    """Return whether a name is that of a computed column, and not of one of several columns of blind values."""
    found = schema.computed.get(name)
    return found is not None and found.name == name


def is_own(schema: ModelSchema, name: str) -> bool:
    """Return whether a name is that of a field, path, computed column or ``pk`` of the model itself."""
    return _named(schema, name.split("__")) is not None


def single_key(schema: ModelSchema, name: str) -> str:
    """Return the field for ``pk``, if the primary key is one field; any other name unchanged."""
    return schema.primary_key[0].field if name == PRIMARY_KEY and len(schema.primary_key) == 1 else name


def require_own(schema: ModelSchema, message: str, model: type[Any] | None, field: str) -> None:
    """Refuse a field of another model. Raises UnknownFieldError."""
    if model is not None and not issubclass(schema.model, model):
        hint = f"Take the field from the class: {schema.name}.{field}."
        raise UnknownFieldError(message, model=schema.name, field=f"{model.__name__}.{field}", hint=hint)


def split_keyword(schema: ModelSchema, keyword: str) -> Keyword | KindKeyword | PathKeyword | RelationKeyword:
    """Return the parts of a keyword."""
    if keyword in schema.fields or keyword == PRIMARY_KEY:
        return Keyword(keyword, "exact")
    field, _, last = keyword.rpartition("__")
    if field in schema.column_codecs and last in _LOOKUPS:  # the usual case: a column has no nested names
        return Keyword(field, _LOOKUPS[last])
    words = keyword.split("__")
    for size in range(len(words), 0, -1):
        name = _named(schema, words[:size])
        if name is not None:
            return _with_lookup(schema, name, words[size:])
    of_relation = relation_keyword(schema, keyword)
    if of_relation is not None:
        return of_relation
    of_kind = kind_keyword(schema, keyword)
    if of_kind is not None:
        return of_kind
    path = path_keyword(schema, words)
    if path is not None:
        return path
    _refuse_other_side(schema, words)
    indexed, given = (field, last) if field else (keyword, "exact")
    if known := kind_lookups_of(schema, indexed):
        raise unknown_lookup(schema, indexed, given, known)
    if len(words) > 1 and words[-1] in _LOOKUPS:  # rather a misspelt field than an index that is missing
        error = _unknown_field(schema, "__".join(words[:-1]))
        if words[-1] == "isnull" and error.suggestion is None:
            error.hint = f"{error.hint} {_NO_REFERRERS}"
        raise error
    raise without_index(schema, indexed, given) or _unknown_field(schema, words[0] or keyword)


def lookups_of(schema: ModelSchema, name: str, source: ColumnSource | None, *, element: bool) -> frozenset[str]:
    """Return the lookups of a field (``source`` None: of an unordered type), or of its elements."""
    if name == PRIMARY_KEY:
        return _KEY
    if schema.encrypted and name.partition(".")[0] in schema.encrypted:
        return lookups_of_blind(source)
    if source is None:
        return _WHOLE
    if source.many and not element:
        # A path through a list collects values; there is no field with a single whole value.
        return _SEVERAL_OF_FIELD if name in schema.fields else _SEVERAL
    lookups = _ELEMENT
    if source.codec.pack_prefix is not None:
        lookups = _BYTES_ELEMENT if source.codec.name == BYTES.name else _TEXT_ELEMENT
    return lookups if element else lookups | {"isnull"}


_NO_REFERRERS: Final = (
    'Records to which no other record refers: authors.exclude(pk__in=books.values_list("author_id", flat=True)).'
)

_ELSEWHERE: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("date", "day", "hour", "month", "quarter", "time", "week", "week_day", "year"),
        "There are no parts of dates: compare with a range, or declare a computed column. ",
    ),
    **dict.fromkeys(("iregex", "regex", "search"), "There are no patterns: test the records in Python. "),
}
"""Hints for lookups that Django has and this library does not."""


def unknown_lookup(schema: ModelSchema, field: str, lookup: str, known: Iterable[str]) -> UnknownLookupError:
    """Return the error for a lookup that the field does not support."""
    names = sorted(known)
    near = None if lookup in _ELSEWHERE else spelling.closest(lookup, names)
    hint = f"{_ELSEWHERE.get(lookup, '')}It has: {', '.join(names)}."
    if field in schema.encrypted:
        reason = "a blind index finds only equal values"
        if names == ["isnull"]:
            reason = "declare Indexed(), Unique() or MultiIndexed() for a blind index, which finds equal values"
        hint = f"The field is encrypted: {reason}. {hint}"
    target = schema.targets.get(field)
    if target is not None:
        near = near or spelling.closest(lookup, target.fields)
        hint = f"{hint} The fields of {target.name} are: {', '.join(target.fields)}."
    elif field in schema.references and lookup in getattr(schema.references[field].target, "model_fields", ()):
        near = None
        hint = f"{_NO_TARGET} {_by_query(schema, field, lookup)} {hint}"
    return UnknownLookupError(
        "this lookup does not exist for this field",
        model=schema.name,
        field=field,
        lookup=lookup,
        suggestion=near,
        hint=hint,
    )


def _named(schema: ModelSchema, words: list[str]) -> str | None:
    plain = "__".join(words)
    if plain in schema.fields or plain == PRIMARY_KEY or is_computed(schema, plain):
        return plain
    dotted = ".".join(words)
    return dotted if "." in dotted and schema.source(dotted) is not None else None


def _with_lookup(schema: ModelSchema, name: str, words: list[str]) -> Keyword | KindKeyword | PathKeyword:
    source = None if name == PRIMARY_KEY else schema.source(name)
    element = bool(words) and words[0] == "any" and source is not None and source.many
    rest = words[1:] if element else words
    given = "__".join(rest) if rest else "exact"
    if given in _LOOKUPS:
        return Keyword(name, _LOOKUPS[given], element)
    of_kind = kind_keyword(schema, "__".join([*name.split("."), *words]))
    if of_kind is not None:
        return of_kind
    path = path_keyword(schema, [name, *words])
    if path is not None:
        return path
    if len(words) > 1:
        _refuse_other_side(schema, [name, *words])
    if source is None and nested_fields(schema.shape, name):
        raise _unknown_field(schema, ".".join([name, *(words[:-1] if words[-1] in _LOOKUPS else words)]))
    if len(words) > 1 and words[-1] in _LOOKUPS and words[0] != "any":
        raise _unknown_field(schema, "__".join([name, *words[:-1]]))
    missing = without_index(schema, name, given)
    if missing is not None:
        raise missing
    known = lookups_of(schema, name, source, element=element).union(kind_lookups_of(schema, name))
    raise unknown_lookup(schema, name, given, known | {"any"} if source is not None and source.many else known)


_NO_TARGET: Final = (
    "Paths need the target among the models of the database, and have no part in the condition of an index."
)


def _refuse_other_side(schema: ModelSchema, words: Sequence[str]) -> None:
    """Refuse names of fields of the target of a foreign key, such as ``author__name``."""
    found = field_of_target(schema, words)
    if found is not None:
        raise UnknownFieldError(
            "a field of the target of a foreign key cannot be used here",
            model=schema.name,
            field="__".join(words),
            suggestion=None,
            hint=f"{_NO_TARGET} {_by_query(schema, *found)}",
        )


def path_keyword(schema: ModelSchema, words: Sequence[str]) -> PathKeyword | None:
    """Return the foreign key that words begin with, and the rest, if that begins with a field of the target."""
    for size in range(1, len(words)):
        name, rest = "__".join(words[:size]), words[size:]
        for field in (name, f"{name}_id"):
            if field not in schema.targets:
                continue
            if _begins_with_field(schema.targets[field], rest) or (field != name and rest[0] not in _LOOKUPS):
                return PathKeyword(field, "__".join(rest))
    return None


def _begins_with_field(schema: ModelSchema, words: Sequence[str]) -> bool:
    names = ["__".join(words[:size]).partition(".")[0] for size in range(1, len(words) + 1)]
    own = (PRIMARY_KEY, *schema.fields, *schema.computed, *schema.relations)
    return any(name in own for name in names) or any(f"{name}_id" in schema.references for name in names[:-1])


def field_of_target(schema: ModelSchema, words: Sequence[str]) -> tuple[str, str] | None:
    """Return the foreign key and the field of its target that words such as ``author``, ``name`` mean, or None."""
    for size in range(1, len(words)):
        name, rest = "__".join(words[:size]), words[size:]
        for field in (name, f"{name}_id"):
            if field in schema.references and rest[0] in getattr(schema.references[field].target, "model_fields", ()):
                return field, "__".join(rest)
    return None


def _by_query(schema: ModelSchema, field: str, lookup: str) -> str:
    """Return a hint that shows how to filter by a field of the target of a foreign key."""
    target = schema.references[field].target_name
    return f"Filter by a query: {schema.name}.{field}.in_(db[{target}].filter({lookup}=...))."


def nearest_field(schema: ModelSchema, name: str, known: Iterable[str] | None = None) -> str | None:
    """Return the field that an unknown name probably means, by its alias or by a similar spelling."""
    aliased = constructor_of(schema.model).aliases.get(name)
    if aliased is not None:
        return aliased
    fields: Mapping[str, FieldInfo] = schema.model.model_fields
    for field, info in fields.items():
        if name == info.serialization_alias:
            return field
    return spelling.closest(name, schema.fields if known is None else known)


def _unknown_field(schema: ModelSchema, name: str) -> UnknownFieldError:
    parent, dot, last = name.replace("__", ".").rpartition(".")
    nested: Iterable[str] = nested_fields(schema.shape, parent) if dot else ()
    if last in nested:
        return UnknownFieldError(
            "a field of this type inside of a nested model cannot be compared",
            model=schema.name,
            field=name,
            suggestion=None,
            hint="It can if its type can be in an index; otherwise compare the whole field that the model is in.",
        )
    names, hint = names_of(schema)
    known = [f"{parent}.{field}" for field in nested]
    if nested:
        hint = f"Its fields are: {', '.join(known)}."
    return UnknownFieldError(
        "the model has no field of this name",
        model=schema.name,
        field=name,
        suggestion=nearest_field(schema, f"{parent}.{last}" if nested else name, known or [*names, PRIMARY_KEY]),
        hint=hint_to_query(schema.model, name) or hint,
    )


def names_of(schema: ModelSchema) -> tuple[list[str], str]:
    """Return the names that queries can give, of fields and of indexes with lookups, and a hint that lists them."""
    # The stored terms of a search index have a name of several words, which no query can give.
    fields = list(dict.fromkeys([*schema.fields, *(one for one in schema.computed if one.isidentifier())]))
    indexes = [one for one in schema.indexes if one not in fields and kind_lookups_of(schema, one)]
    hint = f"Its fields are: {', '.join(fields)}."
    if indexes:
        hint += f" Its indexes with lookups of their own are: {', '.join(indexes)}."
    return [*fields, *indexes], hint


_CONTAINERS = (list, tuple, set, frozenset)


def key_values(schema: ModelSchema, key: Any) -> tuple[Any, ...]:
    """Return the values of a primary key in the form that callers pass: the value, or a tuple if it is composite."""
    columns = schema.primary_key
    if len(columns) == 1:
        return (_key_value(schema, columns[0], key),)
    values = cast("Sequence[Any]", key) if isinstance(key, tuple) else ()
    if len(values) != len(columns):
        hint = f"Give ({', '.join(column.field for column in columns)})."
        raise refused(schema, PRIMARY_KEY, key, "a composite primary key is given as a tuple of all its values", hint)
    return tuple(_key_value(schema, column, value) for column, value in zip(columns, values, strict=True))


def _key_value(schema: ModelSchema, column: Column, value: Any) -> Any:
    source = schema.source(column.field)
    assert source is not None  # every field of a primary key is a column
    return _converted(schema, column.field, column, validated(schema, source, value))


def takes_as_given(schema: ModelSchema, name: str) -> bool:
    """Return whether operands of equality are packed unchanged, without validation, parsing or conversion."""
    source = schema.source(name)
    if source is None or source.normalise is not None or source.many:
        return False
    codec = source.codec
    plain_values = codec.from_stored is None and codec.name != DECIMAL.name
    return plain_values and value_validator(schema, source) is None


def value_of(schema: ModelSchema, source: ColumnSource, value: Any) -> Any:
    """Return the value in the form of the column: a str is parsed (to a UUID, a date), then folded."""
    converted = _converted(schema, source.name, source.given or source, value)
    if source.normalise is not None:
        converted = _normalised(schema, source, converted, source.codec.pack)
    return comparable(converted)


def values_of(schema: ModelSchema, source: ColumnSource, written: str, operand: Any, *, nulls: bool) -> tuple[Any, ...]:
    """Return the values of a list, without duplicates of a packed part; with ``nulls`` one value may be None."""
    given = listed(schema, source.name, written, operand)
    held = (None if value is None and nulls else value_of(schema, source, value) for value in given)
    pack, distinct = source.codec.pack, dict[bytes | None, Any]()
    for value in held:
        distinct.setdefault(None if value is None else pack(value), value)
    return tuple(distinct.values())


def comparable(value: Any) -> Any:
    """Return the value with every datetime at a fixed offset, so that equal datetimes are equal instants.

    In its own time zone, Python considers the two instants of a repeated hour equal, and either unequal to the same
    instant in another time zone.

    Examples:
        >>> from datetime import datetime
        >>> from zoneinfo import ZoneInfo
        >>> first = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
        >>> first == first.replace(fold=1), comparable(first) == comparable(first.replace(fold=1))
        (True, False)
    """
    if isinstance(value, datetime):
        offset = None if type(value.tzinfo) is timezone else value.utcoffset()
        return value if offset is None else value.replace(tzinfo=timezone(offset), fold=0)
    if value.__class__ in _CONTAINERS:
        return type(value)([comparable(item) for item in value])
    return {comparable(key): comparable(item) for key, item in value.items()} if value.__class__ is dict else value


def prefix_of(schema: ModelSchema, source: ColumnSource, value: Any) -> Any:
    """Return the operand of ``startswith`` or a test of a text. Raises InvalidValueError if it has the wrong type."""
    check = source.codec.pack_prefix
    assert check is not None  # other columns have no such lookup
    _checked(schema, source.name, check, value)
    return value if source.normalise is None else _normalised(schema, source, value, check)


def bounds_of(schema: ModelSchema, source: ColumnSource, operand: Any) -> tuple[Any, Any, str]:
    """Return the two ends of a range, and which of them are included."""
    # A keyword has (low, high), both included, like Django's range; User.age.between() adds its bounds.
    ends = tuple(cast("list[Any]", operand)) if isinstance(operand, (tuple, list)) else ()
    if len(ends) == 2:
        ends = (*ends, "[]")
    if len(ends) != 3 or not is_bounds(ends[2]):
        hint = f"Write {_keyword(source.name)}__range=(low, high)."
        raise refused(schema, source.name, operand, "range takes two values", hint)
    return value_of(schema, source, ends[0]), value_of(schema, source, ends[1]), ends[2]


def flag(schema: ModelSchema, field: str, operand: Any) -> bool:
    """Return the operand of ``isnull``. Raises InvalidValueError if it is neither True nor False."""
    if not isinstance(operand, bool):
        raise refused(
            schema, field, operand, "isnull takes True or False", f"Write {_keyword(field)}__isnull=True, or False."
        )
    return operand


def listed(schema: ModelSchema, field: str, written: str, operand: Any) -> tuple[Any, ...]:
    """Return the operand of ``in`` and similar lookups as a tuple; ``written`` as in ``values_of``."""
    if not is_list_of_values(operand):
        hint = f"Write {_keyword(field)}__{written}=[...], with the values in brackets."
        raise refused(schema, field, operand, "this lookup takes a list of values", hint)
    return tuple(operand)


def checked_subquery(schema: ModelSchema, field: str, lookup: str, operand: Subquery) -> Subquery:
    """Return a query as operand. Raises InvalidValueError unless its results have keys that the field can equal."""
    if lookup in ("in", "not_in") and _holds_keys_of(schema, field, operand):
        return operand
    reference, found = schema.references.get(field), operand.query.schema
    wanted = None if reference is None else schema.indexes[reference.index_name].reference
    if [column.field for column in schema.primary_key] == [field]:
        wanted = wanted or schema.collection
    if wanted is None or lookup not in ("in", "not_in"):
        hint = "Give a query only to in_ and not_in of a foreign key, Book.author_id.in_(authors.filter(...)), or of a "
        hint += 'primary key, authors.filter(pk__in=books.filter(...).values_list("author_id", flat=True)).'
        raise refused(schema, field, operand, "this lookup does not take a query", hint)
    fields: tuple[str, ...] | None = operand.query.fields
    if fields is None and reference is None:
        hint = "Give a query for the values of a foreign key to this model, with values_list(key, flat=True)."
        raise refused(schema, field, operand, "a primary key is compared with keys and not with records", hint)
    collection = found.collection if fields is None else found.indexes[found.references[fields[0]].index_name].reference
    if collection != wanted:
        hint = f"Give a query for keys of {schema.name if reference is None else reference.target_name}."
        raise refused(schema, field, operand, "the query has keys of another model than the target", hint)
    return operand


def _holds_keys_of(schema: ModelSchema, field: str, operand: Subquery) -> bool:
    """Return whether a field that is no key has values of the type of the foreign key that a query returns."""
    fields: tuple[str, ...] | None = operand.query.fields
    is_key = field in schema.references or field in [column.field for column in schema.primary_key]
    source = None if fields is None or is_key else schema.source(field)
    if fields is None or source is None or source.many or source.normalise is not None:
        return False
    found: ModelSchema = operand.query.schema
    return source.codec.name == found.column_codecs[fields[0]].name


def refuse_reference(schema: ModelSchema, field: str, operand: Any) -> None:
    """Refuse a field or an expression as an operand: another field of the record is ``F("name")``."""
    for part in operand if type(operand) in _CONTAINERS else (operand,):
        if isinstance(part, (Comparable, MultiFieldRef, Expression, Order)):
            hint = 'Give a value, or another field as F("name"). An index on both fields is one of a computed column.'
            raise refused(schema, field, part, "a field is compared with a value", hint)


def whole_of(schema: ModelSchema, source: ColumnSource, value: Any) -> Any:
    """Return the operand of a comparison with a whole multi-value field, validated, and with folded elements."""
    kinds = container_kinds(schema.model, source.name)
    if not isinstance(value, kinds):
        name = _keyword(source.name)
        hint = f"Give a {kinds[0].__name__} of them, or write {name}__contains=value to find one among them."
        raise refused(schema, source.name, value, "a field with several values is compared with all of them", hint)
    made = validated_whole(schema, source.name, value)
    return comparable(folded_whole(source, made if isinstance(made, kinds) else value))


def container_kinds(model: type[Any], name: str) -> tuple[type, ...]:
    """Return the types whose objects can equal a field with several values, starting with the field's own type."""
    kind = container_kind(plain(model.__pydantic_fields__[name].annotation).annotation)
    return {set: (set, frozenset), frozenset: (frozenset, set)}.get(kind, (kind,))


def folded_whole(source: ColumnSource | None, value: Any) -> Any:
    """Return a list, set or tuple with each element folded by the function of its field."""
    if source is None or source.normalise is None or value.__class__ not in _CONTAINERS:
        return value
    kind: type[Any] = value.__class__
    fold = source.normalise
    return kind(None if element is None else fold(element) for element in value)


def _converted(schema: ModelSchema, field: str, source: Any, value: Any) -> Any:
    if field in schema.references:
        value = key_given(schema, field, value)
    codec = source.codec
    if isinstance(value, str) and codec.from_stored is not None:
        try:
            parsed = codec.from_stored(value)
            codec.pack(parsed)
        except (DecodeError, InvalidValueError):
            parsed = value  # the codec then refuses the original value, with the reason
        value = parsed
    elif type(value) is int and codec.name == DECIMAL.name:
        value = Decimal(value)  # exact; a float is not exact and is refused
    _checked(schema, field, codec.pack, value)
    return value


def _normalised(schema: ModelSchema, source: ColumnSource, value: Any, check: Callable[[Any], object]) -> Any:
    assert source.normalise is not None  # callers have checked it
    try:
        folded = source.normalise(value)
    except SchemaMismatchError:  # the key of blind values is missing
        raise
    except Exception as error:  # a user function may raise anything
        raise InvalidValueError(
            "the key function of a field failed for an operand",
            model=schema.name,
            field=source.name,
            type=type(error).__name__,
            hint="It must take every value that the field can hold.",
        ) from error
    _checked(schema, source.name, check, folded)
    return folded


def _checked(schema: ModelSchema, field: str, check: Callable[[Any], object], value: Any) -> None:
    try:
        check(value)
    except InvalidValueError as error:
        error.model, error.field = schema.name, field
        raise


def refused(schema: ModelSchema, field: str, operand: Any, message: str, hint: str) -> InvalidValueError:
    """Return the error for an operand of a field."""
    return InvalidValueError(message, model=schema.name, field=field, type=type(operand).__name__, hint=hint)


def _keyword(field: str) -> str:
    return field.replace(".", "__")
