"""A store of each engine with a clock that a test moves by hand, and one per engine with the clock of the system."""

from __future__ import annotations

import pytest

from kvmodels.engines.memory import MemoryEngine
from kvmodels.engines.sqlite import SqliteEngine
from tests.kv.stores import Clock


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
def engine(request, tmp_path, clock):
    """An engine whose clock stands still."""
    opened = (
        MemoryEngine(clock=clock)
        if request.param == "memory"
        else SqliteEngine(tmp_path / "queue.db", durability="relaxed", clock=clock)
    )
    yield opened
    opened.close()


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    """A store that is shared by every handle of this test."""
    return f"memory://{tmp_path.name}" if request.param == "memory" else str(tmp_path / "queue.db")
