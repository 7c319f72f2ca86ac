"""A store of each engine with a clock that a test moves by hand, and one per engine with the clock of the system."""

from __future__ import annotations

import pytest

from kvmodels.engines.url import open_engine
from tests.kv.stores import Clock


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def engine(request, url_of, clock):
    """An engine whose clock stands still."""
    opened = open_engine(url_of(request.param, "queue"), durability="relaxed", clock=clock)
    yield opened
    opened.close()


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def url(request, url_of):
    """A store that is shared by every handle of this test."""
    return url_of(request.param, "queue")
