"""The examples of Deno's page on secondary indexes give the results and the keys of the page."""

from __future__ import annotations

import pytest

from examples.deno_secondary_indexes import (
    User,
    delete_user,
    get_user,
    get_user_by_email,
    get_users_by_favorite_color,
    insert_user,
    run,
)
from kvmodels import AlreadyExistsError, Database, UniqueViolationError


@pytest.fixture
def db():
    with Database("memory://", models=[User]) as opened:
        yield opened


def ada(**changes: str) -> User:
    return User(**{"id": "1", "name": "Ada", "email": "ada@example.org", "favorite_color": "red"} | changes)


def test_an_inserted_user_is_found_by_id_and_by_address_and_by_colour(db):
    insert_user(db, ada())
    assert get_user(db, "1") == ada()
    assert get_user_by_email(db, "ada@example.org") == ada()
    assert get_users_by_favorite_color(db, "red") == [ada()]
    assert get_user(db, "2") is None


def test_the_keys_are_those_of_the_page_and_each_holds_the_record(db):
    insert_user(db, ada())
    rows = [
        db.kv.get(("users", "1")),
        db.kv.get(("users_by_email", "ada@example.org")),
        db.kv.get(("users_by_favorite_color", "red", "1")),
    ]
    assert [row.value for row in rows] == [ada().model_dump()] * 3
    assert len({row.versionstamp for row in rows}) == 1


@pytest.mark.parametrize(
    ("other", "error"), [({"email": "b@example.org"}, AlreadyExistsError), ({"id": "2"}, UniqueViolationError)]
)
def test_a_second_user_with_the_same_id_or_address_is_refused_and_changes_nothing(db, other, error):
    insert_user(db, ada())
    before = list(db.kv.list(prefix=()))
    with pytest.raises(error):
        insert_user(db, ada(**other))
    assert list(db.kv.list(prefix=())) == before


def test_a_deleted_user_is_gone_under_every_key(db):
    insert_user(db, ada())
    assert delete_user(db, "1") is True
    assert delete_user(db, "1") is False
    assert get_user_by_email(db, "ada@example.org") is None
    assert get_users_by_favorite_color(db, "red") == []
    assert [*db.kv.list(prefix=("users_by_email",)), *db.kv.list(prefix=("users_by_favorite_color",))] == []


def test_a_delete_removes_the_address_that_the_user_has_by_then(db):
    insert_user(db, ada())
    db[User].patch("1", email="lovelace@example.org")
    assert delete_user(db, "1")
    assert list(db.kv.list(prefix=("users_by_email",))) == []


def test_the_example_prints_what_is_stored(tmp_path):
    for url in ("memory://", str(tmp_path / "deno.db")):
        lines = run(url)
        assert any(line.startswith("('users_by_favorite_color', 'blue', '2') -> {'id': '2'") for line in lines)
        assert "deleted user 1: True, again: False" in lines
        assert "user 1: None, by address: None" in lines
