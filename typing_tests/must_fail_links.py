"""Many-to-many relations that type checkers must refuse."""

from __future__ import annotations

from kvmodels import Database, KvModel, ManyToMany, PrimaryKey


class Tag(KvModel, collection="tags"):
    id: PrimaryKey[int]
    name: str


class Post(KvModel, collection="posts"):
    id: PrimaryKey[int]
    tags: ManyToMany[Tag] = ManyToMany()


db = Database("memory://", models=[Tag, Post])
post = Post(id=1)
links = db[Post].links(Post.tags)
post.tags  # mypy: arg-type / pyright: reportAttributeAccessIssue, reportUnknownMemberType
Post(id=1, tags=[])  # mypy: arg-type / pyright: reportArgumentType
db[Tag].links(Post.tags)  # mypy: arg-type / pyright: reportArgumentType
db[Post].links("tags")  # mypy: arg-type / pyright: reportArgumentType
db[Post].with_related(Post.tags)  # mypy: call-overload / pyright: reportArgumentType
db[Post].order_by(Post.tags)  # mypy: arg-type / pyright: reportArgumentType
Post.tags.to("name")  # mypy: call-overload / pyright: reportCallIssue, reportArgumentType
Post.tags.contains(1)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownMemberType
owned: dict[int, list[Post]] = links.fetch([post])  # mypy: assignment / pyright: reportAssignmentType
links.set(post, 3)  # mypy: arg-type / pyright: reportArgumentType
ManyToMany(through=3)  # mypy: arg-type / pyright: reportArgumentType
