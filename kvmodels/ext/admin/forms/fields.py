"""The fields of a form, made from the annotations of a model class.

Rules of this module: a field converts between values and text and knows nothing of HTML. What a form cannot send back
unchanged (control characters, bytes inside of lists) has an escaped form, or cannot be edited.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any, Final, Literal, get_args, get_origin
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, EmailStr, IPvAnyAddress, NaiveDatetime, TypeAdapter
from pydantic.fields import FieldInfo

from kvmodels._support.secret_values import MASK, has_mask
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.ulid import ULID
from kvmodels.ext.admin.texts import is_plain, value_text
from kvmodels.schema.blobs.blob import Blob
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.annotations import plain
from kvmodels.schema.describe.describe import describe

FieldKind = Literal["text", "line", "number", "select", "json", "bytes", "moment", "group", "reference"]

_NUMBERS: Final = (int, float, Decimal)
# Pydantic's types are classes of their own, no subclasses of those whose values they constrain.
_MOMENTS: Final[Mapping[Any, str]] = {
    datetime: "2026-01-31T12:00:00+00:00",
    AwareDatetime: "2026-01-31T12:00:00+00:00",
    NaiveDatetime: "2026-01-31T12:00:00",
    date: "2026-01-31",
    time: "12:00:00",
    timedelta: "PT1H30M",
}
_WORDS: Final[tuple[Any, ...]] = (UUID, ULID, IPv4Address, IPv6Address, IPvAnyAddress, EmailStr)
_DEEPEST: Final = 3
_SHORT_JSON: Final = 70


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form.

    Attributes:
        name: its path in the record, such as ``"address.city"``.
        label: its own name.
        kind: how it is edited.
        adapter: validates its value.
        nullable: whether it may be None.
        required: whether a record must have it.
        locked: why it cannot be edited; None if it can.
        choices: texts of a select and their values.
        example: a valid text, as a hint.
        children: of a group, the fields of the nested model.
        target: for a foreign key, the collection of the target.
        is_str: whether its values are str.
    """

    name: str
    label: str
    kind: FieldKind
    adapter: TypeAdapter[Any]
    nullable: bool
    required: bool
    locked: str | None = None
    choices: tuple[tuple[str, Any], ...] = ()
    example: str = ""
    children: tuple[FormField, ...] = ()
    target: str | None = None
    is_str: bool = False

    @property
    def holds_text(self) -> bool:
        """Whether an empty input may be a value, because the field holds a str or bytes."""
        return self.kind in ("text", "bytes") or (self.kind == "line" and self.is_str)

    @property
    def offers_none(self) -> bool:
        """Whether None needs a box of its own, because an empty input is a value."""
        return self.nullable and self.holds_text

    def text(self, value: Any) -> str:
        """Return the text of a value. Raises ValueError if the value has none that could be read back."""
        if value is None:
            return ""
        if self.kind == "json":
            plain = self.adapter.dump_python(value, mode="json")
            text = json.dumps(plain, ensure_ascii=False)
            if len(text) > _SHORT_JSON:
                text = json.dumps(plain, ensure_ascii=False, indent=1)
            # JSON has escapes of its own for characters that a form cannot send.
            return text if is_plain(text) else json.dumps(plain, indent=1).replace("\x7f", "\\u007f")
        if isinstance(value, timedelta):
            return str(self.adapter.dump_python(value, mode="json"))
        return value_text(value)

    def value(self, text: str) -> Any:
        """Return the value for a text.

        Raises:
            pydantic.ValidationError: the text is no value.
            ValueError: the text is not hex, or has a mask in place of a secret.
        """
        value = self._value(text)
        if MASK in text and has_mask(self.adapter.dump_python(value, warnings=False)):
            raise ValueError("this is the mask of a secret, not its value: write all secrets of the field")
        return value

    def _value(self, text: str) -> Any:
        if self.kind == "json":
            return self.adapter.validate_json(text)
        if self.kind == "bytes":
            return bytes.fromhex(text)
        if self.choices:
            return dict(self.choices).get(text, text)
        return self.adapter.validate_python(text, strict=False)

    def leaves(self) -> Iterator[FormField]:
        """Yield this field, or the fields of a group."""
        if self.kind != "group":
            yield self
        for child in self.children:
            yield from child.leaves()


def form_fields(model: type[KvModel], references: Mapping[str, str] | None = None) -> tuple[FormField, ...]:
    """Return the fields of a model, in the order of the class.

    Args:
        model: the model class.
        references: the collection of the target for each foreign key; by default that of the description.
    """
    description = describe(model)
    automatic = {field.name for field in description.fields if field.automatic is not None}
    long_texts = set(model.model_fields) - {column.name for index in description.indexes for column in index.columns}
    long_texts -= {column.name for column in description.primary_key}
    found = references_of(model) if references is None else references
    fields: list[FormField] = []
    for name, info in model.model_fields.items():
        locked = "The library sets this field at every write." if name in automatic else None
        locked = _OF_PROGRAMS if plain(info.annotation).annotation is Blob else locked
        fields.append(_field(name, info, locked=locked, long=name in long_texts, target=found.get(name)))
    return tuple(fields)


_OF_PROGRAMS: Final = "Programs store files; this page shows them."


def references_of(model: type[KvModel]) -> dict[str, str]:
    """Return the collection of the target for each foreign key of a model."""
    indexes = describe(model).indexes
    return {index.columns[0].name: index.references for index in indexes if index.references is not None}


def _field(
    name: str,
    info: FieldInfo,
    *,
    locked: str | None = None,
    long: bool = True,
    target: str | None = None,
    depth: int = 0,
) -> FormField:
    kind, _, nullable = plain(info.annotation)
    adapter: TypeAdapter[Any] = TypeAdapter(_annotated(info.annotation, info.metadata))
    choices = _choices(kind)
    children: tuple[FormField, ...] = ()
    if target is not None:
        how: FieldKind = "reference"
    elif choices:
        how = "select"
    elif _is_group(kind) and not nullable and depth < _DEEPEST:
        how = "group"
        fields = kind.model_fields.items()
        children = tuple(_field(f"{name}.{one}", inner, depth=depth + 1) for one, inner in fields)
    else:
        how = _kind_of(kind, long=long)
    return FormField(
        name=name,
        label=name.rpartition(".")[2],
        kind=how,
        adapter=adapter,
        nullable=nullable,
        required=info.is_required(),
        locked=locked,
        choices=choices,
        example=_MOMENTS.get(kind, "") if isinstance(kind, type) else "",
        children=children,
        target=target,
        is_str=isinstance(kind, type) and issubclass(kind, str),
    )


def _annotated(annotation: Any, metadata: list[Any]) -> Any:
    for one in metadata:
        annotation = Annotated[annotation, one]
    return annotation


def _kind_of(kind: Any, *, long: bool) -> FieldKind:
    if not isinstance(kind, type):
        return "json"
    if issubclass(kind, bytes):
        return "bytes"
    if issubclass(kind, str):
        return "text" if long else "line"
    if issubclass(kind, _NUMBERS):
        return "number"
    if issubclass(kind, tuple(_MOMENTS)):
        return "moment"
    return "line" if issubclass(kind, _WORDS) else "json"


def _choices(kind: Any) -> tuple[tuple[str, Any], ...]:
    if get_origin(kind) is Literal:
        values = get_args(kind)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        values = tuple(kind)
    elif kind is bool:
        values = (True, False)
    else:
        return ()
    return tuple((value_text(value), value) for value in values)


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel) and bool(kind.model_fields)
