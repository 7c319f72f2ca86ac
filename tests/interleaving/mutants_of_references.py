"""Foreign keys with one rule taken away each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvmodels.catalog import collection, references
from kvmodels.catalog.catalogue import Header, IndexState
from kvmodels.catalog.keyspace import reference_guards
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import point
from kvmodels.flows import references as targets
from kvmodels.flows.bulk import progress, remove_cascade
from kvmodels.flows.effects import Flow, read
from kvmodels.flows.writing import attempt, cascade
from kvmodels.indexing import rules

Patch = pytest.MonkeyPatch


def targets_are_not_checked(patch: Patch) -> None:
    patch.setattr(rules, "target_check", lambda row, anchor: None)


def guards_are_not_set(patch: Patch) -> None:
    patch.setattr(rules, "reference_mark", lambda key: None)


def guards_of_targets_are_not_checked(patch: Patch) -> None:
    patch.setattr(rules, "guard_check", lambda key, row: None)


def only_new_records_refer_to_something_new(patch: Patch) -> None:
    patch.setattr(rules, "is_new_reference", lambda change, before, after, now_ms: change.old is None)


def anchors_stay(patch: Patch) -> None:
    patch.setattr(rules, "kept_with_target", lambda guard_key, anchor_key: (guard_key,))


def guards_are_read_after_the_entries(patch: Patch) -> None:
    """The rows of an attempt are read once more when the entries are known."""
    rows_of: dict[int, dict[bytes, Any]] = {}
    real_rows, real_entries = attempt._Run._read, targets.read_entries

    def reading(self: Any, view: Any, keys: Any) -> Flow[Any]:
        rows = yield from real_rows(self, view, keys)
        rows_of[id(self._context)] = rows or {}
        return rows

    def entries_first(context: Any, spans: Any, guard: Any) -> Flow[Any]:
        found, rows = (yield from real_entries(context, spans, guard)), rows_of[id(context)]
        again = yield from read([point(key) for key in rows], include_expired=True)
        rows.update((key, one[0] if one else None) for key, one in zip(list(rows), again.ranges, strict=True))
        return found

    patch.setattr(attempt._Run, "_read", reading)
    patch.setattr(attempt, "read_entries", entries_first)
    patch.setattr(targets, "read_entries", entries_first)


HOUSE_GUARDS, LAMPS = reference_guards("houses"), encode_key(("lamps",))


def guards_of_cascaded_records_are_not_checked(patch: Patch) -> None:
    real = rules.guard_check
    patch.setattr(rules, "guard_check", lambda key, row: None if key.startswith(HOUSE_GUARDS) else real(key, row))


def records_that_become_none_are_not_checked(patch: Patch) -> None:
    real = rules.record_check

    def unchecked(key: bytes, old: Any, now_ms: int) -> Any:
        return None if key.startswith(LAMPS) and old is not None else real(key, old, now_ms)

    patch.setattr(rules, "record_check", unchecked)


def guards_of_cascaded_records_are_read_after_the_entries(patch: Patch) -> None:
    """The guards that a cascade has read are read once more when all entries are known."""
    real = cascade.Cascade.expanded

    def expanded(self: Any, proposal: Any, seen: Any) -> Flow[Any]:
        found = yield from real(self, proposal, seen)
        if isinstance(found, cascade.Cascaded):
            again = yield from self._rows([key for key in found.guards if key.startswith(HOUSE_GUARDS)])
            found = found._replace(seen=found.seen._replace(rows={**(found.seen.rows or {}), **again}))
        return found

    patch.setattr(cascade.Cascade, "expanded", expanded)


def foreign_keys_under_construction_are_not_judged(patch: Patch) -> None:
    real = collection._outgoing_references
    patch.setattr(collection, "_outgoing_references", lambda live: real(index for index in live if index.readable))


def kept_keys_are_taken_for_indexed(patch: Patch) -> None:
    patch.setattr(rules, "is_unproven", lambda change, *, under_construction: False)


def missing_targets_of_kept_keys_are_not_listed(patch: Patch) -> None:
    patch.setattr(rules, "is_listed_instead", lambda *, changed, under_construction: False)


def missing_targets_of_changed_keys_are_listed(patch: Patch) -> None:
    patch.setattr(rules, "is_listed_instead", lambda *, changed, under_construction: under_construction)


def indexes_under_construction_do_not_refer(patch: Patch) -> None:
    real = Header.referring_to

    def readable(self: Header, name: str) -> Iterator[Any]:
        return (found for found in real(self, name) if found[1].state is IndexState.READABLE)

    patch.setattr(Header, "referring_to", readable)


def a_cascade_continues_with_another_target(patch: Patch) -> None:
    patch.setattr(
        remove_cascade._CascadeProgress,
        "overtaken_in",
        lambda self, seen: progress.StoredProgress.overtaken_in(self, seen),
    )


def a_cascade_takes_what_its_entries_name(patch: Patch) -> None:
    patch.setattr(remove_cascade._ReferrerChange, "_refers", lambda self, item, view, document: True)


def anchors_are_set_again(patch: Patch) -> None:
    patch.setattr(rules, "anchor_check", lambda key: None)


def removals_read_only_the_index_of_the_key(patch: Patch) -> None:
    patch.setattr(references, "complete_index", lambda collection, index: index)
