"""Which test modules run a second time on an engine with small limits (``tests/limited_engine.py``).

Each of their tests runs with the stores in memory that it knows, and once more with stores of 10 ranges a read. Nothing
may be sent that is over a limit. What cannot be done in one operation of 10 checks raises OperationTooLargeError, and
is listed here.
"""

from __future__ import annotations

from dataclasses import replace

from kvmodels import Limits
from tests.limited_engine import BARE, BARE_READS, FEW, UNTOLD

MANY_CHECKS = replace(FEW, name="MANY_CHECKS", max_checks=10_000, max_mutations=10_000)
"""For modules that fill their stores with one large operation: they are about reads."""

SUITES: dict[str, Limits] = {
    "tests.bulk.test_resuming_lists": MANY_CHECKS,
    "tests.bulk.test_upserts": BARE,
    "tests.damage.test_beside_writers": FEW,
    "tests.damage.test_entries": FEW,
    "tests.damage.test_records_and_foreign_keys": FEW,
    "tests.damage.test_refused_records": MANY_CHECKS,
    "tests.evolution.test_building_kinds": BARE,
    "tests.evolution.test_migrations": MANY_CHECKS,
    "tests.evolution.test_online_build": MANY_CHECKS,
    "tests.evolution.test_plan": MANY_CHECKS,
    "tests.evolution.test_upgrades": MANY_CHECKS,
    "tests.expiry.test_models": FEW,
    "tests.geo.test_geo_queries": FEW,
    "tests.hooks.test_hooks": BARE,
    "tests.kinds.test_exclusion_queries": FEW,
    "tests.kinds.test_exclusions_at_random": FEW,
    "tests.kinds.test_interval_queries": FEW,
    "tests.kinds.test_trigram_queries": FEW,
    "tests.vectors.test_vector_queries": FEW,
    "tests.kinds.test_ranked_queries": BARE_READS,
    "tests.locks.test_locks": UNTOLD,
    "tests.query.test_aggregate": MANY_CHECKS,
    "tests.query.test_pages": MANY_CHECKS,
    "tests.query.test_unions": BARE_READS,
    "tests.queues.test_messages": UNTOLD,
    "tests.ranks.test_drawn_boards": FEW,
    "tests.references.test_cascades_at_random": MANY_CHECKS,
    "tests.references.test_existing_records": FEW,
    "tests.search.test_ranked_searches": FEW,
    "tests.search.test_search_lookups": FEW,
    "tests.transactions.test_checks": FEW,
    "tests.transactions.test_objects": UNTOLD,
    "tests.transactions.test_raw_keys": UNTOLD,
}

ON_FEW = {
    "test_a_record_that_has_expired_is_none_to_hooks",
    "test_a_record_with_a_deadline_is_listed_until_it_has_none",
    "test_a_key_that_ends_with_the_versionstamp_of_the_commit",
}
"""Tests whose subject is a trait that the engine of their module lacks: they run on FEW instead."""

OF_ON_FEW = {"tests.transactions.test_raw_keys", "tests.hooks.test_hooks", "tests.evolution.test_building_kinds"}
"""Their modules."""

IN_THE_SOAK = {
    "tests.bulk.test_resuming_lists",
    "tests.damage.test_beside_writers",
    "tests.damage.test_records_and_foreign_keys",
    "tests.damage.test_refused_records",
    "tests.evolution.test_migrations",
    "tests.query.test_aggregate",
    "tests.query.test_pages",
}
"""Whose second run is left to the soak: of each flow whose requests grow with its work, `make check` has one module."""

IN_TEST_SERVERS = (
    SUITES.keys()
    - IN_THE_SOAK
    - {
        "tests.evolution.test_plan",
        "tests.hooks.test_hooks",
        "tests.kinds.test_ranked_queries",
        "tests.locks.test_locks",
        "tests.transactions.test_checks",
    }
)
"""Whose second run is left to `make test-servers`: `make test` has one for each set of limits."""

ONCE = {
    # Its commit has more checks than the limits allow.
    "test_a_transaction_has_its_own_writes_on_its_boards",
    # What a block reads unchecked is of two states without snapshots; transactions/test_without_snapshots.py has more.
    "test_review_15_what_is_read_unchecked_is_no_conflict",
    # A dump is of one snapshot.
    "test_review_24_a_dump_takes_a_migration_along_as_one_that_begins_anew",
    # They run processes, whose stores are files.
    "test_a_unique_index_over_duplicates_is_built_beside_writers_by_builders_that_are_killed",
    "test_every_kind_of_index_is_built_beside_writers_by_two_builders_that_are_killed",
    "test_review_05_an_old_process_writes_until_the_build_begins_and_then_only_reads",
    "test_review_24_an_index_and_copies_are_built_beside_writers_by_builders_that_are_killed",
    # It drives a flow until that waits for a commit, of which this engine does not tell.
    "test_M4_a_free_lock_with_somebody_in_line_is_not_for_a_newcomer",
    # They wait for a lease, and read one key at a time.
    "test_a_lock_is_renewed_as_long_as_it_is_held",
    "test_a_lock_of_a_task_is_renewed_as_long_as_it_is_held",
}
"""Tests that run on an engine with large limits alone."""
