"""A vector of floats, such as an embedding, as a value of models.

Rules of this module: numpy is imported only when numpy itself asks for an array. Everything with a method ``tolist``,
such as an array of numpy, is a list here. The numbers are those of IEEE 754 with 32 bits, so a vector is stored and
read back without any change.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import isfinite
from typing import Annotated, Any, ClassVar, Final, NamedTuple, cast, overload

from pydantic import GetCoreSchemaHandler
from pydantic_core import PydanticCustomError, SchemaSerializer, core_schema

from kvmodels._support.naming import show_public_path
from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.schema.vectors import arrays

LONGEST: Final = 65_536
"""The maximum number of components of a vector."""

_SIZE: Final = 4
_SHOWN: Final = 3


@cache
def _floats(length: int) -> struct.Struct:
    return struct.Struct(f"<{length}f")


class VectorLength(NamedTuple):
    """The number of components of the vectors of a field, in its annotation: ``Vector[384]``."""

    length: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Return the schema of pydantic for a vector of this length."""
        del handler
        del source
        return _core_schema(self.length)


class Vector(Sequence[float]):
    """A vector of floats, such as an embedding; immutable and hashable.

    ``embedding: Vector[384]`` takes arrays of numpy, lists, tuples and ``array.array`` of 384 numbers; plain ``Vector``
    takes any number of them. The numbers are rounded to 32 bits. The JSON form is a list. ``numpy.asarray(vector)`` is
    an array of float32.

    Args:
        values: the numbers: a list, a tuple, an ``array.array``, or an array of numpy or another library with one
            dimension.

    Raises:
        InvalidValueError: not a list of numbers, no number at all, NaN, or a number that float32 cannot hold.

    Examples:
        >>> vector = Vector([0.5, -2, 1])
        >>> vector, len(vector), vector[1], list(vector)
        (Vector([0.5, -2.0, 1.0]), 3, -2.0, [0.5, -2.0, 1.0])
        >>> vector == Vector((0.5, -2.0, 1.0))
        True
    """

    __slots__ = ("_data",)

    __kv_bytes__: ClassVar[bool] = True  # a document stores ``tobytes``
    __pydantic_serializer__: ClassVar[SchemaSerializer]  # pydantic asks it for values whose annotation it does not know

    _data: bytes

    def __init__(self, values: Any, /) -> None:
        self._data = values._data if isinstance(values, Vector) else _packed(values)

    def __class_getitem__(cls, length: int) -> Any:
        """Return the annotation of vectors with a number of components."""
        if type(length) is not int or not 1 <= length <= LONGEST:
            raise InvalidArgumentError(
                "the length of a vector is not a whole number in its range",
                argument="Vector",
                value=length,
                expected=f"1 to {LONGEST:,}",
                hint="Write the number of components: Vector[384].",
            )
        return Annotated[Vector, VectorLength(length)]

    @classmethod
    def frombytes(cls, data: bytes, /) -> Vector:
        """Return the vector of the bytes that ``tobytes`` has returned.

        Args:
            data: four bytes for each number.

        Raises:
            InvalidValueError: the bytes are not the numbers of a vector.
        """
        if not is_vector(data):
            raise InvalidValueError(
                "these bytes are not a vector",
                type=type(data).__name__,
                hint="A vector has four bytes for each number, the lowest first; none is NaN or infinite.",
            )
        found = object.__new__(cls)
        found._data = data
        return found

    def tobytes(self) -> bytes:
        """Return the numbers as float32, four bytes each, the lowest byte first.

        Returns:
            The bytes that a document stores.
        """
        return self._data

    def tolist(self) -> list[float]:
        """Return the numbers as a list.

        Returns:
            A new list.
        """
        return list(components(self._data))

    def __len__(self) -> int:
        return len(self._data) // _SIZE

    @overload
    def __getitem__(self, item: int) -> float: ...
    @overload
    def __getitem__(self, item: slice) -> list[float]: ...
    def __getitem__(self, item: int | slice) -> float | list[float]:
        numbers = components(self._data)
        return list(numbers[item]) if isinstance(item, slice) else numbers[item]

    def __iter__(self) -> Iterator[float]:
        return iter(components(self._data))

    def __eq__(self, other: object) -> bool:
        # Compared as numbers, because 0.0 and -0.0 have different bytes.
        if not isinstance(other, Vector):
            return NotImplemented
        return self._data == other._data or components(self._data) == components(other._data)

    def __hash__(self) -> int:
        return hash(components(self._data))

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:_SHOWN]))
        return f"Vector([{shown}])" if len(self) <= _SHOWN else f"<Vector of {len(self)} numbers: {shown}, …>"

    def __reduce__(self) -> tuple[Callable[[bytes], Vector], tuple[bytes]]:
        return Vector.frombytes, (self._data,)

    def __copy__(self) -> Vector:
        return self

    def __deepcopy__(self, memo: Any) -> Vector:
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return the numbers as an array of numpy, of float32 unless another type is asked for."""
        return arrays.array_of(self._data, dtype, copy=copy)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Return the schema of pydantic for a vector of any length."""
        del source, handler
        return _core_schema(None)


