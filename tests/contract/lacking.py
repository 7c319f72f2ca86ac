"""Tests of the contract that need what an engine declares that it lacks; ``conftest.py`` leaves them out for it.

What is lacking is refused, or is shown in another way: see ``tests/connect/test_engine.py`` and ``tests/etcd/``.
"""

from __future__ import annotations

from typing import Final

OVER_CONNECT: Final = {
    "snapshots and follow-up reads": {
        "test_a_closed_snapshot_cannot_be_read",
        "test_a_snapshot_for_a_read_of_the_library_has_no_maximum_age",
        "test_a_forgotten_snapshot_costs_nothing_more",
        "test_a_snapshot_counts_its_own_state_with_its_own_time",
        "test_a_snapshot_keeps_the_state_while_others_write",
        "test_a_snapshot_keeps_what_is_swept",
        "test_a_snapshot_of_an_empty_store_is_empty",
        "test_a_snapshot_sees_deadlines_as_of_its_opening",
        "test_a_snapshot_takes_limits_directions_and_followed_ranges",
        "test_an_error_in_follow_reaches_the_caller_and_leaves_the_engine_usable",
        "test_closing_beside_busy_threads_ends_them_with_a_typed_error",
        "test_closing_waits_for_running_calls",
        "test_everything_raises_after_closing_and_closing_again_does_nothing",
        "test_follow_is_not_called_when_the_guard_fails",
        "test_followed_ranges_are_read_from_what_the_first_ranges_held",
        "test_following_nothing_and_following_ranges_with_limits",
        "test_many_rows_without_deadlines_are_those_that_are_read_one_by_one",
        "test_review_16_a_snapshot_past_its_maximum_age_expires",
        "test_review_29_a_forked_child_gets_an_error_and_the_parent_goes_on",
        "test_rows_for_a_reader_of_plain_tuples_hold_the_same",
        "test_the_ends_of_keys_lead_to_what_the_function_that_they_stand_for_asks_for",
        "test_the_ends_of_single_keys_and_of_several_ranges_are_followed_as_well",
        "test_the_records_behind_the_entries_of_several_ranges_are_those_that_the_function_asks_for",
        "test_two_snapshots_keep_two_states",
        "test_what_follows_is_asked_for_or_the_row_that_a_guess_leads_to",
        "test_what_is_behind_a_single_row_is_a_row",
        "test_a_read_of_keys_alone_has_everything_but_the_values",
        "test_an_event_loop_counts_as_a_thread_does_whatever_there_is_to_count",
    },
    "versioned reads": {
        "test_long_replay_in_eight_threads",
        "test_replay_in_eight_threads",
        "test_without_an_injected_clock_versionstamps_start_at_the_present_time",
    },
    "notices of commits": {
        "test_a_failed_check_wakes_nobody_for_good",
        "test_a_later_commit_is_answered_without_waiting",
        "test_a_task_that_waits_may_be_cancelled_and_is_ended_by_closing",
        "test_closing_ends_the_waiting",
        "test_closing_leaves_no_thread",
        "test_tasks_wait_without_blocking_the_loop_and_are_woken",
        "test_the_driver_waits_in_its_thread",
        "test_the_time_can_be_over_first",
        "test_the_time_of_a_task_can_be_over_first",
        "test_waiters_are_woken_wherever_a_commit_meets_them",
        "test_what_a_read_did_not_see_is_waited_for",
        "test_whoever_is_subscribed_is_woken_by_each_commit_and_by_the_end",
    },
    "deadlines that are told, and expired rows that are hidden": {
        "test_a_check_takes_an_expired_row_as_absent_and_a_physical_check_does_not",
        "test_a_guard_on_an_expired_row_finds_it_absent_unless_expired_rows_are_asked_for",
        "test_a_limit_counts_only_rows_that_are_shown",
        "test_a_row_is_there_until_its_deadline_and_absent_from_it_on",
        "test_a_row_that_is_written_expired_is_absent_at_once",
        "test_a_write_replaces_an_expired_row_and_its_deadline",
        "test_arithmetic_keeps_the_deadline_of_a_live_row_or_sets_its_own",
        "test_random_mutations_with_deadlines_leave_what_a_mapping_has",
        "test_an_expired_row_is_shown_where_it_is_asked_for",
        "test_the_clock_never_goes_back_so_an_expired_row_stays_absent",
        "test_a_passed_in_clock_is_never_swept_in_the_background",
        "test_a_sweep_is_a_commit_and_an_empty_one_is_none",
        "test_a_sweep_removes_at_most_as_many_rows_as_asked_the_oldest_deadlines_first",
        "test_review_11_the_clock_never_goes_back",
        "test_sweeping_removes_what_has_expired_and_nothing_else",
        "test_the_sweep_agrees_with_a_mapping_for_random_histories",
    },
    "a change log": {
        "test_a_batch_holds_whole_commits_and_goes_on_where_it_ended",
        "test_a_range_tells_of_its_keys_alone",
        "test_a_row_that_has_expired_is_told_as_absent_before_it_is_swept",
        "test_a_versionstamp_that_was_never_reached_is_expired",
        "test_commits_without_effect_on_a_key_are_not_told",
        "test_each_changed_key_is_told_once_at_its_last_change",
        "test_what_is_swept_is_told_as_absent",
        "test_a_retention_is_a_number_of_seconds",
        "test_a_store_without_a_log_says_how_to_have_one",
        "test_changes_before_the_log_began_are_an_error",
        "test_following_the_log_gives_the_store_for_random_histories",
        "test_review_21_older_than_the_log_is_an_error_that_says_from_where_on",
    },
    "other encodings, and integers of seven bytes": {
        "test_K25_arithmetic_on_another_type_raises_and_applies_nothing",
        "test_a_committed_row_comes_back_as_it_was_written",
        "test_a_function_is_given_what_is_stored_and_what_it_returns_is_stored",
    },
    "reads and operations of any size": {
        "test_a_check_for_a_vacant_prefix_among_many_checks_holds_for_itself",
        "test_many_checks_are_all_evaluated",
        "test_many_keys_are_read_in_one_call",
    },
}

