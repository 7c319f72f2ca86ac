"""The shortest way to insert many records: one attempt for each batch, compiled by columns, in one flow.

Rules of this module: what is validated when, checked, written, raised and returned is what ``bulk_create_batch`` says.
Only the first attempt at a batch is made here, and only where ``direct_writes`` would insert each of the records, no
function of the user takes part, all objects are new and valid, and the codec is that of msgpack. Everything else is
left to it, and so is every further attempt after a conflict: it finds which object is to blame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

from kvmodels.encoding.values import MsgpackCodec
from kvmodels.errors import InvalidValueError
from kvmodels.flows.bulk_create_batch import BulkItem, CreateBatch
from kvmodels.flows.bulk_results import BulkProgress
from kvmodels.flows.context import Context
from kvmodels.flows.direct_writes import Way, failed, way_of
from kvmodels.flows.hooks import Writer
from kvmodels.flows.requests import Commit, Flow
from kvmodels.flows.retry import FirstAttempt
from kvmodels.flows.storing import KEEP, Pending
from kvmodels.maintenance.plain_batch import Inserts, plain_inserts
from kvmodels.operations import Committed, Conflict
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.record_codec import Prepared, PreparedMany
from kvmodels.schema.state import set_all_loaded

__all__ = ["prepared_batches"]

_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor
_NOTHING: Final[dict[str, Any]] = {}


class _Ready(NamedTuple):
    """New objects, validated and encoded, by columns."""

    instances: Sequence[Any]
    prepared: PreparedMany
    pks: list[bytes]
    values: list[bytes]
    encoding: int

    def part(self, start: int, end: int) -> _Ready:
        """Those of one batch."""
        many = self.prepared
        prepared = many._replace(values=many.values[start:end], documents=many.documents[start:end])
        return _Ready(self.instances[start:end], prepared, self.pks[start:end], self.values[start:end], self.encoding)


def prepared_batches(
    context: Context,
    schema: ModelSchema,
    objects: Sequence[Any],
    size: int | None,
    progress: Callable[[BulkProgress], object] | None,
) -> Flow[list[BulkItem[Any]]] | None:
    """Validate and encode objects; the flow that inserts them in batches, None where the full way is to be taken.

    Args:
        context: shared by the flows of the database.
        schema: the model.
        objects: in their order.
        size: records of a batch; None for one batch.
        progress: called after each batch.
    """
    way, codec = way_of(context, schema, KEEP), context.codec
    if way is None or schema.prepare_many is None or not isinstance(codec, MsgpackCodec) or not objects:
        return None
    prepared: PreparedMany | None = schema.prepare_many(objects)
    if prepared is None:
        return None
    try:
        values, encoding = codec.encode_many(prepared.documents)
    except InvalidValueError:
        return None
    pks = plain_inserts(way.collections[0], way.writes.header, codec).packed_keys(prepared.documents)
    if pks is None:
        return None
    ready = _Ready(objects, prepared, pks, values, encoding)
    return _stored(context, schema, ready, size or len(objects), progress)


def _stored(
    context: Context,
    schema: ModelSchema,
    ready: _Ready,
    size: int,
    progress: Callable[[BulkProgress], object] | None,
) -> Flow[list[BulkItem[Any]]]:
    results: list[BulkItem[Any]] = []
    for batches, start in enumerate(range(0, len(ready.pks), size), 1):
        part = ready.part(start, start + size)
        # Asked for each batch, because another process may have changed the header since.
        results += yield from _batch(context, schema, way_of(context, schema, KEEP), part, start)
        if progress is not None:
            progress(BulkProgress(len(results), len(results), batches))
    return results


def _batch(
    context: Context, schema: ModelSchema, way: Way | None, part: _Ready, start: int
) -> Flow[list[BulkItem[Any]]]:
    started = context.monotonic()
    inserts = None if way is None else _compiled(context, way, part)
    if way is None or inserts is None:
        return (yield from _in_full(context, schema, part, start, None))
    try:
        outcome: Committed | Conflict = yield _new(Commit, (inserts.write,))
    except Exception as error:
        if start:
            error.add_note(f"kvmodels: the batches before position {start} are committed")
        raise
    if isinstance(outcome, Conflict):
        return (yield from _in_full(context, schema, part, start, failed(started, inserts.write, outcome)))
    _accept(schema, way, part, inserts.keys, outcome[0])
    return list(map(_new, repeat(BulkItem), zip(part.instances, repeat(True), repeat(None), strict=False)))


def _compiled(context: Context, way: Way, part: _Ready) -> Inserts | None:
    """The operation for a batch; None if it cannot be compiled this way, or is over a limit."""
    codec = context.codec
    assert isinstance(codec, MsgpackCodec), "as when the objects were encoded"
    compiler = plain_inserts(way.collections[0], way.writes.header, codec)
    inserts = compiler.compiled(part.prepared.documents, part.pks, part.values, part.encoding)
    return inserts if inserts is not None and inserts.fits(context.limits) else None


def _accept(schema: ModelSchema, way: Way, part: _Ready, keys: Sequence[bytes], versionstamp: bytes) -> None:
    """After the commit: give the objects their validated values and their states."""
    if part.prepared.keeps_identity:
        for instance, values in zip(part.instances, part.prepared.values, strict=True):
            schema.accept(instance, Prepared(values, None, values, (), _NOTHING))
    else:  # what ``accept`` comes to, without Python code for each
        dicts = [instance.__dict__ for instance in part.instances]
        deque(map(dict[str, Any].update, dicts, part.prepared.values), maxlen=0)
    rows = zip(keys, part.values, repeat(part.encoding), repeat(versionstamp), repeat(None), strict=False)
    set_all_loaded(schema.model, part.instances, way.unpack_key, rows)


def _in_full(
    context: Context, schema: ModelSchema, part: _Ready, start: int, first: FirstAttempt | None
) -> Flow[list[BulkItem[Any]]]:
    """The batch by the full way, with the objects as they were when they were validated."""
    layout, primary_key = context.layouts[schema.collection], [column.field for column in schema.primary_key]
    items: list[Pending] = []
    many = part.prepared
    columns = zip(part.instances, many.values, many.documents, part.values, part.pks, strict=True)
    for instance, values, document, value, pk in columns:
        key_values = tuple([values[name] for name in primary_key])
        prepared = Prepared(values, None, document, key_values, _NOTHING)
        items.append(Pending(schema, layout, instance, prepared, document, value, part.encoding, key_values, pk))
    stored = yield from CreateBatch(Writer(context, schema, KEEP, None), items, "error", start).stored(first)
    assert stored is not None, "there is no ledger"
    return stored
