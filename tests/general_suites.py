"""Which test modules run a second time without fast kinds (``kvmodels._support.switches``), and which tests need them.

``pytest tests --without-fast-kinds`` runs everything without fast kinds, but for the tests that are marked with
``fast_kinds``: their subject is a fast kind, or the requests that it saves.
"""

from __future__ import annotations

SUITES = frozenset(
    {
        "tests.geo.test_geo_queries",
        "tests.kinds.test_exclusion_queries",
        "tests.kinds.test_exclusions_at_random",
        "tests.kinds.test_interval_queries",
        "tests.kinds.test_trigram_queries",
        "tests.query.test_brute_force",
        "tests.query.test_covering",
        "tests.query.test_distinct",
        "tests.query.test_moving_records",
        "tests.query.test_query_sets",
        "tests.query.test_residuals",
        "tests.query.test_sorts",
        "tests.query.test_values",
        "tests.search.test_ranked_searches",
        "tests.search.test_search_lookups",
        "tests.ranks.test_drawn_boards",
        "tests.transactions.test_objects",
        "tests.bulk.test_upserts",
    }
)

IN_THE_SOAK = frozenset({"tests.query.test_brute_force"})
"""Whose second run is left to the soak."""

IN_TEST_SERVERS = SUITES - IN_THE_SOAK - {"tests.bulk.test_upserts", "tests.query.test_covering"}
"""Whose second run is left to `make test-servers`: `make test` has one of writes and one of queries."""

ABOUT_FAST_KINDS = {
    "tests.bulk.test_direct_batches": 2,
    "tests.docs.test_costs": 1,
    "tests.docs.test_costs_of_history": 1,
    "tests.docs.test_index_costs": 1,
    "tests.engines.test_sqlite_turn_reads": 1,
    "tests.engines.test_lmdb_uncontended": 4,
    "tests.engines.test_sqlite_uncontended": 5,
    "tests.evolution.test_fast_builds": 1,
    "tests.geo.test_geo_costs": 1,
    "tests.interleaving.test_rules": 1,
    "tests.kit.test_exploration": 1,
    "tests.links.test_links": 1,
    "tests.query.test_aggregate": 1,
    "tests.references.test_child_counts": 3,
    "tests.references.test_referrers": 1,
    "tests.query.test_direct_lookups": 2,
    "tests.query.test_getters": 2,
    "tests.query.test_guesses": 5,
    "tests.query.test_known_ranges": 3,
    "tests.query.test_late_fields_sets": 1,
    "tests.query.test_making": 3,
    "tests.query.test_removals_in_commits": 6,
    "tests.query.test_round_trips": 1,
    "tests.query.test_what_is_read": 3,
    "tests.ranks.test_rank_costs": 1,
    "tests.ranks.test_broken_ranks": 1,
    "tests.search.test_broken_searches": 1,
    "tests.test_trace_calls": 3,
    "tests.transactions.test_contended_verbs": 1,
    "tests.unit.maintenance.test_plain_writes": 9,
}
"""How often each module uses the mark."""
