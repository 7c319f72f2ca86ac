"""Mistakes of newcomers lead to errors that name the remedy."""

from __future__ import annotations

import asyncio

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    ModelDefinitionError,
    PrimaryKey,
    StaleObjectError,
)
from tests.zoo import Account


@pytest.mark.parametrize("query", [lambda accounts: accounts, lambda accounts: accounts.all()])
def test_an_asynchronous_query_is_not_iterated_without_await(query):
    async def main():
        async with AsyncDatabase("memory://", models=[Account]) as db:
            for use in (iter, list):
                with pytest.raises(InvalidValueError, match="async for"):
                    use(query(db[Account]))
            with pytest.raises(TypeError):
                assert None in query(db[Account])

    asyncio.run(main())


@pytest.mark.parametrize("url", ["memory:", "memory:/", "Memory:name", "sqlite:app.db", "sqlite:/app.db"])
def test_a_url_with_a_slash_too_few_makes_no_file(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError) as caught:
        Database(url, models=[Account])
    assert (caught.value.argument, caught.value.value) == ("url", url)
    assert list(tmp_path.iterdir()) == []
    with Database(tmp_path / "memory:", models=[Account]):
        assert (tmp_path / "memory:").exists()


def test_the_other_model_of_a_collection_is_named():
    class Rival(KvModel, collection="accounts"):
        id: PrimaryKey[int]

    with pytest.raises(ModelDefinitionError) as caught:
        Database("memory://", models=[Account, Rival])
    assert "Account" in str(caught.value.hint)


@pytest.mark.parametrize("verb", ["save", "remove"])
def test_an_object_whose_record_is_gone_is_not_sent_to_refresh(accounts, verb):
    loaded = accounts.create(id=1)
    accounts.remove(1)
    with pytest.raises(StaleObjectError) as caught:
        getattr(accounts, verb)(loaded)
    assert caught.value.actual is None
    assert "nothing left" in str(caught.value.hint)
    accounts.save(loaded, force=True)
    assert accounts.get(1) == loaded
