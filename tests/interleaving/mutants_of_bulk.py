"""Bulk writes with one rule taken away each."""

from __future__ import annotations

from typing import Any

import pytest

from kvmodels.core.operations import AtomicWrite
from kvmodels.flows.bulk import keys as bulk_keys
from kvmodels.flows.bulk import progress as bulk_progress
from kvmodels.flows.bulk import query_writes
from kvmodels.flows.effects import commit
from kvmodels.flows.writing import attempt as retry
from kvmodels.indexing import rules

Patch = pytest.MonkeyPatch


def progress_is_not_checked(patch: Patch) -> None:
    patch.setattr(rules, "progress_check", lambda key, versionstamp: None)


def progress_follows_its_batch(patch: Patch) -> None:
    real = retry._Run._commit

    def separately(self: Any, proposal: Any, write: Any) -> Any:
        extra = proposal.extra
        if extra is None or write is None:
            return (yield from real(self, proposal, write))
        checks = tuple(check for check in write.checks if check not in extra.checks)
        mutations = tuple(mutation for mutation in write.mutations if mutation not in extra.mutations)
        done = yield from real(self, proposal, AtomicWrite(checks, mutations))
        if done is not None:
            yield from commit(extra)
        return done

    patch.setattr(retry._Run, "_commit", separately)


def nobody_overtakes(patch: Patch) -> None:
    patch.setattr(bulk_progress.StoredProgress, "overtaken_in", lambda self, seen: False)


def every_order_does(patch: Patch) -> None:
    patch.setattr(query_writes, "in_key_order", lambda plan: True)


def slices_are_ignored(patch: Patch) -> None:
    real = bulk_keys.KeySource.__init__

    def whole(self: Any, context: Any, query: Any) -> None:
        real(self, context, query)
        self._remaining = None

    patch.setattr(bulk_keys.KeySource, "__init__", whole)


def what_was_found_is_written(patch: Patch) -> None:
    real = query_writes.RemoveAction.__init__

    def unjudged(self: Any, writer: Any, query: Any) -> None:
        real(self, writer, query)
        self._matcher = None

    patch.setattr(query_writes.RemoveAction, "__init__", unjudged)
