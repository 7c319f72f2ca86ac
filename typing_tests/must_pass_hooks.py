"""Hooks, signals and fields that the library sets; every line must be accepted, with the type that is asserted."""

from datetime import date, datetime
from typing import Annotated, Any, Self, assert_type

from kvmodels import AsyncDatabase, AutoNow, AutoNowAdd, Database, Field, Indexed, KvModel, PrimaryKey, Version
from kvmodels.schema.declare.expressions import FieldRef


class Dated(KvModel, abstract=True):
    created_at: datetime = AutoNowAdd()
    updated_at: Indexed[datetime] = AutoNow(description="when it was last written")
    changed_on: date = AutoNow()
    seen_at: datetime | None = AutoNow()
    revision: int = Version()

    def before_update(self, old: Any) -> None:
        super().before_update(old)


class Article(Dated, collection="articles"):
    id: PrimaryKey[int]
    title: str
    slug: Indexed[str] = Field(default="")
    printed: Annotated[date, AutoNowAdd()]

    def before_insert(self) -> None:
        self.slug = self.title.lower()

    def before_update(self, old: Self) -> None:
        assert_type(old.title, str)

    def after_update(self, old: "Article") -> None:
        assert_type(old.revision, int)

    def after_remove(self) -> None:
        print(self.title)


article = Article(id=1, title="Notes", printed=date(2020, 1, 1))
assert_type(article.created_at, datetime)
assert_type(article.updated_at, datetime)
assert_type(article.changed_on, date)
assert_type(article.seen_at, datetime | None)
assert_type(article.revision, int)
assert_type(Article.updated_at, FieldRef[datetime])


def receivers(db: Database, adb: AsyncDatabase) -> None:
    @db.signals.before_insert(Article)
    def one(article: Article) -> None:
        article.title = article.title.strip()

    @db.signals.after_update(Article)
    def two(article: Article, old: Article) -> int:
        return article.revision - old.revision

    @adb.signals.after_remove.connect
    def every(obj: KvModel) -> None:
        print(obj.pk)

    def dated(obj: Dated) -> None:
        print(obj.created_at)

    db.signals.after_insert.connect(dated, Dated)
    db.signals.after_insert.connect(dated, Article)
    db.signals.after_update.connect(two, Article)
    db.signals.before_remove.connect(print)
    assert_type(db.signals.after_update.disconnect(two), bool)
    assert_type(db.signals.after_insert.disconnect(dated, Article), bool)
    one(article)
    assert_type(two(article, article), int)
    every(article)


def renamed(db: Database) -> None:
    assert_type(db[Article].rename(1, 2), Article)


async def renamed_too(db: AsyncDatabase) -> None:
    assert_type(await db[Article].rename(1, 2), Article)
