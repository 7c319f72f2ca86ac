"""Conditions of the lookups that kinds of indexes add, such as ``location__within=Circle(...)``.

A lookup names the field of its index if that has one (``KindOptions.looked_up``), else the index. The condition has the
lookup ``of_kind``, so it is never mistaken for an ordinary one: intervals have a ``contains`` of their own.

Rules of this module: pure. A kind is loaded only if a declared index has it, or for the hint of an error.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, Final, NamedTuple

from kvmodels._support import suggest as spelling
from kvmodels.errors import UnknownLookupError
from kvmodels.schema.definition.definition import Document, IndexDefinition, ModelSchema
from kvmodels.schema.definition.kind_lookup import KindLookup
from kvmodels.schema.definition.kinds import KINDS

OF_KIND: Final = "of_kind"
"""The lookup of a condition whose operand is a ``KindOperand``; no keyword has it."""


class KindKeyword(NamedTuple):
    """A keyword of ``filter`` that is a lookup of a kind: the name of a field or index, the lookup, and an index."""

    name: str
    lookup: str
    index_name: str


class KindOperand(NamedTuple):
    """The operand of a condition ``of_kind``.

    Attributes:
        index_name: the name of the first declared index with this lookup; others of its kind have it too.
        lookup: the name of the lookup.
        value: the converted operand.
        implied: whether another condition of the filter implies it: then it serves only to read fewer rows.
        narrowed: whether conditions that it implies are chosen before the query is planned (``KindLookup.narrows``).
    """

    index_name: str
    lookup: str
    value: Any
    implied: bool = False
    narrowed: bool = False


def kind_keyword(schema: ModelSchema, keyword: str) -> KindKeyword | None:
    """Return the parts of a keyword that is a lookup of a kind; None for any other."""
    known = schema.compiled.kind_keywords
    if known is None:
        known = schema.compiled.kind_keywords = _keywords(schema.indexes.values())
    found = known.get(keyword)
    return None if found is None else KindKeyword(*found)


def _keywords(indexes: Iterable[IndexDefinition]) -> dict[str, tuple[str, str, str]]:
    found: dict[str, tuple[str, str, str]] = {}
    for index in indexes:
        name = index.lookup_name
        for lookup in KINDS[index.kind].lookups:
            found.setdefault(f"{name.replace('.', '__')}__{lookup}", (name, lookup, index.name))
    return found


def is_lookup_name(schema: ModelSchema, name: str) -> bool:
    """Return whether lookups of a kind go by the name of an index."""
    return any(
        index.name == index.lookup_name == name and KINDS[index.kind].lookups for index in schema.indexes.values()
    )


def kind_lookups_of(schema: ModelSchema, name: str) -> list[str]:
    """Return the lookups that indexes add to a name of a field or index."""
    return [
        lookup for index in schema.indexes.values() if index.lookup_name == name for lookup in KINDS[index.kind].lookups
    ]


def text_lookups_of(index: IndexDefinition) -> list[str]:
    """Return the lookups of words and of parts of texts that an index serves."""
    kind = KINDS[index.kind]
    columns = {name: lookup.column(index) for name, lookup in kind.lookups.items() if not lookup.several}
    return [*kind.narrowed, *(name for name, column in columns.items() if column and column.codec.name == "str")]


def served_text_lookups(
    schema: ModelSchema, readable: Container[str] | None = None, fixed: Container[str] = ()
) -> list[str]:
    """Return the keywords of lookups of words and of parts of texts that indexes without a condition serve.

    ``readable``: the names of the only indexes to consider; None: all. ``fixed``: the fields that other conditions fix;
    an index with another field in its group is left out.
    """
    found: list[str] = []
    for index in schema.indexes.values():
        served = text_lookups_of(index)
        is_bound = all(column.field in fixed for column in index.columns)
        if served and is_bound and index.where is None and (readable is None or index.name in readable):
            source = schema.source(index.lookup_name)
            name = index.lookup_name.replace(".", "__")
            name = f"{name}__any" if source is not None and source.many else name
            found += [f"{name}__{lookup}" for lookup in sorted(served)]
    return found


def kind_of_operand(schema: ModelSchema, operand: KindOperand) -> tuple[IndexDefinition, KindLookup]:
    """Return the index and the lookup of an operand."""
    definition = schema.indexes[operand.index_name]
    kind = KINDS[definition.kind]
    return definition, (kind.implied_lookups if operand.implied else kind.lookups)[operand.lookup]


def text_lookups_of_kinds(schema: ModelSchema, readable: Container[str]) -> tuple[list[str], list[str]]:
    """Return the keywords of lookups of kinds whose operands can be given as text.

    First those that an index in ``readable`` serves without further conditions, then all others.
    """
    alone: list[str] = []
    others: list[str] = []
    for index in schema.indexes.values():
        is_alone = index.name in readable and not index.columns and index.where is None
        for name, lookup in KINDS[index.kind].lookups.items():
            if lookup.column(index) is not None:
                (alone if is_alone else others).append(f"{index.lookup_name.replace('.', '__')}__{name}")
    return alone, others


def kind_test(schema: ModelSchema, operand: KindOperand) -> Callable[[Document], bool]:
    """Return the exact test of a stored document."""
    definition, lookup = kind_of_operand(schema, operand)
    return lookup.test(definition, operand.value)


def fields_of_test(schema: ModelSchema, operand: KindOperand) -> tuple[str, ...]:
    """Return the fields that the test of a document reads."""
    options = schema.indexes[operand.index_name].options
    return () if options is None else tuple(column.field for column in options.columns)


def without_index(schema: ModelSchema, name: str, lookup: str) -> UnknownLookupError | None:
    """Return the error for a lookup of a kind that the model has no index of; None if no kind has this lookup."""
    kinds = [KINDS[kind] for kind in KINDS if lookup in KINDS[kind].lookups]
    is_field = name in schema.fields or schema.source(name) is not None
    is_taken = name in schema.indexes and not is_field
    lines = [line for kind in kinds if kind.names_field is is_field and not is_taken and (line := kind.line(name))]
    named = [one.lookup_name for one in schema.indexes.values() if lookup in KINDS[one.kind].lookups]
    if not lines and not named:
        return None
    hint = f"Add {' or '.join(lines)} to the indexes of {schema.name}.Meta." if lines else ""
    if named:
        hint = f"It is a lookup of: {', '.join(dict.fromkeys(named))}. {hint}".rstrip()
    return UnknownLookupError(
        "no index of the model gives this name this lookup",
        model=schema.name,
        field=name,
        lookup=lookup,
        suggestion=spelling.closest(name, named),
        hint=hint,
    )
