"""A store that several releases open at once, each with handles and caches of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from kvmodels import Database

numbers = count(1)


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path) -> str:
    return f"memory://evolution-{next(numbers)}" if request.param == "memory" else str(tmp_path / "app.db")


@pytest.fixture
def opened(url) -> Iterator[Callable[..., Database]]:
    handles: list[Database] = []

    def open_release(*models: Any, **options: Any) -> Database:
        handles.append(Database(url, models=models, durability="relaxed", **options))
        return handles[-1]

    yield open_release
    for handle in handles:
        handle.close()
