"""Which tests `make test` leaves to `make test-servers` and `make check`, because others find the same defects sooner.

`make test` has the contract of every engine, the random verbs on every engine, all tests of units and of structure,
every page, each rule of concurrency with its mutants (``tests/interleaving/test_rules.py``), and every suite of models
on one engine. The tables below name modules, and tests as ``module::test``; they get the mark ``servers``.
``tests/worlds.py``, ``general_suites.py``, ``limited_suites.py`` and ``part_suites.py`` leave further runs of suites.
"""

from __future__ import annotations

OF_THE_TESTS = frozenset(
    {
        "tests.encryption.test_mutants",
        "tests.engines.test_broken_engines",
        "tests.engines.test_sqlite_uncontended::test_a_mutant_beside_others_is_convicted",
        "tests.engines.test_sqlite_uncontended::test_the_stories_convict",
        "tests.geo.test_broken_geo",
        "tests.history.test_faulty_oracle",
        "tests.history.test_mutants",
        "tests.interleaving.test_crowd::test_a_run_is_repeated_by_its_seed_and_by_its_lines",
        "tests.kinds.test_broken_intervals",
        "tests.kinds.test_broken_lookups",
        "tests.kinds.test_broken_trigrams",
        "tests.kinds.test_ranked_beside_writers::test_a_broken_reader_is_convicted_by_the_drawn_queries",
        "tests.links.test_interleavings::test_a_mutant_is_convicted",
        "tests.ranks.test_broken_ranks",
        "tests.references.test_drawn_family::test_a_fault_in_the_library_is_convicted",
        "tests.references.test_drawn_family::test_a_fault_in_the_program_is_convicted",
        "tests.search.test_broken_searches",
        "tests.test_oracle",
        "tests.test_oracle_kinds",
        "tests.transactions.test_contended_verbs::test_turns_that_are_given_to_all_are_convicted",
        "tests.vectors.test_broken_vectors",
    }
)
"""They break the library on purpose, and see that suites notice: they fail when a suite gets weaker."""

