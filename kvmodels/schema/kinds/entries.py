"""The definition of an index with entries of columns, unique or not; the options are those of ``IndexDefinition``.

Rules of this module: pure; every fault of a declaration is found here and names model, field and index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.compile.columns import nearest
from kvmodels.schema.declare.declarations import Index, UniqueConstraint
from kvmodels.schema.declare.markers import EntryMarker, Unique
from kvmodels.schema.definition.definition import Column, IndexDefinition, KindOptions
from kvmodels.schema.definition.kinds import ColumnsOf, DeclaringModel, KindDefinition, KindDescription
from kvmodels.schema.definition.properties import hint_to_write


class EntryKind(KindDefinition):
    """An index with entries of columns."""

    items: ClassVar[frozenset[str]] = frozenset()

    def column_names(self, declared: Any) -> tuple[str, ...]:
        """Return the fields, or the one column that a function computes from them."""
        if isinstance(declared, Index) and declared.key is not None:
            return (f"-{declared.name}" if declared.fields[0].startswith("-") else str(declared.name),)
        return super().column_names(declared)

    def compile(
        self, declared: Index | EntryMarker[Any], columns: tuple[Column, ...], text: str, model: DeclaringModel
    ) -> Mapping[str, Any]:
        """Return the options of a declaration in ``Meta``, or of a marker."""
        unique = declared.unique if isinstance(declared, Index) else isinstance(declared, Unique)
        included = _included(declared.include, columns, text, model)
        return {"unique": unique, "nulls": declared.nulls, "store": declared.store, "include": included}

    def describe(self, index: IndexDefinition) -> KindDescription:
        """Return the description of an index; that of a foreign key is declared at its field."""
        if index.reference is not None:
            return KindDescription("foreign_key", None, sorts=True)
        if index.unique:
            return KindDescription("unique", UniqueConstraint, sorts=True)
        return KindDescription(self.shown, Index, sorts=True)

    def from_signature(self, stored: Mapping[str, Any], columns_of: ColumnsOf) -> KindOptions | None:
        """Return None: entries have the common options alone."""
        del stored, columns_of
        return None

    def described_columns(self, stored: Mapping[str, Any]) -> Iterable[list[Any]]:
        """Return nothing: entries need no columns but those of their keys."""
        del stored
        return ()


def _included(names: tuple[str, ...], columns: Iterable[Column], text: str, model: DeclaringModel) -> tuple[str, ...]:
    exact = [column for column in columns if column.codec.lossless and not column.many]
    in_key = {column.field for column in (*exact, *model.schema.primary_key) if column.path == (column.field,)}
    for name in names:
        if name not in model.fields:
            raise _not_included(name, text, model)
        if name in in_key:
            raise model.error(
                "an index includes a field that its entries have already",
                name,
                text,
                "The primary key and the columns are in the key of every entry: leave it out of include=.",
            )
    return names


def _not_included(name: str, text: str, model: DeclaringModel) -> ModelDefinitionError:
    head = name.replace("__", ".").partition(".")[0]
    if head != name and head in model.fields:
        hint = f'Whole fields are included, with all that is in them: write include=("{head}",).'
        return model.error("an index includes a part of a field", name, text, hint, head)
    return model.error(
        "an index includes a field that does not exist",
        name,
        text,
        hint_to_write(model.schema.model, name)
        or "Use the names of fields; a nested field is included with the whole field that it is in.",
        nearest(model.fields, (), head),
    )


KIND: Final = EntryKind()
