"""The same answers on SQLite and LMDB, whose reads are statements and cursors and not slices of a list."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvmodels import Database
from tests.query.models import Person, people
from tests.query.test_pages import QUERIES, walk


@pytest.fixture(scope="module", params=["sqlite", "lmdb"])
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("queries")
    url = {"sqlite": f"sqlite:///{folder}/people.db", "lmdb": f"lmdb:///{folder}/people.lmdb"}[request.param]
    with (
        Database(url, models=[Person], durability="relaxed") as disk,
        Database("memory://", models=[Person]) as memory,
    ):
        for db in (disk, memory):
            db[Person].bulk_create([Person(**fields) for fields in people(700)])
        yield disk, memory


@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_files_and_memory_answer_alike(stores: tuple[Database, Database], number: int):
    disk, memory = (QUERIES[number](db[Person]) for db in stores)
    expected = memory.to_list()
    assert disk.to_list() == list(disk) == expected
    assert disk.count() == len(expected)
    assert disk.reverse().to_list() == expected[::-1]
    assert disk[5:25].to_list() == expected[5:25]
    assert disk.first() == expected[0]
    assert disk.last() == expected[-1]
    assert walk(disk, 90) == expected
