"""Processes on one server that write, build, migrate and are killed: the suites of files, on PostgreSQL."""

from __future__ import annotations

import pytest

from kvmodels import Database
from tests.bulk.jobs import JOBS, state
from tests.bulk.models import Thing, filled, memory
from tests.bulk.test_killed import COUNT, STORIES
from tests.evolution.accounts import Account, Touched, account
from tests.evolution.test_killed_changes import RECORDS
from tests.evolution.test_online_build import (
    LIBRARIES,
    nobody_is_left_behind,
    old_process_beside_a_build,
    plan_and_copies,
    unique_with_duplicates,
)
from tests.killing import killed_until_done
from tests.postgres.databases import Databases

__all__ = ["nobody_is_left_behind"]

pytestmark = pytest.mark.servers


def test_an_index_and_copies_are_built_beside_four_writers_by_two_builders_that_are_killed(databases: Databases):
    plan_and_copies(databases.url(), 7, records=300, writers=4, kills=3)


def test_a_unique_index_over_duplicates_is_built_beside_four_writers_by_two_builders_that_are_killed(
    databases: Databases,
):
    unique_with_duplicates(databases.url(), 11, records=300, writers=4, kills=3)


def test_builders_of_two_releases_of_the_library_build_one_index_together(databases: Databases):
    unique_with_duplicates(databases.url(), 3, records=300, writers=2, kills=3, builders=LIBRARIES)


def test_an_old_process_writes_until_the_build_begins_and_then_only_reads(databases: Databases):
    old_process_beside_a_build(databases.url())


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_large_builds_beside_writers_by_builders_of_two_releases_that_are_killed(databases: Databases, seed: int):
    plan_and_copies(databases.url("plan"), seed, records=5_000, writers=4, kills=20, builders=LIBRARIES)
    unique_with_duplicates(databases.url("name"), seed, records=5_000, writers=4, kills=20, builders=LIBRARIES)


@pytest.mark.parametrize("story", STORIES)
def test_a_bulk_write_that_is_killed_again_and_again_writes_each_record_once(databases: Databases, story: str):
    url, name = databases.url(), STORIES[story][0]
    filled(Database(url, models=[Thing]), COUNT).close()
    with memory(COUNT) as twin:
        JOBS[name].run(twin, None)
        expected = state(twin)
    killed_until_done("tests.bulk.test_killed", story, url, 20, 8)
    with Database(url, models=[Thing]) as db:
        assert state(db) == expected
        assert db.check().ok


def test_a_migration_that_is_killed_again_and_again_changes_each_record_once(databases: Databases):
    url = databases.url()
    with Database(url, models=[Account]) as db:
        db[Account].bulk_create([Account(**account(n)) for n in range(RECORDS)])
    killed_until_done("tests.evolution.test_killed_changes", "migrated", url, 7, 8)
    with Database(url, models=[Touched], require_current=True) as db:
        assert db[Touched].count() == RECORDS
        assert db.check().ok
