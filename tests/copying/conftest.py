"""Fixtures: stores on memory and on SQLite, synchronous and asynchronous."""

from __future__ import annotations

import pytest

from tests.kv.stores import Stores


@pytest.fixture(params=["memory-sync", "memory-async", "sqlite-sync", "sqlite-async"])
def stores(request, tmp_path):
    engine, world = request.param.split("-")
    opened = Stores(engine, world, tmp_path)
    yield opened
    opened.close()
