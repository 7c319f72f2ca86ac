"""Hooks and time fields with one rule taken away each."""

from __future__ import annotations

from typing import Any

import pytest

from kvmodels.flows.writing import changes

Patch = pytest.MonkeyPatch


def hooks_work_on_the_object_of_the_caller(patch: Patch) -> None:
    patch.setattr(changes, "_copied", lambda item: item.instance)


def hooks_run_before_the_commit(patch: Patch) -> None:
    real = changes.ChangeBuilder._ready

    def ready(self: Any, item: Any, seen: Any, old: Any) -> Any:
        item, calls = real(self, item, seen, old)
        for call in calls:
            call()
        return item, ()

    patch.setattr(changes.ChangeBuilder, "_ready", ready)


def hooks_see_the_record_of_the_first_attempt(patch: Patch) -> None:
    real = changes.ChangeBuilder._ready
    seen_first: dict[int, Any] = {}

    def ready(self: Any, item: Any, seen: Any, old: Any) -> Any:
        return real(self, item, seen, seen_first.setdefault(id(self), old))

    patch.setattr(changes.ChangeBuilder, "_ready", ready)


def counts_follow_the_first_attempt(patch: Patch) -> None:
    real = changes.ChangeBuilder._stored
    first: dict[tuple[int, str], Any] = {}

    def stored(self: Any, field: Any, document: Any, schema: Any) -> Any:
        return first.setdefault((id(self), field.name), real(self, field, document, schema))

    patch.setattr(changes.ChangeBuilder, "_stored", stored)
