"""Many stored rows to objects at once, by functions of C that go over all of them, without a step of Python for each.

A loader of ``kvmodels.flows.hydration.loader`` takes two microseconds for what is said of each row; here a column of
values is looked at as a whole: the same names in every document, one value in each column of the index, keys that are
those of the records. Whatever is not plainly so is left to the loader, row by row, which gives the objects or the
error; a test compares the two.

Rules of this module: pure; the answer is that of the loader for every row, or None and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import unwrap
from operator import itemgetter
from typing import Any, Final, cast

from pydantic import TypeAdapter

from kvmodels._support import switches
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.compiled import BatchLoader
from kvmodels.codecs.columns.registry import Matched, column_matcher, column_packer
from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.operations import PlainRow, ReadResult, Row, row_of
from kvmodels.flows.context import Context
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.definition.definition import Column, Document
from kvmodels.schema.instances import Loaded, is_every_field, leave_out_fields_sets, set_all_loaded

_FEWEST: Final = 8
"""Rows from which on a batch costs less than its rows one by one."""

_KEY, _VALUE, _ENCODING = itemgetter(0), itemgetter(1), itemgetter(2)
_names: Final[Callable[[Any], tuple[Any, ...]]] = cast("Any", tuple)
_plain: Final[Callable[[PlainRow], Loaded]] = cast("Any", tuple)
_TEXT: Final = frozenset({str})
_EXACT: Final = _TEXT | {int, bool, bytes}
"""Types of which values that are equal, and of one type, have the same key part."""


def batch_loader_of(context: Context, live: LiveCollection, index: LiveIndex | None) -> BatchLoader | None:
    """The batch loader of a collection for records, or for the records behind the entries of an index.

    None where documents need more than to be unpacked and validated, or the index is not made of plain fields.
    """
    loaders, name = live.compiled.batch_loaders, None if index is None else index.definition.name
    if name not in loaders:
        loaders[name] = _compiled(context, live, index)
    return loaders[name]


def loaded(batch: BatchLoader | None, load: Callable[[Row], Any], rows: Sequence[PlainRow]) -> list[Any]:
    """The objects of rows that were read as records.

    Args:
        batch: takes them all, if it can.
        load: takes one.
        rows: in the order of the objects.
    """
    objects = None if batch is None else batch(rows, b"")
    return [load(row_of(row)) for row in rows] if objects is None else objects


def loaded_behind(
    batch: BatchLoader | None, found: ReadResult, head: bytes, number: int
) -> tuple[list[Any] | None, Sequence[list[Row]]]:
    """The objects of the records behind entries, if they are made at once; if not, the record behind each.

    Args:
        batch: takes them all, if it can.
        found: of a read with a ``Tail``: entries, and behind them a list for each, or one list for all.
        head: the columns of all entries.
        number: so many entries count, the first ones.
    """
    entries, followed = found[0][0], found[1]
    if len(followed) >= len(entries):
        return None, followed[:number]
    records = followed[0][:number]
    objects = None if batch is None else batch(records, head)
    return objects, () if objects is not None else [[row_of(record)] for record in records]


def _compiled(context: Context, live: LiveCollection, index: LiveIndex | None) -> BatchLoader | None:
    straight, codec, layout = live.schema.straight, context.codec, live.layout
    if (
        not switches.fast_kinds
        or straight is None
        or straight.marked
        or straight.decoders
        or not isinstance(codec, MsgpackCodec)
    ):
        return None
    if index is not None and not index.layout.is_plain:
        return None
    is_order, model, start = (*straight.names,).__eq__, live.schema.model, len(layout.prefix)
    decode_many = codec.decode_many
    validate: Callable[..., list[Any]] = TypeAdapter(list[model]).validate_python  # type: ignore[valid-type]
    have_keys = _matcher(live.schema.primary_key)
    leaves_out = is_every_field(model, straight.names, KvModel.__dict__["__getattr__"])
    shared = _sharing(() if index is None else index.definition.columns)
    prefix = b"" if index is None else index.layout.prefix

    def load(rows: Sequence[PlainRow], head: bytes) -> list[Any] | None:
        if len(rows) < _FEWEST:
            return None
        try:
            documents = decode_many(list(map(_VALUE, rows)), set(map(_ENCODING, rows)))
            if documents is None or not all(map(is_order, map(_names, documents))):
                return None
            if not have_keys(documents, list(map(_KEY, rows)), start):
                return None
            if head and prefix + shared(documents) != head:
                return None
            objects = validate(documents, by_alias=False, by_name=True)
        except Exception:  # noqa: BLE001 - whatever it is, the loader says what it means, and of which row
            return None
        # A row that the engine holds as well is no object more; of one that it has made, the tuple is left.
        set_all_loaded(model, objects, layout.unpack_key, rows if context.traits.keeps_rows else map(_plain, rows))
        if leaves_out:
            leave_out_fields_sets(model, objects)
        return objects

    return load


def _matcher(columns: Sequence[Column]) -> Matched:
    """What tells whether keys, from a place on, are the key parts of these columns of the documents beside them."""
    gets = [itemgetter(column.field) for column in columns]
    packs = [unwrap(column.codec.pack_stored) for column in columns]
    if len(columns) == 1:
        (get,), match = gets, column_matcher(packs[0])
        return lambda documents, keys, start: match(list(map(get, documents)), keys, start)
    packers = list(zip(gets, map(column_packer, packs), strict=True))

    def matches(documents: Sequence[Document], keys: Sequence[bytes], start: int) -> bool:
        parts = [pack(list(map(get, documents))) for get, pack in packers]
        return list(map(b"".join, zip(*parts, strict=True))) == [key[start:] for key in keys]

    return matches


def _sharing(columns: Sequence[Column]) -> Callable[[Sequence[Document]], bytes]:
    """What packs the key parts that all of some documents have in common.

    It raises ValueError if they differ in a column, or may.
    """
    parts = [(itemgetter(column.field), unwrap(column.codec.pack_stored)) for column in columns]

    def shared(documents: Sequence[Document]) -> bytes:
        packed = b""
        for get, pack in parts:
            values = list(map(get, documents))
            first = values[0]
            # No other value that is stored equals a text.
            kinds = _TEXT if first.__class__ is str else set(map(type, values))
            if len(kinds) != 1 or not kinds <= _EXACT or values.count(first) != len(values):
                raise ValueError
            packed += pack(first)
        return packed

    return shared
