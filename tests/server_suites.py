"""Which test modules run again on servers, with stores there in the place of those in memory.

``tests/postgres/stores.py`` makes the stores. Left to the engines on one machine are modules about plans, errors,
costs and encodings, which are decided before an engine is asked, and those whose tests in memory run processes.
"""

from __future__ import annotations

from typing import Any

from tests.worlds import in_test_servers, in_the_soak

SUITES = frozenset(
    {
        "tests.blobs.test_copies",
        "tests.blobs.test_fields",
        "tests.blobs.test_history",
        "tests.bulk.test_beside_writers",
        "tests.bulk.test_partial_upserts",
        "tests.bulk.test_refused_records",
        "tests.bulk.test_resuming",
        "tests.bulk.test_upserts",
        "tests.copying.test_backup",
        "tests.copying.test_models",
        "tests.damage.test_beside_writers",
        "tests.damage.test_counters",
        "tests.damage.test_refused_records",
        "tests.damage.test_undeclared",
        "tests.encryption.test_changes_of_form",
        "tests.encryption.test_index_generations",
        "tests.encryption.test_index_key_purges",
        "tests.encryption.test_loaded_versions",
        "tests.encryption.test_rotation",
        "tests.evolution.test_building_kinds",
        "tests.evolution.test_migrations",
        "tests.evolution.test_old_releases",
        "tests.evolution.test_online_build",
        "tests.evolution.test_random_releases",
        "tests.evolution.test_releases",
        "tests.evolution.test_upgrades",
        "tests.expiry.test_models",
        "tests.geo.test_geo_queries",
        "tests.history.test_oracle",
        "tests.hooks.test_hooks",
        "tests.kinds.test_exclusion_deadlines",
        "tests.kinds.test_exclusion_queries",
        "tests.kinds.test_exclusions_at_random",
        "tests.kinds.test_interval_queries",
        "tests.kinds.test_trigram_queries",
        "tests.kinds.test_lookups",
        "tests.kinds.test_ranked_queries",
        "tests.kv.test_mutate",
        "tests.kv.test_snapshots",
        "tests.kv.test_stateful",
        "tests.links.test_filters",
        "tests.links.test_links",
        "tests.locks.test_locks",
        "tests.namespaces.test_isolation",
        "tests.query.test_aggregate",
        "tests.query.test_brute_force",
        "tests.query.test_changes_beside_readers",
        "tests.query.test_counts_of_values",
        "tests.query.test_covering",
        "tests.query.test_distinct",
        "tests.query.test_nulls",
        "tests.query.test_periods",
        "tests.query.test_query_sets",
        "tests.query.test_unions",
        "tests.queues.test_listeners",
        "tests.queues.test_messages",
        "tests.ranks.test_drawn_boards",
        "tests.ranks.test_ranks_beside_writers",
        "tests.references.test_cascades_at_random",
        "tests.references.test_child_counts",
        "tests.references.test_drawn_family",
        "tests.references.test_existing_records",
        "tests.references.test_on_delete",
        "tests.references.test_paths",
        "tests.references.test_reading",
        "tests.references.test_referrers",
        "tests.references.test_related_paths",
        "tests.references.test_remove_cascade",
        "tests.references.test_semi_joins",
        "tests.references.test_target_orders",
        "tests.references.test_values_of_targets",
        "tests.references.test_verbs",
        "tests.references.test_with_related",
        "tests.search.test_ranked_searches",
        "tests.search.test_search_lookups",
        "tests.services.test_automatic_keys",
        "tests.services.test_changes",
        "tests.services.test_expected_versions",
        "tests.stateful.test_evolution",
        "tests.stateful.test_repository",
        "tests.tenants.test_copies",
        "tests.tenants.test_listeners",
        "tests.tenants.test_watches",
        "tests.tracker.test_tracker",
        "tests.transactions.test_async",
        "tests.transactions.test_bank",
        "tests.transactions.test_blocks",
        "tests.transactions.test_objects",
        "tests.transactions.test_raw_keys",
        "tests.transactions.test_shared_guards",
        "tests.transactions.test_skew",
        "tests.watch.test_changed_since",
        "tests.watch.test_keys",
        "tests.watch.test_prefixes",
        "tests.watch.test_records",
        "tests.watch.test_tasks",
        "tests.vectors.test_vector_queries",
    }
)
"""They run on PostgreSQL 18; those of ``ON_FIFTEEN`` on PostgreSQL 15 too, the others there in the soak.

All tests of the contract and of ``tests/postgres`` run on both: the two differ in the server, not in the library.
"""