AT_EVERY_MOMENT = frozenset(
    {
        "tests.blobs.test_killed",
        "tests.blobs.test_large",
        "tests.blobs.test_protocol_model",
        "tests.bulk.test_beside_writers",
        "tests.bulk.test_lost_answers::test_a_lost_answer_changes_nothing",
        "tests.bulk.test_resuming::test_a_process_that_dies_at_any_request_is_gone_on_for",
        "tests.bulk.test_resuming::test_processes_that_die_again_and_again_come_to_the_end_together",
        "tests.bulk.test_resuming_lists::test_a_creation_that_dies_at_any_request_is_gone_on_with",
        "tests.bulk.test_resuming_lists::test_a_lost_answer_changes_nothing_of_a_list",
        "tests.copying.test_backup::test_backups_of_a_store_that_another_process_writes_are_exact_for_models",
        "tests.copying.test_killed_loads",
        "tests.damage.test_beside_writers",
        "tests.damage.test_counters_without_snapshots",
        "tests.encryption.test_killed_rotations",
        "tests.engines.test_shared_transactions::test_a_fork_beside_threads_that_wait_for_a_group_disturbs_none",
        "tests.engines.test_shared_transactions::test_review_22_interrupts_at_any_moment_of_one_thread_hurt_no_other",
        "tests.engines.test_sqlite_durability::test_killed_writers_lose_nothing_acknowledged",
        "tests.evolution.test_counters_built::test_a_build_that_was_killed_between_two_commits_goes_on_and_counts_nothing_twice",
        "tests.evolution.test_counters_built::test_two_builders_and_three_writers_count_every_record_exactly_once",
        "tests.evolution.test_killed_changes",
        "tests.evolution.test_online_build::test_review_05_an_old_process_writes_until_the_build_begins_and_then_only_reads",
        "tests.evolution.test_upgrades_of_kinds",
        "tests.feeds.test_followers::test_a_follower_that_is_killed_again_and_again_leaves_an_equal_sink",
        "tests.feeds.test_killed",
        "tests.history.test_interleavings",
        "tests.interleaving.test_bookings::test_a_build_stopped_at_any_request_beside_writers_is_finished_by_another",
        "tests.interleaving.test_bookings::test_no_crowd_books_twice",
        "tests.interleaving.test_builds_of_kinds",
        "tests.interleaving.test_crowd_of_references",
        "tests.kinds.test_ranked_beside_writers::test_a_query_whose_index_is_dropped_before_it_reads_tests_what_that_has_answered",
        "tests.kinds.test_ranked_beside_writers::test_an_iteration_beside_writers_returns_no_record_twice",
        "tests.kinds.test_ranked_beside_writers::test_pages_beside_writers_have_each_record_that_is_not_written_once_in_order",
        "tests.links.test_interleavings::test_changes_of_links_are_made_one_after_the_other_in_any_order_of_their_steps",
        "tests.locks.test_locks::test_with_lost_late_and_repeated_answers_there_is_never_a_second_holder",
        "tests.locks.test_untold_leases::test_there_is_one_holder_at_a_time_and_the_dead_hold_nobody_up_for_ever",
        "tests.query.test_pages::test_K13_paging_skips_and_repeats_nothing_beside_writers",
        "tests.query.test_walks::test_a_walk_beside_threads_skips_and_repeats_no_record_that_nobody_writes",
        "tests.query.test_walks::test_pages_that_are_counted_from_the_beginning_skip_or_repeat_records_beside_the_same_writers",
        "tests.query.test_walks::test_without_snapshots_a_walk_skips_and_repeats_no_record_that_nobody_writes",
        "tests.queues.test_messages::test_with_lost_late_and_repeated_answers_no_message_is_lost",
        "tests.references.test_interleavings",
        "tests.references.test_random_writers",
        "tests.references.test_remove_cascade::test_a_process_that_dies_at_any_request_is_continued",
        "tests.robustness.test_interrupts",
        "tests.robustness.test_lost_answers::test_the_asynchronous_verbs_happen_exactly_once_too",
        "tests.search.test_killed_searches",
        "tests.search.test_searches_beside_writers",
        "tests.shapes.test_unknown_classes::test_two_programs_that_know_different_classes_share_a_file",
        "tests.tenants.test_event_streams::test_each_client_gets_each_change_of_its_tenant_once_whenever_it_joins",
        "tests.transactions.test_contended_verbs::test_all_tasks_that_change_one_record_succeed_with_few_conflicts",
        "tests.transactions.test_contention::test_an_interrupt_at_any_line_of_a_call_gives_the_turn_back",
        "tests.transactions.test_write_reservation::test_keys_that_another_process_reserves_in_each_attempt_are_reserved_in_the_end",
        "tests.vectors.test_vector_index::test_records_that_are_not_written_are_found_beside_writers",
    }
)
"""They stop at each request, lose each answer, kill processes, or draw orders of steps.

``test_rules.py`` has the moments that matter, each with its mutant, and ``test_crowd.py`` drawn orders.
"""

