"""A record that is named by its primary key: one read, made and answered without a generator.

Rules of this module: what is read and what it means is what ``kvmodels.flows.scan.get_by_key`` says, which is asked
wherever something is not as usual: no header yet, a collection that cannot be used, a key that is none.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from typing import Any, Final, NamedTuple

from kvmodels.errors import InvalidValueError
from kvmodels.flows.context import Context
from kvmodels.flows.objects import Loader, loader_of
from kvmodels.flows.requests import OneRow, Short
from kvmodels.operations import ReadResult
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.live import LiveCollection
from kvmodels.schema.operands import takes_as_given
from kvmodels.schema.predicates import key_values

__all__ = ["absent_key", "point_read"]

_new: Final = tuple[Any, ...].__new__
_ONE_ROW: Final[type[OneRow[Any]]] = OneRow


def absent_key(schema: ModelSchema, values: tuple[Any, ...]) -> Exception:
    """The error for a primary key that no record has."""
    shown = values[0] if len(values) == 1 else values
    error: Exception = schema.model.DoesNotExist("no record has this primary key", model=schema.name, lookup=shown)
    return error


class _Point(NamedTuple):
    """How records of a model are read by key.

    Attributes:
        pack: from a primary key as people give it to the key of the record.
        load: makes the object.
        schema: the model.
        required: whether there has to be a record; else None is the answer where there is none.
    """

    pack: Callable[[Any], bytes]
    load: Loader
    schema: ModelSchema
    required: bool

    def answer(self, found: ReadResult, _: bytes, given: Any, /) -> Any:
        """The object; raises DecodeError as ``get_by_key`` does, and DoesNotExist."""
        rows = found[0][0]
        return self.load(rows[0]) if rows else self.absent(given)

    def absent(self, given: Any, /) -> None:
        """None, or DoesNotExist is raised."""
        if self.required:
            raise absent_key(self.schema, key_values(self.schema, given))

    def short(self) -> Short:
        """By the key as people give it."""
        return Short(b"", self.pack, None, None, self.load, self)


def point_read(context: Context, schema: ModelSchema, given: Any, *, required: bool = True) -> OneRow[Any] | None:
    """The read of the record with a primary key as people give it; None where it takes more than one read.

    Its answer raises DecodeError as ``get_by_key`` does, and DoesNotExist unless it need not be there: None then.
    """
    view = context.view
    if view is None:
        return None
    live = view.live[schema.collection]
    known = type(context.codec), schema.model, required
    way: _Point | None = live.compiled.get(known)
    if way is None:
        if live.refused is not None or live.schema.straight is None:
            return None
        way = live.compiled[known] = _Point(_packer(live, schema), loader_of(context, live), schema, required)
    try:
        key = way[0](given)
    except InvalidValueError:
        return None  # as it is given to the full way, which names the field
    # The named tuple is made as its own constructor does, without the call of it.
    return _new(_ONE_ROW, (key, None, None, way[1], way, None, given))


def _packer(live: LiveCollection, schema: ModelSchema) -> Callable[[Any], bytes]:
    """From a primary key as people give it to the key of the record; raises InvalidValueError."""
    prefix, layout = live.layout.prefix, live.layout
    codec = schema.primary_key[0].codec
    if len(schema.primary_key) == 1 and takes_as_given(codec):
        pack = unwrap(codec.pack)  # what it refuses goes the full way, which names the field
        return lambda given: prefix + pack(given)
    return lambda given: prefix + layout.pack(key_values(schema, given))
