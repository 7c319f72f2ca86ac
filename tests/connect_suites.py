"""Which suites of models run over KV Connect, and why the others do not: every module of ``server_suites.SUITES``.

``connect`` is a scripted server of the tests with 100 checks, ``connect-own`` the server of this library with 100, and
``connect-denokv`` the backend of Deno's own servers, with 10. Stores have the codec V8, which ``tests/store_codecs.py``
takes from the engine. A test that asks for more than KV Connect has must be refused with the typed error that the
tables name. ``tests/connect`` has more about what is special there.
"""

from __future__ import annotations

from typing import Any, Final

from kvmodels.errors import KvModelsError, OperationTooLargeError, UnsupportedError
from tests.server_suites import ONCE
from tests.worlds import in_test_servers, in_the_soak

OWN, DENOKV = "connect-own", "connect-denokv"
BOTH: Final = (OWN, DENOKV)

IN_TEST_SERVERS: Final[dict[str, tuple[str, ...]]] = {
    "tests.bulk.test_upserts": ("connect", *BOTH),
    "tests.encryption.test_changes_of_form": ("connect", OWN),
    "tests.evolution.test_building_kinds": BOTH,
    "tests.geo.test_geo_queries": ("connect", *BOTH),
    "tests.blobs.test_history": ("connect", *BOTH),
    "tests.history.test_oracle": ("connect", *BOTH),
    "tests.hooks.test_hooks": ("connect", *BOTH),
    "tests.kinds.test_exclusion_queries": ("connect", *BOTH),
    "tests.kinds.test_exclusions_at_random": ("connect", *BOTH),
    "tests.kinds.test_interval_queries": ("connect", *BOTH),
    "tests.kinds.test_trigram_queries": ("connect", *BOTH),
    "tests.kinds.test_lookups": BOTH,
    "tests.kinds.test_ranked_queries": ("connect", *BOTH),
    "tests.kv.test_mutate": (DENOKV,),
    "tests.query.test_changes_beside_readers": (DENOKV,),
    "tests.query.test_covering": (DENOKV,),
    "tests.query.test_query_sets": ("connect",),
    "tests.query.test_unions": ("connect", *BOTH),
    "tests.ranks.test_drawn_boards": ("connect", *BOTH),
    "tests.references.test_existing_records": ("connect",),
    "tests.references.test_on_delete": BOTH,
    "tests.references.test_reading": BOTH,
    "tests.references.test_verbs": ("connect", *BOTH),
    "tests.search.test_ranked_searches": ("connect", *BOTH),
    "tests.search.test_search_lookups": ("connect", *BOTH),
    "tests.transactions.test_bank": (DENOKV,),
    "tests.services.test_automatic_keys": (DENOKV,),
    "tests.vectors.test_vector_queries": ("connect", *BOTH),
    "tests.services.test_expected_versions": BOTH,
}
"""Modules that need a few seconds, and on what they run."""

