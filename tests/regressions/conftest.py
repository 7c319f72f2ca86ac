"""Fixtures: an empty store of accounts on both engines."""

from __future__ import annotations

import pytest

from tests.regressions.stores import exact, opened
from tests.zoo import Account


@pytest.fixture(params=["memory", "sqlite"])
def engine(request):
    return request.param


@pytest.fixture
def db(engine, tmp_path):
    with opened(engine, tmp_path, Account) as db:
        yield db
        exact(db, Account)


@pytest.fixture
def accounts(db):
    return db[Account]