THROUGH_A_PROXY = frozenset(
    {
        "tests.bulk.test_upserts",
        "tests.locks.test_locks",
        "tests.query.test_query_sets",
        "tests.queues.test_messages",
        "tests.transactions.test_blocks",
        "tests.watch.test_keys",
    }
)
"""They run through pgbouncer as well."""

ON_FIFTEEN = THROUGH_A_PROXY | {
    "tests.kv.test_mutate",
    "tests.kv.test_snapshots",
    "tests.services.test_changes",
    "tests.transactions.test_skew",
    "tests.watch.test_prefixes",
}
"""Suites of keys, transactions, watches, queues and locks, and one of queries."""

ON_ONE_SERVER = frozenset(
    {
        "test_with_lost_late_and_repeated_answers_no_message_is_lost",
        "test_with_lost_late_and_repeated_answers_there_is_never_a_second_holder",
    }
)
"""Tests of many examples, each with its faults: they run on PostgreSQL 18, and in the soak on the other servers."""

ONCE = frozenset(
    {
        # Until every verb has run: 8 examples of them run on servers, and hundreds in the soak.
        "test_a_store_that_evolves_agrees_with_a_dict_until_each_verb_has_run",
        "test_every_verb_agrees_with_a_dict_until_each_has_run",
        # It counts the snapshots of a subclass of the engine in memory.
        "test_many_tasks_take_one_snapshot",
        # Their stores are those of another program, or none.
        "test_a_stream_ends_when_the_server_is_told_to_stop",
        "test_a_handler_of_signals_is_called_and_restored",
        "test_no_ticket_of_a_closed_project_is_left_open",
        "test_a_planted_bug_is_found_at_a_seed_that_repeats_it",
        # Hundreds of queries, of which other tests run some on each engine.
        "test_drawn_filters_equal_python",
        "test_drawn_queries_equal_python",
        "test_answers_are_the_same_on_each_engine",
        # They are about the comparison, and about its parts.
        "test_a_fault_in_the_library_is_convicted",
        "test_a_fault_in_the_program_is_convicted",
        "test_every_model_and_foreign_key_is_drawn",
        # More targets than are allowed, which is decided before an engine is asked for the rest.
        "test_more_keys_than_allowed_are_refused_and_the_named_line_serves",
        # Its commit is larger than a server takes.
        "test_a_transaction_has_its_own_writes_on_its_boards",
    }
)
"""Tests that run on the engines of one machine alone."""


ON_ETCD = SUITES - {
    # Etcd has no backup of one store: UnsupportedError says so.
    "tests.copying.test_backup",
}
"""They run on one node of etcd 3.4.23 as well, with 63 checks and 60 mutations in an operation."""

ON_THREE_NODES = frozenset({"tests.transactions.test_blocks"})
"""They run on three nodes as well."""

WITH_MANY_OPERATIONS = frozenset(
    {
        "tests.bulk.test_resuming",
        "tests.copying.test_models",
        "tests.damage.test_counters",
        "tests.damage.test_refused_records",
        "tests.encryption.test_changes_of_form",
        "tests.encryption.test_index_generations",
        "tests.encryption.test_index_key_purges",
        "tests.encryption.test_loaded_versions",
        "tests.encryption.test_rotation",
        "tests.evolution.test_migrations",
        "tests.evolution.test_online_build",
        "tests.evolution.test_releases",
        "tests.evolution.test_upgrades",
        "tests.kv.test_snapshots",
        "tests.query.test_aggregate",
        "tests.query.test_distinct",
        "tests.query.test_query_sets",
        "tests.ranks.test_drawn_boards",
        "tests.references.test_semi_joins",
        "test_a_thousand_creators_beside_two_hundred_removals_leave_no_orphan",
        "test_it_removes_what_one_removal_removes",
    }
)
"""Modules and tests that fill their stores with one large operation: etcd is opened with ``max_txn_ops=``."""

IN_THE_SOAK_ON_ETCD = frozenset(
    {
        "tests.blobs.test_copies",
        "tests.blobs.test_history",
        "tests.bulk.test_beside_writers",
        "tests.bulk.test_resuming",
        "tests.damage.test_beside_writers",
        "tests.evolution.test_migrations",
        "tests.evolution.test_random_releases",
        "tests.kv.test_stateful",
        "tests.query.test_aggregate",
        "tests.references.test_cascades_at_random",
        "tests.stateful.test_evolution",
        "tests.stateful.test_repository",
        "tests.tracker.test_tracker",
        "test_a_check_beside_writers_of_every_kind_finds_nothing",
        "test_a_process_that_dies_at_any_request_is_continued",
        "test_a_record_with_a_column_that_cannot_be_encoded_can_be_removed_from_every_kind_of_index",
        "test_a_thousand_creators_beside_two_hundred_removals_leave_no_orphan",
        "test_any_records_come_back",
        "test_random_names_and_keys_never_meet",
        "test_results_equal_python",
        "test_with_lost_late_and_repeated_answers_no_message_is_lost",
        "test_with_lost_late_and_repeated_answers_there_is_never_a_second_holder",
    }
)
"""Modules and tests of thousands of round trips, each of which waits for the disk, or of many rivals."""

