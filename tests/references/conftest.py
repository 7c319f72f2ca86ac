from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvmodels import Database
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
