"""The complete table of Arrow types: the type of a column for each type of a field, whatever its values are.

Rules of this module: pure, and nothing but annotations decides. A type outside the table raises NoArrowTypeError,
because a guess would lose values. Values are never None here; ``convert`` is None for values that pyarrow takes as they
are.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from datetime import datetime, time
from enum import Enum, Flag
from operator import attrgetter
from types import NoneType
from typing import Any, Final, Literal, NamedTuple, NotRequired, get_args, get_origin

import pydantic
from pydantic import BaseModel
from typing_extensions import get_type_hints, is_typeddict

from kvmodels.codecs.columns.registry import column_codec
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.arrow.packages import arrow
from kvmodels.schema.blobs.blob import Blob
from kvmodels.schema.declare.annotations import Plain, container_kind, is_root, is_union, plain, type_name
from kvmodels.schema.definition.collections import DICTS
from kvmodels.schema.definition.fields import BY_TEXT, url_types
from kvmodels.schema.definition.forms import item_type
from kvmodels.schema.vectors.vector import Vector, VectorLength

Convert = Callable[[Any], Any]

_LISTS: Final = (list, set, frozenset, deque)
_NAIVE: Final[Any] = pydantic.NaiveDatetime
_MOST_DIGITS: Final = 38
"""The digits of a decimal128; other tools do not read wider ones."""


class NoArrowTypeError(Exception):
    """An annotation has no Arrow type; the argument is the reason."""


class ArrowType(NamedTuple):
    """The type of a column, and the function from a value to one that pyarrow takes.

    Attributes:
        type: a ``pyarrow.DataType``.
        convert: called for every value that is not None; None if values need no conversion.
        members: the texts of an Enum or Literal, which are stored once as the dictionary of a column; ``convert``
            returns one of them. Inside lists and structs they are plain texts.
        nullable: whether None is a value.
    """

    type: Any
    convert: Convert | None = None
    members: tuple[str, ...] = ()
    nullable: bool = False


def arrow_type(annotation: Any, metadata: Iterable[Any] = ()) -> ArrowType:
    """Return the Arrow type of an annotation. Raises NoArrowTypeError."""
    return _Types().of(plain(annotation, metadata))


def type_of_codec(name: str) -> ArrowType:
    """Return the Arrow type of the values of a column codec. Raises NoArrowTypeError."""
    make = _SCALARS.get(name)
    if make is None:
        raise NoArrowTypeError(f"its values are of the kind {name}")
    return make()


def list_of(item: ArrowType, *, nullable: bool) -> ArrowType:
    """Return the type of a list of such items."""
    convert = item.convert
    made = arrow.list_(arrow.field("item", item.type, nullable=item.nullable))
    if convert is None:
        return ArrowType(made, list, nullable=nullable)

    def converted(values: Iterable[Any]) -> list[Any]:
        return [None if one is None else convert(one) for one in values]

    return ArrowType(made, converted, nullable=nullable)


def struct_of(fields: Sequence[tuple[str, ArrowType]], values_of: Callable[[Any], Sequence[Any]]) -> ArrowType:
    """Return the type of a struct of these fields; ``values_of`` returns their values in order."""
    if not fields:
        raise NoArrowTypeError("it has no fields")
    made = arrow.struct([arrow.field(name, one.type, nullable=one.nullable) for name, one in fields])
    readers = [(name, one.convert) for name, one in fields]

    def convert(value: Any) -> dict[str, Any]:
        return {
            name: one if one is None or function is None else function(one)
            for (name, function), one in zip(readers, values_of(value), strict=True)
        }

    return ArrowType(made, convert)


class _Types:
    """Finds the types of one annotation; a class inside of itself has none."""

    def __init__(self) -> None:
        self._inside: list[Any] = []

    def of(self, inner: Plain) -> ArrowType:
        found = self._not_none(inner.annotation, inner.metadata)
        return found._replace(nullable=found.nullable or inner.nullable)

    def _item(self, annotation: Any) -> ArrowType:
        """Return the type of an item: dictionaries are for whole columns, because not all tools read them inside."""
        return self.of(plain(annotation))._replace(members=())

    def _not_none(self, annotation: Any, metadata: Iterable[Any]) -> ArrowType:
        if annotation is Any or annotation is object:
            raise NoArrowTypeError("it may have values of any type")
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return _of_values([*annotation], annotation)
        if get_origin(annotation) is Literal:
            return _of_values(get_args(annotation), None)
        if annotation is Vector:
            return _vector(metadata)
        codec = _codec_name(annotation)
        if codec == "decimal":
            return _decimal(metadata)
        if codec is not None:
            return type_of_codec(codec)
        if is_union(annotation):
            return self._union(get_args(annotation))
        if annotation in self._inside:
            raise NoArrowTypeError("it contains itself")
        self._inside.append(annotation)
        try:
            return self._composed(annotation)
        finally:
            self._inside.pop()

    def _composed(self, annotation: Any) -> ArrowType:
        kind, arguments = container_kind(annotation), get_args(annotation)
        if kind in _LISTS:
            return list_of(self._item(arguments[0] if arguments else Any), nullable=False)
        if kind is tuple:
            return self._tuple(arguments)
        if kind is dict or kind in DICTS:
            return self._map(kind, arguments)
        if is_typeddict(annotation):
            return self._typed_dict(annotation)
        if isinstance(annotation, type):
            return self._class(annotation)
        raise NoArrowTypeError(f"{type_name(annotation)} is not in the table of Arrow types")

    def _union(self, members: Sequence[Any]) -> ArrowType:
        kinds = {plain(member).annotation for member in members}
        if kinds == {int, float}:
            return ArrowType(arrow.float64())
        found = [self._item(member) for member in members]
        if any((one.type, one.convert) != (found[0].type, found[0].convert) for one in found):
            raise NoArrowTypeError("it is a union of different types")
        return found[0]._replace(nullable=any(one.nullable for one in found))

    def _tuple(self, arguments: tuple[Any, ...]) -> ArrowType:
        if not arguments or (len(arguments) == 2 and arguments[1] is Ellipsis):
            return list_of(self._item(arguments[0] if arguments else Any), nullable=False)
        return struct_of([(str(at), self._item(one)) for at, one in enumerate(arguments)], tuple)

    def _map(self, kind: Any, arguments: tuple[Any, ...]) -> ArrowType:
        given = (*arguments, int) if kind is Counter and len(arguments) == 1 else arguments or (Any, Any)
        key, item = map(self._item, given)
        if key.nullable:
            raise NoArrowTypeError("a key may be None")
        of_key, of_item = (one.convert or _unchanged for one in (key, item))

        def convert(values: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
            return [(of_key(k), None if v is None else of_item(v)) for k, v in values.items()]

        return ArrowType(arrow.map_(key.type, arrow.field("value", item.type, nullable=item.nullable)), convert)

    def _typed_dict(self, cls: Any) -> ArrowType:
        fields: list[tuple[str, ArrowType]] = []
        for name, annotation in get_type_hints(cls, include_extras=True).items():
            # The class cannot tell keys that are not required if its module postpones the evaluation of annotations.
            origin: Any = get_origin(annotation)
            optional = origin is NotRequired or name not in cls.__required_keys__
            one = self._item(item_type(annotation))
            fields.append((name, one._replace(nullable=one.nullable or optional)))
        names = [name for name, _ in fields]
        return struct_of(fields, lambda value: [value.get(name) for name in names])

    def _class(self, cls: type[Any]) -> ArrowType:
        if issubclass(cls, _NAIVE):
            return ArrowType(arrow.timestamp("us"), _naive)
        if issubclass(cls, (*url_types(), *BY_TEXT)):
            return ArrowType(arrow.string(), str)
        if issubclass(cls, pydantic.ByteSize):
            return ArrowType(arrow.int64())
        if issubclass(cls, (pydantic.SecretStr, pydantic.SecretBytes, pydantic.Secret)):
            raise NoArrowTypeError("it is a secret, which a table would hold as clear text")
        if issubclass(cls, Blob):
            return _blob()
        if issubclass(cls, BaseModel):
            return self._model(cls)
        if is_dataclass(cls):
            hints = get_type_hints(cls, include_extras=True)
            return self._object([(one.name, hints[one.name]) for one in dataclass_fields(cls)])
        if tuple in cls.__mro__ and hasattr(cls, "_fields"):
            hints = get_type_hints(cls, include_extras=True)
            return struct_of([(name, self._item(hints.get(name, Any))) for name in cls._fields], tuple)
        raise NoArrowTypeError(f"{type_name(cls)} is not in the table of Arrow types")

    def _model(self, cls: type[BaseModel]) -> ArrowType:
        if cls is BaseModel:
            raise NoArrowTypeError("it may be of any class")
        if is_root(cls):
            info = cls.model_fields["root"]
            inner = self.of(plain(info.annotation, info.metadata))._replace(members=())
            return inner._replace(convert=_of_root(inner.convert or _unchanged))
        fields = [
            (name, self.of(plain(info.annotation, info.metadata))._replace(members=()))
            for name, info in cls.model_fields.items()
        ]
        return struct_of(fields, _attributes([name for name, _ in fields]))

    def _object(self, annotations: Sequence[tuple[str, Any]]) -> ArrowType:
        fields = [(name, self._item(annotation)) for name, annotation in annotations]
        return struct_of(fields, _attributes([name for name, _ in fields]))


def _of_root(convert: Convert) -> Convert:
    def converted(value: Any) -> Any:
        return None if value.root is None else convert(value.root)

    return converted


def _attributes(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    if len(names) == 1:
        one = attrgetter(names[0])
        return lambda value: (one(value),)
    return attrgetter(*names)


def _codec_name(annotation: Any) -> str | None:
    try:
        codec = column_codec(annotation)
    except ModelDefinitionError:
        return None
    return None if codec is None else codec.name


def _of_values(values: Sequence[Any], enum: type[Enum] | None) -> ArrowType:
    """Return the type of an Enum or of a Literal: that of the values, which must be one."""
    raw = [one.value if isinstance(one, Enum) else one for one in values if one is not None]
    kinds: set[type[Any]] = {bool if isinstance(one, bool) else _base_of(one) for one in raw}
    if len(kinds) != 1:
        raise NoArrowTypeError("its values are of several types")
    kind = kinds.pop()
    if kind is NoneType:
        raise NoArrowTypeError("its values are no plain values")
    convert = _value_of if enum is not None or any(isinstance(one, Enum) for one in values) else None
    if kind is str:
        return ArrowType(arrow.string(), convert, tuple(dict.fromkeys(map(str.__str__, raw))))
    if enum is not None and issubclass(enum, Flag):
        return ArrowType(arrow.int64(), convert)
    return type_of_codec(kind.__name__)._replace(convert=convert)


def _base_of(value: Any) -> type[Any]:
    return next((kind for kind in (str, int, float, bytes) if isinstance(value, kind)), NoneType)


def _value_of(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _unchanged(value: Any) -> Any:
    return value


def _decimal(metadata: Iterable[Any]) -> ArrowType:
    """Return a decimal128 for declared digits, which hold every value exactly; otherwise text."""
    digits: int | None = None
    places: int | None = None
    for mark in metadata:
        digits = getattr(mark, "max_digits", None) if digits is None else digits
        places = getattr(mark, "decimal_places", None) if places is None else places
    if digits is None or places is None or digits > _MOST_DIGITS or places > digits:
        return ArrowType(arrow.string(), str)
    return ArrowType(arrow.decimal128(digits, places))


def _vector(metadata: Iterable[Any]) -> ArrowType:
    """Return a list of float32, of a fixed size if the annotation has the length."""
    item = arrow.field("item", arrow.float32(), nullable=False)
    lengths = [mark.length for mark in metadata if isinstance(mark, VectorLength)]
    return ArrowType(arrow.list_(item, lengths[0] if lengths else -1), Vector.tolist)


def _blob() -> ArrowType:
    """Return what the JSON form shows of a blob: the content itself is not in tables."""
    text = type_of_codec("str")
    fields = [("size", type_of_codec("int")), ("sha256", text), ("content_type", text)]
    return struct_of(fields, attrgetter("size", "sha256", "content_type"))


def summed(one: ArrowType) -> ArrowType:
    """Return the type of a sum of such values: a decimal gets all the digits that its type can have."""
    if arrow.types.is_decimal128(one.type):
        return one._replace(type=arrow.decimal128(_MOST_DIGITS, one.type.scale), nullable=True)
    return one._replace(nullable=True)


def _aware(value: datetime) -> datetime:
    if value.utcoffset() is None:
        raise ValueError("a naive datetime in a column of instants")
    return value


def _naive(value: datetime) -> datetime:
    if value.tzinfo is not None:
        raise ValueError("a datetime with a time zone in a column of naive ones")
    return value


def _naive_time(value: time) -> time:
    if value.tzinfo is not None:
        raise ValueError("a time with a time zone, which Arrow does not have")
    return value


_SCALARS: Final[dict[str, Callable[[], ArrowType]]] = {
    "bool": lambda: ArrowType(arrow.bool_()),
    "int": lambda: ArrowType(arrow.int64()),
    "number": lambda: ArrowType(arrow.int64()),
    "float": lambda: ArrowType(arrow.float64()),
    "str": lambda: ArrowType(arrow.string()),
    "bytes": lambda: ArrowType(arrow.binary()),
    "uuid": lambda: ArrowType(arrow.string(), str),
    "ulid": lambda: ArrowType(arrow.string(), str),
    "date": lambda: ArrowType(arrow.date32()),
    "datetime": lambda: ArrowType(arrow.timestamp("us", tz="UTC"), _aware),
    "time": lambda: ArrowType(arrow.time64("us"), _naive_time),
    "timedelta": lambda: ArrowType(arrow.duration("us")),
    "decimal": lambda: ArrowType(arrow.string(), str),
    "ip4": lambda: ArrowType(arrow.string(), str),
    "ip6": lambda: ArrowType(arrow.string(), str),
    "ip": lambda: ArrowType(arrow.string(), str),
}
"""The Arrow type for each column codec, by its name."""