IN_THE_SOAK: Final[dict[str, tuple[str, ...]]] = {
    "tests.blobs.test_fields": BOTH,
    "tests.bulk.test_beside_writers": BOTH,
    "tests.bulk.test_partial_upserts": BOTH,
    "tests.bulk.test_refused_records": BOTH,
    "tests.damage.test_beside_writers": BOTH,
    "tests.damage.test_counters": BOTH,
    "tests.damage.test_undeclared": BOTH,
    "tests.evolution.test_old_releases": BOTH,
    "tests.evolution.test_online_build": BOTH,
    "tests.evolution.test_releases": BOTH,
    "tests.evolution.test_upgrades": BOTH,
    "tests.links.test_filters": (DENOKV,),
    "tests.links.test_links": (DENOKV,),
    "tests.locks.test_locks": BOTH,
    "tests.namespaces.test_isolation": BOTH,
    "tests.query.test_counts_of_values": (DENOKV,),
    "tests.query.test_nulls": (DENOKV,),
    "tests.query.test_periods": (DENOKV,),
    "tests.queues.test_listeners": BOTH,
    "tests.queues.test_messages": BOTH,
    "tests.references.test_child_counts": (DENOKV,),
    "tests.tenants.test_listeners": BOTH,
    "tests.references.test_drawn_family": (DENOKV,),
    "tests.references.test_paths": (DENOKV,),
    "tests.references.test_referrers": (DENOKV,),
    "tests.references.test_related_paths": (DENOKV,),
    "tests.references.test_semi_joins": (DENOKV,),
    "tests.references.test_target_orders": (DENOKV,),
    "tests.references.test_values_of_targets": (DENOKV,),
    "tests.references.test_with_related": (DENOKV,),
    "tests.tracker.test_tracker": BOTH,
    "tests.transactions.test_async": BOTH,
    "tests.transactions.test_blocks": BOTH,
    "tests.transactions.test_objects": BOTH,
    "tests.transactions.test_raw_keys": BOTH,
    "tests.transactions.test_shared_guards": BOTH,
    "tests.transactions.test_skew": BOTH,
    "tests.watch.test_tasks": BOTH,
}
"""Modules that take longer, most of them because they wait for many round trips or rivals.

Tests that are long already, in the soak of other engines, do not run over KV Connect.
"""

DEADLINES: Final = "its records have deadlines, which KV Connect does not tell"
SNAPSHOTS: Final = "it reads in a snapshot"
LARGE: Final = "one of its operations makes more than 100 checks"
DRAWN: Final = "it draws hundreds of stores or steps, each of many round trips, and did not end within minutes"
LOG: Final = "it watches a prefix or records, which needs a log of changes"

MODULES_LEFT_OUT: Final[dict[str, str]] = {
    "tests.blobs.test_copies": SNAPSHOTS,
    "tests.bulk.test_resuming": LARGE,
    "tests.copying.test_backup": SNAPSHOTS,
    "tests.copying.test_models": SNAPSHOTS,
    "tests.damage.test_refused_records": LARGE,
    "tests.encryption.test_index_generations": LARGE,
    "tests.encryption.test_index_key_purges": LARGE,
    "tests.encryption.test_loaded_versions": SNAPSHOTS,
    "tests.encryption.test_rotation": LARGE,
    "tests.evolution.test_migrations": LARGE,
    "tests.evolution.test_random_releases": SNAPSHOTS,
    "tests.expiry.test_models": DEADLINES,
    "tests.kinds.test_exclusion_deadlines": DEADLINES,
    "tests.kv.test_snapshots": SNAPSHOTS,
    "tests.kv.test_stateful": SNAPSHOTS,
    "tests.query.test_aggregate": DRAWN,
    "tests.query.test_brute_force": DRAWN,
    "tests.query.test_distinct": DRAWN,
    "tests.ranks.test_ranks_beside_writers": DRAWN,
    "tests.references.test_cascades_at_random": DRAWN,
    "tests.references.test_remove_cascade": "it counts the hooks of transactions, which conflicts repeat",
    "tests.services.test_changes": LOG,
    "tests.stateful.test_evolution": DEADLINES,
    "tests.stateful.test_repository": DEADLINES,
    "tests.watch.test_changed_since": LOG,
    "tests.watch.test_keys": "it asks for the versionstamps of deliveries; tests/connect/test_watch.py watches keys",
    "tests.tenants.test_copies": SNAPSHOTS,
    "tests.tenants.test_watches": LOG,
    "tests.watch.test_prefixes": LOG,
    "tests.watch.test_records": LOG,
}
"""Modules that do not run over KV Connect, because most of their tests need the same thing that it lacks."""

