"""Fixtures: the same small store on both engines."""

from __future__ import annotations

import pytest

from tests.damage.stores import open_house, open_zoo
from tests.zoo_kinds import Guest


@pytest.fixture(params=["memory", "sqlite"])
def zoo(request, tmp_path):
    opened = open_zoo(request.param, tmp_path)
    yield opened
    opened.db.close()


@pytest.fixture(params=["memory", "sqlite"])
def house(request, tmp_path):
    """Residents: every newer kind of index."""
    opened = open_house(request.param, tmp_path)
    yield opened
    opened.db.close()


@pytest.fixture(params=["memory", "sqlite"])
def guests(request, tmp_path):
    """Guests: without counters, so that records may have deadlines."""
    opened = open_house(request.param, tmp_path, Guest)
    yield opened
    opened.db.close()
