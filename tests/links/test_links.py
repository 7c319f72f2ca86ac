"""Links are added, removed, replaced and read, on each embedded engine and in transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from kvmodels import (
    CASCADE,
    AsyncDatabase,
    Database,
    ForeignKey,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    Limits,
    ManyToMany,
    OperationTooLargeError,
    PrimaryKey,
    ReferenceViolationError,
    TransactionConflictError,
)
from kvmodels.engines.memory.engine import MemoryEngine
from tests.limited_engine import LimitedEngine
from tests.links.models import MODELS, Authorship, Book, Person, Post, Tag
from tests.query.engines import watched


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database with three tags and two posts, on each embedded engine."""
    urls = {"memory": "memory://", "sqlite": str(tmp_path / "store.db"), "lmdb": f"lmdb:///{tmp_path / 'store.lmdb'}"}
    with Database(urls[request.param], models=MODELS) as opened:
        stocked(opened)
        yield opened
        assert opened.check().ok


def stocked(db: Database) -> None:
    db[Tag].bulk_create([Tag(id=number, name=name) for number, name in enumerate(("red", "blue", "green"))])
    db[Post].bulk_create([Post(id=1), Post(id=2)])


def names(db: Database, *posts: int) -> list[list[str]]:
    found = db[Post].links(Post.tags).fetch(posts)
    return [[tag.name for tag in found[post]] for post in posts]


def test_links_are_added_once_removed_replaced_and_cleared(db: Database):
    tags, post = db[Post].links(Post.tags), db[Post].get(1)
    assert tags.add(post, 0, db[Tag].get(1), 0) == 2
    assert tags.add(1, 1, 2) == 1
    assert names(db, 1, 2) == [["red", "blue", "green"], []]
    assert tags.remove(post, 1, 1) == 1
    assert tags.remove(post, 1) == 0
    assert tags.set(post, [1, 2]) == 2
    assert tags.set(post, [2, 1]) == 0
    assert names(db, 1) == [["blue", "green"]]
    assert tags.clear(post) == 2
    assert tags.clear(post) == 0
    assert tags.add(post) == 0
    assert names(db, 1) == [[]]


def test_each_change_is_one_commit():
    db, engine = watched(MODELS)
    stocked(db)
    tags = db[Post].links(Post.tags)
    for change in (lambda: tags.add(1, 0, 1, 2), lambda: tags.set(1, [1]), lambda: tags.clear(1)):
        engine.meter.reset()
        assert change() > 0
        assert engine.meter.commits == 1


@pytest.mark.fast_kinds
@pytest.mark.parametrize(("ranges", "requests"), [(None, 1 + 1), (9, 3 + 5)])
def test_a_page_is_read_with_its_links_in_a_request_for_the_links_and_one_for_their_records(
    ranges: int | None, requests: int
):
    db, engine = watched(MODELS, max_ranges=ranges)
    db[Tag].bulk_create([Tag(id=number, name="x") for number in range(40)], batch_size=3)
    db[Post].bulk_create([Post(id=number) for number in range(20)], batch_size=3)
    tags = db[Post].links(Post.tags)
    for post in range(20):
        tags.add(post, post, post + 20)
    page = db[Post].order_by("pk").page(size=20)
    engine.meter.reset()
    found = tags.fetch(page.items)
    assert engine.meter.reads == requests
    assert {key: [tag.id for tag in tags] for key, tags in found.items()} == {n: [n, n + 20] for n in range(20)}


def test_links_of_other_relations_and_owners_stay(db: Database):
    tags, hidden = db[Post].links(Post.tags), db[Post].links(Post.hidden_tags)
    tags.add(1, 0, 1)
    tags.add(2, 1)
    hidden.add(1, 1, 2)
    assert tags.set(1, [2]) == 3
    assert names(db, 1, 2) == [["green"], ["blue"]]
    assert hidden.fetch([1])[1] == db[Tag].filter(pk__in=[1, 2]).to_list()
    assert {key: [post.id for post in posts] for key, posts in tags.fetch_owners([0, 1, 2]).items()} == {
        0: [],
        1: [2],
        2: [1],
    }


def test_a_removal_of_either_side_removes_its_links(db: Database):
    tags = db[Post].links(Post.tags)
    tags.add(1, 0, 1)
    tags.add(2, 1)
    db[Tag].remove(1)
    assert names(db, 1, 2) == [["red"], []]
    db[Post].remove(1)
    assert db[tags.model].count() == 0


def test_a_record_has_links_to_records_of_its_own_model(db: Database):
    for name in ("ann", "bob", "cy"):
        db[Person].create(name=name)
    friends = db[Person].links(Person.friends)
    assert friends.add("ann", "ann", "bob") == 2
    assert [one.name for one in friends.fetch(["ann"])["ann"]] == ["ann", "bob"]
    assert friends.fetch_owners(["bob"]) == {"bob": [Person(name="ann")]}
    assert friends.fetch(["bob"]) == {"bob": []}
    assert [one.name for one in db[Person].filter(friends="bob")] == ["ann"]
    assert [one.name for one in db[Person].filter(friend_of="ann")] == ["ann", "bob"]


def test_links_of_a_model_of_ones_own_have_its_defaults(db: Database):
    db[Person].bulk_create([Person(name="ann"), Person(name="bob")])
    db[Book].create(id=1)
    authors = db[Book].links(Book.authors)
    db[Authorship].create(person_id="ann", book_id=1, role="editor")
    assert authors.add(1, "ann", "bob") == 1
    assert [one.role for one in db[Authorship].order_by("pk")] == ["editor", "author"]
    assert authors.fetch([1]) == {1: [Person(name="ann"), Person(name="bob")]}
    assert authors.set(1, ["bob"]) == 1
    assert db[Book].filter(authors__name="bob").to_list() == [Book(id=1)]
    assert authors.model is Authorship


