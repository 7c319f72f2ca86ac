"""Mistakes with hooks and fields that the library sets: each line with a code must be reported with it, no other."""

from datetime import datetime

from kvmodels import AutoNow, AutoNowAdd, Database, Indexed, KvModel, PrimaryKey, Version


class Article(KvModel, collection="articles"):
    id: PrimaryKey[int]
    title: str
    created_at: datetime = AutoNowAdd()
    updated_at: Indexed[datetime] = AutoNow()
    revision: int = Version()


class Other(KvModel, collection="others"):
    id: PrimaryKey[int]


class Wrong(KvModel, collection="wrong"):
    id: PrimaryKey[int]

    def before_insert(self, old: KvModel) -> None: ...  # mypy: override / pyright: reportIncompatibleMethodOverride
    def before_update(self) -> None: ...  # mypy: override / pyright: reportIncompatibleMethodOverride
    async def after_insert(self) -> None: ...  # mypy: override / pyright: reportIncompatibleMethodOverride
    def after_remove(self) -> int:  # mypy: override / pyright: reportIncompatibleMethodOverride
        return 1


Article(id=1, title="x", created_at=datetime(2020, 1, 1))  # mypy: call-arg / pyright: reportCallIssue
Article(id=1, title="x", updated_at=datetime(2020, 1, 1))  # mypy: call-arg / pyright: reportCallIssue
Article(id=1, title="x", revision=1)  # mypy: call-arg / pyright: reportCallIssue
Article(id=1)  # mypy: call-arg / pyright: reportCallIssue
AutoNow(init=True)  # mypy: arg-type / pyright: reportArgumentType
AutoNow(1)  # mypy: arg-type, call-arg / pyright: reportCallIssue


def on_article(article: Article) -> None: ...
def on_change(article: Article, old: Article) -> None: ...


def receivers(db: Database) -> None:
    db.signals.after_insert.connect(on_article, Other)  # mypy: arg-type / pyright: reportArgumentType
    db.signals.after_insert.connect(on_article, KvModel)  # mypy: arg-type / pyright: reportArgumentType
    db.signals.after_insert.connect(on_article)  # mypy: arg-type / pyright: reportArgumentType
    db.signals.after_insert.connect(on_change, Article)  # mypy: arg-type / pyright: reportArgumentType
    db.signals.after_update.connect(on_article, Article)  # mypy: arg-type / pyright: reportArgumentType
    db.signals.after_update.connect(on_change)  # mypy: arg-type / pyright: reportArgumentType
    db.signals.after_insert.connect(on_article, "Article")  # mypy: call-overload / pyright: reportArgumentType
    db.signals.before_save.connect(on_article, Article)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownMemberType
    db.signals.after_insert(Other)(on_article)  # mypy: arg-type / pyright: reportArgumentType
    db.signals.after_insert = db.signals.after_remove  # mypy: misc / pyright: reportAttributeAccessIssue
    db[Article].rename(1)  # mypy: call-arg / pyright: reportCallIssue
    db[Article].rename(1, new_key=2)  # mypy: call-arg / pyright: reportCallIssue