def is_vector(data: object) -> bool:
    """Return whether a stored value is the bytes of a vector; NaN and infinity are in none."""
    if not isinstance(data, bytes) or not data or len(data) % _SIZE:
        return False
    # The sum of so few numbers of 32 bits does not overflow 64 bits, and is finite only if each of them is.
    return isfinite(sum(components(data)))


def components(data: bytes) -> tuple[float, ...]:
    """Return the numbers in the bytes of a vector."""
    return _floats(len(data) // _SIZE).unpack(data)


def _packed(values: Any) -> bytes:
    """Return the bytes of numbers. Raises InvalidValueError."""
    listed = _listed(values)
    if not isinstance(listed, (list, tuple)):
        raise _not_numbers(values)
    numbers = cast("Sequence[Any]", listed)
    if not 1 <= len(numbers) <= LONGEST:
        raise InvalidValueError(
            "a vector has another number of components than it may",
            type=type(values).__name__,
            hint=f"This one has {len(numbers):,}. A vector has 1 to {LONGEST:,} numbers.",
        )
    try:
        data = _floats(len(numbers)).pack(*numbers)
    except struct.error:
        if not all(isinstance(one, (float, int)) for one in numbers):
            raise _not_numbers(values) from None
        data = b""  # an int that no float can hold
    except OverflowError:
        data = b""
    if not is_vector(data):
        raise InvalidValueError(
            "a vector has a number that is NaN, infinite or too large",
            type=type(values).__name__,
            hint="Its numbers are finite, and at most 3.4e38, as float32 has them.",
        )
    return data


def _listed(values: Any) -> Any:
    """Return the list of an array; other values as they are."""
    if not hasattr(values, "tolist") or isinstance(values, type):
        return values
    # Bytes are refused, and so are a view of them and one of a form that memoryview does not read.
    is_other_view = isinstance(values, memoryview) and values.format not in ("f", "d")
    return None if is_other_view else values.tolist()


def _not_numbers(values: object) -> InvalidValueError:
    return InvalidValueError(
        "a vector is a list of numbers",
        type=type(values).__name__,
        hint="Give a list or tuple of floats, an array.array, or an array of numpy with one dimension.",
    )


def _core_schema(length: int | None) -> core_schema.CoreSchema:
    """Return the schema of pydantic: anything that ``Vector`` takes; a list of numbers as JSON."""

    def validated(value: Any) -> Vector:
        try:
            vector = value if type(value) is Vector else Vector(value)
        except InvalidValueError as error:
            raise PydanticCustomError("vector", "{message}. {hint}", _context(error)) from error
        if length is not None and len(vector) != length:
            found = {"length": length, "found": len(vector)}
            raise PydanticCustomError("vector_length", "a vector of {length} numbers was expected, not {found}", found)
        return vector

    number = core_schema.float_schema(allow_inf_nan=False)
    listed = core_schema.list_schema(number, min_length=length or 1, max_length=length or LONGEST)
    return core_schema.json_or_python_schema(
        json_schema=core_schema.no_info_after_validator_function(validated, listed),
        python_schema=core_schema.no_info_plain_validator_function(validated),
        serialization=core_schema.plain_serializer_function_ser_schema(
            _as_json, return_schema=listed, when_used="json"
        ),
    )


def _as_json(value: Any) -> Any:
    """Return a vector as a list, or what an attribute was set to, which pydantic does not validate."""
    listed = _listed(value)
    return [*cast("Sequence[Any]", listed)] if isinstance(listed, tuple) else listed


def _context(error: InvalidValueError) -> dict[str, Any]:
    return {"message": error.message, "hint": error.hint or ""}


Vector.__pydantic_serializer__ = SchemaSerializer(_core_schema(None))
show_public_path(Vector)
