"""The encrypted fields of a class: their checks when the class is created, and the columns of their blind values.

Rules of this module: pure. Every misuse raises a ModelDefinitionError that names model, field and option. A blind value
is found by equality alone, so every place that needs an order, a text, a number or the plain value refuses the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from kvmodels.codecs.columns.scalars import BYTES
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.declare.annotations import plain
from kvmodels.schema.declare.declarations import DeclaredIndex, Index, UniqueConstraint, fold_of
from kvmodels.schema.declare.encrypted import Encrypted
from kvmodels.schema.declare.expressions import And, Comparison, Not, Or, Q
from kvmodels.schema.declare.markers import EntryMarker, FieldMarker, ForeignKey, Indexed, PrimaryKey
from kvmodels.schema.definition.definition import ColumnSource, Computed
from kvmodels.schema.definition.values import computed_path
from kvmodels.schema.encryption.blind_values import BLIND_MARK, blind_codec

_EQUALITY: Final = (
    "A blind index finds equal values alone: Annotated[Encrypted[str], Indexed()], Unique() or MultiIndexed()."
)
_PLAIN_COPY: Final = (
    "It would store the value, or something made of it, in plain: leave the field out, or encrypt another one."
)


def encrypted_fields(markers: Mapping[str, Iterable[FieldMarker[Any]]]) -> dict[str, Encrypted[Any]]:
    """Return the marker of each encrypted field."""
    return {name: mark for name, marks in markers.items() for mark in marks if isinstance(mark, Encrypted)}


def hide_values(model: type[Any]) -> None:
    """Keep the values of encrypted fields out of the ``repr`` of objects and out of validation errors."""
    infos = [
        info
        for info in model.model_fields.values()
        if any(map(_is_encrypted, plain(info.annotation, info.metadata).metadata))
    ]
    for info in infos:
        info.repr = False
    if infos and not model.model_config.get("hide_input_in_errors"):
        model.model_config["hide_input_in_errors"] = True
        model.model_rebuild(force=True)


def _is_encrypted(mark: Any) -> bool:
    return mark is Encrypted or isinstance(mark, Encrypted)


def blind_sources(
    field: str, mark: Encrypted[Any], stored: ColumnSource, marks: Iterable[EntryMarker[Any]]
) -> dict[str, ColumnSource]:
    """Return the sources of the blind values of a field, one for each index key.

    The first has the name of the field, as conditions give it, the others the names of their columns in documents.
    ``stored``: the source of its plain values.
    """
    folds = [(one.key, one.version) for one in marks if one.key is not None]
    fold = f"~{fold_of(folds[0][0]) or folds[0][1]}" if folds else ""
    given = replace(stored, normalise=folds[0][0] if folds else None)
    found: dict[str, ColumnSource] = {}
    for key_id in mark.index_keys:
        stored_as = f"{field}{fold}{BLIND_MARK}{key_id}"
        codec = BYTES if len(mark.index_keys) == 1 else blind_codec(key_id)
        computed = Computed(field, stored_as, (field,), _same_for_all, codec, stored.many, folds=True, blind=key_id)
        path = computed_path(stored_as)
        source = ColumnSource(field, path, codec, stored.nullable, stored.many, computed, computed.function, given)
        found[stored_as if found else field] = source
    return found


def without_blind(sources: Iterable[ColumnSource]) -> tuple[ColumnSource, ...]:
    """Return the columns that a class computes; blind values need the keys of a database (``schema/binding.py``)."""
    return tuple(source for source in sources if source.given is None)


def _same_for_all(value: Any) -> bytes:
    """Return one blind value for all: a class has no keys, and only checks that operands have the right type."""
    del value
    return b""


def check_encrypted(
    model: str,
    encrypted: Mapping[str, Encrypted[Any]],
    markers: Mapping[str, Iterable[FieldMarker[Any]]],
    indexes: Iterable[DeclaredIndex],
    set_apart: Mapping[str, str],
) -> None:
    """Refuse every place in a declaration that an encrypted field cannot have.

    ``set_apart``: the fields that the library sets, blobs and the discriminator, each with ``set``, ``blob`` or
    ``discriminator``.
    """
    check = _Check(model, encrypted)
    for field in encrypted:
        if set_apart.get(field) == "discriminator":
            raise check.error(
                "the discriminator is encrypted", field, "discriminator", "The class is read before keys."
            )
        if set_apart.get(field) == "blob":
            hint = "Encrypt the bytes before they are uploaded, or use an encrypted disk."
            raise check.error("a blob is encrypted", field, "Encrypted", hint)
        if set_apart.get(field) == "set":
            hint = "The library reads it before each write: leave it plain."
            raise check.error("a field that the library sets is encrypted", field, "Encrypted", hint)
        for mark in markers[field]:
            check.marker(field, mark)
    for marks in markers.values():
        for mark in marks:
            if isinstance(mark, EntryMarker):
                check.includes(mark, repr(mark))
    for index in indexes:
        check.index(index)


class _Check:
    def __init__(self, model: str, encrypted: Mapping[str, Any]) -> None:
        self._model = model
        self._encrypted = encrypted

    def error(self, message: str, field: str, option: str, hint: str) -> ModelDefinitionError:
        return ModelDefinitionError(message, model=self._model, field=field, option=option, hint=hint)

    def marker(self, field: str, mark: FieldMarker[Any]) -> None:
        if isinstance(mark, PrimaryKey):
            raise self.error("a primary key is encrypted", field, "PrimaryKey", "Keys are plain: use a random key.")
        if isinstance(mark, ForeignKey):
            raise self.error("a foreign key is encrypted", field, "ForeignKey", "References are plain.")
        if not isinstance(mark, EntryMarker):
            return
        if mark.store:
            raise self.error("an index of an encrypted field copies the record", field, repr(mark), _PLAIN_COPY)
        if isinstance(mark, Indexed) and mark.descending:
            raise self.error("an index of an encrypted field has an order", field, repr(mark), _EQUALITY)

    def _head(self, name: str) -> str | None:
        """Return the encrypted field that a name in a declaration begins with; None for any other field."""
        head = re.split(r"\.|__", name.removeprefix("-"))[0]
        return head if head in self._encrypted else None

    def includes(self, declared: Any, text: str) -> None:
        """Refuse an encrypted field in the condition or the included fields of an index."""
        for name in getattr(declared, "include", ()):
            if head := self._head(name):
                raise self.error("an index includes an encrypted field", head, text, _PLAIN_COPY)
        for name in names_in(getattr(declared, "where", None)):
            if head := self._head(name):
                raise self.error("the condition of an index is about an encrypted field", head, text, _PLAIN_COPY)

    def index(self, index: DeclaredIndex) -> None:
        """Refuse an encrypted field in an index of ``Meta``, except as a column that is compared for equality."""
        text = repr(index)
        self.includes(index, text)
        if isinstance(index, Index | UniqueConstraint):
            self._columns(index, text)
            return
        for option, value in vars(index).items():
            for name in [] if option == "name" else _texts(value):
                if head := self._head(name):
                    raise self.error("an index of this kind has an encrypted field", head, text, _EQUALITY)

    def _columns(self, index: Index, text: str) -> None:
        for name in index.fields:
            head = self._head(name)
            if head is None:
                continue
            if index.key is not None:
                raise self.error("a computed column reads an encrypted field", head, text, _PLAIN_COPY)
            if name.removeprefix("-") != head:
                raise self.error("an index has a part of an encrypted field", head, text, _EQUALITY)
            if name.startswith("-"):
                raise self.error("an index of an encrypted field has an order", head, text, _EQUALITY)
            if index.store:
                raise self.error("an index of an encrypted field copies the record", head, text, _PLAIN_COPY)


def _texts(value: Any) -> list[str]:
    """Return the texts in an option of an index: a text, or those in a tuple, a list or the keys of a dict."""
    if isinstance(value, str):
        return [value]
    items: list[Any] = list(cast("Iterable[Any]", value)) if isinstance(value, (tuple, list, Mapping)) else []
    return [one for one in items if isinstance(one, str)]


def names_in(expression: Any) -> list[str]:
    """Return the names of fields in a condition, as it is written."""
    if isinstance(expression, Comparison):
        return [expression.field]
    if isinstance(expression, Q):
        inner = [name for one in expression.expressions for name in names_in(one)]
        return [*inner, *(name for name, _ in expression.lookups)]
    if isinstance(expression, Not):
        return names_in(expression.part)
    parts = expression.parts if isinstance(expression, And | Or) else ()
    return [name for part in parts for name in names_in(part)]