REFUSED: Final[dict[str, tuple[type[KvModelsError], str]]] = {
    "test_a_dump_keeps_the_numbers_of_removed_records": (UnsupportedError, SNAPSHOTS),
    "test_a_new_field_gets_its_default_in_every_record_when_its_index_is_built": (OperationTooLargeError, LARGE),
    "test_a_record_with_a_deadline_is_listed_until_it_has_none": (UnsupportedError, DEADLINES),
    "test_blobs_are_top_level_fields_of_records_without_deadlines": (UnsupportedError, DEADLINES),
    "test_expired_records_are_in_no_answer": (UnsupportedError, DEADLINES),
    "test_review_03_a_reader_notices_that_its_index_was_dropped_between_two_batches": (OperationTooLargeError, LARGE),
    "test_time_fields_are_set_and_deadlines_stay": (UnsupportedError, DEADLINES),
}
"""Tests that end with a typed error over KV Connect, and why."""

TOO_LARGE_FOR_DENOKV: Final = frozenset(
    {
        "test_a_build_keeps_the_limits_of_the_engine",
        "test_a_changed_definition_is_the_next_generation_and_the_old_one_serves_until_the_switch",
        "test_a_column_of_another_type_is_read_at_once_and_written_when_its_index_was_replaced",
        "test_a_hook_of_a_removal_names_its_record",
        "test_a_hook_of_an_update_names_its_record",
        "test_a_key_that_is_taken_names_the_object",
        "test_a_loaded_object_that_is_refused_names_itself",
        "test_a_refused_record_is_named_in_a_transaction_too",
        "test_a_release_with_upgrades_only_reads_until_it_is_applied_and_the_older_one_from_then_on",
        "test_a_term_without_a_value_names_its_record",
        "test_a_transaction_finds_by_its_own_writes",
        "test_a_transaction_reads_values_that_it_has_written",
        "test_a_transaction_finds_what_it_has_written",
        "test_a_transaction_is_judged_for_protected_records_at_its_end",
        "test_a_transaction_sees_and_keeps_the_effects",
        "test_a_transaction_sees_its_own_links_and_commits_them_together",
        "test_a_unique_value_of_a_loaded_object_names_it",
        "test_a_unique_value_of_an_update_names_its_record",
        "test_a_validator_of_an_update_names_its_record_once",
        "test_an_invalid_value_in_an_update_names_its_record",
        "test_an_object_of_another_model_tells_its_position",
        "test_an_object_that_overwrites_names_itself_when_its_hook_refuses",
        "test_an_object_that_was_changed_with_its_target_is_stale",
        "test_an_upgrade_is_applied_once_to_each_record_whoever_rewrites_it",
        "test_building_again_and_again_changes_nothing",
        "test_duplicates_keep_an_index_pending_until_a_record_is_changed",
        "test_entries_of_records_that_were_not_rewritten_stay_those_of_what_is_stored",
        "test_every_way_of_reading_gives_the_upgraded_values_before_anything_is_migrated",
        "test_review_05_old_code_writes_until_the_build_begins_and_reads_on_afterwards",
        "test_review_06_queries_through_an_index_that_an_upgrade_touches_are_refused_until_no_record_is_older",
        "test_review_24_what_an_index_cannot_hold_is_listed_and_does_not_stop_the_build",
        "test_the_number_of_keys_is_limited",
        "test_without_an_upgrade_another_type_of_an_indexed_column_is_refused_on_every_use",
    }
)
"""Tests one of whose operations makes more than 10 checks: OperationTooLargeError on the backend of Deno."""

LEASES: Final = "it moves the clock of the engine, but whoever waits measures leases; test_untold_leases.py has them"
FILES: Final = "its processes open files; tests/connect/test_processes.py builds beside processes"
STATES: Final = "it reads a state from before a commit of others, which needs snapshots"
TOKENS: Final = "it lists all rows, those of an engine whose answers are never lost, without that of the last token"
THREADS: Final = "its threads or tasks make 11 to 40 checks in one transaction"

