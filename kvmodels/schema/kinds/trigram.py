"""The index of trigrams: its declaration, its options, and the lookups that it serves.

The lookups are those that every text has: ``contains``, ``icontains``, ``endswith`` and ``iexact``. A record that
matches one has an entry for each trigram of the operand, so the planner adds conditions of these entries to a filter,
and the lookup itself is tested on the records.

Rules of this module: pure. The trigrams are those of the folded text, for the lookups with case too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Never

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.schema.compile.columns import column_of, nearest
from kvmodels.schema.declare.declarations import DeclaredIndex
from kvmodels.schema.declare.expressions import Expression
from kvmodels.schema.definition.definition import Column, Document, IndexDefinition, KindOptions, ModelSchema
from kvmodels.schema.definition.kind_lookup import KindLookup, Test
from kvmodels.schema.definition.kinds import ColumnsOf, DeclaringModel, GroupedKind
from kvmodels.schema.definition.values import reader_of
from kvmodels.schema.words.folding import certain_trigrams, folded

HAS_TRIGRAM: Final = "has trigram"
"""The condition of one entry, which the planner adds; no keyword has this name."""


class TrigramIndex(DeclaredIndex):
    """An index of parts of a text, for names and titles.

    It answers ``filter(title__icontains="part")``, and ``contains``, ``endswith`` and ``iexact``, of operands with
    three characters or more. A record has an entry for each group of three characters.

    Args:
        fields: the field of type str, the path to one, such as ``"address.street"``, or a field with several texts.
        group: the field, or fields, that a query must fix, such as ``"org"``.
        name: name of the index; by default the names of group and field and ``trigrams``, joined by ``_``.
        where: a condition; only records that satisfy it have entries.
        max_fan_out: the maximum number of entries of one record; 1,000 by default.

    Raises:
        ModelDefinitionError: not one field, a repeated field, or an invalid option.

    Examples:
        >>> TrigramIndex("title", group="org", name="parts")
        TrigramIndex('title', name='parts', group=('org',))
    """

    kind = "trigram"
    _shown = ("name",)

    def __init__(
        self,
        *fields: str,
        group: str | Sequence[str] = (),
        name: str | None = None,
        where: Expression | None = None,
        max_fan_out: int | None = None,
        **unknown: Never,
    ) -> None:
        self._refuse_unknown(unknown)
        self._declare_grouped(fields, group, name, where, max_fan_out)
        if len(fields) != 1:
            raise self._error(
                "an index of trigrams has one field",
                ", ".join(map(repr, fields)),
                'Declare an index for each text, and put other fields into the group: TrigramIndex("title", '
                'group="org").',
            )
        self._refuse_directions(fields)


@dataclass(frozen=True, slots=True)
class TrigramOptions(KindOptions):
    """The column of the text, or texts."""

    kind = "trigram"
    fans_out = True
    key_parts = 1

    text: Column

    @property
    def columns(self) -> tuple[Column, ...]:
        """The text."""
        return (self.text,)

    @property
    def looked_up(self) -> str:
        """The field of the text."""
        return self.text.field


def options_of(definition: IndexDefinition) -> TrigramOptions:
    """Return the options of an index of trigrams."""
    options = definition.options
    assert isinstance(options, TrigramOptions), "an index of another kind"
    return options


class HasTrigram(KindLookup):
    """The condition that a text has a trigram."""

    def operand(self, schema: ModelSchema, definition: IndexDefinition, value: Any) -> str:
        """Return the trigram."""
        del schema, definition
        trigram: str = value
        return trigram

    def test(self, definition: IndexDefinition, operand: str) -> Test:
        """Return the test whether a text of a document has the trigram."""
        text = options_of(definition).text
        read = reader_of(text)

        def passes(document: Document) -> bool:
            held = read(document)
            texts = held or () if text.many else (held,)
            return any(isinstance(one, str) and operand in folded(one) for one in texts)

        return passes

    def identity(self, operand: str) -> str:
        """Return the trigram."""
        return operand


class TrigramKind(GroupedKind):
    """The definition of an index of trigrams."""

    declaration: ClassVar[type[DeclaredIndex] | None] = TrigramIndex
    shown: ClassVar[str] = "trigram"
    suffix: ClassVar[tuple[str, ...]] = ("trigrams",)
    fans_out: ClassVar[bool] = True
    names_field: ClassVar[bool] = True
    narrowed: ClassVar[frozenset[str]] = frozenset({"contains", "icontains", "endswith", "iexact"})
    implied_lookups: ClassVar[Mapping[str, KindLookup]] = {HAS_TRIGRAM: HasTrigram()}

    def line(self, name: str) -> str:
        """Return the declaration that serves the lookups of a field."""
        return f'TrigramIndex("{name}")'

    def implied(self, lookup: str, operand: Any) -> tuple[str, Sequence[Any]]:
        """Return the condition of entries and its operands: the trigrams of the text, if it has any."""
        del lookup
        text: Any = getattr(operand, "value", operand)
        return HAS_TRIGRAM, certain_trigrams(text) if isinstance(text, str) else ()

    def why_no_entry(self, name: str) -> str:
        """Return the reason why the index of a field does not serve an operand."""
        return f'TrigramIndex("{name}") finds parts of three characters or more: give a longer one'

    def compile(
        self, declared: TrigramIndex, columns: tuple[Column, ...], text: str, model: DeclaringModel
    ) -> Mapping[str, Any]:
        """Return the column of the text."""
        (name,) = declared.fields
        several = next((column.field for column in columns if column.many), None)
        if several is not None:
            raise model.error(
                "the group of an index of trigrams has a field with several values",
                several,
                text,
                "An entry for each combination would be too many: take fields with one value.",
            )
        source = model.schema.source(name)
        if source is not None and source.codec.name == "str":
            return {"options": TrigramOptions(column_of(source))}
        suggestion = nearest(model.fields, model.schema.computed, name)
        if source is None and suggestion != name:
            raise model.error(
                "an index names a field that does not exist", name, text, "Name a field of type str.", suggestion
            )
        raise model.error(
            "the field of an index of trigrams is not a text", name, text, "It takes fields of type str or list[str]."
        )

    def from_signature(self, stored: Mapping[str, Any], columns_of: ColumnsOf) -> TrigramOptions:
        """Return the column in a signature."""
        (text,) = columns_of(stored["options"]["columns"])
        if text.codec.name != "str" or text.descending:
            raise ValueError("a text of another form")
        return TrigramOptions(text)


KIND: Final = TrigramKind()

show_public_path(TrigramIndex)
