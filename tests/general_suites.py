"""Which test modules run a second time without fast kinds (``kvmodels._support.switches``)."""

from __future__ import annotations

SUITES = frozenset(
    {
        "tests.query.test_brute_force",
        "tests.query.test_covering",
        "tests.query.test_distinct",
        "tests.query.test_query_sets",
        "tests.query.test_residuals",
        "tests.query.test_sorts",
        "tests.query.test_values",
        "tests.transactions.test_objects",
        "tests.bulk.test_upserts",
    }
)

IN_THE_SOAK = frozenset({"tests.query.test_brute_force"})
"""Whose second run is left to the soak."""
