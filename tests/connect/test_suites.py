"""The tables of suites over KV Connect name every suite once, and only tests that exist."""

from __future__ import annotations

import re

from tests import connect_suites, server_suites
from tests.source_tree import REPOSITORY

TABLES = (
    connect_suites.REFUSED,
    connect_suites.TOO_LARGE_FOR_DENOKV,
    connect_suites.TESTS_LEFT_OUT,
    connect_suites.LEFT_OUT_ON_DENOKV,
)


def test_every_suite_runs_over_kv_connect_or_is_left_out_for_a_reason():
    tables = (connect_suites.IN_TEST_SERVERS, connect_suites.IN_THE_SOAK, connect_suites.MODULES_LEFT_OUT)
    listed = [module for table in tables for module in table]
    assert sorted(listed) == sorted(server_suites.SUITES)


def test_the_tests_in_the_tables_exist_in_a_suite_that_runs_and_are_in_one_table():
    named = [test for table in TABLES for test in table]
    assert sorted(named) == sorted(set(named))
    sources = [
        (REPOSITORY / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        for module in (*connect_suites.IN_TEST_SERVERS, *connect_suites.IN_THE_SOAK)
    ]
    assert set(named) <= set(re.findall(r"def (test_\w+)", "".join(sources)))
