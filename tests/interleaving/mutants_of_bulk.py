"""Bulk writes with one rule taken away each."""

from __future__ import annotations

from typing import Any

import pytest

from kvmodels.flows import bulk_batch, bulk_keys, bulk_query, bulk_works
from kvmodels.maintenance import rules

Patch = pytest.MonkeyPatch


def progress_is_not_checked(patch: Patch) -> None:
    patch.setattr(rules, "progress_check", lambda key, versionstamp: None)


def progress_follows_its_batch(patch: Patch) -> None:
    real = bulk_batch.Batch.run

    def separately(self: Any) -> Any:
        ledger, self._ledger = self._ledger, None
        outcome = yield from real(self)
        if ledger is not None and outcome is not None:
            moved = ledger.state._replace(cursor=self._items[-1].cursor(), last=self._items[-1].pk)
            yield from ledger.save(moved)
        return outcome

    patch.setattr(bulk_batch.Batch, "run", separately)


def every_order_does(patch: Patch) -> None:
    patch.setattr(bulk_query, "in_key_order", lambda plan: True)


def slices_are_ignored(patch: Patch) -> None:
    real = bulk_keys.KeySource.__init__

    def whole(self: Any, context: Any, query: Any) -> None:
        real(self, context, query)
        self._left = None

    patch.setattr(bulk_keys.KeySource, "__init__", whole)


def what_was_found_is_written(patch: Patch) -> None:
    real = bulk_works.Removing.__init__

    def unjudged(self: Any, writer: Any, query: Any) -> None:
        real(self, writer, query)
        self._matcher = None

    patch.setattr(bulk_works.Removing, "__init__", unjudged)
