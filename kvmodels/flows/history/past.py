"""Reads of the state of a collection at a moment of the past, by primary key and by filter.

A filter reads all records and all rows of ended versions, range by range: the records first, then the rows of the same
keys. A record that had begun in time wins over its rows. This order is exact without a snapshot: what is changed
between the two reads is found in its row. The other order would miss it.

Rules of this module: nothing is written. Absence is never concluded from missing rows before the horizon.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kvmodels.core.keys import key_successor
from kvmodels.core.operations import ReadRange, Row, after_prefix
from kvmodels.errors import DecodeError, NoUsableIndexError, UnsupportedError
from kvmodels.flows.arguments import items_of, refusal
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, rows_at_once
from kvmodels.flows.history.reading import (
    HistoryReader,
    Moment,
    expired,
    history_reader,
    is_certain_at,
    lasts_at,
    moment_of,
    newest_at,
    under_present_history,
    version_at,
    versions_at,
)
from kvmodels.flows.history.versions import Version, ended_version, instance_of, present_version
from kvmodels.flows.hydration.rows import absent, shown_key
from kvmodels.flows.writing.record_write import packed_key
from kvmodels.query.matching import Matcher
from kvmodels.query.planning.branches import tested_fields
from kvmodels.schema.declare.expressions import Expression
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.filters.parse import parse
from kvmodels.schema.filters.predicate import Conjunction, conditions_of, conjunction, has_subquery

RECORDS_AT_ONCE: Final = 200
"""Records that are read together; the rows of ended versions are read for their keys."""


def _asked(context: Context, schema: ModelSchema, when: object) -> Flow[tuple[HistoryReader, Moment]]:
    """Return the history and the moment of a read. Raises HistoryExpiredError before the horizon."""
    reader = yield from history_reader(context, schema)
    moment = moment_of(when, reader.now_ms)
    if not reader.history.keeps_updates:
        raise UnsupportedError(
            "a history of removals alone does not know the state of the past",
            reason='History(only="removed")',
            hint="Leave only= out to keep every version; trash() and restore() need none of it.",
        )
    if moment.versionstamp is not None and reader.history.keep is not None:
        hint = "Ask for a time, or keep versions for ever: History(keep=None). at() of one record takes both."
        raise refusal("the time of a versionstamp is not known, so its horizon is not", "when", when, hint)
    if not is_certain_at(reader, moment):
        yield from reader.require_present()
        raise expired(reader, None)
    return reader, moment


@under_present_history
def past_record(context: Context, schema: ModelSchema, when: object, given: Any) -> Flow[Any | None]:
    """Return the object of a primary key as it was; None if there was none.

    Cost: one read of the record and of its newer rows.
    """
    _, pk = packed_key(context, schema, given)
    reader, moment = yield from _asked(context, schema, when)
    version, _ = yield from version_at(reader, pk, moment)
    return None if version is None else instance_of(reader.live, version)[0]


def required_past_record(context: Context, schema: ModelSchema, when: object, given: Any) -> Flow[Any]:
    """Return the object like ``past_record``. Raises DoesNotExist."""
    values, _ = packed_key(context, schema, given)
    found = yield from past_record(context, schema, when, given)
    if found is None:
        raise absent(schema, values)
    return found


@under_present_history
def past_records(context: Context, schema: ModelSchema, when: object, keys: Iterable[Any]) -> Flow[list[Any | None]]:
    """Return the objects of primary keys as they were, in this order; None for each that there was not."""
    given = items_of("keys", keys, "Give primary keys in a list.")
    packed = [packed_key(context, schema, key)[1] for key in given]
    reader, moment = yield from _asked(context, schema, when)
    versions = yield from versions_at(reader, packed, moment)
    return [None if version is None else instance_of(reader.live, version)[0] for version in versions]


def past_conditions(
    schema: ModelSchema, expressions: Sequence[Expression], lookups: Mapping[str, Any], excluded: Iterable[str]
) -> Conjunction:
    """Return the conditions of a filter of the past. Raises InvalidArgumentError or QueryError."""
    where = parse(schema, expressions, lookups)
    if schema.variants is not None:
        where = conjunction([*schema.variants.where, *where])
    if has_subquery(where):
        hint = "Read the values first, as_of(when).filter(...), and give them as a list."
        raise refusal("a query of the past takes no other query as an operand", "filter", schema.name, hint)
    for condition in (one for part in where for one in conditions_of(part)):
        for field in tested_fields(schema, condition):
            if field in excluded:
                hint = "Old versions do not hold excluded fields: filter by another field."
                raise refusal("a query of the past names a field that the history excludes", "filter", field, hint)
    return where


def require_scan(context: Context, schema: ModelSchema, *, allowed: bool) -> None:
    """Refuse a query of the past without ``allow_scan()``, unless the policy allows it. Raises NoUsableIndexError."""
    if not allowed:
        error = NoUsableIndexError(
            "no index knows the state of the past",
            model=schema.name,
            hint="Call .allow_scan() to read all records and all old versions of the collection.",
        )
        if context.scans.current == "refuse":
            raise error
        context.scans.warn(error)


@under_present_history
def past_batch(
    context: Context, schema: ModelSchema, when: object, where: Conjunction, after: bytes | None
) -> Flow[tuple[list[Any], bytes | None]]:
    """Return the next objects of a filter as they were, in the order of the keys, and the position after them.

    ``after``: the position of the batch before; None: the first. The position is None at the end. Cost: one read of at
    most 200 records, then of all rows of ended versions of their keys.
    """
    reader, moment = yield from _asked(context, schema, when)
    live = reader.live
    past_conditions_hold = Matcher(schema, where) if where else None
    start = live.layout.prefix if after is None else live.layout.key(after)
    limit = rows_at_once(context.limits, RECORDS_AT_ONCE, others=1)
    records = (yield from reader.read((ReadRange(start, after_prefix(live.layout.prefix), limit),)))[0]
    last = live.layout.pk_of(records[-1].key) if len(records) == limit else None
    rows = yield from _rows_between(reader, b"" if after is None else after, last)
    found: list[Any] = []
    for version in _versions_at(reader, records, rows, moment):
        instance = _instance(reader, version)
        if past_conditions_hold is None or _holds(past_conditions_hold, version.document, instance):
            found.append(instance)
    return found, None if last is None else key_successor(last)


def _rows_between(reader: HistoryReader, first: bytes, last: bytes | None) -> Flow[list[Row]]:
    """Return all rows of the keys from ``first`` to ``last``, both included; None: to the end."""
    start = reader.prefix + first
    end = after_prefix(reader.prefix) if last is None else after_prefix(reader.prefix + last)
    limit = rows_at_once(reader.context.limits, reader.context.limits.max_read_entries, others=1)
    rows: list[Row] = []
    while True:
        part = (yield from reader.read((ReadRange(start, end, limit),)))[0]
        rows += part
        if len(part) < limit:
            return rows
        start = key_successor(part[-1].key)


def _versions_at(
    reader: HistoryReader, records: Sequence[Row], rows: Sequence[Row], moment: Moment
) -> Iterator[Version]:
    """Yield the versions that were current at a moment, in the order of the keys.

    Rows older than the version of a key that had begun in time are not decoded.
    """
    codec, live = reader.context.codec, reader.live
    chosen: dict[bytes, Version] = {}
    later: dict[bytes, str] = {}
    for row in records:
        present = present_version(codec, live, row)
        later[present.pk] = present.begin
        if newest_at((present,), moment) is not None:
            chosen[present.pk] = present
    done: bytes | None = None
    for row in reversed(rows):
        if done is not None and row.key.startswith(done):
            continue
        version = ended_version(codec, reader.prefix, row, reader.now_ms)
        if version is None:
            continue
        if version.pk not in chosen and not (version.pk in later and version.begin >= later[version.pk]):
            if newest_at((version,), moment) is None:
                continue
            chosen[version.pk] = version
        if version.pk in chosen:
            done = reader.prefix + version.pk
    for pk in sorted(chosen):
        if lasts_at(chosen[pk], moment) and reader.shows(chosen[pk]):
            yield chosen[pk]


def _instance(reader: HistoryReader, version: Version) -> Any:
    try:
        return instance_of(reader.live, version)[0]
    except DecodeError as error:
        error.key = shown_key(reader.live.layout.unpack(version.pk))
        raise


def _holds(test: Matcher, document: Any, instance: Any) -> bool:
    try:
        return test.on_object(instance)
    except KeyError:
        return test.on_document(document)
