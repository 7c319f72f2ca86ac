"""Which test modules run again on servers, with stores there in the place of those in memory.

``tests/postgres/stores.py`` makes the stores. Left to the engines on one machine are modules about plans, errors,
costs and encodings, which are decided before an engine is asked, and those whose tests in memory run processes.
"""

from __future__ import annotations

from typing import Any

from tests.worlds import in_test_servers

SUITES = frozenset(
    {
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
        "tests.evolution.test_building_kinds",
        "tests.evolution.test_migrations",
        "tests.evolution.test_old_releases",
        "tests.evolution.test_online_build",
        "tests.evolution.test_random_releases",
        "tests.evolution.test_releases",
        "tests.evolution.test_upgrades",
        "tests.expiry.test_models",
        "tests.hooks.test_hooks",
        "tests.kv.test_mutate",
        "tests.kv.test_snapshots",
        "tests.kv.test_stateful",
        "tests.locks.test_locks",
        "tests.namespaces.test_isolation",
        "tests.query.test_aggregate",
        "tests.query.test_brute_force",
        "tests.query.test_changes_beside_readers",
        "tests.query.test_covering",
        "tests.query.test_distinct",
        "tests.query.test_query_sets",
        "tests.query.test_unions",
        "tests.queues.test_listeners",
        "tests.queues.test_messages",
        "tests.references.test_cascades_at_random",
        "tests.references.test_existing_records",
        "tests.references.test_on_delete",
        "tests.references.test_reading",
        "tests.references.test_remove_cascade",
        "tests.references.test_semi_joins",
        "tests.references.test_verbs",
        "tests.references.test_with_related",
        "tests.services.test_automatic_keys",
        "tests.services.test_changes",
        "tests.services.test_expected_versions",
        "tests.stateful.test_evolution",
        "tests.stateful.test_repository",
        "tests.tracker.test_tracker",
        "tests.transactions.test_async",
        "tests.transactions.test_bank",
        "tests.transactions.test_blocks",
        "tests.transactions.test_objects",
        "tests.transactions.test_raw_keys",
        "tests.transactions.test_shared_guards",
        "tests.transactions.test_skew",
        "tests.watch.test_keys",
        "tests.watch.test_prefixes",
        "tests.watch.test_records",
        "tests.watch.test_tasks",
    }
)
"""They run on PostgreSQL 18 and 15."""

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

ONCE = frozenset(
    {
        # It counts the snapshots of a subclass of the engine in memory.
        "test_many_tasks_take_one_snapshot",
        # Their stores are those of another program, or none.
        "test_a_stream_ends_when_the_server_is_told_to_stop",
        "test_a_handler_of_signals_is_called_and_restored",
        "test_no_ticket_of_a_closed_project_is_left_open",
        "test_a_planted_bug_is_found_at_a_seed_that_repeats_it",
    }
)
"""Tests that run on the engines of one machine alone."""


OVER_CONNECT = frozenset(
    {
        "tests.bulk.test_upserts",
        "tests.hooks.test_hooks",
        "tests.query.test_query_sets",
        "tests.query.test_unions",
        "tests.references.test_existing_records",
        "tests.references.test_verbs",
    }
)
"""They run over KV Connect as well, which has neither snapshots nor deadlines; `tests/connect` has more."""

NOT_OVER_CONNECT = frozenset(
    {
        # They are about deadlines, which KV Connect does not tell.
        "test_a_record_that_has_expired_is_none_to_hooks",
        "test_a_target_with_a_deadline_is_none",
        "test_a_record_that_has_expired_refers_to_nothing",
        "test_a_record_that_may_be_referred_to_gets_no_deadline",
        # It creates 300 records in one operation.
        "test_many_tasks_may_share_a_query_set",
    }
)


def connect_of(module: str, test: str) -> list[Any]:
    """The parameter for a run over KV Connect, if a test has one."""
    return in_test_servers("connect") if module in OVER_CONNECT and test not in NOT_OVER_CONNECT else []


def servers_of(module: str, test: str) -> tuple[str, ...]:
    """The servers on which a test runs again."""
    if module not in SUITES or test in ONCE:
        return ()
    return ("postgres", "postgres15", *(["pgbouncer"] if module in THROUGH_A_PROXY else []))
