"""Fixtures: every test of this folder runs on memory, SQLite and LMDB, synchronously and asynchronously."""

from __future__ import annotations

import pytest

from tests.kv.stores import Stores
from tests.worlds import WORLDS


@pytest.fixture(params=WORLDS)
def stores(request, tmp_path, quick_folder):
    engine, world = request.param.split("-")
    opened = Stores(engine, world, quick_folder if engine == "lmdb" else tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def kv(stores):
    return stores.open()
