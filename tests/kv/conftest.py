"""Fixtures: every test of this folder runs on memory and on SQLite, synchronously and asynchronously."""

from __future__ import annotations

import pytest

from tests.kv.stores import Stores


@pytest.fixture(params=["memory-sync", "memory-async", "sqlite-sync", "sqlite-async"])
def stores(request, tmp_path):
    engine, world = request.param.split("-")
    opened = Stores(engine, world, tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def kv(stores):
    return stores.open()