DRAWN = frozenset(
    {
        "tests.geo.test_geo_queries",
        "tests.places.test_places",
        "tests.query.test_aggregate::test_groups_equal_those_of_python_whatever_their_source",
        "tests.query.test_column_types::test_every_lookup_and_order_equals_python",
        "tests.query.test_engines_agree",
        "tests.query.test_fast_ways",
        "tests.query.test_known_ranges::test_a_prepared_plan_is_the_one_that_planning_again_gives",
        "tests.query.test_making::test_many_rows_at_once_are_what_each_of_them_is",
        "tests.query.test_method_chains",
        "tests.query.test_moving_records",
        "tests.query.test_nulls::test_orders_equal_python",
        "tests.query.test_pages::test_the_pages_together_are_the_list",
        "tests.query.test_pasted_lines::test_what_the_line_answers_is_what_a_scan_answers",
        "tests.query.test_periods::test_periods_equal_python",
        "tests.query.test_removals_in_commits::test_both_ways_tell_and_store_the_same",
        "tests.query.test_sorts::test_pages_of_a_sort_go_forward_and_back",
        "tests.query.test_unions::test_random_filters_find_what_python_finds",
        "tests.query.test_walks::test_a_query_streams_in_bounded_memory",
        "tests.query.test_walks::test_a_walk_forward_and_a_walk_back_give_the_same_pages",
        "tests.query.test_walks::test_an_analysis_counts_what_the_engine_gives",
        "tests.query.test_walks::test_an_engine_without_snapshots_or_with_few_ranges_gives_the_same",
        "tests.references.test_drawn_family::test_answers_are_the_same_on_each_engine",
        "tests.references.test_paths::test_drawn_filters_equal_python",
        "tests.references.test_paths::test_results_are_the_same_on_each_engine",
        "tests.references.test_target_orders::test_orders_equal_python",
        "tests.search.test_lists::test_lists_that_one_request_cannot_hold_rank_the_same_records",
    }
)
"""Queries that the drawn family has too (``tests/references/test_drawn_family.py``), or that are answered twice.

What each clause means is tested beside them by written examples.
"""

COUNTED = frozenset(
    {
        "tests.bulk.test_costs",
        "tests.bulk.test_limits::test_batches_are_as_large_as_the_limits_allow",
        "tests.evolution.test_records_before_models::test_many_collections_are_listed_within_the_limits_of_a_small_engine",
        "tests.query.test_aggregate::test_what_counters_and_ends_of_indexes_read",
        "tests.query.test_round_trips",
        "tests.query.test_what_is_read::test_what_is_read_does_not_depend_on_the_size_of_the_collection",
        "tests.search.test_costs_of_hostile_texts",
    }
)
"""Rows and requests in stores of several sizes; ``tests/docs`` counts those that the pages promise."""

OF_PEERS = frozenset(
    {
        "tests.ported.test_pages",
        "tests.regressions.test_peers",
        "tests.regressions.test_peers_in_bulk",
    }
)
"""Calls of other libraries and their defects, beside ours, which the suites test by themselves."""

OF_PROGRAMS = frozenset(
    {
        "tests.admin.test_cascades",
        "tests.admin.test_encrypted",
        "tests.admin.test_histories",
        "tests.admin.test_names_of_collections",
        "tests.admin.test_parts_of_texts",
        "tests.admin.test_tenants",
        "tests.cli.test_standard_streams",
        "tests.demo.test_tour::test_a_tour_prints_what_it_finds",
        "tests.frames.test_round_trips",
        "tests.kit.test_plugin::test_a_wrong_index_entry_fails_the_test_after_its_end",
        "tests.kit.test_plugin::test_the_engine_is_an_option",
        "tests.notebooks.test_cells::test_the_notebook_of_the_examples_shows_data_frames_and_a_plot",
        "tests.serve.test_hostile",
        "tests.serve.test_replay",
        "tests.services.test_preconditions",
    }
)
"""Pages of the admin, commands and services in many combinations, or in processes of their own."""

OF_EVERY_INDEX = frozenset(
    {
        "tests.damage.test_kinds",
        "tests.damage.test_records_and_foreign_keys::test_a_foreign_key_under_the_prefix_of_an_index_is_reported_and_stays_until_all",
    }
)
"""Damage to every kind of index; ``test_entries``, ``test_counters`` and ``test_records_and_foreign_keys`` remain."""

TABLES = (OF_THE_TESTS, AT_EVERY_MOMENT, DRAWN, COUNTED, OF_PEERS, OF_PROGRAMS, OF_EVERY_INDEX)

LEFT_TO_CHECK = frozenset[str]().union(*TABLES)
"""Modules and tests with the mark ``servers``."""
