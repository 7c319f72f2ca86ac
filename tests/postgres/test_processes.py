"""Processes on one server that write, build, migrate and are killed: the suites of files, on PostgreSQL."""

from __future__ import annotations

import pytest

from kvmodels import Database
from tests.bulk.jobs import JOBS, state
from tests.bulk.models import Thing, filled, memory
from tests.bulk.test_killed import COUNT, STORIES
from tests.evolution.accounts import Account, Touched, account
from tests.evolution.test_killed_changes import RECORDS
from tests.evolution.test_online_build import nobody_is_left_behind, plan_and_copies, unique_with_duplicates
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
