"""Every store that a test of bulk writes makes is closed after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvmodels.engines.memory.engine import MemoryEngine


@pytest.fixture(autouse=True)
def _closed_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests with lost answers make a store for every request that can fail, and each sweeps the tokens in it."""
    made: list[MemoryEngine] = []
    begin = MemoryEngine.__init__

    def noted(self: MemoryEngine, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        made.append(self)

    monkeypatch.setattr(MemoryEngine, "__init__", noted)
    yield
    for engine in made:
        engine.close()
