"""A store that several releases open at once, each with handles and caches of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvmodels import Database
from tests.worlds import MEMORY_AND_A_FILE


@pytest.fixture(params=MEMORY_AND_A_FILE)
def url(request, url_of) -> str:
    return url_of(request.param)


@pytest.fixture
def opened(url) -> Iterator[Callable[..., Database]]:
    handles: list[Database] = []

    def open_release(*models: Any, **options: Any) -> Database:
        handles.append(Database(url, models=models, durability="relaxed", **options))
        return handles[-1]

    yield open_release
    for handle in handles:
        handle.close()
