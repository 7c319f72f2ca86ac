"""Insert many new records by columns: objects are validated, encoded and compiled together instead of one by one.

``create.py`` commits the compiled operation in its first attempt. After a conflict, or if a batch cannot be compiled by
columns, it handles the objects one by one.

Rules of this module: the operation, the limits and the resulting objects are the same in both ways. It handles only
valid new records without hooks, time fields, deadlines or user functions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.operations import AtomicWrite
from kvmodels.errors import InvalidValueError
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.writing.changes import ChangeBuilder, EncodedObject
from kvmodels.indexing.simple import record_writer
from kvmodels.schema.compile.record_codec import PreparedBatch, PreparedObject
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.instances import set_all_loaded

_NOTHING: Final[dict[str, Any]] = {}


class InsertColumns(NamedTuple):
    """New objects, validated and encoded, by columns."""

    schema: ModelSchema
    instances: Sequence[Any]
    prepared: PreparedBatch
    pks: list[bytes]
    values: list[bytes]
    encoding: int

    def part(self, start: int, end: int) -> InsertColumns:
        """Return the columns of one batch."""
        many = self.prepared
        prepared = many._replace(values=many.values[start:end], documents=many.documents[start:end])
        return self._replace(
            instances=self.instances[start:end],
            prepared=prepared,
            pks=self.pks[start:end],
            values=self.values[start:end],
        )

    def items(self, context: Context) -> list[EncodedObject]:
        """Return the objects one by one, as they were validated."""
        schema, many = self.schema, self.prepared
        layout, primary_key = context.layouts[schema.collection], [column.field for column in schema.primary_key]
        items: list[EncodedObject] = []
        columns = zip(self.instances, many.values, many.documents, self.values, self.pks, strict=True)
        for instance, values, document, value, pk in columns:
            key_values = tuple([values[name] for name in primary_key])
            prepared = PreparedObject(values, None, document, key_values, _NOTHING)
            items.append(
                EncodedObject(schema, layout, instance, prepared, document, value, self.encoding, key_values, pk)
            )
        return items

    def compiled(self, context: Context, view: HeaderView) -> tuple[AtomicWrite, Callable[[bytes], None]] | None:
        """Compile the operation; None if two objects collide, an index cannot hold one, or a limit is exceeded.

        Returns the operation, and a function that sets the values and the state of the objects after the commit.
        """
        codec, live = context.codec, view.live[self.schema.collection]
        assert isinstance(codec, MsgpackCodec), "insert_columns gives columns for no other"
        compiler = record_writer(live, view.guard, codec)
        if compiler is None:
            return None
        inserts = compiler.compiled_inserts(codec, self.prepared.documents, self.pks, self.values, self.encoding)
        if inserts is None or not inserts.fits(context.limits):
            return None

        def accept(versionstamp: bytes) -> None:
            self._accept_values()
            rows = zip(
                inserts.keys, self.values, repeat(self.encoding), repeat(versionstamp), repeat(None), strict=False
            )
            set_all_loaded(self.schema.model, self.instances, live.layout.unpack_key, rows)

        return inserts.write, accept

    def _accept_values(self) -> None:
        """Copy the validated values to the objects."""
        many = self.prepared
        if many.keeps_identity:
            for instance, values in zip(self.instances, many.values, strict=True):
                self.schema.accept(instance, PreparedObject(values, None, values, (), _NOTHING))
        else:  # like ``accept``, without Python code for each object
            dicts = [instance.__dict__ for instance in self.instances]
            deque(map(dict[str, Any].update, dicts, many.values), maxlen=0)


def insert_columns(writer: ChangeBuilder, objects: Sequence[Any]) -> InsertColumns | None:
    """Validate and encode new objects by columns; None if each of them must be handled individually."""
    context, schema, view = writer.context, writer.schema, writer.context.view
    codec = context.codec
    if not writer.is_plain or context.transaction is not None or context.traits.may_lose_answers or not objects:
        return None
    if view is None or schema.prepare_many is None or schema.ttl_ms is not None or not isinstance(codec, MsgpackCodec):
        return None
    live = view.live[schema.collection]
    compiler = record_writer(live, view.guard, codec) if live.schema is schema and live.refused is None else None
    prepared: PreparedBatch | None = None if compiler is None else schema.prepare_many(objects)
    if compiler is None or prepared is None:
        return None
    try:
        values, encoding = codec.encode_many(prepared.documents)
    except InvalidValueError:
        return None
    pks = compiler.packed_keys(prepared.documents)
    return None if pks is None else InsertColumns(schema, objects, prepared, pks, values, encoding)
