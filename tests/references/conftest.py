from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvmodels import Database
from tests.references import monitors as monitoring
from tests.references.models import MODELS


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of all models, on each embedded engine."""
    urls = {"memory": "memory://", "sqlite": str(tmp_path / "store.db"), "lmdb": f"lmdb:///{tmp_path / 'store.lmdb'}"}
    with Database(urls[request.param], models=MODELS) as opened:
        yield opened
        report = opened.check()
        assert not report.dangling_references, report
        assert not report.stray_guards, report


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def monitors(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database for checks of projects, on each embedded engine."""
    urls = {"memory": "memory://", "sqlite": str(tmp_path / "store.db"), "lmdb": f"lmdb:///{tmp_path / 'store.lmdb'}"}
    with Database(urls[request.param], models=monitoring.MODELS) as opened:
        yield opened


@pytest.fixture
def db_of_monitors() -> Iterator[Database]:
    """The same in memory, with drawn records."""
    with Database("memory://", models=monitoring.MODELS) as opened:
        monitoring.stocked(opened, random.Random(2))
        yield opened
