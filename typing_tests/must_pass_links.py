"""Many-to-many relations: type checkers know the models of both sides."""

from __future__ import annotations

from typing import Annotated, Any

from typing_extensions import assert_type

from kvmodels import (
    CASCADE,
    AsyncDatabase,
    Database,
    ForeignKey,
    KvModel,
    Links,
    ManyToMany,
    ManyToManyRef,
    PrimaryKey,
    QuerySet,
    col,
)


class Tag(KvModel, collection="tags"):
    id: PrimaryKey[int]
    name: str
    labels: list[str]


class Post(KvModel, collection="posts"):
    id: PrimaryKey[int]
    tags: ManyToMany[Tag] = ManyToMany()
    title: str
    related: ManyToMany[Post] = ManyToMany(related_name="related_from")
    marks: ManyToMany[Tag] = ManyToMany(through="Mark", related_name="marked")


class Mark(KvModel, collection="marks"):
    post_id: Annotated[ForeignKey[int, Post], PrimaryKey(), CASCADE]
    tag_id: Annotated[ForeignKey[int, Tag], PrimaryKey(), CASCADE]


db = Database("memory://", models=[Tag, Post, Mark])
post = Post(id=1, title="Emma")
tag = Tag(id=1, name="red", labels=[])
db[Post].insert(post)
db[Tag].bulk_create([tag, Tag(id=2, name="blue", labels=[])])
assert_type(Post.tags, ManyToManyRef[Post, Tag])
assert_type(Post.tags.reverse, ManyToManyRef[Tag, Post])
links = db[Post].links(Post.tags)
assert_type(links, Links[Post, Tag])
assert_type(db[Post].links(Post.related), Links[Post, Post])
assert_type(links.add(post, tag, 2), int)
assert_type(links.set(1, [tag]), int)
assert_type(links.fetch([post]), dict[Any, list[Tag]])
assert_type(links.fetch_owners(db[Tag].all()), dict[Any, list[Post]])
assert_type(db[Post].filter(Post.tags.to(col(Tag.name)) == "red", tags__id=1), QuerySet[Post])
db[Post].filter(Post.tags.to(Tag.id).in_([1]), Post.tags.to(col(Tag.labels)).contains("x"))
db[Tag].filter(Post.tags.reverse.to(col(Post.title)).startswith("E"))


async def in_async_code(database: AsyncDatabase) -> None:
    found = await database[Post].links(Post.tags).fetch([1])
    assert_type(found, dict[Any, list[Tag]])
    async with database.transaction() as tx:
        assert_type(await tx[Post].links(Post.marks).clear(post), int)
