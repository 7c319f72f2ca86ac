"""Work on the schema that an earlier version has left half done is finished by the present one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kvmodels import Database, KvModel, UniqueViolationError
from tests.golden import story, story_of_kinds, story_of_upgrades
from tests.golden.story import database, golden_rows, rows_of, store_of

FOLDER = Path(__file__).parent


class Unfinished(NamedTuple):
    """A stage of a story, and how it is gone on with until the stage that it leads to."""

    folder: str
    stage: str
    until: str
    models: tuple[type[KvModel], ...]
    go_on: Callable[[Database], Any]


def built_users(db: Database) -> None:
    db.build_indexes(story.NewUser)
    db[story.NewUser].create(id=5, email="zoe@x.org", login="zoe", color="green", nick="zoe", desk="F")


def rebuilt_users(db: Database) -> None:
    db.drop_index(story.NewUser, "oldest")
    db.build_indexes(story.NewUser)


def rebuilt_places(db: Database) -> None:
    db.build_indexes(story_of_kinds.NewPlace)
    db[story_of_kinds.NewPlace].create(id=6, name="Rom", country="IT", population=2_800_000, names=["Roma"], score=1.5)


def migrated_books(db: Database) -> None:
    db.migrate(story_of_upgrades.NewBook)
    db[story_of_upgrades.NewBook].patch(2, isbn="03")
    db.apply()


USERS = (story.Column, story.NewUser)
BOOKS = (story_of_upgrades.NewBook,)
UNFINISHED = (
    Unfinished("format_1", "3_half_a_build", "4_built_with_violations", USERS, built_users),
    Unfinished("format_1", "5_half_a_drop", "6_rebuilt", USERS, rebuilt_users),
    Unfinished(
        "format_1_kinds",
        "4_half_a_build",
        "5_rebuilt",
        (story_of_kinds.NewPlace,),
        rebuilt_places,
    ),
    Unfinished("format_1_upgrades", "2_raised", "5_migrated", BOOKS, migrated_books),
    Unfinished("format_1_upgrades", "3_half_a_migration", "5_migrated", BOOKS, migrated_books),
    Unfinished("format_1_upgrades", "4_with_a_record_left", "5_migrated", BOOKS, migrated_books),
)


def kept(rows: list[dict[str, Any]]) -> list[tuple[str, str, int | None]]:
    """Return the stored rows without tokens and versionstamps, because another process continues the work."""
    return [(row["parts"], row["value"], row["expire_at"]) for row in rows if "'token'" not in row["parts"]]


@pytest.mark.parametrize("one", UNFINISHED, ids=lambda one: f"{one.folder}-{one.stage}")
def test_what_an_earlier_version_has_left_half_done_is_finished(one: Unfinished):
    db = database(store_of(golden_rows(FOLDER / one.folder, one.stage)), *one.models, tokens="later")
    one.go_on(db)
    assert kept(rows_of(db._engine)) == kept(golden_rows(FOLDER / one.folder, one.until))
    assert db.check().ok


def test_records_of_both_schema_versions_are_read_and_written_beside_a_migration_of_before():
    """Of the stage in which records of both versions are stored."""
    book = story_of_upgrades.NewBook
    db = database(store_of(golden_rows(FOLDER / "format_1_upgrades", "4_with_a_record_left")), *BOOKS)
    stored = {entry.key[1]: entry.value.get("$kv", {}).get("v", 1) for entry in db.kv.list(prefix=("books",))}
    assert set(stored.values()) == {1, 2}
    assert [(one.id, one.isbn, one.title, one.pages) for one in db[book].all()] == [
        (0, "01", "Book 0", 1),
        (1, "02", "Book 1", 11),
        (2, "01", "Book 2", 21),
        (3, "04", "Book 3", 31),
    ]
    with pytest.raises(UniqueViolationError):
        db[book].patch(0, year=1950)
    assert db[book].patch(0, isbn="00", year=1950).pages == 1
    assert db.kv.get(("books", 0)).value["$kv"]["v"] == 2
    assert db.apply().complete
    assert db.check().ok
