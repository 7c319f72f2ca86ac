"""Filters by many-to-many relations equal a Python program over all records."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final, NamedTuple

import pytest

from kvmodels import (
    Count,
    Database,
    Expression,
    InvalidArgumentError,
    OperationTooLargeError,
    Q,
    UnknownFieldError,
    UnknownLookupError,
    col,
)
from kvmodels.flows.reading import semi_join
from tests.links.models import MODELS, Book, Comment, Person, Post, Tag

TAGS: Final = 6
Links = dict[str, dict[int, list[int]]]
"""The tags of each post, for each relation."""


class Family(NamedTuple):
    tags: dict[int, Tag]
    posts: dict[int, Post]
    links: Links


def stocked(db: Database, drawn: random.Random, posts: int = 12) -> Family:
    tags = [
        Tag(id=n, name=drawn.choice("rgb"), weight=drawn.randrange(3), parent_id=drawn.choice([None, *range(n)]))
        for n in range(TAGS)
    ]
    db[Tag].bulk_create(tags)
    records = [Post(id=n, title=drawn.choice("xyz")) for n in range(posts)]
    db[Post].bulk_create(records, batch_size=5)
    links: Links = {"tags": {}, "hidden_tags": {}}
    for name, relation in (("tags", Post.tags), ("hidden_tags", Post.hidden_tags)):
        for post in records:
            links[name][post.id] = sorted(drawn.sample(range(TAGS), drawn.choice([0, 1, 1, 2, 3])))
            db[Post].links(relation).set(post, links[name][post.id])
    return Family({tag.id: tag for tag in tags}, {post.id: post for post in records}, links)


Chosen = dict[str, int | None]
"""For each relation, the tag of the link that the conditions hold for; None for no link."""


class Condition(NamedTuple):
    """A drawn condition, and its test of a post for one choice of links."""

    query: Any
    holds: Callable[[Family, int, Chosen], bool]


def leaf(drawn: random.Random) -> Condition:
    if drawn.random() < 0.25:
        title = drawn.choice("xyz")
        return Condition(Q(title=title), lambda family, post, _: family.posts[post].title == title)
    name = drawn.choice(["tags", "tags", "hidden_tags"])
    ref = Post.tags if name == "tags" else Post.hidden_tags
    tag, text, weight = drawn.randrange(TAGS), drawn.choice("rgb"), drawn.randrange(3)
    tests: list[tuple[Any, Callable[[Family, Tag], bool]]] = [
        (Q(**{f"{name}__name": text}), lambda _, one: one.name == text),
        (ref.to(Tag.name) == text, lambda _, one: one.name == text),
        (Q(**{name: tag}), lambda _, one: one.id == tag),
        (Q(**{f"{name}__in": [tag, weight]}), lambda _, one: one.id in (tag, weight)),
        (Q(**{f"{name}__pk__lt": tag}), lambda _, one: one.id < tag),
        (ref.to(col(Tag.weight)) >= weight, lambda _, one: one.weight >= weight),
        (Q(**{f"{name}__name__ne": text}), lambda _, one: one.name != text),
        (
            Q(**{f"{name}__parent__name": text}),
            lambda family, one: one.parent_id is not None and family.tags[one.parent_id].name == text,
        ),
        (Q(**{f"{name}__isnull": False}), lambda _, one: True),
    ]
    query, test = drawn.choice(tests)

    def holds(family: Family, post: int, chosen: Chosen) -> bool:
        found = chosen[name]
        return found is not None and test(family, family.tags[found])

    return Condition(query, holds)


def drawn_condition(drawn: random.Random, depth: int = 2, *, negations: bool = True) -> Condition:
    kind = drawn.choice(["leaf", "and", "or", "not"] if depth else ["leaf"])
    if kind == "leaf" or (kind == "not" and not negations):
        return leaf(drawn)
    if kind == "not":
        inner = drawn_condition(drawn, depth - 1, negations=False)
        return Condition(~inner.query, lambda family, post, _: not holds_for_some(family, post, inner))
    parts = [drawn_condition(drawn, depth - 1, negations=negations) for _ in range(drawn.choice([2, 2, 3]))]
    query = parts[0].query
    for part in parts[1:]:
        query = query & part.query if kind == "and" else query | part.query
    test = all if kind == "and" else any
    return Condition(query, lambda family, post, chosen: test(part.holds(family, post, chosen) for part in parts))


def choices(family: Family, post: int) -> Iterator[Chosen]:
    names = list(family.links)
    for tags in product(*([None, *family.links[name][post]] for name in names)):
        yield dict(zip(names, tags, strict=True))


def holds_for_some(family: Family, post: int, condition: Condition) -> bool:
    """Whether conditions hold for one link of each relation."""
    return any(condition.holds(family, post, chosen) for chosen in choices(family, post))


def check_drawn(query_set: Any, family: Family, drawn: random.Random, rounds: int) -> None:
    for _ in range(rounds):
        given = [drawn_condition(drawn) for _ in range(drawn.choice([1, 1, 2]))]
        query = query_set.allow_scan()
        for condition in given:  # each in a call of its own, so they hold for any two links
            query = query.filter(condition.query)
        expected = [post for post in family.posts if all(holds_for_some(family, post, one) for one in given)]
        assert [one.id for one in query.order_by("pk")] == expected, query.explain()
        assert query.count() == len(expected)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_drawn_filters_equal_a_program_over_all_records(seed: int):
    drawn = random.Random(seed)
    with Database("memory://", models=MODELS) as db:
        check_drawn(db[Post], stocked(db, drawn), drawn, 150 if seed == 1 else 3_000)


def test_drawn_filters_in_a_transaction_see_its_own_links():
    drawn = random.Random(3)
    with Database("memory://", models=MODELS) as db:
        family = stocked(db, drawn)
        with db.transaction() as tx:
            tags = tx[Post].links(Post.tags)
            for post in (1, 2):
                family.links["tags"][post] = sorted(drawn.sample(range(TAGS), drawn.randrange(3)))
                tags.set(post, family.links["tags"][post])
            tx[Tag].patch(0, name="r")
            family.tags[0].name = "r"
            with tx.unchecked():
                check_drawn(tx[Post], family, drawn, 40)


@pytest.fixture
def small() -> Iterator[Database]:
    """Post 1 is red and blue, post 2 red, post 3 blue, post 4 has no tag."""
    with Database("memory://", models=MODELS) as db:
        db[Tag].bulk_create([Tag(id=0, name="red", weight=1), Tag(id=1, name="blue", weight=2)])
        db[Post].bulk_create([Post(id=number, title=f"t{number}") for number in range(1, 5)])
        tags = db[Post].links(Post.tags)
        tags.add(1, 0, 1)
        tags.add(2, 0)
        tags.add(3, 1)
        yield db


def found(db: Database, *expressions: Expression, **lookups: Any) -> list[int]:
    return [post.id for post in db[Post].filter(*expressions, **lookups).allow_scan().order_by("pk")]


def test_conditions_of_one_filter_hold_for_one_link_and_those_of_two_for_any_two(small: Database):
    assert found(small, tags__name="red", tags__weight=2) == []
    assert found(small, Q(tags__name="red"), Q(tags__weight=2)) == []
    assert found(small, Q(tags__name="red") | Q(title="t3"), tags__weight=2) == [3]
    both = small[Post].filter(tags__name="red").allow_scan().filter(tags__weight=2)
    assert [post.id for post in both] == [1]


def test_negation_means_that_no_link_satisfies_the_conditions(small: Database):
    assert found(small, ~Q(tags__name="red")) == [3, 4]
    assert found(small, ~Q(tags__name="red", tags__weight=2)) == [1, 2, 3, 4]
    assert [post.id for post in small[Post].exclude(tags__name="red").allow_scan().order_by("pk")] == [3, 4]
    assert found(small, tags__name__ne="red") == [1, 3]
    assert found(small, tags__isnull=True) == found(small, tags=None) == [4]


def test_the_other_model_is_filtered_by_the_name_of_the_relation_there(small: Database):
    def tags(*expressions: Expression, **lookups: Any) -> list[int]:
        return [tag.id for tag in small[Tag].filter(*expressions, **lookups).order_by("pk")]

    assert tags(post__title="t2") == tags(post=2) == tags(post=small[Post].get(2)) == [0]
    assert tags(Post.tags.reverse.to(Post.title) == "t1") == [0, 1]
    small[Post].links(Post.hidden_tags).add(4, 1)
    assert tags(hidden_in__title="t4") == tags(Post.hidden_tags.reverse.to(Post.id) == 4) == [1]
    assert tags(post__title="t1", hidden_in=4) == [1]


def test_operands_are_objects_keys_and_queries(small: Database):
    red = small[Tag].get(0)
    assert found(small, tags=red) == found(small, tags__in=[red]) == found(small, tags__pk=0) == [1, 2]
    assert found(small, tags__in=small[Tag].filter(name="blue")) == [1, 3]
    assert small[Post].filter(tags=red).update(title="new").written == 2
    assert small[Post].filter(tags__name="red").delete().written == 2
    assert small[Post].filter(tags=0).count() == 0


def test_each_read_of_a_filter_is_explained(small: Database):
    explained = str(small[Post].filter(tags__name="red").explain())
    assert "target_id in at most 1,000 keys, read first from Tag: 1 range of index name" in explained
    assert "id in at most 1,000 keys, read first from PostTags: 1 range of index target_id" in explained


def test_a_relation_elsewhere_than_in_a_filter_names_the_call_that_reads_it(small: Database):
    posts, tags = small[Post], small[Tag]
    refused: list[Callable[[], object]] = [
        lambda: posts.order_by("tags__name"),
        lambda: posts.values("tags"),
        lambda: posts.values_list("tags__name"),
        lambda: posts.group_by("tags__name"),
    ]
    for call in refused:
        with pytest.raises(UnknownFieldError, match=r"db\[Post\]\.links\(Post\.tags\)\.fetch\(\[\.\.\.\]\)"):
            call()
    for call in (lambda: tags.values("post__title"), lambda: tags.order_by("post__title")):
        with pytest.raises(UnknownFieldError, match=r"db\[Post\]\.links\(Post\.tags\)\.fetch_owners"):
            call()
    no_key: Any = Post.tags
    with pytest.raises(InvalidArgumentError, match=r"links\(Post\.tags\)\.fetch"):
        posts.with_related(no_key)
    assert [[tag.name for tag in one] for one in posts.links(Post.tags).fetch([1]).values()] == [["red", "blue"]]


def test_a_path_through_a_foreign_key_to_a_relation_names_the_query(small: Database):
    small[Comment].create(id=1, post=2)
    with pytest.raises(InvalidArgumentError, match=r"post__in=db\[Post\]\.filter\(tags__"):
        small[Comment].filter(post__tags__name="red")
    red = small[Post].filter(tags__name="red")
    assert [one.id for one in small[Comment].filter(post__in=red)] == [1]


def test_a_path_through_two_relations_names_the_query(small: Database):
    calls: list[Callable[[], object]] = [
        lambda: small[Post].filter(tags__hidden_in__title="t4"),
        lambda: small[Post].filter(Post.tags.to(Post.hidden_tags.reverse.to(Post.title)) == "t4"),
    ]
    small[Post].links(Post.hidden_tags).add(4, 1)
    for call in calls:
        with pytest.raises(InvalidArgumentError, match=r"tags__in=db\[Tag\]\.filter\(hidden_in__"):
            call()
    assert found(small, tags__in=small[Tag].filter(hidden_in__title="t4")) == [1, 3]


def test_a_wrong_name_behind_a_relation_is_that_of_the_other_model(small: Database):
    with pytest.raises(UnknownFieldError) as refused:
        small[Post].filter(tags__nam="red")
    assert (refused.value.model, refused.value.suggestion) == ("Tag", "name")
    with pytest.raises(UnknownLookupError):
        small[Post].filter(tags__name__is="red")
    with pytest.raises(InvalidArgumentError, match="not a field of the target"):
        Post.tags.to(Post.title)


def test_more_records_than_keys_are_read_first_are_refused_with_the_query_of_the_links(
    small: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(semi_join, "MOST_KEYS", 1)
    with pytest.raises(OperationTooLargeError, match=r"db\[PostTags\]\.filter\(\.\.\.\)\.with_related\("):
        small[Post].filter(tags=0).to_list()
    links: Any = small[Post].links(Post.tags).model
    page = small[links].filter(target_id=0).with_related(links.owner_id).page(size=50)
    assert [post.id for _, post in page] == [1, 2]


def test_a_relation_by_a_link_model_of_ones_own_is_filtered_in_both_directions(small: Database):
    small[Person].bulk_create([Person(name="ann"), Person(name="bob")])
    small[Book].bulk_create([Book(id=1), Book(id=2)])
    small[Book].links(Book.authors).add(2, "bob", "ann")
    assert [book.id for book in small[Book].filter(authors__name="ann")] == [2]
    assert [one.name for one in small[Person].filter(books=2)] == ["ann", "bob"]


@pytest.mark.parametrize("lookup", ["contains", "contains_all", "contains_any", "gt", "startswith"])
def test_a_lookup_of_lists_is_refused_for_a_relation_by_the_name_that_was_given(small: Database, lookup: str):
    for model, name in ((Post, "tags"), (Tag, "post")):
        with pytest.raises(UnknownFieldError) as caught:
            small[model].filter(**{f"{name}__{lookup}": [1]})
        assert (caught.value.model, caught.value.field) == (model.__name__, f"{name}__{lookup}")
        assert f"filter({name}=1).filter({name}=2)" in str(caught.value)


def test_a_lookup_without_a_field_is_named(small: Database):
    with pytest.raises(UnknownFieldError) as caught:
        small[Post].filter(contains_all=[1])
    assert caught.value.field == "contains_all"


def test_numbers_of_links_name_the_key_of_the_link_model(small: Database):
    posts = small[Post]
    with pytest.raises(InvalidArgumentError, match=r"Count\(db\[Post\].links\(Post.tags\).model.owner_id\)"):
        posts.all().with_counts(n=Count(Post.tags))  # type: ignore[arg-type]
    counted = posts.all().with_counts(n=Count(posts.links(Post.tags).model.owner_id)).to_list()
    assert [numbers["n"] for _, numbers in counted] == [
        len(posts.links(Post.tags).fetch([one])[one.id]) for one, _ in counted
    ]


def test_the_other_side_of_a_foreign_key_names_the_query_that_works(small: Database):
    with pytest.raises(UnknownFieldError, match=r"exclude\(pk__in=books.values_list"):
        small[Post].filter(comment__isnull=True)
    commented = {one.post for one in small[Comment].all()}
    without = small[Post].exclude(pk__in=small[Comment].values_list("post", flat=True)).allow_scan()
    assert {one.id for one in without} == {one.id for one in small[Post].all()} - commented
