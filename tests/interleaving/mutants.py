"""One function of the package each, with one rule taken away; none raises anything by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from kvmodels.catalog.keyspace import index_layout
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, Check
from kvmodels.errors import KvModelsError
from kvmodels.flows.effects import Flow, Read, steps_of
from kvmodels.flows.evolution import build
from kvmodels.flows.transaction import transaction
from kvmodels.flows.writing import given_keys, operation, records, tokens
from kvmodels.indexing import compiler, entries, rules
from kvmodels.indexing.compiler import compile_write
from kvmodels.indexing.entries import NeedRows, RecordChange, Violation
from kvmodels.indexing.kinds import counters
from kvmodels.indexing.kinds.registry import maintenance_for
from kvmodels.testing import processes
from tests.interleaving import (
    mutants_of_bookings,
    mutants_of_bulk,
    mutants_of_hooks,
    mutants_of_references,
    mutants_of_transactions,
)

Patch = pytest.MonkeyPatch

FENCES = encode_key(("__kvmodels__", "fence"))


class Mutant(NamedTuple):
    """A rule that is taken away, and how. Where no tokens are kept, a judge cannot count by them."""

    name: str
    lost: str
    apply: Callable[[Patch], None]
    keeps_tokens: bool = True


def _no_slot_check(patch: Patch) -> None:
    patch.setattr(rules, "slot_check", lambda key, row: None)


def _no_record_check(patch: Patch) -> None:
    real = rules.record_check
    patch.setattr(rules, "record_check", lambda key, old, now_ms: None if old is not None else real(key, old, now_ms))


def _no_version_check(patch: Patch) -> None:
    patch.setattr(records, "require_version", lambda *_: None)


def _no_counter_check(patch: Patch) -> None:
    patch.setattr(given_keys, "counter_check", lambda key, row: Check(key + b"?", None))


def _no_header_check(patch: Patch) -> None:
    patch.setattr(rules, "header_check", lambda header: None)


def _touch_beside_the_compiler(patch: Patch) -> None:
    real = build.index_change

    def touch(context: Any, live: Any, index: Any, row: Any) -> Any:
        change = real(context, live, index, row)
        if not isinstance(change, RecordChange):
            return change
        return change._replace(live=replace(change.live, maintained=(index,)))

    patch.setattr(build, "index_change", touch)


def _no_absence_check(patch: Patch) -> None:
    real = rules.record_check
    patch.setattr(rules, "record_check", lambda key, old, now_ms: None if old is None else real(key, old, now_ms))


def _no_fencing(patch: Patch) -> None:
    patch.setattr(rules, "token_check", lambda key: None)


def _no_token(patch: Patch) -> None:
    patch.setattr(tokens.Token, "attach", lambda self, write, value: write)


def _no_guard(patch: Patch) -> None:
    real = processes._requests
    patch.setattr(processes, "_requests", lambda flow: real(_without_guards(steps_of(flow))))


def _without_guards(flow: Flow[Any]) -> Flow[Any]:
    step: Callable[[Any], Any] = flow.send
    answer: Any = None
    while True:
        try:
            request = step(answer)
        except StopIteration as done:
            return done.value
        try:
            # Not of fences: those of another header end a run with a KeyError.
            unguarded = type(request) is Read and not request.ranges[0].start.startswith(FENCES)
            answer = yield request._replace(guard=None) if unguarded else request
            step = flow.send
        except KvModelsError as error:
            step, answer = flow.throw, error


def _no_fence(patch: Patch) -> None:
    patch.setattr(rules, "predates_fence", lambda change, index: False)


def _builder_skips_all(patch: Patch) -> None:
    real = build.IndexBuild.change

    def skipping(self: Any, *args: Any, **options: Any) -> Any:
        self._index = replace(self._index, fence=bytes(10))
        return real(self, *args, **options)

    patch.setattr(build.IndexBuild, "change", skipping)


def _no_build_progress_check(patch: Patch) -> None:
    patch.setattr(rules, "progress_check", lambda key, versionstamp: None)


def _any_deadline(patch: Patch) -> None:
    patch.setattr(rules, "same_deadline", lambda change: True)


def _concatenated(real: Any) -> Any:
    def concatenated(changes: Any, rows: Any, **rest: Any) -> AtomicWrite | NeedRows | Violation:
        checks: tuple[Any, ...] = ()
        mutations: tuple[Any, ...] = ()
        for change in changes:
            compiled = real((change,), rows, **rest)
            if not isinstance(compiled, AtomicWrite):
                return compiled
            checks += compiled.checks
            mutations += compiled.mutations
        return AtomicWrite(checks, mutations)

    return concatenated


def _one_by_one(patch: Patch) -> None:
    patch.setattr(operation, "compile_write", _concatenated(compile_write))


def _all_are_counted(patch: Patch) -> None:
    patch.setattr(rules, "is_counted", lambda change, index, *, listed: change.old is not None and not listed)


def _violations_are_counted(patch: Patch) -> None:
    real = rules.is_counted
    patch.setattr(rules, "is_counted", lambda change, index, *, listed: real(change, index, listed=False))


def _listed_records_have_entries(patch: Patch) -> None:
    real = compiler._Fold._is_listed

    def unlisted(self: Any, change: Any, index: Any) -> bool:
        return index.definition.has_counters and real(self, change, index)

    patch.setattr(compiler._Fold, "_is_listed", unlisted)


def _no_listing_check(patch: Patch) -> None:
    patch.setattr(rules, "listing_check", lambda row: None)


def _no_touch(patch: Patch) -> None:
    patch.setattr(rules, "must_touch", lambda index: index.definition.store is not None)


def _last_of_a_commit_counts(patch: Patch) -> None:
    def overwriting(totals: Any, amounts: Any, sign: int) -> None:
        totals.update((key, sign * amount) for key, amount in amounts.items())

    patch.setattr(entries, "fold", overwriting)


def _every_element_counts(patch: Patch) -> None:
    real = counters.contribution

    def repeated(layout: Any, document: Any) -> tuple[dict[bytes, int], int]:
        amounts, groups = real(layout, document)
        many = [column for column in layout.definition.columns if column.many]
        if not amounts or not many:
            return amounts, groups
        values: Any = document
        for name in many[0].path or (many[0].field,):
            values = values[name]
        times = {many[0].codec.pack_stored(value): values.count(value) for value in values}
        amounts = {
            key: amount * next((n for part, n in times.items() if part in key), 1) for key, amount in amounts.items()
        }
        return amounts, groups

    patch.setattr(counters, "contribution", repeated)


def _included_fields_stay(patch: Patch) -> None:
    real = compiler._Fold._write_entries

    def keeping(self: Any, change: Any, index: Any, old: Any, new: Any, **rest: Any) -> None:
        kept = {key: old.entries.get(key, value) for key, value in new.entries.items()}
        real(self, change, index, old, new._replace(entries=kept) if index.definition.include else new, **rest)

    patch.setattr(compiler._Fold, "_write_entries", keeping)


def _old_entries_without_condition(patch: Patch) -> None:
    real = compiler._Fold._old_contents

    def unconditional(self: Any, kind: Any, index: Any, change: Any) -> Any:
        definition = replace(index.definition, where=None)
        layout = index_layout(change.live.schema.collection, definition, index.stored.generation)
        return real(self, maintenance_for(layout), index, change)

    patch.setattr(compiler._Fold, "_old_contents", unconditional)


def _old_entries_computed_anew(patch: Patch) -> None:
    real = compiler._Fold._old_contents

    def anew(self: Any, kind: Any, index: Any, change: Any) -> Any:
        old, schema = change.old_document, change.live.schema
        if old is not None:
            made = {
                column.stored_as: column.function(*(old[field] for field in column.of))
                for column in schema.computed.values()
                if not column.folds
            }
            reserved = old.get("$kv", {})
            old = {**old, "$kv": {**reserved, "c": {**reserved.get("c", {}), **made}}}
        return real(self, kind, index, change._replace(old_document=old))

    patch.setattr(compiler._Fold, "_old_contents", anew)


def _removed_elements_stay(patch: Patch) -> None:
    real = compiler._Fold._drop_entries

    def keeping(self: Any, change: Any, index: Any, old: Any, new: Any, **rest: Any) -> None:
        kept = old.entries if new.entries and index.definition.fans_out else {}
        real(self, change, index, old, new._replace(entries={**new.entries, **kept}), **rest)

    patch.setattr(compiler._Fold, "_drop_entries", keeping)


MUTANTS = (
    Mutant("R1", "a slot that was read is not checked", _no_slot_check),
    Mutant("R2", "a record that was read is not checked", _no_record_check),
    Mutant("if-version", "a repeated change does not check the version that was asked for", _no_version_check),
    Mutant("key-range", "a range of keys is reserved without a look at the counter", _no_counter_check),
    Mutant("R3", "writes do not check the header", _no_header_check),
    Mutant("R4", "a build rewrites records without the other indexes", _touch_beside_the_compiler),
    Mutant("R5-record", "an insert does not check that the record is absent", _no_absence_check),
    Mutant("R5-token", "an operation sets its token without checking it", _no_fencing),
    Mutant("token", "an operation carries no token", _no_token, keeps_tokens=False),
    Mutant("guard", "a read through an index does not look at the header", _no_guard),
    Mutant("fence", "a writer takes the entries of an old record for present", _no_fence),
    Mutant("fence-builder", "a build takes every record for indexed", _builder_skips_all),
    Mutant("progress", "a batch of a build is committed without a look at the progress", _no_build_progress_check),
    Mutant("deadline", "entries keep their old deadline", _any_deadline),
    Mutant("fold", "the records of a commit are compiled one by one", _one_by_one),
)
KIND_MUTANTS = (
    Mutant("counted", "a writer takes every record for counted while the index is built", _all_are_counted),
    Mutant("listed", "a writer takes a record that a build has listed for counted", _violations_are_counted),
    Mutant(
        "lacking",
        "a writer takes the entries of a record that a build has listed for present",
        _listed_records_have_entries,
    ),
    Mutant("listing", "a build does not check the record that it lists", _no_listing_check),
    Mutant("touch", "a build of counters does not set the records that it counts", _no_touch),
    Mutant("sum", "of the records of a commit, the last one counts", _last_of_a_commit_counts),
    Mutant("distinct", "an element that is there twice counts twice", _every_element_counts),
    Mutant("included", "an entry is not written again when only an included field changes", _included_fields_stay),
    Mutant("where", "a record outside of the condition is taken for indexed", _old_entries_without_condition),
    Mutant("stored", "old entries are computed by the function of today", _old_entries_computed_anew),
    Mutant("elements", "the entries of elements that went are not removed", _removed_elements_stay),
)
"""Of what partial, computed, multi-valued and covering indexes and counters need beside the rules above."""


BOOKING_MUTANTS = tuple(
    Mutant(name, str(apply.__doc__), apply)
    for name, apply in (
        ("neighbour", mutants_of_bookings.neighbours_are_not_checked),
        ("set-again", mutants_of_bookings.neighbours_are_not_set_again),
        ("floor", mutants_of_bookings.floors_are_not_written),
        ("released", mutants_of_bookings.released_rows_are_not_checked),
        ("one-row", mutants_of_bookings.one_row_is_read),
        ("kept", mutants_of_bookings.kept_rows_are_taken_for_released),
        ("neighbour-deadline", mutants_of_bookings.neighbours_lose_their_deadline),
        ("order", mutants_of_bookings.set_again_comes_last),
        ("unread", mutants_of_bookings.releases_delete_what_they_have_seen),
        ("stale", mutants_of_bookings.stale_rows_are_taken_for_others),
        ("shortened", mutants_of_bookings.shortened_intervals_are_not_claims),
    )
)


def _transactions_one_by_one(patch: Patch) -> None:
    patch.setattr(transaction, "compile_write", _concatenated(compile_write))


TRANSACTION_MUTANTS = (
    Mutant(
        "read-set",
        "the commit of a transaction does not check what was read",
        mutants_of_transactions.nothing_read_is_checked,
    ),
    Mutant(
        "read-record",
        "records that were read by their keys are not checked",
        mutants_of_transactions.records_that_were_read_are_not_checked,
    ),
    Mutant(
        "read-absence", "keys that were absent are not checked", mutants_of_transactions.absent_keys_are_not_checked
    ),
    Mutant("read-walk", "the rows of a walk are not checked", mutants_of_transactions.walks_are_not_checked),
    Mutant(
        "read-entry",
        "an entry is not checked although its record was not read",
        mutants_of_transactions.entries_are_taken_for_checked,
    ),
    Mutant("unchecked", "an unchecked block is one for all tasks", mutants_of_transactions.unchecked_is_for_all),
    Mutant("tx-guard", "a guard of a transaction does nothing", mutants_of_transactions.guards_are_not_taken),
    Mutant("tx-guard-set", "a guard is checked and not rewritten", mutants_of_transactions.guards_are_not_rewritten),
    Mutant("tx-guard-check", "a guard is rewritten and not checked", mutants_of_transactions.guards_are_not_checked),
    Mutant(
        "share-check",
        "a shared holder of a guard does not check the exclusive row",
        mutants_of_transactions.shared_holders_check_nothing,
    ),
    Mutant(
        "share-exclusive",
        "an exclusive holder of a guard does not check the shared row",
        mutants_of_transactions.exclusive_holders_check_their_row_alone,
    ),
    Mutant(
        "share-set",
        "an exclusive holder of a guard sets the shared row",
        mutants_of_transactions.exclusive_holders_set_the_shared_row,
    ),
    Mutant("overlay", "a transaction sees what it has removed", mutants_of_transactions.old_rows_stay_visible),
    Mutant("tx-fold", "the records of a transaction are compiled one by one", _transactions_one_by_one),
    Mutant(
        "tx-saves",
        "every save of a record in a transaction is a change of its own",
        mutants_of_transactions.every_save_is_a_change,
    ),
    Mutant(
        "snapshot", "each read of a transaction is of another state", mutants_of_transactions.reads_are_of_many_states
    ),
    Mutant(
        "tx-burn",
        "a conflict is reported while a commit is under way",
        mutants_of_transactions.conflicts_are_reported_at_once,
    ),
    Mutant(
        "tx-token",
        "a transaction that was applied takes its own token for a conflict",
        mutants_of_transactions.a_lost_answer_is_a_conflict,
    ),
)

BULK_MUTANTS = (
    Mutant("progress-check", "a batch sets the progress without checking it", mutants_of_bulk.progress_is_not_checked),
    Mutant("progress-beside", "the progress is committed after its batch", mutants_of_bulk.progress_follows_its_batch),
    Mutant("overtaken", "a batch does not see that another process has gone on", mutants_of_bulk.nobody_overtakes),
    Mutant("halloween", "a change walks the index that it changes", mutants_of_bulk.every_order_does),
    Mutant("slice", "a bulk write does not see its slice", mutants_of_bulk.slices_are_ignored),
    Mutant("judged", "what a query has found is removed unseen", mutants_of_bulk.what_was_found_is_written),
)

HOOK_MUTANTS = (
    Mutant("hook-copy", "hooks work on the object itself", mutants_of_hooks.hooks_work_on_the_object_of_the_caller),
    Mutant("hook-old", "hooks see what was read first", mutants_of_hooks.hooks_see_the_record_of_the_first_attempt),
    Mutant(
        "hook-once",
        "what is for after the commit runs before it",
        mutants_of_hooks.hooks_run_before_the_commit,
    ),
    Mutant("version", "writes are counted from what was read first", mutants_of_hooks.counts_follow_the_first_attempt),
)

REFERENCE_MUTANTS = (
    Mutant(
        "target-check",
        "a new reference does not check that its target is there",
        mutants_of_references.targets_are_not_checked,
    ),
    Mutant(
        "reference-mark",
        "a new reference does not set the guard of its target",
        mutants_of_references.guards_are_not_set,
    ),
    Mutant(
        "guard-check",
        "a removal does not check the guard of its record",
        mutants_of_references.guards_of_targets_are_not_checked,
    ),
    Mutant(
        "guard-first",
        "a removal reads the guard after the entries",
        mutants_of_references.guards_are_read_after_the_entries,
    ),
    Mutant(
        "new-reference",
        "a record that gets another key makes no new reference",
        mutants_of_references.only_new_records_refer_to_something_new,
    ),
    Mutant(
        "cascaded-guard",
        "a cascade does not check the guards of the records that it removes",
        mutants_of_references.guards_of_cascaded_records_are_not_checked,
    ),
    Mutant(
        "cascaded-guard-first",
        "a cascade reads the guards of the records that it removes after the entries",
        mutants_of_references.guards_of_cascaded_records_are_read_after_the_entries,
    ),
    Mutant(
        "cascaded-record",
        "a record whose foreign key becomes None is not checked",
        mutants_of_references.records_that_become_none_are_not_checked,
    ),
    Mutant(
        "same-target",
        "a cascade in batches does not look whether its target was removed",
        mutants_of_references.a_cascade_continues_with_another_target,
    ),
    Mutant(
        "still-refers",
        "a cascade in batches does not test again whether a record refers to its target",
        mutants_of_references.a_cascade_takes_what_its_entries_name,
    ),
    Mutant("anchor-once", "an anchor is set again", mutants_of_references.anchors_are_set_again),
    Mutant("anchor-removed", "a removal leaves the anchor of its record", mutants_of_references.anchors_stay),
    Mutant(
        "new-references",
        "writers do not judge a foreign key whose index is under construction",
        mutants_of_references.foreign_keys_under_construction_are_not_judged,
    ),
    Mutant(
        "unproven",
        "a record that keeps its key is taken for indexed while the index is under construction",
        mutants_of_references.kept_keys_are_taken_for_indexed,
    ),
    Mutant(
        "listed-instead",
        "a record without a target is not listed while the index is under construction",
        mutants_of_references.missing_targets_of_kept_keys_are_not_listed,
    ),
    Mutant(
        "changed-refused",
        "a record that gets a key without a target is listed instead of refused",
        mutants_of_references.missing_targets_of_changed_keys_are_listed,
    ),
    Mutant(
        "referrers",
        "a removal does not look at indexes under construction",
        mutants_of_references.indexes_under_construction_do_not_refer,
    ),
    Mutant(
        "complete-index",
        "a removal reads only the index under construction, although another one has every record",
        mutants_of_references.removals_read_only_the_index_of_the_key,
    ),
)
BY_NAME = {
    mutant.name: mutant
    for mutant in (
        *MUTANTS,
        *KIND_MUTANTS,
        *TRANSACTION_MUTANTS,
        *BULK_MUTANTS,
        *HOOK_MUTANTS,
        *REFERENCE_MUTANTS,
        *BOOKING_MUTANTS,
    )
}
