"""Conditions and orders from text: query strings, forms and command lines.

Rules of this module: pure. Each text is converted by pydantic to the type of its column, and each condition is checked
like one of ``filter()``; every error names the parameter. A program that passes on what strangers sent gives the names
that they may use.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidArgumentError, InvalidLookupError, InvalidValueError, QueryError
from kvmodels.schema.compile.polymorphic import collection_schema, view_of
from kvmodels.schema.declare.annotations import element_of, literal_values, plain
from kvmodels.schema.declare.expressions import Q
from kvmodels.schema.definition.definition import ColumnSource, IndexDefinition
from kvmodels.schema.definition.fields import CODEC_TYPES
from kvmodels.schema.definition.kind_lookup import KindLookup
from kvmodels.schema.definition.kinds import KINDS
from kvmodels.schema.filters.kind_lookups import KindKeyword, is_lookup_name
from kvmodels.schema.filters.operands import (
    Keyword,
    PathKeyword,
    container_kinds,
    known_field,
    lookups_of,
    single_key,
    split_keyword,
    unknown_lookup,
)
from kvmodels.schema.filters.parse import parse
from kvmodels.schema.filters.relation_keywords import RelationKeyword

ORDER: Final = "order_by"
"""The parameter with the order."""

_INVALID: Final = "a parameter is not a valid condition"
_NO_VALUE: Final = "a parameter has a value that its field cannot have"
_LISTS: Final = frozenset({"in", "not_in", "contains_any", "contains_all", "range"})
_WHOLE_VALUES: Final = frozenset({"exact", "ne", "in", "not_in"})
_TYPES: Final[Mapping[str, type[Any]]] = {name: kinds[0] for name, kinds in CODEC_TYPES.items()} | {"ip": str}
"""The type of the values of each column codec; the filter converts them further, such as to a member of an Enum."""


@dataclass(frozen=True, slots=True)
class ParsedLookups:
    """Conditions and an order for a query.

    Attributes:
        where: the conditions, for ``filter(parsed.where)``; without any, an empty ``Q``.
        order_by: the columns, for ``order_by(*parsed.order_by)``.
    """

    where: Q
    order_by: tuple[str, ...]


def parse_lookups(
    model: type[Any],
    parameters: Mapping[str, str | Sequence[str]] | Iterable[tuple[str, str]],
    *,
    allow: Iterable[str] | None = None,
) -> ParsedLookups:
    """Convert text parameters, such as those of a query string, to typed conditions and an order.

    A name is a lookup as in ``filter()``: ``age``, ``age__gte``, ``address__city__startswith``. ``order_by`` has the
    columns of the order, separated by commas. The lookups ``in``, ``not_in``, ``contains_any``, ``contains_all`` and
    ``range`` take several values: repeat the parameter, separate the values by commas, or write a JSON list. So does
    ``overlaps`` of an index of intervals, for a start and an end, which may be empty: ``calendar__overlaps=9,12``.

    Args:
        model: the model class.
        parameters: texts by name, where a list of texts stands for a repeated parameter; or pairs of name and text,
            such as ``request.query_params.multi_items()``.
        allow: the names of fields and paths, and of indexes with lookups of their own, that conditions and the order
            may use; None for all. Give them for parameters that come from users of a web page.

    Returns:
        The conditions and the order. Cost: none; the query decides which index serves them.

    Raises:
        InvalidLookupError: a parameter names a field or a lookup that does not exist or is not allowed, is repeated,
            or has a text that its field cannot hold; the error has the name of the ``parameter``.
        InvalidArgumentError: ``parameters`` is neither a mapping nor pairs of texts.
        UnknownFieldError: ``allow`` names a field that the model does not have.

    Examples:
        >>> from kvmodels import Database, Indexed, KvModel, MultiIndexed, PrimaryKey
        >>> class User(KvModel, collection="users"):
        ...     id: PrimaryKey[int]
        ...     age: Indexed[int]
        ...     tags: MultiIndexed[list[str]]
        >>> parsed = parse_lookups(User, {"age__gte": "18", "order_by": "-age"}, allow=["age", "tags"])
        >>> parsed
        ParsedLookups(where=Q(age__gte=18), order_by=('-age',))
        >>> users = Database("memory://", models=[User])[User]
        >>> _ = users.create(id=1, age=36, tags=["x"])
        >>> [user.age for user in users.filter(parsed.where).order_by(*parsed.order_by)]
        [36]
    """
    reader = _ParameterReader(model, allow)
    lookups: dict[str, Any] = {}
    order: list[str] = []
    for name, texts in _grouped(parameters).items():
        if name == ORDER:
            order = [column for text in texts for column in reader.order(text)]
        else:
            lookups[name] = reader.operand(name, texts)
    return ParsedLookups(Q(**lookups), tuple(order))


class LookupValues(NamedTuple):
    """The values of a lookup.

    Attributes:
        kind: their type, such as ``int`` for ``age__gte``.
        several: whether the lookup takes several of them.
        choices: the only values that there are, if the field is a Literal and is compared with whole values.
    """

    kind: type[Any]
    several: bool
    choices: tuple[Any, ...]


def lookup_values(model: type[Any], name: str) -> LookupValues:
    """Return the values that a lookup takes. Raises InvalidLookupError: no such lookup can be given as text."""
    return _ParameterReader(model, None).values_of(name)


def _grouped(parameters: Any) -> dict[str, list[str]]:
    """Return the texts of each parameter. Raises InvalidArgumentError."""
    found: dict[str, list[str]] = {}
    items = getattr(parameters, "items", None)  # of a mapping
    try:
        for name, given in parameters if items is None else items():
            texts: list[Any] = [given] if isinstance(given, str) else list(given)
            if not isinstance(name, str) or not all(isinstance(text, str) for text in texts):
                raise TypeError
            found.setdefault(name, []).extend(texts)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            "the parameters are not a mapping of names to texts",
            argument="parameters",
            value=parameters,
            hint='Give a mapping such as {"age__gte": "18"}, or pairs of name and text.',
        ) from error
    return found


class _ParameterReader:
    """Converts the parameters for one model."""

    def __init__(self, model: type[Any], allow: Iterable[str] | None) -> None:
        collection = collection_schema(model)
        self._schema = view_of(collection, model) or collection
        self._allowed = None if allow is None else {self._known(name) for name in allow}

    def _known(self, name: str) -> str:
        """Return the name of a field or path, or that of an index with lookups of its own."""
        schema = self._schema
        return name if is_lookup_name(schema, name) else single_key(schema, known_field(schema, name))

    def order(self, text: str) -> list[str]:
        """Return the columns of an order."""
        columns = [column.strip() for column in text.split(",") if column.strip()]
        for column in columns:
            try:
                name = known_field(self._schema, column.removeprefix("-"))
            except QueryError as error:
                raise self._refused(ORDER, error) from error
            self._require_allowed(ORDER, name)
        return columns

    def operand(self, parameter: str, texts: Sequence[str]) -> Any:
        """Return the operand of a lookup."""
        keyword = self._keyword(parameter)
        self._require_allowed(parameter, keyword.name)
        if isinstance(keyword, KindKeyword):
            operand = self._of_kind(parameter, keyword, texts)
        else:
            operand = self._converted(parameter, keyword, texts)
        try:
            parse(self._schema, (), {parameter: operand})
        except (QueryError, InvalidValueError) as error:
            raise self._refused(parameter, error) from error
        return operand

    def values_of(self, parameter: str) -> LookupValues:
        """Return the values of a lookup."""
        keyword = self._keyword(parameter)
        if isinstance(keyword, KindKeyword):
            _, lookup = self._lookup(keyword)
            return LookupValues(_TYPES[self._codec_of_kind(parameter, keyword)], lookup.several, ())
        source = self._source(keyword)
        known = lookups_of(self._schema, keyword.name, source, element=keyword.any)
        if keyword.lookup not in known:
            raise self._refused(parameter, unknown_lookup(self._schema, keyword.name, keyword.lookup, known))
        kind = _TYPES[self._kind(parameter, keyword, source)]
        return LookupValues(kind, _takes_several(keyword, source), self._choices(keyword))

    def _keyword(self, parameter: str) -> Keyword | KindKeyword:
        try:
            keyword = split_keyword(self._schema, parameter)
        except QueryError as error:
            raise self._refused(parameter, error) from error
        if isinstance(keyword, (PathKeyword, RelationKeyword)):
            self._require_allowed(parameter, keyword.field)
            raise self._error(_INVALID, parameter, "fields of other models cannot be given as text")
        return keyword

    def _lookup(self, keyword: KindKeyword) -> tuple[IndexDefinition, KindLookup]:
        definition = self._schema.indexes[keyword.index_name]
        return definition, KINDS[definition.kind].lookups[keyword.lookup]

    def _codec_of_kind(self, parameter: str, keyword: KindKeyword) -> str:
        """Return the name of the column codec of the values of a lookup of a kind."""
        definition, lookup = self._lookup(keyword)
        column = lookup.column(definition)
        if column is None:
            self._require_allowed(parameter, keyword.name)
            raise self._error(_INVALID, parameter, "operands of this lookup cannot be given as text")
        return column.codec.name

    def _of_kind(self, parameter: str, keyword: KindKeyword, texts: Sequence[str]) -> Any:
        """Return the operand of a lookup of a kind: a value, or a list in which an empty text is None."""
        _, lookup = self._lookup(keyword)
        codec = self._codec_of_kind(parameter, keyword)
        items = _listed(texts) if lookup.several else texts
        if items is None:
            raise self._error(_INVALID, parameter, "this is not a JSON list")
        if not lookup.several and len(items) != 1:
            raise self._error(_INVALID, parameter, "it is given more than once" if items else "it has no value")
        if not lookup.several:
            return self._typed(parameter, codec, items[0])
        return [None if item in ("", None) else self._typed(parameter, codec, item) for item in items]

    def _source(self, keyword: Keyword) -> ColumnSource | None:
        return self._schema.source(single_key(self._schema, keyword.name))

    def _converted(self, parameter: str, keyword: Keyword, texts: Sequence[str]) -> Any:
        source = self._source(keyword)
        if _takes_several(keyword, source):
            items = _listed(texts)
            if items is None:
                raise self._error(_INVALID, parameter, "this is not a JSON list")
            values = [self._value(parameter, keyword, source, item) for item in items]
            if keyword.lookup in _LISTS:
                return values
            return container_kinds(self._schema.model, keyword.name)[0](values)
        if len(texts) != 1:
            raise self._error(_INVALID, parameter, "it is given more than once" if texts else "it has no value")
        return self._value(parameter, keyword, source, texts[0])

    def _value(self, parameter: str, keyword: Keyword, source: ColumnSource | None, item: Any) -> Any:
        value = self._typed(parameter, self._kind(parameter, keyword, source), item)
        choices = self._choices(keyword)
        if choices and value not in choices:
            reason = f"the value is not one of {', '.join(map(repr, choices))}"
            raise self._error(_NO_VALUE, parameter, reason)
        return value

    def _typed(self, parameter: str, codec: str, item: Any) -> Any:
        adapter = _adapter(codec)
        try:
            return adapter.validate_strings(item) if isinstance(item, str) else adapter.validate_python(item)
        except ValidationError as error:
            reason = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise self._error(_NO_VALUE, parameter, reason) from error

    def _choices(self, keyword: Keyword) -> tuple[Any, ...]:
        """Return the values of a Literal field that is compared with whole values; else nothing."""
        field = self._schema.model.model_fields.get(keyword.name)
        if field is None or keyword.lookup not in _WHOLE_VALUES:
            return ()
        inner = plain(field.annotation)
        return literal_values((element_of(inner) or inner).annotation)

    def _kind(self, parameter: str, keyword: Keyword, source: ColumnSource | None) -> str:
        """Return the name of the column codec of the values of a lookup."""
        if keyword.lookup == "isnull":
            return "bool"
        if source is None:
            raise self._error(_INVALID, parameter, "values of this type cannot be given as text")
        return (source.given or source).codec.name

    def _require_allowed(self, parameter: str, name: str) -> None:
        if self._allowed is not None and single_key(self._schema, name) not in self._allowed:
            raise self._error(_INVALID, parameter, "this field is not allowed")

    def _refused(self, parameter: str, error: QueryError | InvalidValueError) -> InvalidLookupError:
        # With a list of allowed names, nothing is said about the others.
        if self._allowed is not None:
            return self._error(_INVALID, parameter, error.message)
        return self._error(_INVALID, parameter, error.message, hint=error.hint, near=error.data.get("suggestion"))

    def _error(
        self, message: str, parameter: str, reason: str, *, hint: str | None = None, near: str | None = None
    ) -> InvalidLookupError:
        if hint is None and self._allowed is not None:
            hint = f"Allowed are: {', '.join(sorted(self._allowed))}."
        name = self._schema.name
        return InvalidLookupError(message, model=name, parameter=parameter, reason=reason, suggestion=near, hint=hint)


def _takes_several(keyword: Keyword, source: ColumnSource | None) -> bool:
    """Return whether a lookup takes several values: it is one of lists, or compares a whole list."""
    whole = source is not None and source.many and not keyword.any and keyword.lookup in ("exact", "ne")
    return whole or keyword.lookup in _LISTS


def _listed(texts: Sequence[str]) -> list[Any] | None:
    """Return the values of a list; None for a text that begins like a JSON list and is not one."""
    if len(texts) != 1:
        return list(texts)
    if not texts[0].startswith("["):
        return texts[0].split(",") if texts[0] else []
    try:
        return list(json.loads(texts[0]))
    except (ValueError, RecursionError):
        return None


@cache
def _adapter(codec: str) -> TypeAdapter[Any]:
    return TypeAdapter(_TYPES[codec])


show_public_path(ParsedLookups, parse_lookups)
