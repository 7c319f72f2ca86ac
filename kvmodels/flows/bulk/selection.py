"""Change or remove all records of a query: in batches, each one commit, or as a part of a transaction.

A change goes in the order of the primary key, which no change moves, or collects the primary keys first; so no record
is met again at the place where its change has put it (the Halloween problem), through whatever index it was found. A
removal needs no such care, because what is gone is not met again.

Rules of this module: what is found is only a candidate, and is judged once more in the operation that writes it.

Source of the problem and its name: the System R group at IBM, 1976; see Hellerstein, Stonebraker and Hamilton,
"Architecture of a Database System", 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from kvmodels.errors import InvalidArgumentError, OperationTooLargeError
from kvmodels.flows.bulk.actions import Removing, Updating
from kvmodels.flows.bulk.batch import Batch, Work
from kvmodels.flows.bulk.keys import Found, KeySource, in_key_order
from kvmodels.flows.bulk.results import BulkResult
from kvmodels.flows.bulk.resume import resumable
from kvmodels.flows.bulk.run import BulkOptions, BulkRun, Listed, Source, checked_options
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow
from kvmodels.flows.writing.encode import KEEP
from kvmodels.flows.writing.hooks import Writer, writing
from kvmodels.query.query import Query
from kvmodels.schema.filters.changes import require_changes

MOST_COLLECTED: Final = 1_000_000
"""Primary keys that are held in memory, about 200 bytes each."""


def update_all(context: Context, query: Query, changes: Mapping[str, Any], options: BulkOptions) -> Flow[BulkResult]:
    """Change fields of all records of a query.

    Raises:
        InvalidArgumentError: no changes, an option that makes no sense, a query for values.
        UnknownFieldError, PrimaryKeyChangedError: a change that no record can take.
        OperationTooLargeError: more than ``MOST_COLLECTED`` keys would have to be held in memory.
        Whatever a record raises, unless failures are collected.

    Cost: what the query reads, then per batch one read of its records and one commit.
    """
    if not changes:
        raise InvalidArgumentError(
            "an update changes nothing", argument="changes", hint="Give new values by field name: update(n=F('n') + 1)."
        )
    require_changes(query.schema, changes)
    checked_options(context, options)
    return writing(context, query.schema, KEEP, partial(_update_all, query, changes, options))


def _update_all(query: Query, changes: Mapping[str, Any], options: BulkOptions, writer: Writer) -> Flow[BulkResult]:
    work = Updating(writer, query, changes)
    return _written(writer.context, query, work, options, changes)


def remove_all(context: Context, query: Query, options: BulkOptions) -> Flow[BulkResult]:
    """Remove all records of a query, with their entries.

    Raises: as ``update_all``.

    Cost: as ``update_all``.
    """
    checked_options(context, options)
    return writing(context, query.schema, KEEP, partial(_remove_all, query, options))


def refused_removal() -> InvalidArgumentError:
    """The error for ``users.delete()``, which nobody should write for ``users.remove(key)``."""
    return InvalidArgumentError(
        "a collection is not emptied by delete()",
        argument="delete",
        hint="Write all().delete() to remove every record, filter(...).delete() for some, remove(key) for one.",
    )


def refused_update() -> InvalidArgumentError:
    """The error for ``users.update(...)``, which nobody should write for ``users.patch(key, ...)``."""
    return InvalidArgumentError(
        "a collection is not changed as a whole by update()",
        argument="update",
        hint="Write all().update(...) to change every record, filter(...).update(...) for some, patch(key, ...) for "
        "one.",
    )


def _remove_all(query: Query, options: BulkOptions, writer: Writer) -> Flow[BulkResult]:
    return _written(writer.context, query, Removing(writer, query), options, None)


def _written(
    context: Context, query: Query, work: Work[Found], options: BulkOptions, changes: Mapping[str, Any] | None
) -> Flow[BulkResult]:
    source = KeySource(context, query)
    if context.transaction is not None:
        return _in_transaction(context, source, work, options)
    if options.resume_id is not None:
        return resumable(context, query, work, options, changes)
    return _at_once(context, source, work, options, moves=changes is not None)


def _in_transaction(context: Context, source: KeySource, work: Work[Found], options: BulkOptions) -> Flow[BulkResult]:
    yield from source.open()
    found = yield from _collected(source)
    if not found:
        return BulkResult(0, 0)
    outcome = yield from Batch(context, work, found, collect=options.on_error == "collect").run()
    assert outcome is not None, "nobody else goes on with it"
    return BulkResult(outcome.matched, outcome.written, outcome.failed, 1)


def _at_once(
    context: Context, source: KeySource, work: Work[Found], options: BulkOptions, *, moves: bool
) -> Flow[BulkResult]:
    run = BulkRun(context, work, options)
    try:
        yield from source.open()
        given: Source[Found] = source
        if moves and not in_key_order(source.plan):
            given = Listed((yield from _collected(source)))
        yield from run.write(given)
    except Exception as error:
        run.annotate(error)
        raise
    return run.result()


def _collected(source: KeySource) -> Flow[list[Found]]:
    """All results, each once: a record that others move while it is read may be found twice."""
    found: dict[bytes, Found] = {}
    while True:
        more = yield from source.take(MOST_COLLECTED)
        if not more:
            return list(found.values())
        source.dealt_with(len(more))
        found.update((one.pk, Found(one.pk)) for one in more)
        if len(found) > MOST_COLLECTED:
            raise OperationTooLargeError(
                "more primary keys would be held in memory than a bulk write may hold",
                limit="collected_keys",
                size=len(found),
                maximum=MOST_COLLECTED,
                hint="Give a resume_id, with which they are kept in the store, or write in the order of the primary "
                'key: order_by("pk"), with allow_scan() if no index gives it.',
            )