WITH_DENO_KEYS: Final = {
    "values above 64 KiB": {
        "test_many_commits_keep_values_of_one_megabyte",
    },
    "prefixes of a key's parts, where one part of bytes stands for the whole key": {
        "test_a_check_for_a_vacant_prefix_sees_every_live_key_below_it",
    },
}
"""Over servers with the keys and the limits of Deno, beside ``OVER_CONNECT``."""

ON_DENOKV: Final = {
    "a clock that a test sets, and expired rows that count as absent": {
        "test_a_clock_that_goes_back_shows_no_row_again",
        "test_a_count_is_of_one_state_with_its_guard",
        "test_a_function_clears_the_deadline_and_takes_an_expired_row_as_absent",
        "test_a_key_with_a_versionstamp_may_expire",
        "test_arithmetic_takes_an_expired_row_as_absent",
        "test_arithmetic_with_a_deadline_leaves_a_row_until_then",
        "test_review_11_a_physical_check_of_an_expired_row_fails_once_it_is_swept",
        "test_rows_past_their_deadline_are_not_counted_before_they_are_swept_or_after",
    },
    "versionstamps that begin with the time and have no gaps": {
        "test_a_refused_commit_uses_no_versionstamp",
        "test_versionstamps_start_at_the_wall_clock_in_microseconds",
    },
}
"""On the backend of Deno's own servers, beside ``WITH_DENO_KEYS``."""

ON_ETCD: Final = {
    "keys that end with the versionstamp of their commit": {
        "test_a_key_ends_with_the_versionstamp_of_its_commit",
        "test_a_key_with_a_versionstamp_may_expire",
    },
    "operations of any size": {
        "test_many_commits_keep_values_of_one_megabyte",
    },
    "a change log whose length the store decides": {
        "test_a_retention_is_a_number_of_seconds",
        "test_a_store_without_a_log_says_how_to_have_one",
        "test_review_21_older_than_the_log_is_an_error_that_says_from_where_on",
    },
}
