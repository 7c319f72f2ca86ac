"""The default order of a model: where it applies, where it does not, and declarations that are refused."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from kvmodels import (
    AsyncDatabase,
    Count,
    Database,
    Field,
    GeoIndex,
    GeoPoint,
    Index,
    Indexed,
    KvModel,
    Max,
    ModelDefinitionError,
    MultiIndexed,
    NoUsableIndexError,
    PrimaryKey,
)


class Post(KvModel, collection="posts"):
    id: PrimaryKey[int]
    author: Indexed[str]
    created: int
    title: str
    place: GeoPoint = Field(default_factory=lambda: GeoPoint(lat=0, lon=0))

    class Meta:
        ordering = ("-created", "title")
        indexes = (Index("-created", "title"), Index("author", "-created", "title"), GeoIndex("place"))


class Draft(KvModel, collection="drafts"):
    id: PrimaryKey[int]
    author: Indexed[str]
    created: int

    class Meta:
        ordering = ["created"]


def post(n: int) -> Post:
    return Post(id=n, author="ab"[n % 2], created=n * 7 % 5, title=f"t{n * 3 % 4}")


def in_order(posts: list[Post]) -> list[int]:
    return [one.id for one in sorted(posts, key=lambda one: (-one.created, one.title, one.id))]


POSTS = [post(n) for n in range(12)]
OF_A = [one for one in POSTS if one.author == "a"]


@pytest.fixture
def posts():
    db = Database("memory://", models=[Post, Draft])
    db[Post].bulk_create(POSTS)
    db[Draft].bulk_create([Draft(id=n, author="ab"[n % 2], created=-n) for n in range(4)])
    return db[Post]


def ids(results: Any) -> list[int]:
    return [one.id for one in results]


def test_query_sets_without_an_order_have_the_default_one(posts):
    assert ids(posts) == ids(posts.all()) == ids(posts.to_list()) == in_order(POSTS)
    assert ids(posts.filter(author="a")) == in_order(OF_A)
    assert posts.first().id == in_order(POSTS)[0]
    assert posts.last().id == in_order(POSTS)[-1]
    assert posts[3].id == in_order(POSTS)[3]
    assert ids(posts.filter(author="a")[1:4]) == in_order(OF_A)[1:4]
    assert ids(posts.reverse()) == [
        one.id for one in sorted(POSTS, key=lambda one: (one.created, _turned(one.title), -one.id))
    ]
    assert posts.values_list("id", flat=True).to_list() == in_order(POSTS)
    first = posts.page(size=5)
    assert ids(first) + ids(posts.page(size=50, after=first.next_cursor)) == in_order(POSTS)
    assert posts.filter(author="a").explain().order[:2] == ("-created", "title")


def _turned(text: str) -> tuple[int, ...]:
    return tuple(-ord(one) for one in text)


def test_an_order_of_the_query_replaces_it_and_none_removes_it(posts):
    assert ids(posts.order_by("id")) == list(range(12))
    assert ids(posts.filter(author="a").order_by()) == ids(OF_A)
    assert posts.earliest("created").created == 0


def test_results_that_no_order_affects_need_no_index_for_it(posts, drafts):
    mine = drafts.filter(author="a")
    assert (mine.count(), mine.exists()) == (2, True)
    assert mine[:1].count() == 1
    assert mine.aggregate(Max("created")) == {"created__max": 0}
    assert drafts.group_by("author").aggregate(n=Count()).to_list() == [
        {"author": "a", "n": 2},
        {"author": "b", "n": 2},
    ]
    assert mine.values("author").distinct().to_list() == [{"author": "a"}]
    assert drafts.values_list("author", flat=True).distinct().to_list() == ["a", "b"]
    assert mine.update(created=5).written == 2
    assert mine.delete().written == 2
    assert [hit.record.id for hit in posts.nearest("place", GeoPoint(lat=0, lon=0))[:2]] == [0, 1]


@pytest.fixture
def drafts():
    with Database("memory://", models=[Draft]) as db:
        db[Draft].bulk_create([Draft(id=n, author="ab"[n % 2], created=-n) for n in range(4)])
        yield db[Draft]


def test_a_default_order_that_no_index_serves_is_refused_at_use_like_any_other(drafts):
    with pytest.raises(NoUsableIndexError, match=r'Add Index\("created"\) to the indexes of Draft.Meta'):
        drafts.to_list()
    with pytest.raises(NoUsableIndexError, match=r'Add Index\("author", "created"\)'):
        drafts.filter(author="a").first()
    assert ids(drafts.order_by()) == [0, 1, 2, 3]
    assert ids(drafts.sort_in_memory()) == [3, 2, 1, 0]
    assert ids(drafts.filter(author="a").sort_in_memory()) == [2, 0]


def test_a_transaction_reads_in_the_default_order(posts):
    db = Database("memory://", models=[Post])
    db[Post].bulk_create(POSTS)
    with db.transaction() as tx:
        assert ids(tx[Post].filter(author="a")) == in_order(OF_A)


def test_classes_of_one_collection_share_it_and_abstract_classes_pass_it_on():
    class Dated(KvModel, abstract=True):
        created: Indexed[int]

        class Meta:
            ordering = ("-created",)

    class Shape(Dated, collection="shapes", discriminator="kind"):
        id: PrimaryKey[int]

    class Circle(Shape):
        kind: Literal["circle"] = "circle"

    class Square(Shape):
        kind: Literal["square"] = "square"

    class Note(Dated, collection="notes"):
        id: PrimaryKey[int]

        class Meta(Dated.Meta):
            ordering = ("pk",)

    db = Database("memory://", models=[Shape, Circle, Square, Note])
    db[Shape].bulk_create([(Circle if n % 2 else Square)(id=n, created=n) for n in range(4)])
    db[Note].bulk_create([Note(id=n, created=-n) for n in range(3)])
    assert ids(db[Shape]) == [3, 2, 1, 0]
    assert ids(db[Circle].sort_in_memory()) == [3, 1]
    assert ids(db[Note]) == [0, 1, 2]
    with pytest.raises(ModelDefinitionError, match="first class of a collection"):

        class Oval(Shape):
            kind: Literal["oval"] = "oval"

            class Meta(Dated.Meta):
                ordering = ("created",)


@pytest.mark.parametrize(
    ("ordering", "message"),
    [
        ("created", "not a tuple"),
        ((1,), "not a tuple"),
        (("-creatd",), "creat"),
        (("tags",), "no order"),
        (("other__name",), "does not have"),
    ],
)
def test_wrong_declarations_are_refused_when_the_class_is_created(ordering, message):
    with pytest.raises(ModelDefinitionError, match=message) as caught:

        class Wrong(KvModel, collection="wrong"):
            id: PrimaryKey[int]
            created: int
            tags: MultiIndexed[list[str]]

            class Meta:
                pass

            Meta.ordering = ordering  # type: ignore[attr-defined]

    assert caught.value.option == "ordering"


async def test_asynchronous_query_sets_have_the_default_order():
    async with AsyncDatabase("memory://", models=[Post]) as db:
        await db[Post].bulk_create(POSTS)
        assert [one.id async for one in db[Post].filter(author="a")] == in_order(OF_A)
        assert await db[Post].filter(author="a").count() == 6
