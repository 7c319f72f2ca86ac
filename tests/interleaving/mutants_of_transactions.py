"""Transactions with one rule taken away each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kvmodels.core.operations import ReadRange
from kvmodels.flows.transaction import checks as transaction_checks
from kvmodels.flows.transaction import commit as transaction_commit
from kvmodels.flows.transaction import pending_writes, transaction
from kvmodels.testing.processes import InterleavedSession

Patch = pytest.MonkeyPatch


def nothing_read_is_checked(patch: Patch) -> None:
    patch.setattr(transaction_checks.ReadSet, "checks", lambda self, collections, taken: [])


def _notes(patch: Patch, wanted: Callable[[ReadRange, Any], bool]) -> None:
    real = transaction.TransactionFlows._note_all

    def some(self: Any, ranges: Any, found: Any) -> None:
        pairs = [(one, rows) for one, rows in zip(ranges, found, strict=True) if wanted(one, rows)]
        real(self, [one for one, _ in pairs], [rows for _, rows in pairs])

    patch.setattr(transaction.TransactionFlows, "_note_all", some)


def records_that_were_read_are_not_checked(patch: Patch) -> None:
    _notes(patch, lambda one, rows: one.end is not None or not rows)


def absent_keys_are_not_checked(patch: Patch) -> None:
    _notes(patch, lambda one, rows: one.end is not None or bool(rows))


def walks_are_not_checked(patch: Patch) -> None:
    _notes(patch, lambda one, rows: one.end is None)


def entries_are_taken_for_checked(patch: Patch) -> None:
    patch.setattr(transaction_checks.ReadSet, "_covers", lambda self, record, entry, taken: True)


def unchecked_is_for_all(patch: Patch) -> None:
    """A counter at the transaction, whoever has entered a block of it."""
    blocks: list[object] = []

    @contextmanager
    def unchecked(flows: object) -> Iterator[None]:
        blocks.append(flows)
        try:
            yield
        finally:
            blocks.remove(flows)

    patch.setattr(transaction, "unchecked", unchecked)
    patch.setattr(transaction, "is_unchecked", lambda flows: flows in blocks)


def guards_are_not_taken(patch: Patch) -> None:
    real = transaction.TransactionFlows.guard

    def unguarded(self: Any, name: str, parts: Any, shared: bool) -> Any:
        yield from real(self, name, parts)
        self._guards = transaction_checks.Guards()

    patch.setattr(transaction.TransactionFlows, "guard", unguarded)


def guards_are_not_rewritten(patch: Patch) -> None:
    patch.setattr(transaction_checks.Guards, "marks", lambda self, codec: [])


def guards_are_not_checked(patch: Patch) -> None:
    patch.setattr(transaction_checks.Guards, "checks", lambda self: {})


def shared_holders_check_nothing(patch: Patch) -> None:
    real = transaction_checks.Guards.checks

    def checks(self: Any) -> Any:
        return {key: check for key, check in real(self).items() if key in self._taken or len(self._seen) > 1}

    patch.setattr(transaction_checks.Guards, "checks", checks)


def exclusive_holders_check_their_row_alone(patch: Patch) -> None:
    patch.setattr(transaction_checks, "rows_to_check", lambda exclusive, common, shared: (exclusive,))


def exclusive_holders_set_the_shared_row(patch: Patch) -> None:
    patch.setattr(transaction_checks, "row_to_set", lambda exclusive, common, shared: common)


def old_rows_stay_visible(patch: Patch) -> None:
    real = pending_writes._layer
    patch.setattr(pending_writes, "_layer", lambda codec, record: real(codec, record)._replace(hidden=frozenset()))


def every_save_is_a_change(patch: Patch) -> None:
    real = pending_writes.WrittenRecords

    class Saves(real):  # type: ignore[misc, valid-type]
        def take(self, operation: Any, proposal: Any) -> Any:
            self.all_changes = [*getattr(self, "all_changes", ()), *proposal.changes]
            return super().take(operation, proposal)

        def changes(self) -> Any:
            last = {change.key: change.old for change in reversed(getattr(self, "all_changes", ()))}
            return [change._replace(old=last[change.key]) for change in getattr(self, "all_changes", ())]

    patch.setattr(transaction, "WrittenRecords", Saves)


def reads_are_of_many_states(patch: Patch) -> None:
    async def unpinned(self: Any) -> None:
        return None

    patch.setattr(InterleavedSession, "_pinned", unpinned)


def conflicts_are_reported_at_once(patch: Patch) -> None:
    def unsettled(self: Any) -> Any:
        return None
        yield

    patch.setattr(transaction_commit._Sending, "_settle", unsettled)


def a_lost_answer_is_a_conflict(patch: Patch) -> None:
    """The second delivery meets the token of the first, which is taken for somebody else's."""
    real = transaction_commit._Sending._attempt

    def attempt(self: Any) -> Any:
        failed = yield from real(self)
        self._lost = self._lost and not isinstance(failed, tuple)
        return failed

    patch.setattr(transaction_commit._Sending, "_attempt", attempt)
