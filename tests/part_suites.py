"""Which test modules run again inside of a part of a store, as in a tenant: with a part in the place of each store.

``tests/owned_part.py`` makes the parts, in memory and on servers. The contract suite runs on parts too
(``tests/contract/conftest.py``), and ``tests/tenants`` has what tenants add.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.server_suites import ON_ONE_SERVER, SUITES, THROUGH_A_PROXY, etcd_of
from tests.worlds import in_test_servers, in_the_soak

PART = "part"

ON_POSTGRES = "part-postgres"
ON_ETCD = "part-etcd"
"""Parts of stores on servers: in `make test-servers` for the modules that also run through a proxy, in the soak for the
others; on etcd for the tests that run there."""

OF_THE_STORE = frozenset(
    {
        "tests.copying.test_backup",
        "tests.tenants.test_copies",
        "tests.tenants.test_listeners",
        "tests.tenants.test_watches",
    }
)
"""Modules of calls that a part refuses."""

ONCE = frozenset(
    {
        # It counts the snapshots of one engine.
        "test_many_tasks_take_one_snapshot",
        # They are about the comparison, or about engines that the test itself opens.
        "test_a_fault_in_the_library_is_convicted",
        "test_a_fault_in_the_program_is_convicted",
        "test_answers_are_the_same_on_each_engine",
        "test_every_model_and_foreign_key_is_drawn",
        # A key of the greatest length, which the prefix makes longer.
        "test_the_versionstamp_does_not_count_for_the_size_of_the_key",
        # They trim the change log of the store in memory.
        "test_review_21_older_than_the_log_is_an_error_and_a_start_from_the_beginning_works",
        "test_a_watch_that_fell_behind_the_log_is_told",
    }
)
"""Tests that look below the view."""


OVER_CONNECT = "part-connect-own"


def parts_of(module: str, test: str, runs: list[Any]) -> list[Any]:
    """Return the further runs of a test in parts; ``runs``: those over KV Connect, which lacks what some tests need."""
    if module not in SUITES - OF_THE_STORE or test in ONCE:
        return []
    over_connect = in_the_soak(OVER_CONNECT) if any(run.values == ("connect-own",) for run in runs) else []
    on_etcd = etcd_of(module, test)[:1]
    if module in THROUGH_A_PROXY:
        on_postgres = in_the_soak if test in ON_ONE_SERVER else in_test_servers
        servers = [*on_postgres(ON_POSTGRES), *[pytest.param(ON_ETCD, marks=run.marks) for run in on_etcd]]
    else:
        servers = in_the_soak(ON_POSTGRES, *[ON_ETCD for _ in on_etcd])
    return [*in_test_servers(PART), *servers, *over_connect]


def without_rare_servers(module: str, parts: list[Any]) -> list[Any]:
    """Return the runs of a test that is long, or has files: in parts on servers those of ``THROUGH_A_PROXY`` alone."""
    if module in THROUGH_A_PROXY:
        return parts
    return [one for one in parts if one.values not in ((ON_POSTGRES,), (ON_ETCD,))]
