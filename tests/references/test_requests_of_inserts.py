"""How many requests a write needs that refers to other records."""

from __future__ import annotations

import pytest

from kvmodels import UniqueViolationError
from tests.references.models import MODELS, Author, Book, Cover


@pytest.fixture
def kv_models():
    return MODELS


def test_a_record_with_foreign_keys_and_unique_values_is_inserted_with_one_read(kv_db, kv_assert_calls):
    kv_db[Author].create(id=1)
    kv_db[Book].bulk_create([Book(id=number, author_id=1) for number in range(20)])
    with kv_assert_calls(reads=1, commits=1):
        kv_db[Cover].create(id=1, book_id=1)
    with kv_assert_calls(reads=1, commits=1):
        kv_db[Cover].bulk_create([Cover(id=number, book_id=number) for number in range(2, 20)])
    with kv_assert_calls(commits=0), pytest.raises(UniqueViolationError):
        kv_db[Cover].create(id=20, book_id=1)