TOO_LARGE_ON_ETCD = {
    "test_a_commit_is_never_cut_in_two": "max_mutations",
    "test_the_batches_of_many_records_hold_each_of_them": "max_checks",
    "test_the_state_comes_in_bounded_batches_and_changes_meanwhile_come_afterwards": "max_mutations",
}
"""Tests whose operation cannot be done within the limits of etcd, by the limit that the error names."""

REFUSED_ON_ETCD = frozenset(
    {
        "test_a_key_ends_with_the_versionstamp_of_the_commit",
        "test_a_key_that_ends_with_the_versionstamp_of_the_commit",
        "test_the_versionstamp_does_not_count_for_the_size_of_the_key",
        "test_two_versionstamped_sets_of_one_prefix_in_one_operation_are_one_key",
    }
)
"""Tests of what etcd cannot do: UnsupportedError says so."""

NOT_ON_ETCD = frozenset(
    {
        # Etcd keeps changes until they are compacted, whatever `change_log=` says.
        "test_a_store_without_a_change_log_says_so_at_the_first_item",
        "test_a_store_without_a_change_log_says_so_for_any_position",
        "test_a_watch_that_fell_behind_the_log_is_told",
        "test_review_21_older_than_the_log_is_an_error_and_a_start_from_the_beginning_works",
        "test_what_cannot_be_watched_is_refused",
        # They move the clock of the engine: in etcd that is of the clients, so whoever waits measures a lease.
        "test_M1_a_holder_that_was_paused_does_not_renew_the_lock_of_another",
        "test_M2_a_late_unlock_does_not_remove_the_lock_of_another",
        "test_M3_the_holder_is_told_that_the_lock_is_lost",
        "test_M4_a_free_lock_with_somebody_in_line_is_not_for_a_newcomer",
        "test_the_asynchronous_lock_says_the_same_as_the_synchronous_one",
        "test_what_the_body_raises_is_not_hidden_by_a_lost_lock",
        # They list all rows, those of an engine whose answers are never lost, and so without that of the last token.
        "test_a_change_of_an_index_that_was_not_finished_is_forgotten_and_can_be_made_again",
        "test_a_holder_sets_one_row_and_checks_the_rows_of_those_it_conflicts_with",
        "test_the_fence_and_the_progress_of_a_finished_build_are_gone",
        "test_review_03_a_query_that_was_planned_before_a_migration_began_misses_nothing",
        "test_two_processes_that_forget_different_fields_carry_out_both",
        "test_what_an_upgrade_has_left_behind_can_be_forgotten",
        # They fill their stores by one operation of 7,006 mutations, where the servers of these tests take 4,996.
        "test_a_migration_goes_on_where_it_stopped_and_counts_every_record_once",
        "test_duplicates_that_an_upgrade_makes_are_listed_and_resolved_by_a_change",
        # They draw thousands of examples; their short forms run in the soak, and take about two minutes each.
        "test_a_store_that_evolves_agrees_with_a_dict_for_long",
        "test_every_verb_agrees_with_a_dict_for_long",
        "test_the_store_is_a_dict_at_length",
    }
)


def etcd_of(module: str, test: str) -> list[Any]:
    """The parameters for runs on etcd, if a test has some."""
    if module not in ON_ETCD or test in ONCE or test in NOT_ON_ETCD:
        return []
    if IN_THE_SOAK_ON_ETCD & {module, test}:
        return in_the_soak("etcd34")
    return in_test_servers("etcd34", *(["etcd34x3"] if module in ON_THREE_NODES else []))


def servers_of(module: str, test: str) -> list[Any]:
    """The parameters for runs on PostgreSQL, if a test has some."""
    if module not in SUITES or test in ONCE:
        return []
    others = in_the_soak if test in ON_ONE_SERVER else in_test_servers
    on_fifteen = others if module in ON_FIFTEEN else in_the_soak
    return [
        *in_test_servers("postgres"),
        *on_fifteen("postgres15"),
        *others(*(["pgbouncer"] if module in THROUGH_A_PROXY else [])),
    ]
