"""Two records of a transaction may claim one unique value until its commit, and every question sees both.

The records of the transaction are kept beside it in a dictionary, and each question is also answered from that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels import (
    CASCADE,
    Count,
    Database,
    F,
    Field,
    ForeignKey,
    KvModel,
    PrimaryKey,
    Q,
    Sum,
    Unique,
    UniqueConstraint,
    UniqueViolationError,
)
from kvmodels.api._sync.transaction import Transaction
from tests.worlds import MEMORY_AND_A_FILE


class Post(KvModel, collection="posts"):
    id: PrimaryKey[int]
    plain: Unique[str | None] = Field(default=None)
    covered: int | None = None
    copied: str = ""
    drafted: int = 0
    tags: list[str] = Field(default_factory=list[str])
    equal: Annotated[int | None, Unique(nulls="equal")] = None
    n: int = 0

    class Meta:
        indexes = (
            UniqueConstraint("-covered", include=("n",), name="covered"),
            UniqueConstraint("copied", "drafted", store="record", name="copied"),
            UniqueConstraint("tags", name="tags"),
            UniqueConstraint("drafted", where=Q(n__gte=2), name="drafted"),
        )


KEYS = st.integers(1, 5)
TEXTS = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(0, 3)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "plain": st.none() | TEXTS,
        "covered": st.none() | NUMBERS,
        "copied": TEXTS,
        "drafted": NUMBERS,
        "tags": st.lists(TEXTS, max_size=2, unique=True),
        "equal": st.none() | NUMBERS,
        "n": NUMBERS,
    },
)
STEPS = st.lists(st.tuples(st.sampled_from(["put", "put", "put", "remove", "update"]), KEYS, VALUES), max_size=6)
"""Verbs of a transaction: a record is created or changed, removed, or changed through one of its unique values."""


def unique_values(post: Post) -> Iterator[tuple[Any, ...]]:
    if post.plain is not None:
        yield "plain", post.plain
    if post.covered is not None:
        yield "covered", post.covered
    yield "copied", post.copied, post.drafted
    if post.n >= 2:
        yield "drafted", post.drafted
    yield from (("tags", tag) for tag in post.tags)
    yield "equal", post.equal


def clashes(posts: dict[int, Post]) -> bool:
    return any(number > 1 for number in Counter(one for post in posts.values() for one in unique_values(post)).values())


def by(posts: dict[int, Post], name: str) -> list[int]:
    """Return the keys in the order of an index, None first, and of the primary key."""
    values = {key: getattr(post, name) for key, post in posts.items()}
    return sorted(
        posts,
        key=lambda key: (values[key] is not None, values[key] or 0 if name != "plain" else values[key] or "", key),
    )


def ids(found: Any) -> list[int]:
    return [post.id for post in found]


def paged(query: Any, size: int) -> list[int]:
    page = query.page(size=size)
    found = ids(page.items)
    while page.has_more:
        page = query.page(size=size, after=page.next_cursor)
        found += ids(page.items)
    return found


def require_answers(tx: Transaction, posts: dict[int, Post]) -> None:
    """Ask the transaction through every unique index, and compare with the dictionary."""
    repository = tx[Post]
    for name in ("plain", "equal"):
        expected = by(posts, name)
        assert ids(repository.order_by(name)) == expected
        assert ids(repository.order_by(f"-{name}")) == expected[::-1]
        assert paged(repository.order_by(name), 1) == paged(repository.order_by(name), 2) == expected
        assert list(repository.order_by(name).iterator(batch_size=1)) == [posts[key] for key in expected]
    for text in ("a", "b", "c"):
        having = [key for key, post in sorted(posts.items()) if post.plain == text]
        query = repository.filter(plain=text)
        assert ids(query) == paged(query, 1) == having
        assert (query.count(), query.exists(), ids(query[:1])) == (len(having), bool(having), having[:1])
        counted = query.aggregate(Count(), Sum("n"))
        assert counted == {"count": len(having), "n__sum": sum(posts[key].n for key in having)} or counted["count"] == 0
        if len(having) < 2:
            found = repository.get_or_none(plain=text)
            assert (None if found is None else found.id) == (having[0] if having else None)
        else:
            with pytest.raises(Post.MultipleObjectsReturned):
                repository.get(plain=text)
        tagged = [key for key, post in sorted(posts.items()) if text in post.tags]
        assert sorted(ids(repository.filter(tags__contains=text))) == tagged
        for number in range(4):
            both = [key for key, post in sorted(posts.items()) if (post.copied, post.drafted) == (text, number)]
            assert ids(repository.filter(copied=text, drafted=number)) == both
    listed = [key for key, post in sorted(posts.items()) if post.plain in ("a", "c")]
    assert sorted(ids(repository.filter(plain__in=["a", "c"]))) == listed
    assert sorted(ids(repository.filter(Q(plain="a") | Q(equal=1)))) == [
        key for key, post in sorted(posts.items()) if post.plain == "a" or post.equal == 1
    ]
    for number in range(4):
        drafts = [key for key, post in sorted(posts.items()) if post.drafted == number and post.n >= 2]
        assert ids(repository.filter(drafted=number, n__gte=2)) == drafts
        values = sorted(post.n for post in posts.values() if post.covered == number)
        assert sorted(repository.filter(covered=number).values_list("n", flat=True)) == values


def step(tx: Transaction, posts: dict[int, Post], verb: str, key: int, values: dict[str, Any]) -> None:
    if verb == "update":
        text = values.get("plain") or "a"
        number = tx[Post].filter(plain=text).update(n=F("n") + 1)
        found = [post for post in posts.values() if post.plain == text]
        assert number.written == len(found)
        posts.update({post.id: post.model_copy(update={"n": post.n + 1}) for post in found})
    elif verb == "remove":
        assert tx[Post].remove(key) is (posts.pop(key, None) is not None)
    elif key in posts:
        tx[Post].patch(key, **values)
        posts[key] = posts[key].model_copy(update=values)
    else:
        posts[key] = Post(id=key, **values)
        tx[Post].create(**posts[key].model_dump())


@given(stored=st.lists(st.tuples(KEYS, VALUES), max_size=4), steps=STEPS)
def test_every_question_sees_all_records_with_a_value(stored, steps):
    db = Database(models=[Post])
    posts: dict[int, Post] = {}
    for key, values in stored:
        added = Post(id=key, **values)
        if key not in posts and not clashes({**posts, key: added}):
            posts[key] = db[Post].create(**added.model_dump())
    kept = dict(posts)
    try:
        with db.transaction() as tx:
            for verb, key, values in steps:
                step(tx, posts, verb, key, values)
            require_answers(tx, posts)
    except UniqueViolationError:
        assert clashes(posts)
        posts = kept
    else:
        assert not clashes(posts)
    assert {post.id: post for post in db[Post].all()} == posts
    assert db.check().ok


@pytest.fixture(params=MEMORY_AND_A_FILE)
def db(request, url_of) -> Iterator[Database]:
    with Database(url_of(request.param), models=[Post]) as db:
        for number in range(1, 7):
            db[Post].create(id=number, plain=f"p{number}", copied=f"c{number}", equal=number, n=1, drafted=number)
        yield db


def test_a_loop_that_gives_records_the_values_of_their_neighbours_sees_each_record_once(db):
    with db.transaction() as tx:
        seen = []
        for post in tx[Post].order_by("plain").iterator(batch_size=2):
            seen.append(post.id)
            if post.id > 1:
                tx[Post].patch(post.id, plain=f"p{post.id - 1}")
        assert seen == [1, 2, 3, 4, 5, 6]
        tx[Post].patch(1, plain="p6")
    assert [post.plain for post in db[Post].order_by("id")] == ["p6", "p1", "p2", "p3", "p4", "p5"]


def test_pages_go_on_where_a_value_is_shared_between_them(db):
    with db.transaction() as tx:
        tx[Post].patch(2, plain="p1")
        tx[Post].patch(3, plain="p1")
        first = tx[Post].order_by("plain").page(size=2)
        second = tx[Post].order_by("plain").page(size=2, after=first.next_cursor)
        assert (ids(first.items), ids(second.items)) == ([1, 2], [3, 4])
        back = tx[Post].order_by("plain").page(size=2, before=second.previous_cursor)
        assert ids(back.items) == [1, 2]
        tx[Post].patch(2, plain="p2")
        tx[Post].patch(3, plain="p3")
        assert ids(tx[Post].order_by("plain")) == [1, 2, 3, 4, 5, 6]


def test_a_cursor_from_before_the_shared_value_goes_on_after_its_record(db):
    with db.transaction() as tx:
        first = tx[Post].order_by("plain").page(size=2)
        tx[Post].patch(5, plain="p3")
        second = tx[Post].order_by("plain").page(size=2, after=first.next_cursor)
        assert (ids(first.items), ids(second.items)) == ([1, 2], [3, 5])
        tx[Post].patch(3, plain="p5")


class Desk(KvModel, collection="desks"):
    id: PrimaryKey[int]


class Clerk(KvModel, collection="clerks"):
    id: PrimaryKey[int]
    desk: Annotated[ForeignKey[int, Desk], Unique(name="desk"), CASCADE]


def test_a_cascade_removes_all_records_that_share_a_unique_foreign_key():
    db = Database(models=[Desk, Clerk])
    for number in (1, 2):
        db[Desk].create(id=number)
        db[Clerk].create(id=number, desk=number)
    with db.transaction() as tx:
        tx[Clerk].patch(2, desk=1)
        tx[Desk].remove(1)
        assert tx[Clerk].count() == 0
    assert (ids(db[Desk].all()), db[Clerk].count()) == ([2], 0)
    assert db.check().ok
