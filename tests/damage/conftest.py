"""Fixtures: the same small store on both engines."""

from __future__ import annotations

import pytest

from tests.damage.stores import open_zoo


@pytest.fixture(params=["memory", "sqlite"])
def zoo(request, tmp_path):
    opened = open_zoo(request.param, tmp_path)
    yield opened
    opened.db.close()
