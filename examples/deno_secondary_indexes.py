"""The two examples of Deno's page on secondary indexes, as models; prints what is stored.

The page keeps a copy of the value under each secondary key, which is ``store="record"`` here. The keys are the page's,
part by part: ``["users", id]``, ``["users_by_email", email]``, ``["users_by_favorite_color", color, id]``.

Rules of this module: each function carries the name that it has on the page, and nothing is left out.
"""

from __future__ import annotations

import sys
from typing import Annotated

from kvmodels import Database, Indexed, KvModel, PrimaryKey, Unique, UniqueViolationError


class User(KvModel, collection="users"):
    """A user, found by id, by e-mail address, and by favourite colour."""

    id: PrimaryKey[str]
    name: str
    email: Annotated[str, Unique(store="record")]
    favorite_color: Annotated[str, Indexed(store="record")]


def insert_user(db: Database, user: User) -> None:
    """Store a user; neither the id nor the address may exist."""
    db[User].insert(user)


def get_user(db: Database, user_id: str) -> User | None:
    """Find a user by id."""
    return db[User].get_or_none(user_id)


def get_user_by_email(db: Database, email: str) -> User | None:
    """Find a user by e-mail address."""
    return db[User].get_or_none(email=email)


def delete_user(db: Database, user_id: str) -> bool:
    """Delete a user with all entries, however often others change the record meanwhile."""
    return db[User].remove(user_id)


def get_users_by_favorite_color(db: Database, color: str) -> list[User]:
    """All users with this favourite colour."""
    return db[User].filter(favorite_color=color).to_list()


def stored_keys(db: Database) -> list[str]:
    """The rows of this collection, as a Deno program would list them."""
    prefixes = ("users", "users_by_email", "users_by_favorite_color")
    return [f"{entry.key} -> {entry.value}" for prefix in prefixes for entry in db.kv.list(prefix=(prefix,))]


def run(url: str) -> list[str]:
    """Both examples; returns the lines to print."""
    lines: list[str] = []
    with Database(url, models=[User]) as db:
        insert_user(db, User(id="1", name="Ada", email="ada@example.org", favorite_color="red"))
        insert_user(db, User(id="2", name="Bob", email="bob@example.org", favorite_color="blue"))
        insert_user(db, User(id="3", name="Eve", email="eve@example.org", favorite_color="red"))
        lines += ["stored:", *stored_keys(db), ""]
        lines.append(f"user 1: {get_user(db, '1')!r}")
        lines.append(f"bob@example.org: {get_user_by_email(db, 'bob@example.org')!r}")
        lines.append(f"red: {[user.name for user in get_users_by_favorite_color(db, 'red')]}")
        try:
            insert_user(db, User(id="4", name="Impostor", email="ada@example.org", favorite_color="grey"))
        except UniqueViolationError as error:
            lines.append(f"refused: {error}")
        lines.append(f"deleted user 1: {delete_user(db, '1')}, again: {delete_user(db, '1')}")
        lines.append(f"user 1: {get_user(db, '1')!r}, by address: {get_user_by_email(db, 'ada@example.org')!r}")
        lines += ["", "stored:", *stored_keys(db)]
    return lines


if __name__ == "__main__":
    print("\n".join(run(sys.argv[1] if len(sys.argv) > 1 else "memory://")))