def test_a_missing_or_wrong_side_is_refused_and_nothing_is_written(db: Database):
    tags = db[Post].links(Post.tags)
    tags.add(1, 0)
    for change in (lambda: tags.add(1, 1, 9), lambda: tags.add(9, 1), lambda: tags.set(1, [1, 9])):
        with pytest.raises(ReferenceViolationError):
            change()
    wrong: list[Any] = [None, "red", Post(id=1)]
    for target in wrong:
        with pytest.raises(InvalidValueError):
            tags.add(1, target)
        with pytest.raises(InvalidValueError):
            tags.remove(1, target)
    not_a_list: Any = 3
    with pytest.raises(InvalidArgumentError, match="list"):
        tags.set(1, not_a_list)
    assert tags.set(9, []) == 0
    assert names(db, 1) == [["red"]]


def test_a_transaction_sees_its_own_links_and_commits_them_together(db: Database):
    db[Post].links(Post.tags).add(1, 0)
    with db.transaction() as tx:
        tags = tx[Post].links(Post.tags)
        assert tags.set(1, [1]) == 2
        assert tags.add(1, 1, 2) == 1
        assert tags.set(1, [0, 2]) == 2
        tx[Post].create(id=3)
        tags.add(3, 0)
        assert [tag.name for tag in tags.fetch([1])[1]] == ["red", "green"]
        assert [post.id for post in tx[Post].filter(tags=0)] == [1, 3]
        assert names(db, 1) == [["red"]]
    assert names(db, 1, 3) == [["red", "green"], ["red"]]


def test_a_transaction_that_replaced_links_conflicts_with_a_link_that_another_added(db: Database):
    tags = db[Post].links(Post.tags)
    with pytest.raises(TransactionConflictError), db.transaction() as tx:
        tx[Post].links(Post.tags).set(1, [1])
        tags.add(1, 0)
    assert names(db, 1) == [["red"]]
    with db.transaction() as tx:
        tx[Post].links(Post.tags).add(1, 1)
        tags.add(1, 2)
    assert names(db, 1) == [["red", "blue", "green"]]


def test_links_are_the_same_with_an_event_loop():
    async def program() -> None:
        async with AsyncDatabase("memory://", models=MODELS) as db:
            await db[Tag].bulk_create([Tag(id=0, name="red"), Tag(id=1, name="blue")])
            post = await db[Post].create(id=1)
            tags = db[Post].links(Post.tags)
            assert await tags.add(post, 0, 1) == 2
            assert await tags.remove(post, 0) == 1
            assert await tags.set(post, [0]) == 2
            assert await tags.fetch([post]) == {1: [await db[Tag].get(0)]}
            assert await tags.fetch_owners([0, 1]) == {0: [post], 1: []}
            assert await db[Post].filter(tags__name="red").to_list() == [post]
            async with db.transaction() as tx:
                assert await tx[Post].links(Post.tags).clear(post) == 1
            assert await tags.fetch([1]) == {1: []}

    asyncio.run(program())


class Need(KvModel, collection="needs"):
    id: PrimaryKey[int]
    tags: ManyToMany[Tag] = ManyToMany(through="NeedTag")


class NeedTag(KvModel, collection="need_tags"):
    need_id: Annotated[ForeignKey[int, Need], PrimaryKey(), CASCADE]
    tag_id: Annotated[ForeignKey[int, Tag], PrimaryKey(), CASCADE]
    amount: int


def test_a_link_with_values_is_written_as_a_record_of_its_model():
    with Database("memory://", models=[Tag, Need, NeedTag]) as db:
        db[Tag].create(id=1, name="red")
        db[Need].create(id=1)
        tags = db[Need].links(Need.tags)
        for change in (lambda: tags.add(1, 1), lambda: tags.set(1, [1])):
            with pytest.raises(InvalidArgumentError) as refused:
                change()
            assert refused.value.expected == ("amount",)
            assert "db[NeedTag].create(need_id=..., tag_id=..., amount=...)" in str(refused.value)
        db[NeedTag].create(need_id=1, tag_id=1, amount=3)
        assert [tag.id for tag in tags.fetch([1])[1]] == [1]
        assert tags.clear(1) == 1


def test_a_change_that_is_too_large_for_one_commit_is_refused_with_the_way_to_write_it():
    db, _ = watched(MODELS, engine=LimitedEngine(MemoryEngine(), Limits.DENOKV_SERVER), snapshots=False)
    with db:
        db[Tag].bulk_create([Tag(id=number, name="x") for number in range(30)], batch_size=2)
        db[Post].create(id=1)
        tags = db[Post].links(Post.tags)
        for start in range(0, 30, 3):
            tags.add(1, *range(start, start + 3))
        for change in (lambda: tags.clear(1), lambda: tags.set(1, [0]), lambda: tags.remove(1, *range(30))):
            with pytest.raises(OperationTooLargeError) as refused:
                change()
            assert "db[PostTags].filter(...).delete()" in str(refused.value)
        assert len(tags.fetch([1])[1]) == 30
        db[tags.model].filter(owner_id=1).delete(batch_size=2)
        assert tags.fetch([1]) == {1: []}