TESTS_LEFT_OUT: Final[dict[str, str]] = {
    "test_M1_a_holder_that_was_paused_does_not_renew_the_lock_of_another": LEASES,
    "test_M2_a_late_unlock_does_not_remove_the_lock_of_another": LEASES,
    "test_M3_the_holder_is_told_that_the_lock_is_lost": LEASES,
    "test_M4_a_free_lock_with_somebody_in_line_is_not_for_a_newcomer": LEASES,
    "test_a_check_of_an_async_database_takes_the_same_arguments": "it counts reports of progress; without snapshots "
    "counters are read twice",
    "test_a_counter_with_a_deadline_is_found": DEADLINES,
    "test_a_holder_sets_one_row_and_checks_the_rows_of_those_it_conflicts_with": TOKENS,
    "test_a_record_that_has_expired_is_none_to_hooks": DEADLINES,
    "test_a_record_that_has_expired_refers_to_nothing": DEADLINES,
    "test_a_record_that_may_be_referred_to_gets_no_deadline": DEADLINES,
    "test_a_target_with_a_deadline_is_none": DEADLINES,
    "test_a_task_that_is_started_inside_begins_its_own": STATES,
    "test_a_thousand_creators_beside_two_hundred_removals_leave_no_orphan": LARGE,
    "test_a_transaction_that_wrote_nothing_commits_nothing_and_checks_nothing": STATES,
    "test_a_unique_index_over_duplicates_is_built_beside_writers_by_builders_that_are_killed": FILES,
    "test_every_kind_of_index_is_built_beside_writers_by_two_builders_that_are_killed": FILES,
    "test_events_show_each_change_also_after_a_lost_connection": LOG,
    "test_lifetimes_begin_with_the_transaction": DEADLINES,
    "test_many_tasks_may_share_a_query_set": LARGE,
    "test_mutate_sets_deletes_and_takes_min_and_max_of_kvu64": DEADLINES,
    "test_review_05_an_old_process_writes_until_the_build_begins_and_then_only_reads": FILES,
    "test_review_24_an_index_and_copies_are_built_beside_writers_by_builders_that_are_killed": FILES,
    "test_sums_min_and_max_clear_the_deadline_and_an_expired_number_counts_as_absent": DEADLINES,
    "test_the_asynchronous_lock_says_the_same_as_the_synchronous_one": LEASES,
    "test_the_fence_and_the_progress_of_a_finished_build_are_gone": TOKENS,
    "test_what_the_body_raises_is_not_hidden_by_a_lost_lock": LEASES,
}
"""Tests that would fail with another error than a typed one, or not at all, and why."""

LEFT_OUT_ON_DENOKV: Final[dict[str, str]] = {
    "test_a_project_is_closed_with_all_its_tickets": "its request makes more than 10 checks, and is answered with 422",
    "test_a_removal_changes_what_refers_to_it": "some of its removals make 11 checks",
    "test_rooms_are_never_booked_twice": THREADS,
    "test_tasks_of_one_transaction_take_turns": THREADS,
    "test_threads_that_share_a_transaction_take_turns": THREADS,
}


def connect_of(module: str, test: str) -> list[Any]:
    """The parameters for runs over KV Connect, if a test has any."""
    if test in TESTS_LEFT_OUT or test in ONCE:
        return []
    here = {server for server in (*BOTH, "connect") if server != DENOKV or test not in LEFT_OUT_ON_DENOKV}
    return [
        *in_test_servers(*[one for one in IN_TEST_SERVERS.get(module, ()) if one in here]),
        *in_the_soak(*[one for one in IN_THE_SOAK.get(module, ()) if one in here]),
    ]


def refusal_of(server: str, test: str) -> type[KvModelsError] | None:
    """The error with which a test must end on a server, if it is refused there."""
    if test in REFUSED:
        return REFUSED[test][0]
    return OperationTooLargeError if server == DENOKV and test in TOO_LARGE_FOR_DENOKV else None
