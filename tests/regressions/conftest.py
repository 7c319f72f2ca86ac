"""Fixtures: an empty store of accounts on every engine."""

from __future__ import annotations

import pytest

from tests.regressions.stores import exact, opened
from tests.zoo import Account


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def engine(request):
    return request.param


@pytest.fixture
def db(engine, tmp_path, quick_folder):
    with opened(engine, quick_folder if engine == "lmdb" else tmp_path, Account) as db:
        yield db
        exact(db, Account)


@pytest.fixture
def accounts(db):
    return db[Account]
