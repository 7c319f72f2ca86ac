"""What a query set can do to its records: change all of them, or remove them.

Rules of this module: a façade of one-line methods over the flows that write. Names and signatures are those of
``kvmodels.queryset_writes_async``, which a test compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from kvmodels.flows import bulk_query, bulk_results, bulk_run
from kvmodels.queryset_answers import Answers

__all__ = ["Writes"]

R = TypeVar("R")


class Writes(Answers[R], Generic[R]):
    """The bulk writes of a query set."""

    __slots__ = ()

    def update(
        self,
        changes: Mapping[str, Any] | None = None,
        /,
        *,
        batch_size: int | None = None,
        on_error: bulk_results.OnError = "raise",
        progress: Callable[[bulk_results.BulkProgress], object] | None = None,
        resume_id: str | None = None,
        **fields: Any,
    ) -> bulk_results.BulkResult:
        """Change all records of the query, in batches that are one commit each; a slice changes its records only.

        The records go in the order of their primary keys, or their keys are collected first, so that none is met twice
        because of its own change. Each is read again and judged by the filter in the attempt that writes it. In a
        transaction all of it is a part of the one commit.

        Args:
            changes: new values by field name; for fields that are named like an option of this method.
            batch_size: the most records of one commit; by default what the engine takes, 500 at most.
            on_error: ``"raise"`` ends at the first record that cannot be written, with the batches before it
                committed; ``"collect"`` leaves such records out and lists them.
            progress: called with a ``BulkProgress`` after each batch.
            resume_id: a name for this write. Its progress is stored with each batch: repeated with the same arguments
                after the process was killed, it goes on, each record being written exactly once; repeated after its
                end it tells the result again. ``db.forget_bulk(id)`` frees the name.
            fields: new values by field name; ``F("n") + 1`` is computed from the stored record.

        Returns:
            ``BulkResult(matched, written, failed, batches, resumed)``. Cost: what the query reads, and for each
            record a read and its part of a commit.

        Raises:
            InvalidArgumentError: no changes, an option that makes no sense, or an id of another write.
            UnknownFieldError, PrimaryKeyChangedError: a change that no record can take; nothing was written.
            OperationTooLargeError: more than a million keys would have to be collected in memory.
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
            UniqueViolationError, pydantic.ValidationError, InvalidValueError, RetriesExhaustedError: of a record.

        Examples:
            >>> from kvmodels import Database, F, Indexed, KvModel, PrimaryKey
            >>> class Seat(KvModel, collection="seats"):
            ...     id: PrimaryKey[int]
            ...     row: Indexed[int]
            >>> seats = Database("memory://", models=[Seat])[Seat]
            >>> _ = seats.bulk_create([Seat(id=number, row=number // 2) for number in range(6)])
            >>> seats.filter(row__gte=1).update(row=F("row") + 1).written
            4
            >>> [seat.row for seat in seats]
            [0, 0, 2, 2, 3, 3]
        """
        options = bulk_run.BulkOptions(batch_size, on_error, progress, resume_id)
        wanted = {**(changes or {}), **fields}
        return self._runner.run(bulk_query.update_all(self._runner.context, self._query, wanted, options))

    def delete(
        self,
        *,
        batch_size: int | None = None,
        on_error: bulk_results.OnError = "raise",
        progress: Callable[[bulk_results.BulkProgress], object] | None = None,
        resume_id: str | None = None,
    ) -> bulk_results.BulkResult:
        """Remove all records of the query, in batches that are one commit each; a slice removes its records only.

        Each record is read again and judged by the filter in the attempt that removes it. In a transaction all of it
        is a part of the one commit.

        Args:
            batch_size: as in ``update``.
            on_error: as in ``update``; a record that cannot be read, or that a hook refuses to remove.
            progress: as in ``update``.
            resume_id: as in ``update``.

        Returns:
            ``BulkResult(matched, written, failed, batches, resumed)``; ``written`` counts what was removed. Cost: as
            ``update``.

        Raises:
            InvalidArgumentError: an option that makes no sense, or an id of another write.
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
            RetriesExhaustedError: others kept changing a record.

        Examples:
            >>> from kvmodels import Database, KvModel, PrimaryKey
            >>> class Note(KvModel, collection="notes"):
            ...     id: PrimaryKey[int]
            >>> notes = Database("memory://", models=[Note])[Note]
            >>> _ = notes.bulk_create([Note(id=number) for number in range(5)])
            >>> notes.order_by("-pk")[:2].delete().written
            2
            >>> [note.id for note in notes]
            [0, 1, 2]
        """
        options = bulk_run.BulkOptions(batch_size, on_error, progress, resume_id)
        return self._runner.run(bulk_query.remove_all(self._runner.context, self._query, options))
